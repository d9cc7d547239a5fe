from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.attacks.roc import (
    advantage,
    auc,
    clopper_pearson,
    epsilon_lower_bound,
    epsilon_of_rates,
    roc_curve,
    thin,
    tpr_at_fpr,
    tpr_bound,
)
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

# Few distinct values, so that ties within and between the two kinds are the rule.
tied_scores = st.lists(st.sampled_from([-1.5, 0.0, 0.25, 1.0, 7.0]), min_size=1, max_size=25).map(np.array)


def random(seed: int, name: str = "scores"):
    return Streams(seed).stream(name)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(tied_scores, tied_scores)
def test_auc_counts_pairs_with_ties_as_one_half(inside, outside):
    wins = (inside[:, None] > outside).sum() + 0.5 * (inside[:, None] == outside).sum()
    assert auc(roc_curve(inside, outside)) == pytest.approx(wins / (inside.size * outside.size), abs=1e-15)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(tied_scores, tied_scores)
def test_vertices_are_the_rates_of_every_threshold_and_of_no_other(inside, outside):
    curve = roc_curve(inside, outside)
    wanted = sorted(set(inside) | set(outside), reverse=True)
    assert curve.thresholds.tolist() == [math.inf, *wanted]
    assert curve.tpr.tolist() == [float(np.mean(inside >= t)) for t in curve.thresholds]
    assert curve.fpr.tolist() == [float(np.mean(outside >= t)) for t in curve.thresholds]
    assert advantage(curve) == max(curve.tpr - curve.fpr) >= 0.0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(tied_scores, tied_scores, st.sampled_from([0.01, 0.1, 0.5, 0.99]))
def test_tpr_at_fpr_is_the_best_threshold_within_the_target(inside, outside, target):
    point = tpr_at_fpr(roc_curve(inside, outside), target)
    within = [t for t in [math.inf, *inside, *outside] if np.mean(outside >= t) <= target]
    assert point.fpr <= target
    assert point.tpr == max(float(np.mean(inside >= t)) for t in within)
    assert point.tpr == float(np.mean(inside >= point.threshold))
    assert point.tpr_low <= point.tpr <= point.tpr_high


def test_rate_below_resolution_allows_no_false_positive():
    point = tpr_at_fpr(roc_curve(np.array([5.0, 1.0]), np.arange(3.0)), 0.001)
    assert (point.fpr, point.tpr) == (0.0, 0.5)


def test_target_equal_to_a_vertex_is_allowed():
    # 0.1 * 30 is 3.0000000000000004 and 0.07 * 100 is 7.000000000000001, 0.29 * 100 is 28.999999999999996.
    for target, count in ((0.1, 30), (0.07, 100), (0.29, 100)):
        point = tpr_at_fpr(roc_curve(np.zeros(2), np.arange(count, dtype=float)), target)
        assert point.fpr == pytest.approx(target)


@pytest.mark.parametrize("trials", [1, 7, 40])
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.5, 0.83])
def test_clopper_pearson_covers_with_at_least_its_level_and_each_end_with_half_the_error(trials, rate):
    # Exact coverage, summed over all outcomes: no chance in this test.
    counts = np.arange(trials + 1)
    low, high = clopper_pearson(counts, trials, 0.95)
    mass = stats.binom.pmf(counts, trials, rate)
    assert mass[low > rate].sum() <= 0.025 + 1e-12
    assert mass[high < rate].sum() <= 0.025 + 1e-12


def test_clopper_pearson_closed_forms_at_the_ends():
    low, high = clopper_pearson(0, 100)
    assert (float(low), float(high)) == (0.0, pytest.approx(1 - 0.025 ** (1 / 100)))
    low, high = clopper_pearson(100, 100)
    assert (float(low), float(high)) == (pytest.approx(0.025 ** (1 / 100)), 1.0)


def test_thinned_curve_holds_true_vertices_at_low_and_high_rates():
    curve = roc_curve(random(0).standard_normal(5000) + 1, random(1).standard_normal(20000))
    fpr, tpr = thin(curve)
    vertices = set(zip(curve.fpr.tolist(), curve.tpr.tolist(), strict=True))
    assert len(fpr) <= 200
    assert set(zip(fpr.tolist(), tpr.tolist(), strict=True)) <= vertices
    assert (fpr[0], fpr[-1], tpr[-1]) == (0.0, 1.0, 1.0)
    assert np.all(np.diff(fpr) > 0)
    assert np.all(np.diff(tpr) >= 0)
    assert np.sum((fpr > 0) & (fpr <= 0.01)) >= 30
    assert np.max(np.diff(fpr)) <= 0.02


def test_thinning_a_short_curve_keeps_its_ends():
    fpr, tpr = thin(roc_curve(np.ones(3), np.ones(1)))
    assert (fpr.tolist(), tpr.tolist()) == ([0.0, 1.0], [0.0, 1.0])


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 8.0])
def test_randomized_response_lies_on_the_bound(epsilon):
    right = 1 / (1 + math.exp(-epsilon))
    assert float(tpr_bound(1 - right, epsilon, 0.0)) == pytest.approx(right)


def test_privacy_curve_gives_a_bound_close_above_the_gaussian_trade_off():
    mu, fpr = 1.0, np.geomspace(1e-4, 1.0, 50)
    epsilons = np.linspace(0.0, 6.0, 400)
    deltas = stats.norm.cdf(mu / 2 - epsilons / mu) - np.exp(epsilons) * stats.norm.cdf(
        -mu / 2 - epsilons / mu
    )
    optimum = stats.norm.cdf(stats.norm.ppf(fpr) + mu)
    bound = tpr_bound(fpr, epsilons.tolist(), deltas.tolist())
    assert np.all(bound >= optimum - 1e-12)
    assert np.max(bound - optimum) < 1e-4
    assert np.all(tpr_bound(fpr, float(epsilons[60]), float(deltas[60])) >= bound)


def test_bound_is_finite_for_a_huge_epsilon_and_trivial_for_delta_one():
    assert tpr_bound([0.0, 1e-3, 1.0], 1e4, 0.0).tolist() == [0.0, 1.0, 1.0]
    assert tpr_bound([0.0, 0.5], 0.0, 1.0).tolist() == [1.0, 1.0]
    assert tpr_bound([0.0, 0.25, 1.0], 0.0, 0.0).tolist() == [0.0, 0.25, 1.0]


def test_epsilon_of_rates_inverts_the_bound_in_both_directions():
    for fpr in (0.01, 0.3, 0.9):
        tpr = float(tpr_bound(fpr, 1.25, 1e-3))
        assert float(epsilon_of_rates(tpr, fpr, 1e-3)) == pytest.approx(1.25)
    assert float(epsilon_of_rates(0.2, 0.2, 0.0)) == 0.0


def test_bound_from_scores_without_information_is_rarely_positive():
    # False-alarm rate of each repeat at most 5 %; P[more than 33 of 400] < 0.3 %, seeds fixed.
    alarms = 0
    for seed in range(400):
        scores = random(seed).standard_normal(400)
        alarms += (
            epsilon_lower_bound(scores[:200], scores[200:], 0.0, random(seed, "split")).epsilon_lower > 0
        )
    assert alarms <= 33


def test_bound_from_scores_stays_below_randomized_response_and_nears_it():
    # As above: at most 5 % each, P[more than 18 of 200] < 1 %.
    epsilon, above, bounds = 1.0, 0, []
    right = 1 / (1 + math.exp(-epsilon))
    for seed in range(200):
        inside = (random(seed, "in").random(20000) < right).astype(float)
        outside = (random(seed, "out").random(20000) >= right).astype(float)
        bounds.append(epsilon_lower_bound(inside, outside, 0.0, random(seed, "split")).epsilon_lower)
        above += bounds[-1] > epsilon
    assert above <= 18
    assert np.mean(bounds) > 0.93 * epsilon


def test_bound_uses_the_direction_of_the_missed_members():
    # No threshold has a large TPR / FPR, but a low score all but excludes membership.
    inside = np.ones(4000)
    outside = np.repeat([0.0, 1.0], 2000)
    result = epsilon_lower_bound(inside, outside, 1e-5, random(0))
    assert result.epsilon_lower > math.log(0.45 / (1 - result.tpr_low))
    assert result.epsilon_lower > 5.0


def test_threshold_is_judged_on_scores_that_did_not_choose_it():
    class InOrder:
        permutation = staticmethod(np.arange)

    # The first half alone separates the kinds: a threshold that was judged by it would show a large epsilon.
    inside = np.repeat([1.0, 0.0], 100)
    result = epsilon_lower_bound(inside, np.zeros(200), 0.0, InOrder())
    assert (result.threshold, result.members, result.nonmembers) == (1.0, 100, 100)
    assert result.epsilon_lower == 0.0
    assert epsilon_lower_bound(inside[::-1], np.zeros(200), 0.0, InOrder()).epsilon_lower == 0.0
    assert epsilon_lower_bound(np.ones(200), np.zeros(200), 0.0, InOrder()).epsilon_lower > 3.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: roc_curve([], [1.0]), "member_scores"),
        (lambda: roc_curve([1.0], [np.nan]), "nonmember_scores"),
        (lambda: roc_curve([[1.0]], [1.0]), "member_scores"),
        (lambda: roc_curve([np.inf], [1.0]), "member_scores"),
        (lambda: tpr_at_fpr(roc_curve([1.0], [1.0]), 0.0), "target_fpr"),
        (lambda: tpr_at_fpr(roc_curve([1.0], [1.0]), 0.1, 1.0), "confidence"),
        (lambda: clopper_pearson(3, 2), "successes"),
        (lambda: clopper_pearson(0, 0), "successes"),
        (lambda: thin(roc_curve([1.0], [1.0]), 3), "points"),
        (lambda: tpr_bound(1.5, 1.0, 0.0), "fpr"),
        (lambda: tpr_bound(0.5, -1.0, 0.0), "epsilon"),
        (lambda: tpr_bound(0.5, [1.0, 2.0], [0.0]), "epsilon"),
        (lambda: epsilon_lower_bound([1.0], [1.0, 2.0], 0.0, random(0)), "2"),
        (lambda: epsilon_lower_bound([1.0, 2.0], [1.0, 2.0], 1.0, random(0)), "delta"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        call()
    assert str(caught.value).count("\n") == 0
