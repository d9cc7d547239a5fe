"""Cells, merging and draws of the public reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfumato.divergence.evaluation import exact_divergence
from sfumato.divergence.reference import PublicPoints, Reference, all_points, draw_points
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


@given(st.lists(st.integers(0, 50), min_size=2, max_size=12), st.floats(0, 0.3))
@settings(max_examples=200, deadline=None)
def test_every_cell_has_the_public_minimum_and_every_code_a_cell(counts: list[int], minimum: float) -> None:
    shown = [count for count in counts if count]
    assume(len(shown) > 1 and len([count for count in shown if count >= minimum * sum(shown)]) > 1)
    reference = Reference.from_counts(np.array(counts), minimum)
    assert reference.smallest >= minimum * (1 - 1e-12)
    assert reference.smallest > 0
    assert reference.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.array_equal(np.unique(reference.cell_of), np.arange(reference.cells))
    other = reference.cell_of == reference.cells - 1
    assert reference.merged == (other.sum() if reference.merged else 0)
    merged = np.bincount(reference.cell_of, weights=np.array(counts) / sum(counts))
    assert reference.probabilities == pytest.approx(merged)


def test_the_cell_other_swallows_the_next_rarest_until_it_has_the_minimum() -> None:
    reference = Reference.from_probabilities([0.4, 0.15, 0.01, 0.3, 0.12, 0.02, 0.0], 0.1)
    assert reference.cell_of.tolist() == [0, 1, 3, 2, 3, 3, 3]
    assert reference.probabilities == pytest.approx([0.4, 0.15, 0.3, 0.15])
    assert reference.merged == 4


def test_codes_that_the_reference_never_shows_are_merged_even_without_a_minimum() -> None:
    reference = Reference.from_probabilities([0.5, 0.0, 0.3, 0.2])
    assert reference.cells == 3
    assert reference.merged == 2
    assert reference.cell_of[1] == 2


def test_a_reference_without_rare_codes_is_the_identity() -> None:
    reference = Reference.from_probabilities([0.5, 0.3, 0.2], 0.2)
    assert reference.merged == 0
    assert reference.cell_of.tolist() == [0, 1, 2]


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_merging_never_raises_the_divergence(seed: int) -> None:
    random = np.random.default_rng(seed)
    own, population = random.dirichlet(np.full(12, 0.5)), random.dirichlet(np.full(12, 0.5))
    fine, coarse = (Reference.from_probabilities(own, minimum) for minimum in (0.0, 0.1))
    assert exact_divergence(coarse, coarse.merge(population)) <= exact_divergence(
        fine, fine.merge(population)
    ) * (1 + 1e-12)


def test_draws_have_the_references_frequencies() -> None:
    """200,000 draws; each frequency within 4.5 standard errors (false alarm 3e-5 over four cells)."""
    reference = Reference.from_probabilities([0.6, 0.25, 0.1, 0.05])
    points = draw_points(reference, 200_000, Streams(3).stream("points"))
    errors = np.sqrt(reference.probabilities * (1 - reference.probabilities) / 200_000)
    assert points.count == 4
    assert np.all(np.abs(points.weights - reference.probabilities) < 4.5 * errors)
    assert points.weights.sum() == pytest.approx(1.0)


def test_draws_are_a_function_of_the_stream_and_repeated_ones_share_a_weight() -> None:
    reference = Reference.from_probabilities([0.9, 0.1])
    one, two = (draw_points(reference, 10, Streams(0).stream("points")) for _ in range(2))
    assert np.array_equal(one.weights, two.weights)
    assert np.all(np.diff(one.cells) > 0)
    assert np.allclose(one.weights * 10, np.rint(one.weights * 10))


def test_all_points_are_every_cell_with_its_probability() -> None:
    reference = Reference.from_probabilities([0.5, 0.3, 0.2])
    points = all_points(reference)
    assert np.array_equal(points.weights, reference.probabilities)
    assert points.draws == 0


def test_arrays_of_a_reference_cannot_be_changed() -> None:
    reference = Reference.from_probabilities([0.5, 0.5])
    with pytest.raises(ValueError, match="read-only"):
        reference.probabilities[0] = 0.1


@pytest.mark.parametrize(
    ("probabilities", "said"),
    [
        ([0.5, 0.4], "sum to 0.9"),
        ([0.5, 0.6], "sum to 1.1"),
        ([1.5, -0.5], "negative or not finite"),
        ([np.nan, 1.0], "negative or not finite"),
        ([1.0], "a vector of 2"),
        ([], "a vector of 2"),
        ([[0.5, 0.5]], "a vector of 2"),
        (["a", "b"], "a vector of 2"),
        ([1.0, 0.0], "single cell"),
    ],
)
def test_probabilities_that_are_none_are_refused_in_one_sentence(probabilities: object, said: str) -> None:
    with pytest.raises(SfumatoError, match=said) as caught:
        Reference.from_probabilities(probabilities)  # type: ignore[arg-type]
    assert "allowed" in str(caught.value)


@pytest.mark.parametrize("minimum", [1.0, -0.1, float("nan"), True])
def test_a_minimum_out_of_its_range_is_refused(minimum: float) -> None:
    with pytest.raises(SfumatoError, match="minimum_probability is"):
        Reference.from_probabilities([0.5, 0.5], minimum)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([0, 0], "sum to 0"),
        ([-1, 2], "at least 0"),
        ([0.5, 0.5], "vector of integers"),
        ([], "vector of integers"),
    ],
)
def test_counts_that_are_none_are_refused(counts: list[float], said: str) -> None:
    with pytest.raises(SfumatoError, match=said):
        Reference.from_counts(np.array(counts))


def test_a_minimum_that_merges_everything_is_refused() -> None:
    with pytest.raises(SfumatoError, match="leaves a single cell"):
        Reference.from_probabilities(np.full(100, 0.01), 0.02)


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_a_number_of_points_that_is_none_is_refused(count: object) -> None:
    reference = Reference.from_probabilities([0.5, 0.5])
    with pytest.raises(SfumatoError, match="count of the points is"):
        draw_points(reference, count, Streams(0).stream("points"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cells", "weights"),
    [
        ([1, 0], [0.5, 0.5]),
        ([0, 0], [0.5, 0.5]),
        ([-1, 0], [0.5, 0.5]),
        ([0, 1], [0.5, 0.6]),
        ([0], [0.5, 0.5]),
        ([], []),
    ],
)
def test_points_that_do_not_agree_are_refused(cells: list[int], weights: list[float]) -> None:
    with pytest.raises(SfumatoError):
        PublicPoints(np.array(cells, np.int32), np.array(weights), 2)


@pytest.mark.parametrize(
    ("cell_of", "said"),
    [
        ([0, 0, 0], "leaves out"),
        ([0, 1, 2], "leaves out"),
        ([0, -1, 1], "leaves out"),
        ([0.0, 1.0], "integer per"),
    ],
)
def test_cells_that_do_not_cover_the_codes_are_refused(cell_of: list[float], said: str) -> None:
    with pytest.raises(SfumatoError, match=said):
        Reference(np.array([0.5, 0.5]), np.array(cell_of))  # type: ignore[arg-type]


@pytest.mark.parametrize("minimum", ["a", None, True, float("nan"), 1.0, -0.1, [0.1]])
def test_a_minimum_probability_that_is_none_is_refused(minimum: object) -> None:
    with pytest.raises(SfumatoError, match="minimum_probability is"):
        Reference.from_probabilities([0.5, 0.5], minimum)  # type: ignore[arg-type]


@pytest.mark.parametrize("probabilities", [[[0.5], [0.2, 0.3]], None, "ab", ["a", "b"], [0.5, None]])
def test_probabilities_that_are_no_numbers_are_refused(probabilities: object) -> None:
    with pytest.raises(SfumatoError, match=r"probabilities (is|are) .*allowed"):
        Reference.from_probabilities(probabilities)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "counts",
    [[2**62] * 3, [2**62] * 4, np.array([2**63, 2**63], np.uint64), [2**52, 1 << 20]],
)
def test_counts_that_would_wrap_around_are_refused(counts: object) -> None:
    with pytest.raises(SfumatoError, match="sum to more than 4503599627370496"):
        Reference.from_counts(counts)  # type: ignore[arg-type]


def test_ragged_counts_and_cells_are_refused() -> None:
    with pytest.raises(SfumatoError, match="counts of the reference are no array"):
        Reference.from_counts([[1, 2], [3]])  # type: ignore[list-item]
    with pytest.raises(SfumatoError, match="cell_of are no array"):
        Reference(np.array([0.5, 0.5]), [[0], [1, 1]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cells", "weights", "said"),
    [
        ([0, 2**40], [0.5, 0.5], "a cell of the points is 1099511627776"),
        (np.array([0, 2**63], np.uint64), [0.5, 0.5], "a cell of the points is"),
        ([0.5, 1.5], [0.5, 0.5], "points have cells of float64"),
        ([0, 1], ["a", "b"], "points have cells of"),
        ([[0], [1, 2]], [0.5, 0.5], "cells are no array"),
    ],
)
def test_points_that_are_no_integers_are_refused_and_never_cut(
    cells: object, weights: object, said: str
) -> None:
    with pytest.raises(SfumatoError, match=said):
        PublicPoints(cells, weights, 2)  # type: ignore[arg-type]


def test_points_are_drawn_from_a_stream_only() -> None:
    with pytest.raises(SfumatoError, match="stream is NoneType"):
        draw_points(Reference.from_probabilities([0.5, 0.5]), 3, None)  # type: ignore[arg-type]
