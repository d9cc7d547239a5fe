"""Windows and transmitters: counts, the rule of coarse cells, margins, and refusals."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from sfumato.datasets.city_heights import CITIES, load_city_heights
from sfumato.datasets.radio_windows import (
    Windows,
    check_windows,
    coarsen,
    cut_windows,
    draw_transmitters,
    open_cells,
)
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


@pytest.fixture(scope="module")
def disjoint() -> Windows:
    return cut_windows(load_city_heights(), stride=256)


def test_the_cities_give_46_disjoint_windows_and_686_overlapping_ones(disjoint: Windows) -> None:
    overlapping = cut_windows(load_city_heights(), stride=64)
    assert Counter(disjoint.city.tolist()) == {0: 17, 1: 12, 2: 5, 3: 12}
    assert Counter(overlapping.city.tolist()) == {0: 275, 1: 168, 2: 67, 3: 176}
    assert overlapping.heights.shape == (686, 32, 32)


@pytest.mark.parametrize("cell", [1, 4])
def test_every_cell_size_gives_the_same_windows(disjoint: Windows, cell: int) -> None:
    finer = cut_windows(load_city_heights(), stride=256, cell=cell)
    np.testing.assert_array_equal(finer.corner, disjoint.corner)
    np.testing.assert_array_equal(finer.city, disjoint.city)
    assert finer.heights.shape[1] == 256 // cell


def test_windows_are_cut_where_they_say(disjoint: Windows) -> None:
    full = load_city_heights()
    finest = cut_windows(full, stride=256, cell=1)
    for heights, city, (row, column) in zip(
        finest.heights, finest.city, finest.corner.astype(int), strict=True
    ):
        np.testing.assert_array_equal(heights, full[CITIES[city]][row : row + 256, column : column + 256])
        assert 0.1 <= (heights > 0).mean() <= 0.8


def test_a_cell_is_built_iff_at_least_half_of_it_is_and_is_as_high_as_what_is_built() -> None:
    squares = np.zeros((2, 6), np.uint8)
    squares[0, :2] = 10, 20
    squares[0, 2] = 30
    squares[:, 4:] = 8
    assert coarsen(squares, 2).tolist() == [[15.0, 0.0, 8.0]]


def test_windows_of_a_city_are_selected_by_name(disjoint: Windows) -> None:
    part = disjoint.of_cities(["etoile", "florence"])
    assert len(part) == 17
    assert set(part.city.tolist()) == {1, 2}
    with pytest.raises(SfumatoError, match="'paris' is unknown"):
        disjoint.of_cities(["paris"])


def test_transmitters_stand_on_different_free_cells_within_the_margin(disjoint: Windows) -> None:
    places = draw_transmitters(disjoint, 5, 4, Streams(1).stream("transmitters"))
    assert places.dtype == np.int16
    allowed = open_cells(disjoint, 4)
    for window, chosen in enumerate(places.tolist()):
        assert len({tuple(place) for place in chosen}) == 5
        assert all(allowed[window, row, column] for row, column in chosen)
    assert places.min() >= 4
    assert places.max() < 28


def test_without_margin_the_edge_is_used_too() -> None:
    windows = Windows(
        np.zeros((200, 4, 4), np.float32),
        np.zeros(200, np.int16),
        ("a",),
        np.zeros((200, 2), np.float32),
        8.0,
    )
    places = draw_transmitters(windows, 1, 0, Streams(2).stream("transmitters"))
    assert (places.min(), places.max()) == (0, 3)


def test_transmitters_are_uniform_over_the_free_cells() -> None:
    """Chi square over 13 free cells, 4,000 draws; a uniform one is refused here with probability 1e-4."""
    heights = np.zeros((4000, 4, 4), np.float32)
    heights[:, 1, 1:] = 9.0
    windows = Windows(heights, np.zeros(4000, np.int16), ("a",), np.zeros((4000, 2), np.float32), 8.0)
    row, column = draw_transmitters(windows, 1, 0, Streams(3).stream("transmitters"))[:, 0].T
    counts = np.bincount(4 * row + column, minlength=16)[(heights[0] == 0).ravel()]
    assert counts.sum() == 4000
    assert chisquare(counts).pvalue > 1e-4


def test_the_same_stream_gives_the_same_places_and_another_one_others(disjoint: Windows) -> None:
    one, same, other = (
        draw_transmitters(disjoint, 2, 4, Streams(seed).stream("transmitters")) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"window": 0}, "window is 0"),
        ({"stride": 1.5}, "stride is 1.5"),
        ({"cell": 7.0}, "divides the window"),
        ({"cell": 0.0}, "divides the window"),
        ({"cell": math.nan}, "divides the window"),
        ({"cell": 256.0}, "divides the window"),
        ({"built": (0.9, 0.2)}, "ascending shares"),
        ({"built": (0.999, 1.0)}, "no window of 256 m"),
        ({"cities": {"a": np.full((300, 300), 1001.0)}}, "heights of a lie in"),
        ({"cities": {"a": np.full((300, 300), -1.0)}}, "heights of a lie in"),
        ({"cities": {"a": np.full((300, 300), np.nan)}}, "not all finite"),
        ({"cities": {"a": np.zeros(300)}}, "map of rows and columns"),
        ({"cities": {"a": np.zeros((200, 300))}}, "no window of 256 m"),
    ],
)
def test_bad_cuts_are_one_sentence(change: dict[str, Any], words: str) -> None:
    city = np.zeros((256, 256), np.uint8)
    city[:128] = 10
    with pytest.raises(SfumatoError, match=words):
        cut_windows(**({"cities": {"a": city}} | change))


@pytest.mark.parametrize(
    ("per_map", "margin", "words"),
    [(0, 0, "per_map"), (True, 0, "per_map"), (1, 16, "margin"), (1, -1, "margin"), (500, 8, "free cells")],
)
def test_bad_draws_are_one_sentence(disjoint: Windows, per_map: int, margin: int, words: str) -> None:
    with pytest.raises(SfumatoError, match=words):
        draw_transmitters(disjoint, per_map, margin, Streams(0).stream("transmitters"))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("heights", np.zeros((46, 32, 31), np.float32), "heights of windows have"),
        ("heights", np.zeros((46, 32, 32)), "float64"),
        ("heights", np.full((46, 32, 32), 2000.0, np.float32), "to 1000 m above ground"),
        ("heights", np.ones((46, 32, 32), np.float32), "window 0 has no free cell"),
        ("city", np.zeros(3, np.int16), "cities and corners"),
        ("cell", -1.0, "cell is -1.0"),
    ],
)
def test_windows_that_cannot_be_are_refused(disjoint: Windows, name: str, value: Any, words: str) -> None:
    check_windows(disjoint)
    with pytest.raises(SfumatoError, match=words):
        check_windows(dataclasses.replace(disjoint, **{name: value}))
