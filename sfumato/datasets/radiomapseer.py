"""RadioMapSeer's pictures, which a user has placed: building maps, antennas and simulated path gain (papers.md 3.2).

>>> [len(split_maps(name)) for name in SPLITS]
[501, 100, 99]

The data set (Levie, Yapar, Kutyniok, Caire: RadioUNet, IEEE Transactions on Wireless Communications 2021) lies in a folder as
``png/buildings_complete/{map}.png``, ``png/antennas/{map}_{tx}.png`` and ``gain/DPM/{map}_{tx}.png`` (or ``gain/IRT2``), maps
1 to 701, transmitters 0 to 79: 8-bit grey pictures of 256 x 256 pixels of 1 m. Grey levels 0 to 255 of the gain stand for
-186 to -47 dB. Its simulations took 5.9 GHz, antennas at 1.5 m and buildings of 25 m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from sfumato.errors import DataUnavailableError, SfumatoError

SIZE: Final = 256
CELL: Final = 1.0
"""Metres per pixel."""
BUILDING_HEIGHT: Final = 25.0
"""Metres, of every building of the simulations."""
TRANSMITTERS: Final = 80
METHODS: Final = ("DPM", "IRT2")

SPLITS: Mapping[str, range] = MappingProxyType(
    {"train": range(0, 501), "validation": range(501, 601), "test": range(601, 700)}
)
"""Positions in the shuffled list of maps, as in RadioUNet's published code."""

_SHUFFLE_SEED: Final = 42
_SHUFFLED_MAPS: Final = 700


@dataclass(frozen=True, eq=False)
class Samples:
    """What was read of n maps with k transmitters each.

    Attributes:
        maps: (n,) int64, the maps' numbers as in the file names.
        heights: float32 (n, s, s), metres, `BUILDING_HEIGHT` or 0.
        transmitters: int16 (n, k, 2), rows and columns.
        gain: uint8 (n, k, s, s), grey levels.
        moved: antennas whose pixel a building's outline covers; they are put on the first free one of the eight pixels around.
        cell: metres per pixel.
    """

    maps: NDArray[np.int64]
    heights: NDArray[np.float32]
    transmitters: NDArray[np.int16]
    gain: NDArray[np.uint8]
    moved: int
    cell: float = CELL


def split_maps(name: str) -> NDArray[np.int64]:
    """The numbers of a split's maps, in RadioUNet's order: maps 1..700 shuffled by numpy's legacy generator, seed 42.

    Args:
        name: ``train`` (501 maps), ``validation`` (100) or ``test`` (99).

    Raises:
        SfumatoError: if the name is another one.
    """
    if name not in SPLITS:
        raise SfumatoError(f"the split is {name!r}; allowed are {', '.join(SPLITS)}.")
    numbers = np.arange(_SHUFFLED_MAPS, dtype=np.int64)
    np.random.RandomState(_SHUFFLE_SEED).shuffle(numbers)
    return numbers[SPLITS[name]] + 1


def read_samples(
    folder: Path,
    maps: Sequence[int] | NDArray[Any],
    transmitters: Sequence[int] = range(TRANSMITTERS),
    method: str = "DPM",
    size: int = SIZE,
) -> Samples:
    """The pictures of some maps and transmitters.

    Args:
        folder: that of the data set.
        maps: numbers as in the file names, such as ``split_maps("train")``.
        transmitters: numbers as in the file names, the same for each map.
        method: ``DPM`` or ``IRT2``.
        size: pixels per side.

    Raises:
        DataUnavailableError: if a file is missing or no picture.
        SfumatoError: if a picture has another size or scale, or an antenna stands inside of a building.
    """
    if method not in METHODS:
        raise SfumatoError(f"method is {method!r}; allowed are {', '.join(METHODS)}.")
    if not len(maps) or not len(transmitters):
        raise SfumatoError(
            f"{len(maps)} maps with {len(transmitters)} transmitters are to be read; allowed is at least 1 of each."
        )
    heights = np.empty((len(maps), size, size), np.float32)
    places = np.empty((len(maps), len(transmitters), 2), np.int16)
    gain = np.empty((len(maps), len(transmitters), size, size), np.uint8)
    moved = 0
    for row, number in enumerate(maps):
        walls = _read_walls(folder / "png" / "buildings_complete" / f"{number}.png", size)
        heights[row] = BUILDING_HEIGHT * walls
        for column, transmitter in enumerate(transmitters):
            name = f"{number}_{transmitter}.png"
            antenna = _read_antenna(folder / "png" / "antennas" / name, size)
            places[row, column] = _free_place(walls, antenna, name)
            moved += bool((places[row, column] != antenna).any())
            gain[row, column] = _read_grey(folder / "gain" / method / name, size)
    return Samples(np.asarray(maps, np.int64), heights, places, gain, moved)


def _read_grey(path: Path, size: int) -> NDArray[np.uint8]:
    """The grey levels of a picture."""
    if not path.is_file():
        raise DataUnavailableError(
            f"{path.name} is missing in {path.parent}; place RadioMapSeer's files there, they are not fetched."
        )
    try:
        with Image.open(path) as picture:
            mode, levels = picture.mode, np.asarray(picture)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DataUnavailableError(f"{path.name} is no readable picture ({type(error).__name__}).") from None
    if mode != "L":
        raise SfumatoError(f"{path.name} has the mode {mode}; allowed are 8-bit grey levels, L.")
    if levels.shape != (size, size):
        raise SfumatoError(f"{path.name} has {levels.shape} pixels; allowed are {(size, size)}.")
    return levels


def _read_walls(path: Path, size: int) -> NDArray[np.bool_]:
    levels = _read_grey(path, size)
    if not np.isin(levels, (0, 255)).all():
        raise SfumatoError(f"{path.name} has grey levels between; allowed are 0 (free) and 255 (building).")
    if levels.all():
        raise SfumatoError(f"{path.name} has no free pixel; allowed is at least one.")
    return levels > 0


def _read_antenna(path: Path, size: int) -> NDArray[np.int64]:
    lit = np.argwhere(_read_grey(path, size))
    if len(lit) != 1:
        raise SfumatoError(f"{path.name} has {len(lit)} lit pixels; allowed is one, the antenna's.")
    return lit[0]


def _free_place(walls: NDArray[np.bool_], antenna: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    """The antenna's pixel, or the first free one around it."""
    around = np.array([(0, 0), (-1, 0), (0, -1), (0, 1), (1, 0), (-1, -1), (-1, 1), (1, -1), (1, 1)])
    for place in antenna + around:
        if place.min() >= 0 and place.max() < len(walls) and not walls[place[0], place[1]]:
            return place
    raise SfumatoError(
        f"the antenna of {name} stands inside of a building; allowed are free pixels and the pixels beside one."
    )
