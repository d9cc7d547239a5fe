"""The most likely cell is found, with few simulations, whatever the defence clips and noises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.clips import WholeClip
from sfumato.radiomap.known_map import Case, Release, Scene, Search, coarse_cells, locate, locate_all
from sfumato.rng import Streams

SIZE, DIMENSION = 24, 200
_RANDOM = np.random.default_rng(0)
_WAVES = _RANDOM.standard_normal((2, DIMENSION)) / 12.0
_PHASES = _RANDOM.uniform(0.0, 6.28, DIMENSION)
FREE = np.random.default_rng(1).random((SIZE, SIZE)) < 0.6


def simulate(cells: np.ndarray) -> np.ndarray:
    """Smooth in the position and different at every cell."""
    return np.cos(cells @ _WAVES + _PHASES)


def case(cell: np.ndarray, deviation: np.ndarray | float, seed: int) -> Case:
    noise = np.random.default_rng(seed).standard_normal(DIMENSION) * deviation
    return Case(simulate(cell[None])[0] + noise, Scene(FREE, 8.0, simulate), (cell + 0.5) * 8.0, seed)


def test_every_transmitter_is_found_without_noise() -> None:
    release = Release(np.zeros(DIMENSION))
    for number, cell in enumerate(np.argwhere(FREE)[::7]):
        guess = locate(case(cell, 0.0, number).upload, Scene(FREE, 8.0, simulate), release)
        assert guess.cell == tuple(cell)
        assert guess.simulated < 0.5 * FREE.sum()
        assert len(np.unique(guess.candidates, axis=0)) == guess.simulated
        assert FREE[guess.candidates[:, 0], guess.candidates[:, 1]].all()


def test_coarse_to_fine_finds_what_trying_every_cell_finds() -> None:
    """40 noisy uploads: the same cell in at least 36."""
    release, same = Release(np.full(DIMENSION, 0.5)), 0
    cells = np.argwhere(FREE)
    for number in range(40):
        one = case(cells[(13 * number) % len(cells)], 0.5, number)
        every = locate(one.upload, one.scene, release, Search(stride=1))
        assert every.simulated == FREE.sum()
        same += locate(one.upload, one.scene, release, Search(stride=4, kept=5)).cell == every.cell
    assert same >= 36


def test_the_error_grows_with_the_noise_and_more_rounds_take_it_back() -> None:
    cells = np.argwhere(FREE)[::9]

    def median(deviation: float, rounds: int) -> float:
        def repeated(where: np.ndarray) -> np.ndarray:
            return np.tile(simulate(where), (1, rounds))

        random = np.random.default_rng(5)
        cases = [
            Case(
                repeated(cell[None])[0] + deviation * random.standard_normal(rounds * DIMENSION),
                Scene(FREE, 8.0, repeated),
                (cell + 0.5) * 8.0,
                number,
            )
            for number, cell in enumerate(cells)
        ]
        release = Release(np.full(rounds * DIMENSION, deviation))
        return locate_all(cases, release, Streams(0).stream("a"))[0].median

    little, much, followed = median(0.1, 1), median(8.0, 1), median(8.0, 16)
    assert little == 0.0
    assert much > 40.0
    assert followed < 0.6 * much


def test_weights_with_little_noise_count_more() -> None:
    """Half of the weights drowned: knowing which gives half the error of taking all alike, at least."""
    deviation = np.where(np.arange(DIMENSION) % 2 == 0, 0.2, 30.0)
    cases = [case(cell, deviation, number) for number, cell in enumerate(np.argwhere(FREE)[::9])]
    known, _ = locate_all(cases, Release(deviation), Streams(0).stream("a"))
    alike, _ = locate_all(cases, Release(np.full(DIMENSION, deviation.mean())), Streams(0).stream("a"))
    assert known.rmse < 0.5 * alike.rmse
    assert known.count == len(cases)


def test_the_clip_is_applied_to_what_is_simulated() -> None:
    """Updates of different lengths, clipped to one: without the clip in the model the cells cannot be told."""
    random = np.random.default_rng(3)
    clip = WholeClip(0.01)

    def long(cells: np.ndarray) -> np.ndarray:
        return simulate(cells) * (1.0 + cells.sum(axis=1, keepdims=True))

    cases = [
        Case(
            clip.apply(long(cell[None])[0]) + 1e-5 * random.standard_normal(DIMENSION),
            Scene(FREE, 8.0, long),
            (cell + 0.5) * 8.0,
            number,
        )
        for number, cell in enumerate(np.argwhere(FREE)[::20])
    ]
    deviation = np.full(DIMENSION, 1e-5)
    right, _ = locate_all(cases, Release(deviation, clip.apply), Streams(0).stream("a"))
    wrong, _ = locate_all(cases, Release(deviation), Streams(0).stream("a"))
    assert right.rmse < 1.0
    assert wrong.rmse > 30.0


def test_correlated_noise_is_undone_by_the_transform() -> None:
    """Noise of deviation 20 along one direction and .2 elsewhere; in its own axes it costs nothing."""
    direction = np.full(DIMENSION, DIMENSION**-0.5)
    deviation = np.full(DIMENSION, 0.2)

    def transform(row: np.ndarray) -> np.ndarray:
        return row - (1.0 - 0.2 / 20.0) * direction * (direction @ row)

    random = np.random.default_rng(4)
    cases = [
        Case(
            simulate(cell[None])[0]
            + 0.2 * random.standard_normal(DIMENSION)
            + direction * 20.0 * random.standard_normal(),
            Scene(FREE, 8.0, simulate),
            (cell + 0.5) * 8.0,
            number,
        )
        for number, cell in enumerate(np.argwhere(FREE)[::9])
    ]
    known, _ = locate_all(cases, Release(deviation, transform=transform), Streams(0).stream("a"))
    naive, _ = locate_all(cases, Release(deviation), Streams(0).stream("a"))
    assert known.rmse < 0.6 * naive.rmse


def test_coarse_cells_are_free_and_one_per_block_that_has_any() -> None:
    free = np.zeros((10, 10), bool)
    free[[0, 3, 9], [1, 2, 9]] = True
    assert coarse_cells(free, 4).tolist() == [[3, 2], [9, 9]] or coarse_cells(free, 4).tolist() == [
        [0, 1],
        [9, 9],
    ]
    assert coarse_cells(FREE, 1).tolist() == np.argwhere(FREE).tolist()
    assert coarse_cells(np.ones((8, 8), bool), 4).shape == (4, 2)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Scene(np.zeros((3, 3), bool), 8.0, simulate), "0 free cells"),
        (lambda: Scene(np.ones((3, 3)), 8.0, simulate), "dtype float64"),  # type: ignore[arg-type]
        (lambda: Scene(FREE, 0.0, simulate), "cell is 0.0"),
        (lambda: Release(np.array([-1.0])), "deviation of the noise"),
        (lambda: Release(np.ones(2), mismatch=0.0), "mismatch is 0.0"),
        (lambda: Search(stride=0), "stride is 0"),
        (lambda: Search(kept=1.5), "kept is 1.5"),  # type: ignore[arg-type]
        (lambda: locate(np.ones(2), Scene(FREE, 8.0, simulate), Release(np.ones(3))), r"shape \(2,\)"),
        (
            lambda: locate(np.ones(3), Scene(FREE, 8.0, simulate), Release(np.ones(3))),
            "the simulated updates",
        ),
        (
            lambda: locate(np.full(3, np.nan), Scene(FREE, 8.0, simulate), Release(np.ones(3))),
            "3 finite numbers",
        ),
        (lambda: locate_all([], Release(np.ones(3)), Streams(0).stream("a")), "no uploads to locate"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(build: Any, says: str) -> None:
    with pytest.raises(SfumatoError, match=says):
        build()
