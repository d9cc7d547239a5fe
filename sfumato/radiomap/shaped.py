"""Beyond the paper: noise shaped by the principal components of public shadow uploads, and certified.

>>> import numpy as np
>>> from sfumato.radiomap.partition import partition_of
>>> from sfumato.rng import Streams
>>> random = np.random.default_rng(0)
>>> shadows = random.normal(size=(50, 6)) * np.array([5.0, 1.0, 0.1, 0.1, 0.1, 0.1])
>>> shape = principal_shape(shadows, components=2, floor=0.5)
>>> shape.diagonal().round(1).tolist()
[3.4, 0.6, 0.5, 0.5, 0.5, 0.5]
>>> bool(np.isclose(shape.diagonal().sum(), 6))
True
>>> defence = ShapedDefence(partition_of(6, {}), nu=2.0, clip_norm=5.0, shape=shape, mahalanobis_clip=2.5)
>>> round(defence.energy, 9), round(defence.promise.mu, 3)
(100.0, 1.225)

Uploads differ along few directions, and those tell the position. With S = f I + d (1 - f) U diag(w) U^T, where U has
orthonormal columns, sum w = 1 and tr S = d, a client sends S^(1/2) (clip(S^(-1/2) delta) + sigma z): a Gaussian
mechanism in the coordinates S^(-1/2) delta, with clipping of the Mahalanobis norm |S^(-1/2) delta| to a public bound.
Nothing of size d x d is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer, is_number
from sfumato.clipping import checked_clip_norm, clip_to_norm
from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import FloatArray, check_floor, energy_budget
from sfumato.radiomap.clips import checked_update
from sfumato.radiomap.defences import Promise, Protected
from sfumato.radiomap.partition import Partition
from sfumato.rng import RandomStream

_ORTHONORMAL: Final = 1e-8


@dataclass(frozen=True, eq=False)
class Shape:
    """A covariance of trace d: an even floor and a few directions that get more.

    Attributes:
        directions: (d, k) float64, orthonormal columns.
        shares: (k,) of the energy above the floor, of sum 1, at least 0.
        floor: share of the energy that is spread evenly over all coordinates, in (0, 1].

    Raises:
        SfumatoError: if a field is not like that.
    """

    directions: FloatArray
    shares: FloatArray
    floor: float

    def __post_init__(self) -> None:
        """Check the fields."""
        check_floor(self.floor)
        directions, count = self.directions, len(self.shares)
        if directions.ndim != 2 or directions.shape[1] != count or not 1 <= count <= len(directions):
            raise SfumatoError(
                f"directions and shares have shapes {directions.shape} and {self.shares.shape}; allowed are (d, k) and "
                "(k,) with k from 1 to d."
            )
        if not float(np.abs(directions.T @ directions - np.eye(count)).max()) <= _ORTHONORMAL:
            raise SfumatoError(
                "the directions are not orthonormal; allowed are columns of length 1, at right angles."
            )
        if not bool(np.all(self.shares >= 0.0)) or not abs(float(self.shares.sum()) - 1.0) <= 1e-9:
            raise SfumatoError(
                f"shares are {self.shares.tolist()}; allowed are numbers of at least 0 with sum 1."
            )

    @property
    def dimension(self) -> int:
        """The number of coordinates d."""
        return len(self.directions)

    @cached_property
    def eigenvalues(self) -> FloatArray:
        """(k,) of S along the directions; the floor everywhere else."""
        return self.floor + self.dimension * (1.0 - self.floor) * self.shares

    def power(self, vector: FloatArray, exponent: float) -> FloatArray:
        """S^exponent times a vector (d,), in O(d k)."""
        along = self.directions.T @ vector
        rest = self.floor**exponent
        return rest * vector + self.directions @ ((self.eigenvalues**exponent - rest) * along)

    def norm(self, vector: FloatArray) -> float:
        """The Mahalanobis norm |S^(-1/2) v| of a vector (d,)."""
        return float(np.linalg.norm(self.power(vector, -0.5)))

    def diagonal(self) -> FloatArray:
        """(d,) variances of noise of covariance S; their sum is d."""
        return self.floor + np.square(self.directions) @ (self.eigenvalues - self.floor)


def principal_shape(
    shadows: NDArray[Any], components: int, floor: float, exponent: float = 1.0, centered: bool = True
) -> Shape:
    """The shape along the principal components of public shadow uploads.

    Args:
        shadows: (n, d) clipped shadow uploads of public maps, n >= 2.
        components: k, how many directions; fewer where the uploads span fewer.
        floor: share of the energy that is spread evenly, in (0, 1].
        exponent: shares are proportional to a component's variance to this power: 1 follows the uploads, 1/2 is the
            optimum of Section 3.5 of docs/papers.md for a clip along each axis, 0 treats all directions alike.
        centered: whether the uploads' mean is subtracted first. The mean tells no position; around 0 it is the
            direction that clipping is most aware of.

    Raises:
        SfumatoError: if a number is out of its range, or the uploads are not finite or do not differ.
    """
    values = np.asarray(shadows, np.float64)
    if values.ndim != 2 or len(values) < 2:
        raise SfumatoError(
            f"the shadow uploads have shape {values.shape}; allowed is (n, d) with n of at least 2."
        )
    if not is_integer(components) or not 1 <= components <= values.shape[1]:
        raise SfumatoError(
            f"components is {components!r}; allowed is an integer from 1 to {values.shape[1]}."
        )
    if not is_number(exponent) or not 0.0 <= exponent < math.inf:
        raise SfumatoError(f"exponent is {exponent!r}; allowed is a finite number of at least 0.")
    values = values - values.mean(axis=0) if centered else values
    if not bool(np.isfinite(values).all()):
        raise SfumatoError("a shadow upload is not finite; allowed are finite numbers.")
    variances, components_first = _principal(values)
    kept = components_first[:, :components][:, variances[:components] > 1e-10 * max(float(variances[0]), 0.0)]
    if not kept.shape[1]:
        raise SfumatoError("the shadow uploads do not differ; allowed are ones that vary.")
    directions, _triangle = np.linalg.qr(kept)
    weights = variances[: kept.shape[1]] ** exponent
    return Shape(directions, weights / weights.sum(), floor)


def _principal(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Squared singular values (m,), largest first, and m right singular vectors (d, m), m the smaller of n and d.

    By the smaller of the two Gram matrices: uploads are hundreds where weights are up to millions.
    """
    count, dimension = values.shape
    few_uploads = count <= dimension
    squares, vectors = np.linalg.eigh(values @ values.T if few_uploads else values.T @ values)
    squares, vectors = squares[::-1], vectors[:, ::-1]
    return squares, values.T @ vectors if few_uploads else vectors


@dataclass(frozen=True, eq=False)
class ShapedDefence:
    """Clips the Mahalanobis norm and adds noise of covariance (nu C)^2 S / d.

    Guarantee: mu = 2 C_M sqrt(d) / (nu C) per upload, for replacing it, with C_M the Mahalanobis clip, if shape and
    clips come from public data alone: two clipped updates are at most 2 C_M apart in the norm |S^(-1/2) v|, in which
    the noise is N(0, sigma^2 I), sigma = nu C / sqrt(d).

    Attributes:
        partition: the groups; only for what is reported of each.
        nu: the noise multiplier, above 0.
        clip_norm: C of the budget (nu C)^2, public; nothing is clipped to it.
        shape: of the noise, from public data.
        mahalanobis_clip: C_M, public, such as the median of ``shape.norm`` over the shadow uploads.

    Raises:
        SfumatoError: if a number is outside of what is allowed or the dimensions differ.
    """

    partition: Partition
    nu: float
    clip_norm: float
    shape: Shape
    mahalanobis_clip: float

    def __post_init__(self) -> None:
        """Check the fields."""
        if not energy_budget(self.nu, self.clip_norm) > 0.0:
            raise SfumatoError(
                f"nu is {self.nu!r}; allowed is a number above 0, since without noise nothing is certified."
            )
        checked_clip_norm(self.mahalanobis_clip)
        if self.shape.dimension != self.partition.dimension:
            raise SfumatoError(
                f"the shape has {self.shape.dimension} coordinates; allowed are the partition's {self.partition.dimension}."
            )

    @property
    def name(self) -> str:
        """``shaped``."""
        return "shaped"

    @property
    def energy(self) -> float:
        """Expected squared norm of the noise."""
        return energy_budget(self.nu, self.clip_norm)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in the coordinates S^(-1/2) v."""
        return math.sqrt(self.energy / self.partition.dimension)

    @cached_property
    def sigmas(self) -> FloatArray:
        """(G,) root mean square of the standard deviations within each group."""
        variances = self.sigma**2 * self.shape.diagonal()
        return np.sqrt(self.partition.norms(np.sqrt(variances)) ** 2 / self.partition.sizes)

    @property
    def promise(self) -> Promise:
        """The bound of one upload."""
        return Promise("mahalanobis", (2.0 * self.mahalanobis_clip,), (self.sigma,))

    def clipped(self, delta: FloatArray) -> FloatArray:
        """S^(-1/2) delta, scaled down to a norm of at most C_M: (d,)."""
        return clip_to_norm(self.shape.power(delta, -0.5)[None, :], self.mahalanobis_clip)[0]

    def distances(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """(1,) Mahalanobis distance of two vectors (d,)."""
        return np.array([self.shape.norm(first - second)])

    def protect(self, delta: FloatArray, round: int, stream: RandomStream) -> Protected:
        """Clip in the Mahalanobis norm, then noise.

        Args:
            delta: (d,) the client's update.
            round: not used, the levels are the same in all rounds.
            stream: serves this upload alone.

        Raises:
            SfumatoError: if the update has another shape or is not finite.
        """
        values, norm = checked_update(self.partition, delta)
        noise = self.sigma * stream.standard_normal(self.partition.dimension)
        upload = self.shape.power(self.clipped(values) + noise, 0.5)
        return Protected(upload, self.sigmas, self.shape.norm(values) > self.mahalanobis_clip, norm)

    def observe(self, released: Sequence[NDArray[Any]]) -> ShapedDefence:
        """Itself: it learns nothing."""
        return self

    def farthest(self) -> FloatArray:
        """(d,) x with x and -x both kept by clipping and mu apart in units of the noise."""
        first = np.zeros(self.partition.dimension)
        first[0] = 1.0
        return first * (self.mahalanobis_clip / self.shape.norm(first))

    def precise(self, vector: FloatArray) -> FloatArray:
        """(d,) the inverse of the noise's covariance times the vector."""
        return self.shape.power(vector, -1.0) / self.sigma**2
