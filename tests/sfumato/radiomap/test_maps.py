"""Map sets: what a network sees, selections, and refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from sfumato.datasets.city_heights import load_city_heights
from sfumato.datasets.radio_windows import Windows, cut_windows, draw_transmitters
from sfumato.datasets.radiomapseer import BUILDING_HEIGHT, Samples
from sfumato.errors import SfumatoError
from sfumato.radiomap.encoding import CITY, encode
from sfumato.radiomap.maps import MapSet, of_radiomapseer, simulate
from sfumato.radiomap.propagation import Link, path_gain
from sfumato.rng import Streams

PAIRS = np.array([[1, 0], [0, 1], [1, 1]])


@pytest.fixture(scope="module")
def maps() -> MapSet:
    windows = cut_windows(load_city_heights(["etoile", "florence"]), stride=256).select([0, 1, 6, 9])
    places = draw_transmitters(windows, 2, 4, Streams(0).stream("transmitters"))
    return simulate(windows, places, Link())


def test_radio_is_the_encoded_gain_of_each_transmitter(maps: MapSet) -> None:
    for number, which in PAIRS:
        gain = path_gain(maps.heights[number], maps.transmitters[number, which], Link(), maps.cell)
        np.testing.assert_array_equal(maps.radio[number, which], encode(gain, CITY))


def test_inputs_show_the_buildings_and_one_transmitter(maps: MapSet) -> None:
    inputs = maps.inputs(PAIRS)
    assert inputs.dtype == np.float32
    assert inputs.shape == (3, 2, 32, 32)
    for picture, (number, which) in zip(inputs, PAIRS, strict=True):
        np.testing.assert_array_equal(picture[0], maps.heights[number] > 0)
        np.testing.assert_array_equal(np.argwhere(picture[1]), [maps.transmitters[number, which]])
        assert picture[1].sum() == 1.0


def test_targets_masks_and_positions_belong_to_the_pairs(maps: MapSet) -> None:
    targets, masks, positions = maps.targets(PAIRS), maps.masks(PAIRS), maps.positions(PAIRS)
    assert (targets.shape, masks.shape, positions.shape) == ((3, 1, 32, 32), (3, 1, 32, 32), (3, 2))
    assert (targets.dtype, masks.dtype, positions.dtype) == (np.float32, np.bool_, np.float64)
    for row, (number, which) in enumerate(PAIRS):
        np.testing.assert_array_equal(targets[row, 0], maps.radio[number, which])
        np.testing.assert_array_equal(masks[row, 0], maps.free[number])
        np.testing.assert_array_equal(positions[row], 8.0 * maps.transmitters[number, which] + 4.0)
    assert not targets[~masks].any()


def test_the_strongest_cell_is_the_transmitters(maps: MapSet) -> None:
    best = maps.radio.reshape(maps.count, maps.per_map, -1).max(axis=2)
    row, column = np.moveaxis(maps.transmitters.astype(int), -1, 0)
    own = maps.radio[np.arange(maps.count)[:, None], np.arange(maps.per_map), row, column]
    np.testing.assert_array_equal(own, best)


def test_maps_of_a_city_are_selected_by_name(maps: MapSet) -> None:
    part = maps.of_cities(["florence"])
    assert part.cities == maps.cities
    assert part.count == int((maps.city == 1).sum()) > 0
    np.testing.assert_array_equal(part.radio, maps.radio[maps.city == 1])
    both = maps.of_cities(["florence", "etoile"])
    np.testing.assert_array_equal(both.heights, maps.heights)
    np.testing.assert_array_equal(maps.select([2, 0]).corner, maps.corner[[2, 0]])


def test_radiomapseer_becomes_a_map_set_with_nothing_on_buildings() -> None:
    heights = np.zeros((2, 8, 8), np.float32)
    heights[:, 2:4, 2:4] = BUILDING_HEIGHT
    gain = np.full((2, 1, 8, 8), 51, np.uint8)
    gain[:, :, 5:] = 153
    places = np.full((2, 1, 2), 6, np.int16)
    maps = of_radiomapseer(Samples(np.array([5, 7]), heights, places, gain, 0))
    assert (maps.cell, maps.cities) == (1.0, ("radiomapseer",))
    assert not maps.radio[:, :, :5].any()
    np.testing.assert_allclose(maps.radio[:, :, 5:], 0.5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("heights", np.zeros((4, 32, 31), np.float32), "heights have shape"),
        ("heights", np.zeros((4, 32, 32)), "float64"),
        ("heights", np.full((4, 32, 32), -1.0, np.float32), "allowed is 0 to 1000"),
        ("heights", np.full((4, 32, 32), 2500.0, np.float32), "2500 m; allowed is 0 to 1000"),
        ("heights", np.full((4, 32, 32), np.inf, np.float32), "not finite"),
        ("heights", np.ones((4, 32, 32), np.float32), "inside of a building"),
        ("transmitters", np.zeros((4, 2), np.int16), "transmitters have"),
        ("transmitters", np.full((4, 2, 2), 32, np.int16), "outside of its map"),
        ("radio", np.full((4, 2, 32, 32), 1.5, np.float32), "encoded values"),
        ("radio", np.full((4, 2, 32, 32), np.nan, np.float32), "not finite"),
        ("radio", np.full((4, 2, 32, 32), 0.5, np.float32), "above 0 inside of a building"),
        ("radio", np.zeros((4, 3, 32, 32), np.float32), "radio have"),
        ("city", np.full(4, 2, np.int16), "city's index"),
        ("corner", np.zeros((4, 3), np.float32), "corner have"),
        ("cell", 0.0, "cell is 0.0"),
    ],
)
def test_a_map_set_that_cannot_be_is_refused(maps: MapSet, name: str, value: Any, words: str) -> None:
    with pytest.raises(SfumatoError, match=words):
        dataclasses.replace(maps, **{name: value})


@pytest.mark.parametrize("pairs", [[[4, 0]], [[0, 2]], [[-1, 0]], [[0, -1]]])
def test_a_pair_out_of_range_is_refused_and_does_not_wrap(maps: MapSet, pairs: list[list[int]]) -> None:
    for method in (maps.inputs, maps.targets, maps.masks, maps.positions):
        with pytest.raises(SfumatoError, match="out of range"):
            method(np.array(pairs))


def test_pairs_are_integers_of_two_columns(maps: MapSet) -> None:
    for pairs in (np.zeros((2, 3), int), np.zeros((2, 2)), np.zeros(2, int)):
        with pytest.raises(SfumatoError, match="pairs have"):
            maps.inputs(pairs)


@pytest.mark.parametrize("rows", [[], [4], [-1], [0.5], np.zeros(4, bool)])
def test_rows_that_select_nothing_or_do_not_exist_are_refused(maps: MapSet, rows: Any) -> None:
    with pytest.raises(SfumatoError, match=r"selected|out of range"):
        maps.select(rows)
    with pytest.raises(SfumatoError, match="'atlantis' is unknown"):
        maps.of_cities(["atlantis"])


def test_simulation_refuses_windows_and_transmitters_that_do_not_fit(maps: MapSet) -> None:
    windows = Windows(maps.heights, maps.city, maps.cities, maps.corner, maps.cell)
    with pytest.raises(SfumatoError, match="transmitters have"):
        simulate(windows, maps.transmitters[:2], Link())
    inside = maps.transmitters.copy()
    inside[0, 0] = np.argwhere(maps.heights[0] > 2)[0]
    with pytest.raises(SfumatoError, match="inside a building"):
        simulate(windows, inside, Link())
    with pytest.raises(SfumatoError, match="has no free cell"):
        simulate(dataclasses.replace(windows, heights=np.ones_like(maps.heights)), maps.transmitters, Link())
