"""The first step of every defence: bound what one update can hold.

>>> import numpy as np
>>> WholeClip(1.0).apply(np.array([3.0, 4.0])).round(12).tolist()
[0.6, 0.8]
>>> WholeClip(1.0).apply(np.zeros(2)).tolist()
[0.0, 0.0]

Clipping comes first and noise second; noise that was clipped would promise nothing (Section 3.1 of docs/papers.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.clipping import checked_clip_norm, clip_to_norm
from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import FloatArray, checked_group_clips
from sfumato.radiomap.partition import Partition


class Clip(Protocol):
    """First step: bounds what one update can hold."""

    def apply(self, delta: FloatArray) -> FloatArray:
        """The clipped update (d,), a new array."""
        ...

    def distances(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """How far two vectors (d,) are apart in the clip's norm: one number, or one per group."""
        ...


@dataclass(frozen=True)
class NoClip:
    """Lets everything through."""

    def apply(self, delta: FloatArray) -> FloatArray:
        """A copy."""
        return delta.copy()

    def distances(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """(1,) Euclidean."""
        return np.array([np.linalg.norm(first - second)], np.float64)


@dataclass(frozen=True)
class WholeClip:
    """Scales the update down to a Euclidean norm of at most C.

    Guarantee: two clipped updates are at most 2C apart.

    Attributes:
        norm: C, a public number.

    Raises:
        SfumatoError: if C is not a clip norm.
    """

    norm: float

    def __post_init__(self) -> None:
        """Check C."""
        checked_clip_norm(self.norm)

    def apply(self, delta: FloatArray) -> FloatArray:
        """The update times min(1, C / norm)."""
        return clip_to_norm(delta[None, :], self.norm)[0]

    def distances(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """(1,) Euclidean."""
        return np.array([np.linalg.norm(first - second)], np.float64)


@dataclass(frozen=True, eq=False)
class GroupClips:
    """Scales every group down to a norm of its own.

    Guarantee: two clipped updates are at most 2 C_g apart in group g.

    Attributes:
        partition: the groups.
        norms: (G,) C_g, public numbers.

    Raises:
        SfumatoError: if the norms are not (G,) clip norms.
    """

    partition: Partition
    norms: FloatArray

    def __post_init__(self) -> None:
        """Check the norms."""
        object.__setattr__(self, "norms", checked_group_clips(self.norms, self.partition.count))

    def apply(self, delta: FloatArray) -> FloatArray:
        """Each group times min(1, C_g / its norm)."""
        clipped = delta.copy()
        for group, norm in zip(self.partition.groups, self.norms, strict=True):
            clipped[group.index] = clip_to_norm(delta[None, group.index], float(norm))[0]
        return clipped

    def distances(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """(G,) Euclidean, group by group."""
        return self.partition.norms(first - second)


def checked_update(partition: Partition, delta: NDArray[Any]) -> tuple[FloatArray, float]:
    """The update as float64 and its Euclidean norm; nothing may be sent where this refuses.

    Raises:
        SfumatoError: if the shape is not (d,), or a value or the norm is not finite.
    """
    values = partition.check(delta)
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(values))
    if not math.isfinite(norm):
        raise SfumatoError(
            "the update is not finite, so nothing is sent; allowed are finite numbers of finite norm."
        )
    return values, norm
