"""Noise from the clients: how much, that it is drawn right, and what the estimate says of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.accounting import epsilon as price
from sfumato.accounting.discrete_gaussian_sums import discrete_gaussian_law, sum_law
from sfumato.divergence.distributed import (
    count_noise,
    counted_shares,
    draw_noise,
    estimate,
    require_readable,
)
from sfumato.divergence.estimator import target_divergence
from sfumato.divergence.intervals import Tail
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import PublicPoints, Reference, all_points, draw_points
from sfumato.errors import SfumatoError
from sfumato.rng import Streams, SystemStream
from tests.sfumato.divergence.parties import REFERENCE

POPULATION = np.array([0.1, 0.25, 0.3, 0.0, 0.2, 0.1, 0.05])


@pytest.mark.parametrize("shares", [1, 5, 300])
@pytest.mark.parametrize("target", [0.1, 2.0])
def test_noise_costs_the_target_when_priced_back(shares: int, target: float) -> None:
    noise = count_noise(target, 1e-5, shares)
    assert (noise.l2_sensitivity, noise.l1_sensitivity, noise.coordinates) == (math.sqrt(2), 2.0, 2)
    assert 0.999 * target < price([noise.event], 1e-5, "zcdp", "replace_one") <= target


@pytest.mark.parametrize("sigma", [0.5, 1.3, 40.0])
def test_seeded_draws_have_the_law(sigma: float) -> None:
    # Three chi-square tests at 1e-4 each.
    draws = draw_noise(sigma, 50_000, Streams(2).stream("noise"))
    law = discrete_gaussian_law(sigma)
    shown = np.bincount(draws - law.first, minlength=len(law.probabilities))
    expected = 50_000 * law.probabilities
    usual = expected >= 20
    observed = np.append(shown[usual], shown[~usual].sum())
    wanted = np.append(expected[usual], expected[~usual].sum())
    if wanted[-1] < 1:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


@pytest.mark.parametrize("sigma", [0.6, 5.0])
def test_draws_of_the_system_have_the_mean_and_the_variance(sigma: float) -> None:
    # Two z-tests at five standard errors on fresh entropy: false alarm below 2.4e-6 in all.
    draws = draw_noise(sigma, 3000, SystemStream())
    variance = discrete_gaussian_law(sigma).variance
    assert draws.dtype == np.int64
    assert abs(draws.mean()) < 5 * math.sqrt(variance / 3000)
    kurtosis = float(discrete_gaussian_law(sigma).probabilities @ discrete_gaussian_law(sigma).values ** 4)
    assert abs((draws**2).mean() - variance) < 5 * math.sqrt((kurtosis - variance**2) / 3000)


@pytest.mark.parametrize("points", ["drawn", "all"])
def test_the_interval_covers_the_target(points: str) -> None:
    # A binomial test of 50 intervals: fewer than 36 hits have a chance of 1e-4 if the coverage is 90 %.
    plan, noise, examples, hits = EstimatorPlan(Floor("mix", 0.1), 0.5), count_noise(2.0, 1e-5, 20), 2000, 0
    cells = np.rint(examples * POPULATION).astype(np.int64)
    target = target_divergence(REFERENCE, cells / examples, plan)
    law, generator = sum_law(noise.sigma, 24), np.random.default_rng(4)
    for trial in range(50):
        where = all_points(REFERENCE)
        if points == "drawn":
            where = draw_points(REFERENCE, 20, Streams(trial).stream("points"))
        moved = generator.choice(law.values.astype(np.int64), p=law.probabilities, size=where.count)
        found = estimate(
            cells[where.cells] + moved, examples, 24, noise, where, REFERENCE, plan, 1e-5, confidence=0.9
        )
        assert found.value_low <= found.raw <= found.value_high
        assert 0.0 <= found.low <= found.high <= -math.log(0.1)
        hits += found.low <= target <= found.high
    assert hits >= 36


def test_the_estimate_says_what_it_cost_and_what_it_covers() -> None:
    plan, noise = EstimatorPlan(Floor("mix", 0.1), 0.5), count_noise(1.0, 1e-5, 8)
    every = all_points(REFERENCE)
    found = estimate(
        np.rint(2000 * POPULATION).astype(np.int64), 2000, 9, noise, every, REFERENCE, plan, 1e-5
    )
    assert price(found.events, 1e-5, "zcdp", "replace_one") == pytest.approx(found.epsilon, rel=1e-12)
    assert found.epsilon <= 1.0
    assert (found.sampling, found.survivors, found.shares) == ("none", 9, 8)
    assert found.noise_std == pytest.approx(3 * noise.sigma)
    assert "KL(Pi ||" in found.target
    assert found.bias != 0.0


def test_fewer_survivors_than_the_guarantee_needs_are_refused() -> None:
    plan, noise, every = (
        EstimatorPlan(Floor("mix", 0.1), 0.5),
        count_noise(1.0, 1e-5, 8),
        all_points(REFERENCE),
    )
    with pytest.raises(SfumatoError, match="survivors is 7"):
        estimate(np.zeros(7, np.int64), 2000, 7, noise, every, REFERENCE, plan, 1e-5)


def test_corrupted_clients_do_not_count_as_noise() -> None:
    assert counted_shares(100, 80, 0.1) == 70
    assert counted_shares(9, 7, 0.1) == 6
    with pytest.raises(SfumatoError, match="more survivors than corrupted"):
        counted_shares(10, 5, 0.5)


@pytest.mark.parametrize(("sigma", "size"), [(0.0, 3), (math.nan, 3), (1.0, 0), (1.0, 2.5)])
def test_noise_of_no_scale_or_size_is_refused(sigma: float, size: int) -> None:
    with pytest.raises(SfumatoError, match="allowed is"):
        draw_noise(sigma, size, Streams(0).stream("noise"))


@given(percent=st.integers(0, 90), clients=st.integers(2, 2000))
@settings(deadline=None)
def test_no_corrupted_client_is_left_out_by_rounding(percent: int, clients: int) -> None:
    corrupted = -(-percent * clients // 100)
    if clients > corrupted:
        assert counted_shares(clients, clients, percent / 100) == clients - corrupted


def _exact_coverage(rare: float, population: float, draws: int, plan: EstimatorPlan, tail: Tail) -> float:
    """How likely points are drawn whose interval covers, by all draws of two cells; N makes the noise nothing."""
    examples, reference = 10**9, Reference.from_probabilities([1.0 - rare, rare])
    shown = round(examples * population)
    counts = np.array([examples - shown, shown])
    target = target_divergence(reference, counts / examples, plan)
    noise, covered = count_noise(1.0, 1e-5, 1), 0.0
    for seen in range(draws + 1):
        times = np.array([draws - seen, seen])
        cells = np.flatnonzero(times).astype(np.int32)
        where = PublicPoints(cells, times[cells] / draws, draws)
        found = estimate(counts[cells], examples, 1, noise, where, reference, plan, 1e-5, tail=tail)
        chance = math.comb(draws, seen) * rare**seen * (1.0 - rare) ** (draws - seen)
        covered += chance * (found.low <= target <= found.high)
    return covered


@pytest.mark.parametrize(("rare", "draws", "normal"), [(0.05, 3, 0.8574), (0.01, 10, 0.9044)])
def test_by_default_the_interval_covers_at_least_as_often_as_it_says_and_the_normal_tail_less(
    rare: float, draws: int, normal: float
) -> None:
    for level, coefficient in ((0.1, 0.0), (0.01, 0.0), (0.001, 1.0)):
        plan = EstimatorPlan(Floor("mix", level), coefficient)
        for population in (0.0, rare / 10, rare, 0.5, 1.0):
            assert _exact_coverage(rare, population, draws, plan, "guaranteed") >= 0.95
    plan = EstimatorPlan(Floor("mix", 0.1))
    assert _exact_coverage(rare, 0.0, draws, plan, "normal") == pytest.approx(normal, abs=1e-4)
    reference = Reference.from_probabilities([1.0 - rare, rare])
    where = PublicPoints(np.array([0], np.int32), np.array([1.0]), draws)
    made = estimate(np.array([900]), 1000, 1, count_noise(1.0, 1e-5, 1), where, reference, plan, 1e-5)
    guaranteed = estimate(
        np.array([900]), 1000, 1, count_noise(1.0, 1e-5, 1), where, reference, plan, 1e-5, tail="guaranteed"
    )
    assert made == guaranteed


def test_a_tail_that_is_none_is_refused() -> None:
    plan, noise, every = EstimatorPlan(Floor("mix", 0.1)), count_noise(1.0, 1e-5, 8), all_points(REFERENCE)
    with pytest.raises(SfumatoError, match="tail is 'fat'; allowed are normal, guaranteed"):
        estimate(np.zeros(7, np.int64), 2000, 9, noise, every, REFERENCE, plan, 1e-5, tail="fat")  # type: ignore[arg-type]


def test_a_value_below_zero_is_clipped_to_its_targets_range_and_lies_in_its_interval() -> None:
    plan, noise, every = (
        EstimatorPlan(Floor("clip", 0.9, 2.0), 0.0),
        count_noise(1.0, 1e-5, 1),
        all_points(REFERENCE),
    )
    counts = np.zeros(7, np.int64)
    counts[[0, 6]] = 600_000, 400_000
    found = estimate(counts, 1_000_000, 1, noise, every, REFERENCE, plan, 1e-5)
    assert found.raw < 0.0
    assert found.low <= found.clipped == found.raw <= found.high


@given(epsilon=st.sampled_from([1e-8, 1e-6, 7.8e-6, 1e-5, 1.0]), clients=st.sampled_from([1, 2, 30, 1000]))
@settings(deadline=None, max_examples=20)
def test_what_is_refused_for_one_client_is_refused_for_any_number(epsilon: float, clients: int) -> None:
    def refused(shares: int) -> bool:
        try:
            require_readable(5, count_noise(epsilon, 1e-12, shares), clients if shares > 1 else 1)
        except SfumatoError:
            return True
        return False

    if refused(1):
        assert refused(clients)


def test_more_points_or_noise_than_an_estimate_can_be_made_of_are_refused() -> None:
    require_readable(10_000, count_noise(1.0, 1e-5, 1))
    with pytest.raises(SfumatoError, match=r"points are 10001; allowed are at most 10000"):
        require_readable(10_001, count_noise(1.0, 1e-5, 1))
    with pytest.raises(
        SfumatoError, match=r"the noise of a sum of 1 counts is .*; allowed is noise whose law"
    ):
        require_readable(3, count_noise(1e-6, 1e-12, 1))
