"""From path gain in dB to the numbers that a network learns, and back.

>>> encode([-160.0, -110.0, -40.0]).tolist(), decode([0.5]).tolist()
([0.0, 0.5, 1.0], [-110.0])
>>> encode([-186.0, -102.6, -47.0], RADIO_MAP_SEER).tolist(), round(RADIO_MAP_SEER.unit, 1)
([0.0, 0.5, 1.0], 111.2)
>>> decibels(0.01)
-20.0

An encoding is a public choice of two gains, never fitted to the maps. Mean squared errors are those of encoded values, so
their unit is the square of ``unit`` dB: at -20 dB, the encoded error has a root mean square of 0.1, which is 10 dB of path
gain with `CITY` and 11.1 dB with `RADIO_MAP_SEER`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.errors import SfumatoError


@dataclass(frozen=True)
class Encoding:
    """Path gains from ``low`` to ``high`` as 0 to 1, cut off at both ends.

    Attributes:
        low: dB, what becomes 0 before the threshold.
        high: dB, what becomes 1.
        threshold: what lies below this share of the range becomes 0, and the rest is stretched to 0..1 again (RadioMapSeer
            takes .2, which it calls the noise floor; papers.md 3.2).

    Raises:
        SfumatoError: if the gains are not ascending or the threshold lies outside of [0, 1).
    """

    low: float
    high: float
    threshold: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        numbers = (self.low, self.high, self.threshold)
        if not all(is_number(value) and math.isfinite(value) for value in numbers) or self.low >= self.high:
            raise SfumatoError(
                f"an encoding goes from {self.low!r} to {self.high!r} dB; allowed are ascending numbers."
            )
        if not 0.0 <= self.threshold < 1.0:
            raise SfumatoError(
                f"threshold of an encoding is {self.threshold!r}; allowed is at least 0 and below 1."
            )

    @property
    def unit(self) -> float:
        """The dB of path gain in one unit of the encoded values."""
        return (1.0 - self.threshold) * (self.high - self.low)

    @property
    def floor(self) -> float:
        """The path gain in dB at and below which the encoded value is 0."""
        return self.high - self.unit

    def rescale(self, share: Any) -> NDArray[np.float32]:
        """Apply the threshold alone, to shares of the whole range.

        Args:
            share: of any shape, such as a picture's grey levels / 255.
        """
        values = np.clip(np.asarray(share, np.float64), self.threshold, 1.0)
        return ((values - self.threshold) / (1.0 - self.threshold)).astype(np.float32)


CITY: Final = Encoding(-160.0, -60.0)
"""Of the maps made here: one unit is 100 dB of path gain. At 5.9 GHz, -60 dB is free space over 4 m; in windows of 256 m
less than 1 % of the free cells lie below -160 dB."""

RADIO_MAP_SEER: Final = Encoding(-186.0, -47.0, 0.2)
"""Of RadioMapSeer's pictures: grey levels 0 to 255 over this range, then its threshold."""


def encode(gain: Any, encoding: Encoding = CITY) -> NDArray[np.float32]:
    """The encoded values, float32 in [0, 1], of path gains.

    Args:
        gain: dB, of any shape; -inf, the gain inside buildings, becomes 0.
        encoding: the range.

    Raises:
        SfumatoError: if a gain is NaN.
    """
    values = np.asarray(gain, np.float64)
    if np.isnan(values).any():
        raise SfumatoError("a path gain is NaN; allowed are numbers of dB and -inf.")
    return encoding.rescale((values - encoding.low) / (encoding.high - encoding.low))


def decode(values: Any, encoding: Encoding = CITY) -> NDArray[np.float64]:
    """The path gains in dB of encoded values; 0 becomes the encoding's ``floor``, which is an upper bound there.

    Args:
        values: encoded, of any shape; predictions may lie outside of [0, 1].
        encoding: the range.
    """
    return encoding.floor + encoding.unit * np.asarray(values, np.float64)


def decibels(mean_square: float) -> float:
    """10 log10 of a mean squared error of encoded values; -inf for 0.

    Raises:
        SfumatoError: if it is negative or NaN.
    """
    if not mean_square >= 0.0:
        raise SfumatoError(f"a mean squared error is {mean_square!r}; allowed is at least 0.")
    return 10.0 * math.log10(mean_square) if mean_square > 0.0 else -math.inf
