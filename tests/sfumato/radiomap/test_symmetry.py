"""T1: what an update tells of the position comes from what breaks the shift symmetry, and from nothing else."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from sfumato.radiomap.client import LocalTraining, local_update
from sfumato.radiomap.federated import all_pairs
from sfumato.radiomap.training import warm_start
from sfumato.radiomap.unet import Architecture, build, flat
from sfumato.rng import Streams
from tests.cases import quick_ones
from tests.sfumato.radiomap.learning import rolled, some_maps


def _change(
    padding: Literal["zeros", "circular", "reflect"], shift: tuple[int, int], seed: int, margin: int = 0
) -> float:
    """How much the update changes, relative to its norm, when everything is shifted on the torus."""
    architecture = Architecture(0.14, 2, padding)
    model = build(architecture, Streams(seed).stream("init"))
    maps = some_maps(count=2, size=16, per_map=1, seed=seed)
    pairs = all_pairs(maps)
    public = some_maps(count=8, size=16, seed=50 + seed)
    weights = warm_start(
        flat(model), model, public, all_pairs(public), LocalTraining(), 20, Streams(seed).stream("warm")
    )
    training = LocalTraining(optimizer="sgd", margin=margin)
    updates = [
        local_update(weights, model, seen, pairs, training, Streams(0).stream("order"))
        for seen in (maps, rolled(maps, *shift))
    ]
    return float(np.linalg.norm(updates[1] - updates[0]) / np.linalg.norm(updates[0]))


SHIFTS = [(4, 0), (0, 8), (4, 8), (12, 4)]


@pytest.mark.parametrize(("rows", "columns"), quick_ones(SHIFTS, [(4, 8)]))
@pytest.mark.parametrize("seed", [0, 1])
def test_with_circular_padding_a_shift_by_the_pooling_stride_leaves_the_update_as_it_is(
    rows: int, columns: int, seed: int
) -> None:
    assert _change("circular", (rows, columns), seed) < 1e-5


@pytest.mark.parametrize("padding", ["zeros", "reflect"])
@pytest.mark.parametrize("seed", [0, 1])
def test_with_another_padding_the_same_shift_changes_it_by_more_than_a_tenth(
    padding: Literal["zeros", "reflect"], seed: int
) -> None:
    assert _change(padding, (4, 8), seed) > 0.1


def test_a_shift_that_is_no_multiple_of_the_stride_changes_it_even_with_circular_padding() -> None:
    assert _change("circular", (1, 2), 0) > 1e-3


def test_a_margin_breaks_the_symmetry_again() -> None:
    assert _change("circular", (4, 8), 0, margin=3) > 0.01
