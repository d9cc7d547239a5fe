"""Poisson batches whose rate and divisor are public numbers, never those of the realised data.

>>> from sfumato.rng import Streams
>>> sampler = PoissonSampler(n=1000, expected_batch_size=100)
>>> sampler.rate
0.1
>>> sampler.draw(Streams(0).stream("sampling", 0), available=1000).size
107
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream


@dataclass(frozen=True)
class PoissonSampler:
    """Each row joins each batch by its own coin, with probability ``expected_batch_size / n``.

    Guarantee: with the relation "add or remove one example", adding a row changes neither the rate, nor
    the divisor, nor the coins of the other rows, provided that ``n`` is a declared public size (say, the
    published size of the data set, rounded) and stays the same on both of two neighbouring data sets. This
    is the sampling that the Poisson-subsampled Gaussian events of the accounting assume.

    Attributes:
        n: the declared public size of the data set; at least 1.
        expected_batch_size: the expected size of a batch, which is also the divisor of a private mean;
            between 1 and ``n``.

    Raises:
        SfumatoError: if a number is outside of its range.
    """

    n: int
    expected_batch_size: int

    def __post_init__(self) -> None:
        """Refuse sizes outside of their ranges."""
        if not is_integer(self.n) or self.n < 1:
            raise SfumatoError(
                f"n is {self.n!r}; allowed is an integer of at least 1, the declared public size."
            )
        if not is_integer(self.expected_batch_size) or not 1 <= self.expected_batch_size <= self.n:
            raise SfumatoError(
                f"expected_batch_size is {self.expected_batch_size!r}; allowed is an integer between 1 and "
                f"the declared public size n={self.n}."
            )

    @property
    def rate(self) -> float:
        """The probability with which a row joins a batch: ``expected_batch_size / n``."""
        return self.expected_batch_size / self.n

    def draw(self, stream: RandomStream, available: int) -> NDArray[np.int64]:
        """One batch: the sorted rows whose coins fell; it may be empty, and an empty batch is a batch.

        Row i uses the i-th uniform number of the stream, so that with a seeded stream its coin is the same
        whether or not rows follow it.

        Args:
            stream: the stream of this step; used for nothing else.
            available: how many rows the realised data set has; at least 0. It enters only as the number
                of coins, never into the rate.

        Returns:
            Sorted int64 row numbers in 0..available-1.

        Raises:
            SfumatoError: if ``available`` is not an integer of at least 0.
        """
        if not is_integer(available) or available < 0:
            raise SfumatoError(f"available is {available!r}; allowed is an integer of at least 0.")
        return np.flatnonzero(stream.random(int(available)) < self.rate).astype(np.int64)
