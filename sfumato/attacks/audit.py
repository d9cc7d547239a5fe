"""A lower bound of epsilon from one training run with canaries (Steinke, Nasr and Jagielski 2023).

>>> round(epsilon_lower(correct=95, guesses=100, canaries=1000, delta=1e-5), 2)
2.17
>>> epsilon_lower(correct=52, guesses=100, canaries=1000, delta=1e-5)
0.0

Each of m canaries is put into the training data by its own fair coin; after the run each canary has a
score, and the auditor guesses "in" for the highest, "out" for the lowest and abstains on the rest. Where the
mechanism is (epsilon, delta)-private for adding or removing one example, few more than
r e^epsilon / (1 + e^epsilon) of r guesses are right, however they are made. So v right ones of r refute
every epsilon under a bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.roc import binomial_tail, check_fraction, check_scores, log_factorial
from sfumato.errors import SfumatoError

GuessFractions = float | Sequence[tuple[float, float]]


@dataclass(frozen=True)
class AuditResult:
    """What a one-run audit showed.

    Attributes:
        epsilon_lower: the lower bound; 0 if the guesses refute nothing.
        ceiling: the bound if every guess had been right, the most that this audit could have shown. A
            ceiling under the claimed epsilon means that no fault of any size could have been seen.
        correct: right guesses.
        guesses: guesses made.
        canaries: canaries, guessed or abstained on.
        delta: the delta of the bound.
        confidence: of the bound, after the correction for ``options``.
        options: how many numbers of guesses were tried; the level is divided by it (Bonferroni).
    """

    epsilon_lower: float
    ceiling: float
    correct: int
    guesses: int
    canaries: int
    delta: float
    confidence: float
    options: int = 1

    def p_value(self, epsilon: float) -> float:
        """The p-value of "the mechanism is (epsilon, delta)-private", corrected for ``options``."""
        return min(
            1.0, self.options * p_value(self.correct, self.guesses, self.canaries, epsilon, self.delta)
        )

    def as_metrics(self) -> dict[str, float | int]:
        """The figures as metric names and finite numbers."""
        return {
            "epsilon_lower": self.epsilon_lower,
            "epsilon_ceiling": self.ceiling,
            "correct": self.correct,
            "guesses": self.guesses,
            "canaries": self.canaries,
            "delta": self.delta,
            "confidence": self.confidence,
        }


def _check_counts(correct: int, guesses: int, canaries: int) -> None:
    if not 0 <= correct <= guesses <= canaries or guesses < 1:
        raise SfumatoError(
            f"correct, guesses and canaries are {correct}, {guesses} and {canaries};"
            " allowed are 0 <= correct <= guesses <= canaries with guesses >= 1."
        )


def p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The largest probability of so many right guesses under any (epsilon, delta)-private mechanism.

    Theorem 5.2 of Steinke et al. (2023): with W ~ Binomial(r, q), q = e^epsilon / (1 + e^epsilon),
    P[correct >= v] <= P[W >= v] + 2 m delta max_i (1/i) P[v - i <= W < v], the maximum over i = 1..v.

    Conditions: each canary is in by an independent fair coin that the guesses depend on only through the
    mechanism's output; the number of guesses is fixed beforehand; all randomness of the mechanism is fresh.

    Args:
        correct: right guesses v.
        guesses: guesses r.
        canaries: canaries m, including those abstained on.
        epsilon: at least 0.
        delta: in [0, 1).

    Returns:
        A probability.

    Raises:
        SfumatoError: if a number is out of its range.
    """
    _check_counts(correct, guesses, canaries)
    check_fraction("delta", delta, zero=True)
    if not epsilon >= 0.0:
        raise SfumatoError(f"epsilon is {epsilon}; allowed is a number of at least 0.")
    if correct == 0:
        return 1.0
    # log q and log(1 - q), both without cancellation at large epsilon.
    log_q = -math.log1p(math.exp(-epsilon))
    log_rest = -epsilon + log_q
    tail = binomial_tail(correct, guesses, math.exp(log_q))
    if delta == 0.0:
        return min(1.0, tail)
    below = np.arange(correct - 1, -1, -1, dtype=np.float64)
    choose = log_factorial(guesses) - log_factorial(below) - log_factorial(guesses - below)
    mass = np.cumsum(np.exp(choose + below * log_q + (guesses - below) * log_rest))
    alpha = float(np.max(mass / np.arange(1, correct + 1)))
    return min(1.0, tail + 2.0 * canaries * delta * alpha)


@lru_cache(maxsize=4096)
def epsilon_lower(correct: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon refuted by so many right guesses, by bisection on the p-value.

    Guarantee:
        If the mechanism is (epsilon, delta)-private for adding or removing one example and the conditions
        of ``p_value`` hold, the bound exceeds epsilon with probability at most 1 - confidence.

    Args:
        correct: right guesses.
        guesses: guesses made.
        canaries: canaries in all.
        delta: in [0, 1).
        confidence: in (0, 1).

    Returns:
        A bound of at least 0, rounded down by less than 1e-6.

    Raises:
        SfumatoError: if a number is out of its range.
    """
    level = 1.0 - check_fraction("confidence", confidence)
    if p_value(correct, guesses, canaries, 0.0, delta) > level:
        return 0.0
    low, high = 0.0, 1.0
    while p_value(correct, guesses, canaries, high, delta) <= level:
        low, high = high, 2.0 * high
    while high - low > 1e-6:
        middle = (low + high) / 2.0
        if p_value(correct, guesses, canaries, middle, delta) <= level:
            low = middle
        else:
            high = middle
    return low


def guess_counts(guess_fractions: GuessFractions, canaries: int) -> list[tuple[int, int]]:
    """The numbers of "in" and "out" guesses of each option.

    Args:
        guess_fractions: one total fraction in (0, 1], half of it for each kind, or several pairs
            (fraction guessed in, fraction guessed out) with a sum in (0, 1].
        canaries: number of canaries.

    Raises:
        SfumatoError: if a fraction is out of its range or leaves no guess.
    """
    if isinstance(guess_fractions, int | float):
        pairs = [(guess_fractions / 2.0, guess_fractions / 2.0)]
    else:
        pairs = list(guess_fractions)
    counts: list[tuple[int, int]] = []
    for upper, lower in pairs:
        if not (upper >= 0.0 and lower >= 0.0 and 0.0 < upper + lower <= 1.0):
            raise SfumatoError(
                f"guess fractions are {upper} and {lower}; allowed are numbers >= 0, sum in (0, 1]."
            )
        count = (math.floor(upper * canaries + 1e-9), math.floor(lower * canaries + 1e-9))
        if sum(count) == 0:
            raise SfumatoError(
                f"guess fractions {upper} and {lower} of {canaries} canaries leave no guess; allowed is >= 1."
            )
        counts.append(count)
    if not counts:
        raise SfumatoError("guess_fractions is empty; allowed is at least one option.")
    return counts


def count_correct(scores: NDArray[np.float64], included: NDArray[np.bool_], upper: int, lower: int) -> int:
    """Right guesses when the ``upper`` highest scores are called in and the ``lower`` lowest out.

    Equal scores are ordered by canary number, which is independent of the coins.
    """
    order = np.argsort(-scores, kind="stable")
    return int(np.sum(included[order[:upper]])) + int(np.sum(~included[order[scores.size - lower :]]))


def audit_one_run(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    delta: float,
    confidence: float = 0.95,
    guess_fractions: GuessFractions = 0.1,
) -> AuditResult:
    """Guess by the scores, count the right ones, bound epsilon from below (Steinke et al. 2023, Algorithm 1).

    The number of guesses must be fixed before the scores are seen, for example in the parameters. To
    choose the best of several, give them all: each is then judged at level (1 - confidence) / options.

    Args:
        scores: one finite number per canary, larger = likelier in; shape (canaries,).
        included: the coins, bool, shape (canaries,); from ``canaries.choose_included``.
        delta: in [0, 1).
        confidence: in (0, 1).
        guess_fractions: see ``guess_counts``.

    Returns:
        The option with the largest bound.

    Raises:
        SfumatoError: if shapes differ, a score is not finite or a number is out of its range.
    """
    ranked, coins = check_scores("scores", scores), np.asarray(included)
    if coins.dtype != np.bool_ or coins.shape != ranked.shape:
        raise SfumatoError(
            f"included is {coins.dtype} {coins.shape}; allowed is bool of shape {ranked.shape}."
        )
    options = guess_counts(guess_fractions, ranked.size)
    level = 1.0 - (1.0 - check_fraction("confidence", confidence)) / len(options)
    results: list[AuditResult] = []
    for upper, lower in options:
        correct, made = count_correct(ranked, coins, upper, lower), upper + lower
        results.append(
            AuditResult(
                epsilon_lower=epsilon_lower(correct, made, ranked.size, delta, level),
                ceiling=epsilon_lower(made, made, ranked.size, delta, level),
                correct=correct,
                guesses=made,
                canaries=ranked.size,
                delta=delta,
                confidence=confidence,
                options=len(options),
            )
        )
    return max(results, key=lambda result: result.epsilon_lower)
