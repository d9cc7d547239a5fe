"""Noise mechanisms as frozen values: what they add, to what sensitivity, and the event they cost.

>>> Gaussian(sensitivity=2.0, noise_multiplier=1.5).sigma
3.0
>>> subsampled_gaussian(0.01, 1.0, 1000).count
1000
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from dp_accounting import dp_event
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.errors import AccountingError, SfumatoError

NeighboringRelation = Literal["add_or_remove_one", "replace_one"]
NEIGHBORING_RELATIONS: tuple[NeighboringRelation, ...] = ("add_or_remove_one", "replace_one")

_TINY = 1e-150
_HUGE = 1e150


def _require(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SfumatoError(f"{name} is {value!r}; allowed is a number from {low:g} to {high:g}.")
    if not low <= float(value) <= high:
        raise SfumatoError(f"{name} is {value!r}; allowed is a number from {low:g} to {high:g}.")


def require_relation(relation: str) -> NeighboringRelation:
    """The relation itself.

    Raises:
        SfumatoError: if it is not one of ``NEIGHBORING_RELATIONS``.
    """
    if relation not in NEIGHBORING_RELATIONS:
        raise SfumatoError(
            f"neighboring_relation is {relation!r}; allowed are 'add_or_remove_one' and 'replace_one'."
        )
    return relation


@dataclass(frozen=True)
class Gaussian:
    """Adds N(0, sigma^2) to every coordinate of a vector.

    Guarantee: for one release of a vector whose L2 distance between any two neighbours *under the given
    relation* is at most ``sensitivity``, exactly mu-Gaussian differentially private with
    mu = 1 / noise_multiplier, when the noise is a real-valued normal independent of everything else.
    Floating-point normals only approximate it.

    Attributes:
        sensitivity: largest L2 distance between the vectors of two neighbours, in the vector's units.
        noise_multiplier: sigma / sensitivity; 0 adds nothing and protects nothing.
        neighboring_relation: ``add_or_remove_one`` or ``replace_one``.

    Raises:
        SfumatoError: if the sensitivity is not positive, the multiplier negative, or either not finite.
    """

    sensitivity: float
    noise_multiplier: float
    neighboring_relation: NeighboringRelation = "add_or_remove_one"

    def __post_init__(self) -> None:
        """Check the fields."""
        _require("sensitivity", self.sensitivity, _TINY, _HUGE)
        _require("noise_multiplier", self.noise_multiplier, 0.0, _HUGE)
        require_relation(self.neighboring_relation)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise per coordinate, in the vector's units."""
        return self.sensitivity * self.noise_multiplier

    @property
    def event(self) -> dp_event.DpEvent:
        """What one release costs, to be priced under ``neighboring_relation``.

        A DpEvent's noise multiplier is sigma over the bound C on one record's contribution, and
        replacing a record moves a sum by up to 2C, so C is half of the sensitivity under replace-one.
        """
        halves = 2.0 if self.neighboring_relation == "replace_one" else 1.0
        return gaussian_event(self.noise_multiplier * halves)


@dataclass(frozen=True)
class DiscreteGaussian:
    """Adds integer-valued Gaussian noise on a grid, exactly sampled (Canonne, Kamath and Steinke 2020).

    Guarantee: for one release of a vector of d coordinates whose L2 distance between neighbours is at
    most ``sensitivity`` *before* rounding, rho-zCDP with rho = (s / sigma)^2 / 2 and
    s = sensitivity + granularity * sqrt(d), for which the event accounts. Sampling is exact integer
    arithmetic on the operating system's entropy (opendp), so no floating-point caveat remains.

    Attributes:
        sensitivity: largest L2 distance between the unrounded vectors of two neighbours.
        noise_multiplier: sigma / sensitivity, of at least 1e-3.
        granularity: the grid's step, in the vector's units; sigma must be at least twice that.
        dimension: number of coordinates d.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    sensitivity: float
    noise_multiplier: float
    granularity: float
    dimension: int

    def __post_init__(self) -> None:
        """Check the fields."""
        _require("sensitivity", self.sensitivity, _TINY, _HUGE)
        _require("noise_multiplier", self.noise_multiplier, 1e-3, _HUGE)
        _require("granularity", self.granularity, _TINY, self.sigma / 2.0)
        _require("dimension", self.dimension, 1, 1e9)

    @property
    def sigma(self) -> float:
        """Scale of the noise per coordinate, in the vector's units."""
        return self.sensitivity * self.noise_multiplier

    @property
    def event(self) -> dp_event.DpEvent:
        """The zCDP event of one release; rounding to the grid is charged as extra sensitivity."""
        rounded = self.sensitivity + self.granularity * math.sqrt(self.dimension)
        return dp_event.ZCDpEvent(rho=(rounded / self.sigma) ** 2 / 2.0)

    def sample(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values (shape ``(dimension,)``) rounded to the grid plus exact discrete Gaussian noise.

        Raises:
            SfumatoError: if the shape differs or a rounded value does not fit 53 bits.
        """
        if values.shape != (self.dimension,):
            raise SfumatoError(f"values has shape {values.shape}; allowed is ({self.dimension},).")
        steps = np.rint(values / self.granularity)
        if not bool(np.all(np.abs(steps) < 2.0**53)):
            raise SfumatoError(
                "values holds an entry that is not finite or beyond 2**53 steps of the granularity."
            )
        # The sampler never sees the values: an error of it, however it words it, can tell nothing about them.
        noise = discrete_gaussian_noise(self.sigma / self.granularity, self.dimension)
        return (steps.astype(np.int64) + noise).astype(np.float64) * self.granularity


def discrete_gaussian_noise(scale: float, size: int) -> NDArray[np.int64]:
    """Independent draws of the discrete Gaussian N_Z(0, scale^2), exact, on the operating system's entropy.

    Sampled as OpenDP does (Canonne, Kamath and Steinke 2020).

    Args:
        scale: above 0.
        size: how many, at least 1.

    Returns:
        (size,) int64.

    Raises:
        SfumatoError: if an argument is outside of what is allowed.
    """
    _require("scale", scale, 1e-6, 2.0**50)
    _require("size", size, 1, 2**30)
    import opendp.prelude as untyped_opendp

    opendp = cast(Any, untyped_opendp)
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T=float)
    measurement = opendp.m.make_gaussian(*space, scale=float(scale))
    return np.asarray(cast("list[int]", measurement([0] * size)), np.int64)


def gaussian_event(noise_multiplier: float) -> dp_event.DpEvent:
    """One Gaussian release of a sum; the multiplier is sigma over the bound on one record's contribution.

    Raises:
        SfumatoError: if the multiplier is negative or not finite.
    """
    _require("noise_multiplier", noise_multiplier, 0.0, _HUGE)
    if noise_multiplier == 0:
        return dp_event.NonPrivateDpEvent()
    return dp_event.GaussianDpEvent(float(noise_multiplier))


def subsampled_gaussian_step(sampling_rate: float, noise_multiplier: float) -> dp_event.DpEvent:
    """One Gaussian release of a sum over a Poisson sample: the event that a training step records.

    Guarantee: valid when every record enters the batch independently with probability
    ``sampling_rate``, one record's contribution is clipped to C, and the noise of standard deviation
    noise_multiplier * C is added whatever the batch holds, also when it is empty.

    Args:
        sampling_rate: expected batch size over the declared public size n, in [0, 1].
        noise_multiplier: sigma / C; 0 is no protection.

    Raises:
        AccountingError: if the rate is outside of [0, 1], as when the batch is larger than n.
    """
    if not (is_number(sampling_rate) and 0.0 <= sampling_rate <= 1.0):
        raise AccountingError(
            f"sampling_rate is {sampling_rate!r}; allowed is a number from 0 to 1, "
            "so the expected batch size is at most the declared n."
        )
    if sampling_rate == 0:
        _require("noise_multiplier", noise_multiplier, 0.0, _HUGE)
        return dp_event.NoOpDpEvent()
    event = gaussian_event(noise_multiplier)
    if sampling_rate == 1 or isinstance(event, dp_event.NonPrivateDpEvent):
        return event
    return dp_event.PoissonSampledDpEvent(float(sampling_rate), event)


def subsampled_gaussian(sampling_rate: float, noise_multiplier: float, steps: int) -> dp_event.DpEvent:
    """``steps`` times ``subsampled_gaussian_step``, as one self-composed event; zero steps cost nothing.

    Raises:
        AccountingError: if the rate is outside of [0, 1] or steps is not a whole number of at least 0.
    """
    step = subsampled_gaussian_step(sampling_rate, noise_multiplier)
    if not (is_number(steps) and 0 <= steps < math.inf and steps == int(steps)):
        raise AccountingError(f"steps is {steps!r}; allowed is a whole number of at least 0.")
    if steps == 0:
        return dp_event.NoOpDpEvent()
    return dp_event.SelfComposedDpEvent(step, int(steps))
