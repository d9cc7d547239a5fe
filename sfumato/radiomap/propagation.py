"""The dominant path between two antennas in a city: straight, over the roofs, or around the corners.

>>> heights = np.zeros((8, 8), np.float32)
>>> heights[3:5, 2:7] = 20.0
>>> gain = path_gain(heights, (1, 4), Link(), cell=8.0)
>>> free = free_space_gain(3 * 8.0, Link().wave)
>>> bool(gain[1, 1] == np.float32(free)), bool(gain[6, 4] < free - 20)
(True, True)

The gain of a cell is that of the strongest of three paths:

* *line of sight*, where the straight line between the antennas clears all buildings: free space (ITU-R P.525);
* *over the roofs*, elsewhere: free space and the knife-edge loss of Bullington's equivalent edge in the vertical plane
  through both antennas (ITU-R P.526, `diffraction`);
* *along the streets*, where the transmitter stands on a free cell: Berg's recursive model (`streets`), each path's d and
  the antennas' difference in height joined as the sides of a right triangle.

Every free cell is covered. RadioMapSeer's dominant-path maps are of this kind (papers.md 3.2). What is left out: walls that
reflect, ground, penetration, antenna patterns, and the Fresnel zone of a line of sight that is just clear, so the gain falls
by 6 dB or more where the shadow begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.errors import SfumatoError
from sfumato.radiomap.diffraction import (
    equivalent_edge,
    free_space_gain,
    knife_edge_loss,
    knife_edge_parameter,
    wavelength,
)
from sfumato.radiomap.rays import MAXIMUM_SIZE, Cells, profiles
from sfumato.radiomap.streets import Corners, find_corners, street_distances

Values = NDArray[np.float64]

HIGHEST = 1000.0
"""Metres; a building or antenna above is a mistake of units."""
FREQUENCIES = (1e8, 1e11)
"""Hz; between 100 MHz and 100 GHz the edges are large against the wavelength and the streets' model is meant."""


@dataclass(frozen=True)
class Link:
    """Both antennas, isotropic.

    Attributes:
        frequency: Hz.
        transmitter_height: metres above ground.
        receiver_height: metres above ground.

    Raises:
        SfumatoError: if a number is out of its range.
    """

    frequency: float = 5.9e9
    transmitter_height: float = 1.5
    receiver_height: float = 1.5

    def __post_init__(self) -> None:
        """Check the numbers."""
        low, high = FREQUENCIES
        if not is_number(self.frequency) or not low <= self.frequency <= high:
            raise SfumatoError(
                f"frequency is {self.frequency!r} Hz; allowed is a number from {low:g} to {high:g}."
            )
        for name in ("transmitter_height", "receiver_height"):
            value = getattr(self, name)
            if not is_number(value) or not 0.0 < value <= HIGHEST:
                raise SfumatoError(f"{name} is {value!r} m; allowed is a positive number up to {HIGHEST:g}.")

    @property
    def wave(self) -> float:
        """The wavelength in metres."""
        return wavelength(self.frequency)

    def reversed(self) -> Link:
        """The link with both antennas exchanged."""
        return Link(self.frequency, self.receiver_height, self.transmitter_height)


def check_heights(heights: NDArray[Any]) -> NDArray[np.float32]:
    """The heights as float32, if they can be those of a map.

    Args:
        heights: (..., s, s) metres, 0 where free.

    Raises:
        SfumatoError: if the map is not square, has fewer than 2 or too many cells per side, no free cell, or a height that
            is negative, not finite or above 1000 m.
    """
    shape = heights.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or not 2 <= shape[-1] <= MAXIMUM_SIZE:
        raise SfumatoError(
            f"heights have shape {shape}; allowed are square maps of 2 to {MAXIMUM_SIZE} cells per side."
        )
    if not np.isfinite(heights).all() or heights.min(initial=0.0) < 0.0 or heights.max(initial=0.0) > HIGHEST:
        raise SfumatoError(
            f"heights lie in {heights.min()} .. {heights.max()} m; allowed are finite ones from 0 to {HIGHEST:g}."
        )
    if not (heights == 0).any(axis=(-2, -1)).all():
        raise SfumatoError("a map of heights has no free cell; allowed is at least one cell of height 0.")
    return np.ascontiguousarray(heights, np.float32)


def path_gain(
    heights: NDArray[Any], transmitter: Sequence[int] | Cells, link: Link, cell: float
) -> NDArray[np.float32]:
    """The path gain from one transmitter to every free cell.

    Args:
        heights: (s, s) metres, 0 where free.
        transmitter: row and column; its antenna, in the cell's centre, must be above what is built there.
        link: frequency and antenna heights.
        cell: metres per cell.

    Returns:
        float32 (s, s), dB, at most 0; -inf on buildings. The transmitter's own cell is taken at a distance of half a cell
        or of the antennas' difference in height, whichever is more.

    Raises:
        SfumatoError: if heights, transmitter or cell are not allowed.
    """
    return path_gains(heights, np.array([transmitter]), link, cell)[0]


def path_gains(heights: NDArray[Any], transmitters: Cells, link: Link, cell: float) -> NDArray[np.float32]:
    """As `path_gain` for several transmitters on one map.

    Args:
        heights: (s, s) metres, 0 where free.
        transmitters: (k, 2) rows and columns.
        link: frequency and antenna heights.
        cell: metres per cell.

    Returns:
        float32 (k, s, s), dB.

    Raises:
        SfumatoError: if heights, a transmitter or cell are not allowed.
    """
    heights = check_heights(heights)
    check_cell(cell)
    check_transmitters(heights, transmitters, link.transmitter_height)
    walls = heights > 0
    receivers, corners = np.argwhere(~walls).astype(np.int32), find_corners(walls)
    gains = np.full((len(transmitters), *heights.shape), -np.inf, np.float32)
    for number, transmitter in enumerate(transmitters):
        distance = _distances(heights, corners, transmitter, receivers, link, cell)
        gains[number, receivers[:, 0], receivers[:, 1]] = free_space_gain(distance, link.wave)
    return gains


def check_cell(cell: float) -> None:
    """Refuse a cell that is no positive number of metres.

    Raises:
        SfumatoError: if it is not.
    """
    if not is_number(cell) or not 0.0 < cell <= HIGHEST:
        raise SfumatoError(f"cell is {cell!r} m; allowed is a positive number up to {HIGHEST:g}.")


def check_transmitters(heights: NDArray[np.float32], transmitters: Cells, height: float) -> None:
    """Refuse transmitters that lie outside of the map or inside a building.

    Args:
        heights: (s, s) metres.
        transmitters: (k, 2) rows and columns.
        height: of the antenna, metres above ground.

    Raises:
        SfumatoError: if there is one.
    """
    if transmitters.ndim != 2 or transmitters.shape[1] != 2 or transmitters.dtype.kind not in "iu":
        raise SfumatoError(
            f"transmitters have dtype {transmitters.dtype} and shape {transmitters.shape}; allowed are integers of (k, 2)."
        )
    outside = (transmitters < 0) | (transmitters >= np.array(heights.shape))
    if outside.any():
        row, column = transmitters[outside.any(axis=1)][0]
        raise SfumatoError(
            f"a transmitter stands in cell ({row}, {column}), outside of the map; allowed are 0 to {len(heights) - 1}."
        )
    roofs = heights[transmitters[:, 0], transmitters[:, 1]]
    inside = roofs >= height
    if inside.any():
        row, column = transmitters[inside][0]
        raise SfumatoError(
            f"a transmitter {height:g} m above ground stands in cell ({row}, {column}), inside a building of "
            f"{roofs[inside][0]:g} m; allowed are free cells and places above the roof."
        )


def _distances(
    heights: NDArray[np.float32],
    corners: Corners,
    transmitter: Cells,
    receivers: Cells,
    link: Link,
    cell: float,
) -> Values:
    """(r,) the distances over which free space has the loss of each receiver's strongest path, metres."""
    across = cell * np.hypot(*(receivers - transmitter).T.astype(np.float64))
    rise = link.receiver_height - link.transmitter_height
    distance = np.maximum(np.hypot(across, rise), max(0.5 * cell, abs(rise)))
    shadowed, parameter = _over_roofs(heights, transmitter, receivers, link, across)
    distance[shadowed] *= 10.0 ** (knife_edge_loss(parameter) / 20.0)
    if heights[transmitter[0], transmitter[1]] == 0 and len(shadowed):
        over = distance[shadowed]
        limits = np.sqrt(over**2 - rise**2)
        street = street_distances(
            heights > 0, corners, transmitter, receivers[shadowed], cell, link.wave, limits
        )
        distance[shadowed] = np.minimum(over, np.hypot(street, rise))
    return distance


def _over_roofs(
    heights: NDArray[np.float32], transmitter: Cells, receivers: Cells, link: Link, across: Values
) -> tuple[NDArray[np.intp], Values]:
    """The receivers without line of sight, and nu of the equivalent edge on the way to them."""
    seen = profiles(heights, transmitter, receivers)
    start, end = np.float32(link.transmitter_height), np.float32(link.receiver_height)
    from_start = seen.highest((seen.value - start) / seen.step).astype(np.float64)
    length = seen.length[seen.crossing].astype(np.float64)
    direct = (link.receiver_height - link.transmitter_height) / length
    hidden = np.flatnonzero(from_start >= direct)
    from_end = seen.highest((seen.value - end) / seen.rest()).astype(np.float64)
    length = length[hidden]
    place, height = equivalent_edge(from_start[hidden], from_end[hidden], direct[hidden], length)
    shadowed = np.flatnonzero(seen.crossing)[hidden]
    step = across[shadowed] / length
    return shadowed, knife_edge_parameter(height, place * step, (length - place) * step, link.wave)
