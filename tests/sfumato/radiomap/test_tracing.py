"""The weights that meet the transmitter channel are found whatever the architecture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.radiomap.tracing import layer_partition, paper_partition, transmitter_weights
from sfumato.radiomap.unet import SMALL, TRANSMITTER, Architecture, build, dimension, flat
from sfumato.rng import Streams
from tests.cases import quick_ones


@pytest.mark.slow
def test_at_full_width_1284_weights_meet_the_transmitter() -> None:
    model = build(Architecture(), Streams(0).stream("init"))
    groups = {group.name: group for group in paper_partition(model, 64).groups}
    assert {name: group.index.size for name, group in groups.items()} == {
        "transmitter_first": 579,
        "transmitter_second": 705,
        "rest": 13_274_031 - 1284,
    }


@pytest.mark.parametrize("padding", ["zeros", "circular", "reflect"])
@pytest.mark.parametrize("levels", quick_ones([1, 2, 3, 4], [2]))
def test_the_marked_weights_are_the_transmitters_slices_of_the_layers_that_see_the_input(
    padding: str, levels: int
) -> None:
    model = build(Architecture(0.14, levels, padding), Streams(0).stream("init"))  # type: ignore[arg-type]
    parameters = dict(model.named_parameters())
    wanted = {name: np.zeros(tuple(entry.shape), bool) for name, entry in parameters.items()}
    for stage, inputs in (("first", 2), ("second", 3)):
        wanted[f"{stage}.down.layer00.weight"][:, inputs - 2 + TRANSMITTER] = True
        # the input is what is concatenated last
        wanted[f"{stage}.up.up00.weight"][:, -2 + TRANSMITTER] = True
        wanted[f"{stage}.head.weight"][:, -2 + TRANSMITTER] = True
    found = transmitter_weights(model)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_weights_that_meet_the_transmitter_have_a_gradient_only_around_it() -> None:
    """An independent look: with a linear head alone, the gradient of the slice is the error around the transmitter."""
    model = build(Architecture(0.14, 1), Streams(0).stream("init"))
    inputs = torch.zeros(1, 2, 16, 16)
    inputs[0, TRANSMITTER, 8, 8] = 1.0
    first, _ = model(inputs)
    error = torch.zeros_like(first)
    error[0, 0, :3, :3] = 1.0  # far from the transmitter
    (first * error).sum().backward()
    gradient = np.concatenate(
        [
            (entry * 0 if entry.grad is None else entry.grad).detach().reshape(-1)
            for entry in model.parameters()
        ]
    )
    groups = {group.name: group.index for group in layer_partition(model).groups}
    assert not gradient[groups["first.head.transmitter"]].any()
    assert gradient[groups["first.head"]].any()


def test_tracing_changes_nothing() -> None:
    model = build(SMALL, Streams(0).stream("init"))
    before, generator = flat(model), torch.get_rng_state()
    paper_partition(model)
    assert np.array_equal(flat(model), before)
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(layer._forward_pre_hooks for layer in model.modules())


@pytest.mark.parametrize("seed", range(3))
def test_the_groups_are_a_function_of_the_architecture_alone(seed: int) -> None:
    one, other = (paper_partition(build(SMALL, Streams(s).stream("init"))) for s in (0, seed + 1))
    for a, b in zip(one.groups, other.groups, strict=True):
        assert (a.name, a.sensitive) == (b.name, b.sensitive)
        assert np.array_equal(a.index, b.index)


def test_layers_are_groups_and_the_transmitters_slices_lie_apart() -> None:
    model = build(SMALL, Streams(0).stream("init"))
    layers, paper = layer_partition(model), paper_partition(model)
    assert layers.dimension == paper.dimension == dimension(model)
    sensitive = [group for group in layers.groups if group.sensitive]
    assert [group.name for group in sensitive] == [
        f"{stage}.{layer}.transmitter"
        for stage in ("first", "second")
        for layer in ("down.layer00", "up.up00", "head")
    ]
    together = np.sort(np.concatenate([group.index for group in sensitive]))
    assert np.array_equal(together, np.sort(np.concatenate([g.index for g in paper.groups if g.sensitive])))
    layer_count = sum(isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)) for layer in model.modules())
    assert len(layers.groups) == layer_count + 6


class _Own(nn.Module):
    """A module of one's own: the transmitter's channel is first in one layer, flattened for another, mixed before a third."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(2, 3, 1)
        self.near = nn.Conv2d(4, 2, 3, padding=1, groups=2)
        self.flat = nn.Linear(2 * 4 * 4, 16)
        self.far = nn.Conv2d(3, 1, 1)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mixed = torch.relu(self.mix(inputs)) + 1.0
        beside = torch.cat([inputs[:, 1:], mixed], dim=1)
        return self.near(beside)[:, :1], self.far(mixed) + self.flat(inputs.flatten(1)).view(-1, 1, 4, 4)


def test_a_module_of_ones_own_is_traced_as_well() -> None:
    model = _Own()
    found = transmitter_weights(model, size=4)
    assert found["mix.weight"][:, 1].all()
    assert not found["mix.weight"][:, 0].any()
    assert found["near.weight"][0, 0].all()  # the first group of channels sees it in its first place
    assert not found["near.weight"][0, 1].any()
    assert not found["near.weight"][1].any()
    assert found["flat.weight"][:, 16:].all()
    assert not found["flat.weight"][:, :16].any()
    assert not found["far.weight"].any()
    assert not any(marks.any() for name, marks in found.items() if name.endswith("bias"))
    assert {group.name for group in paper_partition(model, 4).groups} == {
        "transmitter_mix",
        "transmitter_near",
        "transmitter_flat",
        "rest",
    }


class _Blind(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 1, 1)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.layer(inputs[:, :1])
        return found, found


def test_a_model_that_does_not_read_the_transmitter_is_refused() -> None:
    with pytest.raises(SfumatoError, match="no weight of the model meets"):
        paper_partition(_Blind())


def test_a_model_with_batch_normalisation_is_refused() -> None:
    with pytest.raises(SfumatoError, match="BatchNorm2d"):
        paper_partition(nn.Sequential(nn.BatchNorm2d(2)))
