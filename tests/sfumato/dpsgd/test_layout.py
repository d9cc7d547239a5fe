"""The flat vector: every trainable coordinate once, in named_parameters order, there and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfumato.dpsgd import ParameterLayout, Support
from sfumato.errors import SfumatoError
from tests.sfumato.dpsgd.reference import MODELS, Tied, generator, make


@pytest.mark.parametrize("name", list(MODELS))
def test_flatten_and_load_are_inverse(name: str) -> None:
    model, _ = make(name, torch.float32)
    layout = ParameterLayout.of(model)
    vector = torch.randn(layout.size, generator=generator(5))
    layout.load(model, vector)
    assert torch.equal(layout.flatten(model), vector)
    for (parameter_name, parameter), place in zip(
        model.named_parameters(), layout.slices.values(), strict=True
    ):
        assert torch.equal(parameter.detach().flatten(), vector[place]), parameter_name


def test_order_is_row_major_whatever_the_memory_format() -> None:
    model = nn.Conv2d(3, 4, 2)
    layout = ParameterLayout.of(model)
    plain = layout.flatten(model)
    assert torch.equal(layout.flatten(model.to(memory_format=torch.channels_last)), plain)
    layout.load(model, plain + 1)
    assert torch.equal(layout.flatten(model), plain + 1)


def test_shared_parameters_stand_once_and_frozen_ones_not_at_all() -> None:
    model = Tied()
    model.first.bias.requires_grad_(False)
    layout = ParameterLayout.of(model)
    assert layout.names == ("first.weight", "second.bias", "head.weight")
    assert layout.offsets == (0, 36, 42)
    assert layout.size == 60


def test_flatten_copies() -> None:
    model = nn.Linear(2, 2)
    layout = ParameterLayout.of(model)
    vector = layout.flatten(model)
    before = vector.clone()
    layout.load(model, vector + 1)
    assert torch.equal(vector, before)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_add_changes_active_coordinates_and_no_other_bit(memory_format: torch.memory_format) -> None:
    model, _ = make("convolution", torch.float32)
    model = model.to(memory_format=memory_format)
    layout = ParameterLayout.of(model)
    before = layout.flatten(model)
    indices = np.random.Generator(np.random.Philox(2)).permutation(layout.size)[:40]
    for support in (Support.of(indices, layout.size), Support.of([], layout.size), Support.full(layout.size)):
        layout.load(model, before)
        layout.add(model, support, torch.full((support.k,), 0.5))
        assert torch.equal(layout.flatten(model), torch.where(support.mask(), before + 0.5, before))


def test_a_model_of_another_shape_is_named() -> None:
    layout = ParameterLayout.of(nn.Linear(3, 2))
    with pytest.raises(
        SfumatoError, match=r"parameter 'weight' has shape \(2, 4\) where the layout has 'weight'"
    ):
        layout.flatten(nn.Linear(4, 2))
    with pytest.raises(SfumatoError, match="has 1 trainable parameters where the layout has 2"):
        layout.load(nn.Linear(3, 2, bias=False), torch.zeros(8))
    with pytest.raises(SfumatoError, match=r"vector has shape \(7,\); allowed is \(8,\)"):
        layout.load(nn.Linear(3, 2), torch.zeros(7))
    with pytest.raises(SfumatoError, match=r"delta has shape \(3,\)"):
        layout.add(nn.Linear(3, 2), Support.of([1], 8), torch.zeros(3))


@settings(deadline=None)
@given(st.data(), st.integers(1, 50))
def test_support_is_the_sorted_set_of_its_indices(data: st.DataObject, d: int) -> None:
    chosen = data.draw(st.lists(st.integers(0, d - 1), unique=True))
    support = Support.of(chosen, d)
    assert support.indices.tolist() == sorted(chosen)
    assert support.k == len(chosen)
    assert support.mask().sum() == support.k
    assert Support.of_mask(support.mask()) == support
    vector = torch.arange(float(d))
    assert support.gather(vector).tolist() == sorted(chosen)
    assert torch.equal(support.scatter(support.gather(vector)), vector * support.mask())
    assert hash(support) == hash(Support.of(sorted(chosen), d))


def test_support_by_layer_joins_to_the_support() -> None:
    model, _ = make("convolution", torch.float32)
    layout = ParameterLayout.of(model)
    support = Support.of(np.random.Generator(np.random.Philox(4)).permutation(layout.size)[:57], layout.size)
    pieces = support.by_layer(layout)
    joined = torch.cat([piece + start for piece, start in zip(pieces.values(), layout.offsets, strict=True)])
    assert list(pieces) == list(layout.names)
    assert torch.equal(joined, support.indices)
    density = support.density(layout)
    assert sum(density[n] * (s.stop - s.start) for n, s in layout.slices.items()) == pytest.approx(57)
    assert set(Support.full(layout.size).density(layout).values()) == {1.0}


@pytest.mark.parametrize(
    ("indices", "d"),
    [([1, 1], 3), ([3], 3), ([-1], 3), ([0.5], 3), ([[1]], 3), (["a"], 3), ([0], 0), ([0], -1)],
)
def test_impossible_supports_are_refused(indices: list[int], d: int) -> None:
    with pytest.raises(SfumatoError):
        Support.of(indices, d)


def test_supports_do_not_alias_the_given_indices() -> None:
    indices = torch.tensor([1, 2])
    support = Support.of(indices, 5)
    indices[0] = 0
    assert support.indices.tolist() == [1, 2]
