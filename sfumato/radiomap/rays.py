"""Straight rays across a grid: which cells they pass, and what stands in them.

>>> walls = np.zeros((3, 5), np.float32)
>>> walls[1, 2] = 9.0
>>> clear(walls > 0, np.array([[1, 0], [0, 0]]), np.array([[1, 4], [0, 4]]))
array([False,  True])

A ray from cell centre to cell centre is looked at once per cell of its longer axis, both ends left out. Where it passes
exactly between two cells the higher one counts. So the profile of a ray read backwards is that of the reversed ray, and a
turned or mirrored map has turned or mirrored profiles; both hold exactly, since the positions are whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.integer[Any]]

MAXIMUM_SIZE: Final = 1024
"""Cells per side; up to here single precision tells a tie from its neighbours."""


@dataclass(frozen=True, eq=False)
class Profiles:
    """What stands along r rays, t samples in all; rays between neighbours have no sample.

    Attributes:
        length: (r,) int32, steps of the longer axis from end to end.
        crossing: (r,) bool, rays that have samples.
        first: (c,) the first sample of each crossing ray.
        step: (t,) float32, steps from the start: 1..length-1.
        value: (t,) the values of the cells.
    """

    length: NDArray[np.int32]
    crossing: NDArray[np.bool_]
    first: NDArray[np.int64]
    step: NDArray[np.float32]
    value: NDArray[Any]

    def highest(self, samples: NDArray[Any]) -> NDArray[Any]:
        """(c,) the maximum of (t,) numbers over each crossing ray."""
        if not len(self.first):
            return np.empty(0, samples.dtype)
        return np.maximum.reduceat(samples, self.first)

    def rest(self) -> NDArray[np.float32]:
        """(t,) steps to the end."""
        length = self.length[self.crossing]
        return np.repeat(length.astype(np.float32), length - 1) - self.step


def profiles(values: NDArray[Any], starts: Cells, ends: Cells) -> Profiles:
    """The cells between the ends of each ray.

    Args:
        values: (p, q) of any number type, not negative.
        starts: (r, 2) or (2,) row and column of the first cell.
        ends: (r, 2) row and column of the last cell.
    """
    columns = values.shape[1]
    delta = (ends - starts).astype(np.int32)
    all_lengths = np.abs(delta).max(axis=1)
    crossing = all_lengths > 1
    begin = np.broadcast_to(starts[..., 0] * columns + starts[..., 1], crossing.shape)[crossing]
    delta, length = delta[crossing], all_lengths[crossing]
    size, stride = np.abs(delta), np.sign(delta) * np.array([columns, 1], np.int32)
    steep = size[:, 0] >= size[:, 1]
    along = np.where(steep, stride[:, 0], stride[:, 1])
    samples = length - 1
    aside = np.repeat(np.where(steep, stride[:, 1], stride[:, 0]), samples)
    minor = np.where(steep, size[:, 1], size[:, 0])
    last = np.cumsum(samples)
    first = last - samples
    step = np.arange(1, len(aside) + 1, dtype=np.int32) - np.repeat(first.astype(np.int32), samples)
    # The offset along the shorter axis is minor step / length, rounded; a whole quotient here is a tie.
    rounded = np.repeat(2 * minor, samples) * step + np.repeat(length, samples)
    quotient = rounded.astype(np.float32) / np.repeat((2 * length).astype(np.float32), samples)
    offset = np.floor(quotient)
    tie = np.flatnonzero(offset == quotient)
    cell = np.repeat(begin.astype(np.int32), samples) + np.repeat(along, samples) * step
    cell += aside * offset.astype(np.int32)
    flat = values.reshape(-1)
    value = flat[cell]
    value[tie] = np.maximum(value[tie], flat[cell[tie] - aside[tie]])
    return Profiles(all_lengths, crossing, first, step.astype(np.float32), value)


def clear(walls: NDArray[np.bool_], starts: Cells, ends: Cells) -> NDArray[np.bool_]:
    """(r,) whether no wall stands between the ends of each ray; the ends themselves are not asked.

    Args:
        walls: (p, q).
        starts: (r, 2) or (2,) row and column of the first cell.
        ends: (r, 2) row and column of the last cell.
    """
    from sfumato.radiomap.sight import look

    first = np.ascontiguousarray(np.broadcast_to(starts, ends.shape), np.int32)
    seen = np.ones(len(ends), np.bool_)
    look(np.ascontiguousarray(walls), first, np.ascontiguousarray(ends, np.int32), seen)
    return seen
