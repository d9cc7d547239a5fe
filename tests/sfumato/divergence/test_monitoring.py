"""A year of checks: its price, its refusals, its decisions, and how often they err, against simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato import accounting
from sfumato.divergence.monitoring import (
    Episode,
    MonitoringPlan,
    checks_left,
    detection_power,
    false_alarms,
    follow,
    minimal_detectable_divergence,
    outcomes,
    spread_over_year,
    with_bonferroni,
    without_correction,
)
from sfumato.errors import BudgetExceededError, SfumatoError
from sfumato.mechanisms import DiscreteGaussian, Gaussian

PLAN = MonitoringPlan(
    checks_per_year=12, epsilon_per_check=0.5, delta=1e-6, yearly_epsilon=2.0, threshold=0.1
)
STD = 0.03
RUNS = 200_000


def simulated(plan: MonitoringPlan, divergence: float, runs: int = RUNS) -> np.ndarray[Any, Any]:
    """What each of many checks decided: 1 drift, -1 no drift, 0 undecided, by the plan's own decision."""
    raw = divergence + STD * np.random.default_rng(20240611).standard_normal(runs)
    half = plan.critical_value * STD
    return np.where(raw - half > plan.threshold, 1, np.where(raw + half < plan.threshold, -1, 0))


def agrees(count: int, runs: int, probability: float) -> bool:
    """Whether a binomial count is within 5 standard deviations: a false alarm of 6e-7 at each use."""
    return abs(count - runs * probability) <= 5.0 * math.sqrt(runs * probability * (1.0 - probability)) + 1.0


# ------------------------------------------------------------------------------------------------- the budget
@pytest.mark.parametrize("checks", [1, 2, 12, 52, 365])
def test_the_price_of_a_year_is_what_the_accountants_say_of_its_events(checks: int) -> None:
    event = Gaussian(1.0, PLAN.noise_multiplier, "replace_one").event
    priced = accounting.epsilon([event] * checks, PLAN.delta, "pld", "replace_one")
    assert PLAN.cost(checks) == pytest.approx(priced, rel=1e-9)


def test_composition_is_exact_and_dearer_than_one_but_cheaper_than_a_sum() -> None:
    assert PLAN.cost(0) == 0.0
    assert PLAN.cost(1) == pytest.approx(PLAN.epsilon_per_check, rel=1e-9)
    assert PLAN.epsilon_per_check < PLAN.cost(12) < 12 * PLAN.epsilon_per_check
    assert PLAN.spent([PLAN.noise_multiplier] * 12) == pytest.approx(PLAN.cost(12), rel=1e-12)


def test_discrete_noise_is_priced_as_the_book_prices_it_within_its_grid() -> None:
    plan = replace(PLAN, rule="zcdp")
    event = DiscreteGaussian(1.0, plan.noise_multiplier, 1e-6, 1).event
    priced = accounting.epsilon([event] * 12, plan.delta, "rdp", "replace_one")
    assert plan.cost(12) == pytest.approx(priced, rel=1e-3)
    assert plan.noise_multiplier > PLAN.noise_multiplier


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.05, 2.0),
    st.floats(1.0, 4.0),
    st.floats(-9, -4),
    st.sampled_from(["exact", "zcdp"]),
)
def test_affordable_checks_fit_and_one_more_is_refused(
    epsilon: float, factor: float, log_delta: float, rule: Any
) -> None:
    plan = MonitoringPlan(12, epsilon, 10.0**log_delta, epsilon * factor, 0.1, rule=rule)
    affordable = plan.checks_affordable
    assert affordable >= 1
    assert plan.cost(affordable) <= plan.yearly_epsilon * (1 + 1e-8)
    assert plan.cost(affordable + 1) > plan.yearly_epsilon
    made = [plan.noise_multiplier] * (affordable - 1)
    assert plan.next_check(made).affordable == 0
    with pytest.raises(BudgetExceededError, match="year"):
        plan.next_check([plan.noise_multiplier] * affordable)


def test_the_refusal_names_the_check_its_cost_and_the_budget() -> None:
    made = [PLAN.noise_multiplier] * PLAN.checks_affordable
    with pytest.raises(BudgetExceededError) as refused:
        PLAN.next_check(made)
    sentence = str(refused.value)
    assert f"check {len(made) + 1} would" in sentence
    assert "budget is 2" in sentence
    assert sentence.count(". ") == 0


def test_checks_with_more_noise_cost_less_and_leave_more() -> None:
    louder = [2 * PLAN.noise_multiplier] * 4
    assert PLAN.spent(louder) == pytest.approx(PLAN.cost(1), rel=1e-9)
    spending = PLAN.next_check(louder)
    assert (spending.checks, spending.affordable) == (4, PLAN.checks_affordable - 2)
    assert spending.before < spending.after


@pytest.mark.parametrize("rule", ["exact", "zcdp"])
def test_checks_that_are_left_follow_from_what_was_spent(rule: Any) -> None:
    plan = replace(PLAN, rule=rule)
    for made in range(plan.checks_affordable + 1):
        assert checks_left(plan, plan.cost(made)) == plan.checks_affordable - made
    assert checks_left(plan, 10 * plan.yearly_epsilon) == 0


@pytest.mark.parametrize("checks", [1, 12, 52])
def test_a_budget_spread_over_the_year_fits_exactly_that_many_checks(checks: int) -> None:
    price = spread_over_year(checks, 1e-6, 2.0)
    plan = MonitoringPlan(checks, price, 1e-6, 2.0, 0.1)
    assert plan.checks_affordable == checks


# ----------------------------------------------------------------------------------------------- the decision
def test_the_interval_decides_and_not_the_point() -> None:
    assert PLAN.decide(0.1001, 0.9) == "drift"
    assert PLAN.decide(0.0, 0.0999) == "no_drift"
    assert PLAN.decide(0.0999, 0.9) == "undecided"
    assert PLAN.decide(0.1, 0.1) == "undecided"


def test_one_side_puts_the_whole_error_on_the_lower_end_and_bonferroni_divides_it() -> None:
    assert PLAN.false_alarm_level == pytest.approx(0.05)
    assert replace(PLAN, sides="two").false_alarm_level == pytest.approx(0.025)
    assert with_bonferroni(PLAN).false_alarm_level == pytest.approx(0.05 / 12)
    assert PLAN.interval_confidence == pytest.approx(0.90)
    assert replace(PLAN, sides="two").interval_confidence == pytest.approx(0.95)


@pytest.mark.parametrize("sides", ["one", "two"])
@pytest.mark.parametrize("divergence", [0.0, 0.06, 0.1, 0.13, 0.2])
def test_probabilities_of_the_decisions_are_those_of_simulated_checks(sides: Any, divergence: float) -> None:
    plan = replace(PLAN, sides=sides)
    decided, expected = simulated(plan, divergence), outcomes(plan, divergence, STD)
    assert expected.drift + expected.undecided + expected.no_drift == pytest.approx(1.0)
    for code, probability in ((1, expected.drift), (0, expected.undecided), (-1, expected.no_drift)):
        assert agrees(int(np.sum(decided == code)), RUNS, probability)


def test_the_vectorised_decision_of_the_tests_is_the_plans_own() -> None:
    raw = 0.12 + STD * np.random.default_rng(20240611).standard_normal(200)
    half = PLAN.critical_value * STD
    names = {"drift": 1, "undecided": 0, "no_drift": -1}
    assert [names[PLAN.decide(float(x - half), float(x + half))] for x in raw] == simulated(
        PLAN, 0.12, 200
    ).tolist()


@pytest.mark.parametrize("plan", [without_correction(PLAN), with_bonferroni(PLAN)])
@pytest.mark.parametrize("divergence", [None, 0.08])
def test_false_alarms_per_check_and_per_year_are_those_of_simulated_years(
    plan: MonitoringPlan, divergence: float | None
) -> None:
    expected = false_alarms(plan, STD, divergence)
    true = plan.threshold if divergence is None else divergence
    years = simulated(plan, true, 12 * 50_000).reshape(50_000, 12) == 1
    assert agrees(int(years.sum()), years.size, expected.per_check)
    assert agrees(int(years.any(axis=1).sum()), len(years), expected.per_year)
    assert expected.expected_per_year == pytest.approx(12 * expected.per_check)


def test_bonferroni_holds_the_year_and_no_correction_does_not() -> None:
    plain, corrected = false_alarms(PLAN, STD), false_alarms(with_bonferroni(PLAN), STD)
    assert corrected.per_year < 0.05 < plain.per_year
    assert plain.per_check == pytest.approx(0.05)
    assert plain.per_year == pytest.approx(1 - 0.95**12)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 1.0), st.floats(0.5, 0.999))
def test_the_minimal_detectable_divergence_is_detected_with_its_power(error_std: float, power: float) -> None:
    least = minimal_detectable_divergence(PLAN, error_std, power)
    assert detection_power(PLAN, least, error_std) == pytest.approx(power, abs=1e-9)


def test_less_noise_and_more_drift_are_detected_more_often() -> None:
    assert detection_power(PLAN, 0.2, 0.02) > detection_power(PLAN, 0.2, 0.05)
    assert detection_power(PLAN, 0.25, 0.05) > detection_power(PLAN, 0.2, 0.05)
    assert detection_power(with_bonferroni(PLAN), 0.2, 0.05) < detection_power(PLAN, 0.2, 0.05)


# ----------------------------------------------------------------------------------------------- the episodes
@given(st.lists(st.sampled_from(["drift", "no_drift", "undecided"]), max_size=30))
def test_there_is_one_alarm_for_each_drift_after_the_start_or_after_no_drift(decisions: list[Any]) -> None:
    episode, alarms = Episode(), 0
    for number, decision in enumerate(decisions):
        episode, alarm = follow(episode, str(number), decision, "staff")
        alarms += alarm
    decided = [decision for decision in decisions if decision != "undecided"]
    expected = sum(
        now == "drift" and before != "drift"
        for before, now in zip(["no_drift", *decided], decided, strict=False)
    )
    assert alarms == expected


def test_another_reference_arms_the_monitor_again() -> None:
    first, alarm = follow(Episode(), "1", "drift", "before")
    assert alarm
    assert not follow(first, "2", "drift", "before")[1]
    assert follow(first, "2", "drift", "retrained")[1]
    assert follow(first, "2", "undecided", "retrained")[0] == Episode()


# -------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("checks_per_year", 0),
        ("checks_per_year", 1.5),
        ("checks_per_year", True),
        ("epsilon_per_check", 0.0),
        ("epsilon_per_check", 2.1),
        ("epsilon_per_check", math.nan),
        ("delta", 0.0),
        ("delta", 1.0),
        ("yearly_epsilon", math.inf),
        ("threshold", -0.1),
        ("threshold", "high"),
        ("confidence", 1.0),
        ("confidence", 0.5),
        ("confidence", 0.5 + 1e-10),
        ("confidence", 1 - 1e-15),
        ("sides", "left"),
        ("correction", "holm"),
        ("rule", "rdp"),
    ],
)
def test_a_wrong_plan_is_refused_in_one_sentence(field: str, value: Any) -> None:
    with pytest.raises(SfumatoError, match=rf"^{field} is .*; allowed .*\.$"):
        replace(PLAN, **{field: value})


@pytest.mark.parametrize("sides", ["one", "two"])
@pytest.mark.parametrize("correction", ["none", "bonferroni"])
@pytest.mark.parametrize("confidence", [2e-8, 0.5 + 1e-8, 0.95, 1 - 1e-5])
def test_every_plan_that_is_accepted_has_a_finite_interval_with_and_without_the_correction(
    sides: Any, correction: Any, confidence: float
) -> None:
    try:
        plan = replace(PLAN, checks_per_year=10**6, sides=sides, correction=correction, confidence=confidence)
    except SfumatoError:
        assert sides == "one"
        assert confidence < 0.5
        return
    for one in (without_correction(plan), with_bonferroni(plan)):
        assert 0.0 < one.interval_confidence < 1.0
        assert 0.0 < one.critical_value < 8.0
        assert false_alarms(one, STD).per_check == pytest.approx(one.false_alarm_level, rel=1e-6)


@pytest.mark.parametrize("correction", ["none", "bonferroni"])
def test_a_confidence_that_rounding_would_lose_over_the_years_checks_is_refused(correction: Any) -> None:
    assert (
        replace(PLAN, checks_per_year=12, confidence=1 - 1e-10, correction=correction).interval_confidence < 1
    )
    with pytest.raises(SfumatoError, match=r"^confidence is .*; allowed"):
        replace(PLAN, checks_per_year=10**6, confidence=1 - 1e-10, correction=correction)


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.1), (math.nan, 0.1), (0.1, math.inf), ("0", 1.0)])
def test_an_interval_that_is_none_is_refused(low: Any, high: Any) -> None:
    with pytest.raises(SfumatoError, match="interval is"):
        PLAN.decide(low, high)


def test_questions_that_have_no_answer_are_refused() -> None:
    for wrong in (
        lambda: outcomes(PLAN, -0.1, STD),
        lambda: outcomes(PLAN, 0.1, 0.0),
        lambda: false_alarms(PLAN, STD, 0.2),
        lambda: minimal_detectable_divergence(PLAN, STD, 1.0),
        lambda: PLAN.cost(-1),
        lambda: checks_left(PLAN, math.nan),
        lambda: PLAN.spent([0.0]),
        lambda: spread_over_year(0, 1e-6, 2.0),
    ):
        with pytest.raises(SfumatoError, match="allowed"):
            wrong()
