"""Radio maps of many windows, and the pictures that a network sees of them.

>>> from sfumato.datasets.radio_windows import Windows
>>> heights = np.zeros((1, 4, 4), np.float32)
>>> heights[0, 1, 2] = 12.0
>>> windows = Windows(heights, np.zeros(1, np.int16), ("town",), np.zeros((1, 2), np.float32), cell=8.0)
>>> maps = simulate(windows, np.array([[[0, 0], [3, 3]]], np.int16), Link())
>>> maps.count, maps.per_map, maps.size, maps.positions(np.array([[0, 1]])).tolist()
(1, 2, 4, [[28.0, 28.0]])
>>> maps.inputs(np.array([[0, 1]])).shape, int(maps.masks(np.array([[0, 1]])).sum())
((1, 2, 4, 4), 15)

A pair (map, transmitter) is one example. Rows and columns are counted from the window's corner, and positions in metres are
the centres of cells, row first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.errors import SfumatoError
from sfumato.radiomap.encoding import CITY, RADIO_MAP_SEER, Encoding, encode
from sfumato.radiomap.propagation import HIGHEST, Link, path_gains

if TYPE_CHECKING:
    from sfumato.datasets.radio_windows import Windows
    from sfumato.datasets.radiomapseer import Samples

Pairs = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class MapSet:
    """Windows of cities, transmitters in them, and the radio map of each transmitter.

    Attributes:
        heights: float32 (n, s, s), metres, 0 where free.
        transmitters: int16 (n, k, 2), row and column of a free cell.
        radio: float32 (n, k, s, s), encoded path gain in [0, 1], 0 on buildings.
        city: int16 (n,), index into ``cities``.
        cities: names.
        corner: float32 (n, 2), metres from the city's corner to the window's, rows first.
        cell: metres per cell.

    Raises:
        SfumatoError: if an array has another type or shape or a value outside of what is allowed.
    """

    heights: NDArray[np.float32]
    transmitters: NDArray[np.int16]
    radio: NDArray[np.float32]
    city: NDArray[np.int16]
    cities: tuple[str, ...]
    corner: NDArray[np.float32]
    cell: float

    def __post_init__(self) -> None:
        """Check every array."""
        if not is_number(self.cell) or not 0.0 < self.cell < np.inf:
            raise SfumatoError(f"cell is {self.cell!r} m; allowed is a positive number.")
        shape = np.shape(self.heights)
        if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
            raise SfumatoError(
                f"heights have shape {shape}; allowed is (n, s, s) with at least one map and cell."
            )
        count, size = shape[:2]
        per_map = np.shape(self.transmitters)[1] if np.ndim(self.transmitters) == 3 else 1
        _check("heights", self.heights, np.float32, (count, size, size))
        _check("transmitters", self.transmitters, np.int16, (count, max(per_map, 1), 2))
        _check("radio", self.radio, np.float32, (count, per_map, size, size))
        _check("city", self.city, np.int16, (count,))
        _check("corner", self.corner, np.float32, (count, 2))
        for name in ("heights", "radio", "corner"):
            if not np.isfinite(getattr(self, name)).all():
                raise SfumatoError(
                    f"{name} of a map set hold values that are not finite; allowed are numbers."
                )
        if self.heights.min() < 0.0 or self.heights.max() > HIGHEST:
            raise SfumatoError(
                f"heights lie in {self.heights.min():g} .. {self.heights.max():g} m; allowed is 0 to {HIGHEST:g}."
            )
        if self.city.min() < 0 or self.city.max() >= len(self.cities):
            raise SfumatoError(
                f"a city's index is outside of 0..{len(self.cities) - 1}; allowed is one for each name in cities."
            )
        self._check_places()

    def _check_places(self) -> None:
        if self.transmitters.min() < 0 or self.transmitters.max() >= self.size:
            raise SfumatoError(
                f"a transmitter lies outside of its map; allowed are cells 0..{self.size - 1}."
            )
        row, column = np.moveaxis(self.transmitters, -1, 0)
        if not self.free[np.arange(self.count)[:, None], row, column].all():
            raise SfumatoError("a transmitter lies inside of a building; allowed are free cells.")
        if self.radio.min() < 0.0 or self.radio.max() > 1.0:
            raise SfumatoError(
                f"radio lies in {self.radio.min():g} .. {self.radio.max():g}; allowed are encoded values in [0, 1]."
            )
        if any(radio[:, heights > 0].any() for radio, heights in zip(self.radio, self.heights, strict=True)):
            raise SfumatoError("radio is above 0 inside of a building; allowed is 0 there.")

    @property
    def free(self) -> NDArray[np.bool_]:
        """(n, s, s) cells without a building."""
        return self.heights == 0

    @property
    def size(self) -> int:
        """Cells per side, s."""
        return self.heights.shape[1]

    @property
    def count(self) -> int:
        """Windows, n."""
        return len(self.heights)

    @property
    def per_map(self) -> int:
        """Transmitters per window, k."""
        return self.transmitters.shape[1]

    def select(self, rows: Sequence[int] | NDArray[Any]) -> MapSet:
        """The windows of these rows, in their order; the names of cities stay.

        Args:
            rows: indices below n, or bool (n,).

        Raises:
            SfumatoError: if there are none, or one is out of range.
        """
        chosen = np.arange(self.count)[_checked_rows(rows, self.count)]
        if not len(chosen):
            raise SfumatoError("0 maps were selected; allowed is at least 1.")
        return MapSet(
            self.heights[chosen],
            self.transmitters[chosen],
            self.radio[chosen],
            self.city[chosen],
            self.cities,
            self.corner[chosen],
            self.cell,
        )

    def of_cities(self, names: Sequence[str]) -> MapSet:
        """The windows of these cities, in the set's order.

        Raises:
            SfumatoError: if a name is unknown or there are no windows.
        """
        unknown = sorted(set(names) - set(self.cities))
        if unknown:
            raise SfumatoError(f"the city {unknown[0]!r} is unknown; allowed are {', '.join(self.cities)}.")
        return self.select(np.isin(self.city, [self.cities.index(name) for name in names]))

    def inputs(self, pairs: Pairs) -> NDArray[np.float32]:
        """What the network is given: buildings as 0 or 1, and the transmitter's cell as 1.

        Args:
            pairs: (b, 2) indices of maps and of their transmitters.

        Returns:
            float32 (b, 2, s, s).

        Raises:
            SfumatoError: if a pair is out of range.
        """
        maps, which = self._split(pairs)
        result = np.zeros((len(maps), 2, self.size, self.size), np.float32)
        result[:, 0] = self.heights[maps] > 0
        row, column = self.transmitters[maps, which].T
        result[np.arange(len(maps)), 1, row, column] = 1.0
        return result

    def targets(self, pairs: Pairs) -> NDArray[np.float32]:
        """The encoded radio maps of (b, 2) pairs: float32 (b, 1, s, s).

        Raises:
            SfumatoError: if a pair is out of range.
        """
        maps, which = self._split(pairs)
        return self.radio[maps, which][:, None]

    def masks(self, pairs: Pairs) -> NDArray[np.bool_]:
        """The free cells of (b, 2) pairs, where errors count: bool (b, 1, s, s).

        Raises:
            SfumatoError: if a pair is out of range.
        """
        maps, _ = self._split(pairs)
        return (self.heights[maps] == 0)[:, None]

    def positions(self, pairs: Pairs) -> NDArray[np.float64]:
        """Where the transmitters of (b, 2) pairs are: float64 (b, 2), metres from the window's corner, rows first.

        Raises:
            SfumatoError: if a pair is out of range.
        """
        maps, which = self._split(pairs)
        return (self.transmitters[maps, which].astype(np.float64) + 0.5) * float(self.cell)

    def _split(self, pairs: Pairs) -> tuple[NDArray[Any], NDArray[Any]]:
        """The columns of pairs, after a check that costs little beside a training step."""
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise SfumatoError(
                f"pairs have dtype {pairs.dtype} and shape {pairs.shape}; allowed are integers of (b, 2)."
            )
        if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= (self.count, self.per_map)).any()):
            raise SfumatoError(
                f"a pair is out of range; allowed are maps 0..{self.count - 1} and transmitters 0..{self.per_map - 1}."
            )
        return pairs[:, 0], pairs[:, 1]


def simulate(
    windows: Windows, transmitters: NDArray[np.int16], link: Link, encoding: Encoding = CITY
) -> MapSet:
    """The dominant-path radio maps of windows.

    Args:
        windows: n windows of s cells per side.
        transmitters: int16 (n, k, 2), as `sfumato.datasets.radio_windows.draw_transmitters` draws them.
        link: frequency and antenna heights.
        encoding: of the path gain.

    Raises:
        SfumatoError: if the windows' heights are not allowed or a transmitter lies outside of its window or in a building.
    """
    _check("transmitters", transmitters, np.int16, (len(windows.heights), *np.shape(transmitters)[1:]))
    radio = np.stack(
        [
            encode(path_gains(heights, places, link, windows.cell), encoding)
            for heights, places in zip(windows.heights, transmitters, strict=True)
        ]
    )
    return MapSet(
        windows.heights, transmitters, radio, windows.city, windows.cities, windows.corner, windows.cell
    )


def of_radiomapseer(samples: Samples) -> MapSet:
    """RadioMapSeer's pictures as a map set: one window per map, its threshold applied, 0 on buildings.

    Args:
        samples: what `sfumato.datasets.radiomapseer.read_samples` read.
    """
    count = len(samples.heights)
    levels = RADIO_MAP_SEER.rescale(np.arange(256) / 255.0)
    radio = levels[samples.gain]
    for pictures, heights in zip(radio, samples.heights, strict=True):
        pictures[:, heights > 0] = 0.0
    return MapSet(
        samples.heights,
        samples.transmitters,
        radio,
        np.zeros(count, np.int16),
        ("radiomapseer",),
        np.zeros((count, 2), np.float32),
        samples.cell,
    )


def _check(name: str, values: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    if values.dtype != dtype or values.shape != shape:
        raise SfumatoError(
            f"{name} have dtype {values.dtype} and shape {values.shape}; allowed is {np.dtype(dtype)} of {shape}."
        )


def _checked_rows(rows: Sequence[int] | NDArray[Any], count: int) -> NDArray[Any]:
    chosen = np.asarray(rows)
    if chosen.dtype == bool and chosen.shape == (count,):
        return chosen
    if chosen.size == 0:
        return np.empty(0, np.intp)
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1 or chosen.min() < 0 or chosen.max() >= count:
        raise SfumatoError(f"a row of maps is out of range; allowed are integers 0..{count - 1}.")
    return chosen
