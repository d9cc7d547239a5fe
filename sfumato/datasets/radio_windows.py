"""Square windows of cities, and places for transmitters in them.

>>> from sfumato.rng import Streams
>>> city = np.zeros((256, 320), np.uint8)
>>> city[:, 100:180] = 12
>>> windows = cut_windows({"town": city}, cell=8.0)
>>> windows.heights.shape, windows.corner.tolist()
((2, 32, 32), [[0.0, 0.0], [0.0, 64.0]])
>>> places = draw_transmitters(windows, per_map=3, margin=2, stream=Streams(0).stream("transmitters"))
>>> places.shape, int(places.min()) >= 2
((2, 3, 2), True)

A cell is built iff at least half of its square metres are; its height is then the mean height of those that are built. Streets
that are narrower than half a cell close, as they do in any map of that resolution. Whether a window is taken is decided on the
square metres, so every cell size gives the same windows. Windows overlap where the stride is less than the window: train and
test must be split by city.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

TALLEST: Final = 1000.0
"""Metres; a height above it is a mistake of units."""

_CHUNK: Final = 64


@dataclass(frozen=True, eq=False)
class Windows:
    """Square windows of building heights; row i of each array belongs to window i.

    Attributes:
        heights: float32 (n, s, s), metres above ground, 0 where free.
        city: int16 (n,), index into ``cities``.
        cities: names.
        corner: float32 (n, 2), metres from the city's corner to the window's, rows first.
        cell: metres per cell.
    """

    heights: NDArray[np.float32]
    city: NDArray[np.int16]
    cities: tuple[str, ...]
    corner: NDArray[np.float32]
    cell: float

    def __len__(self) -> int:
        """Windows, n."""
        return len(self.heights)

    def select(self, rows: Sequence[int] | NDArray[Any]) -> Windows:
        """The windows of these rows, in their order."""
        rows = np.asarray(rows)
        return Windows(self.heights[rows], self.city[rows], self.cities, self.corner[rows], self.cell)

    def of_cities(self, names: Sequence[str]) -> Windows:
        """The windows of these cities, in the set's order.

        Raises:
            SfumatoError: if a name is unknown.
        """
        unknown = sorted(set(names) - set(self.cities))
        if unknown:
            raise SfumatoError(f"the city {unknown[0]!r} is unknown; allowed are {', '.join(self.cities)}.")
        chosen = [self.cities.index(name) for name in names]
        return self.select(np.flatnonzero(np.isin(self.city, chosen)))


def check_windows(windows: Windows) -> None:
    """Refuse windows whose heights can be none.

    Raises:
        SfumatoError: if the arrays' shapes disagree, there is no window, cell is not positive, a height is negative, not finite
            or above 1000 m, or a window has no free cell.
    """
    heights, count = windows.heights, len(windows.heights)
    if heights.ndim != 3 or heights.shape[1] != heights.shape[2] or heights.dtype != np.float32 or not count:
        raise SfumatoError(
            f"heights of windows have dtype {heights.dtype} and shape {heights.shape}; allowed is float32 of (n, s, s), n >= 1."
        )
    if windows.city.shape != (count,) or windows.corner.shape != (count, 2):
        raise SfumatoError(
            f"cities and corners of {count} windows have shapes {windows.city.shape} and {windows.corner.shape}; "
            f"allowed are ({count},) and ({count}, 2)."
        )
    check_scale("windows", heights)
    if not is_number(windows.cell) or not 0.0 < windows.cell <= TALLEST:
        raise SfumatoError(f"cell is {windows.cell!r} m; allowed is a positive number up to {TALLEST:g}.")
    closed = np.flatnonzero(~(heights == 0).any(axis=(1, 2)))
    if len(closed):
        raise SfumatoError(f"window {closed[0]} has no free cell; allowed is at least one of height 0.")


def check_scale(name: str, heights: NDArray[Any]) -> None:
    """Refuse heights that are negative, not finite or above 1000 m.

    Raises:
        SfumatoError: if there is one.
    """
    if heights.dtype.kind not in "fiu" or not np.isfinite(heights).all():
        raise SfumatoError(f"heights of {name} are not all finite numbers; allowed are metres above ground.")
    low, high = heights.min(initial=0), heights.max(initial=0)
    if low < 0 or high > TALLEST:
        raise SfumatoError(
            f"heights of {name} lie in {low:g} .. {high:g} m; allowed is 0 to {TALLEST:g} m above ground."
        )


def cut_windows(
    cities: Mapping[str, NDArray[Any]],
    window: int = 256,
    stride: int = 64,
    cell: float = 8.0,
    built: tuple[float, float] = (0.1, 0.8),
) -> Windows:
    """The windows of cities whose built share lies in a range, city by city, row by row.

    Args:
        cities: name -> (p, q) heights above ground in metres, on square metres, 0 where free.
        window: metres per side.
        stride: metres between neighbouring windows; at least ``window`` for disjoint ones.
        cell: metres per cell; a divisor of ``window``, as a whole number of metres.
        built: smallest and largest share of built square metres of a window that is taken.

    Raises:
        SfumatoError: if a number or an array is not allowed, or no window is left.
    """
    _check_cut(window, stride, cell, built)
    side = int(cell)
    heights: list[NDArray[np.float32]] = []
    city: list[int] = []
    corner: list[tuple[int, int]] = []
    for index, (name, full) in enumerate(cities.items()):
        if full.ndim != 2:
            raise SfumatoError(
                f"heights of {name} have shape {full.shape}; allowed is a map of rows and columns."
            )
        check_scale(name, full)
        for row, column in _corners(full > 0, window, stride, built):
            coarse = coarsen(full[row : row + window, column : column + window], side)
            if (coarse == 0).any():
                heights.append(coarse)
                city.append(index)
                corner.append((row, column))
    if not heights:
        raise SfumatoError(
            f"no window of {window} m has between {built[0]:g} and {built[1]:g} of its ground built; "
            "allowed are cities with at least one."
        )
    return Windows(
        np.stack(heights), np.array(city, np.int16), tuple(cities), np.array(corner, np.float32), float(cell)
    )


def _corners(
    walls: NDArray[np.bool_], window: int, stride: int, built: tuple[float, float]
) -> list[tuple[int, int]]:
    """Rows and columns where the windows of that built share begin, by sums over all corners before."""
    sums = np.zeros((walls.shape[0] + 1, walls.shape[1] + 1), np.int64)
    sums[1:, 1:] = walls.cumsum(axis=0, dtype=np.int64).cumsum(axis=1)
    low, high = sums[:-window:stride], sums[window::stride]
    count = (high[:, window:] - low[:, window:] - high[:, :-window] + low[:, :-window])[:, ::stride]
    share = count / (window * window)
    rows, columns = np.nonzero((share >= built[0]) & (share <= built[1]))
    return list(zip((rows * stride).tolist(), (columns * stride).tolist(), strict=True))


def _check_cut(window: int, stride: int, cell: float, built: tuple[float, float]) -> None:
    for name, value in (("window", window), ("stride", stride)):
        if not is_integer(value) or value < 1:
            raise SfumatoError(f"{name} is {value!r} m; allowed is a whole number of at least 1.")
    if not is_number(cell) or not cell >= 1 or cell != int(cell) or window % int(cell) or window < 2 * cell:
        raise SfumatoError(
            f"cell is {cell!r} m; allowed is a whole number of metres that divides the window of {window} m into 2 or more."
        )
    if not 0.0 <= built[0] <= built[1] <= 1.0:
        raise SfumatoError(f"built is {built!r}; allowed are two ascending shares from 0 to 1.")


def coarsen(heights: NDArray[Any], side: int) -> NDArray[np.float32]:
    """Heights on cells of ``side`` x ``side`` squares: built iff at least half of them are, and then as high as those on average.

    Args:
        heights: (p, q), both multiples of ``side``.
        side: squares per cell and side.

    Returns:
        float32 (p / side, q / side).
    """
    rows, columns = heights.shape
    blocks = heights.reshape(rows // side, side, columns // side, side)
    count = np.count_nonzero(blocks, axis=(1, 3))
    total = blocks.sum(axis=(1, 3), dtype=np.float64)
    return np.where(2 * count >= side * side, total / np.maximum(count, 1), 0.0).astype(np.float32)


def open_cells(windows: Windows, margin: int) -> NDArray[np.bool_]:
    """(n, s, s) the free cells with at least ``margin`` cells between them and the window's edge.

    Raises:
        SfumatoError: if the margin leaves nothing.
    """
    size = windows.heights.shape[1]
    if not is_integer(margin) or not 0 <= 2 * margin < size:
        raise SfumatoError(f"margin is {margin!r} cells; allowed is an integer from 0 to {(size - 1) // 2}.")
    inside = np.zeros((size, size), np.bool_)
    inside[margin : size - margin, margin : size - margin] = True
    return (windows.heights == 0) & inside


def draw_transmitters(windows: Windows, per_map: int, margin: int, stream: RandomStream) -> NDArray[np.int16]:
    """Places for transmitters: different free cells of each window, uniformly, none nearer to the edge than the margin.

    Args:
        windows: n windows of s cells per side.
        per_map: transmitters in each window.
        margin: cells between a transmitter and the window's edge.
        stream: one number is drawn for each cell of each window.

    Returns:
        int16 (n, per_map, 2), rows and columns.

    Raises:
        SfumatoError: if a window has fewer such cells, or a number is not allowed.
    """
    if not is_integer(per_map) or per_map < 1:
        raise SfumatoError(f"per_map is {per_map!r}; allowed is an integer of at least 1.")
    allowed = open_cells(windows, margin).reshape(len(windows), -1)
    room = allowed.sum(axis=1)
    if len(room) and room.min() < per_map:
        raise SfumatoError(
            f"window {int(room.argmin())} has {int(room.min())} free cells within a margin of {margin}; "
            f"allowed are windows with at least {per_map}, as `open_cells` tells."
        )
    chosen = np.empty((len(windows), per_map), np.intp)
    for start in range(0, len(windows), _CHUNK):
        part = slice(start, start + _CHUNK)
        keys = np.where(allowed[part], stream.random(allowed[part].shape), 2.0)
        chosen[part] = np.argsort(keys, axis=1, kind="stable")[:, :per_map]
    return np.stack(np.divmod(chosen, windows.heights.shape[1]), axis=-1).astype(np.int16)
