"""Counts by the fast path are those of a plain loop, and samples outside of the domain name nobody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.divergence.counting import cell_counts, code_counts, count_points, population_probabilities
from sfumato.divergence.reference import PublicPoints, Reference, draw_points
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

REFERENCE = Reference.from_probabilities([0.4, 0.3, 0.05, 0.2, 0.05], 0.1)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=200),
    st.sampled_from([np.uint8, np.uint16, np.int32, np.int64, np.uint32]),
)
@settings(max_examples=60, deadline=None)
def test_counts_are_those_of_a_loop(codes: list[int], dtype: type) -> None:
    points = PublicPoints(np.array([1, 3]), np.array([0.5, 0.5]), 2)
    found = count_points(np.array(codes, dtype), REFERENCE, points)
    cells = [int(REFERENCE.cell_of[code]) for code in codes]
    assert found.tolist() == [cells.count(1), cells.count(3)]
    assert found.dtype == np.int64


def test_counts_over_several_chunks_are_those_of_one_bincount() -> None:
    random = np.random.default_rng(0)
    codes = (random.random(700_001) ** 3 * 65_536).astype(np.uint16)
    assert np.array_equal(code_counts(codes, 65_536), np.bincount(codes, minlength=65_536))


def test_probabilities_are_counts_over_their_sum() -> None:
    codes = np.array([0, 0, 1, 2, 4, 3, 3, 3])
    assert population_probabilities(codes, REFERENCE).tolist() == [0.25, 0.125, 0.375, 0.25]
    assert cell_counts(codes, REFERENCE).sum() == 8


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int64, np.uint8])
@pytest.mark.parametrize("bad", [5, 200, -1])
def test_a_sample_outside_of_the_domain_is_one_sentence_that_does_not_name_it(dtype: type, bad: int) -> None:
    if bad < 0 and np.dtype(dtype).kind == "u":
        bad = 100
    codes = np.array([0, bad, 1], np.int64).astype(dtype)
    points = draw_points(REFERENCE, 3, Streams(0).stream("points"))
    with pytest.raises(SfumatoError, match="a sample lies outside of the public domain") as caught:
        count_points(codes, REFERENCE, points)
    assert str(bad) not in str(caught.value)


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        (np.array([], np.int64), "samples are none"),
        (np.array([0.0, 1.0]), "integer codes"),
        (np.zeros((2, 2), int), "vector"),
    ],
)
def test_samples_that_are_none_are_refused(codes: np.ndarray, said: str) -> None:
    with pytest.raises(SfumatoError, match=said):
        cell_counts(codes, REFERENCE)


@pytest.mark.parametrize("domain", [True, 3.0, None, "3", 0, -1, 10**13, 2**24 + 1])
def test_a_domain_that_is_none_is_refused_before_anything_is_counted(domain: object) -> None:
    with pytest.raises(SfumatoError, match=r"domain is .*; allowed is an integer from 1 to 16777216"):
        code_counts(np.array([0, 1]), domain)  # type: ignore[arg-type]


def test_ragged_samples_are_refused_and_wide_unsigned_ones_counted() -> None:
    with pytest.raises(SfumatoError, match="samples are no array"):
        code_counts([[0, 1], [2]], 3)  # type: ignore[arg-type]
    assert code_counts(np.array([0, 2, 2], np.uint64), 3).tolist() == [1, 0, 2]


def test_points_of_another_reference_are_refused() -> None:
    points = PublicPoints(np.array([7]), np.array([1.0]), 1)
    with pytest.raises(SfumatoError, match="a point is the cell 7"):
        count_points(np.array([0, 1]), REFERENCE, points)
