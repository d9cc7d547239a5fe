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
from sfumato.divergence.distributed import count_noise, counted_shares, draw_noise, estimate
from sfumato.divergence.estimator import target_divergence
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import all_points, draw_points
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
