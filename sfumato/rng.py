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
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

Mode = Literal["simulation", "release"]
Size = int | tuple[int, ...]

_CHUNK: Final = 65_536
_CIPHER_BLOCK: Final = 16
_ZEROS: Final = memoryview(bytes(4 * _CHUNK))


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

    def fill_normal(self, out: NDArray[Any], deviation: float = 1.0) -> None:
        """Overwrite a C-contiguous float32 or float64 array with independent N(0, deviation^2) draws."""
        ...


def check_fillable(out: NDArray[Any]) -> None:
    """Refuse an array that noise could not be written into as it is.

    Raises:
        SfumatoError: unless it is C-contiguous, writeable, and of float32 or float64.
    """
    if str(out.dtype) not in ("float32", "float64") or not out.flags.c_contiguous or not out.flags.writeable:
        raise SfumatoError(
            f"the array to fill has dtype {out.dtype} and strides {out.strides}; allowed is a writeable, C-contiguous one "
            "of float32 or float64."
        )


class SeededStream:
    """A reproducible stream: counter-based Philox, keyed by the hash of seed, name and keys."""

    def __init__(self, key: bytes) -> None:
        """Start the stream of a 32-byte key."""
        self._generator = np.random.Generator(self._bits(key))

    @staticmethod
    def _bits(key: bytes) -> np.random.BitGenerator:
        return np.random.Philox(key=np.frombuffer(key[:16], np.uint64))

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

    def fill_normal(self, out: NDArray[Any], deviation: float = 1.0) -> None:
        """Overwrite a C-contiguous float32 or float64 array with independent N(0, deviation^2) draws."""
        check_fillable(out)
        self._generator.standard_normal(out=out, dtype=out.dtype.type)
        out *= deviation


def _key_stream(key: bytes) -> CipherContext:
    """AES-128 in counter mode from zero, which encrypts zeros to uniform bits."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key[16:32]), modes.CTR(bytes(_CIPHER_BLOCK))).encryptor()


class BulkStream(SeededStream):
    """A reproducible stream for millions of draws.

    Its float32 normals come from Box and Muller's transform on whole arrays, which numpy's vectorised logarithm
    and cosine make several times faster than the ziggurat (`benchmarks/modulated.py`). Their bits are AES-128 in
    counter mode, which processors have instructions for, keyed by the stream's key. A uniform of 32 bits is behind
    each radius, so the draws end at 6.66 standard deviations; the law beyond has mass 3e-11. All other draws come
    from SFC64, the fastest of numpy's generators.
    """

    def __init__(self, key: bytes) -> None:
        """Start the stream of a 32-byte key."""
        super().__init__(key)
        self._cipher = _key_stream(key)
        self._bytes = bytearray(4 * _CHUNK + _CIPHER_BLOCK)

    @staticmethod
    def _bits(key: bytes) -> np.random.BitGenerator:
        return np.random.SFC64(np.random.SeedSequence(int.from_bytes(key, "little")))

    def fill_normal(self, out: NDArray[Any], deviation: float = 1.0) -> None:
        """Overwrite a C-contiguous float32 or float64 array with independent N(0, deviation^2) draws."""
        check_fillable(out)
        if out.dtype != np.float32:
            super().fill_normal(out, deviation)
            return
        flat = out.reshape(-1)
        for start in range(0, len(flat), _CHUNK):
            self._box_muller(flat[start : start + _CHUNK], deviation)

    def _box_muller(self, out: NDArray[np.float32], deviation: float) -> None:
        half = (len(out) + 1) // 2
        words = self._words(2 * half)
        radius, angle = words[:half].astype(np.float32), words[half:].astype(np.float32)
        radius += np.float32(1.0)  # 2^-32 at least, and exactly 1 after rounding at most
        radius *= np.float32(2.0**-32)
        np.log(radius, out=radius)
        radius *= np.float32(-2.0 * deviation * deviation)
        np.sqrt(radius, out=radius)
        angle *= np.float32(2.0 * np.pi * 2.0**-32)
        np.cos(angle, out=out[:half])
        out[:half] *= radius
        rest = len(out) - half
        np.sin(angle[:rest], out=out[half:])
        out[half:] *= radius[:rest]

    def _words(self, count: int) -> NDArray[np.uint32]:
        """(count,) 32-bit words, at most ``_CHUNK``; overwritten by the next call."""
        self._cipher.update_into(_ZEROS[: 4 * count], self._bytes)
        return np.frombuffer(self._bytes, "<u4", count)


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

    def fill_normal(self, out: NDArray[Any], deviation: float = 1.0) -> None:
        """Overwrite a C-contiguous float32 or float64 array with independent N(0, deviation^2) draws, made as float64."""
        check_fillable(out)
        out[...] = self.standard_normal(out.shape) * deviation


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
        return SystemStream() if self.mode == "release" else SeededStream(self._key(name, keys))

    def bulk(self, name: str, *keys: int | str) -> RandomStream:
        """As ``stream``, by a faster generator whose start costs more; for many draws.

        Args:
            name: what it is for; the draws differ from those of ``stream`` of the same name.
            keys: further integers or strings.
        """
        return SystemStream() if self.mode == "release" else BulkStream(self._key(name, keys))

    def _key(self, name: str, keys: tuple[int | str, ...]) -> bytes:
        # An integer of numpy names the same stream as the equal one of Python.
        seed = None if self.seed is None else int(self.seed)
        named = [f"int:{int(key)}" if is_integer(key) else f"{type(key).__name__}:{key}" for key in keys]
        text = "\x1f".join([repr(seed), name, *named])
        return hashlib.sha256(text.encode()).digest()
