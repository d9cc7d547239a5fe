"""Pseudo-clients for images whose writers are not known: each has a class mix of its own.

>>> from sfumato.rng import Streams
>>> labels = np.repeat(np.arange(10), 6)
>>> holders = dirichlet_clients(labels, 4, 0.5, Streams(1).stream("clients"))
>>> np.bincount(holders).tolist()
[15, 15, 15, 15]

The mixes are drawn from a Dirichlet distribution, as in the usual benchmark of federated learning with unlike clients
(T.-M. H. Hsu, H. Qi and M. Brown, 2019): a client draws its images class by class from its own mix, without
replacement, until it has as many as all others. A class that runs out is drawn no more, so that the last clients take
what is left. Only public labels and a public seed enter.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

SMALLEST_CONCENTRATION: Final = 0.1
"""Below it a quantile of the Gamma law at a uniform draw can underflow to a weight of 0."""


def dirichlet_rows(
    rows: int, columns: int, concentration: float, stream: RandomStream
) -> NDArray[np.float64]:
    """Independent draws from the symmetric Dirichlet distribution.

    Each is a vector of Gamma(concentration) quantiles at uniform draws, divided by its sum.

    Args:
        rows: how many draws.
        columns: of how many weights each.
        concentration: the parameter of every weight, at least 0.1.
        stream: where the draws come from.

    Returns:
        float64 of shape (rows, columns), positive, each row summing to 1.

    Raises:
        SfumatoError: if the concentration is no number of at least 0.1.
    """
    if not is_number(concentration) or not SMALLEST_CONCENTRATION <= concentration < np.inf:
        raise SfumatoError(
            f"concentration is {concentration!r}; allowed is a number of at least {SMALLEST_CONCENTRATION}."
        )
    # imported here, since every command imports this package and few draw
    from scipy.special import gammaincinv

    # the smallest uniform draw above 0, in place of the draw 0, keeps every weight positive
    uniform = np.maximum(stream.random((rows, columns)), 2.0**-54)
    weights = np.asarray(gammaincinv(concentration, uniform), np.float64)
    return weights / np.cumsum(weights, axis=1)[:, -1:]


def draw_categories(
    probabilities: NDArray[np.float64], count: int, stream: RandomStream
) -> NDArray[np.int64]:
    """Independent draws of a category by inversion of the distribution function.

    Args:
        probabilities: float64 of shape (cells,), at least 0 and not all 0; they are divided by their sum.
        count: how many draws.
        stream: where the draws come from.

    Returns:
        int64 of shape (count,) in 0..cells-1, never a cell of probability 0.
    """
    distribution = np.cumsum(probabilities)
    distribution /= distribution[-1]
    return np.searchsorted(distribution, stream.random(count), side="right").astype(np.int64)


def dirichlet_clients(
    labels: NDArray[Any], clients: int, concentration: float, stream: RandomStream
) -> NDArray[np.int32]:
    """Which pseudo-client holds each example.

    Args:
        labels: public classes of the examples, integers of shape (N,) from 0.
        clients: how many pseudo-clients, at most N; their numbers of examples differ by at most one.
        concentration: of the Dirichlet distribution of a client's class mix.
        stream: where the draws come from.

    Returns:
        int32 of shape (N,) in 0..clients-1.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """
    if not is_integer(clients) or not 1 <= clients <= len(labels):
        raise SfumatoError(f"clients is {clients!r}; allowed is an integer from 1 to {len(labels)}.")
    classes = int(labels.max()) + 1
    order = stream.permutation(len(labels))
    queues = [order[labels[order] == label] for label in range(classes)]
    left = np.array([len(queue) for queue in queues], np.int64)
    taken = np.zeros(classes, np.int64)
    holders = np.empty(len(labels), np.int32)
    mixes = dirichlet_rows(clients, classes, concentration, stream)
    for client, mix in enumerate(mixes):
        size = len(labels) // clients + (client < len(labels) % clients)
        counts = _class_counts(mix, size, left, stream)
        for label in np.flatnonzero(counts):
            holders[queues[label][taken[label] : taken[label] + counts[label]]] = client
        taken += counts
        left -= counts
    return holders


def _class_counts(
    mix: NDArray[np.float64], size: int, left: NDArray[np.int64], stream: RandomStream
) -> NDArray[np.int64]:
    """How many examples of each class a client of this mix draws, when so many of each are left."""
    counts = np.zeros_like(left)
    while (lacking := size - int(counts.sum())) > 0:
        drawn = draw_categories(np.where(counts < left, mix, 0.0), lacking, stream)
        counts = np.minimum(counts + np.bincount(drawn, minlength=len(left)), left)
    return counts
