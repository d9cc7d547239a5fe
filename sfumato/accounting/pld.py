"""Composition of privacy losses by exponentially tilted Fourier transforms: an upper bound on the curve.

Each release's loss is put on a grid that dominates it (``losses.discretize``), weighted by exp(lambda * loss)
such that the composed loss peaks where delta(epsilon) is asked for, composed by a fast Fourier transform,
and weighted back. Rounding errors are then relative to the answer and not to 1, so delta = 1e-12 is as
precise as delta = 1e-5. What the finite window and the grid cut off is added to the probability of an
infinite loss.

>>> from sfumato.accounting.events import Release
>>> releases = (Release(0.125, 1.0, 24),)
>>> round(pld_epsilon(releases, 1e-5, "add_or_remove_one"), 2)
4.68
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sfumato.accounting.events import Release
from sfumato.accounting.losses import (
    Direction,
    LossPmf,
    PoissonGaussian,
    TooFineError,
    discretize,
    loss_nodes,
)
from sfumato.accounting.numeric import (
    Array,
    ComplexArray,
    decaying_sums,
    fast_length,
    inverse_real_fft,
    log_sum_exp,
    real_fft,
)
from sfumato.errors import AccountingError
from sfumato.mechanisms import NeighboringRelation

COARSE_ERROR = 2e-4
MAX_CHANGE = 6e-5
LOG_FLOOR = -640.0
ALIAS = 1e-8
MAX_LEVELS = 7
MAX_COARSENINGS = 16
MAX_WINDOW = 2**21


@dataclass(frozen=True)
class _Cumulants:
    """log E[exp(lambda * L)] of the composed loss L, by quadrature."""

    nodes: tuple[tuple[Array, Array, int], ...]

    def __call__(self, tilts: Array) -> Array:
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
class _Plan:
    """Where to look: the tilt, the expected (epsilon, log delta) and the window of losses."""

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


@dataclass(frozen=True)
class _Curve:
    """deltas[i] = delta((first + i) * step), never below the truth."""

    first: int
    step: float
    deltas: Array
    infinity_mass: float


def _tilt_grid(deviation: float) -> Array:
    top = math.log10(max(1e4, 100.0 / max(deviation, 1e-30)))
    return np.logspace(-3.0, top, int(16 * (top + 3.0)))


def _plan(parts: list[tuple[PoissonGaussian, int]], epsilon: float | None, log_delta: float | None) -> _Plan:
    """Choose tilt, window and grid step from the cumulants; exactly one of the two targets is given."""
    steps, wants_delta = sum(count for _, count in parts), log_delta is None
    log_tail = -50.0 if log_delta is None else min(-50.0, log_delta - math.log(steps) - 16.0)
    cumulants = _Cumulants(tuple((*loss_nodes(part, log_tail), count) for part, count in parts))
    deviation = cumulants.deviation()
    tilts = _tilt_grid(deviation)
    values = cumulants(tilts)
    if log_delta is not None:
        chernoff = (values - log_delta) / tilts
        best = int(np.argmin(chernoff))
        bound = epsilon = float(chernoff[best])
    else:
        assert epsilon is not None
        exponents = values - tilts * epsilon
        best = int(np.argmin(exponents))
        # The Chernoff exponent overstates delta by a factor that exp(-9) covers in practice.
        bound = min(0.0, float(exponents[best]))
        log_delta = max(bound, LOG_FLOOR) - 9.0
        log_tail = max(-700.0, min(-50.0, log_delta - math.log(steps) - 16.0))
    tilt = float(tilts[best])
    reach = (values - (log_delta - 14.0)) / tilts
    top = int(np.argmin(reach))
    # The tilted loss leaves the window with at most ALIAS on either side; what wraps only adds to delta.
    spread = np.logspace(-3.0, 3.0, 40) * max(tilt, 1.0 / max(deviation, 1e-30))
    descent = (math.log(ALIAS) - cumulants(tilt - spread) + values[best]) / spread
    ascent = (cumulants(tilt + spread) - values[best] - math.log(ALIAS)) / spread
    low = min(float(np.max(descent)), epsilon)
    high = max(float(reach[top]), float(np.min(ascent)))
    scale = max(epsilon, 0.02 * deviation)
    step = math.sqrt(12.0 * COARSE_ERROR * scale / ((tilt + 1.0) * steps))
    return _Plan(
        tilt, epsilon, log_delta, low, high, float(tilts[top]), step, log_tail, deviation, bound, wants_delta
    )


def _fold(pmf: LossPmf, tilt: float, size: int) -> tuple[Array, float]:
    """(tilted and normalised probabilities folded to a circle, log of the normaliser)."""
    exponents = np.log(np.maximum(pmf.probabilities, 1e-300)) + tilt * pmf.losses()
    exponents[pmf.probabilities == 0.0] = -np.inf
    log_mass = float(log_sum_exp(exponents, axis=0))
    tilted = np.exp(exponents - log_mass)
    folded = np.bincount(pmf.indices() % size, weights=tilted, minlength=size)
    return folded.astype(np.float64), log_mass


def _power(spectrum: ComplexArray, count: int) -> ComplexArray:
    """Spectrum ** count, with what underflows set to zero."""
    sizes = np.abs(spectrum)
    kept = sizes > math.exp(-300.0 / count)
    result = np.zeros_like(spectrum)
    result[kept] = np.exp(count * np.log(spectrum[kept]))
    return result


def _log_mass(pmf: LossPmf, tilt: float) -> float:
    exponents = np.log(np.maximum(pmf.probabilities, 1e-300)) + tilt * pmf.losses()
    return float(log_sum_exp(exponents, axis=0))


def _compose(parts: list[tuple[PoissonGaussian, int]], plan: _Plan) -> _Curve:
    """The curve of the composition on the plan's window.

    Raises:
        TooFineError: if a grid would be too large.
    """
    step = plan.step
    first, last = math.floor(plan.low / step) - 1, math.ceil(plan.high / step) + 1
    if last - first > MAX_WINDOW:
        raise TooFineError
    size = fast_length(last - first + 1)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    log_mass = beyond = log_finite = 0.0
    with np.errstate(under="ignore"):
        for part, count in parts:
            pmf = discretize(part, step, plan.log_tail)
            if not pmf.probabilities.any():  # the whole loss lies beyond the largest that is priced
                return _Curve(first, step, np.ones(1), 1.0)
            folded, log_part = _fold(pmf, plan.tilt, size)
            spectrum *= _power(real_fft(folded), count)
            log_mass += count * log_part
            beyond += count * _log_mass(pmf, plan.high_tilt)
            log_finite += count * math.log1p(-min(pmf.infinity_mass, 1.0 - 1e-16))
        circle = np.roll(inverse_real_fft(spectrum, size), -(first % size))
        losses = np.arange(first, last + 1, dtype=np.int64) * step
        weights = np.exp(np.minimum(log_mass - plan.tilt * losses, 700.0))
        probabilities = np.maximum(circle[: losses.size], 0.0) * weights
    # Chernoff's bound on what lies above the window, where the circle wraps it to the bottom.
    above = math.exp(min(0.0, beyond - plan.high_tilt * (last + 1) * step))
    infinity_mass = -math.expm1(log_finite) + above
    decay = math.exp(-step)
    # delta[k] - delta[k+1] = (1 - e^-step) * sum_{j>k} p[j] e^{-(j-k-1) step}: sums of positive terms only.
    tails = decaying_sums(probabilities[:0:-1], decay)
    deltas = np.zeros(losses.size)
    deltas[:-1] = -math.expm1(-step) * np.cumsum(tails)[::-1]
    return _Curve(first, step, np.minimum(deltas + infinity_mass, 1.0), infinity_mass)


def _refined(
    parts: list[tuple[PoissonGaussian, int]],
    plan: _Plan,
    read: Callable[[_Curve], float],
    floor: float,
    levels: int,
) -> float:
    """Read a value off ever finer grids until a four times finer one changes it by less than ``MAX_CHANGE``.

    The error falls at least in proportion to the step, so the last value is within 2e-5 of its limit. Every
    value is an upper bound, also that of the coarser grid which is taken where the plan's does not fit.
    ``floor`` is the size below which a change does not matter.
    """

    def at(level: int) -> float | None:
        try:
            return read(_compose(parts, replace(plan, step=plan.step / 4.0**level)))
        except TooFineError:
            return None

    value = at(0)
    if value is None:
        coarser = (at(-level) for level in range(1, MAX_COARSENINGS))
        value = next((found for found in coarser if found is not None), None)
        if value is None:
            raise AccountingError(
                f"the composition of {sum(count for _, count in parts)} steps needs a grid of more than "
                f"{MAX_WINDOW} points; use fewer steps or a larger noise multiplier."
            )
        return value
    allowed = MAX_CHANGE * (10.0 if plan.reads_delta else 1.0)
    for level in range(1, levels):
        finer = at(level)
        if finer is None or value == math.inf:
            break
        previous, value = value, min(value, finer)
        if previous - value <= allowed * max(value, floor):
            break
    return value


def _directions(relation: NeighboringRelation) -> tuple[Direction, ...]:
    return ("replace",) if relation == "replace_one" else ("remove", "add")


def _parts(releases: tuple[Release, ...], direction: Direction) -> list[tuple[PoissonGaussian, int]]:
    """Releases as losses; those of all records are one Gaussian, which is exact."""
    parts = [
        (PoissonGaussian(r.sampling_rate, r.noise_multiplier, direction), r.count)
        for r in releases
        if r.sampling_rate < 1.0
    ]
    precision = math.fsum(r.count / r.noise_multiplier**2 for r in releases if r.sampling_rate == 1.0)
    if precision > 0:
        parts.append((PoissonGaussian(1.0, 1.0 / math.sqrt(precision), direction), 1))
    return parts


def _read_epsilon(curve: _Curve, delta: float) -> float:
    """Smallest epsilon >= 0 with delta(epsilon) <= delta; delta is linear in exp(epsilon) between points."""
    if curve.infinity_mass > delta:
        return math.inf
    below = int(np.searchsorted(-curve.deltas, -delta, side="left"))
    if below == 0:
        return max(0.0, curve.first * curve.step)
    if below == curve.deltas.size:
        return max(0.0, (curve.first + below) * curve.step)
    above, under = float(curve.deltas[below - 1]), float(curve.deltas[below])
    share = (above - delta) / (above - under)
    return max(0.0, (curve.first + below - 1) * curve.step + math.log1p(share * math.expm1(curve.step)))


def _read_delta(curve: _Curve, epsilon: float) -> float:
    position = epsilon / curve.step - curve.first
    index = math.floor(position)
    if index < 0:
        return 1.0
    if index + 1 >= curve.deltas.size:
        return curve.infinity_mass
    above, under = float(curve.deltas[index]), float(curve.deltas[index + 1])
    share = math.expm1((position - index) * curve.step) / math.expm1(curve.step)
    return above + min(1.0, max(0.0, share)) * (under - above)


def _plans(
    releases: tuple[Release, ...],
    relation: NeighboringRelation,
    epsilon: float | None,
    log_delta: float | None,
) -> list[tuple[list[tuple[PoissonGaussian, int]], _Plan]]:
    pairs: list[tuple[list[tuple[PoissonGaussian, int]], _Plan]] = []
    for direction in _directions(relation):
        parts = _parts(releases, direction)
        if parts:
            pairs.append((parts, _plan(parts, epsilon, log_delta)))
    return sorted(pairs, key=lambda pair: -pair[1].chernoff)


def pld_epsilon(
    releases: tuple[Release, ...], delta: float, relation: NeighboringRelation, levels: int = MAX_LEVELS
) -> float:
    """Smallest epsilon >= 0 at delta by privacy loss distributions; an upper bound, infinite if unpriceable.

    A direction whose Chernoff bound is already below the other's value is not composed.

    Args:
        releases: canonical releases, as in ``events.Spent``.
        delta: target delta.
        relation: neighbouring relation.
        levels: how often the grid may be refined; 1 is fast and within about a percent.

    Raises:
        AccountingError: if the composition needs more memory than is allowed.
    """
    result = 0.0
    for parts, plan in _plans(releases, relation, None, math.log(delta)):
        if plan.chernoff > result:
            floor = 1e-3 * plan.deviation
            value = _refined(parts, plan, lambda curve: _read_epsilon(curve, delta), floor, levels)
            result = max(result, value)
    return result


def pld_delta(
    releases: tuple[Release, ...], epsilon: float, relation: NeighboringRelation, levels: int = MAX_LEVELS
) -> float:
    """Delta at epsilon by privacy loss distributions; an upper bound, and exp(-640) where it is smaller.

    Raises:
        AccountingError: if the composition needs more memory than is allowed.
    """
    result = 0.0
    for parts, plan in _plans(releases, relation, epsilon, None):
        if plan.chernoff <= LOG_FLOOR:
            result = max(result, math.exp(LOG_FLOOR))
        elif result == 0.0 or plan.chernoff > math.log(result):
            value = _refined(parts, plan, lambda curve: _read_delta(curve, epsilon), 1e-300, levels)
            result = max(result, value)
    return result
