"""Where the composed privacy loss is looked at: the tilt, the window of losses and the grid step.

All three come from the composed loss's cumulant function K(lambda) = log E[exp(lambda * L)], by quadrature. They
decide how precise a price is, not whether it is an upper bound.

>>> plan = plan_for_epsilon([(PoissonGaussian(0.01, 1.0, "remove"), 1)], epsilon=3.0)
>>> round(plan.chernoff), plan.high > 3.0
(-27, True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfumato.accounting.losses import MAX_LOSS, PoissonGaussian, loss_nodes
from sfumato.accounting.numeric import Array, log_sum_exp

Parts = list[tuple[PoissonGaussian, int]]

COARSE_ERROR = 2e-4
LOG_FLOOR = -640.0
LOG_TAIL = -50.0
MIN_LOG_TAIL = -700.0
LOG_ALIAS = math.log(1e-8)
LOG_SLACK = math.log(1e-4)
_FAR_NODES = 4000
# Chernoff's exponent overstates delta by a factor that exp(-9) covers in practice.
_BELOW = 9.0


@dataclass(frozen=True)
class Cumulants:
    """log E[exp(lambda * L)] of the composed loss L, by quadrature."""

    nodes: tuple[tuple[Array, Array, int], ...]

    def __call__(self, tilts: Array) -> Array:
        """K at every tilt."""
        total = np.zeros_like(tilts)
        for losses, log_weights, count in self.nodes:
            total += count * log_sum_exp(log_weights[:, None] + losses[:, None] * tilts[None, :], axis=0)
        return total

    def deviation(self) -> float:
        """Standard deviation of the composed loss."""
        variance = 0.0
        for losses, log_weights, count in self.nodes:
            weights = np.exp(log_weights)
            mean = float(weights @ losses)
            variance += count * float(weights @ (losses - mean) ** 2)
        return math.sqrt(variance)


@dataclass(frozen=True)
class Plan:
    """Where to look.

    Attributes:
        tilt: the lambda of the exponential weights.
        epsilon: the expected or asked epsilon.
        log_delta: the asked log delta, or one that lies below the expected one.
        low: smallest loss of the window.
        high: largest loss of the window.
        high_tilt: the tilt of Chernoff's bound on what lies above it.
        step: of the coarsest grid.
        log_tail: log of P's mass that a release's grid may leave out at either end.
        deviation: standard deviation of the composed loss.
        chernoff: Chernoff's bound on epsilon or log delta, whichever is not given.
        reads_delta: whether delta is read.
    """

    tilt: float
    epsilon: float
    log_delta: float
    low: float
    high: float
    high_tilt: float
    step: float
    log_tail: float
    deviation: float
    chernoff: float
    reads_delta: bool


def tilt_grid(deviation: float) -> Array:
    """Tilts from 1e-3 to far beyond one over the deviation."""
    top = math.log10(max(1e4, 100.0 / max(deviation, 1e-30)))
    return np.logspace(-3.0, top, int(16 * (top + 3.0)))


def _steps(parts: Parts) -> int:
    return sum(count for _, count in parts)


def _grid_step(parts: Parts, scale: float, tilt: float) -> float:
    return math.sqrt(12.0 * COARSE_ERROR * scale / ((tilt + 1.0) * _steps(parts)))


def _ends(
    cumulants: Cumulants, tilt: float, here: float, spread: Array, log_alias: float
) -> tuple[float, float]:
    """(low, high) outside of which the tilted loss has at most exp(log_alias) on either side; here is K(tilt)."""
    descent = (log_alias - cumulants(tilt - spread) + here) / spread
    ascent = (cumulants(tilt + spread) - here - log_alias) / spread
    return float(np.max(descent)), float(np.min(ascent))


def _reach(tilts: Array, values: Array, log_delta: float) -> tuple[float, float]:
    """The loss beyond which delta is far below exp(log_delta), and the tilt that shows it."""
    losses = (values - (log_delta - 14.0)) / tilts
    best = int(np.argmin(losses))
    return float(losses[best]), float(tilts[best])


def plan_for_delta(parts: Parts, log_delta: float) -> Plan:
    """The plan that reads epsilon at a log delta."""
    log_tail = min(LOG_TAIL, log_delta - math.log(_steps(parts)) - 16.0)
    cumulants = Cumulants(tuple((*loss_nodes(part, log_tail), count) for part, count in parts))
    deviation = cumulants.deviation()
    tilts = tilt_grid(deviation)
    values = cumulants(tilts)
    chernoff = (values - log_delta) / tilts
    best = int(np.argmin(chernoff))
    epsilon, tilt = float(chernoff[best]), float(tilts[best])
    # The tilted loss leaves the window with little on either side; what wraps only adds to delta.
    spread = np.logspace(-3.0, 3.0, 40) * max(tilt, 1.0 / max(deviation, 1e-30))
    low, high = _ends(cumulants, tilt, float(values[best]), spread, LOG_ALIAS)
    reach, high_tilt = _reach(tilts, values, log_delta)
    return Plan(
        tilt=tilt,
        epsilon=epsilon,
        log_delta=log_delta,
        low=min(low, epsilon),
        high=max(reach, high),
        high_tilt=high_tilt,
        step=_grid_step(parts, max(epsilon, 0.02 * deviation), tilt),
        log_tail=log_tail,
        deviation=deviation,
        chernoff=epsilon,
        reads_delta=False,
    )


def _priced_cumulants(parts: Parts, log_tail: float) -> Cumulants:
    """Cumulants of the losses that are priced, with P's tail down to exp(log_tail)."""
    count_nodes = 800 if log_tail >= LOG_TAIL else int(_FAR_NODES * math.sqrt(log_tail / MIN_LOG_TAIL))
    nodes: list[tuple[Array, Array, int]] = []
    for part, count in parts:
        losses, weights = loss_nodes(part, log_tail, count_nodes)
        kept = losses <= MAX_LOSS
        if kept.any():
            losses, weights = losses[kept], weights[kept]
        nodes.append((losses, weights, count))
    return Cumulants(tuple(nodes))


@dataclass(frozen=True)
class _Saddle:
    """Chernoff's bound on delta at an epsilon with P's tail cut at exp(log_tail)."""

    cumulants: Cumulants
    deviation: float
    tilts: Array
    values: Array
    best: int
    exponent: float
    log_tail: float


def _saddle_at(parts: Parts, epsilon: float, log_tail: float) -> _Saddle:
    cumulants = _priced_cumulants(parts, log_tail)
    deviation = cumulants.deviation()
    tilts = tilt_grid(deviation)
    values = cumulants(tilts)
    exponents = values - tilts * epsilon
    best = int(np.argmin(exponents))
    return _Saddle(cumulants, deviation, tilts, values, best, float(exponents[best]), log_tail)


def _saddle(parts: Parts, epsilon: float, log_most: float) -> _Saddle:
    """The saddle whose tail is as far below its own bound on delta as a plan wants it.

    A tail that is cut too early understates the bound, and one that is cut too late is so heavy that it, and not
    the losses near epsilon, would choose the tilt.
    """

    def wanted(saddle: _Saddle) -> float:
        return min(saddle.exponent, log_most) - _BELOW - math.log(_steps(parts)) - 16.0

    near = _saddle_at(parts, epsilon, LOG_TAIL)
    if wanted(near) >= near.log_tail:
        return near
    far = _saddle_at(parts, epsilon, MIN_LOG_TAIL)
    if wanted(far) <= far.log_tail:
        return far
    while near.log_tail - far.log_tail > 4.0:
        middle = _saddle_at(parts, epsilon, 0.5 * (near.log_tail + far.log_tail))
        if wanted(middle) >= middle.log_tail:
            far = middle
        else:
            near = middle
    return far


def plan_for_epsilon(
    parts: Parts, epsilon: float, log_total_variation: float = 0.0, log_delta: float | None = None
) -> Plan:
    """The plan that reads delta at an epsilon, or near epsilon the losses at which delta has a given value.

    Args:
        parts: the composition.
        epsilon: where the tilted loss is centred.
        log_total_variation: an upper bound on log delta at every epsilon.
        log_delta: of the curve's part that is read, if not that at epsilon.
    """
    reads_delta = log_delta is None
    saddle = _saddle(parts, epsilon, min(0.0, log_total_variation))
    tilts, values, tilt = saddle.tilts, saddle.values, float(saddle.tilts[saddle.best])
    bound = min(0.0, saddle.exponent, log_total_variation)
    if log_delta is None:
        log_delta = max(bound, LOG_FLOOR) - _BELOW
    reach, high_tilt = _reach(tilts, values, log_delta)
    # What wraps adds to delta, so it has to be small beside delta and not only beside the tilted mass.
    log_alias = min(LOG_ALIAS, LOG_SLACK + min(bound, log_delta) - saddle.exponent)
    spread = np.logspace(-6.0, 3.0, 60) * max(tilt, 1.0 / max(saddle.deviation, 1e-30))
    low, high = _ends(saddle.cumulants, tilt, float(values[saddle.best]), spread, log_alias)
    return Plan(
        tilt=tilt,
        epsilon=epsilon,
        log_delta=log_delta,
        low=min(low, epsilon),
        high=max(reach, high),
        high_tilt=high_tilt,
        step=_grid_step(parts, max(epsilon, 0.02 * saddle.deviation), tilt),
        log_tail=saddle.log_tail,
        deviation=saddle.deviation,
        chernoff=bound,
        reads_delta=reads_delta,
    )
