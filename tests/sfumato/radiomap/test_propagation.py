"""The dominant path: bounds, symmetries, single walls worked out by hand, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.datasets.city_heights import load_city_heights
from sfumato.datasets.radio_windows import cut_windows
from sfumato.errors import SfumatoError
from sfumato.radiomap.diffraction import free_space_gain, knife_edge_loss, knife_edge_parameter
from sfumato.radiomap.propagation import Link, path_gain, path_gains

CELL = 8.0


def town(seed: int, size: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Random blocks, and a free cell."""
    random = np.random.default_rng(seed)
    heights = np.zeros((size, size), np.float32)
    for row, column in random.integers(0, size - 3, (size // 2, 2)):
        tall, wide = random.integers(1, 5, 2)
        heights[row : row + tall, column : column + wide] = random.integers(4, 40)
    free = np.argwhere(heights == 0)
    return heights, free[random.integers(len(free))]


def distances(size: int, transmitter: np.ndarray, link: Link) -> np.ndarray:
    rows, columns = np.indices((size, size))
    across = CELL * np.hypot(rows - transmitter[0], columns - transmitter[1])
    rise = abs(link.transmitter_height - link.receiver_height)
    return np.maximum(np.hypot(across, rise), max(CELL / 2, rise))


@pytest.fixture(scope="module")
def windows() -> np.ndarray:
    return cut_windows(load_city_heights(["etoile", "florence"]), stride=256).heights


def test_an_open_field_is_free_space_everywhere() -> None:
    link, place = Link(), np.array([3, 9])
    gain = path_gain(np.zeros((16, 16)), place, link, CELL)
    np.testing.assert_allclose(gain, free_space_gain(distances(16, place, link), link.wave), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1.5, 12.0, 45.0]))
def test_no_cell_beats_free_space_and_cells_in_sight_reach_it(seed: int, height: float) -> None:
    heights, place = town(seed)
    link = Link(transmitter_height=height)
    gain = path_gain(heights, place, link, CELL)
    free = free_space_gain(distances(20, place, link), link.wave).astype(np.float32)
    covered = heights == 0
    assert np.isfinite(gain[covered]).all()
    assert (gain[~covered] == -np.inf).all()
    assert (gain[covered] <= free[covered]).all()
    nearest = (np.abs(np.indices((20, 20)) - place[:, None, None]).max(axis=0) <= 1) & covered
    assert (gain[nearest] == free[nearest]).all()
    shadow = covered & (gain < free)
    assert (gain[shadow] <= free[shadow] - 0.5).all()


def test_a_single_wall_is_one_knife_edge() -> None:
    """A wall across the whole map, 20 m high: antennas at 1.5 m, 3 and 5 cells away from it, are 18.5 m below its edge."""
    heights = np.zeros((9, 9), np.float32)
    heights[3] = 20.0
    link = Link()
    gain = path_gain(heights, (0, 4), link, CELL)
    loss = float(knife_edge_loss(knife_edge_parameter(18.5, 24.0, 40.0, link.wave)))
    assert gain[8, 4] == pytest.approx(float(free_space_gain(64.0, link.wave)) - loss, abs=1e-4)
    assert loss == pytest.approx(
        6.9 + 20 * math.log10(2 * 18.5 * math.sqrt(2 * 64 / (link.wave * 24 * 40))), abs=0.1
    )


def test_a_mast_above_the_wall_sees_over_it_where_the_line_clears() -> None:
    """From 30 m at 3 cells before a 20 m wall to 1.5 m behind it the line clears the edge beyond 8.6 cells from the mast."""
    heights = np.zeros((16, 16), np.float32)
    heights[3] = 20.0
    link = Link(transmitter_height=30.0)
    gain = path_gain(heights, (0, 5), link, CELL)[:, 5]
    free = free_space_gain(distances(16, np.array([0, 5]), link)[:, 5], link.wave).astype(np.float32)
    assert (gain[9:] == free[9:]).all()
    assert (gain[4:9] < free[4:9] - 6).all()


def test_the_street_path_wins_around_a_tower_and_the_roof_path_over_a_wall() -> None:
    tower, wall = np.zeros((13, 13), np.float32), np.zeros((13, 13), np.float32)
    tower[5:8, 4:9] = 300.0
    wall[5:8] = 300.0
    around, over = (path_gain(heights, (0, 6), Link(), CELL)[12, 6] for heights in (tower, wall))
    assert around > over + 10.0
    low = np.where(tower > 0, 3.0, 0.0)
    assert path_gain(low, (0, 6), Link(), CELL)[12, 6] > around


def test_a_transmitter_on_a_roof_has_no_street_path() -> None:
    heights = np.zeros((13, 13), np.float32)
    heights[0, 6], heights[5:8, 4:9] = 10.0, 300.0
    from_roof = path_gain(heights, (0, 6), Link(transmitter_height=12.0), CELL)[12, 6]
    heights[5:8] = 300.0
    assert from_roof == path_gain(heights, (0, 6), Link(transmitter_height=12.0), CELL)[12, 6]


def test_a_turned_or_mirrored_map_has_the_turned_or_mirrored_gains_exactly(windows: np.ndarray) -> None:
    for heights in windows[::6]:
        size = len(heights)
        free = np.argwhere(heights == 0)
        for row, column in free[:: len(free) // 3]:
            gain = path_gain(heights, (row, column), Link(), CELL)
            turned = path_gain(np.rot90(heights), (size - 1 - column, row), Link(), CELL)
            mirrored = path_gain(heights[::-1], (size - 1 - row, column), Link(), CELL)
            np.testing.assert_array_equal(turned, np.rot90(gain))
            np.testing.assert_array_equal(mirrored, gain[::-1])


def reversed_differences(heights: np.ndarray, link: Link, count: int, seed: int) -> np.ndarray:
    """|gain there - gain back| in dB between some free cells."""
    free = np.argwhere(heights == 0)
    places = free[np.random.default_rng(seed).permutation(len(free))[:count]]
    there = path_gains(heights, places, link, CELL)[:, places[:, 0], places[:, 1]]
    back = path_gains(heights, places, link.reversed(), CELL)[:, places[:, 0], places[:, 1]]
    return np.abs(there - back.T)


def test_exchanging_the_antennas_changes_nothing_over_roofs_and_in_sight() -> None:
    """Rows of houses from edge to edge leave no way around."""
    heights = np.zeros((24, 24), np.float32)
    random = np.random.default_rng(0)
    heights[4:7], heights[12], heights[17:19] = (
        random.integers(5, 40, (3, 24)),
        11.0,
        random.integers(3, 60, (2, 24)),
    )
    for link in (Link(), Link(transmitter_height=25.0)):
        found = reversed_differences(heights, link, 40, seed=1)
        assert found.max() < 1e-3


def test_exchanging_the_antennas_changes_few_street_paths(windows: np.ndarray) -> None:
    found = np.concatenate(
        [reversed_differences(heights, Link(), 20, seed=2).ravel() for heights in windows[::4]]
    )
    assert (found > 1e-3).mean() < 0.04
    assert (found > 1.0).mean() < 0.015
    assert np.sqrt((found**2).mean()) < 1.0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_every_cell_is_weaker_at_a_higher_frequency(seed: int) -> None:
    heights, place = town(seed)
    low, high = (path_gain(heights, place, Link(frequency=f), CELL)[heights == 0] for f in (2e9, 6e9))
    assert (high <= low - 20 * math.log10(3.0) + 1e-3).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_higher_houses_never_help(seed: int) -> None:
    heights, place = town(seed)
    low, high = (path_gain(factor * heights, place, Link(), CELL)[heights == 0] for factor in (1.0, 2.0))
    assert (high <= low + 1e-3).all()


def test_several_transmitters_give_what_each_gives_alone() -> None:
    heights, _ = town(5)
    places = np.argwhere(heights == 0)[::40]
    together = path_gains(heights, places, Link(), CELL)
    for gain, place in zip(together, places, strict=True):
        np.testing.assert_array_equal(gain, path_gain(heights, place, Link(), CELL))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heights": np.zeros((4, 5))}, "square maps"),
        ({"heights": np.zeros((1, 1))}, "square maps"),
        ({"heights": np.full((4, 4), np.nan)}, "finite ones"),
        ({"heights": np.full((4, 4), -1.0)}, "finite ones from 0"),
        ({"heights": np.diag([0.0, 1001.0, 0, 0])}, "to 1000"),
        ({"heights": np.ones((4, 4))}, "no free cell"),
        ({"heights": np.diag([9.0, 0, 0, 0])}, "inside a building of 9 m"),
        ({"transmitter": (0, 4)}, "outside of the map; allowed are 0 to 3"),
        ({"transmitter": (-1, 0)}, "outside of the map"),
        ({"transmitter": (0.5, 0.5)}, "integers of"),
        ({"cell": 0.0}, "cell is 0.0 m"),
        ({"cell": -8.0}, "cell is -8.0 m"),
        ({"cell": math.nan}, "cell is nan m"),
    ],
)
def test_bad_input_is_one_sentence(change: dict[str, object], words: str) -> None:
    given_ = {"heights": np.zeros((4, 4)), "transmitter": (0, 0), "link": Link(), "cell": CELL} | change
    with pytest.raises(SfumatoError, match=words) as error:
        path_gain(**given_)  # type: ignore[arg-type]
    assert str(error.value).endswith(".")


@pytest.mark.parametrize(
    ("name", "value"),
    [("frequency", 5.9), ("frequency", math.inf), ("transmitter_height", 0.0), ("receiver_height", math.nan)],
)
def test_a_link_outside_of_its_ranges_is_refused(name: str, value: float) -> None:
    with pytest.raises(SfumatoError, match=name):
        Link(**{name: value})
