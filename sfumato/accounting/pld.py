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
from sfumato.accounting.losses import MAX_LOSS, Direction, LossPmf, PoissonGaussian, TooFineError, discretize
from sfumato.accounting.numeric import (
    Array,
    ComplexArray,
    decaying_sums,
    fast_length,
    inverse_real_fft,
    log_sum_exp,
    real_fft,
)
from sfumato.accounting.planning import LOG_FLOOR, LOG_SLACK, Parts, Plan, plan_for_delta, plan_for_epsilon
from sfumato.errors import AccountingError
from sfumato.mechanisms import NeighboringRelation

MAX_CHANGE = 6e-5
MAX_LEVELS = 7
_MAX_PLANS = 4
MAX_COARSENINGS = 16
MAX_WINDOW = 2**21


@dataclass(frozen=True)
class _Curve:
    """deltas[i] = delta((first + i) * step), never below the truth up to exp(log_rounding - tilt * loss)."""

    first: int
    step: float
    deltas: Array
    infinity_mass: float
    tilt: float = 0.0
    log_rounding: float = -math.inf


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


def _top(pmfs: list[tuple[LossPmf, int]], plan: Plan, first: int, last: int) -> tuple[int, float]:
    """(last index of the window, Chernoff's bound on what lies above it, where the circle wraps it to the bottom).

    The window is enlarged where the grid's rounding of every release to its next point carries more than a
    small part of delta above it.

    Raises:
        TooFineError: if the window would be too large.
    """

    def log_mass(tilt: float) -> float:
        return sum(count * _log_mass(pmf, tilt) for pmf, count in pmfs)

    above = math.exp(min(0.0, log_mass(plan.high_tilt) - plan.high_tilt * (last + 1) * plan.step))
    if above <= math.exp(plan.log_delta + LOG_SLACK):
        return last, above
    largest = sum(count * (pmf.first + pmf.probabilities.size - 1) for pmf, count in pmfs)
    if largest <= last + 1000:
        return max(last, largest), 0.0
    tilts = plan.high_tilt * np.logspace(-6.0, 1.0, 22)
    masses = np.asarray([log_mass(float(tilt)) for tilt in tilts])
    reach = (masses - (plan.log_delta - 14.0)) / tilts / plan.step
    best = int(np.argmin(reach))
    wanted = max(last, min(largest, math.ceil(float(reach[best]))))
    if wanted - first > MAX_WINDOW:
        raise TooFineError
    if wanted == largest:
        return wanted, 0.0
    exponent = float(masses[best]) - float(tilts[best]) * (wanted + 1) * plan.step
    return wanted, min(above, math.exp(min(0.0, exponent)))


def _convolved(pmfs: list[tuple[LossPmf, int]], tilt: float, size: int) -> tuple[Array, float]:
    """(tilted and normalised composition on a circle, log of the normaliser)."""
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    log_mass = 0.0
    for pmf, count in pmfs:
        folded, log_part = _fold(pmf, tilt, size)
        if len(pmfs) == count == 1:
            return folded, log_part
        spectrum *= _power(real_fft(folded), count)
        log_mass += count * log_part
    return inverse_real_fft(spectrum, size), log_mass


def _log_rounding(pmfs: list[tuple[LossPmf, int]], plan: Plan, circle: Array) -> float:
    """Log of what the transform's rounding may take from the tilted delta, -inf for a single release.

    The errors of the points are random and together of the size of the unit roundoff, times the power that the
    spectrum is raised to, times the circle's norm; about 1 / (tilt * step) of them count.
    """
    count = sum(count for _, count in pmfs)
    if count == 1:
        return -math.inf
    norm = float(np.sqrt(np.sum(circle * circle)))
    counted = min(1.0, 1.0 / ((plan.tilt + 1e-3) * plan.step * circle.size))
    return math.log(4e-16 * count * math.log2(circle.size) * norm * math.sqrt(counted))


def _compose(parts: Parts, plan: Plan) -> _Curve:
    """The curve of the composition on the plan's window.

    Raises:
        TooFineError: if a grid would be too large.
    """
    step = plan.step
    first, last = math.floor(plan.low / step) - 1, math.ceil(plan.high / step) + 1
    if last - first > MAX_WINDOW:
        raise TooFineError
    with np.errstate(under="ignore"):
        pmfs = [(discretize(part, step, plan.log_tail), count) for part, count in parts]
        # A release whose whole loss lies beyond the largest that is priced.
        if not all(pmf.probabilities.any() for pmf, _ in pmfs):
            return _Curve(first, step, np.ones(1), 1.0)
        last, above = _top(pmfs, plan, first, last)
        circle, log_mass = _convolved(pmfs, plan.tilt, fast_length(last - first + 1))
        circle = np.roll(circle, -(first % circle.size))
        losses = np.arange(first, last + 1, dtype=np.int64) * step
        weights = np.exp(np.minimum(log_mass - plan.tilt * losses, 700.0))
        probabilities = np.maximum(circle[: losses.size], 0.0) * weights
    log_finite = sum(count * math.log1p(-min(pmf.infinity_mass, 1.0 - 1e-16)) for pmf, count in pmfs)
    infinity_mass = -math.expm1(log_finite) + above
    decay = math.exp(-step)
    # delta[k] - delta[k+1] = (1 - e^-step) * sum_{j>k} p[j] e^{-(j-k-1) step}: sums of positive terms only.
    tails = decaying_sums(probabilities[:0:-1], decay)
    deltas = np.zeros(losses.size)
    with np.errstate(over="ignore"):  # far below the asked loss, where delta is 1
        deltas[:-1] = -math.expm1(-step) * np.cumsum(tails)[::-1]
    rounding = _log_rounding(pmfs, plan, circle) + log_mass
    return _Curve(first, step, np.minimum(deltas + infinity_mass, 1.0), infinity_mass, plan.tilt, rounding)


def _refined(
    parts: Parts,
    plan: Plan,
    read: Callable[[_Curve], float],
    floor: float,
    levels: int,
    enough: float = -math.inf,
) -> float:
    """Read a value off ever finer grids until a four times finer one changes it by less than ``MAX_CHANGE``.

    The error falls at least in proportion to the step, so the last value is within 2e-5 of its limit. Every
    value is an upper bound, also that of the coarser grid which is taken where the plan's does not fit.
    ``floor`` is the size below which a change does not matter, and a value of at most ``enough`` is not refined.
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
        if value <= enough:
            break
        finer = at(level)
        if finer is None or value == math.inf:
            break
        previous, value = value, min(value, finer)
        if previous - value <= allowed * max(value, floor):
            break
    return value


def _directions(relation: NeighboringRelation) -> tuple[Direction, ...]:
    return ("replace",) if relation == "replace_one" else ("remove", "add")


def _parts(releases: tuple[Release, ...], direction: Direction) -> Parts:
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
    rounding = math.exp(min(0.0, curve.log_rounding - curve.tilt * epsilon))
    return min(1.0, above + min(1.0, max(0.0, share)) * (under - above) + rounding)


def _total_variations(
    releases: tuple[Release, ...], relation: NeighboringRelation
) -> list[tuple[float, int]]:
    """(delta at epsilon 0 of one release, how many): rate times erf(sensitivity / (2 sqrt(2) multiplier))."""
    sensitivity = 2.0 if relation == "replace_one" else 1.0
    scale = sensitivity / math.sqrt(8.0)
    return [(r.sampling_rate * math.erf(scale / r.noise_multiplier), r.count) for r in releases]


def _composed_variation(variations: list[tuple[float, int]]) -> float:
    """A bound on delta at every epsilon: total variation composes as the chance that any of many events happens."""
    if any(value >= 1.0 for value, _ in variations):
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-value) for value, count in variations))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _epsilon_of(parts: Parts, plan: Plan, delta: float, levels: int, enough: float) -> float:
    """Epsilon of one direction; where it lies below the plan's window, from one that is centred at epsilon 0."""

    def value_on(here: Plan) -> float:
        floor = 1e-3 * plan.deviation
        return _refined(parts, here, lambda curve: _read_epsilon(curve, delta), floor, levels, enough)

    value = value_on(plan)
    if value > enough and (0.0 < value < plan.low or (value == math.inf and plan.chernoff <= MAX_LOSS)):
        value = min(value, value_on(plan_for_epsilon(parts, 0.0, log_delta=math.log(delta))))
    return value


def pld_epsilon(
    releases: tuple[Release, ...], delta: float, relation: NeighboringRelation, levels: int = MAX_LEVELS
) -> float:
    """Smallest epsilon >= 0 at delta by privacy loss distributions; an upper bound, infinite if unpriceable.

    Zero where delta is at least the composed total variation distance, which is below the chance that a record is
    ever sampled. A direction whose Chernoff bound is already below the other's value is not composed.

    Args:
        releases: canonical releases, as in ``events.Spent``.
        delta: target delta.
        relation: neighbouring relation.
        levels: how often the grid may be refined; 1 is fast and within about a percent.

    Raises:
        AccountingError: if the composition needs more memory than is allowed.
    """
    variations = _total_variations(releases, relation)
    if _composed_variation(variations) <= delta:
        return 0.0
    pairs = [(parts, plan_for_delta(parts, math.log(delta))) for parts in _compositions(releases, relation)]
    result = 0.0
    for parts, plan in sorted(pairs, key=lambda pair: -pair[1].chernoff):
        if plan.chernoff > result:
            result = max(result, _epsilon_of(parts, plan, delta, levels, result))
    if (
        _may_vanish(releases, variations, result, delta)
        and pld_delta(releases, 0.0, relation, levels) <= delta
    ):
        return 0.0
    return result


def _may_vanish(
    releases: tuple[Release, ...], variations: list[tuple[float, int]], value: float, delta: float
) -> bool:
    """Whether delta may be at least delta(0), so that a small epsilon above 0 is the grid's rounding.

    Delta(0) is at least that of any one release and grows about with the root of their number; what is rounded
    is of the size of the loss of never being sampled.
    """
    never_sampled = math.fsum(
        -r.count * math.log1p(-r.sampling_rate) for r in releases if r.sampling_rate < 1
    )
    together = 0.2 * math.sqrt(math.fsum(count * one * one for one, count in variations))
    return 0.0 < value <= never_sampled and delta > max(together, *(one for one, _ in variations))


def _compositions(releases: tuple[Release, ...], relation: NeighboringRelation) -> list[Parts]:
    return [parts for direction in _directions(relation) if (parts := _parts(releases, direction))]


def pld_delta(
    releases: tuple[Release, ...], epsilon: float, relation: NeighboringRelation, levels: int = MAX_LEVELS
) -> float:
    """Delta at epsilon by privacy loss distributions; an upper bound, and exp(-640) where it is smaller.

    At epsilon 0 both directions have the same delta, so the smaller bound is taken.

    Raises:
        AccountingError: if the composition needs more memory than is allowed.
    """
    most = _composed_variation(_total_variations(releases, relation))
    compositions = _compositions(releases, relation)
    pairs = [(parts, plan_for_epsilon(parts, epsilon, _log(most))) for parts in compositions]
    values: list[float] = []
    for parts, plan in sorted(pairs, key=lambda pair: -pair[1].chernoff):
        known = max(values, default=0.0)
        if plan.chernoff <= LOG_FLOOR:
            values.append(math.exp(LOG_FLOOR))
        elif epsilon == 0.0 or plan.chernoff > _log(known):
            values.append(_delta_of(parts, plan, levels, known if epsilon > 0.0 else -math.inf))
    combined = min if epsilon == 0.0 else max
    return min(most, combined(values, default=0.0))


def _delta_of(parts: Parts, plan: Plan, levels: int, enough: float) -> float:
    """Delta of one direction; where it lies below the plan's own allowance for tails, with smaller ones."""
    value, epsilon = 1.0, plan.epsilon
    for _ in range(_MAX_PLANS):
        found = _refined(parts, plan, lambda curve: _read_delta(curve, epsilon), 1e-300, levels, enough)
        value = min(value, found)
        if value <= enough or not LOG_FLOOR < _log(value) < plan.log_delta:
            break
        plan = plan_for_epsilon(parts, epsilon, _log(value))
    return max(value, math.exp(LOG_FLOOR))
