"""Shamir's secret sharing (1979) over a prime field, for many secrets at once.

>>> import os
>>> shares = share(secret_words(bytes(range(32))), holders=5, threshold=3, entropy=os.urandom)
>>> points = np.array([[1, 4, 5]])
>>> words_secret(combine(points, shares[points - 1])[0]) == bytes(range(32))
True

The field is that of the largest prime below 2^16: a share's word takes two bytes, a secret of 32 bytes takes 18 words
of 15 bits, and a product of matrices of floating-point numbers is exact, as its sums stay below 2^53. The holder in
place j (counted from 0) gets the polynomial's value at j + 1; the secret is its value at 0.

Guarantee:
    Fewer than ``threshold`` shares of a secret are uniform and independent of it, whatever the holders can compute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError

Entropy = Callable[[int], bytes]
Words = NDArray[np.uint16]

PRIME: Final = 65_521
SECRET_BYTES: Final = 32
SECRET_WORDS: Final = 18
SHARE_BYTES: Final = 2 * SECRET_WORDS
_BITS: Final = 15
_PLACES: Final = (1 << np.arange(_BITS)).astype(np.int64)


def draw(entropy: Entropy, count: int) -> bytes:
    """Fresh bytes.

    Raises:
        SfumatoError: if the source gives another number of bytes.
    """
    drawn = entropy(count)
    if len(drawn) != count:
        raise SfumatoError(
            f"the source of entropy gave {len(drawn)} bytes; allowed are the {count} asked for."
        )
    return drawn


def secret_words(secret: bytes) -> Words:
    """(18,) words of 15 bits of a secret of 32 bytes, least significant first."""
    bits = np.zeros(SECRET_WORDS * _BITS, np.uint8)
    bits[: 8 * SECRET_BYTES] = np.unpackbits(np.frombuffer(secret, np.uint8), bitorder="little")
    return (bits.reshape(SECRET_WORDS, _BITS) @ _PLACES).astype(np.uint16)


def words_secret(words: NDArray[np.integer]) -> bytes | None:
    """The secret of (18,) words; None if no secret has these words, as false shares would give."""
    if np.any(words >> _BITS):
        return None
    bits = ((words[:, None] >> np.arange(_BITS)) & 1).astype(np.uint8).reshape(-1)
    if np.any(bits[8 * SECRET_BYTES :]):
        return None
    return np.packbits(bits[: 8 * SECRET_BYTES], bitorder="little").tobytes()


def share(words: NDArray[np.integer], holders: int, threshold: int, entropy: Entropy) -> Words:
    """(holders, w) shares of (w,) words below the prime, any ``threshold`` of which give them back.

    Args:
        words: what is shared, one polynomial per word.
        holders: at most 65520.
        threshold: at most the holders.
        entropy: where the other coefficients come from.
    """
    coefficients = np.empty((threshold, len(words)))
    coefficients[0] = words
    coefficients[1:] = _uniform((threshold - 1) * len(words), entropy).reshape(threshold - 1, len(words))
    return (_powers(holders, threshold) @ coefficients % PRIME).astype(np.uint16)


def combine(points: NDArray[np.integer], shares: NDArray[np.integer]) -> Words:
    """(owners, w) words from (owners, t, w) shares at (owners, t) distinct points above 0, t being the threshold."""
    weights = _weights(np.asarray(points, np.int64))
    total = np.zeros((len(shares), shares.shape[2]), np.int64)
    for place in range(shares.shape[1]):
        total += weights[:, place, None] * shares[:, place]
    return (total % PRIME).astype(np.uint16)


def _uniform(count: int, entropy: Entropy) -> NDArray[np.uint16]:
    """(count,) elements of the field, exactly uniform: the 15 numbers that are none are drawn again."""
    kept = np.zeros(0, np.uint16)
    while len(kept) < count:
        missing = count - len(kept)
        drawn = np.frombuffer(draw(entropy, 2 * missing), "<u2")
        kept = np.concatenate([kept, drawn[drawn < PRIME]])
    return kept


@lru_cache(maxsize=16)
def _powers(holders: int, threshold: int) -> NDArray[np.float64]:
    """(holders, threshold) powers 0, 1, ... of the points 1, 2, ..."""
    points = np.arange(1, holders + 1, dtype=np.int64)
    powers = np.ones((holders, threshold), np.int64)
    for place in range(1, threshold):
        powers[:, place] = powers[:, place - 1] * points % PRIME
    return powers.astype(np.float64)


def _weights(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """(owners, t) Lagrange coefficients at 0: the product over the others of x_m / (x_m - x_j)."""
    above, below = np.ones_like(points), np.ones_like(points)
    places: NDArray[np.int64] = np.arange(points.shape[1], dtype=np.int64)
    for other in range(points.shape[1]):
        itself: NDArray[np.bool_] = places == other
        value = points[:, other, None]
        above = above * np.where(itself, 1, value) % PRIME
        below = below * np.where(itself, 1, value - points) % PRIME
    return above * _inverse(below) % PRIME


def _inverse(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Inverses by Fermat's little theorem."""
    result, base, exponent = np.ones_like(values), values, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * base % PRIME
        base, exponent = base * base % PRIME, exponent >> 1
    return result
