"""Intervals around a noisy estimate: privacy noise exactly, sampling of the points by a bound from public numbers.

>>> from sfumato.divergence.plan import Floor
>>> bound = variance_bound(EstimatorPlan(Floor("mix", 0.1), 0.0), smallest=0.01)
>>> [round(bound.at(target), 3) for target in (0.0, 0.1, 1.0)]
[0.0, 0.377, 2.385]

The ratio r has mean 1 under Pi, whatever the population is, and lies in a public range. Among all laws of such a ratio
with E Phi = T, the largest E Phi^2 is G(T) = min over nu, mu of nu T + sup_r [Phi^2 - nu Phi - mu (r - 1)] by duality of
moment problems, and any nu and mu give an upper bound. So Var Phi <= V(T) = G(T) - T^2. Mixed, the range itself follows
from T: a cell of mass pi with ratio r leaves the others a mean of (1 - pi r) / (1 - pi), so that by Jensen's inequality
-pi ln r - (1 - pi) ln((1 - pi r) / (1 - pi)) <= T; the left side grows with pi, so pi_min gives the widest range.

V(0) = 0, as a divergence of 0 leaves nothing that could vary; an interval therefore holds each T that would not make the
value a surprise (as Wilson's does for proportions), and is narrow where the divergence is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.divergence.plan import (
    EstimatorPlan,
    Floor,
    Vector,
    floored_ratio,
    least_phi,
    phi,
    require_between,
)

Sampling = Literal["none", "public_bound", "budget_share"]
Tail = Literal["normal", "guaranteed"]

_POINTS, _SLOPES, _HALVINGS, _BINS = 250, 65, 36, 32


@dataclass(frozen=True)
class Bounds:
    """An interval, or the range in which a target lies."""

    low: float
    high: float

    def clip(self, value: float) -> float:
        """The nearest value inside."""
        return min(max(value, self.low), self.high)


@dataclass(frozen=True, eq=False)
class VarianceBound:
    """V(T), an upper bound of Var Phi for every population with E Phi = T.

    Attributes:
        ends: (b,) ascending, the largest T of each bin; the last one is the largest there is.
        slopes: (b, s) nu of the lines whose minimum bounds E Phi^2 in a bin and below it.
        offsets: (b, s) their values at T = 0.
    """

    ends: Vector
    slopes: Vector
    offsets: Vector

    def at(self, target: float) -> float:
        """V(T), at least 0."""
        number = min(int(np.searchsorted(self.ends, target)), len(self.ends) - 1)
        return min(self._in_bin(number, target), self.of_mean(target))

    def of_mean(self, target: float) -> float:
        """A concave bound above V: of the mean variance of several populations whose mean of T is this."""
        return self._in_bin(len(self.ends) - 1, target)

    @property
    def concave(self) -> VarianceBound:
        """``of_mean`` as a bound of its own."""
        return VarianceBound(self.ends[-1:], self.slopes[-1:], self.offsets[-1:])

    def largest(self, targets: Bounds) -> float:
        """The largest V of the range."""
        grid = np.linspace(targets.low, targets.high, 1001)
        # Between two points of the grid a line rises by at most its slope times their distance.
        slack = float(np.abs(self.slopes[-1]).max()) * (targets.high - targets.low) / 1000.0
        return max(self.of_mean(target) for target in grid.tolist()) + slack

    def _in_bin(self, number: int, target: float) -> float:
        highest = float((self.offsets[number] + self.slopes[number] * target).min())
        return max(0.0, highest - target * target)


def value_reach(plan: EstimatorPlan, smallest: float) -> float:
    """The largest distance between two values of Phi that a population can have, for Bernstein's inequality.

    Args:
        plan: with a floor.
        smallest: pi_min of the reference.

    Raises:
        SfumatoError: if there is no floor.
    """
    value = plan.values(_grid(plan, 1.0 / smallest))
    _ = plan.required_floor
    return float(value.max() - value.min())


def target_range(plan: EstimatorPlan, smallest: float) -> Bounds:
    """Where E_Pi Phi of the floored ratio lies for every population (Section 4.2).

    Mixed it is a divergence, so from 0 to -ln gamma. Clipped it lies between the least and the largest value of Phi.

    Args:
        plan: with a floor.
        smallest: pi_min of the reference.

    Raises:
        SfumatoError: if there is no floor.
    """
    floor = plan.required_floor
    if floor.kind == "mix":
        return Bounds(0.0, -math.log(floor.level))
    highest = float(floored_ratio(1.0 / smallest, floor))
    least = least_phi(plan.coefficient, highest)
    if plan.coefficient * floor.level > 1.0:
        least = float(phi(floor.level, plan.coefficient))
    return Bounds(least, float(max(phi(floor.level, plan.coefficient), phi(highest, plan.coefficient))))


def clipped_value(value: float, plan: EstimatorPlan, smallest: float) -> float:
    """The value cut to where its target lies, as its interval is.

    A floor that mixes makes that a divergence, never below 0. One that clips does not: the target, and so the result,
    can be negative there. Who reports it as a divergence may cut it at 0.

    Args:
        value: in nats.
        plan: with a floor.
        smallest: pi_min of the reference.

    Raises:
        SfumatoError: if there is no floor.
    """
    return target_range(plan, smallest).clip(value)


@lru_cache(maxsize=64)
def variance_bound(plan: EstimatorPlan, smallest: float) -> VarianceBound:
    """V of a plan and a reference, from public numbers alone.

    Between two points of a grid at distance h a smooth function is at most h^2 / 8 times its largest curvature above the
    higher of both, which is added: the result is an upper bound, not an approximation. The grid is dense around r = 1,
    where the bound touches.

    Args:
        plan: with a floor.
        smallest: pi_min of the reference.

    Raises:
        SfumatoError: if there is no floor.
    """
    floor, targets = plan.required_floor, target_range(plan, smallest)
    ratio = _grid(plan, 1.0 / smallest)
    seen = floored_ratio(ratio, floor)
    value = phi(seen, plan.coefficient)
    ends = np.array([targets.high])
    if floor.kind == "mix":
        ends = targets.high * np.geomspace(1e-6, 1.0, _BINS)
        least = _least_target(seen, smallest)
    else:
        least = np.zeros_like(seen)
    bend = _bend(ratio, seen, floor)
    lines = [_lines(ratio, value, bend, _span(least, float(end))) for end in ends]
    return VarianceBound(
        ends, np.stack([slopes for slopes, _ in lines]), np.stack([high for _, high in lines])
    )


def _least_target(ratio: Vector, mass: float) -> Vector:
    """The least T of any population in which a cell of that mass has that mixed ratio."""
    others = np.maximum(1.0 - mass * ratio, 0.0) / (1.0 - mass)
    with np.errstate(divide="ignore"):
        return -mass * np.log(ratio) - (1.0 - mass) * np.log(others)


def _span(least: Vector, target: float) -> slice:
    """The points whose ratio some population of at most this T can have, and one more at either end."""
    allowed = np.flatnonzero(least <= target)
    return slice(max(int(allowed[0]) - 1, 0), int(allowed[-1]) + 2)


def _bend(ratio: Vector, seen: Vector, floor: Floor) -> Vector:
    """(g - 1,) h^2 / 8 times the largest second derivative of -ln of the floored ratio between two points."""
    slope = 1.0 - floor.level if floor.kind == "mix" else 1.0
    return np.asarray(np.square(slope * np.diff(ratio) / seen[:-1]) / 8.0, np.float64)


def _lines(ratio: Vector, value: Vector, bend: Vector, span: slice) -> tuple[Vector, Vector]:
    """(s,) slopes and offsets of the lines above E Phi^2 for ratios of the span."""
    own, inner = value[span], bend[span.start : span.stop - 1]
    size = np.abs(own)
    reach = float(size.max())
    slopes = np.linspace(-4.0 * reach, 4.0 * reach + 4.0, _SLOPES)[:, None]
    # The concave part of Phi^2 - nu Phi has a curvature of at most (|nu| + 2 |Phi|) Phi''.
    extra = (np.abs(slopes) + 2.0 * np.maximum(size[:-1], size[1:])) * inner
    none = np.zeros_like(slopes)
    near = np.maximum(np.hstack([none, extra]), np.hstack([extra, none]))
    return slopes[:, 0], _largest(ratio[span], own**2 - slopes * own + near)


def _grid(plan: EstimatorPlan, highest: float) -> Vector:
    floor = plan.required_floor
    kinks = [0.0, 1.0, highest]
    inner = math.inf if plan.coefficient == 0 else 1.0 / plan.coefficient
    if floor.kind == "mix":
        kinks.append((inner - floor.level) / (1.0 - floor.level))
    else:
        kinks += [inner, floor.level, math.inf if floor.ceiling is None else floor.ceiling]
    parts = (
        np.geomspace(1e-3 * floor.level, 1.0, _POINTS),
        1.0 - np.geomspace(1e-9, 1.0, _POINTS),
        1.0 + np.geomspace(1e-9, highest - 1.0, _POINTS),
        np.array([kink for kink in kinks if 0.0 <= kink <= highest]),
    )
    return np.unique(np.clip(np.concatenate(parts), 0.0, highest))


def _largest(ratio: Vector, value: Vector) -> Vector:
    """(s,) upper bounds of E[value] over all laws of a ratio with mean 1, by bisection on mu.

    They are the heights at 1 of the concave hulls of (s, g) values over (g,) ratios that reach below and above 1.
    """
    away: Vector = ratio - 1.0
    spread: Vector = value.max(axis=1) - value.min(axis=1) + 1e-300
    low: Vector = -spread / away[-1]
    high: Vector = -spread / away[0]
    best: Vector = np.full(len(value), math.inf)
    for _ in range(_HALVINGS):
        middle: Vector = 0.5 * (low + high)
        lines: Vector = value - middle[:, None] * away
        above: NDArray[np.bool_] = away[lines.argmax(axis=1)] > 0.0
        best = np.minimum(best, lines.max(axis=1))
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return best


def normal_quantile_of(confidence: float) -> float:
    """The z of a two-sided interval.

    Raises:
        SfumatoError: if the confidence is out of its range.
    """
    from scipy.special import ndtri

    require_between("confidence", confidence, 0.0, 1.0)
    return float(ndtri(0.5 + confidence / 2.0))


def student_quantile(confidence: float, freedom: int) -> float:
    """The quantile of Student's t for a two-sided interval.

    Args:
        confidence: between 0 and 1.
        freedom: degrees of freedom, at least 1.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2.0))


def fixed_interval(value: float, half_width: float, targets: Bounds) -> Bounds:
    """The value, give or take, cut to where the target lies: this costs no coverage."""
    return Bounds(targets.clip(value - half_width), targets.clip(value + half_width))


def inverted_interval(
    value: float,
    noise_std: float,
    draws: int,
    bound: VarianceBound,
    targets: Bounds,
    confidence: float,
    rounding: float,
    reach: float | None = None,
) -> Bounds:
    """Every T of the range that the value does not contradict, and what lies between these and the nearest T to it.

    Without ``reach`` the mean over m points is taken as normal with the largest variance that a population of this T can
    have: |value - T| <= z sqrt(V(T) / m + sigma^2). With few points and a target carried by a rare cell that covers
    less often than it says. With ``reach`` nothing is taken as normal but the noise: half of what may be missed goes
    to it, and nothing where there is none; the rest to the smaller of Cantelli's and Bernstein's deviations of the mean,
    each to one side, so that one end by itself misses with at most half of what both together may.

    V jumps between its bins, so the accepted T need not be one piece; the farthest is found exactly, since within a bin
    each line above V makes the condition a quadratic inequality.

    Args:
        value: the noisy estimate.
        noise_std: sigma of the privacy noise.
        draws: m, over all batches.
        bound: V; its ``concave`` for a mean over several populations.
        targets: where T lies.
        confidence: between 0 and 1.
        rounding: of the value, at most.
        reach: the largest distance between two values of Phi, for an interval that is guaranteed.
    """
    missed = 1.0 - confidence
    z = normal_quantile_of(confidence if reach is None else 1.0 - missed / 2.0)
    noise = z * noise_std + rounding
    if reach is None:
        limits = [_Limit(rounding, 0.0, z**2 / draws, (z * noise_std) ** 2)]
    else:
        part = missed / 2.0 if noise_std > 0.0 else missed
        log_level = math.log(2.0 / part)
        linear = reach * log_level / (3.0 * draws)
        limits = [
            _Limit(noise, 0.0, (2.0 / part - 1.0) / draws, 0.0),
            _Limit(noise, linear, 2.0 * log_level / draws, 0.0),
        ]
    nearest = targets.clip(value)
    down, up = (_farthest(nearest, value, side, bound, targets, limits, noise) for side in (-1.0, 1.0))
    return Bounds(targets.clip(nearest - down), targets.clip(nearest + up))


@dataclass(frozen=True)
class _Limit:
    """How far T may lie from a value: d^2 - 2 linear d <= scale V(T) + constant for d = |value - T| - exempt >= 0."""

    exempt: float
    linear: float
    scale: float
    constant: float

    def allowed(
        self, nearest: float, gap: float, side: float, slopes: Vector, offsets: Vector
    ) -> tuple[Vector, Vector]:
        """(b,) least and largest u = side (T - nearest) that none of a bin's (b, s) lines forbids, at u + gap from the value.

        Where every u is forbidden the least is above the largest. The least line is V(T) + T^2.
        """
        start = gap - self.exempt
        half = start - self.linear - self.scale * side * (slopes / 2.0 - nearest)
        parts = (start**2, -2.0 * self.linear * start, -self.constant, self.scale * nearest**2)
        end = sum(parts) - self.scale * (offsets + slopes * nearest)
        # Rounded outwards, by what float64 can lose.
        size = sum(map(abs, parts)) + self.scale * (np.abs(offsets) + np.abs(slopes * nearest))
        by = 1.0 + self.scale
        square = half**2 - by * end + 1e-14 * (half**2 + by * size)
        root = np.where(square < 0.0, -math.inf, np.sqrt(np.abs(square)))
        return ((-half - root) / by).max(axis=1), ((-half + root) / by).min(axis=1)


def _farthest(
    nearest: float,
    value: float,
    side: float,
    bound: VarianceBound,
    targets: Bounds,
    limits: Sequence[_Limit],
    noise: float,
) -> float:
    """How far from ``nearest`` the farthest T on one side lies that noise alone, or all limits together, allow."""
    gap = side * (nearest - value)
    edges = side * (np.concatenate([[targets.low], bound.ends]) - nearest)
    first = np.maximum(np.minimum(edges[:-1], edges[1:]), noise - gap)
    last = np.maximum(edges[:-1], edges[1:])
    slopes, offsets = (
        np.hstack([own, np.broadcast_to(own[-1], own.shape)]) for own in (bound.slopes, bound.offsets)
    )
    for limit in limits:
        least, largest = limit.allowed(nearest, gap, side, slopes, offsets)
        first, last = np.maximum(first, least), np.minimum(last, largest)
    return max(0.0, noise - gap, float(last[first <= last].max(initial=0.0)))
