"""Paths along the streets: around the corners of buildings, each turn at a price that grows with its angle.

>>> walls = np.zeros((5, 5), np.bool_)
>>> walls[1:, 1:4] = True
>>> distance = street_distances(walls, find_corners(walls), np.array([4, 0]), np.array([[4, 4]]), 1.0, 0.05)
>>> bool(distance[0] > 4 + 4 + 4)
True

J.-E. Berg's recursive model of street microcells (A recursive method for street microcell path loss calculations, PIMRC
1995; COST 231 final report, Section 4.5): a path of segments s_1, s_2, ... metres long that turns by theta_j degrees at
corner j has the loss of free space over a fictitious distance d,

    k_1 = 1,  d_1 = s_1,    k_{j+1} = k_j + d_j q(theta_j),    d_{j+1} = d_j + k_{j+1} s_{j+1},

with q(theta) = (theta q_90 / 90)^1.5 per metre and, for the dependence on frequency, q_90 = sqrt(.031 m / wavelength) as
METIS deliverable D1.4 has it. It is reciprocal: d is a symmetric polynomial of the segments read from either end.

A path turns only at convex corners of buildings, here in the free cell that touches the corner, towards the building and
where the next cell can be seen. Of all such paths the one with the least d counts. As in Dijkstra's method one path is kept
to each corner, the best; since its direction matters for what follows, another one may now and then have been better in
the end, so a map agrees with the reversed path within a tolerance only (tests/sfumato/radiomap/test_propagation.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.radiomap.rays import Cells, clear

Values = NDArray[np.float64]

ANGLE_EXPONENT: Final = 1.5
"""Berg's nu."""
REFERENCE_WAVE: Final = 0.031
"""METIS D1.4's q_lambda, metres."""

_PARTS: Final = 24
_PAIRS: Final = 20_000
"""Pairs of a corner and a receiver that are looked at together, and the number of parts at most."""
_ROOM: Final = 4
"""One in so many pairs of corner and target is a turn, or there is a second look."""


@dataclass(frozen=True, eq=False)
class Corners:
    """The convex corners of a map's buildings.

    Attributes:
        cell: (c, 2) int32, row and column of the free cell at each corner.
        built: (c, 2) int32, the signs of the diagonal step from there into the building.
    """

    cell: NDArray[np.int32]
    built: NDArray[np.int32]

    def __len__(self) -> int:
        """How many there are; a cell counts once for each corner that it touches."""
        return len(self.cell)


@dataclass(frozen=True, eq=False)
class _Paths:
    """The best path found so far to each corner: Berg's d and k there, and the cell that its last segment comes from."""

    distance: Values
    factor: Values
    origin: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class _Turns:
    """Candidate paths: around corner ``corner`` to target ``target``, with Berg's d and k of the last segment."""

    corner: NDArray[np.intp]
    target: NDArray[np.intp]
    distance: Values
    factor: Values

    def select(self, rows: NDArray[Any]) -> _Turns:
        return _Turns(self.corner[rows], self.target[rows], self.distance[rows], self.factor[rows])


def find_corners(walls: NDArray[np.bool_]) -> Corners:
    """The convex corners: free cells with a built one across a corner and free ones at both sides of it.

    Args:
        walls: (s, s) built cells.
    """
    padded = np.pad(walls, 1)
    rows, columns = walls.shape
    cells: list[NDArray[np.int32]] = []
    built: list[NDArray[np.int32]] = []
    for down in (-1, 1):
        for right in (-1, 1):
            beside = slice(1 + down, 1 + down + rows), slice(1 + right, 1 + right + columns)
            found = np.argwhere(~walls & padded[beside] & ~padded[beside[0], 1:-1] & ~padded[1:-1, beside[1]])
            cells.append(found.astype(np.int32))
            built.append(np.broadcast_to(np.array([down, right], np.int32), found.shape))
    return Corners(np.concatenate(cells), np.concatenate(built))


def street_distances(
    walls: NDArray[np.bool_],
    corners: Corners,
    transmitter: Cells,
    receivers: Cells,
    cell: float,
    wave: float,
    limits: Values | None = None,
) -> Values:
    """The least fictitious distance of the paths around one corner or more.

    Args:
        walls: (s, s) built cells.
        corners: those of the walls.
        transmitter: (2,) row and column of a free cell.
        receivers: (r, 2) rows and columns of free cells.
        cell: metres per cell.
        wave: the wavelength in metres.
        limits: (r,) metres, what is known of each receiver by other means; infinite if not given.

    Returns:
        (r,) metres, never above the limits; infinite where there is neither a path nor a limit.
    """
    found = np.full(len(receivers), np.inf) if limits is None else limits.copy()
    search = _Search(walls, corners, cell, float(np.sqrt(REFERENCE_WAVE / wave)))
    paths = search.corner_paths(transmitter, float(found.max(initial=0.0)))
    order = np.argsort(paths.distance, kind="stable")
    order = order[: np.searchsorted(paths.distance[order], found.max(initial=0.0))]
    parts = 1 + len(order) * len(receivers) // _PAIRS
    for part in np.array_split(order, min(parts, _PARTS)):
        # What the nearer corners reached spares the farther ones most of their rays.
        turns = search.visible_turns(paths, part, receivers, found)
        np.minimum.at(found, turns.target, turns.distance)
    return found


@dataclass(frozen=True, eq=False)
class _Search:
    """What stays the same while the paths of one transmitter are searched."""

    walls: NDArray[np.bool_]
    corners: Corners
    cell: float
    quarter_turn: float

    def corner_paths(self, transmitter: Cells, limit: float) -> _Paths:
        """The best path to every corner, found in rounds of one more turn each."""
        count = len(self.corners)
        straight = self.cell * np.hypot(*(self.corners.cell - transmitter).T)
        seen = clear(self.walls, transmitter, self.corners.cell) & (straight > 0.0)
        paths = _Paths(
            np.where(seen, straight, np.inf),
            np.ones(count),
            np.broadcast_to(np.asarray(transmitter, np.int32), (count, 2)).copy(),
        )
        active = np.flatnonzero(paths.distance < limit)
        while len(active):
            known = np.minimum(paths.distance, limit)
            turns = self.visible_turns(paths, active, self.corners.cell, known)
            np.minimum.at(known, turns.target, turns.distance)
            best = turns.select(turns.distance == known[turns.target])
            paths.distance[best.target] = best.distance
            paths.factor[best.target] = best.factor
            paths.origin[best.target] = self.corners.cell[best.corner]
            active = np.unique(best.target)
        return paths

    def visible_turns(self, paths: _Paths, used: NDArray[np.intp], targets: Cells, known: Values) -> _Turns:
        """All turns around the used corners whose last segment is clear and which beat what is known of the target."""
        turns = self._turns(paths, used, targets, known)
        seen = clear(self.walls, self.corners.cell[turns.corner], targets[turns.target])
        return turns.select(seen)

    def _turns(self, paths: _Paths, used: NDArray[np.intp], targets: Cells, known: Values) -> _Turns:
        """All turns around the used corners that bend towards the building and beat what is known of the target.

        In a corner's own axes the building lies at (+, +), and the path comes from the side +u and leaves to the side +w.
        """
        from sfumato.radiomap.sight import turning

        signs, place = self.corners.built[used], self.corners.cell[used]
        back = (paths.origin[used] - place) * signs
        # A ray that passes the corner's free neighbour leaves at more than half a cell per cell of the other axis.
        by_rows = (back[:, 0] > 0) & (2 * back[:, 1] < back[:, 0])
        by_columns = (back[:, 1] > 0) & (2 * back[:, 0] < back[:, 1])
        bends = (by_rows | by_columns) & (paths.distance[used] < known.max(initial=0.0))
        used, signs, place, back = used[bends], signs[bends], place[bends], back[bends]
        rows = np.arange(len(used))
        axes = np.where(by_rows[bends], 0, 1)[:, None] ^ np.array([0, 1])
        lines = np.where(signs[rows[:, None], axes] > 0, axes, axes + 2)
        origins = (signs * place)[rows[:, None], axes].astype(np.float32)
        backs = back[rows[:, None], axes].astype(np.float32)
        both = np.concatenate([targets.T, -targets.T]).astype(np.float32)
        begun, left = paths.distance[used] / self.cell, known / self.cell
        room = max(len(rows) * len(targets) // _ROOM, 64)
        while True:
            pairs, legs = np.empty((room, 2), np.int64), np.empty((room, 2), np.float32)
            count = turning(both, lines, origins, backs, begun, left, pairs, legs)
            if count <= room:
                break
            room = count
        row, target = np.ascontiguousarray(pairs[:count].T)
        leg, coming = np.ascontiguousarray(legs[:count].T), np.ascontiguousarray(backs.T)[:, row]
        return self._priced(paths, used[row], target, coming, leg, known)

    def _priced(
        self,
        paths: _Paths,
        corner: NDArray[np.intp],
        target: NDArray[np.intp],
        back: NDArray[np.float32],
        leg: NDArray[np.float32],
        known: Values,
    ) -> _Turns:
        """Berg's recursion over one turn; ``back`` and ``leg`` are (2, m) steps from the corner."""
        steps = np.hypot(leg[0], leg[1])
        close = paths.distance[corner] + self.cell * steps < known[target]
        corner, target, back, leg, steps = (
            corner[close],
            target[close],
            back[:, close],
            leg[:, close],
            steps[close],
        )
        # With the angle's cosine clipped, since a turn of 0 or 180 degrees may round beyond.
        cosine = -(back * leg).sum(axis=0) / (np.hypot(back[0], back[1]) * steps)
        quarters = np.arccos(np.clip(cosine, -1.0, 1.0)) * (2.0 / np.pi)
        distance = paths.distance[corner]
        factor = paths.factor[corner] + distance * (self.quarter_turn * quarters) ** ANGLE_EXPONENT
        made = _Turns(corner, target, distance + factor * self.cell * steps, factor)
        return made.select(made.distance < known[target])
