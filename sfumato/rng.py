"""Named random streams: seeded in simulation, the operating system's entropy in release.

A stream is a pure function of (seed, name, keys), so adding a consumer shifts no other one and a
resumed run needs no generator state.

>>> Streams(7).stream("noise", 3).random(2) == Streams(7).stream("noise", 3).random(2)
array([ True,  True])
>>> bool((Streams(7).stream("noise", 4).random(2) == Streams(7).stream("noise", 3).random(2)).any())
False
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError

Mode = Literal["simulation", "release"]
Size = int | tuple[int, ...]


class RandomStream(Protocol):
    """What a consumer of randomness may ask for."""

    def standard_normal(self, size: Size) -> NDArray[np.float64]:
        """Independent N(0, 1) draws of the given shape."""
        ...

    def random(self, size: Size) -> NDArray[np.float64]:
        """Independent uniform draws on [0, 1) of the given shape."""
        ...

    def permutation(self, n: int) -> NDArray[np.int64]:
        """A uniform permutation of 0..n-1."""
        ...

    def integers(self, low: int, high: int, size: Size) -> NDArray[np.int64]:
        """Independent uniform integers in [low, high) of the given shape."""
        ...


class SeededStream:
    """A reproducible stream: counter-based Philox, keyed by the hash of seed, name and keys."""

    def __init__(self, key: bytes) -> None:
        """Start the stream of a 32-byte key."""
        self._generator = np.random.Generator(np.random.Philox(key=np.frombuffer(key[:16], np.uint64)))

    def standard_normal(self, size: Size) -> NDArray[np.float64]:
        """Independent N(0, 1) draws of the given shape."""
        return self._generator.standard_normal(size)

    def random(self, size: Size) -> NDArray[np.float64]:
        """Independent uniform draws on [0, 1) of the given shape."""
        return self._generator.random(size)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """A uniform permutation of 0..n-1."""
        return self._generator.permutation(n).astype(np.int64)

    def integers(self, low: int, high: int, size: Size) -> NDArray[np.int64]:
        """Independent uniform integers in [low, high) of the given shape."""
        return self._generator.integers(low, high, size, dtype=np.int64)


class SystemStream:
    """Draws from the operating system's entropy; nothing about it can be replayed.

    A normal draw is the sum of four independent Box-Muller normals divided by two, which hides the
    low-order bits that a single floating-point normal would reveal (Holohan and Braghin 2021). It is
    still a continuous mechanism on floating-point numbers, and statements say so.
    """

    def _uniform(self, count: int) -> NDArray[np.float64]:
        words = np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(11)
        return words.astype(np.float64) * 2.0**-53

    def random(self, size: Size) -> NDArray[np.float64]:
        """Independent uniform draws on [0, 1) of the given shape."""
        return self._uniform(int(np.prod(size))).reshape(size)

    def standard_normal(self, size: Size) -> NDArray[np.float64]:
        """Independent N(0, 1) draws of the given shape."""
        count = int(np.prod(size))
        radius = np.sqrt(-2.0 * np.log1p(-self._uniform(4 * count)))
        angle = 2.0 * np.pi * self._uniform(4 * count)
        return (radius * np.cos(angle)).reshape(4, count).sum(axis=0).reshape(size) / 2.0

    def permutation(self, n: int) -> NDArray[np.int64]:
        """A uniform permutation of 0..n-1."""
        return np.argsort(np.frombuffer(os.urandom(8 * n), np.uint64), kind="stable").astype(np.int64)

    def integers(self, low: int, high: int, size: Size) -> NDArray[np.int64]:
        """Independent uniform integers in [low, high) of the given shape (bias below 2**-40 for spans < 2**13)."""
        return (low + np.floor(self.random(size) * (high - low))).astype(np.int64)


@dataclass(frozen=True)
class Streams:
    """The random streams of one run.

    Attributes:
        seed: the run's seed; required in simulation mode, refused in release mode.
        mode: ``simulation`` (seeded) or ``release`` (the operating system's entropy).

    Raises:
        SfumatoError: if a seed is missing in simulation mode or given in release mode.
    """

    seed: int | None
    mode: Mode = "simulation"

    def __post_init__(self) -> None:
        """Refuse a seed in release mode and its absence in simulation mode."""
        if self.mode not in ("simulation", "release"):
            raise SfumatoError(f"mode is {self.mode!r}; allowed are 'simulation' and 'release'.")
        if self.mode == "release" and self.seed is not None:
            raise SfumatoError(
                f"seed is {self.seed} in release mode; leave it out, since a known noise seed voids the guarantee."
            )
        if self.mode == "simulation" and (not is_integer(self.seed) or self.seed is None or self.seed < 0):
            raise SfumatoError(
                f"seed is {self.seed!r} in simulation mode; allowed is an integer of at least 0."
            )

    def stream(self, name: str, *keys: int | str) -> RandomStream:
        """The stream of that name and keys, from its beginning.

        Args:
            name: what it is for: ``init``, ``sampling``, ``noise``, ``attack``, ``client/<id>``...
            keys: further integers or strings, such as the step.
        """
        if self.mode == "release":
            return SystemStream()
        text = "\x1f".join([repr(self.seed), name, *(f"{type(key).__name__}:{key}" for key in keys)])
        return SeededStream(hashlib.sha256(text.encode()).digest())
