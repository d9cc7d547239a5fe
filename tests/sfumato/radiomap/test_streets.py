"""Street paths against Berg's recursion by hand and against a search over all sequences of corners."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sfumato.radiomap.rays import clear
from sfumato.radiomap.streets import REFERENCE_WAVE, find_corners, street_distances

WAVE = 0.05
Cell = tuple[int, int]


def berg(points: list[tuple[float, float]], wave: float = WAVE) -> float:
    """d of a path through these points (metres), straight from the recursion."""
    legs = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(points)]
    factor, distance = 1.0, math.hypot(*legs[0])
    for before, leg in itertools.pairwise(legs):
        angle = abs(math.degrees(math.atan2(before[0] * leg[1] - before[1] * leg[0], np.dot(before, leg))))
        factor += distance * (angle * math.sqrt(REFERENCE_WAVE / wave) / 90.0) ** 1.5
        distance += factor * math.hypot(*leg)
    return distance


def around(before: Cell, corner: Cell, after: Cell, built: list[Cell]) -> bool:
    """Whether the path bends around a building: one's diagonal lies within the angle at the corner."""
    back, leg = np.subtract(before, corner), np.subtract(after, corner)
    if back[0] * leg[1] == back[1] * leg[0]:
        return False
    return any((np.linalg.solve(np.column_stack([back, leg]), diagonal) > 0).all() for diagonal in built)


def best_of_all(walls: np.ndarray, start: Cell, ends: list[Cell], most: int) -> list[float]:
    """The least d to each end over all clear paths that bend around up to so many corners."""
    corners: dict[Cell, list[Cell]] = {}
    found = find_corners(walls)
    for cell, built in zip(found.cell.tolist(), found.built.tolist(), strict=True):
        corners.setdefault(tuple(cell), []).append(tuple(built))
    places = [start, *corners, *ends]
    seen = {place: clear(walls, np.array(place), np.array(places)).tolist() for place in places}
    visible = {(a, b): sight for a in places for b, sight in zip(places, seen[a], strict=True)}
    best = dict.fromkeys(ends, math.inf)

    def extend(path: list[Cell]) -> None:
        for place in [*corners, *ends]:
            if place in path or not visible[path[-1], place]:
                continue
            if len(path) > 1 and not around(path[-2], path[-1], place, corners[path[-1]]):
                continue
            if place in best and len(path) > 1:
                points = [(8.0 * row, 8.0 * column) for row, column in [*path, place]]
                best[place] = min(best[place], berg(points))
            if place in corners and len(path) <= most:
                extend([*path, place])

    extend([start])
    return [best[end] for end in ends]


def searched(walls: np.ndarray, start: tuple[int, int], ends: np.ndarray, wave: float = WAVE) -> np.ndarray:
    return street_distances(walls, find_corners(walls), np.array(start), ends, 8.0, wave)


def test_a_block_has_four_corners_in_the_free_cells_across() -> None:
    walls = np.zeros((6, 6), np.bool_)
    walls[2:4, 2:4] = True
    found = find_corners(walls)
    assert sorted(map(tuple, found.cell.tolist())) == [(1, 1), (1, 4), (4, 1), (4, 4)]
    assert all(walls[tuple(cell + step)] for cell, step in zip(found.cell, found.built, strict=True))


def test_inner_corners_and_the_edge_of_the_map_are_no_corners() -> None:
    walls = np.zeros((5, 5), np.bool_)
    walls[:2, :] = True
    walls[:, :2] = True
    assert len(find_corners(walls)) == 0


def test_one_quarter_turn_is_bergs_formula() -> None:
    """Around one block: 5 cells up, a turn of 90 degrees, 5 cells right."""
    walls = np.zeros((7, 7), np.bool_)
    walls[1:, 1:] = True
    distance = searched(walls, (5, 0), np.array([[0, 5]]))[0]
    quarter = math.sqrt(REFERENCE_WAVE / WAVE) ** 1.5
    assert distance == pytest.approx(40.0 + 40.0 + quarter * 40.0 * 40.0)
    assert distance == pytest.approx(berg([(40.0, 0.0), (0.0, 0.0), (0.0, 40.0)]))


def test_two_turns_compose() -> None:
    walls = np.zeros((7, 7), np.bool_)
    walls[1:, 1:6] = True
    distance = searched(walls, (6, 0), np.array([[6, 6]]))[0]
    assert distance == pytest.approx(berg([(48.0, 0.0), (0.0, 0.0), (0.0, 48.0), (48.0, 48.0)]))


@pytest.mark.parametrize("seed", range(8))
def test_the_search_finds_what_a_search_over_all_paths_finds(seed: int) -> None:
    """Two blocks, up to four turns; the kept path to a corner may be a little worse than the best for what follows."""
    random = np.random.default_rng(seed)
    walls = np.zeros((9, 9), np.bool_)
    for row, column in random.integers(1, 6, (2, 2)):
        walls[row : row + 3, column : column + 2] = True
    free = np.argwhere(~walls)
    start = free[random.integers(len(free))]
    hidden = free[~clear(walls, start, free)]
    assert len(hidden) > 3
    chosen = hidden[random.permutation(len(hidden))[:12]]
    found = searched(walls, tuple(start), chosen)
    best = np.array(best_of_all(walls, tuple(start.tolist()), [tuple(end) for end in chosen.tolist()], 4))
    assert np.isfinite(best).all()
    assert (found >= best * (1 - 1e-6)).all()
    assert (found <= best * 1.3).all()
    assert (found <= best * (1 + 1e-6)).mean() > 0.9


def test_a_closed_courtyard_has_no_street_path() -> None:
    walls = np.zeros((7, 7), np.bool_)
    walls[2:5, 2:5] = True
    walls[3, 3] = False
    assert searched(walls, (0, 0), np.array([[3, 3]]))[0] == math.inf


def test_only_paths_within_the_limits_are_given_and_they_are_unchanged() -> None:
    random = np.random.default_rng(3)
    walls = random.random((20, 20)) < 0.25
    free = np.argwhere(~walls)
    start, ends = free[40], free[~clear(walls, free[40], free)]
    everywhere = searched(walls, tuple(start), ends)
    limits = np.where(np.arange(len(ends)) % 2, 2.0, 0.5) * np.minimum(everywhere, 1e6)
    limited = street_distances(walls, find_corners(walls), start, ends, 8.0, WAVE, limits)
    expected = np.where(everywhere < limits, everywhere, limits)
    np.testing.assert_allclose(limited, expected, rtol=1e-12)


def test_turns_cost_more_at_shorter_waves() -> None:
    walls = np.zeros((7, 7), np.bool_)
    walls[1:, 1:6] = True
    long, short = (searched(walls, (6, 0), np.array([[6, 6]]), wave)[0] for wave in (0.3, 0.01))
    assert short > long > 3 * 48.0
