"""What an allocator sees of uploads: a few statistics per group, from one clean upload or from many noisy ones.

>>> import numpy as np
>>> from sfumato.radiomap.partition import partition_of
>>> partition = partition_of(6, {"first": np.array([0, 1])})
>>> seen = moments(partition, np.array([[3.0, 4.0, 0.0, 0.0, 0.0, 0.0]]))
>>> seen.round(2).tolist()
[[12.5, 0.0], [12.25, 0.0], [0.25, 0.0]]
>>> describe(seen, partition, clip_norm=5.0, progress=0.0).shape
(10,)

The statistics are those of Section 3.1 of docs/papers.md: masked L2 norms, mean magnitudes, standard deviations,
group-size ratios, round index and phase. The paper leaves the phase open; here it is 0 in the first half of the
rounds and 1 in the second.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.clipping import checked_clip_norm
from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import FloatArray, size_shares
from sfumato.radiomap.partition import Partition

_SMALLEST: Final = 1e-4
# What noise N(0, sigma^2) adds to each moment of a Gaussian signal, in sigma^2.
_OF_NOISE: Final = np.array([[1.0], [2.0 / math.pi], [1.0]])


def moments(partition: Partition, uploads: NDArray[Any]) -> FloatArray:
    """Mean over uploads of (mean square, squared mean magnitude, variance) of every group.

    Args:
        partition: the groups.
        uploads: (b, d), b >= 1.

    Returns:
        (3, G) float64, in squared units of the upload.

    Raises:
        SfumatoError: if the shape is not (b, d) with b >= 1, or a number is not finite.
    """
    if uploads.ndim != 2 or uploads.shape[1] != partition.dimension or not len(uploads):
        raise SfumatoError(
            f"the uploads have shape {uploads.shape}; allowed is (b, {partition.dimension}) with b of at least 1."
        )
    found = np.empty((3, partition.count))
    for number, group in enumerate(partition.groups):
        values = uploads[:, group.index].astype(np.float64)
        found[0, number] = np.mean(np.square(values))
        found[1, number] = np.mean(np.square(np.mean(np.abs(values), axis=1)))
        found[2, number] = np.mean(np.var(values, axis=1))
    if not bool(np.isfinite(found).all()):
        raise SfumatoError(
            "an upload holds a number that is not finite or too large to square; allowed are finite ones."
        )
    return found


def without_noise(noisy: FloatArray, sigmas: FloatArray) -> FloatArray:
    """The moments less what noise of these public levels adds to them, at least 0.

    Unbiased before the cut at 0 for mean square and variance; for the squared mean magnitude where the signal is
    itself Gaussian around 0.

    Args:
        noisy: (3, G), from `moments`.
        sigmas: (G,) standard deviation of the noise per coordinate.

    Returns:
        (3, G) float64.
    """
    return np.maximum(noisy - _OF_NOISE * np.square(sigmas), 0.0)


def describe(seen: FloatArray, partition: Partition, clip_norm: float, progress: float) -> FloatArray:
    """The allocator's input.

    Args:
        seen: (3, G) moments.
        partition: the groups.
        clip_norm: C, the unit of norms.
        progress: round over the number of rounds, in [0, 1].

    Returns:
        (4G + 2,) float64: per group the logarithms of norm, of mean magnitude and of standard deviation, each times
        the root of the number of coordinates it is to be compared with, over C and at least 1e-4; then the size
        ratios, the progress and the phase.

    Raises:
        SfumatoError: if a number is out of its range.
    """
    if not is_number(progress) or not 0.0 <= progress <= 1.0:
        raise SfumatoError(f"progress is {progress!r}; allowed is a number from 0 to 1.")
    scaled = np.sqrt(seen * partition.sizes) / checked_clip_norm(clip_norm)
    phase = 1.0 if progress >= 0.5 else 0.0
    logs = np.log(np.maximum(scaled, _SMALLEST)).reshape(-1)
    return np.concatenate([logs, size_shares(partition.sizes), [float(progress), phase]])


def describe_each(
    partition: Partition, uploads: NDArray[Any], clip_norm: float, progress: NDArray[Any]
) -> FloatArray:
    """(n, 4G + 2) inputs of n clean uploads (n, d), each for itself, at their progress (n,)."""
    return np.stack(
        [
            describe(moments(partition, upload[None, :]), partition, clip_norm, float(at))
            for upload, at in zip(uploads, progress, strict=True)
        ]
    )
