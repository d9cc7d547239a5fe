"""Federated radio maps that do not give the transmitter away (Section 3 of docs/papers.md).

>>> import numpy as np
>>> heights = np.zeros((4, 4), np.float32)
>>> gain = path_gain(heights, (1, 1), Link(), cell=8.0)
>>> encode(gain).round(2)[1].tolist() == encode(gain).round(2)[:, 1].tolist()
True

`propagation` gives the path gain of the dominant path (`rays`, `diffraction`, `streets`), `encoding` the numbers that a network
learns, `maps` the windows of a city with their transmitters and radio maps.
"""

from sfumato.radiomap.encoding import CITY, RADIO_MAP_SEER, Encoding, decibels, decode, encode
from sfumato.radiomap.maps import MapSet, of_radiomapseer, simulate
from sfumato.radiomap.propagation import Link, path_gain, path_gains

__all__ = [
    "CITY",
    "RADIO_MAP_SEER",
    "Encoding",
    "Link",
    "MapSet",
    "decibels",
    "decode",
    "encode",
    "of_radiomapseer",
    "path_gain",
    "path_gains",
    "simulate",
]
