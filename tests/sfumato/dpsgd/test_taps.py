"""The shortcuts of the functional engine: taken where they hold, left where they do not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sfumato.dpsgd import ParameterLayout, Support, get_engine
from sfumato.dpsgd.engine import active_parameters
from sfumato.dpsgd.functional import FunctionalEngine, _PerExample
from sfumato.dpsgd.rows import DenseRows, _by_groups, _by_patches
from tests.sfumato.dpsgd.reference import (
    cross_entropy,
    generator,
    initialise,
    make,
    reference_gradients,
    reference_sum,
)
from tests.sfumato.dpsgd.test_engines import assert_exact, close


def tapped(name: str) -> tuple[set[str], set[str]]:
    """The parameters that are tapped, and those that are differentiated."""
    model, (x, y) = make(name, torch.float32)
    active = active_parameters(model, Support.full(ParameterLayout.of(model).size))
    plan = _PerExample.prepare(model, cross_entropy, active, x, y)
    names = {name for site in plan.sites.values() for name in (site.weight, site.bias) if name}
    return names, set(plan.variable)


def test_only_single_uses_in_linear_and_conv2d_are_tapped() -> None:
    assert tapped("convolution") == (
        {f"{i}.{p}" for i in (0, 2, 7, 9) for p in ("weight", "bias")},
        {"3.weight", "3.bias"},
    )
    assert tapped("tied") == ({"head.weight", "second.bias"}, {"first.weight", "first.bias"})
    assert tapped("own_parameters") == ({"linear.bias"}, {"linear.weight", "scale"})
    assert tapped("tokens")[0] == {"mix.weight", "mix.bias", "head.weight", "head.bias"}


class Written(nn.Module):
    """A model given by a function of two Linear layers and a convolution."""

    def __init__(self, run: Callable[[Written, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.run = run
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.conv = nn.Conv2d(1, 8, (2, 3), padding=1, padding_mode="reflect")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self, x)


def residual(m: Written, x: torch.Tensor) -> torch.Tensor:
    hidden = torch.tanh(m.first(x))
    return m.head(hidden + torch.relu(m.second(hidden)))


def functional_calls(m: Written, x: torch.Tensor) -> torch.Tensor:
    hidden = functional.linear(input=x, weight=m.first.weight, bias=m.first.bias)
    return functional.linear(torch.tanh(hidden), bias=m.head.bias, weight=m.head.weight) * m.second.bias.sum()


def weight_as_a_view(m: Written, x: torch.Tensor) -> torch.Tensor:
    return m.head(x @ m.first.weight.t() + functional.linear(x, m.second.weight[:, :]))


def weight_as_data(m: Written, x: torch.Tensor) -> torch.Tensor:
    return m.head(functional.linear(m.first.weight, m.second.weight).sum() * x)


def bias_twice(m: Written, x: torch.Tensor) -> torch.Tensor:
    return m.head(
        functional.linear(
            torch.tanh(functional.linear(x, m.first.weight, m.first.bias)), m.second.weight, m.first.bias
        )
    )


def pooled(m: Written, x: torch.Tensor) -> torch.Tensor:
    images = torch.relu(m.conv(x.view(-1, 1, 2, 3).repeat(1, 1, 2, 2)))
    pool = functional.max_pool2d(images, 2, stride=1, padding=1)
    both, _ = functional.max_pool2d(images, kernel_size=2, return_indices=True)
    return m.head(pool.view(len(x), -1)[:, ::17][:, :6] + both.flatten(1)[:, :6])


def constant_gradients(m: Written, x: torch.Tensor) -> torch.Tensor:
    return m.head(x) + m.first.bias.sum() * x.sum(dim=1, keepdim=True) * torch.arange(3)


def unused(m: Written, x: torch.Tensor) -> torch.Tensor:
    return m.head(x)


@pytest.mark.parametrize(
    "run",
    [
        residual,
        functional_calls,
        weight_as_a_view,
        weight_as_data,
        bias_twice,
        pooled,
        constant_gradients,
        unused,
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_models_written_in_any_way_are_exact(
    run: Callable[[Written, torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    _, batch = make("linear", dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_exact(get_engine("functional", 4), initialise(Written(run)).to(dtype), batch)


def test_inputs_changed_in_place_afterwards_do_not_spoil_the_gradient() -> None:
    def plain(m: Written, x: torch.Tensor) -> torch.Tensor:
        hidden = x * 2.0
        return m.head(torch.tanh(m.second(hidden)) + (hidden + 1.0))

    def in_place(m: Written, x: torch.Tensor) -> torch.Tensor:
        hidden = x * 2.0
        other = torch.tanh(m.second(hidden))
        return m.head(hidden.add_(1.0).add_(other))

    _, batch = make("linear", torch.float32)
    support = Support.full(ParameterLayout.of(Written(plain)).size)
    found = [
        get_engine("functional").clipped_sum(initialise(Written(run)), cross_entropy, batch, support, 0.3)
        for run in (plain, in_place)
    ]
    assert close(found[1].sum, found[0].sum)
    assert close(found[1].norms, found[0].norms)


def test_max_pooling_keeps_the_first_of_equal_values() -> None:
    """Ties are common after ReLU; the gradient must go where autograd sends it."""
    model = initialise(
        nn.Sequential(
            nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 1, 1), nn.Flatten(), nn.Linear(448, 3)
        )
    )
    _, (x, y) = make("convolution", torch.float32)
    x[:, :, 2:6] = 0.0
    assert_exact(get_engine("functional", 3), model, (x, y))


@pytest.mark.parametrize("size", [3, 1024, 1025, 5000, 600_000])
def test_norms_of_long_rows_are_exact_to_a_millionth(size: int) -> None:
    for values in (torch.full((2, size), 0.1234567), torch.randn(2, size, generator=generator())):
        wanted = values.double().square().sum(dim=1)
        assert float((DenseRows(values, None).squares(exact=False) / wanted - 1).abs().max()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": (2, 1)},
        {"padding": (0, 2)},
        {"dilation": (1, 2)},
        {"groups": 2, "stride": 2, "padding": 1},
    ],
)
def test_both_ways_to_convolution_gradients_are_those_of_autograd(
    options: dict[str, Any], dtype: torch.dtype
) -> None:
    layer = initialise(nn.Conv2d(4, 6, (3, 2), bias=False, **options)).to(dtype)
    images = torch.randn(3, 4, 7, 8, generator=generator()).to(dtype)
    outputs = layer(images)
    weights = torch.randn(outputs.shape, generator=generator(1)).to(dtype)
    names = ("stride", "padding", "dilation", "groups")
    described = {name: getattr(layer, name) for name in names} | {"kernel": layer.kernel_size}
    wanted = [
        torch.autograd.grad((outputs[i] * weights[i]).sum(), layer.weight, retain_graph=True)[0]
        for i in range(3)
    ]
    for way in (_by_groups, _by_patches):
        found = way(weights[:, None], images[:, None], described)
        assert close(found.flatten(), torch.stack(wanted).flatten()), way.__name__


def test_large_planes_go_through_groups_and_are_exact() -> None:
    model = initialise(
        nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 3, 6, 2), nn.Flatten(2))
    )
    images = torch.randn(3, 2, 34, 36, generator=generator())
    assert 8 * 6 * 6 * 15 * 16 > 65_536, "the second layer is meant to be large"

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs.square().mean(dim=2), targets)

    targets = torch.tensor([0, 1, 2])
    support = Support.full(ParameterLayout.of(model).size)
    wanted = reference_sum(reference_gradients(model, loss, (images, targets)), support, 0.1)
    found = get_engine("functional").clipped_sum(model, loss, (images, targets), support, 0.1)
    assert close(found.sum, wanted.sum)
    assert close(found.norms, wanted.norms)


class Largest(TorchDispatchMode):
    """The bytes of the largest storage that an operation makes, those of given tensors apart."""

    def __init__(self, *given: torch.Tensor) -> None:
        super().__init__()
        self.given = {tensor.untyped_storage().data_ptr() for tensor in given}
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.given:
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return output


@pytest.mark.parametrize("name", ["convolution", "tied"])
def test_memory_does_not_grow_with_the_batch(name: str) -> None:
    model, (x, y) = make(name, torch.float32)
    d = ParameterLayout.of(model).size

    def largest(copies: int, micro_batch: int) -> int:
        batch = (x.repeat(copies, *[1] * (x.ndim - 1)), y.repeat(copies))
        with Largest(*batch) as seen:
            get_engine("functional", micro_batch).clipped_sum(
                model, cross_entropy, batch, Support.full(d), 1.0
            )
        return seen.bytes

    assert largest(10, 16) == largest(30, 16) < largest(30, 64)


def test_micro_batch_is_chosen_by_the_active_parameters_alone() -> None:
    assert [FunctionalEngine().micro_batch_for(size) for size in (1, 26_010, 550_570, 10**8)] == [
        128,
        128,
        29,
        1,
    ]


class Temperature(nn.Module):
    """A scalar parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.tensor(1.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


class Broadcast(nn.Module):
    """A Linear operation whose bias has a shape that is broadcast."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(3, 6)), nn.Parameter(torch.ones(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x.unsqueeze(1).repeat(1, 4, 1), self.weight, self.bias).tanh().sum(dim=1)


class Frames(nn.Module):
    """A convolution over the frames of a film, all frames of all films in one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 2)
        self.mix = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = x.view(len(x), 3, 1, 1, 2).repeat(1, 1, 1, 3, 2).flatten(0, 1)
        hidden = torch.tanh(self.mix(torch.tanh(self.conv(frames)).mean(dim=(2, 3))))
        return self.head(hidden.view(len(x), 3, 4).mean(dim=1))


@pytest.mark.parametrize(
    "model",
    [Temperature(), Broadcast(1), Broadcast(1, 3), Broadcast(4, 3), Frames()],
    ids=["scalar", "bias_of_one", "bias_of_one_row", "bias_of_four_rows", "frames"],
)
def test_scalars_broadcast_biases_and_folded_batches_are_exact(model: nn.Module) -> None:
    assert_exact(get_engine("functional", 3), initialise(model), make("linear", torch.float32)[1])
