from __future__ import annotations

import json
import re

import numpy as np
import pytest
from scipy import stats

from sfumato.attacks import loss_threshold_attack
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

STREAM = Streams(0)


def losses(gap: float, n: int, seed: int = 0):
    inside = Streams(seed).stream("in").standard_normal(n)
    return inside, Streams(seed).stream("out").standard_normal(n) + gap


def test_smaller_losses_mean_members_and_figures_match_the_closed_form():
    # AUC and TPR of two normals one apart; their standard errors are 0.0015 and 0.004, tolerances 4 of them.
    result = loss_threshold_attack(*losses(1.0, 40000), STREAM.stream("attack"), delta=1e-5)
    assert result.auc == pytest.approx(stats.norm.cdf(1 / np.sqrt(2)), abs=0.006)
    assert result.advantage == pytest.approx(2 * stats.norm.cdf(0.5) - 1, abs=0.016)
    low, high = result.points
    assert (low.target_fpr, high.target_fpr) == (0.001, 0.01)
    assert high.tpr == pytest.approx(stats.norm.cdf(stats.norm.ppf(0.01) + 1), abs=0.016)
    assert low.tpr < high.tpr


def test_swapped_losses_give_an_attack_worse_than_chance():
    inside, outside = losses(1.0, 2000)
    assert loss_threshold_attack(outside, inside, STREAM.stream("attack"), delta=0.0).auc < 0.3


def test_interval_holds_chance_when_nothing_leaks():
    # The error of the reached threshold's own rate is not in the interval: with as many members as
    # non-members the miss rate is 17 % and not 5 %; P[more than 33 of 100] is below 0.1 %.
    missed = 0
    for seed in range(100):
        point = loss_threshold_attack(
            *losses(0.0, 1000, seed), STREAM.stream("attack"), delta=0.0, fprs=[0.1]
        ).points[0]
        missed += not point.tpr_low <= 0.1 <= point.tpr_high
    assert missed <= 33


def test_epsilon_bound_is_positive_for_a_strong_leak_and_zero_for_none():
    assert (
        loss_threshold_attack(*losses(4.0, 2000), STREAM.stream("a"), delta=1e-5).epsilon.epsilon_lower > 3.0
    )
    assert (
        loss_threshold_attack(*losses(0.0, 2000), STREAM.stream("a"), delta=1e-5).epsilon.epsilon_lower == 0.0
    )


def test_metrics_are_finite_numbers_with_plain_names():
    metrics = loss_threshold_attack(*losses(1.0, 500), STREAM.stream("a"), delta=1e-5).as_metrics()
    assert all(re.fullmatch(r"[a-z0-9_/]+", name) for name in metrics)
    assert {"auc", "tpr_at_fpr_0_001", "tpr_at_fpr_0_01_high", "epsilon_lower", "members"} <= set(metrics)
    json.dumps(metrics, allow_nan=False)


def test_same_stream_gives_the_same_result():
    first, second = (
        loss_threshold_attack(*losses(1.0, 500), STREAM.stream("a"), delta=1e-5) for _ in range(2)
    )
    assert first.as_metrics() == second.as_metrics()


def test_loss_that_is_not_a_number_is_refused():
    with pytest.raises(SfumatoError, match="nonmember_losses"):
        loss_threshold_attack([0.0, 1.0], [0.0, np.nan], STREAM.stream("a"), delta=0.0)
