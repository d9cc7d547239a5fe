"""A watch on a drifting population: the budget ends it, and drift is called late rather than early."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sfumato import accounting
from sfumato.divergence.comparisons import CompareSetting, drift_pairs
from sfumato.divergence.monitoring import MonitoringPlan
from sfumato.divergence.plan import Floor
from sfumato.divergence.timeline import Check, shares_of, watch
from sfumato.errors import SfumatoError
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


def watched(plan: MonitoringPlan, streams: Streams, checks: int = 3, **setting: Any) -> list[Check]:
    shares = shares_of(checks, 1, 1.0)
    compared = CompareSetting(0.02, tuple(shares), "series", 1000)
    pairs = drift_pairs(population(), "codes", compared, Streams(0))
    return watch(pairs, shares, replace(SETTING, **setting), plan, streams, 0.01)


def test_what_is_spent_is_what_the_accountant_says_of_the_releases_whatever_the_settings_delta() -> None:
    plan = MonitoringPlan(12, 1.0, 1e-8, 2.5, threshold=0.04)
    events = list[Any]()
    for check in watched(plan, Streams(0), delta=1e-2):
        events += check.estimate.events
        assert check.estimate.delta == plan.delta
        assert check.spent == pytest.approx(
            accounting.epsilon(events, plan.delta, "pld", "replace_one"), rel=1e-6
        )
    assert len(events) == 3


def test_what_releases_spend_is_what_the_accountant_says_of_their_discrete_noise() -> None:
    plan = MonitoringPlan(12, 1.0, 1e-6, 2.5, threshold=0.04, rule="zcdp")
    events = list[Any]()
    for check in watched(plan, Streams(None, "release")):
        events += check.estimate.events
        assert check.spent == pytest.approx(
            accounting.epsilon(events, plan.delta, "rdp", "replace_one"), rel=1e-3
        )
    assert len(events) == 3


@pytest.mark.parametrize(
    ("rule", "streams", "allowed"),
    [("exact", Streams(None, "release"), "zcdp"), ("zcdp", Streams(0), "exact")],
)
def test_a_plan_that_prices_another_noise_than_the_streams_draw_is_refused(
    rule: Any, streams: Streams, allowed: str
) -> None:
    with pytest.raises(
        SfumatoError, match=rf"^rule is '{rule}' in {streams.mode} mode; allowed is '{allowed}', .*\.$"
    ):
        watched(replace(PLAN, rule=rule), streams)


@pytest.mark.parametrize("kind", ["mix", "clip"])
def test_a_threshold_that_no_check_could_pass_is_refused(kind: Any) -> None:
    with pytest.raises(SfumatoError, match=r"^threshold is 50; allowed is below"):
        watched(replace(PLAN, threshold=50.0), Streams(0), floor=Floor(kind, 0.1))
