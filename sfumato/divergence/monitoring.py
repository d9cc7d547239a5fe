"""Watching a population: what a year of checks costs, what one check decides, how often it errs.

>>> plan = MonitoringPlan(checks_per_year=12, epsilon_per_check=0.5, delta=1e-6, yearly_epsilon=2.0, threshold=0.1)
>>> round(plan.cost(12), 3), plan.checks_affordable
(1.91, 13)
>>> plan.decide(low=0.12, high=0.31), plan.decide(low=0.05, high=0.31), plan.decide(low=0.01, high=0.06)
('drift', 'undecided', 'no_drift')
>>> round(minimal_detectable_divergence(plan, error_std=0.02, power=0.9), 3)
0.159

A check is one Gaussian release of the divergence, so the checks of a year are together one Gaussian mechanism with
mu = sqrt(sum 1 / noise_multiplier^2), exactly, also when a check is made because of an earlier one's result
(Section 1.3 a of docs/papers.md). All that follows here is arithmetic on public numbers and on released ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from scipy.special import ndtr, ndtri

from sfumato.accounting import calibrate_gaussian, gaussian_epsilon, gaussian_mu, zcdp_epsilon
from sfumato.checks import is_integer, is_number
from sfumato.errors import BudgetExceededError, SfumatoError

Decision = Literal["drift", "no_drift", "undecided"]
Sides = Literal["one", "two"]
Correction = Literal["none", "bonferroni"]
Rule = Literal["exact", "zcdp"]

_MOST_CHECKS = 1_000_000
_ROUNDING = 1e-9  # a budget that is met but for rounding is met
_LEAST_ERROR, _MOST_ERROR = 1e-12, 0.5 - 1e-9  # of one end at one check; beyond, 1 - 2 error loses its digits


@dataclass(frozen=True)
class Spending:
    """What a check may still cost and what it will have cost.

    Attributes:
        checks: the checks before this one.
        before: epsilon of these at the plan's delta.
        after: epsilon with this one.
        affordable: how many further checks of the plan fit after this one.
    """

    checks: int
    before: float
    after: float
    affordable: int


@dataclass(frozen=True)
class MonitoringPlan:
    """How often a population is looked at, at which price, and what counts as drift; frozen and data-free.

    Guarantee:
        All checks of a year together are (yearly_epsilon, delta)-differentially private for replacing one example in
        every snapshot that holds it, the numbers of examples being public, provided that each check is a release
        with at least ``noise_multiplier`` and that `next_check` (or the book of releases) is asked before it.

    Attributes:
        checks_per_year: how many checks the schedule makes.
        epsilon_per_check: the price of one check alone.
        delta: of every price.
        yearly_epsilon: what all checks of one year may cost together.
        threshold: the divergence, in nats, from which on there is drift; public, fixed in advance.
        confidence: of the deciding interval, as ``sides`` says; of drawn points only the guaranteed one (``tail``) has it.
        sides: ``one`` gives each end of the interval the confidence by itself, since a drift is decided by the
            lower end alone; ``two`` gives it to both ends together.
        correction: ``none`` holds the false alarms of each check; ``bonferroni`` divides them by the checks of a
            year, so that a year has a false alarm with at most that probability.
        rule: ``exact`` prices Gaussian releases; ``zcdp`` those of the discrete Gaussian, as the release mode has it
            (the book of releases, which knows the grid, prices a few ten-thousandths more).

    Raises:
        SfumatoError: if a field is outside of what is allowed, or not even one check fits the year's budget.
    """

    checks_per_year: int
    epsilon_per_check: float
    delta: float
    yearly_epsilon: float
    threshold: float
    confidence: float = 0.95
    sides: Sides = "one"
    correction: Correction = "none"
    rule: Rule = "exact"

    def __post_init__(self) -> None:
        """Check the fields and that they agree."""
        if not is_integer(self.checks_per_year) or not 1 <= self.checks_per_year <= _MOST_CHECKS:
            raise SfumatoError(
                f"checks_per_year is {self.checks_per_year!r}; allowed is an integer from 1 to {_MOST_CHECKS}."
            )
        for name in ("epsilon_per_check", "yearly_epsilon", "threshold"):
            _require_positive(name, getattr(self, name))
        _require_share("delta", self.delta)
        _require_share("confidence", self.confidence)
        choices = {"sides": get_args(Sides), "correction": get_args(Correction), "rule": get_args(Rule)}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise SfumatoError(f"{name} is {getattr(self, name)!r}; allowed are {', '.join(allowed)}.")
        # Divided by the checks even without the correction, since every record of a check states both.
        error = self._error_of_one_end
        if error > _MOST_ERROR or error / self.checks_per_year < _LEAST_ERROR:
            raise SfumatoError(
                f"confidence is {self.confidence!r} with sides {self.sides!r}; allowed is what leaves one end an error "
                f"below 0.5 and, divided by checks_per_year, of at least {_LEAST_ERROR:g}."
            )
        if self.epsilon_per_check > self.yearly_epsilon * (1.0 + _ROUNDING):
            raise SfumatoError(
                f"epsilon_per_check is {self.epsilon_per_check:g}; allowed is at most the year's budget, "
                f"{self.yearly_epsilon:g}."
            )

    # ------------------------------------------------------------------------------------------- the budget
    @property
    def noise_multiplier(self) -> float:
        """Smallest noise standard deviation, in units of the sensitivity, at which one check costs its price."""
        return calibrate_gaussian(self.epsilon_per_check, self.delta, self.rule)

    @property
    def checks_affordable(self) -> int:
        """How many checks of the plan fit into a year's budget."""
        return checks_left(self, 0.0)

    def cost(self, checks: int) -> float:
        """Epsilon at delta of that many checks of the plan, composed and never added.

        Raises:
            SfumatoError: if checks is no integer of at least 0.
        """
        if not is_integer(checks) or checks < 0:
            raise SfumatoError(f"checks is {checks!r}; allowed is an integer of at least 0.")
        return self._price(math.sqrt(checks) / self.noise_multiplier)

    def spent(self, noise_multipliers: Sequence[float]) -> float:
        """Epsilon at delta of checks that were made, whatever the noise of each.

        Args:
            noise_multipliers: noise standard deviation over sensitivity of each check.

        Raises:
            SfumatoError: if one is not a number above 0.
        """
        for multiplier in noise_multipliers:
            _require_positive("noise_multiplier", multiplier)
        return self._price(math.sqrt(math.fsum(1.0 / float(m) ** 2 for m in noise_multipliers)))

    def next_check(self, noise_multipliers: Sequence[float]) -> Spending:
        """What one more check of the plan would bring the year to.

        Args:
            noise_multipliers: those of this year's checks so far.

        Raises:
            BudgetExceededError: if it would pass the year's budget; one sentence that names both.
        """
        before = self.spent(noise_multipliers)
        after = self.spent([*noise_multipliers, self.noise_multiplier])
        count = len(noise_multipliers)
        if after > self.yearly_epsilon * (1.0 + _ROUNDING):
            raise BudgetExceededError(
                f"check {count + 1} would bring the year to epsilon = {after:.6g} at delta = {self.delta:g}; the year's "
                f"budget is {self.yearly_epsilon:g}, of which {before:.6g} is spent."
            )
        return Spending(count, before, after, checks_left(self, after))

    def _price(self, mu: float) -> float:
        if self.rule == "exact":
            return gaussian_epsilon(mu, self.delta)
        return zcdp_epsilon(mu**2 / 2.0, self.delta)

    # ----------------------------------------------------------------------------------------- the decision
    @property
    def false_alarm_level(self) -> float:
        """Probability that one check calls a divergence of exactly the threshold a drift; for drawn points a bound."""
        return self._error_of_one_end / (self.checks_per_year if self.correction == "bonferroni" else 1)

    @property
    def _error_of_one_end(self) -> float:
        return (1.0 - self.confidence) / (2.0 if self.sides == "two" else 1.0)

    @property
    def interval_confidence(self) -> float:
        """Confidence, of both ends together, of the interval that the estimator has to give."""
        return 1.0 - 2.0 * self.false_alarm_level

    @property
    def critical_value(self) -> float:
        """Half of the interval's width, in standard deviations of a normal error."""
        return -float(ndtri(self.false_alarm_level))

    def decide(self, low: float, high: float) -> Decision:
        """Drift if the whole interval lies above the threshold, no drift if all of it lies below, else undecided.

        The point is not asked: with noise it passes a threshold as often as not when the divergence is there.

        Args:
            low: lower end, in nats; cut to the target's range or not is the same to a threshold inside (`detection`).
            high: upper end.

        Raises:
            SfumatoError: if they are no finite numbers in this order.
        """
        if not (is_number(low) and is_number(high)) or not -math.inf < low <= high < math.inf:
            raise SfumatoError(
                f"the interval is [{low!r}, {high!r}]; allowed are two finite numbers, low first."
            )
        if low > self.threshold:
            return "drift"
        return "no_drift" if high < self.threshold else "undecided"


def checks_left(plan: MonitoringPlan, spent: float) -> int:
    """How many further checks of the plan fit into the year's budget.

    Args:
        plan: the plan.
        spent: epsilon at the plan's delta of what was released this year, as a book of releases gives it; Gaussian
            releases are one Gaussian, so this number alone tells what more of them would cost.

    Raises:
        SfumatoError: if that is no number of at least 0.
    """
    if not is_number(spent) or not 0.0 <= spent < math.inf:
        raise SfumatoError(f"spent is {spent!r}; allowed is a finite number of at least 0.")
    allowed = gaussian_mu(plan.yearly_epsilon, plan.delta, plan.rule) ** 2
    used = gaussian_mu(spent, plan.delta, plan.rule) ** 2 if spent > 0.0 else 0.0
    return max(0, int((allowed * (1.0 + _ROUNDING) - used) * plan.noise_multiplier**2))


def spread_over_year(
    checks_per_year: int, delta: float, yearly_epsilon: float, rule: Rule = "exact"
) -> float:
    """The price of one check at which exactly that many fit into the year's budget.

    >>> round(spread_over_year(12, 1e-6, 2.0), 4)
    0.523

    Raises:
        SfumatoError: if an argument is outside of what is allowed.
    """
    if not is_integer(checks_per_year) or not 1 <= checks_per_year <= _MOST_CHECKS:
        raise SfumatoError(
            f"checks_per_year is {checks_per_year!r}; allowed is an integer from 1 to {_MOST_CHECKS}."
        )
    mu = gaussian_mu(yearly_epsilon, delta, rule) / math.sqrt(checks_per_year)
    price = gaussian_epsilon(mu, delta) if rule == "exact" else zcdp_epsilon(mu**2 / 2.0, delta)
    return price * (1.0 - _ROUNDING)


# ------------------------------------------------------------------------------------------- how often it errs
@dataclass(frozen=True)
class Outcomes:
    """Probabilities of what one check decides; they sum to 1."""

    drift: float
    undecided: float
    no_drift: float


@dataclass(frozen=True)
class FalseAlarms:
    """How often a population that has not drifted is called drifted.

    Attributes:
        per_check: probability at one check.
        per_year: probability of at least one in a year of checks.
        expected_per_year: their expected number in a year.
    """

    per_check: float
    per_year: float
    expected_per_year: float


def outcomes(plan: MonitoringPlan, divergence: float, error_std: float) -> Outcomes:
    """What one check decides when the divergence is that, with an unbiased normal error.

    Exact where the error is the Gaussian noise alone, every cell being a point. Few drawn points have no normal error: by
    the guaranteed interval they call the threshold a drift at most that often; `detection` says what they detect.

    Args:
        plan: the plan.
        divergence: the true one, in nats.
        error_std: standard deviation of the estimate.

    Raises:
        SfumatoError: if the divergence is negative or the deviation not above 0.
    """
    if not is_number(divergence) or not 0.0 <= divergence < math.inf:
        raise SfumatoError(f"divergence is {divergence!r}; allowed is a finite number of at least 0.")
    _require_positive("error_std", error_std)
    distance = (divergence - plan.threshold) / error_std
    drift = float(ndtr(distance - plan.critical_value))
    below = float(ndtr(-distance - plan.critical_value))
    return Outcomes(drift, max(0.0, 1.0 - drift - below), below)


def detection_power(plan: MonitoringPlan, divergence: float, error_std: float) -> float:
    """Probability that one check calls that divergence a drift; see `outcomes` for arguments and errors."""
    return outcomes(plan, divergence, error_std).drift


def minimal_detectable_divergence(plan: MonitoringPlan, error_std: float, power: float = 0.9) -> float:
    """Smallest divergence, in nats, that one check calls a drift with that probability.

    Raises:
        SfumatoError: if the deviation is not above 0 or the power not in (0, 1).
    """
    _require_positive("error_std", error_std)
    _require_share("power", power)
    return plan.threshold + max(0.0, plan.critical_value + float(ndtri(power))) * error_std


def false_alarms(plan: MonitoringPlan, error_std: float, divergence: float | None = None) -> FalseAlarms:
    """False alarms at a check and over the plan's checks of a year, whose errors are independent.

    Args:
        plan: the plan; see also `without_correction` and `with_bonferroni`.
        error_std: standard deviation of the estimate.
        divergence: the true one, at most the threshold; the threshold itself, the worst case, when None.

    Raises:
        SfumatoError: if the divergence is above the threshold, where an alarm is not false.
    """
    true = plan.threshold if divergence is None else divergence
    if true > plan.threshold:
        raise SfumatoError(
            f"divergence is {true!r}; allowed is at most the threshold, {plan.threshold:g}, above which there is drift."
        )
    rate = detection_power(plan, true, error_std)
    year = -math.expm1(plan.checks_per_year * math.log1p(-rate))
    return FalseAlarms(rate, year, plan.checks_per_year * rate)


def without_correction(plan: MonitoringPlan) -> MonitoringPlan:
    """The plan that holds the false alarms of each check by itself."""
    return replace(plan, correction="none")


def with_bonferroni(plan: MonitoringPlan) -> MonitoringPlan:
    """The plan that holds the false alarms of a whole year."""
    return replace(plan, correction="bonferroni")


# ----------------------------------------------------------------------------------------------- the episodes
@dataclass(frozen=True)
class Episode:
    """Whether an alarm has been raised that nothing has ended yet.

    Attributes:
        opened_by: the check that raised it; None while the monitor is armed.
        reference: fingerprint of the reference that this check used; None while armed.
    """

    opened_by: str | None = None
    reference: str | None = None


def follow(episode: Episode, check: str, decision: Decision, reference: str) -> tuple[Episode, bool]:
    """The episode after a check, and whether this check raises an alarm: one for each episode.

    The monitor is armed again by a check that decides ``no_drift``, or by a check against another reference: after
    retraining, the population that was trained on is the new reference. ``undecided`` changes nothing, so that a
    divergence that hovers at the threshold does not start a retraining over and over.

    >>> state, alarms = Episode(), []
    >>> for number, decision in enumerate(["drift", "drift", "undecided", "drift", "no_drift", "drift"]):
    ...     state, alarm = follow(state, str(number), decision, "staff")
    ...     alarms.append(alarm)
    >>> alarms
    [True, False, False, False, False, True]

    Args:
        episode: the state before the check.
        check: the check's name.
        decision: what it decided.
        reference: fingerprint of the reference it used.
    """
    current = episode if episode.reference == reference else Episode()
    if decision == "drift" and current.opened_by is None:
        return Episode(check, reference), True
    return (Episode() if decision == "no_drift" else current), False


def _require_positive(name: str, value: object) -> None:
    if not is_number(value) or not 0.0 < float(value) < math.inf:  # type: ignore[arg-type]
        raise SfumatoError(f"{name} is {value!r}; allowed is a finite number above 0.")


def _require_share(name: str, value: object) -> None:
    if not is_number(value) or not 0.0 < float(value) < 1.0:  # type: ignore[arg-type]
        raise SfumatoError(f"{name} is {value!r}; allowed is a number above 0 and below 1.")
