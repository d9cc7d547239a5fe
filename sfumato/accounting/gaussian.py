"""Gaussian-only releases in closed form: the exact curve, zCDP, and the noise each of them needs.

T Gaussian releases with noise multipliers sigma_t are together exactly one with
mu = sqrt(sum 1 / sigma_t^2), also when chosen adaptively (Section 1.3 a of docs/papers.md).

>>> round(gaussian_epsilon(mu=1.0, delta=1e-5), 3)
4.377
>>> [round(calibrate_gaussian(1.0, 1e-5, rule), 2) for rule in ("exact", "zcdp", "bun_steinke")]
[3.73, 4.05, 4.9]
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

from sfumato.accounting.numeric import find_root, log_normal_cdf, minimum, normal_quantile, scaled_erfc
from sfumato.errors import AccountingError

GaussianRule = Literal["exact", "zcdp", "bun_steinke"]

MAX_MU = 1e6
MIN_DELTA = 1e-280
_SMALL_MU = 1e-5
_ROOT = math.sqrt(math.pi / 2.0)


def _mills(x: float) -> float:
    """Phi(-x) / phi(x)."""
    return _ROOT * scaled_erfc(x / math.sqrt(2.0))


def check_delta(delta: float) -> None:
    """Refuse a delta that is not strictly between 0 and 1.

    Raises:
        AccountingError: naming the value.
    """
    if isinstance(delta, bool) or not MIN_DELTA <= float(delta) < 1.0:
        raise AccountingError(f"delta is {delta!r}; allowed is a number from {MIN_DELTA:g} to below 1.")


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is negative or not finite.

    Raises:
        AccountingError: naming the value.
    """
    if isinstance(epsilon, bool) or not 0.0 <= float(epsilon) < math.inf:
        raise AccountingError(f"epsilon is {epsilon!r}; allowed is a finite number of at least 0.")


def _check_mu(mu: float) -> None:
    if not 0.0 <= mu <= MAX_MU:
        raise AccountingError(f"mu = {mu:g} of the composed Gaussian mechanism; allowed is 0 to {MAX_MU:g}.")


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """Log delta(epsilon) of a mu-Gaussian mechanism, exact (Balle and Wang 2018), -inf at mu = 0.

    Uses Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) = phi(t - h) [R(t - h) - R(t + h)] with
    t = epsilon / mu, h = mu / 2 and Mills' ratio R, which keeps its relative precision in the tail.

    Raises:
        AccountingError: if mu or epsilon is negative or too large.
    """
    _check_mu(mu)
    check_epsilon(epsilon)
    if mu == 0:
        return -math.inf
    t, h = epsilon / mu, mu / 2.0
    if t - h < -20.0:
        upper = float(log_normal_cdf(h - t))
        return upper + math.log1p(-math.exp(epsilon + float(log_normal_cdf(-h - t)) - upper))
    if mu < _SMALL_MU:
        # -R'(t) = 1 - t R(t); beyond t = 1e4 its asymptotic series avoids the cancellation.
        slope = 1.0 - t * _mills(t) if t < 1e4 else 1.0 / t**2
        difference = mu * slope
    else:
        difference = _mills(t - h) - _mills(t + h) if t < 1e6 else mu / (t * t - h * h)
    return -0.5 * (t - h) ** 2 - 0.5 * math.log(2.0 * math.pi) + math.log(difference)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of a mu-Gaussian mechanism; 0 where it is below the smallest float.

    Raises:
        AccountingError: if mu or epsilon is negative or too large.
    """
    return min(1.0, math.exp(gaussian_log_delta(mu, epsilon)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 at which a mu-Gaussian mechanism has the given delta.

    Raises:
        AccountingError: if mu is negative or too large, or delta not in (0, 1).
    """
    _check_mu(mu)
    check_delta(delta)
    log_delta = math.log(delta)
    if mu == 0 or gaussian_log_delta(mu, 0.0) <= log_delta:
        return 0.0
    high = 1e-300 + mu * mu / 2.0 + mu * max(0.0, -normal_quantile(log_delta))
    high = max(high, mu * mu / 2.0 * (1.0 + 1e-12))
    scale = max(high, 1e-300)
    root = scale * find_root(lambda u: gaussian_log_delta(mu, u * scale) - log_delta, 0.0, 1.0 + 1e-9, 1e-13)
    while gaussian_log_delta(mu, root) > log_delta:
        root = math.nextafter(root * (1.0 + 1e-13), math.inf)
    return root


def zcdp_epsilon(rho: float, delta: float, rule: Literal["zcdp", "bun_steinke"] = "zcdp") -> float:
    """Epsilon at delta of a rho-zCDP mechanism.

    Args:
        rho: the zCDP parameter; a mu-Gaussian mechanism has rho = mu^2 / 2.
        delta: target delta.
        rule: ``zcdp`` optimises the Renyi order in the conversion of Canonne, Kamath and Steinke (2020);
            ``bun_steinke`` is rho + 2 sqrt(rho log(1/delta)).

    Raises:
        AccountingError: if rho is negative or not finite, or delta not in (0, 1).
    """
    check_delta(delta)
    if not 0.0 <= rho <= MAX_MU**2 / 2.0:
        raise AccountingError(f"rho is {rho!r}; allowed is a number from 0 to {MAX_MU**2 / 2.0:g}.")
    if rho == 0:
        return 0.0
    log_delta = math.log(delta)
    simple = rho + 2.0 * math.sqrt(-rho * log_delta)
    if rule == "bun_steinke":
        return simple

    def converted(log_excess: float) -> float:
        excess = math.exp(log_excess)  # order - 1
        order = 1.0 + excess
        return rho * order + math.log1p(-1.0 / order) - (log_delta + math.log(order)) / excess

    center = 0.5 * math.log(-log_delta / rho)
    _, best = minimum(converted, center - 8.0, center + 8.0)
    return max(0.0, min(best, simple))


def gaussian_mu(epsilon: float, delta: float, rule: GaussianRule = "exact") -> float:
    """Largest mu whose epsilon at delta, by the given rule, is at most ``epsilon``.

    Raises:
        AccountingError: if epsilon is not in (0, 1e6] or delta not in (0, 1).
    """
    check_delta(delta)
    if isinstance(epsilon, bool) or not 0.0 < float(epsilon) <= 1e6:
        raise AccountingError(f"epsilon is {epsilon!r}; allowed is a number above 0 and up to 1e+06.")

    return _largest_mu(float(epsilon), float(delta), rule)


@lru_cache(maxsize=4096)
def _largest_mu(epsilon: float, delta: float, rule: GaussianRule) -> float:
    """``gaussian_mu`` of checked arguments; sweeps ask for few budgets and many fits each."""

    def cost(log_mu: float) -> float:
        mu = math.exp(log_mu)
        return gaussian_epsilon(mu, delta) if rule == "exact" else zcdp_epsilon(mu * mu / 2.0, delta, rule)

    low, high = -1.0, 1.0
    while cost(low) > epsilon:
        low -= 2.0
    while cost(high) <= epsilon:
        high += 2.0
    root = find_root(lambda log_mu: cost(log_mu) - epsilon, low, high, 1e-13)
    while cost(root) > epsilon:
        root -= 1e-12
    return math.exp(root)


def calibrate_gaussian(
    epsilon: float, delta: float, rule: GaussianRule = "exact", releases: int = 1
) -> float:
    """Smallest noise multiplier with which that many Gaussian releases cost at most epsilon at delta.

    The multiplier is sigma over the sensitivity *between neighbours* (Section 1.3 a of docs/papers.md).

    Args:
        epsilon: target, above 0.
        delta: target, in (0, 1).
        rule: ``exact``, ``zcdp`` (optimal conversion) or ``bun_steinke``.
        releases: how many releases share the budget, at least 1.

    Raises:
        AccountingError: if an argument is outside of what is allowed.
    """
    if isinstance(releases, bool) or releases < 1 or int(releases) != releases:
        raise AccountingError(f"releases is {releases!r}; allowed is a whole number of at least 1.")
    if rule not in ("exact", "zcdp", "bun_steinke"):
        raise AccountingError(f"rule is {rule!r}; allowed are 'exact', 'zcdp' and 'bun_steinke'.")
    # The composition is priced from rounded multipliers, and must not come out above epsilon.
    return math.sqrt(releases) / gaussian_mu(epsilon, delta, rule) * (1.0 + 1e-12)
