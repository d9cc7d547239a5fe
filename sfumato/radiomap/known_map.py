"""An attacker who knows a client's building map and tries every place where the transmitter could be.

>>> import numpy as np
>>> free = np.ones((16, 16), bool)
>>> mixing = np.random.default_rng(0).standard_normal((2, 30))
>>> def simulate(cells):
...     return np.tanh(cells / 8.0 - 1.0) @ mixing
>>> upload = simulate(np.array([[11, 4]]))[0] + 0.1 * np.random.default_rng(1).standard_normal(30)
>>> guess = locate(upload, Scene(free, 8.0, simulate), Release(np.full(30, 0.1)))
>>> guess.cell, guess.position.tolist(), guess.simulated < 128
((11, 4), [92.0, 36.0], True)

Building maps are public and the server knows the weights of the round, so it can compute the upload that each transmitter
cell would have given, clip it as the client does, and take the cell of the largest likelihood under the defence's noise:
|x - clip(u(cell))|^2 over the noise's variance, least squares. Nothing needs to be learned. To save simulations the search
goes from one cell per block to every cell around the best ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sfumato.checks import is_integer, is_number
from sfumato.datasets.radio_windows import Windows
from sfumato.errors import SfumatoError
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.encoding import CITY, Encoding
from sfumato.radiomap.localisation import Localisation, Vector, evaluate
from sfumato.radiomap.maps import simulate as simulate_maps
from sfumato.radiomap.propagation import Link
from sfumato.radiomap.training import session_updates
from sfumato.rng import RandomStream, Streams

Cells = NDArray[np.int64]
Simulate = Callable[[Cells], NDArray[Any]]

# Two steps far, as a building may part a cell from those next to it.
_NEIGHBOURS: Final = np.array([[row, column] for row in range(-2, 3) for column in range(-2, 3)])


@dataclass(frozen=True, eq=False)
class Scene:
    """What the attacker knows of a client.

    Attributes:
        free: (s, s) bool, the cells where a transmitter can stand.
        cell: side of a cell in metres.
        simulate: (c, 2) row and column of transmitters -> (c, d) the undefended uploads they would give.

    Raises:
        SfumatoError: if no cell is free or the side is not positive.
    """

    free: NDArray[np.bool_]
    cell: float
    simulate: Simulate

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.free.ndim != 2 or self.free.dtype != np.bool_ or not self.free.any():
            raise SfumatoError(
                f"free has dtype {self.free.dtype}, shape {self.free.shape} and {int(np.sum(self.free))} free cells; allowed "
                "is a boolean map with at least one."
            )
        if not is_number(self.cell) or not 0 < self.cell < np.inf:
            raise SfumatoError(f"cell is {self.cell!r}; allowed is a positive number of metres.")


def simulator(
    heights: NDArray[np.float32],
    cell: float,
    weights: NDArray[np.floating[Any]],
    model: nn.Module,
    training: LocalTraining,
    streams: Streams,
    link: Link | None = None,
    encoding: Encoding = CITY,
) -> Simulate:
    """What a client with this building map and one transmitter would upload, undefended, for each candidate cell.

    The attacker makes the radio map of the candidate by the same propagation model, so it is off by what the client's true
    measurements differ from the model.

    Args:
        heights: (s, s) metres, 0 where free.
        cell: side of a cell in metres.
        weights: (d,) the global ones of the round.
        model: where the training takes place; its weights are overwritten.
        training: the client's.
        streams: ``order`` of the client's batches, which is no matter for one map.
        link: frequency and heights of the antennas; the default ones if None.
        encoding: of path gain.
    """
    one = np.asarray(heights, np.float32)[None]
    windows = Windows(one, np.zeros(1, np.int16), ("known",), np.zeros((1, 2), np.float32), cell)
    used = Link() if link is None else link

    def simulate(cells: Cells) -> NDArray[np.float32]:
        maps = simulate_maps(windows, cells[None].astype(np.int16), used, encoding)
        sessions = np.stack([np.zeros(len(cells), np.int64), np.arange(len(cells))], axis=1)[:, None]
        return session_updates(weights, model, maps, sessions, training, streams)

    return simulate


@dataclass(frozen=True, eq=False)
class Release:
    """What the defence does to an update, as everybody knows.

    Attributes:
        deviation: (d,) standard deviation of the noise of each weight, in the coordinates of ``transform``.
        clip: (d,) -> (d,), the clip; None for none.
        transform: (d,) -> (d,), linear, into coordinates in which the noise is independent; None where it is already.
        mismatch: error of the simulation as a share of each weight's spread over the candidate cells; without any, a
            weight without noise would outweigh all others.

    Raises:
        SfumatoError: if a deviation is negative or not finite, or the mismatch is not a number above 0.
    """

    deviation: Vector
    clip: Callable[[Vector], Vector] | None = None
    transform: Callable[[Vector], Vector] | None = None
    mismatch: float = 0.1

    def __post_init__(self) -> None:
        """Check the numbers."""
        deviation = np.asarray(self.deviation, np.float64)
        if deviation.ndim != 1 or not np.isfinite(deviation).all() or bool((deviation < 0).any()):
            raise SfumatoError(
                f"deviation of the noise has shape {deviation.shape}; allowed are finite numbers of at least 0, one per weight."
            )
        if not is_number(self.mismatch) or not 0 < self.mismatch < np.inf:
            raise SfumatoError(f"mismatch is {self.mismatch!r}; allowed is a finite number above 0.")
        object.__setattr__(self, "deviation", deviation)

    def expected(self, simulated: NDArray[Any]) -> Vector:
        """(c, d) mean of the defended upload for (c, d) simulated updates, in the coordinates of ``transform``."""
        rows = np.asarray(simulated, np.float64)
        for step in (self.clip, self.transform):
            if step is not None:
                rows = np.array([step(row) for row in rows])
        return rows

    def seen(self, upload: NDArray[Any]) -> Vector:
        """(d,) the upload in the coordinates of ``transform``.

        Raises:
            SfumatoError: if it is not finite or of another size.
        """
        given = np.asarray(upload)
        if given.shape != self.deviation.shape or not np.isfinite(given).all():
            raise SfumatoError(
                f"the upload has shape {given.shape}; allowed are {len(self.deviation)} finite numbers."
            )
        values = given.astype(np.float64)
        return values if self.transform is None else self.transform(values)


@dataclass(frozen=True)
class Search:
    """From coarse to fine.

    Attributes:
        stride: side of the blocks of which one free cell each is tried first; 1 tries every cell.
        kept: how many of the best cells are refined at each step.

    Raises:
        SfumatoError: if a field is not an integer of at least 1.
    """

    stride: int = 4
    kept: int = 3

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("stride", "kept"):
            value = getattr(self, name)
            if not is_integer(value) or value < 1:
                raise SfumatoError(f"{name} is {value!r}; allowed is an integer of at least 1.")


@dataclass(frozen=True, eq=False)
class Guess:
    """Where the transmitter most likely stands.

    Attributes:
        cell: its row and column.
        position: (2,) metres from the window's corner, the cell's centre.
        candidates: (c, 2) all cells that were simulated.
        log_likelihood: (c,) of each, up to a constant; the largest is the guess's.
    """

    cell: tuple[int, int]
    position: Vector
    candidates: Cells
    log_likelihood: Vector

    @property
    def simulated(self) -> int:
        """How many cells were simulated."""
        return len(self.candidates)


def coarse_cells(free: NDArray[np.bool_], stride: int) -> Cells:
    """(c, 2) for each block with a free cell, the free cell nearest to its centre.

    Args:
        free: (s, s) bool.
        stride: side of a block in cells.
    """
    rows, columns = np.nonzero(free)
    off = (rows % stride - (stride - 1) / 2) ** 2 + (columns % stride - (stride - 1) / 2) ** 2
    order = np.lexsort((off, columns // stride, rows // stride))
    blocks = np.stack([rows[order] // stride, columns[order] // stride], axis=1)
    first = np.r_[True, np.any(np.diff(blocks, axis=0) != 0, axis=1)]
    return np.stack([rows[order][first], columns[order][first]], axis=1).astype(np.int64)


def locate(upload: NDArray[Any], scene: Scene, release: Release, search: Search | None = None) -> Guess:
    """The cell of the largest likelihood.

    Several rounds of one client are attacked together by putting their uploads, deviations and simulated updates behind each
    other.

    Args:
        upload: (d,) as the server received it.
        scene: the client's building map and the simulation.
        release: the defence.
        search: how cells are tried; from blocks of 4 x 4 by default.

    Raises:
        SfumatoError: if the upload or a simulated update is not finite or of another size.
    """
    plan = Search() if search is None else search
    seen = release.seen(upload)
    cells = coarse_cells(scene.free, plan.stride)
    expected = _expected(cells, scene, release)
    variance = release.deviation**2 + (release.mismatch * expected.std(axis=0)) ** 2
    # A weight that neither noise nor the cell moves says nothing.
    precision = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0.0)
    scores = _scores(seen, expected, precision)
    step = plan.stride
    while True:
        step = max(1, step // 2)
        fresh = _around(cells, scores, scene.free, step, plan.kept)
        if len(fresh):
            cells = np.concatenate([cells, fresh])
            scores = np.r_[scores, _scores(seen, _expected(fresh, scene, release), precision)]
        elif step == 1:
            break
    best = cells[int(np.argmax(scores))]
    return Guess((int(best[0]), int(best[1])), (best + 0.5) * scene.cell, cells, scores)


def _expected(cells: Cells, scene: Scene, release: Release) -> Vector:
    simulated = np.asarray(scene.simulate(cells))
    if simulated.shape != (len(cells), len(release.deviation)) or not np.isfinite(simulated).all():
        raise SfumatoError(
            f"the simulated updates have shape {simulated.shape}; allowed are finite numbers of shape "
            f"({len(cells)}, {len(release.deviation)})."
        )
    return release.expected(simulated)


def _scores(seen: Vector, expected: Vector, precision: Vector) -> Vector:
    return -0.5 * ((seen - expected) ** 2 @ precision)


def _around(cells: Cells, scores: Vector, free: NDArray[np.bool_], step: int, kept: int) -> Cells:
    """(c, 2) free cells that were not tried yet, one or two steps away from the best ones."""
    best = cells[np.argsort(-scores, kind="stable")[:kept]]
    near = np.unique((best[:, None] + step * _NEIGHBOURS).reshape(-1, 2), axis=0)
    near = near[np.all((near >= 0) & (near < free.shape), axis=1)]
    untried = free.copy()
    untried[cells[:, 0], cells[:, 1]] = False
    return near[untried[near[:, 0], near[:, 1]]]


@dataclass(frozen=True, eq=False)
class Case:
    """One attacked upload.

    Attributes:
        upload: (d,) as the server received it.
        scene: what the attacker knows.
        position: (2,) metres, the truth.
        map: the map's number, for the interval.
    """

    upload: NDArray[Any]
    scene: Scene
    position: Vector
    map: int


def locate_all(
    cases: Sequence[Case], release: Release, stream: RandomStream, search: Search | None = None
) -> tuple[Localisation, list[Guess]]:
    """Attack several uploads; the median error is what a study reports.

    Args:
        cases: at least one.
        release: the defence.
        stream: resamples maps for the interval.
        search: as for `locate`.

    Returns:
        Errors in metres and every guess.

    Raises:
        SfumatoError: if there is no case or `locate` refuses one.
    """
    if not cases:
        raise SfumatoError("there are no uploads to locate; allowed is at least one.")
    guesses = [locate(case.upload, case.scene, release, search) for case in cases]
    found = evaluate(
        np.array([guess.position for guess in guesses]),
        np.array([case.position for case in cases]),
        np.array([case.map for case in cases]),
        stream,
    )
    return found, guesses
