from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from sfumato import accounting, mechanisms
from sfumato.errors import SfumatoError
from sfumato.topk.plan import METHODS, TwoPhasePlan
from tests.cases import quick_ones

PLAN = TwoPhasePlan(expected_batch_size=100, warmup_steps=20, train_steps=40)


def test_warmup_alone_costs_its_share_and_both_phases_cost_epsilon() -> None:
    calibrated = PLAN.calibrate(2.0, 1e-5, 10_000)
    alone = accounting.epsilon(calibrated.events[:1], 1e-5)
    whole = accounting.epsilon(calibrated.events, 1e-5)
    assert alone == pytest.approx(0.3 * 2.0, rel=2e-3)
    assert alone <= 0.3 * 2.0
    assert whole == pytest.approx(2.0, rel=2e-3)
    assert whole <= 2.0


@pytest.mark.parametrize(
    "method", quick_ones(["tp_topk", "tp_rand", "on_topk", "on_rand"], {"tp_topk", "on_rand"})
)
def test_methods_are_matched_in_events(method: Any) -> None:
    events = dataclasses.replace(PLAN, method=method).calibrate(2.0, 1e-5, 10_000).events
    assert events == PLAN.calibrate(2.0, 1e-5, 10_000).events


def test_dense_spends_the_whole_budget_in_one_phase_of_all_steps() -> None:
    dense = dataclasses.replace(PLAN, method="dense").calibrate(2.0, 1e-5, 10_000)
    assert [phase.steps for phase in dense.phases] == [60]
    assert accounting.epsilon(dense.events, 1e-5) == pytest.approx(2.0, rel=2e-3)
    two = PLAN.calibrate(2.0, 1e-5, 10_000)
    assert min(two.noise_multipliers) < dense.noise_multipliers[0] < max(two.noise_multipliers)


def test_events_are_the_recorded_kind() -> None:
    calibrated = PLAN.calibrate(2.0, 1e-5, 10_000)
    sigma = calibrated.noise_multipliers[0]
    assert calibrated.events[0] == mechanisms.subsampled_gaussian(0.01, sigma, 20)


def test_non_private_needs_no_epsilon_and_says_so() -> None:
    calibrated = dataclasses.replace(PLAN, method="non_private").calibrate(None, 1e-5, 10_000)
    assert calibrated.noise_multipliers == (0.0,)
    assert "not private" in str(calibrated)


def test_a_plan_is_frozen_and_prints_what_matters() -> None:
    calibrated = PLAN.calibrate(2.0, 1e-5, 10_000)
    with pytest.raises(dataclasses.FrozenInstanceError):
        calibrated.epsilon = 9.0  # type: ignore[misc]
    text = str(calibrated)
    for part in ("tp_topk", "epsilon=2", "delta=1e-05", "n=10000", "warmup: 20 steps", "train: 40 steps"):
        assert part in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("active_ratio", 0.0),
        ("active_ratio", 1.5),
        ("active_ratio", float("nan")),
        ("warmup_budget_share", 1.0),
        ("warmup_budget_share", 0.0),
        ("clip_norm_train", 0.0),
        ("clip_norm_train", float("inf")),
        ("clip_norm_warmup", -1.0),
        ("learning_rate_train", float("nan")),
        ("expected_batch_size", 0),
        ("expected_batch_size", 2.5),
        ("warmup_steps", True),
        ("train_steps", 0),
        ("momentum", 1.0),
        ("method", "topk"),
        ("score", "mean"),
        ("support", "rowwise"),
        ("optimizer", "lion"),
        ("active_ratio", "0.1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(SfumatoError, match=f"{field} is .*; allowed"):
        TwoPhasePlan(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta", "n", "named"),
    [
        (1.0, 1e-5, 50, "n is 50"),
        (1.0, 1e-3, 10_000, "delta"),
        (None, 1e-5, 10_000, "epsilon"),
        (1.0, 0.0, 10_000, "delta"),
        ("3", 1e-5, 10_000, "epsilon is '3'; allowed for tp_topk is a positive number"),
        (1.0, "1e-5", 10_000, "delta is '1e-5'; allowed is a number"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(epsilon: Any, delta: Any, n: int, named: str) -> None:
    with pytest.raises(SfumatoError, match=named):
        PLAN.calibrate(epsilon, delta, n)


def test_every_method_has_phases() -> None:
    for method in METHODS:
        plan = dataclasses.replace(PLAN, method=method)
        assert sum(phase.steps for phase in plan.phases()) == plan.total_steps


def test_numbers_of_numpy_are_numbers() -> None:
    assert TwoPhasePlan(active_ratio=np.float32(0.5), train_steps=np.int64(3)).active_ratio == 0.5  # type: ignore[arg-type]
