"""What the planned engine plans, refuses and leaves to the functional engine; and that it leaves no traces."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato.dpsgd import ParameterLayout, Support, get_engine, kernel_loading, planner
from sfumato.dpsgd.planned import PlannedEngine
from sfumato.errors import SfumatoError, UnsupportedLayerError
from tests.sfumato.dpsgd.reference import Tied, cross_entropy, generator, initialise, make
from tests.sfumato.dpsgd.test_engines import Branching, Folded, Leaking, Whitening, assert_exact

Trusting = functools.partial(PlannedEngine, trusted=True)


KERNELS = ["numba", "torch"]


def everything(model: nn.Module) -> Support:
    return Support.full(ParameterLayout.of(model).size)


def whole(model: nn.Module, inputs: torch.Tensor) -> str | None:
    return Trusting().plan(model, everything(model), inputs).whole


class Flipped(nn.Module):
    """Turns the batch around before its layer and back afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.flip(0)).flip(0)


class TimeFirst(nn.Module):
    """Has its positions along the first axis within."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.layer(x.view(len(x), 3, 2).transpose(0, 1))).mean(dim=0))


class ChangedLater(nn.Module):
    """Changes the input of its layer in place, afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x * 2.0
        other = torch.tanh(self.first(hidden))
        return self.second(hidden.add_(1.0) * other)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Whitening(), "change with the other examples"),
        (Flipped(), "no rows that belong to one example"),
        (TimeFirst(), "no rows that belong to one example"),
        (Folded(nn.Conv2d(1, 2, 1)), "no rows that belong to one example"),
        (Branching(), "asks for values"),
        (Tied(), "used 3 time"),
        (Leaking(False), "used 2 time"),
        (Leaking(True), "used 1 time"),
        (
            nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3), nn.Softmax(dim=0)),
            "change with the other examples",
        ),
    ],
)
def test_what_cannot_be_planned_is_left_to_the_functional_engine(model: nn.Module, why: str) -> None:
    inputs = make("linear", torch.float32)[1][0]
    found = Trusting().plan(initialise(model), everything(model), inputs)
    assert why in str(found.whole)
    assert found.explain().count("the whole model") == len(list(model.parameters()))


@pytest.mark.parametrize("model", [Flipped(), TimeFirst(), Leaking(False), Tied()])
def test_what_is_left_to_the_functional_engine_is_exact_and_said_once(model: nn.Module) -> None:
    batch, engine = make("linear", torch.float32)[1], Trusting(3)
    initialise(model)
    with pytest.warns(UserWarning, match="left to the slower functional engine"):
        engine.clipped_sum(model, cross_entropy, batch, everything(model), 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_exact(engine, model, batch)


def test_inputs_that_are_changed_in_place_afterwards_are_noticed() -> None:
    batch, model = make("linear", torch.float32)[1], initialise(ChangedLater())
    with pytest.warns(UserWarning, match="input of 'first.weight' is changed in place after it is used"):
        found = Trusting(3).clipped_sum(model, cross_entropy, batch, everything(model), 0.3)
    wanted = get_engine("functional", 3).clipped_sum(model, cross_entropy, batch, everything(model), 0.3)
    assert torch.equal(found.sum, wanted.sum)


def test_tied_weights_outside_of_the_support_do_not_matter() -> None:
    model, batch = initialise(Tied()), make("linear", torch.float32)[1]
    layout = ParameterLayout.of(model)
    head = Support.of(list(range(layout.offsets[-1], layout.size)), layout.size)
    assert Trusting().plan(model, head, batch[0]).whole is None


def test_a_loss_that_mixes_examples_is_left_to_the_functional_engine() -> None:
    model, batch = make("linear", torch.float32)

    def mean(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs, targets) / len(outputs)

    found = Trusting().clipped_sum(model, mean, batch, everything(model), 0.3)
    wanted = get_engine("functional").clipped_sum(model, mean, batch, everything(model), 0.3)
    assert torch.equal(found.sum, wanted.sum)


def test_batch_norm_is_refused_with_its_name() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    batch = torch.zeros(2, 1, 4, 4), torch.tensor([0, 1])
    with pytest.raises(UnsupportedLayerError, match=r"layer '1' \(BatchNorm2d\) mixes the examples"):
        Trusting().clipped_sum(model, cross_entropy, batch, everything(model), 1.0)


def test_a_model_that_changes_is_tried_anew() -> None:
    model, batch = make("linear", torch.float32)
    engine = Trusting()
    engine.clipped_sum(model, cross_entropy, batch, everything(model), 0.3)
    model.append(nn.Softmax(dim=0))
    assert "change with the other" in str(engine.plan(model, everything(model), batch[0]).whole)
    model.pop(-1)
    model[0].requires_grad_(False)
    assert_exact(engine, model, batch)


def test_the_plan_says_which_rule_and_why() -> None:
    model, (x, _) = make("convolution_groups", torch.float32)
    layout = ParameterLayout.of(model)
    table = Trusting().plan(model, Support.of([0, 90, layout.size - 1], layout.size), x).explain()
    lines = [line.split() for line in table.splitlines()]
    assert lines[0] == ["layer", "parameter", "active", "rule", "why"]
    assert [line[:4] for line in lines[1:]] == [
        ["0", "weight", "1/72", "sampled"],
        ["2", "weight", "1/72", "sampled"] if layout.slices["2.weight"].start <= 90 else lines[2][:4],
        ["9", "bias", "1/3", "values"],
    ]
    assert "torch" in Trusting(kernels="torch").plan(model, everything(model), x).explain()


def test_layers_without_a_rule_go_through_torch_func_alone() -> None:
    model = initialise(nn.Sequential(nn.Conv1d(2, 4, 3), nn.PReLU(4), nn.Flatten(), nn.Linear(16, 3)))
    batch = torch.randn(5, 2, 6, generator=generator()), torch.tensor([0, 1, 2, 1, 0])
    table = Trusting().plan(model, everything(model), batch[0]).explain()
    assert table.count("torch.func") == 3
    assert table.count("rank_one") == 1
    assert_exact(Trusting(2), model, batch)


class Backward(nn.Module):
    """Notes that gradients pass."""

    def __init__(self, seen: list[int]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.requires_grad:
            x.register_hook(lambda gradient: self.seen.append(1))
        return x + 0.0


def test_nothing_is_differentiated_below_the_lowest_active_layer() -> None:
    seen: list[int] = []
    model = initialise(nn.Sequential(nn.Linear(6, 6), Backward(seen), nn.Linear(6, 3)))
    batch = make("linear", torch.float32)[1]
    d = ParameterLayout.of(model).size
    Trusting().clipped_sum(model, cross_entropy, batch, Support.of(list(range(42, d)), d), 0.3)
    assert not seen
    Trusting().clipped_sum(model, cross_entropy, batch, Support.of([0, d - 1], d), 0.3)
    assert seen


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_model_is_untouched_after_an_error_too(kernels: str) -> None:
    model, (x, y) = make("convolution", torch.float32)
    before, states = copy.deepcopy(model.state_dict()), [vars(layer).keys() for layer in model.modules()]

    def fails(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trusting(3, kernels).clipped_sum(model, fails, (x, y), everything(model), 0.3)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert [vars(layer).keys() for layer in model.modules()] == states
    assert not any(layer._forward_hooks for layer in model.modules())


def test_the_default_engine_is_the_planned_one_and_travels_between_processes() -> None:
    make, settings = get_engine(micro_batch=5, kernels="torch", trusted=True).__reduce__()[:2]
    assert make(*settings) == PlannedEngine(5, "torch", trusted=True)
    with pytest.raises(SfumatoError, match="kernels is 'cuda'; allowed are"):
        get_engine(kernels="cuda")


def test_small_examples_are_held_by_the_hundreds_and_large_ones_by_32() -> None:
    rows = nn.Linear(6, 3)
    film = nn.Sequential(nn.Conv2d(3, 32, 3), nn.Flatten(), nn.LazyLinear(2))
    film(torch.zeros(1, 3, 48, 48))
    assert Trusting().plan(rows, everything(rows), torch.zeros(1, 6)).micro_batch == 512
    assert Trusting().plan(film, everything(film), torch.zeros(1, 3, 48, 48)).micro_batch == 32


def test_large_gradients_that_are_held_run_by_sixteen_examples_and_by_fewer_where_memory_asks() -> None:
    def convolution(channels: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1))

    counts = {}
    for channels in (32, 128, 512, 1024):
        model = convolution(channels)
        plan = Trusting().plan(model, everything(model), torch.zeros(1, channels, 4, 4))
        counts[channels] = plan.micro_batch
    assert counts[32] > 32
    assert counts[32] * 9_248 <= planner.HELD
    assert counts[128] == 32
    assert counts[512] == 16
    assert counts[1024] == planner.LARGEST // 9_438_208


def test_without_numba_the_slow_path_is_said_once_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError("no module named numba")

    kernel_loading._numba.cache_clear()
    monkeypatch.setattr(kernel_loading.importlib, "import_module", missing)
    model, batch = make("convolution", torch.float32)
    with pytest.warns(UserWarning, match="Numba kernels cannot be used .*no module named numba"):
        Trusting().plan(model, everything(model), batch[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_exact(Trusting(3), model, batch)
    kernel_loading._numba.cache_clear()


@pytest.mark.slow
def test_kernels_compile_where_no_cache_can_be_written(tmp_path: Path) -> None:
    cache = tmp_path / "file"
    cache.write_text("no folder")
    program = "import sfumato.dpsgd.kernels as k, numpy as np; print(k.squares(np.ones(3, np.float32)))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"NUMBA_CACHE_DIR": str(cache / "below"), "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        timeout=200,
    )
    assert run.stdout.strip() == "3.0", run.stderr


def test_operations_called_as_functions_are_seen_too() -> None:
    class Functions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = functional.linear(input=x, weight=self.first.weight, bias=self.first.bias)
            return functional.linear(torch.tanh(hidden), bias=self.head.bias, weight=self.head.weight)

    model, batch = initialise(Functions()), make("linear", torch.float32)[1]
    assert whole(model, batch[0]) is None
    assert_exact(Trusting(3), model, batch)
