"""Both engines give the clipped sums and norms of per-example autograd in float64."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from sfumato.dpsgd import ClippedSum, ParameterLayout, Support, get_engine
from sfumato.dpsgd.engine import Engine
from sfumato.errors import SfumatoError, UnsupportedLayerError
from tests.sfumato.dpsgd.reference import (
    MODELS,
    OPACUS_MODELS,
    cross_entropy,
    generator,
    initialise,
    make,
    reference_gradients,
    reference_sum,
    supports,
)

ENGINES = ["planned", "functional", "opacus"]
CASES = [(engine, name) for engine in ENGINES[:2] for name in MODELS] + [
    ("opacus", name) for name in OPACUS_MODELS
]


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-5) -> bool:
    """Whether the Euclidean distance is within the tolerance, relative to the wanted vector."""
    scale = max(float(wanted.double().norm()), 1e-12)
    return float((found.double() - wanted.double()).norm()) <= tolerance * scale


def assert_exact(engine: Engine, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    with torch.enable_grad():
        gradients = reference_gradients(model, cross_entropy, batch)
    clip_norm = float(gradients.norm(dim=1).median()) / 2
    for name, support in supports(ParameterLayout.of(model)).items():
        wanted = reference_sum(gradients, support, clip_norm)
        found = engine.clipped_sum(model, cross_entropy, batch, support, clip_norm)
        assert (found.sum.dtype, found.sum.shape) == (torch.float32, (support.k,)), name
        assert close(found.norms, wanted.norms), (name, found.norms, wanted.norms)
        assert close(found.sum, wanted.sum), (name, found.sum, wanted.sum)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(("engine", "name"), CASES)
def test_sums_and_norms_are_those_of_per_example_autograd(engine: str, name: str, dtype: torch.dtype) -> None:
    model, batch = make(name, dtype)
    assert_exact(get_engine(engine, micro_batch=3), model, batch)


@pytest.mark.parametrize("micro_batch", [1, 2, 7, 64, None])
def test_micro_batches_change_only_rounding(micro_batch: int | None) -> None:
    model, batch = make("convolution_stride", torch.float32)
    assert_exact(get_engine("functional", micro_batch), model, batch)


@pytest.mark.parametrize("engine", ENGINES)
def test_channels_last_models_and_inputs_give_the_same_values(engine: str) -> None:
    model, (x, y) = make("convolution_groups", torch.float32)
    model = model.to(memory_format=torch.channels_last)
    assert_exact(get_engine(engine, 4), model, (x.contiguous(memory_format=torch.channels_last), y))


@pytest.mark.parametrize("engine", ENGINES)
def test_parameters_without_gradient_are_no_coordinates(engine: str) -> None:
    model, batch = make("convolution", torch.float32)
    model[2].requires_grad_(False)
    model[7].bias.requires_grad_(False)
    assert_exact(get_engine(engine, 4), model, batch)


@pytest.mark.parametrize("engine", ENGINES)
def test_switching_supports_forth_and_back_changes_nothing(engine: str) -> None:
    model, batch = make("convolution", torch.float32)
    d = ParameterLayout.of(model).size
    run = get_engine(engine)
    before = run.clipped_sum(model, cross_entropy, batch, Support.full(d), 0.5)
    run.clipped_sum(model, cross_entropy, batch, Support.of([3], d), 0.5)
    after = run.clipped_sum(model, cross_entropy, batch, Support.full(d), 0.5)
    assert torch.equal(before.sum, after.sum)
    assert torch.equal(before.norms, after.norms)


@pytest.mark.parametrize("engine", ENGINES)
def test_model_and_batch_are_left_as_they_were(engine: str) -> None:
    model, batch = make("convolution", torch.float32)
    batch[0][2, 0, 0, 0] = float("nan")
    model.train()
    model[0].eval()
    model[3].weight.requires_grad_(False)
    model[9].weight.grad = torch.ones_like(model[9].weight)
    copies = copy.deepcopy((dict(model.state_dict()), batch))
    random_state = torch.get_rng_state()
    d = ParameterLayout.of(model).size
    get_engine(engine).clipped_sum(model, cross_entropy, batch, Support.of([0, d - 1], d), 0.5)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, copies[0][name])
    for now, then in zip(batch, copies[1], strict=True):
        assert torch.equal(torch.nan_to_num(now, 7.0), torch.nan_to_num(then, 7.0))
    assert torch.equal(torch.get_rng_state(), random_state)
    grads = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert grads == ["9.weight"]
    assert bool((model[9].weight.grad == 1).all())
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == ["3.weight"]
    assert [m.training for m in model] == [False] + [True] * 9
    for layer in model.modules():
        assert not (layer._forward_hooks)
        assert not (layer._backward_hooks)
        assert not (layer._forward_pre_hooks)
        assert not any(hasattr(p, "grad_sample") for p in layer.parameters(recurse=False))


@pytest.mark.parametrize("engine", ENGINES)
def test_callers_without_gradient_tracking_get_the_same_sums(engine: str) -> None:
    model, batch = make("convolution", torch.float32)
    with torch.no_grad():
        assert_exact(get_engine(engine), model, batch)


@pytest.mark.parametrize("engine", ENGINES)
def test_empty_batch_gives_zeros(engine: str) -> None:
    model, (x, y) = make("convolution", torch.float32)
    d = ParameterLayout.of(model).size
    clipped = get_engine(engine).clipped_sum(model, cross_entropy, (x[:0], y[:0]), Support.of([1, 5], d), 1.0)
    assert torch.equal(clipped.sum, torch.zeros(2))
    assert clipped.norms.shape == (0,)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("name", ["linear", "convolution"])
def test_example_without_finite_gradient_contributes_exactly_zero(
    engine: str, value: float, name: str
) -> None:
    model, (x, y) = make(name, torch.float32)
    model = nn.Sequential(*(nn.Identity() if isinstance(layer, nn.Tanh) else layer for layer in model))
    support = Support.full(ParameterLayout.of(model).size)
    x[3] = value
    others = [0, 1, 2, 4, 5, 6]
    run = get_engine(engine)
    with_it = run.clipped_sum(model, cross_entropy, (x, y), support, 0.5)
    without = run.clipped_sum(model, cross_entropy, (x[others], y[others]), support, 0.5)
    assert bool(torch.isfinite(with_it.sum).all())
    if not torch.isfinite(with_it.norms[3]):
        assert close(with_it.sum, without.sum, 1e-6)
    else:
        assert float((with_it.sum - without.sum).norm()) <= 0.5 * (1 + 1e-5)
    assert value == 1e30 or not torch.isfinite(with_it.norms[3])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("clip_norm", [0, 0.0, -1.0, float("inf"), float("nan"), True, "1", None])
def test_impossible_clip_norm_is_refused(engine: str, clip_norm: float) -> None:
    model, batch = make("linear", torch.float32)
    with pytest.raises(SfumatoError, match="clip_norm"):
        get_engine(engine).clipped_sum(model, cross_entropy, batch, Support.of([0], 53), clip_norm)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("clip_norm", [1e-30, 1e-25, 1e-12, 1e30])
@pytest.mark.parametrize("name", ["linear", "convolution"])
def test_extreme_clip_norm_gives_finite_bounded_sums(engine: str, clip_norm: float, name: str) -> None:
    model, batch = make(name, torch.float32)
    support = Support.full(ParameterLayout.of(model).size)
    for scale in (1e-25, 1e-18, 1.0, 1e12):

        def scaled(outputs: torch.Tensor, targets: torch.Tensor, scale: float = scale) -> torch.Tensor:
            return cross_entropy(outputs, targets) * scale

        found = get_engine(engine).clipped_sum(model, scaled, batch, support, clip_norm)
        assert bool(torch.isfinite(found.sum).all())
        assert float(found.sum.double().norm()) <= 7 * clip_norm * (1 + 1e-5)
        wanted = reference_sum(reference_gradients(model, scaled, batch), support, clip_norm)
        assert close(found.sum / clip_norm, wanted.sum / clip_norm)


@pytest.mark.parametrize("engine", ENGINES)
def test_gradient_of_zero_is_no_division_by_zero(engine: str) -> None:
    model, batch = make("linear", torch.float32)

    def flat(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.sum(dim=1) * 0.0

    found = get_engine(engine).clipped_sum(model, flat, batch, Support.full(53), 1.0)
    assert torch.equal(found.sum, torch.zeros(53))
    assert torch.equal(found.norms, torch.zeros(7))


class Whitening(nn.Module):
    """Subtracts the mean over the batch: it mixes examples."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x - x.mean(dim=0, keepdim=True))


def test_functional_engine_cannot_be_made_to_mix_examples() -> None:
    model = initialise(Whitening())
    x, y = torch.randn(5, 6, generator=generator()), torch.tensor([0, 1, 2, 0, 1])
    support = Support.full(21)
    run = get_engine("functional")
    whole = run.clipped_sum(model, cross_entropy, (x, y), support, 0.1)
    without = run.clipped_sum(model, cross_entropy, (x[1:], y[1:]), support, 0.1)
    assert float((whole.sum - without.sum).norm()) <= 0.1 * (1 + 1e-5)


class Branching(nn.Module):
    """Asks for a value of the data, which torch.func cannot vectorise."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x if x.sum().item() > 0 else -x)


def test_functional_engine_names_a_model_that_it_cannot_vectorise() -> None:
    _, batch = make("linear", torch.float32)
    with pytest.raises(
        UnsupportedLayerError, match=r"model Branching cannot be differentiated example by example"
    ):
        get_engine("functional").clipped_sum(Branching(), cross_entropy, batch, Support.full(21), 1.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_misfits_are_named(engine: str) -> None:
    model, (x, y) = make("linear", torch.float32)
    run = get_engine(engine)
    with pytest.raises(SfumatoError, match="d=52 coordinates, the layout has 53"):
        run.clipped_sum(model, cross_entropy, (x, y), Support.full(52), 1.0)
    with pytest.raises(SfumatoError, match="first dimensions must agree"):
        run.clipped_sum(model, cross_entropy, (x, y[1:]), Support.full(53), 1.0)
    with pytest.raises(SfumatoError, match="one loss for each example"):
        run.clipped_sum(model, nn.functional.cross_entropy, (x, y), Support.full(53), 1.0)


def test_unknown_engine_and_micro_batch_are_named() -> None:
    with pytest.raises(SfumatoError, match="engine is 'fast'; allowed are"):
        get_engine("fast")
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(SfumatoError, match="micro_batch is"):
            get_engine("functional", wrong)  # type: ignore[arg-type]


def test_clip_before_mask_is_told_apart_from_mask_before_clip() -> None:
    """Clipping before masking is private but wastes the norm; the exactness check catches it."""
    model, batch = make("convolution", torch.float32)
    gradients = reference_gradients(model, cross_entropy, batch)
    support = supports(ParameterLayout.of(model))["random_5"]
    clip_norm = float(gradients.norm(dim=1).median()) / 2
    factors = (clip_norm / gradients.norm(dim=1)).clamp(max=1.0)
    planted = ClippedSum((gradients * factors[:, None]).sum(dim=0)[support.indices], gradients.norm(dim=1))
    wanted = reference_sum(gradients, support, clip_norm)
    found = get_engine("functional").clipped_sum(model, cross_entropy, batch, support, clip_norm)
    assert close(found.sum, wanted.sum)
    assert not close(planted.sum, wanted.sum)


def test_no_warning_reaches_the_user() -> None:
    model, batch = make("convolution", torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for engine in ENGINES:
            d = ParameterLayout.of(model).size
            get_engine(engine).clipped_sum(model, cross_entropy, batch, Support.full(d), 1.0)


class Unused(nn.Module):
    """Holds a layer that its forward does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unused, self.head = nn.Linear(6, 4), nn.Linear(2, 2), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.first(x)))


@pytest.mark.parametrize("engine", ENGINES)
def test_parameters_that_are_not_used_have_gradients_of_zero(engine: str) -> None:
    _, batch = make("linear", torch.float32)
    assert_exact(get_engine(engine, 3), initialise(Unused()), batch)


class Folded(nn.Module):
    """Runs its layers on rows that are parts of an example."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.layer(x.view(2 * len(x), 1, 3, 1)).view(len(x), 2, 2, 3)
        return torch.tanh(parts).sum(dim=(1, 2)) * torch.arange(1.0, 4.0)


@pytest.mark.parametrize("layer", [nn.Conv2d(1, 2, 1), nn.Conv2d(1, 2, (3, 1), padding=(1, 0))])
def test_opacus_refuses_layers_that_read_parts_of_examples_as_examples(layer: nn.Module) -> None:
    """Their gradients would be clipped one by one, and an example could move the sum by more than the bound."""
    model, batch = initialise(Folded(layer)), make("linear", torch.float32)[1]
    support = Support.full(ParameterLayout.of(model).size)
    with pytest.raises(
        UnsupportedLayerError, match=r"14 gradients for 7 examples .* functional engine instead"
    ):
        get_engine("opacus").clipped_sum(model, cross_entropy, batch, support, 0.3)
    assert_exact(get_engine("functional"), model, batch)


class Leaking(nn.Module):
    """Uses the weight of a layer outside of the layer too, or only there."""

    def __init__(self, only: bool) -> None:
        super().__init__()
        self.linear, self.head, self.only = nn.Linear(6, 6), nn.Linear(6, 3), only

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = x if self.only else self.linear(x)
        return self.head(torch.tanh(inside @ self.linear.weight))


@pytest.mark.parametrize("only", [False, True])
def test_opacus_refuses_parameters_that_are_used_outside_of_their_layer(only: bool) -> None:
    """Opacus sees no other use than the layer's own; its gradients would silently be others."""
    model, batch = initialise(Leaking(only)), make("linear", torch.float32)[1]
    support = Support.full(ParameterLayout.of(model).size)
    with pytest.raises(UnsupportedLayerError, match=r"'linear.weight' has gradients .* do not add up"):
        get_engine("opacus").clipped_sum(model, cross_entropy, batch, support, 0.3)
    assert_exact(get_engine("functional"), model, batch)


LAYERS = {
    "conv1d": lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2),
    "conv1d_same": lambda: nn.Conv1d(4, 6, 4, padding="same"),
    "conv2d": lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
    "conv2d_same": lambda: nn.Conv2d(4, 6, (2, 3), padding="same", bias=False),
    "conv3d": lambda: nn.Conv3d(4, 6, (1, 2, 3), stride=(1, 2, 1), padding=1, dilation=(2, 1, 1), groups=2),
    "group_norm": lambda: nn.GroupNorm(2, 4),
    "layer_norm": lambda: nn.LayerNorm([5, 6]),
    "layer_norm_last": lambda: nn.LayerNorm(6),
    "instance_norm1d": lambda: nn.InstanceNorm1d(4, affine=True),
    "instance_norm2d": lambda: nn.InstanceNorm2d(4, affine=True),
    "instance_norm3d": lambda: nn.InstanceNorm3d(4, affine=True),
    "linear": lambda: nn.Linear(6, 2),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", list(LAYERS))
def test_every_layer_of_opacus_is_exact_with_all_of_its_options(engine: str, name: str) -> None:
    shape = (4, 6) if "1d" in name else (4, 5, 5, 6) if "3d" in name else (4, 5, 6)
    images = torch.randn(5, *shape, generator=generator())
    model = nn.Sequential(LAYERS[name](), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))
    model(images)
    targets = torch.tensor([0, 1, 2, 1, 0])
    d = ParameterLayout.of(initialise(model)).size
    wanted = reference_sum(reference_gradients(model, cross_entropy, (images, targets)), Support.full(d), 0.3)
    found = get_engine(engine, 2).clipped_sum(model, cross_entropy, (images, targets), Support.full(d), 0.3)
    assert close(found.sum, wanted.sum)
    assert close(found.norms, wanted.norms)


def test_gradients_that_are_nothing_but_rounding_are_not_refused() -> None:
    """A bias before an instance norm has no effect; what is left of its gradients adds up to nothing in particular."""
    model = initialise(
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Flatten(), nn.Linear(64, 3))
    )
    batch = torch.randn(7, 2, 6, 6, generator=generator()), torch.tensor([0, 1, 2, 1, 0, 2, 1])
    gradients = reference_gradients(model, cross_entropy, batch)
    d = ParameterLayout.of(model).size
    for support in (Support.full(d), Support.of([72, 73, 74, 75], d)):
        found = get_engine("opacus").clipped_sum(model, cross_entropy, batch, support, 0.3)
        wanted = reference_sum(gradients, support, 0.3)
        assert float((found.sum.double() - wanted.sum).norm()) <= 1e-5

    def large(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 1e6 * cross_entropy(outputs, targets)

    get_engine("opacus").clipped_sum(model, large, batch, Support.full(d), 0.3)
