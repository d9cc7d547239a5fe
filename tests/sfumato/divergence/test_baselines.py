"""Local noise and the noisy histogram: their noise, their bias, what they cost. False-alarm rates beside each test."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.accounting import calibrate_gaussian, gaussian_epsilon, spent
from sfumato.divergence.baselines import (
    central_histogram,
    counts_mechanism,
    local_counts,
    local_release,
    noise_bias,
)
from sfumato.divergence.estimator import release
from sfumato.divergence.evaluation import evaluate
from sfumato.divergence.plan import EstimatorPlan, Floor, Vector
from sfumato.divergence.reference import PublicPoints, Reference, all_points
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

REFERENCE = Reference.from_probabilities([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
COUNTS = np.array([200, 200, 250, 150, 190, 10])
PLANS = [
    EstimatorPlan(floor, coefficient)
    for floor in (Floor("mix", 0.1), Floor("clip", 0.1), Floor("clip", 0.3, 2.0))
    for coefficient in (0.0, 1.0)
]


def _client_counts() -> np.ndarray:
    """(50, 6) counts of clients that sum to COUNTS."""
    rows = [
        np.random.default_rng(cell).multinomial(count, np.full(50, 0.02)) for cell, count in enumerate(COUNTS)
    ]
    return np.stack(rows, axis=1)


def test_the_summed_noise_is_that_of_all_clients() -> None:
    """2,000 sums of 50 clients: mean and variance of each count within 4.5 standard errors (false alarm 1e-4)."""
    sums = np.array(
        [local_counts(_client_counts(), 3.0, Streams(0).stream("noise", key)) for key in range(2000)]
    )
    spread = 3.0 * math.sqrt(50)
    assert np.all(np.abs(sums.mean(axis=0) - COUNTS) < 4.5 * spread / math.sqrt(2000))
    assert np.all(np.abs(sums.var(axis=0) / spread**2 - 1.0) < 4.5 * math.sqrt(2 / 2000))


def test_replacing_an_example_moves_two_counts_by_one_so_noise_is_root_two() -> None:
    mechanism = counts_mechanism(all_points(REFERENCE), 1.0, 1e-5)
    assert mechanism.sigma == pytest.approx(math.sqrt(2) * calibrate_gaussian(1.0, 1e-5))
    one = counts_mechanism(PublicPoints(np.array([2]), np.array([1.0]), 3), 1.0, 1e-5)
    assert one.sigma == pytest.approx(calibrate_gaussian(1.0, 1e-5))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("noise_std", [2.0, 20.0, 300.0])
def test_the_bias_of_noise_before_phi_is_its_quadrature(plan: EstimatorPlan, noise_std: float) -> None:
    """40,000 noisy histograms: |z| < 4.3 for each of eighteen (false alarm 3e-4)."""
    points = all_points(REFERENCE)
    noisy = COUNTS + noise_std * Streams(1).stream("noise").standard_normal((40_000, 6))
    ratio = np.maximum(noisy, 0.0) / (1000 * REFERENCE.probabilities)
    values = plan.values(ratio) @ points.weights
    clean = evaluate(COUNTS, 1000, points, REFERENCE, plan)
    bias = noise_bias(COUNTS, 1000, points, REFERENCE, plan, noise_std)
    assert abs(values.mean() - clean - bias) < 4.3 * values.std() / math.sqrt(len(values))


def test_small_noise_has_the_bias_of_the_logarithms_curvature() -> None:
    plan, points = EstimatorPlan(Floor("mix", 0.1), 0.0), all_points(REFERENCE)
    ratio = 0.9 * COUNTS / (1000 * REFERENCE.probabilities) + 0.1
    slope = 0.9 / (1000 * REFERENCE.probabilities)
    expected = 0.5 * float(points.weights @ (slope / ratio) ** 2) * 0.25
    assert noise_bias(COUNTS, 1000, points, REFERENCE, plan, 0.5) == pytest.approx(expected, rel=0.01)
    assert noise_bias(COUNTS, 1000, points, REFERENCE, plan, 0.0) == 0.0


def test_both_floors_leave_a_bias_that_the_trusted_estimate_does_not_have() -> None:
    """300 local releases each: the mean is off by the formula within 4.2 standard errors, and by over five of them."""
    points = all_points(REFERENCE)
    for plan in (PLANS[0], PLANS[2]):
        clean = evaluate(COUNTS, 1000, points, REFERENCE, plan)
        found = [
            local_release(
                _client_counts(), 1000, points, REFERENCE, plan, 0.3, 1e-5, Streams(2).stream("n", key)
            )
            for key in range(300)
        ]
        raw = np.array([one.raw for one in found])
        error = raw.std() / math.sqrt(300)
        bias = noise_bias(COUNTS, 1000, points, REFERENCE, plan, found[0].noise_std)
        assert abs(raw.mean() - clean - bias) < 4.2 * error
        assert abs(bias) > 5 * error
        trusted = [
            release(COUNTS, 1000, points, REFERENCE, plan, 0.3, 1e-5, Streams(3).stream("n", key)).raw
            for key in range(300)
        ]
        assert abs(np.mean(trusted) - clean) < 4.2 * np.std(trusted) / math.sqrt(300)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_baselines_spend_exactly_what_they_are_given(epsilon: float) -> None:
    points, stream = all_points(REFERENCE), Streams(0).stream("noise")
    local = local_release(_client_counts(), 1000, points, REFERENCE, PLANS[0], epsilon, 1e-5, stream)
    central = central_histogram(COUNTS, 1000, REFERENCE, PLANS[0], epsilon, 1e-5, stream)
    for found in (local, central):
        assert gaussian_epsilon(spent(found.events).mu(2.0), 1e-5) == pytest.approx(epsilon, rel=1e-9)
        assert 0.0 <= found.clipped <= -math.log(0.1)
    assert local.noise_std == pytest.approx(math.sqrt(50) * central.noise_std)
    assert (local.client_noise_std, central.client_noise_std) == (central.noise_std, 0.0)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (np.zeros((0, 6), int), "at least one"),
        (COUNTS, "one row per client"),
        (np.ones((2, 6)), "allowed are integers"),
        (np.ones((2, 5), int), "one integer for each of 6 points"),
        (np.full((2, 6), 1000), "no counts of 1000 examples"),
    ],
)
def test_client_counts_that_are_none_are_refused(counts: Vector, said: str) -> None:
    with pytest.raises(SfumatoError, match=said):
        local_release(
            counts, 1000, all_points(REFERENCE), REFERENCE, PLANS[0], 1.0, 1e-5, Streams(0).stream("noise")
        )


def test_without_a_floor_no_baseline_estimates() -> None:
    with pytest.raises(SfumatoError, match="floor is None"):
        central_histogram(COUNTS, 1000, REFERENCE, EstimatorPlan(None), 1.0, 1e-5, Streams(0).stream("noise"))


def test_a_value_below_zero_is_clipped_to_its_targets_range() -> None:
    plan, counts = EstimatorPlan(Floor("clip", 0.9, 2.0), 0.0), np.rint(1e6 * REFERENCE.probabilities)
    counts = counts.astype(np.int64)
    counts[counts.argmin()] = 0
    examples = int(counts.sum())
    found = central_histogram(counts, examples, REFERENCE, plan, 1.0, 1e-5, Streams(0).stream("noise"))
    assert found.clipped == found.raw
    assert found.raw < 0.0


def test_ragged_client_counts_are_refused() -> None:
    ragged, stream = [[1, 2, 3, 4, 5, 6], [7]], Streams(0).stream("noise")
    with pytest.raises(SfumatoError, match="client counts are no array"):
        local_release(ragged, 28, all_points(REFERENCE), REFERENCE, PLANS[0], 1.0, 1e-5, stream)
