"""Phi on counts that carry noise already: its value, the bias that the noise makes, and an interval in spite of it.

>>> from sfumato.accounting.discrete_gaussian_sums import sum_law
>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import all_points
>>> reference, plan = Reference.from_probabilities([0.5, 0.3, 0.2]), EstimatorPlan(Floor("mix", 0.1), 0.0)
>>> where = all_points(reference)
>>> round(evaluate_noisy([302, 297, 408], 1000, where, reference, plan), 4)
0.0909
>>> round(noise_bias([300, 300, 400], 1000, where, reference, plan, sum_law(2.0, 10)), 5)
0.00016
>>> low, high = value_interval([302, 297, 408], 1000, where, reference, plan, 2.0 * 10**0.5, 0.95)
>>> round(low, 3), round(high, 3)
(0.051, 0.132)

The logarithm's curvature turns noise into bias, up where counts are small beside the noise and down where a count is cut
at 0 or its ratio at the floor. Everything here is a function of the noisy counts and of public numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from sfumato.accounting.discrete_gaussian_sums import IntegerLaw
from sfumato.accounting.numeric import find_root, minimum
from sfumato.divergence.plan import (
    EstimatorPlan,
    Vector,
    array_of,
    floored_ratio,
    phi,
    require_examples,
    require_number,
)
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.errors import SfumatoError

MAX_INTERVAL_POINTS = 10_000
_PIECES = 400
_LARGEST_COUNT = 2**52


def noisy_ratios(counts: ArrayLike, examples: int, points: PublicPoints, reference: Reference) -> Vector:
    """P(x) / Pi(x) of noisy counts, which are first brought back to what counts can be, 0 to N.

    Args:
        counts: (..., k), of integers with noise.
        examples: N.
        points: the k public points.
        reference: Pi.

    Returns:
        (..., k) float64, at least 0.
    """
    own = np.clip(np.asarray(counts, np.float64), 0.0, float(examples))
    return np.asarray(own / (examples * reference.probabilities[points.cells]), np.float64)


def checked_counts(
    counts: ArrayLike, examples: int, points: PublicPoints, reference: Reference, plan: EstimatorPlan
) -> Vector:
    """(k,) float64 of integer counts with noise.

    Raises:
        SfumatoError: if there is no floor, N is too small, or the arrays do not fit.
    """
    require_examples(examples)
    points.check_within(reference)
    _ = plan.required_floor
    own = array_of("noisy counts", counts)
    if own.shape != (points.count,) or own.dtype.kind not in "iu":
        raise SfumatoError(
            f"noisy counts are {own.dtype} of shape {own.shape}; allowed is one integer per point, ({points.count},)."
        )
    if bool(np.any(np.abs(own.astype(np.float64)) > _LARGEST_COUNT)):
        raise SfumatoError(f"a noisy count is beyond {_LARGEST_COUNT}; allowed are integers up to there.")
    return own.astype(np.float64)


def evaluate_noisy(
    counts: ArrayLike, examples: int, points: PublicPoints, reference: Reference, plan: EstimatorPlan
) -> float:
    """The weighted mean of Phi over the points, from the noisy sum: post-processing, which costs nothing.

    Args:
        counts: (k,) integers, the noisy sum.
        examples: N of the clients in the sum.
        points: the public points.
        reference: Pi.
        plan: floor and lambda.

    Raises:
        SfumatoError: if there is no floor, or the arrays do not fit.
    """
    own = checked_counts(counts, examples, points, reference, plan)
    return float(points.weights @ plan.values(noisy_ratios(own, examples, points, reference)))


def noise_bias(
    counts: ArrayLike,
    examples: int,
    points: PublicPoints,
    reference: Reference,
    plan: EstimatorPlan,
    law: IntegerLaw,
) -> float:
    """What the noise before Phi shifts the estimate by on average, E Phi(c + Z) - Phi(c), summed over the law of Z.

    To second order it is (1/2) sum_x w_x (1 - gamma)^2 s^2 / (N Pi(x) r~(x))^2 for the mixed ratio r~ and noise of
    standard deviation s, which the logarithm's curvature gives; the exact sum also knows the cuts at 0 and N.

    Args:
        counts: (k,) integers without noise for the true bias, which is private; the noisy sum, cut to 0..N, for an
            estimate of it that costs nothing.
        examples: N.
        points: the public points.
        reference: Pi.
        plan: floor and lambda.
        law: of the noise of the sum, as ``sfumato.accounting.discrete_gaussian_sums.sum_law`` gives.

    Raises:
        SfumatoError: as ``evaluate_noisy``.
    """
    own = np.clip(checked_counts(counts, examples, points, reference, plan), 0.0, float(examples))
    clean = plan.values(noisy_ratios(own, examples, points, reference))
    probabilities = reference.probabilities[points.cells]
    total = 0.0
    for count, mass, weight, value in zip(own, probabilities, points.weights, clean, strict=True):
        moved = np.clip(count + law.values, 0.0, float(examples)) / (examples * mass)
        total += float(weight) * (float(law.probabilities @ plan.values(moved)) - float(value))
    return total


def noise_radius(noise_std: float, coordinates: int, confidence: float) -> float:
    """A radius that the Euclidean norm of the noise of all counts exceeds with probability at most 1 - confidence.

    The sum of discrete Gaussians is sub-Gaussian with parameter s = ``noise_std``, so that E exp(t Z^2) is at most
    (1 - 2 t s^2)^(-1/2), and Chernoff's bound is P(|Z|^2 > u k s^2) <= exp(-(k / 2)(u - 1 - ln u)) for u > 1.

    Args:
        noise_std: s.
        coordinates: k.
        confidence: above 0 and below 1.
    """
    excess = -2.0 * math.log1p(-confidence) / coordinates
    log_u = find_root(lambda x: math.expm1(x) - x - excess, 0.0, math.log(2.0 + 2.0 * excess) + 1.0, 1e-12)
    return noise_std * math.sqrt(coordinates * math.exp(log_u)) * (1.0 + 1e-9)


def value_interval(
    counts: ArrayLike,
    examples: int,
    points: PublicPoints,
    reference: Reference,
    plan: EstimatorPlan,
    noise_std: float,
    confidence: float,
) -> tuple[float, float]:
    """An interval for what Phi's mean would be without noise, valid for every N and every true count.

    The true counts lie in a ball around the noisy ones. The largest Phi in it is bounded by Lagrange's weak duality, for
    any mu > 0: max <= mu R^2 + sum_x max_c (w_x Phi_x(c) - mu (c - noisy_x)^2), one dimension at a time on pieces
    whose ends bound Phi, which falls and then rises; likewise the smallest. mu only decides how tight it is.

    Args:
        counts: (k,) integers, the noisy sum.
        examples: N.
        points: the public points, up to ``MAX_INTERVAL_POINTS``.
        reference: Pi.
        plan: floor and lambda.
        noise_std: s of the sum, or a bound on it.
        confidence: the least probability that the interval holds the value, over the noise.

    Returns:
        (low, high) in nats; the value is that of the same points, so their sampling is not in it.

    Raises:
        SfumatoError: as ``evaluate_noisy``, or if the confidence or the number of points is not allowed.
    """
    own = checked_counts(counts, examples, points, reference, plan)
    check_confidence(confidence)
    require_points(points.count)
    radius = noise_radius(noise_std, points.count, confidence)
    low = np.clip(own - radius, 0.0, float(examples))
    high = np.clip(own + radius, 0.0, float(examples))
    edges = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _PIECES + 1)
    left, right = edges[:, :-1], edges[:, 1:]
    distance = np.maximum(0.0, np.maximum(left - own[:, None], own[:, None] - right))
    # A noisy count that lies farther from all counts than the ball reaches must not make its point cost more than that.
    squares = np.minimum(distance, radius) ** 2
    upper, lower = _piece_bounds(edges, examples, points, reference, plan)
    weights = points.weights[:, None]
    return -_dual_bound(-weights * lower, squares, radius), _dual_bound(weights * upper, squares, radius)


def require_points(count: int) -> None:
    """Refuse more points than an interval is computed for.

    Raises:
        SfumatoError: if they are more than ``MAX_INTERVAL_POINTS``.
    """
    if count > MAX_INTERVAL_POINTS:
        raise SfumatoError(
            f"points are {count}; allowed are at most {MAX_INTERVAL_POINTS} where clients add the noise."
        )


def _dual_bound(values: Vector, squares: Vector, radius: float) -> float:
    """A bound on the largest sum over points of one value each, the squares of which sum to at most radius^2.

    Args:
        values: (k, pieces), the largest value on each piece.
        squares: (k, pieces), the least square of the distance on each piece.
        radius: R.
    """
    spread = float((values.max(axis=1) - values.min(axis=1)).sum())
    if spread <= 0.0:
        return float(values[:, 0].sum())

    def bound(log_mu: float) -> float:
        mu = math.exp(log_mu)
        return mu * radius**2 + float(np.max(values - mu * squares, axis=1).sum())

    center = math.log(spread / radius**2)
    return minimum(bound, center - 25.0, center + 5.0)[1]


def check_confidence(confidence: object) -> None:
    """Refuse what is no confidence.

    Raises:
        SfumatoError: unless it is a number above 0 and below 1.
    """
    # A little beyond what can be announced, as half of the misses of an announced one go to the noise.
    require_number("confidence", confidence, 1e-9, 1.0 - 1e-13)


def _piece_bounds(
    edges: Vector, examples: int, points: PublicPoints, reference: Reference, plan: EstimatorPlan
) -> tuple[Vector, Vector]:
    """(largest, smallest) Phi on every piece between neighbouring counts, both (k, pieces)."""
    ratios = floored_ratio(noisy_ratios(edges.T, examples, points, reference).T, plan.floor)
    ends = phi(ratios, plan.coefficient)
    bottom = math.inf if plan.coefficient == 0.0 else 1.0 / plan.coefficient
    least = phi(np.clip(bottom, ratios[:, :-1], ratios[:, 1:]), plan.coefficient)
    return np.maximum(ends[:, :-1], ends[:, 1:]), least
