"""Rays: the cells that whole-number arithmetic says, read alike from both ends."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.radiomap.rays import clear, profiles


def cells_between(start: tuple[int, int], end: tuple[int, int]) -> list[list[tuple[int, int]]]:
    """The one or two cells of each step, in exact arithmetic."""
    delta = (end[0] - start[0], end[1] - start[1])
    length = max(abs(delta[0]), abs(delta[1]))
    result: list[list[tuple[int, int]]] = []
    for step in range(1, length):
        places = [
            Fraction(begin) + Fraction(part * step, length) for begin, part in zip(start, delta, strict=True)
        ]
        options = [
            [int(place)] if place.denominator == 1
            else [int(place // 1), int(place // 1) + 1] if place % 1 == Fraction(1, 2)
            else [round(place)]
            for place in places
        ]  # fmt: skip
        result.append([(row, column) for row in options[0] for column in options[1]])
    return result


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(0, 10**6))
def test_a_profile_holds_the_cells_that_exact_arithmetic_names(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, 50, (size, size)).astype(np.float32)
    start, ends = random.integers(0, size, 2), random.integers(0, size, (8, 2))
    seen = profiles(values, start, ends)
    expected = [
        max(values[cell] for cell in cells)
        for end in ends.tolist()
        for cells in cells_between(tuple(start.tolist()), tuple(end))
    ]
    assert seen.value.tolist() == expected
    assert seen.length.tolist() == np.abs(ends - start).max(axis=1).tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 60), st.integers(0, 10**6))
def test_a_profile_is_that_of_the_reversed_ray_backwards(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.random((size, size)).astype(np.float32)
    starts, ends = random.integers(0, size, (9, 2)), random.integers(0, size, (9, 2))
    there, back = profiles(values, starts, ends), profiles(values, ends, starts)
    for begin, count in zip(there.first, there.length[there.crossing] - 1, strict=True):
        ray = slice(begin, begin + count)
        np.testing.assert_array_equal(there.value[ray], back.value[ray][::-1])
    np.testing.assert_array_equal(
        there.step + there.rest(), np.repeat(there.length, np.maximum(there.length - 1, 0))
    )


@pytest.mark.parametrize("size", [3, 30, 130])
def test_many_rays_are_clear_where_no_sample_is_a_wall(size: int) -> None:
    random = np.random.default_rng(size)
    walls = random.random((size, size)) < 2.0 / size
    starts, ends = random.integers(0, size, (900, 2)), random.integers(0, size, (900, 2))
    seen = clear(walls, starts, ends)
    alone = [bool(clear(walls, start, end[None])[0]) for start, end in zip(starts, ends, strict=True)]
    assert seen.tolist() == alone
    assert 0.05 < seen.mean() < 1.0


def test_neighbours_and_the_cell_itself_are_always_clear() -> None:
    walls = np.ones((5, 5), np.bool_)
    ends = np.array([[2, 2], [1, 1], [3, 2], [2, 3]])
    assert clear(walls, np.array([2, 2]), ends).all()
    assert not clear(walls, np.array([2, 2]), np.array([[0, 2]])).any()


def test_a_ray_between_two_cells_meets_the_higher_one() -> None:
    values = np.zeros((2, 3), np.float32)
    values[0, 1], values[1, 1] = 3.0, 7.0
    seen = profiles(values, np.array([0, 0]), np.array([[1, 2]]))
    assert seen.value.tolist() == [7.0]
