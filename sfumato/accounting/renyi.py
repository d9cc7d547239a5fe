"""Renyi differential privacy on a grid of orders that reports its edges.

>>> from sfumato.accounting.events import Release
>>> cost = rdp_epsilon((Release(0.125, 1.0, 24),), 0.0, 1e-5, sensitivity=1.0)
>>> (round(cost.epsilon, 2), cost.at_grid_edge)
(5.41, False)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from sfumato.accounting.events import Release
from sfumato.accounting.numeric import Array

_ORDERS = (
    *(1.02, 1.05),
    *(1.0 + k / 10.0 for k in range(1, 100)),
    *(float(k) for k in range(11, 65)),
    *(72.0, 80.0, 96.0, 112.0, 128.0, 160.0, 192.0, 256.0, 320.0, 384.0, 512.0, 768.0, 1024.0),
)
_FAR_ORDERS = (1536.0, 2048.0, 3072.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0)


@dataclass(frozen=True)
class RdpCost:
    """epsilon by RDP, the order that gave it, and whether that is the first or the last of the grid."""

    epsilon: float
    order: float
    at_grid_edge: bool


@contextmanager
def _quiet() -> Generator[None]:
    """Keep the library from logging orders that it leaves out of the minimum."""
    logger = logging.getLogger("absl")

    def silent(record: logging.LogRecord) -> bool:
        return "failed to converge" not in record.getMessage()

    logger.addFilter(silent)
    try:
        yield
    finally:
        logger.removeFilter(silent)


@lru_cache(maxsize=256)
def _one_step(sampling_rate: float, noise_multiplier: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    event = dp_event.PoissonSampledDpEvent(sampling_rate, dp_event.GaussianDpEvent(noise_multiplier))
    with _quiet():
        accountant = cast(Any, rdp_privacy_accountant).RdpAccountant(orders)
        accountant.compose(event)
        return tuple(float(value) for value in accountant._rdp)


def _curve(releases: tuple[Release, ...], rho: float, sensitivity: float, orders: tuple[float, ...]) -> Array:
    """Composed RDP at every order; sampled releases are only valid for sensitivity 1 (add or remove)."""
    grid = np.asarray(orders)
    total = rho * grid
    for release in releases:
        if release.sampling_rate == 1.0:
            total = total + release.count * grid * sensitivity**2 / (2.0 * release.noise_multiplier**2)
        else:
            one = np.asarray(_one_step(release.sampling_rate, release.noise_multiplier, orders))
            total = total + release.count * np.maximum(one, 0.0)
    return total


def _best(orders: tuple[float, ...], curve: Array, delta: float) -> tuple[float, float, int]:
    grid = np.asarray(orders)
    with np.errstate(invalid="ignore"):
        costs = curve + np.log1p(-1.0 / grid) - (math.log(delta) + np.log(grid)) / (grid - 1.0)
    costs = np.where(np.isfinite(costs), costs, math.inf)
    index = int(np.argmin(costs))
    return max(0.0, float(costs[index])), float(grid[index]), index


def rdp_epsilon(releases: tuple[Release, ...], rho: float, delta: float, sensitivity: float) -> RdpCost:
    """Epsilon at delta by RDP and the conversion of Canonne, Kamath and Steinke (2020), Proposition 12.

    When the best order is the largest, the grid is extended to 65536; a best order that is still an end of
    the grid is reported as such, since a better one may lie beyond.

    Args:
        releases: canonical releases.
        rho: zCDP parameter composed with them.
        delta: target delta.
        sensitivity: how far one record moves the sum, in clip norms: 1, or 2 under replace-one (then only
            releases of all records are allowed).
    """
    if not releases and rho == 0:
        return RdpCost(0.0, 2.0, False)
    orders = _ORDERS
    epsilon, order, index = _best(orders, _curve(releases, rho, sensitivity, orders), delta)
    for more in _FAR_ORDERS:
        if index < len(orders) - 1:
            break
        orders = (*orders, more)
        curve = np.concatenate(
            [_curve(releases, rho, sensitivity, orders[:1]), _curve(releases, rho, sensitivity, (more,))]
        )
        epsilon_more, order_more, last = _best((orders[0], more), curve, delta)
        if last == 1 and epsilon_more < epsilon:
            epsilon, order, index = epsilon_more, order_more, len(orders) - 1
    return RdpCost(epsilon, order, epsilon > 0.0 and index in (0, len(orders) - 1))
