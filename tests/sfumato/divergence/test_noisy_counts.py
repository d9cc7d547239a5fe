"""Phi on noisy counts: its bias exactly, and intervals that hold in spite of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting.discrete_gaussian_sums import IntegerLaw, sum_law
from sfumato.divergence.counting import Counts
from sfumato.divergence.estimator import evaluate
from sfumato.divergence.noisy_counts import (
    check_confidence,
    evaluate_noisy,
    noise_bias,
    noise_radius,
    noisy_ratios,
    value_interval,
)
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import Reference, all_points
from sfumato.errors import SfumatoError
from tests.sfumato.divergence.parties import POINTS, REFERENCE

FLOORS = (Floor("mix", 0.1), Floor("clip", 0.1), Floor("clip", 0.2, 3.0))
POPULATION = np.array([0.1, 0.25, 0.3, 0.0, 0.2, 0.1, 0.05])


def counts_of(examples: int) -> Counts:
    """Counts of the population at the points."""
    return np.rint(examples * POPULATION).astype(np.int64)[POINTS.cells]


def draws(law: IntegerLaw, shape: tuple[int, int], seed: int) -> Counts:
    """Noise of the sum."""
    values = law.values.astype(np.int64)
    return np.random.default_rng(seed).choice(values, p=law.probabilities, size=shape)


@pytest.mark.parametrize("floor", FLOORS, ids=str)
@pytest.mark.parametrize("coefficient", [0.0, 1.0])
def test_without_noise_it_is_the_estimate(floor: Floor, coefficient: float) -> None:
    plan = EstimatorPlan(floor, coefficient)
    exact = evaluate(counts_of(300), 300, POINTS, REFERENCE, plan)
    assert evaluate_noisy(counts_of(300), 300, POINTS, REFERENCE, plan) == pytest.approx(exact, rel=1e-14)
    nothing = IntegerLaw(0, np.ones(1))
    assert noise_bias(counts_of(300), 300, POINTS, REFERENCE, plan, nothing) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("floor", FLOORS, ids=str)
@pytest.mark.parametrize("coefficient", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("examples", [100, 3000])
def test_the_bias_is_that_of_a_simulation(floor: Floor, coefficient: float, examples: int) -> None:
    # 18 z-tests at 4.5 standard errors: false alarm below 2e-4 for a new seed.
    plan, law, counts = EstimatorPlan(floor, coefficient), sum_law(1.3, 25), counts_of(examples)
    noisy = counts + draws(law, (40_000, len(counts)), 3)
    values = plan.values(noisy_ratios(noisy, examples, POINTS, REFERENCE)) @ POINTS.weights
    exact = evaluate(counts, examples, POINTS, REFERENCE, plan)
    error = values.std() / math.sqrt(len(values))
    assert error > 0
    assert (
        abs(values.mean() - exact - noise_bias(counts, examples, POINTS, REFERENCE, plan, law)) < 4.5 * error
    )


def test_small_noise_has_the_bias_of_the_curvature() -> None:
    plan, law, examples = EstimatorPlan(Floor("mix", 0.1), 0.7), sum_law(1.0, 9), 100_000
    counts = np.rint(examples * np.array([0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1])).astype(np.int64)[POINTS.cells]
    mass = REFERENCE.probabilities[POINTS.cells]
    mixed = 0.9 * counts / (examples * mass) + 0.1
    second = 0.5 * POINTS.weights @ (0.9**2 * law.variance / (examples * mass * mixed) ** 2)
    assert noise_bias(counts, examples, POINTS, REFERENCE, plan, law) == pytest.approx(second, rel=2e-3)


def test_noise_at_an_empty_point_lowers_the_mixed_estimate() -> None:
    plan, law = EstimatorPlan(Floor("mix", 0.01), 0.0), sum_law(1.3, 25)
    empty = np.zeros(POINTS.count, np.int64)
    assert noise_bias(empty, 1000, POINTS, REFERENCE, plan, law) < -0.1


@pytest.mark.parametrize("confidence", [0.95, 0.999])
@pytest.mark.parametrize("coordinates", [1, 10])
def test_the_noise_leaves_its_ball_as_rarely_as_it_says(confidence: float, coordinates: int) -> None:
    law = sum_law(0.9, 16)
    norms = np.linalg.norm(draws(law, (100_000, coordinates), 1), axis=1)
    outside = np.mean(norms > noise_radius(0.9 * 4, coordinates, confidence))
    # Chernoff's bound is slack by far more than the simulation's error of 0.002.
    assert outside <= 1 - confidence
    assert np.mean(norms > 0.6 * noise_radius(0.9 * 4, coordinates, confidence)) > 1 - confidence


@given(
    floor=st.sampled_from(FLOORS),
    coefficient=st.sampled_from([0.0, 0.5, 1.0, 4.0]),
    examples=st.integers(20, 5000),
    seed=st.integers(0, 10_000),
    length=st.floats(0, 1),
)
@settings(deadline=None, max_examples=150)
def test_the_interval_holds_the_value_for_all_noise_within_the_ball(
    floor: Floor, coefficient: float, examples: int, seed: int, length: float
) -> None:
    plan, generator = EstimatorPlan(floor, coefficient), np.random.default_rng(seed)
    counts = generator.multinomial(examples, generator.dirichlet(np.full(7, 0.3)))[POINTS.cells]
    direction = generator.standard_normal(len(counts))
    reach = length * noise_radius(6.0, len(counts), 0.95)
    noise = np.trunc(reach * direction / np.linalg.norm(direction)).astype(np.int64)
    low, high = value_interval(counts + noise, examples, POINTS, REFERENCE, plan, 6.0, 0.95)
    exact = evaluate(counts, examples, POINTS, REFERENCE, plan)
    assert low - 1e-9 <= exact <= high + 1e-9


def test_the_interval_is_within_three_of_the_width_that_known_noise_would_allow() -> None:
    plan, law, examples = EstimatorPlan(Floor("mix", 0.1), 0.5), sum_law(1.3, 25), 20_000
    counts = counts_of(examples)
    noisy = counts + draws(law, (2000, len(counts)), 2)
    spread = (plan.values(noisy_ratios(noisy, examples, POINTS, REFERENCE)) @ POINTS.weights).std()
    low, high = value_interval(counts, examples, POINTS, REFERENCE, plan, 6.5, 0.95)
    assert 1.0 < (high - low) / (2 * 1.96 * spread) < 3.0


def test_all_cells_can_be_points() -> None:
    plan, every = EstimatorPlan(Floor("mix", 0.1), 1.0), all_points(REFERENCE)
    counts = np.rint(1000 * POPULATION).astype(np.int64)
    low, high = value_interval(counts, 1000, every, REFERENCE, plan, 3.0, 0.9)
    assert low < evaluate_noisy(counts, 1000, every, REFERENCE, plan) < high


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.zeros(2, np.int64), "noisy counts are"),
        (np.zeros(POINTS.count), "noisy counts are"),
        (np.full(POINTS.count, 2**60), "a noisy count is beyond"),
    ],
)
def test_what_are_no_counts_is_refused(counts: Counts, message: str) -> None:
    with pytest.raises(SfumatoError, match=message):
        evaluate_noisy(counts, 100, POINTS, REFERENCE, EstimatorPlan(Floor("mix", 0.1), 0.0))


def test_no_floor_and_no_confidence_are_refused() -> None:
    with pytest.raises(SfumatoError, match="floor is None"):
        evaluate_noisy(counts_of(100), 100, POINTS, REFERENCE, EstimatorPlan(None, 0.0))
    with pytest.raises(SfumatoError, match="confidence is"):
        value_interval(
            counts_of(100), 100, POINTS, REFERENCE, EstimatorPlan(Floor("mix", 0.1), 0.0), 3.0, 1.0
        )


def test_ragged_noisy_counts_are_refused() -> None:
    reference, plan = Reference.from_probabilities([0.5, 0.3, 0.2]), EstimatorPlan(Floor("mix", 0.1))
    with pytest.raises(SfumatoError, match="noisy counts are no array"):
        evaluate_noisy([[1, 2], [3]], 10, all_points(reference), reference, plan)  # type: ignore[list-item]


def test_half_of_the_misses_of_any_announced_confidence_is_a_confidence() -> None:
    for announced in (1e-9, 1.0 - 1e-12):
        check_confidence((1.0 + announced) / 2.0)
    with pytest.raises(SfumatoError, match="confidence is"):
        check_confidence(1.0)
