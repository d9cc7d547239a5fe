"""A population that drifts, watched check by check: every check is one release, and the year has a budget.

>>> [round(share, 2) for share in shares_of(checks=5, drift_at=2, drift_share=0.6)]
[0.0, 0.0, 0.2, 0.4, 0.6]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.divergence.comparisons import Pair
from sfumato.divergence.detection import require_reachable
from sfumato.divergence.estimator import Estimate, release
from sfumato.divergence.evaluation import target_divergence
from sfumato.divergence.experiment import Setting
from sfumato.divergence.monitoring import MonitoringPlan
from sfumato.divergence.plan import EstimatorPlan
from sfumato.divergence.reference import all_points
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        number: from 0.
        share: of the drifted group in the population.
        divergence: KL(Pi || P) with the smoothing, without privacy.
        target: what the estimate aims at.
        estimate: the release.
        spent: epsilon of all checks so far, composed.
        decision: ``drift``, ``no_drift`` or ``undecided``.
    """

    number: int
    share: float
    divergence: float
    target: float
    estimate: Estimate
    spent: float
    decision: str


def shares_of(checks: int, drift_at: int, drift_share: float) -> list[float]:
    """Share of the drifted group at each check: none before ``drift_at``, then growing evenly to ``drift_share``."""
    return [drift_share * max(0, check - drift_at + 1) / (checks - drift_at) for check in range(checks)]


def watch(
    pairs: Sequence[Pair],
    shares: Sequence[float],
    setting: Setting,
    plan: MonitoringPlan,
    streams: Streams,
    smoothing: float,
) -> list[Check]:
    """Check the populations one after the other, every cell counted, until the year's budget is spent.

    Guarantee:
        All checks together are (yearly_epsilon, delta)-differentially private for replacing one example in every
        snapshot that holds it, as ``MonitoringPlan`` says.

    Args:
        pairs: the population at each check, against the same reference.
        shares: of the drifted group in each.
        setting: the public numbers; the prices are the plan's, also their delta.
        plan: price, threshold and budget; its rule is that of the streams' noise.
        streams: this timeline's randomness.
        smoothing: s of the truth that is shown beside.

    Returns:
        as many checks as the budget allows; the next one would be refused.

    Raises:
        SfumatoError: if the plan's rule prices another noise, or no divergence passes its threshold.
    """
    rule = "zcdp" if streams.mode == "release" else "exact"
    if plan.rule != rule:
        raise SfumatoError(
            f"rule is {plan.rule!r} in {streams.mode} mode; allowed is {rule!r}, by which the noise is calibrated."
        )
    estimator = EstimatorPlan(setting.floor, 0.0 if setting.coefficient is None else setting.coefficient)
    checks: list[Check] = []
    for number, pair in enumerate(pairs[: plan.checks_affordable]):
        require_reachable(plan.threshold, estimator, pair.reference.smallest)
        points = all_points(pair.reference)
        found = release(
            pair.counts[points.cells],
            pair.examples,
            points,
            pair.reference,
            estimator,
            plan.epsilon_per_check,
            plan.delta,
            streams.stream("noise", "check", number),
            confidence=plan.interval_confidence,
        )
        checks.append(
            Check(
                number,
                shares[number],
                pair.divergence(smoothing),
                target_divergence(pair.reference, pair.probabilities, estimator),
                found,
                plan.cost(number + 1),
                plan.decide(found.low, found.high),
            )
        )
    return checks
