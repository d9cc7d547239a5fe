"""Sums of independent discrete Gaussians: what they cost when every client adds its own share of the noise.

The discrete Gaussian is not closed under addition, so the sum of n shares costs a little more than one discrete
Gaussian of the same variance; Kairouz, Liu and Steinke (2021, "The Distributed Discrete Gaussian Mechanism for
Federated Learning with Secure Aggregation", Theorem 1 and Proposition 14) bound how much.

>>> total = DiscreteGaussianSum(sigma=2.0, shares=10, l2_sensitivity=2**0.5, l1_sensitivity=2.0, coordinates=2)
>>> round(total.noise_std, 3), round(total.rho, 5), round(total.epsilon(1e-5), 3)
(6.325, 0.025, 0.897)
>>> round(calibrate_discrete_gaussian_sum(1.0, 1e-5, 10, 2**0.5, 2.0, 2), 3)
1.809
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import dp_event

from sfumato.accounting.gaussian import check_delta, zcdp_epsilon
from sfumato.accounting.numeric import Array, fast_length, find_root, inverse_real_fft, real_fft
from sfumato.checks import is_integer, is_number
from sfumato.errors import AccountingError

MIN_SIGMA, MAX_SIGMA = 0.5, 1e9
MAX_SHARES = 10**8
MAX_TABLE = 2**24
_REACH = 9.5
"""Deviations kept of a discrete Gaussian: what lies beyond has mass below 2 exp(-9.5^2 / 2) < 2^-63."""


@dataclass(frozen=True)
class DiscreteGaussianSum:
    """The noise of ``shares`` independent discrete Gaussians N_Z(0, sigma^2) in every coordinate of an integer vector.

    Guarantee: rho-zCDP for one release of (integer vector + noise), when neighbours' vectors differ by at most
    the given sensitivities in at most ``coordinates`` coordinates, and at least ``shares`` shares were drawn
    independently by parties that tell nobody their draw. With s = sqrt(n) sigma and the excess over one discrete
    Gaussian tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 sigma^2 k / (k + 1)) the published bound is

        2 rho = min( D2^2/s^2 + 2 tau d,  D2^2/s^2 + 2 D1 tau/s + tau^2 d,  (D2/s + tau sqrt(d))^2 ).

    It need not fall with n, while the divergence does: further shares, and a reduction by a modulus, are
    post-processing. So the least of it over some numbers of shares up to n is what is charged. d is the number of coordinates in which two neighbours can differ, not the vector's length: the others have the
    same law under both, independently, and add nothing to a Renyi divergence.

    Attributes:
        sigma: of one share, in the counts' unit; the published bound asks for at least 0.5.
        shares: n, the least number of shares that are sure to be in the sum.
        l2_sensitivity: D2, the largest L2 distance between the integer vectors of two neighbours.
        l1_sensitivity: D1, the largest L1 distance.
        coordinates: d, in how many coordinates two neighbours can differ.

    Raises:
        AccountingError: if a field is outside of what is allowed.
    """

    sigma: float
    shares: int
    l2_sensitivity: float
    l1_sensitivity: float
    coordinates: int

    def __post_init__(self) -> None:
        """Check the fields."""
        if not (is_number(self.sigma) and MIN_SIGMA <= self.sigma <= MAX_SIGMA):
            raise AccountingError(
                f"sigma is {self.sigma!r}; allowed is a number from {MIN_SIGMA:g} to {MAX_SIGMA:g}, since the bound "
                "on sums of discrete Gaussians starts there."
            )
        _check_sum(self.shares, self.l2_sensitivity, self.l1_sensitivity, self.coordinates)
        object.__setattr__(self, "shares", int(self.shares))

    @property
    def noise_std(self) -> float:
        """Sqrt(n) sigma, the sum's sub-Gaussian scale; its standard deviation is up to 7 % less, at sigma 0.5."""
        return math.sqrt(self.shares) * self.sigma

    @property
    def inflation(self) -> float:
        """Tau, what the sum's law has above a discrete Gaussian's; 0 for one share."""
        return _inflation(self.sigma, self.shares)

    @property
    def rho(self) -> float:
        """The zCDP parameter of one release."""
        counted = {self.shares >> halvings for halvings in range(self.shares.bit_length())}
        return min(self._published(shares) for shares in counted)

    def _published(self, shares: int) -> float:
        """Rho by the published bound, as if there were so many shares."""
        std, tau, size = math.sqrt(shares) * self.sigma, _inflation(self.sigma, shares), self.coordinates
        scaled = self.l2_sensitivity / std
        first = scaled**2 + 2.0 * tau * size
        second = scaled**2 + 2.0 * self.l1_sensitivity * tau / std + tau**2 * size
        third = (scaled + tau * math.sqrt(size)) ** 2
        return 0.5 * min(first, second, third)

    @property
    def event(self) -> dp_event.DpEvent:
        """What one release costs."""
        return dp_event.ZCDpEvent(rho=self.rho)

    def epsilon(self, delta: float) -> float:
        """Epsilon at delta of one release, by the optimal conversion of zCDP.

        Raises:
            AccountingError: if delta is not in (0, 1).
        """
        return zcdp_epsilon(self.rho, delta)


def _check_sum(shares: object, l2_sensitivity: object, l1_sensitivity: object, coordinates: object) -> None:
    if not (is_integer(shares) and 1 <= int(shares) <= MAX_SHARES):  # type: ignore[call-overload]
        raise AccountingError(f"shares is {shares!r}; allowed is an integer from 1 to {MAX_SHARES}.")
    if not (is_integer(coordinates) and 1 <= int(coordinates) <= 10**9):  # type: ignore[call-overload]
        raise AccountingError(f"coordinates is {coordinates!r}; allowed is an integer from 1 to {10**9}.")
    for name, value in (("l2_sensitivity", l2_sensitivity), ("l1_sensitivity", l1_sensitivity)):
        if not (is_number(value) and 1e-9 <= float(value) <= 1e9):  # type: ignore[arg-type]
            raise AccountingError(f"{name} is {value!r}; allowed is a number from 1e-09 to 1e+09.")
    l2, l1, size = float(l2_sensitivity), float(l1_sensitivity), float(coordinates)  # type: ignore[arg-type]
    if not l2 * (1.0 - 1e-12) <= l1 <= l2 * math.sqrt(size) * (1.0 + 1e-12):
        raise AccountingError(
            f"l1_sensitivity is {l1:g} with an l2_sensitivity of {l2:g} over {coordinates} coordinates; allowed is a "
            "number from the latter to the latter times the root of the coordinates."
        )


def _inflation(sigma: float, shares: int) -> float:
    """Tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 sigma^2 k / (k + 1)), never below its exact value."""
    exponent, direct = 2.0 * (math.pi * sigma) ** 2, min(shares - 1, 10_000)
    k = np.arange(1, direct + 1, dtype=np.float64)
    terms = np.exp(-exponent * k / (k + 1.0))
    # The terms fall with k, so that the last one that was computed bounds all of the rest.
    rest = (shares - 1 - direct) * float(terms[-1]) if shares - 1 > direct else 0.0
    return 10.0 * (math.fsum(terms) + rest)


def calibrate_discrete_gaussian_sum(
    epsilon: float,
    delta: float,
    shares: int,
    l2_sensitivity: float,
    l1_sensitivity: float,
    coordinates: int,
) -> float:
    """Smallest sigma of one share, to a relative 1e-9, with which so many shares cost at most epsilon at delta.

    It stays above 0.6 for several shares however large epsilon is: below, the sum of narrow lattice laws is not
    smooth enough for the bound. The total of many shares is then noisier than a trusted party's noise would be.

    Args:
        epsilon: target, above 0.
        delta: target, in (0, 1).
        shares: the least number of shares that will be in the sum: the survivors that the protocol insists on, less
            those that may tell others their draw.
        l2_sensitivity: as for ``DiscreteGaussianSum``.
        l1_sensitivity: likewise.
        coordinates: likewise.

    Returns:
        sigma, at least 0.5, such that ``DiscreteGaussianSum(...).epsilon(delta) <= epsilon``.

    Raises:
        AccountingError: if an argument is outside of what is allowed, or no sigma up to 1e9 is enough.
    """
    if not (is_number(epsilon) and 0.0 < epsilon < math.inf):
        raise AccountingError(f"epsilon is {epsilon!r}; allowed is a finite number above 0.")
    check_delta(delta)
    _check_sum(shares, l2_sensitivity, l1_sensitivity, coordinates)

    def cost(sigma: float) -> float:
        total = DiscreteGaussianSum(sigma, int(shares), l2_sensitivity, l1_sensitivity, int(coordinates))
        return math.inf if total.rho > 1e9 else total.epsilon(delta)

    if cost(MIN_SIGMA) <= epsilon:
        return MIN_SIGMA
    low = high = MIN_SIGMA
    while cost(high) > epsilon:
        if high >= MAX_SIGMA:
            raise AccountingError(
                f"epsilon is {epsilon!r}; no sigma up to {MAX_SIGMA:g} costs that little at delta {delta!r}."
            )
        low, high = high, min(2.0 * high, MAX_SIGMA)
    root = find_root(
        lambda log_sigma: min(cost(math.exp(log_sigma)), 1e6 * epsilon) - epsilon,
        math.log(low),
        math.log(high),
        1e-10,
    )
    while cost(math.exp(root)) > epsilon:
        root += 1e-10
    return math.exp(root)


@dataclass(frozen=True, eq=False)
class IntegerLaw:
    """A law on consecutive integers, in absolute precision.

    Attributes:
        first: the smallest integer.
        probabilities: (size,) float64 of ``first``, ``first + 1``, ...; sums to 1 but for rounding.
    """

    first: int
    probabilities: Array

    @property
    def values(self) -> Array:
        """(size,) the integers, as float64."""
        return self.first + np.arange(len(self.probabilities), dtype=np.float64)

    @property
    def variance(self) -> float:
        """Of a law that is symmetric about 0."""
        return float(self.probabilities @ self.values**2)


def discrete_gaussian_law(sigma: float) -> IntegerLaw:
    """N_Z(0, sigma^2), with P(z) proportional to exp(-z^2 / (2 sigma^2)), cut where less than 2^-60 of it lies beyond.

    Raises:
        AccountingError: if sigma is not from 0.01 up to where the table would hold 2^24 numbers.
    """
    _check_table(sigma)
    reach = math.ceil(_REACH * sigma) + 1
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-0.5 * (z / sigma) ** 2)
    return IntegerLaw(-reach, weights / math.fsum(weights))


def _check_table(sigma: float) -> None:
    if not (is_number(sigma) and sigma >= 0.01 and 2.0 * _REACH * sigma + 3.0 <= MAX_TABLE):
        raise AccountingError(
            f"sigma is {sigma!r}; allowed for a table is a number from 0.01 to {(MAX_TABLE - 3) / (2 * _REACH):.0f}."
        )


def _sum_reach(sigma: float, shares: int) -> int:
    return math.ceil(_REACH * sigma * math.sqrt(shares)) + 1


def sum_law_size(sigma: float, shares: int) -> int:
    """How many numbers the transform of ``sum_law`` takes; it is refused as there, before anything is computed.

    Raises:
        AccountingError: as ``sum_law``.
    """
    if not (is_integer(shares) and 1 <= int(shares) <= MAX_SHARES):
        raise AccountingError(f"shares is {shares!r}; allowed is an integer from 1 to {MAX_SHARES}.")
    _check_table(sigma)
    size = fast_length(2 * _sum_reach(sigma, shares) + 1)
    if size > MAX_TABLE:
        raise AccountingError(
            f"shares is {shares} with sigma {sigma!r}; allowed for a table are up to {MAX_TABLE} numbers."
        )
    return size


def sum_law(sigma: float, shares: int) -> IntegerLaw:
    """The law of the sum of ``shares`` independent N_Z(0, sigma^2), by the power of its Fourier transform.

    Absolute errors are below 1e-13; relative precision in the tails is not kept, so it is for expectations,
    variances and simulation, never for accounting. Less than 2^-60 of the law wraps around, since each share, and
    so the sum, is sub-Gaussian with that variance (Canonne, Kamath and Steinke 2020).

    Raises:
        AccountingError: if the table would hold more than 2^24 numbers, or shares is not at least 1.
    """
    size = sum_law_size(sigma, shares)
    one, reach = discrete_gaussian_law(sigma), _sum_reach(sigma, shares)
    if shares == 1:
        return one
    wrapped = np.zeros(size)
    wrapped[: -one.first + 1] = one.probabilities[-one.first :]
    wrapped[one.first :] = one.probabilities[: -one.first]
    # The law is symmetric, so its transform is real.
    transform = real_fft(wrapped).real
    summed = inverse_real_fft((transform**shares).astype(np.complex128), size)
    law = np.maximum(np.concatenate([summed[-reach:], summed[: reach + 1]]), 0.0)
    return IntegerLaw(-reach, law / law.sum())
