"""Lines of sight, compiled: each ray is walked until the first wall.

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
