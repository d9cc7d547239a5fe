"""Thresholds out of reach are refused, and what is said to be detected is detected, for populations of every kind."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.divergence.detection import detectable_divergence, require_reachable
from sfumato.divergence.estimator import Estimate, release
from sfumato.divergence.evaluation import target_divergence
from sfumato.divergence.intervals import Bounds, fixed_interval, target_range
from sfumato.divergence.monitoring import MonitoringPlan
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import Reference, draw_points
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

MIX = EstimatorPlan(Floor("mix", 0.1), 0.0)
PLANS = [MIX, EstimatorPlan(Floor("clip", 0.1), 0.0), EstimatorPlan(Floor("clip", 0.2, 5.0), 1.0)]
SMALLEST = 0.01
MONITOR = MonitoringPlan(12, 0.5, 1e-6, 2.0, threshold=0.1)


@pytest.mark.parametrize("plan", PLANS)
def test_a_threshold_is_refused_from_the_highest_target_on_whatever_the_floor(plan: EstimatorPlan) -> None:
    highest = target_range(plan, SMALLEST).high
    require_reachable(math.nextafter(highest, 0.0), plan, SMALLEST)
    for threshold in (highest, 5.0 * highest):
        with pytest.raises(SfumatoError, match=r"^threshold is .*; allowed is below .*\.$") as refused:
            require_reachable(threshold, plan, SMALLEST)
        assert f"{plan.required_floor.kind}" in str(refused.value).replace("mixed", "mix")


@given(st.floats(-10, 10), st.floats(1e-6, 10), st.floats(0, 1, exclude_min=True), st.sampled_from(PLANS))
@settings(max_examples=300, deadline=None)
def test_ends_that_are_cut_to_the_targets_range_decide_as_those_that_are_not(
    value: float, half_width: float, share: float, plan: EstimatorPlan
) -> None:
    targets = target_range(plan, SMALLEST)
    monitor = replace(MONITOR, threshold=max(1e-9, math.nextafter(share * targets.high, 0.0)))
    require_reachable(monitor.threshold, plan, SMALLEST)
    cut, whole = fixed_interval(value, half_width, targets), Bounds(value - half_width, value + half_width)
    assert monitor.decide(cut.low, cut.high) == monitor.decide(whole.low, whole.high)


@pytest.mark.parametrize("plan", PLANS)
def test_more_points_less_power_and_more_error_detect_smaller_divergences(plan: EstimatorPlan) -> None:
    def least(draws: int = 1000, error: float = 0.01, power: float = 0.9) -> float:
        return detectable_divergence(0.03, 0.001, draws, plan, SMALLEST, error, power) or math.inf

    assert 0.03 < least(100_000) < least(1000) < least(100)
    assert least(power=0.5) < least() < least(power=0.99)
    assert least(error=0.2) < least() < least(error=0.001)


def test_with_ten_points_and_a_strict_level_nothing_is_sure_to_be_detected() -> None:
    assert detectable_divergence(0.03, 0.001, 10, MIX, SMALLEST, 0.05 / 52, 0.9) is None
    with pytest.raises(SfumatoError, match="threshold is 3"):
        detectable_divergence(3.0, 0.001, 10, MIX, SMALLEST, 0.05, 0.9)


@pytest.mark.parametrize("mass", [0.1, 0.5])
def test_a_divergence_that_is_said_to_be_detected_is_called_a_drift_with_that_power(mass: float) -> None:
    """200 releases: a share of at least .5 less 4 standard errors (false alarm 3e-5 where it is just .5).

    The population leaves a cell of that mass empty, so that few points or many carry its divergence. The threshold is the
    highest, to a fiftieth, for which that divergence is said to be detected half of the time.
    """
    reference, power, draws = Reference.from_probabilities([mass, 1.0 - mass]), 0.5, 2000
    counts = np.array([0, 50_000])
    target = target_divergence(reference, counts / 50_000, MIX)

    def released(run: int) -> Estimate:
        points = draw_points(reference, draws, Streams(3).stream("points", run))
        noise, level = Streams(3).stream("noise", run), MONITOR.interval_confidence
        return release(
            counts[points.cells], 50_000, points, reference, MIX, 0.5, 1e-6, noise,
            confidence=level, tail="guaranteed",
        )  # fmt: skip

    found = [released(run) for run in range(200)]
    noise_std, error = max(one.noise_std for one in found), MONITOR.false_alarm_level
    thresholds = [
        threshold
        for threshold in np.linspace(0.0, target, 51)[1:].tolist()
        if (detectable_divergence(threshold, noise_std, draws, MIX, mass, error, power) or math.inf) <= target
    ]
    assert thresholds
    monitor = replace(MONITOR, threshold=thresholds[-1])
    drifts = sum(monitor.decide(one.low, one.high) == "drift" for one in found)
    assert drifts >= 200 * power - 4.0 * math.sqrt(200 * power * (1 - power))
