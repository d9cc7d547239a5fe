from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfumato.dpsgd import ParameterLayout
from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.supports import SupportShape, choose_support, random_support, support_size

LAYOUT = ParameterLayout.of(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 5)))
SHAPES: tuple[SupportShape, ...] = ("global", "per_layer", "rows")


@settings(max_examples=50, deadline=None)
@given(ratio=st.floats(0.001, 1.0), seed=st.integers(0, 1000))
def test_global_support_holds_the_k_largest_scores(ratio: float, seed: int) -> None:
    scores = torch.from_numpy(Streams(seed).stream("scores").standard_normal(LAYOUT.size))
    support = choose_support(scores, ratio, "global", LAYOUT, Streams(seed).stream("ties"))
    assert support.k == support_size(ratio, LAYOUT.size)
    inside = scores[support.indices].min()
    outside = scores[~support.mask()]
    assert len(outside) == 0 or float(inside) >= float(outside.max())


def test_per_layer_keeps_the_ratio_in_every_parameter() -> None:
    scores = torch.arange(LAYOUT.size, dtype=torch.float64)
    support = choose_support(scores, 0.5, "per_layer", LAYOUT, Streams(0).stream("ties"))
    for name, density in support.density(LAYOUT).items():
        count = LAYOUT.slices[name].stop - LAYOUT.slices[name].start
        assert density == support_size(0.5, count) / count


def test_rows_keeps_whole_rows_within_the_budget() -> None:
    scores = torch.from_numpy(Streams(5).stream("scores").random(LAYOUT.size))
    support = choose_support(scores, 0.4, "rows", LAYOUT, Streams(0).stream("ties"))
    assert 0 < support.k <= support_size(0.4, LAYOUT.size)
    active = support.mask().numpy()
    for offset, shape in zip(LAYOUT.offsets, LAYOUT.shapes, strict=True):
        if len(shape) > 1:
            rows = active[offset : offset + int(np.prod(shape))].reshape(shape[0], -1)
            assert set(rows.mean(axis=1)) <= {0.0, 1.0}


@pytest.mark.parametrize("shape", SHAPES)
def test_ties_are_broken_by_the_stream_alone(shape: SupportShape) -> None:
    scores = torch.ones(LAYOUT.size)
    first = choose_support(scores, 0.3, shape, LAYOUT, Streams(1).stream("ties"))
    again = choose_support(scores, 0.3, shape, LAYOUT, Streams(1).stream("ties"))
    other = choose_support(scores, 0.3, shape, LAYOUT, Streams(2).stream("ties"))
    assert first == again
    assert first != other


def test_tied_coordinates_are_chosen_uniformly() -> None:
    counts = np.zeros(LAYOUT.size)
    for seed in range(400):
        support = choose_support(
            torch.zeros(LAYOUT.size), 0.25, "global", LAYOUT, Streams(seed).stream("ties")
        )
        counts[support.indices.numpy()] += 1
    share = support_size(0.25, LAYOUT.size) / LAYOUT.size
    # 125 coordinates, each Binomial(400, share): 5 standard deviations alarm falsely below 1e-4 in all.
    assert np.abs(counts - 400 * share).max() < 5 * (400 * share * (1 - share)) ** 0.5


def test_random_support_never_reads_a_gradient_and_has_the_same_size() -> None:
    support = random_support(0.2, "global", LAYOUT, Streams(3).stream("support"))
    assert support.k == support_size(0.2, LAYOUT.size)
    assert support == random_support(0.2, "global", LAYOUT, Streams(3).stream("support"))


def test_random_rows_choose_short_and_long_rows_alike() -> None:
    weights, biases = 0, 0
    for seed in range(300):
        density = random_support(0.5, "rows", LAYOUT, Streams(seed).stream("support")).density(LAYOUT)
        weights += density["2.weight"]
        biases += density["2.bias"]
    # Means of 300 densities in [0, 1] with standard deviations below 0.3: 0.1 is four standard errors and more.
    assert abs(weights - biases) / 300 < 0.1


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.1, float("nan")])
def test_a_ratio_outside_of_its_range_is_refused(ratio: float) -> None:
    with pytest.raises(SfumatoError, match="active_ratio"):
        support_size(ratio, 10)


def test_scores_that_are_not_finite_are_refused() -> None:
    scores = torch.zeros(LAYOUT.size)
    scores[3] = float("nan")
    with pytest.raises(SfumatoError, match="finite"):
        choose_support(scores, 0.5, "global", LAYOUT, Streams(0).stream("ties"))


def test_rows_that_do_not_fit_are_refused() -> None:
    layout = ParameterLayout.of(nn.Linear(50, 2, bias=False))
    with pytest.raises(SfumatoError, match="whole rows"):
        choose_support(torch.zeros(100), 0.1, "rows", layout, Streams(0).stream("ties"))


@pytest.mark.parametrize(
    ("ratio", "dimension", "size"),
    [(0.29, 100, 29), (0.57, 100, 57), (0.58, 50, 29), (0.1, 26010, 2601), (0.1, 9, 1)],
)
def test_the_size_is_that_of_the_ratio_as_it_is_written(ratio: float, dimension: int, size: int) -> None:
    assert support_size(ratio, dimension) == size
