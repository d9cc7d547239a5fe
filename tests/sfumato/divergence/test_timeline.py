"""A watch on a drifting population: the budget ends it, and drift is called late rather than early."""

from __future__ import annotations

import pytest

from sfumato.divergence.comparisons import CompareSetting, drift_pairs
from sfumato.divergence.monitoring import MonitoringPlan
from sfumato.divergence.timeline import shares_of, watch
from sfumato.rng import Streams
from tests.sfumato.divergence.examples import SETTING, population

SHARES = shares_of(checks=12, drift_at=5, drift_share=1.0)
PLAN = MonitoringPlan(12, 2.0, 1e-5, 10.0, threshold=0.04, correction="bonferroni")


def test_shares_rise_evenly_from_the_first_check_with_drift() -> None:
    assert SHARES[:5] == [0.0] * 5
    assert SHARES[5] == pytest.approx(1 / 7)
    assert SHARES[-1] == 1.0


def test_no_alarm_before_the_drift_and_one_after_it() -> None:
    pairs = drift_pairs(
        population(), "codes", CompareSetting(0.02, tuple(SHARES), "series", 1000), Streams(0)
    )
    for seed in range(5):
        checks = watch(pairs, SHARES, SETTING, PLAN, Streams(seed), 0.01)
        alarms = [check.number for check in checks if check.decision == "drift"]
        assert alarms
        assert min(alarms) >= 5
        spent = [check.spent for check in checks]
        assert spent == sorted(spent)
        assert spent[-1] <= PLAN.yearly_epsilon


def test_the_budget_ends_the_watch() -> None:
    pairs = drift_pairs(
        population(), "codes", CompareSetting(0.02, tuple(SHARES), "series", 1000), Streams(0)
    )
    short = MonitoringPlan(12, 2.0, 1e-5, 3.0, threshold=0.04)
    checks = watch(pairs, SHARES, SETTING, short, Streams(0), 0.01)
    assert len(checks) == short.checks_affordable < 12
    assert checks[-1].spent <= 3.0 < short.cost(len(checks) + 1)
