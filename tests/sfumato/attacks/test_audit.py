from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from sfumato.attacks.audit import audit_one_run, count_correct, epsilon_lower, guess_counts, p_value
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


def published_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """The theorem written out term by term."""
    q = 1 / (1 + math.exp(-epsilon))
    beta = stats.binom.sf(v - 1, r, q)
    alpha, running = 0.0, 0.0
    for i in range(1, v + 1):
        running += stats.binom.pmf(v - i, r, q)
        alpha = max(alpha, running / i)
    return min(1.0, beta + 2 * m * delta * alpha)


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0, 9.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
@pytest.mark.parametrize(
    "counts", [(1000, 100, 93), (1000, 1000, 1000), (50, 7, 0), (50, 7, 7), (300, 200, 101)]
)
def test_p_value_is_the_theorems(epsilon, delta, counts):
    m, r, v = counts
    assert p_value(v, r, m, epsilon, delta) == pytest.approx(
        published_p_value(m, r, v, epsilon, delta), rel=1e-9
    )


def test_p_value_at_huge_epsilon_is_one():
    assert p_value(900, 1000, 1000, 800.0, 1e-5) == pytest.approx(1.0)


def test_all_right_guesses_give_the_closed_form():
    # P[all r right] = q^r = 0.05 without delta.
    q = 0.05 ** (1 / 200)
    assert epsilon_lower(200, 200, 200, 0.0) == pytest.approx(math.log(q / (1 - q)), abs=2e-6)


def test_bound_grows_with_right_guesses_and_falls_with_delta_canaries_and_confidence():
    bounds = [epsilon_lower(v, 100, 1000, 1e-5) for v in range(101)]
    assert bounds == sorted(bounds)
    assert bounds[50] == 0.0 < bounds[70] < bounds[90]
    assert epsilon_lower(90, 100, 1000, 1e-3) < bounds[90] < epsilon_lower(90, 100, 1000, 0.0)
    assert epsilon_lower(90, 100, 5000, 1e-5) < bounds[90]
    assert epsilon_lower(90, 100, 1000, 1e-5, 0.99) < bounds[90]
    # 2 m delta = 200: the theorem says nothing at all.
    assert epsilon_lower(100, 100, 1000, 0.1) == 0.0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_randomized_response_is_covered_in_95_percent_of_2000_repeats(epsilon):
    # The false-alarm rate is at most 5 %; over 2,000 repeats more than 132 have probability below 0.1 %.
    m, right = 500, 1 / (1 + math.exp(-epsilon))
    hits = (Streams(0).stream("attack").random((2000, m)) < right).sum(axis=1)
    bounds = np.array([epsilon_lower(int(v), m, m, 0.0) for v in hits])
    assert np.sum(bounds > epsilon) <= 132


def test_false_alarms_of_randomized_response_are_close_to_the_level():
    # Exact: the rejection region at the true epsilon holds just under 5 %, so the bound is not slack.
    m, epsilon = 500, 1.0
    right = 1 / (1 + math.exp(-epsilon))
    bounds = np.array([epsilon_lower(v, m, m, 0.0) for v in range(m + 1)])
    alarm = stats.binom.pmf(np.arange(m + 1), m, right)[bounds > epsilon].sum()
    assert 0.04 < alarm <= 0.05


def test_bound_becomes_tight_as_canaries_grow():
    epsilon = 1.0
    right = 1 / (1 + math.exp(-epsilon))
    gaps = [epsilon - epsilon_lower(int(right * m), m, m, 0.0) for m in (100, 1000, 10000, 100000)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.015


@pytest.mark.parametrize("mechanism", ["each", "all"])
def test_coverage_holds_with_delta_even_where_it_is_spent_at_once(mechanism):
    # Randomized response that shows the truth with probability delta, for each canary apart or for all
    # at once: (epsilon, delta)-private both. At most 5 % false alarms; more than 132 of 2,000 below 0.1 %.
    m, epsilon, delta = 100, 1.0, 0.004
    right = 1 / (1 + math.exp(-epsilon))
    hit = Streams(0).stream("attack").random((2000, m)) < right
    shown = Streams(0).stream("shown").random((2000, m if mechanism == "each" else 1)) < delta
    hits = (hit | shown).sum(axis=1)
    bounds = np.array([epsilon_lower(int(v), m, m, delta) for v in hits])
    assert np.sum(bounds > epsilon) <= 132


def test_whole_audit_of_a_gaussian_mechanism_keeps_its_level_with_abstentions():
    # Scores coin + N(0, sigma^2), mu = 1: epsilon at delta = 1e-3 is 3.1 (exact Gaussian). At most 5 % above.
    mu, delta, m = 1.0, 1e-3, 400
    epsilons = np.linspace(0, 10, 100001)
    curve = stats.norm.cdf(mu / 2 - epsilons / mu) - np.exp(epsilons) * stats.norm.cdf(
        -mu / 2 - epsilons / mu
    )
    epsilon = float(epsilons[np.argmax(curve <= delta)])
    above, positive = 0, 0
    for seed in range(300):
        coins = Streams(seed).stream("coins").random(m) < 0.5
        scores = mu * coins + Streams(seed).stream("noise").standard_normal(m)
        bound = audit_one_run(scores, coins, delta=delta, guess_fractions=0.2).epsilon_lower
        above, positive = above + (bound > epsilon), positive + (bound > 0)
    assert above <= 15
    assert positive > 250


def test_scores_without_information_are_rarely_refuted_also_with_several_options():
    # At most 5 % for the best of five options together; more than 42 of 500 have probability below 0.1 %.
    options = [(f / 2, f / 2) for f in (0.02, 0.1, 0.2, 0.5, 1.0)]
    alarms = 0
    for seed in range(500):
        coins = Streams(seed).stream("coins").random(200) < 0.5
        scores = Streams(seed).stream("noise").standard_normal(200)
        alarms += audit_one_run(scores, coins, delta=0.0, guess_fractions=options).epsilon_lower > 0
    assert alarms <= 42


def test_options_are_corrected_for():
    coins = np.arange(100) % 2 == 0
    one = audit_one_run(coins.astype(float), coins, delta=0.0, guess_fractions=1.0)
    two = audit_one_run(coins.astype(float), coins, delta=0.0, guess_fractions=[(0.5, 0.5), (0.05, 0.05)])
    assert (one.options, two.options, two.guesses) == (1, 2, 100)
    assert two.epsilon_lower == epsilon_lower(100, 100, 100, 0.0, 0.975) < one.epsilon_lower
    assert two.p_value(two.epsilon_lower + 1e-4) > 0.05 >= two.p_value(two.epsilon_lower)


def test_guesses_are_the_highest_and_the_lowest_scores():
    coins = np.array([True, False, True, False, True, False])
    scores = np.array([9.0, 8.0, 0.0, 0.5, 7.0, -1.0])
    assert count_correct(scores, coins, 2, 0) == 1
    assert count_correct(scores, coins, 0, 2) == 1
    assert count_correct(scores, coins, 3, 1) == 3
    assert count_correct(scores, coins, 3, 3) == 4


def test_equal_scores_are_ordered_without_a_look_at_the_coins():
    # All scores equal: the guess is by number, so right ones are those of the fixed first and last halves.
    for seed in range(20):
        coins = Streams(seed).stream("coins").random(60) < 0.5
        assert count_correct(np.zeros(60), coins, 30, 30) == coins[:30].sum() + (~coins[30:]).sum()


def test_ceiling_says_what_the_audit_could_have_shown():
    coins = np.arange(200) % 2 == 0
    perfect = audit_one_run(coins.astype(float), coins, delta=1e-5, guess_fractions=0.5)
    blind = audit_one_run(np.zeros(200), coins, delta=1e-5, guess_fractions=0.5)
    assert perfect.epsilon_lower == perfect.ceiling == blind.ceiling > blind.epsilon_lower == 0.0
    json.dumps(perfect.as_metrics(), allow_nan=False)


def test_guess_counts_are_halved_between_the_kinds():
    assert guess_counts(0.1, 1000) == [(50, 50)]
    assert guess_counts([(0.3, 0.0), (0.1, 0.2)], 10) == [(3, 0), (1, 2)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: p_value(5, 4, 10, 1.0, 0.0), "correct"),
        (lambda: p_value(1, 11, 10, 1.0, 0.0), "guesses"),
        (lambda: p_value(0, 0, 10, 1.0, 0.0), "guesses"),
        (lambda: p_value(1, 1, 1, -0.1, 0.0), "epsilon"),
        (lambda: p_value(1, 1, 1, math.nan, 0.0), "epsilon"),
        (lambda: p_value(1, 1, 1, 1.0, 1.0), "delta"),
        (lambda: epsilon_lower(1, 1, 1, 0.0, 1.0), "confidence"),
        (lambda: guess_counts(0.0, 10), "fractions"),
        (lambda: guess_counts(1.1, 10), "fractions"),
        (lambda: guess_counts(math.nan, 10), "fractions"),
        (lambda: guess_counts(0.01, 10), "no guess"),
        (lambda: guess_counts([], 10), "empty"),
        (lambda: audit_one_run([1.0, math.nan], np.array([True, False]), delta=0.0), "scores"),
        (lambda: audit_one_run([1.0, 2.0], np.array([1, 0]), delta=0.0), "included"),
        (lambda: audit_one_run([1.0, 2.0], np.array([True]), delta=0.0), "included"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words):
        call()
