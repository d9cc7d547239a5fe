"""Compiled loops of the street paths: each ray is walked until the first wall, each turn is looked at once.

>>> walls = np.zeros((3, 5), np.bool_)
>>> walls[1, 2] = True
>>> seen = np.ones(2, np.bool_)
>>> look(walls, np.array([[1, 0], [0, 0]], np.int32), np.array([[1, 4], [0, 4]], np.int32), seen)
>>> seen
array([False,  True])

The cells are those of `sfumato.radiomap.rays.profiles`, in whole numbers. Compiled on the first call and kept between
processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
from numpy.typing import NDArray


@njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")  # pyright: ignore[reportUntypedFunctionDecorator]
def look(walls: NDArray[np.bool_], starts: NDArray[Any], ends: NDArray[Any], seen: NDArray[np.bool_]) -> None:
    """Clear ``seen`` for every ray with a wall between its ends; the ends themselves are not asked.

    Args:
        walls: (p, q).
        starts: (r, 2) int32 row and column of the first cell.
        ends: (r, 2) int32 row and column of the last cell.
        seen: (r,) bool, written to.
    """
    for ray in range(len(ends)):
        row, column = starts[ray, 0], starts[ray, 1]
        down, right = ends[ray, 0] - row, ends[ray, 1] - column
        high, wide = abs(down), abs(right)
        steep = high >= wide
        length, minor = max(high, wide), min(high, wide)
        # One step along the longer axis, and one along the shorter.
        along_row, along_column = (np.sign(down), 0) if steep else (0, np.sign(right))
        aside_row, aside_column = (0, np.sign(right)) if steep else (np.sign(down), 0)
        for step in range(1, length):
            rounded = 2 * minor * step + length
            offset = rounded // (2 * length)
            r = row + along_row * step + aside_row * offset
            c = column + along_column * step + aside_column * offset
            if walls[r, c]:
                seen[ray] = False
                break
            # Exactly between two cells the other one counts as well.
            if offset * 2 * length == rounded and walls[r - aside_row, c - aside_column]:
                seen[ray] = False
                break


@njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")  # pyright: ignore[reportUntypedFunctionDecorator]
def turning(
    targets: NDArray[np.float32],
    lines: NDArray[Any],
    origins: NDArray[np.float32],
    backs: NDArray[np.float32],
    distances: NDArray[np.float64],
    known: NDArray[np.float64],
    found: NDArray[Any],
    legs: NDArray[np.float32],
) -> int:
    """Which targets a path around each corner turns towards and could reach sooner than is known.

    The turns are whole numbers in float32, so that all is exact; of the lengths a little more is let through than is shorter.

    Args:
        targets: (4, t) rows, columns and their negatives.
        lines: (c, 2) which of the four are a corner's own axes u and w.
        origins: (c, 2) the corner in its axes.
        backs: (c, 2) steps back along the path in its axes.
        distances: (c,) steps to the corner.
        known: (t,) steps in which each target is reached by other means.
        found: (f, 2) int64 corner and target of each turn, written to while there is room.
        legs: (f, 2) float32 the turn's u and w, likewise.

    Returns:
        How many turns there are.
    """
    count = 0
    for corner in range(len(lines)):
        across, onwards = targets[lines[corner, 0]], targets[lines[corner, 1]]
        for target in range(targets.shape[1]):
            u, w = across[target] - origins[corner, 0], onwards[target] - origins[corner, 1]
            if w > max(2 * u, 0) and backs[corner, 0] * w > backs[corner, 1] * u:
                left = known[target] - distances[corner]
                if left <= 0 or np.float64(u) * u + np.float64(w) * w > left * left * 1.00001:
                    continue
                if count < len(found):
                    found[count, 0], found[count, 1] = corner, target
                    legs[count, 0], legs[count, 1] = u, w
                count += 1
    return count
