"""Counts of the population at the public points, and its whole distribution for the references without privacy.

>>> from sfumato.divergence.reference import Reference, all_points
>>> reference = Reference.from_probabilities([0.5, 0.3, 0.2])
>>> count_points(np.array([0, 1, 1, 2, 0, 0]), reference, all_points(reference)).tolist()
[3, 2, 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.divergence.plan import Vector, array_of, require_count
from sfumato.divergence.reference import MAX_DOMAIN, PublicPoints, Reference
from sfumato.errors import SfumatoError

Counts = NDArray[np.int64]

_CHUNK = (
    1 << 18
)  # the cast to 64 bits of one chunk stays in the cache, which halves the time of ten million codes


def code_counts(codes: NDArray[Any], domain: int) -> Counts:
    """How often each code occurs.

    Args:
        codes: (n,) integers of any width, from 0 to below ``domain``; uint16 is read fastest.
        domain: number of codes, from 1 to 2^24.

    Returns:
        (domain,) int64.

    Raises:
        SfumatoError: if the domain is none, there is no sample, or one is not an integer of the domain; the sentence
            names no sample.
    """
    require_count("domain", domain, 1, MAX_DOMAIN)
    own = array_of("samples", codes)
    if own.ndim != 1 or own.dtype.kind not in "iu":
        raise SfumatoError(
            f"samples are {own.dtype} of {own.ndim} dimensions; allowed is a vector of integer codes."
        )
    if not own.size:
        raise SfumatoError("samples are none; allowed is at least one.")
    fits = own.dtype.kind == "u" and np.iinfo(own.dtype).max < domain
    if not fits and not (int(own.min()) >= 0 and int(own.max()) < domain):
        raise SfumatoError(
            f"a sample lies outside of the public domain; allowed are the codes from 0 to {domain - 1}."
        )
    total = np.zeros(domain, np.int64)
    for start in range(0, len(own), _CHUNK):
        total += np.bincount(own[start : start + _CHUNK].astype(np.int64), minlength=domain)
    return total


def cell_counts(codes: NDArray[Any], reference: Reference) -> Counts:
    """How often each cell of the reference occurs, (cells,) int64.

    Args:
        codes: as for ``code_counts``.
        reference: whose cells.

    Raises:
        SfumatoError: as ``code_counts``.
    """
    shown = code_counts(codes, reference.domain)
    # Below 2^52 examples the float64 sums of bincount's weights are exact.
    return np.bincount(reference.cell_of, weights=shown, minlength=reference.cells).astype(np.int64)


def count_points(codes: NDArray[Any], reference: Reference, points: PublicPoints) -> Counts:
    """How often the population shows each public point: what the clients' counts sum to (Algorithm 2).

    Args:
        codes: as for ``code_counts``, of one client or of all.
        reference: Pi.
        points: where to count.

    Returns:
        (k,) int64, in the order of ``points.cells``.

    Raises:
        SfumatoError: as ``code_counts``, or if a point is no cell of the reference.
    """
    points.check_within(reference)
    return cell_counts(codes, reference)[points.cells]


def population_probabilities(codes: NDArray[Any], reference: Reference) -> Vector:
    """P over the cells, (cells,) float64 with sum 1, without privacy.

    Args:
        codes: as for ``code_counts``.
        reference: whose cells.

    Raises:
        SfumatoError: as ``code_counts``.
    """
    counts = cell_counts(codes, reference)
    return counts / counts.sum()
