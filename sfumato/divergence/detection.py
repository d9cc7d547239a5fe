"""What a check can detect at all: thresholds within reach, and divergences that drawn points show whatever the population.

>>> from sfumato.divergence.plan import Floor
>>> plan = EstimatorPlan(Floor("mix", 0.1))
>>> few, many = (detectable_divergence(0.03, 0.001, m, plan, 0.01, error=0.001, power=0.9) for m in (10, 10**6))
>>> few, round(many, 3)
(None, 0.039)
>>> require_reachable(2.31, plan, 0.01)
Traceback (most recent call last):
    ...
sfumato.errors.SfumatoError: threshold is 2.31; allowed is below 2.3026, the largest divergence that a ratio mixed at 0.1 can show.
"""

from __future__ import annotations

import math

import numpy as np

from sfumato.divergence.intervals import normal_quantile_of, target_range, value_reach, variance_bound
from sfumato.divergence.plan import EstimatorPlan
from sfumato.errors import SfumatoError

_STEPS = 1000


def require_reachable(threshold: float, plan: EstimatorPlan, smallest: float) -> None:
    """Refuse a threshold that no divergence passes, so that every check would decide against a drift for ever.

    Args:
        threshold: in nats.
        plan: with a floor.
        smallest: pi_min of the reference.

    Raises:
        SfumatoError: unless the threshold is below the highest target, or if there is no floor.
    """
    floor, highest = plan.required_floor, target_range(plan, smallest).high
    if not threshold < highest:
        how = "mixed" if floor.kind == "mix" else "clipped"
        raise SfumatoError(
            f"threshold is {threshold:g}; allowed is below {highest:.5g}, the largest divergence that a ratio {how} at "
            f"{floor.level:g} can show."
        )


def detectable_divergence(
    threshold: float,
    noise_std: float,
    draws: int,
    plan: EstimatorPlan,
    smallest: float,
    error: float,
    power: float,
) -> float | None:
    """A divergence from which on one check with drawn points and the guaranteed tail calls a drift with that probability.

    It holds for every population, so most populations are detected before. The lower end passes the threshold as soon as
    the value lies above each T up to the threshold by more than the deviation of T, and a value lies below its own target
    by more than the deviation with probability 1 - power at most.

    Args:
        threshold: in nats, within reach.
        noise_std: sigma of the privacy noise.
        draws: m, at least 1.
        plan: with a floor.
        smallest: pi_min of the reference.
        error: what the lower end may err.
        power: above 0 and below 1.

    Returns:
        to a thousandth of the target's range, rounded up; None if no target is called so often.

    Raises:
        SfumatoError: if the threshold is out of reach, or there is no floor.
    """
    require_reachable(threshold, plan, smallest)
    targets, bound = target_range(plan, smallest), variance_bound(plan, smallest)
    reach = value_reach(plan, smallest)

    def deviation(target: float, level: float) -> float:
        return _largest_deviation(bound.at(target) / draws, reach / draws, noise_std, level)

    below = np.linspace(targets.low, threshold, _STEPS + 1).tolist()
    passed = max(target + deviation(target, error) for target in below)
    step = (targets.high - targets.low) / _STEPS
    least: float | None = None
    for target in np.arange(targets.high, threshold, -step).tolist():
        if target - deviation(target, 1.0 - power) <= passed:
            break
        least = target
    return least


def _largest_deviation(variance: float, reach: float, noise_std: float, error: float) -> float:
    """How far the value lies to one given side of its target at most, but with a probability of at most ``error``.

    As in the guaranteed interval, half of it goes to the noise and half to the smaller of Cantelli's and Bernstein's
    deviations of the mean over the points, which has that variance and moves by at most ``reach`` with one point.
    """
    log_level = math.log(2.0 / error)
    linear = reach * log_level / 3.0
    bernstein = linear + math.sqrt(linear**2 + 2.0 * variance * log_level)
    cantelli = math.sqrt(variance * (2.0 / error - 1.0))
    return normal_quantile_of(1.0 - error) * noise_std + min(cantelli, bernstein)
