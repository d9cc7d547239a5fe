"""The planned engine is exact for every layer, support, layout, micro-batch and kind of kernels."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from sfumato.dpsgd import ParameterLayout, Support, conv_rules
from sfumato.dpsgd.planned import PlannedEngine
from tests.sfumato.dpsgd.reference import (
    cross_entropy,
    generator,
    initialise,
    reference_gradients,
    reference_sum,
)

Trusting = functools.partial(PlannedEngine, trusted=True)


KERNELS = ["numba", "torch"]


class Sequence(nn.Module):
    """Embedding, LayerNorm over two dimensions and Linear layers over positions."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(13, 6, padding_idx=padding_idx)
        self.norm = nn.LayerNorm((4, 6))
        self.wide = nn.Linear(6, 40)
        self.mix = nn.Linear(40, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.mix(torch.tanh(self.wide(self.norm(self.embedding(tokens))))))
        return self.head(hidden.mean(dim=1))


class Bag(nn.Module):
    """Two branches that meet, an activation in place and a layer without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(4, 8, 1)
        self.line = nn.Conv1d(8, 6, 3, stride=2)
        self.slope = nn.PReLU(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = functional.relu(self.left(x), inplace=True) + torch.tanh(self.right(x))
        return self.head(self.slope(self.line(both.flatten(2))).mean(dim=2))


def images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LazyLinear(3))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(396, 9), nn.Tanh(), nn.Linear(9, 3)),
    "conv": lambda: images(nn.Conv2d(4, 6, 3, padding=1), nn.Tanh(), nn.Conv2d(6, 8, 3, padding=1)),
    "conv_narrow": lambda: images(nn.Conv2d(4, 12, 3), nn.Tanh(), nn.Conv2d(12, 5, 3)),
    "conv_one_channel_out": lambda: images(nn.Conv2d(4, 1, 5, padding=2)),
    "conv_stride": lambda: images(nn.Conv2d(4, 6, (3, 4), stride=(2, 3), padding=(1, 2))),
    "conv_dilation": lambda: images(
        nn.Conv2d(4, 16, 3, dilation=(2, 1)), nn.Tanh(), nn.Conv2d(16, 4, 2, dilation=2)
    ),
    "conv_all": lambda: images(
        nn.Conv2d(4, 6, (2, 3), stride=(1, 2), padding=(3, 1), dilation=(3, 2), groups=2)
    ),
    "conv_depthwise": lambda: images(nn.Conv2d(4, 8, 3, groups=4, bias=False), nn.GroupNorm(2, 8)),
    "conv_same": lambda: images(nn.Conv2d(4, 6, (2, 5), padding="same", dilation=(3, 1))),
    "conv_reflect": lambda: images(nn.Conv2d(4, 6, 3, padding=2, padding_mode="reflect")),
    "conv_wide": lambda: images(
        nn.Conv2d(4, 16, 1),
        nn.Tanh(),
        nn.Conv2d(16, 20, (2, 3), stride=(1, 2), padding=(1, 3), dilation=(3, 1)),
        nn.Tanh(),
        nn.Conv2d(20, 17, 2, dilation=(1, 2)),
    ),
    "conv_point": lambda: images(nn.Conv2d(4, 40, 1), nn.GroupNorm(4, 40), nn.Conv2d(40, 4, 1)),
    "group_norm": lambda: images(nn.GroupNorm(2, 4), nn.Tanh(), nn.GroupNorm(4, 4, eps=0.1)),
    "layer_norm": lambda: images(nn.LayerNorm((9, 11)), nn.Tanh(), nn.LayerNorm(11, bias=False)),
    "sequence": Sequence,
    "sequence_padding": lambda: Sequence(-2),
    "branches": Bag,
}


def make(
    name: str, dtype: torch.dtype, examples: int = 7
) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    source = generator(5)
    if name.startswith("sequence"):
        inputs = torch.randint(0, 13, (examples, 4), generator=source)
    else:
        inputs = torch.randn(examples, 4, 9, 11, generator=source, dtype=torch.float64)
    model = MODELS[name]()
    with torch.no_grad():
        model(inputs.float() if inputs.is_floating_point() else inputs)
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
    return initialise(model).to(dtype), (inputs, torch.randint(0, 3, (examples,), generator=source))


def support_of(kind: str, layout: ParameterLayout, seed: int) -> Support:
    random, d = np.random.Generator(np.random.Philox(seed)), layout.size
    if kind == "full":
        return Support.full(d)
    if kind == "empty":
        return Support.of([], d)
    if kind == "one":
        return Support.of([int(random.integers(d))], d)
    if kind == "top":
        return Support.of(np.arange(list(layout.slices.values())[-2].start, d), d)
    if kind == "rows":
        mask = np.zeros(d, bool)
        for offset, shape in zip(layout.offsets, layout.shapes, strict=True):
            width = int(np.prod(shape[1:]))
            for row in np.flatnonzero(random.random(shape[0]) < 0.5):
                mask[offset + row * width : offset + (row + 1) * width] = True
        return Support.of_mask(mask)
    return Support.of_mask(random.random(d) < float(kind))


SUPPORTS = ["0.05", "0.5", "0.9", "full", "rows", "one", "top", "empty"]


def assert_close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float, floor: float) -> None:
    """Within the tolerance of the wanted vector; single coordinates may be small by cancellation: ``floor``."""
    scale = max(float(wanted.double().norm()), floor)
    assert float((found.double() - wanted.double()).norm()) <= tolerance * scale


def check(
    name: str, kind: str, seed: int, last: bool, micro_batch: int | None, kernels: str, dtype: torch.dtype
) -> None:
    model, (x, y) = make(name, dtype)
    gradients = reference_gradients(model, cross_entropy, (x, y))
    if last and x.ndim == 4:
        x, model = (
            x.contiguous(memory_format=torch.channels_last),
            model.to(memory_format=torch.channels_last),
        )
    support = support_of(kind, ParameterLayout.of(model), seed)
    wanted = reference_sum(gradients, support, clip := float(gradients.norm(dim=1).median()) / 3)
    engine = Trusting(micro_batch, kernels)
    assert engine.plan(model, support, x).whole is None
    total, norms = engine.exact_sum(model, cross_entropy, (x, y), support, clip)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    floor = 0.02 * float(gradients.norm(dim=1).max())
    assert_close(norms, wanted.norms, tolerance, floor)
    assert_close(total, wanted.sum, tolerance, min(floor, clip))
    rounded = engine.clipped_sum(model, cross_entropy, (x, y), support, clip)
    assert (rounded.sum.dtype, rounded.norms.dtype) == (torch.float32, torch.float32)
    assert torch.equal(rounded.sum, total.float()), "two runs are the same bit for bit"


@pytest.mark.parametrize("name", list(MODELS))
@settings(max_examples=8, deadline=None)
@given(
    kind=st.sampled_from(SUPPORTS),
    seed=st.integers(0, 1000),
    last=st.booleans(),
    micro_batch=st.sampled_from([1, 3, 7, None]),
    kernels=st.sampled_from(KERNELS),
)
def test_single_precision_is_exact_to_1e_5(
    name: str, kind: str, seed: int, last: bool, micro_batch: int | None, kernels: str
) -> None:
    check(name, kind, seed, last, micro_batch, kernels, torch.float32)


@pytest.mark.parametrize("name", list(MODELS))
@settings(max_examples=3, deadline=None)
@given(
    kind=st.sampled_from(SUPPORTS),
    seed=st.integers(0, 1000),
    last=st.booleans(),
    micro_batch=st.sampled_from([1, 3, None]),
)
def test_double_precision_is_exact_to_1e_12(
    name: str, kind: str, seed: int, last: bool, micro_batch: int | None
) -> None:
    check(name, kind, seed, last, micro_batch, "numba", torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("kind", SUPPORTS)
@pytest.mark.parametrize("name", list(MODELS))
def test_every_layer_support_layout_and_micro_batch_is_exact(name: str, kind: str, kernels: str) -> None:
    for last in (False, True):
        for micro_batch in (1, 2, 7, None):
            for dtype in (torch.float32, torch.float64):
                check(name, kind, 3, last, micro_batch, kernels, dtype)


def test_every_rule_for_convolutions_is_taken_and_exact() -> None:
    model = initialise(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1),
            nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(16, 18, 3), nn.Flatten(), nn.Linear(288, 3),
        )
    )  # fmt: skip
    x, y = torch.randn(5, 3, 24, 24, generator=generator()), torch.tensor([0, 1, 2, 0, 1])
    gradients = reference_gradients(model, cross_entropy, (x, y))
    layout, rules = ParameterLayout.of(model), set()
    for kind in ("0.05", "0.5", "full", "rows"):
        support, engine = support_of(kind, layout, 1), Trusting(2)
        wanted = reference_sum(gradients, support, 0.5)
        rules |= {choice.rule.rule for choice in engine.plan(model, support, x).choices if choice.rule}
        found = engine.clipped_sum(model, cross_entropy, (x, y), support, 0.5)
        assert_close(found.norms, wanted.norms, 1e-5, 0.0)
        assert_close(found.sum, wanted.sum, 1e-5, 0.0)
    assert {"sampled", "tiled", "rank_one", "values"} <= rules


@pytest.mark.parametrize("vectors", [1, 3000])
@pytest.mark.parametrize("micro_batch", [5, 16, 23, 40])
def test_bands_of_rows_and_groups_of_sixteen_examples_add_up(
    monkeypatch: pytest.MonkeyPatch, vectors: int, micro_batch: int
) -> None:
    """Images that are packed in many bands, the last one shorter, and in groups of examples of which the last is not full."""
    monkeypatch.setattr(conv_rules, "BAND", vectors)
    model = initialise(
        nn.Sequential(
            nn.Conv2d(3, 20, 3, padding=1), nn.Tanh(), nn.Conv2d(20, 33, 3, stride=2, padding=1), nn.Tanh(),
            nn.Conv2d(33, 7, (1, 2), dilation=2), nn.Flatten(), nn.Linear(420, 3),
        )
    )  # fmt: skip
    x, y = torch.randn(40, 3, 19, 15, generator=generator()), torch.arange(40) % 3
    gradients = reference_gradients(model, cross_entropy, (x, y))
    layout = ParameterLayout.of(model)
    for kind in ("0.05", "0.5", "full", "rows"):
        support = support_of(kind, layout, 1)
        wanted = reference_sum(gradients, support, 0.5)
        found = Trusting(micro_batch).clipped_sum(model, cross_entropy, (x, y), support, 0.5)
        assert_close(found.norms, wanted.norms, 1e-5, 0.0)
        assert_close(found.sum, wanted.sum, 1e-5, 0.0)


def test_several_sizes_of_input_use_one_engine() -> None:
    model = initialise(
        nn.Sequential(nn.Conv2d(4, 6, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    )
    engine, support = Trusting(), Support.full(ParameterLayout.of(model).size)
    for size in (9, 12, 9, 17):
        x, y = torch.randn(3, 4, size, size + 1, generator=generator(size)), torch.tensor([0, 1, 2])
        wanted = reference_sum(reference_gradients(model, cross_entropy, (x, y)), support, 0.1)
        found = engine.clipped_sum(model, cross_entropy, (x, y), support, 0.1)
        assert_close(found.sum, wanted.sum, 1e-5, 0.0)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", ["linear", "conv", "conv_narrow", "group_norm", "branches"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e25])
def test_an_example_that_is_not_finite_counts_as_zero(name: str, value: float, kernels: str) -> None:
    model, (x, y) = make(name, torch.float32)
    x[3] = value
    others = [0, 1, 2, 4, 5, 6]
    engine, d = Trusting(4, kernels), ParameterLayout.of(model).size
    for kind in ("full", "0.05"):
        support = support_of(kind, ParameterLayout.of(model), 1)
        found = engine.clipped_sum(model, cross_entropy, (x, y), support, 0.01)
        without = engine.clipped_sum(model, cross_entropy, (x[others], y[others]), support, 0.01)
        assert bool(torch.isfinite(found.sum).all())
        difference = float((found.sum - without.sum).norm())
        assert difference <= (0.01 if torch.isfinite(found.norms[3]) else 1e-7) * (1 + 1e-5)
        assert_close(found.norms[others], without.norms, 1e-5, 0.0)
    assert d


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e15])
@pytest.mark.parametrize("name", ["linear", "conv"])
def test_no_gradient_escapes_the_bound_by_vanishing_squares(name: str, scale: float) -> None:
    """A small output gradient times a large input: squares of the one vanish in float32, the product does not."""
    model, (x, y) = make(name, torch.float32)

    def small(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.tanh().gather(1, targets[:, None])[:, 0] * scale

    model = nn.Sequential(*(nn.Identity() if isinstance(layer, nn.Tanh) else layer for layer in model))
    support = Support.full(ParameterLayout.of(model).size)
    for size in (1.0, 1e-8 / scale if scale < 1 else 1e-8):
        engine = Trusting(kernels="numba")
        for clip in (1e-11, 1e-6, 1.0):
            found = engine.clipped_sum(model, small, (x[:1] * size, y[:1]), support, clip)
            assert float(found.sum.double().norm()) <= clip * (1 + 1e-5)


def test_positions_that_cancel_have_the_norm_of_what_is_left() -> None:
    model = initialise(Sequence())
    model.head.weight.data.zero_()
    copied = copy.deepcopy(model)
    x, y = torch.full((3, 4), 5), torch.tensor([0, 1, 2])

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.square().sum(dim=1)

    support = Support.full(ParameterLayout.of(model).size)
    found = Trusting().clipped_sum(model, loss, (x, y), support, 0.1)
    wanted = reference_sum(reference_gradients(copied, loss, (x, y)), support, 0.1)
    assert_close(found.norms, wanted.norms, 1e-5, 1e-12)
