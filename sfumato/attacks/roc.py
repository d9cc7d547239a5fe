"""Exact ROC curves of membership scores, their operating points, and what a guarantee allows beside them.

>>> curve = roc_curve(np.array([3.0, 2.0, 2.0]), np.array([2.0, 1.0, 0.0]))
>>> [float(rate) for rate in curve.fpr], [round(float(rate), 3) for rate in curve.tpr]
([0.0, 0.0, 0.3333333333333333, 0.6666666666666666, 1.0], [0.0, 0.333, 1.0, 1.0, 1.0])
>>> round(auc(curve), 4)
0.8889

A score is a number that is larger for a likelier member, and an attack at threshold t says "member"
for every score of at least t. All members above a tied score move together, so a curve has one vertex
per distinct score and nothing between vertices is ever claimed as reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

special = cast(Any, _special)


@dataclass(frozen=True, eq=False)
class RocCurve:
    """The vertices of an ROC curve, from "nobody is a member" to "everybody is".

    Attributes:
        thresholds: float64, decreasing, the first is +inf.
        true_positives: int64, members whose score is at least the threshold.
        false_positives: int64, non-members whose score is at least the threshold.
        members: number of member scores.
        nonmembers: number of non-member scores.
    """

    thresholds: FloatArray
    true_positives: IntArray
    false_positives: IntArray
    members: int
    nonmembers: int

    @property
    def tpr(self) -> FloatArray:
        """True-positive rates at the vertices."""
        return self.true_positives / self.members

    @property
    def fpr(self) -> FloatArray:
        """False-positive rates at the vertices."""
        return self.false_positives / self.nonmembers


@dataclass(frozen=True)
class OperatingPoint:
    """The true-positive rate of an attack at a wanted false-positive rate.

    Attributes:
        target_fpr: the wanted false-positive rate.
        fpr: the reached one, the largest of a vertex that is not above the wanted one. It is 0 when there
            are fewer than 1 / target_fpr non-members.
        tpr: the true-positive rate there.
        tpr_low: lower end of the Clopper-Pearson interval of ``tpr``.
        tpr_high: upper end.
        confidence: its two-sided level.
        threshold: the score at and above which a member is claimed.
    """

    target_fpr: float
    fpr: float
    tpr: float
    tpr_low: float
    tpr_high: float
    confidence: float
    threshold: float


@dataclass(frozen=True)
class EpsilonBound:
    """A lower bound of epsilon from one threshold's true- and false-positive rate.

    Attributes:
        epsilon_lower: no (epsilon, delta) mechanism with a smaller epsilon is compatible, at ``confidence``.
        delta: the delta it is stated for.
        confidence: joint level of both rates' bounds.
        threshold: chosen on one half of the scores.
        tpr_low: lower bound of the true-positive rate on the other half.
        fpr_high: upper bound of the false-positive rate on the other half.
        members: member scores of the evaluated half.
        nonmembers: non-member scores of the evaluated half.
    """

    epsilon_lower: float
    delta: float
    confidence: float
    threshold: float
    tpr_low: float
    fpr_high: float
    members: int
    nonmembers: int


def check_scores(name: str, values: ArrayLike) -> FloatArray:
    """The values as a float64 vector.

    Raises:
        SfumatoError: if they are not a non-empty vector of finite numbers.
    """
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or scores.size == 0:
        raise SfumatoError(f"{name} has shape {scores.shape}; allowed is a vector with at least one entry.")
    broken = np.flatnonzero(~np.isfinite(scores))
    if broken.size:
        raise SfumatoError(f"{name}[{broken[0]}] is {scores[broken[0]]}; allowed are finite numbers.")
    return scores


def check_fraction(name: str, value: float, *, zero: bool = False) -> float:
    """The value, if it lies in (0, 1), or in [0, 1) with ``zero``.

    Raises:
        SfumatoError: otherwise.
    """
    if not ((0.0 < value < 1.0) or (zero and value == 0.0)):
        raise SfumatoError(f"{name} is {value}; allowed is a number in {'[' if zero else '('}0, 1).")
    return float(value)


def clopper_pearson(
    successes: int | IntArray, trials: int, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Two-sided Clopper-Pearson interval of a binomial rate; each end alone has level (1 + confidence) / 2.

    Args:
        successes: one count or an int64 array of counts.
        trials: number of independent trials, at least 1.
        confidence: two-sided level in (0, 1).

    Returns:
        Lower and upper ends, float64, in the shape of ``successes``.

    Raises:
        SfumatoError: if a count lies outside of 0..trials or the level outside of (0, 1).
    """
    tail = (1.0 - check_fraction("confidence", confidence)) / 2.0
    count = np.asarray(successes, dtype=np.float64)
    if trials < 1 or count.size == 0 or float(count.min()) < 0 or float(count.max()) > trials:
        raise SfumatoError(f"successes are {successes} of {trials}; allowed are 0..trials, trials >= 1.")
    inverse = special.betaincinv
    low = np.where(count == 0, 0.0, inverse(np.maximum(count, 1), trials - count + 1, tail))
    high = np.where(count == trials, 1.0, inverse(count + 1, np.maximum(trials - count, 1), 1.0 - tail))
    return cast(FloatArray, low), cast(FloatArray, high)


def binomial_tail(successes: int, trials: int, rate: float) -> float:
    """P[Binomial(trials, rate) >= successes], for successes of at least 1, accurate far out in the tail."""
    return float(special.betainc(successes, trials - successes + 1, rate))


def log_factorial(count: ArrayLike) -> FloatArray:
    """log(count!), float64."""
    return cast(FloatArray, special.gammaln(np.asarray(count, np.float64) + 1.0))


def roc_curve(member_scores: ArrayLike, nonmember_scores: ArrayLike) -> RocCurve:
    """The exact ROC curve: one vertex per distinct score, and (0, 0).

    Args:
        member_scores: vector, larger means likelier a member.
        nonmember_scores: vector of the scores of non-members.

    Returns:
        The curve, vertices ordered by decreasing threshold.

    Raises:
        SfumatoError: if a vector is empty or holds a number that is not finite.
    """
    members = check_scores("member_scores", member_scores)
    nonmembers = check_scores("nonmember_scores", nonmember_scores)
    values, place = np.unique(np.concatenate([members, nonmembers]), return_inverse=True)
    inside = np.bincount(place[: members.size], minlength=values.size)[::-1]
    outside = np.bincount(place[members.size :], minlength=values.size)[::-1]
    zero = np.zeros(1, np.int64)
    return RocCurve(
        thresholds=np.concatenate([[np.inf], values[::-1]]),
        true_positives=np.concatenate([zero, np.cumsum(inside)]).astype(np.int64),
        false_positives=np.concatenate([zero, np.cumsum(outside)]).astype(np.int64),
        members=int(members.size),
        nonmembers=int(nonmembers.size),
    )


def auc(curve: RocCurve) -> float:
    """Area under the curve: P(member's score > non-member's) + P(equal) / 2, from exact integer counts."""
    rise = curve.true_positives[1:] + curve.true_positives[:-1]
    doubled = int(np.sum(np.diff(curve.false_positives) * rise))
    return doubled / (2 * curve.members * curve.nonmembers)


def advantage(curve: RocCurve) -> float:
    """The largest true-positive minus false-positive rate over all thresholds (Yeom et al. 2018)."""
    return float(np.max(curve.tpr - curve.fpr))


def tpr_at_fpr(curve: RocCurve, target_fpr: float, confidence: float = 0.95) -> OperatingPoint:
    """The true-positive rate at the highest vertex whose false-positive rate is at most the target.

    Members counted are those above the first non-member that would break the target, so the cut depends on
    the non-members only; given them the count is binomial, and the interval exact for independent scores.
    It does not cover the error of the reached false-positive rate itself.

    Args:
        curve: an ROC curve.
        target_fpr: in (0, 1), for example 0.001.
        confidence: two-sided level of the interval.

    Raises:
        SfumatoError: if the target or the level lies outside of (0, 1).
    """
    check_fraction("target_fpr", target_fpr)
    allowed = int(np.floor(target_fpr * curve.nonmembers * (1.0 + 1e-12)))
    vertex = int(np.searchsorted(curve.false_positives, allowed, side="right")) - 1
    count = int(curve.true_positives[vertex])
    low, high = clopper_pearson(count, curve.members, confidence)
    return OperatingPoint(
        target_fpr=target_fpr,
        fpr=float(curve.fpr[vertex]),
        tpr=count / curve.members,
        tpr_low=float(low),
        tpr_high=float(high),
        confidence=confidence,
        threshold=float(curve.thresholds[vertex]),
    )


def thin(curve: RocCurve, points: int = 200) -> tuple[FloatArray, FloatArray]:
    """At most ``points`` true vertices of the curve, spread for both log-log and linear axes.

    Half of the wanted false-positive rates are log-spaced from 1 / nonmembers to 1, the other half
    linear; for each the highest vertex not above it is kept, so no interpolated point is drawn. The
    first vertex is the highest one without a false positive, the last is (1, 1).

    Returns:
        ``(fpr, tpr)``, float64, both increasing.

    Raises:
        SfumatoError: if fewer than 4 points are asked for.
    """
    if points < 4:
        raise SfumatoError(f"points is {points}; allowed is at least 4.")
    half = (points - 1) // 2
    grid = np.concatenate(
        [np.geomspace(1.0, curve.nonmembers, half), np.linspace(0.0, curve.nonmembers, points - half)]
    )
    allowed = np.floor(grid * (1.0 + 1e-12)).astype(np.int64)
    vertices = np.unique(np.searchsorted(curve.false_positives, allowed, side="right") - 1)
    return curve.fpr[vertices], curve.tpr[vertices]


def tpr_bound(fpr: ArrayLike, epsilon: float | Sequence[float], delta: float | Sequence[float]) -> FloatArray:
    """The largest true-positive rate that an (epsilon, delta) mechanism allows at a false-positive rate.

    Both inequalities of the definition hold (Kairouz et al. 2015; Section 2 of Dong et al. 2022):
    TPR <= e^epsilon FPR + delta, and 1 - FPR <= e^epsilon (1 - TPR) + delta.

    Args:
        fpr: false-positive rates in [0, 1], any shape.
        epsilon: one epsilon of at least 0, or several points of a privacy curve.
        delta: the delta of each epsilon, in [0, 1]. Several points give the smallest bound over them,
            which is closer to the mechanism's true trade-off.

    Returns:
        float64 in the shape of ``fpr``.

    Raises:
        SfumatoError: if an argument lies outside of its range or the lengths differ.
    """
    rate = np.asarray(fpr, dtype=np.float64)
    eps, dlt = np.atleast_1d(np.asarray(epsilon, np.float64)), np.atleast_1d(np.asarray(delta, np.float64))
    if eps.ndim != 1 or eps.shape != dlt.shape or eps.size == 0:
        raise SfumatoError(f"epsilon has shape {eps.shape} and delta {dlt.shape}; allowed are equal lengths.")
    if not (bool(np.all(eps >= 0.0)) and bool(np.all((dlt >= 0.0) & (dlt <= 1.0)))):
        raise SfumatoError(f"epsilon is {epsilon}, delta {delta}; allowed are epsilon >= 0, 0 <= delta <= 1.")
    if not bool(np.all((rate >= 0.0) & (rate <= 1.0))):
        raise SfumatoError(f"fpr is {fpr}; allowed are rates from 0 to 1.")
    wide = rate[..., None]
    # e^epsilon FPR as a capped exponential, so that a huge epsilon gives 1 and never inf * 0.
    with np.errstate(divide="ignore"):
        first = np.exp(np.minimum(eps + np.log(wide), 0.0)) + dlt
    second = 1.0 - np.exp(-eps) * np.maximum(1.0 - dlt - wide, 0.0)
    return np.minimum(np.minimum(first, second), 1.0).min(axis=-1)


def epsilon_of_rates(tpr_low: ArrayLike, fpr_high: ArrayLike, delta: float) -> FloatArray:
    """The smallest epsilon >= 0 that allows a true-positive rate of ``tpr_low`` at ``fpr_high``.

    The larger of log((TPR - delta) / FPR) and log((1 - FPR - delta) / (1 - TPR)); 0 where neither binds.
    """
    tpr, fpr = np.asarray(tpr_low, np.float64), np.asarray(fpr_high, np.float64)

    def log_ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(top > 0.0, np.log(np.maximum(top, 0.0)) - np.log(bottom), 0.0)

    found = np.maximum(log_ratio(tpr - delta, fpr), log_ratio(1.0 - fpr - delta, 1.0 - tpr))
    return np.maximum(found, 0.0)


def epsilon_lower_bound(
    member_scores: ArrayLike,
    nonmember_scores: ArrayLike,
    delta: float,
    stream: RandomStream,
    confidence: float = 0.95,
) -> EpsilonBound:
    """A lower bound of epsilon from a threshold attack, threshold chosen and judged on different scores.

    The scores are halved at random. On one half every threshold is tried and the one with the largest
    bound kept; on the other half the true-positive rate is bounded from below and the false-positive rate
    from above by Clopper-Pearson, jointly at ``confidence`` (each at (1 + confidence) / 2), and both
    inequalities of the definition are used, which need no further correction as they share that event.

    Guarantee:
        The true epsilon at ``delta`` is at least ``epsilon_lower`` with probability ``confidence``, if the
        scores are independent trials of one and the same pair of neighbouring data sets (for instance
        one score per trained model). Scores of many examples of *one* model are not; for these the figure is
        a summary that treats them as independent, and the one-run audit (``audit.py``) is the bound.

    Args:
        member_scores: vector of at least 2, larger means likelier a member.
        nonmember_scores: vector of at least 2.
        delta: in [0, 1).
        stream: halves the scores.
        confidence: in (0, 1).

    Raises:
        SfumatoError: if fewer than 2 scores of a kind are given, or a number is out of its range.
    """
    members = check_scores("member_scores", member_scores)
    nonmembers = check_scores("nonmember_scores", nonmember_scores)
    check_fraction("delta", delta, zero=True)
    if members.size < 2 or nonmembers.size < 2:
        raise SfumatoError(
            f"there are {members.size} and {nonmembers.size} scores; allowed are at least 2 each."
        )
    members, nonmembers = (
        members[stream.permutation(members.size)],
        nonmembers[stream.permutation(nonmembers.size)],
    )
    cut_in, cut_out = members.size // 2, nonmembers.size // 2

    chosen = roc_curve(members[:cut_in], nonmembers[:cut_out])
    low, _ = clopper_pearson(chosen.true_positives[1:], chosen.members, confidence)
    _, high = clopper_pearson(chosen.false_positives[1:], chosen.nonmembers, confidence)
    threshold = float(chosen.thresholds[1 + int(np.argmax(epsilon_of_rates(low, high, delta)))])

    judged_in, judged_out = members[cut_in:], nonmembers[cut_out:]
    tpr_low = float(clopper_pearson(int(np.sum(judged_in >= threshold)), judged_in.size, confidence)[0])
    fpr_high = float(clopper_pearson(int(np.sum(judged_out >= threshold)), judged_out.size, confidence)[1])
    return EpsilonBound(
        epsilon_lower=float(epsilon_of_rates(tpr_low, fpr_high, delta)),
        delta=delta,
        confidence=confidence,
        threshold=threshold,
        tpr_low=tpr_low,
        fpr_high=fpr_high,
        members=int(judged_in.size),
        nonmembers=int(judged_out.size),
    )
