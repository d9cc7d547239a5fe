"""Building heights of four cities, on square metres, committed with the library.

>>> heights = load_city_heights(["etoile"])
>>> heights["etoile"].shape, int(heights["etoile"].max())
((676, 853), 50)

They are those of the scenes of sionna-rt 2.2.0, which were made from OpenStreetMap: (c) OpenStreetMap contributors, Open
Database License 1.0; ``files/city_heights_1m.txt`` beside the data has the notice. ``benchmarks/city_scenes.py`` makes them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.artifacts import read_npz
from sfumato.errors import DataUnavailableError, SfumatoError

FILE: Final = Path(__file__).parent / "files" / "city_heights_1m.npz"
CHECKSUM: Final = "9df6a089eed74b16a4b7da883e8cd2b10cbef2c88a5f7093a52f9b6a3d885b19"
"""SHA-256 of the file."""

CITIES: Final = ("munich", "florence", "etoile", "san_francisco")


def load_city_heights(names: Sequence[str] = CITIES, file: Path = FILE) -> dict[str, NDArray[np.uint8]]:
    """The heights of buildings above ground, in whole metres.

    Args:
        names: cities in `CITIES`.
        file: where the committed file lies.

    Returns:
        name -> uint8 (p, q), one square metre each, 0 where free; columns go east and rows north.

    Raises:
        SfumatoError: if a name is unknown.
        DataUnavailableError: if the file is missing or has another content.
    """
    unknown = [name for name in names if name not in CITIES]
    if unknown:
        raise SfumatoError(f"the city {unknown[0]!r} is unknown; allowed are {', '.join(CITIES)}.")
    if not file.is_file():
        raise DataUnavailableError(f"{file.name} is missing beside the library; it is part of its package.")
    if hashlib.sha256(file.read_bytes()).hexdigest() != CHECKSUM:
        raise DataUnavailableError(
            f"{file.name} has another content than its checksum says; allowed is the file of this library's package."
        )
    arrays = read_npz(file)
    return {name: arrays[name] for name in names}
