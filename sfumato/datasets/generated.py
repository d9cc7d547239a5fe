"""Generated regression data: any number of clients, with coefficients and bounds that are known.

>>> from sfumato.rng import Streams
>>> samples = generate(1000, 3, Streams(0).stream("clients"))
>>> samples.x.shape, bool((np.linalg.norm(samples.x, axis=1) <= 1.0 + 1e-12).all())
((1000, 3), True)
>>> true_coefficients(2).round(3).tolist()
[0.1, 0.537, -0.268]

A client's features are uniform in the unit ball: n + 2 independent normals divided by their norm are uniform on the
sphere in n + 2 dimensions, and the first n coordinates of such a point are uniform in the n-dimensional ball
(Archimedes' theorem). So every entry lies in [-1, 1] without any clipping, and the second moment is
E[x x^T] = I / (n + 2).

The label is y = intercept + <x, beta> + noise. The noise is normal, clipped to three of its standard deviations, and
|intercept| + ||beta|| + 3 noise_std is at most 1, so y lies in [-1, 1] for every client and ``true_coefficients`` are
exactly the least-squares coefficients of the population.

Sums and divisions are taken coordinate by coordinate, so the bits of the data set do not depend on the CPU's vector
width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer, is_number
from sfumato.datasets.fetching import RawFile, Source
from sfumato.datasets.regression import RegressionData, Samples, split_samples
from sfumato.datasets.regression_specs import get_regression_spec
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream, Streams

INTERCEPT: Final = 0.1
COEFFICIENT_NORM: Final = 0.6
NOISE_STD: Final = 0.1
NOISE_CLIP: Final = 3.0
"""The noise is clipped to this many of its standard deviations."""
PUBLIC_SEED: Final = 1
"""Of the data set ``generated``; it is public data, so its seed is public too."""
Precision = Literal["float32", "float64"]

BLOCK: Final = 65_536
"""Clients per block; a block is a stream of its own, so the generated clients depend on this number."""


def files(_options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """No raw file is needed."""
    return ()


def sources(_options: Mapping[str, str]) -> tuple[Source, ...]:
    """No source is needed."""
    return ()


def prepare(_raw_dir: Path, _options: Mapping[str, str]) -> RegressionData:
    """The data set ``generated``, the same for everyone: 65,000 clients with 8 features."""
    spec = get_regression_spec("generated")
    clients, features = sum(spec.sizes().values()), len(spec.features)
    return split_samples("generated", generate(clients, features, Streams(PUBLIC_SEED).stream("generated")))


def true_coefficients(features: int) -> NDArray[np.float64]:
    """The population's coefficients, the intercept first: public constants for every number of features.

    Args:
        features: n.

    Returns:
        float64 of shape (n + 1,): `INTERCEPT`, then beta_j proportional to 1, -1/2, 1/3, -1/4... with norm
        `COEFFICIENT_NORM`.

    Raises:
        SfumatoError: if ``features`` is no integer of at least 1.
    """
    _require_count("features", features)
    places = np.arange(1, features + 1, dtype=np.float64)
    shape = np.where(places % 2 == 1, 1.0, -1.0) / places
    return np.concatenate([[INTERCEPT], shape * (COEFFICIENT_NORM / math.sqrt(math.fsum(shape**2)))])


def generate(clients: int, features: int, stream: RandomStream, noise_std: float = NOISE_STD) -> Samples:
    """Independent clients of the linear population.

    Args:
        clients: how many.
        features: n.
        stream: where the draws come from.
        noise_std: standard deviation of the label's noise before it is clipped, from 0 to 0.1.

    Returns:
        features of shape (clients, n) in the unit ball and labels of shape (clients,) in [-1, 1], float64.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """
    _check(clients, features, noise_std)
    x = np.empty((clients, features), np.float64)
    y = np.empty(clients, np.float64)
    _fill(x, y, stream, noise_std)
    return Samples(x, y)


def generate_blocks(
    clients: int, features: int, streams: Streams, noise_std: float = NOISE_STD, dtype: Precision = "float32"
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The clients of the linear population in blocks, so that memory does not grow with their number.

    Args:
        clients: how many in all.
        features: n.
        streams: each block draws from a stream of its own.
        noise_std: as in ``generate``.
        dtype: float32 or float64.

    Returns:
        an iterator over features of shape (b, n) and labels of shape (b,) of at most `BLOCK` clients; the arrays are
        new ones each time.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """
    _check(clients, features, noise_std, dtype)
    return _blocks(clients, features, streams, noise_std, dtype)


def _blocks(
    clients: int, features: int, streams: Streams, noise_std: float, dtype: Precision
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    for number, start in enumerate(range(0, clients, BLOCK)):
        count = min(BLOCK, clients - start)
        x, y = np.empty((count, features), dtype), np.empty(count, dtype)
        _fill(x, y, streams.bulk("generated", number), noise_std)
        yield x, y


def generate_arrays(
    clients: int, features: int, streams: Streams, noise_std: float = NOISE_STD, dtype: Precision = "float32"
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The clients of ``generate_blocks`` in one array: features (clients, n) and labels (clients,).

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """
    _check(clients, features, noise_std, dtype)
    x, y = np.empty((clients, features), dtype), np.empty(clients, dtype)
    for number, start in enumerate(range(0, clients, BLOCK)):
        rows = slice(start, start + BLOCK)
        _fill(x[rows], y[rows], streams.bulk("generated", number), noise_std)
    return x, y


def _fill(x: NDArray[Any], y: NDArray[Any], stream: RandomStream, noise_std: float) -> None:
    """Overwrite features and labels of one block; the work is done on rows of one coordinate each."""
    clients, features = x.shape
    draws = np.empty((features + 3, clients), x.dtype)
    stream.fill_normal(draws)
    sphere, labels = draws[:-1], draws[-1]
    norms = np.zeros(clients, x.dtype)
    for coordinate in sphere:
        norms += coordinate * coordinate
    np.sqrt(norms, out=norms)
    np.clip(labels, -NOISE_CLIP, NOISE_CLIP, out=labels)
    labels *= x.dtype.type(noise_std)
    coefficients = true_coefficients(features).astype(x.dtype)
    labels += coefficients[0]
    for place in range(features):
        coordinate = sphere[place]
        coordinate /= norms
        # a quotient can be one rounding step above 1 where the other coordinates are tiny
        np.clip(coordinate, -1.0, 1.0, out=coordinate)
        x[:, place] = coordinate
        coordinate *= coefficients[place + 1]
        labels += coordinate
    np.clip(labels, -1.0, 1.0, out=y)


def _check(clients: int, features: int, noise_std: float, dtype: Precision = "float64") -> None:
    _require_count("clients", clients)
    _require_count("features", features)
    largest = (1.0 - INTERCEPT - COEFFICIENT_NORM) / NOISE_CLIP
    if not is_number(noise_std) or not 0.0 <= noise_std <= largest + 1e-12:
        raise SfumatoError(
            f"noise_std is {noise_std!r}; allowed is a number from 0 to {largest:.3g}, so that no label has to be "
            "clipped."
        )
    if dtype not in get_args(Precision):
        raise SfumatoError(f"dtype is {dtype!r}; allowed are {', '.join(get_args(Precision))}.")


def _require_count(name: str, value: int) -> None:
    if not is_integer(value) or value < 1:
        raise SfumatoError(f"{name} is {value!r}; allowed is an integer of at least 1.")
