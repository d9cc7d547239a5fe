from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from sfumato.attacks import (
    auc,
    balanced_memberships,
    leave_one_out_scores,
    lira_attack,
    lira_scores,
    logit_confidence,
    roc_curve,
    tpr_at_fpr,
)
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


def gaussian_world(models: int, examples: int, gap: float, seed: int = 0, spread: float = 4.0):
    """Confidences N(hardness_i + gap * member, 1); hardness varies, so one threshold for all does badly."""
    streams = Streams(seed)
    memberships = balanced_memberships(models, examples, streams.stream("memberships"))
    hardness = spread * streams.stream("hardness").standard_normal(examples)
    noise = streams.stream("training").standard_normal((models, examples))
    return hardness + gap * memberships + noise, memberships


def power(gap: float, fpr: float) -> float:
    """The optimal attack's true-positive rate between N(0, 1) and N(gap, 1)."""
    return float(stats.norm.cdf(stats.norm.ppf(fpr) + gap))


def tpr(scores, memberships, fpr: float) -> float:
    return tpr_at_fpr(roc_curve(scores[memberships], scores[~memberships]), fpr).tpr


def test_logit_confidence_agrees_with_probabilities_where_these_are_accurate():
    logits = Streams(0).stream("logits").standard_normal((200, 7))
    labels = Streams(0).stream("labels").integers(0, 7, 200)
    p = special.softmax(logits, axis=1)[np.arange(200), labels]
    assert np.allclose(logit_confidence(logits, labels), np.log(p) - np.log1p(-p), rtol=1e-12)


def test_logit_confidence_is_exact_where_probabilities_are_zero_or_one():
    logits = np.array([[1000.0, 0.0, -5.0], [-1000.0, 0.0, -1000.0], [3e5, 3e5, -3e5]])
    phi = logit_confidence(logits, np.zeros(3, np.int64))
    assert phi.tolist() == pytest.approx([1000.0 - np.log1p(np.exp(-5.0)), -1000.0, 0.0])


def test_each_example_is_in_exactly_half_of_the_models_and_in_each_by_a_fair_coin():
    memberships = balanced_memberships(16, 20000, Streams(5).stream("memberships"))
    assert np.all(memberships.sum(axis=0) == 8)
    # 16 rows, 5 standard deviations: false alarm below 1e-5.
    assert np.all(np.abs(memberships.mean(axis=1) - 0.5) < 5 * 0.5 / np.sqrt(20000))
    assert abs(np.corrcoef(memberships[0], memberships[2])[0, 1]) < 5 / np.sqrt(20000)


def test_row_of_a_shadow_does_not_depend_on_how_many_shadows_there_are():
    few = balanced_memberships(4, 100, Streams(5).stream("memberships"))
    many = balanced_memberships(32, 100, Streams(5).stream("memberships"))
    assert np.array_equal(few, many[:4])


@pytest.mark.parametrize("variance", ["global", "per_example"])
def test_online_attack_approaches_the_optimum_with_many_shadows(variance):
    confidences, memberships = gaussian_world(136, 10000, gap=2.0)
    target = [0, 2, 4, 6]
    kept = np.arange(136) >= 8
    scores = np.stack(
        [lira_scores(confidences[t], confidences[kept], memberships[kept], variance=variance) for t in target]
    )
    # 20,000 of each kind: a standard error of 0.011, and the loss by Gaussians fitted to 64 shadows, 0.02.
    assert tpr(scores, memberships[target], 0.01) == pytest.approx(power(2.0, 0.01), abs=0.05)
    assert auc(roc_curve(scores[memberships[target]], scores[~memberships[target]])) == pytest.approx(
        stats.norm.cdf(2.0 / np.sqrt(2)), abs=0.015
    )


def test_online_attack_beats_one_threshold_for_all_examples():
    confidences, memberships = gaussian_world(32, 2000, gap=2.0)
    scores, references = leave_one_out_scores(confidences, memberships)
    assert references == 30
    assert tpr(confidences, memberships, 0.01) < 0.1
    assert tpr(scores, memberships, 0.01) > 0.8 * power(2.0, 0.01)


def test_more_shadows_are_better():
    confidences, memberships = gaussian_world(136, 10000, gap=2.0)
    by_count = [
        tpr(lira_scores(confidences[0], confidences[8:end], memberships[8:end]), memberships[0], 0.01)
        for end in (12, 24, 136)
    ]
    assert by_count[0] < by_count[1] - 0.03 < by_count[2] - 0.06


def test_offline_attack_never_looks_at_shadows_that_held_the_example():
    confidences, memberships = gaussian_world(32, 2000, gap=2.0)
    changed = np.where(memberships, 1e6, confidences)
    first = lira_scores(confidences[0], confidences[2:], memberships[2:], mode="offline")
    second = lira_scores(confidences[0], changed[2:], memberships[2:], mode="offline")
    assert np.array_equal(first, second)


def test_offline_attack_works():
    confidences, memberships = gaussian_world(32, 2000, gap=2.0)
    scores, _ = leave_one_out_scores(confidences, memberships, mode="offline")
    assert tpr(scores, memberships, 0.01) > 0.7 * power(2.0, 0.01)


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_without_memorisation_the_rates_agree(mode):
    # 80,000 pooled scores of each kind, correlated through shared references: standard errors of TPR at
    # 1 % FPR and of the AUC are below 0.0006 and 0.002; five of them, false alarm below 1e-5.
    confidences, memberships = gaussian_world(16, 10000, gap=0.0)
    scores, _ = leave_one_out_scores(confidences, memberships, mode=mode)
    assert tpr(scores, memberships, 0.01) == pytest.approx(0.01, abs=0.003)
    assert auc(roc_curve(scores[memberships], scores[~memberships])) == pytest.approx(0.5, abs=0.01)


def test_complement_of_the_target_is_no_reference_as_it_would_bias_the_null():
    confidences, memberships = gaussian_world(6, 20000, gap=0.0)

    def separation(targets_out):
        scores = np.empty_like(confidences)
        for t in range(6):
            kept = np.array([m not in targets_out(t) for m in range(6)])
            scores[t] = lira_scores(confidences[t], confidences[kept], memberships[kept])
        return auc(roc_curve(scores[memberships], scores[~memberships])) - 0.5

    biased = separation(lambda t: {t})
    scores, references = leave_one_out_scores(confidences, memberships)
    fair = auc(roc_curve(scores[memberships], scores[~memberships])) - 0.5
    assert references == 4
    assert abs(biased) > 0.02
    assert abs(fair) < 0.01


def test_pooled_variance_leaves_the_spread_between_examples_out():
    # A spread of 100 between examples, 1 within: a variance of all values would hide every member.
    confidences, memberships = gaussian_world(32, 1000, gap=3.0, spread=100.0)
    scores, _ = leave_one_out_scores(confidences, memberships, variance="global")
    assert tpr(scores, memberships, 0.01) > 0.7 * power(3.0, 0.01)
    offline = lira_scores(confidences[0], confidences[2:], memberships[2:], mode="offline", variance="global")
    assert np.std(offline[~memberships[0]]) == pytest.approx(np.sqrt(1 + 1 / 15), rel=0.15)


def test_result_reports_how_many_models_it_used_and_how():
    confidences, memberships = gaussian_world(16, 500, gap=2.0)
    result = lira_attack(confidences, memberships, Streams(0).stream("attack"), shadow_models=16, delta=1e-5)
    assert (result.shadow_models, result.references, result.variance, result.mode) == (
        16,
        14,
        "global",
        "online",
    )
    assert result.membership.attack == "lira_online"
    assert result.membership.members == result.membership.nonmembers == 8 * 500
    assert len(result.tpr_spread) == 2
    assert result.audit.canaries == 500


def test_variance_per_example_is_used_from_64_references():
    confidences, memberships = gaussian_world(66, 200, gap=2.0)
    result = lira_attack(confidences, memberships, Streams(0).stream("attack"), shadow_models=66, delta=1e-5)
    assert (result.references, result.variance) == (64, "per_example")


def test_sixty_four_shadows_with_sixteen_present_are_refused():
    confidences, memberships = gaussian_world(16, 50, gap=2.0)
    with pytest.raises(SfumatoError, match=r"shadow_models is 64 but 16 are present"):
        lira_attack(confidences, memberships, Streams(0).stream("attack"), shadow_models=64, delta=1e-5)


def test_audit_of_the_target_is_a_bound_for_randomized_response():
    # The confidence is the coin through randomized response: epsilon is exact, a false alarm has at most 5 %.
    epsilon, right = 1.0, 1 / (1 + np.exp(-1.0))
    memberships = balanced_memberships(8, 2000, Streams(1).stream("memberships"))
    kept = Streams(1).stream("training").random((8, 2000)) < right
    confidences = (memberships == kept) + 0.01 * Streams(2).stream("training").standard_normal((8, 2000))
    result = lira_attack(confidences, memberships, Streams(0).stream("attack"), shadow_models=8, delta=0.0)
    assert 0.0 < result.audit.epsilon_lower <= epsilon


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c, m: lira_scores(c[0], c[1:], m[1:].astype(float)), "bool"),
        (lambda c, m: lira_scores(c[0, :3], c[1:], m[1:]), "shape"),
        (lambda c, m: lira_scores(c[0], np.where(m, np.nan, c)[1:], m[1:]), "finite"),
        (lambda c, m: lira_scores(c[0], c[1:], np.ones_like(m[1:])), "example 0 has 0"),
        (lambda c, m: lira_scores(c[0], c[2:4], m[2:4], variance="per_example"), "at least 2"),
        (lambda c, m: lira_scores(c[0], c[2:4], m[2:4], variance="global"), "one shadow model"),
        (lambda c, m: lira_scores(c[0], c[2:], m[2:], variance="pooled"), "variance"),
        (lambda c, m: lira_scores(c[0], c[2:], m[2:], mode="both"), "mode"),
        (lambda c, m: leave_one_out_scores(c[:2], m[:2]), "models"),
        (lambda c, m: balanced_memberships(5, 10, Streams(0).stream("m")), "even"),
        (lambda c, m: balanced_memberships(4, 0, Streams(0).stream("m")), "n_examples"),
        (lambda c, m: logit_confidence(np.zeros((3, 1)), np.zeros(3, np.int64)), "classes"),
        (lambda c, m: logit_confidence(np.zeros((3, 2)), np.array([0, 1, 2])), "0..1"),
        (lambda c, m: logit_confidence(np.full((3, 2), np.nan), np.zeros(3, np.int64)), "finite"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words):
        call(*gaussian_world(8, 20, gap=1.0))
