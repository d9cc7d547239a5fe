"""Variance, lambda* and biases against simulation. Seeds are fixed; false-alarm rates beside each test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.divergence.evaluation import exact_divergence, target_divergence
from sfumato.divergence.plan import EstimatorPlan, Floor, Vector
from sfumato.divergence.reference import Reference
from sfumato.divergence.theory import RatioMoments, batch_bias, floor_bias, mean_square_error
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

OWN = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
REFERENCE = Reference.from_probabilities(OWN)
POPULATION = np.array([0.2, 0.2, 0.25, 0.15, 0.19, 0.01])
FLOORS = [None, Floor("mix", 0.1), Floor("clip", 0.4, 2.0)]


def _draws(count: int, key: int) -> np.ndarray:
    return np.searchsorted(np.cumsum(OWN)[:-1], Streams(2).stream("draws", key).random(count), side="right")


@pytest.mark.parametrize("floor", FLOORS)
@pytest.mark.parametrize("coefficient", [0.0, 0.5, 1.0, 2.0])
def test_mean_and_variance_of_phi_are_the_formulas(floor: Floor | None, coefficient: float) -> None:
    """400,000 draws: |z| < 4.2 for mean and variance of each of twelve (false alarm 7e-4)."""
    plan = EstimatorPlan(floor, coefficient)
    values = plan.values(POPULATION / OWN)[_draws(400_000, 0)]
    moments = RatioMoments.of(REFERENCE, POPULATION, floor)
    expected, variance = moments.expectation(coefficient), moments.variance(coefficient)
    assert abs(values.mean() - expected) < 4.2 * math.sqrt(variance / len(values))
    fourth = float(OWN @ (plan.values(POPULATION / OWN) - expected) ** 4)
    assert abs(values.var() - variance) < 4.2 * math.sqrt((fourth - variance**2) / len(values)) + 1e-12
    assert expected == pytest.approx(target_divergence(REFERENCE, POPULATION, plan))


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_without_a_floor_the_moments_are_chi_square_and_jeffreys_divergence(seed: int) -> None:
    population = np.random.default_rng(seed).dirichlet(np.full(6, 2.0)) + 1e-6
    population /= population.sum()
    moments = RatioMoments.of(REFERENCE, population, None)
    assert moments.mean == pytest.approx(1.0)
    assert moments.ratio_variance == pytest.approx(float(((population - OWN) ** 2 / OWN).sum()))
    log = np.log(population / OWN)
    assert moments.covariance == pytest.approx(float((population - OWN) @ log))


@pytest.mark.parametrize("floor", FLOORS)
def test_lambda_star_has_the_least_variance_of_a_scan_and_of_a_simulation(floor: Floor | None) -> None:
    """200,000 draws: the empirical regression of ln r on r within 4 standard errors, at most 0.02 here."""
    moments = RatioMoments.of(REFERENCE, POPULATION, floor)
    best = moments.best_coefficient
    scan = [moments.variance(coefficient) for coefficient in np.linspace(0.0, 3.0, 301)]
    assert moments.least_variance <= min(scan) + 1e-12
    assert min(scan) == pytest.approx(moments.least_variance, abs=1e-4)
    ratio = EstimatorPlan(floor, 0.0)
    logs = -ratio.values(POPULATION / OWN)[_draws(200_000, 1)]
    ratios = np.exp(logs)
    assert np.cov(ratios, logs)[0, 1] / ratios.var() == pytest.approx(best, abs=0.02)


def test_the_least_variance_is_var_ln_r_less_j_squared_over_chi_square() -> None:
    moments = RatioMoments.of(REFERENCE, POPULATION, None)
    assert moments.least_variance == pytest.approx(
        moments.log_variance - moments.covariance**2 / moments.ratio_variance
    )


def test_lambda_star_tends_to_1_as_the_population_tends_to_the_reference() -> None:
    apart = []
    for share in (0.5, 0.1, 0.01):
        population = (1 - share) * OWN + share * POPULATION
        apart.append(abs(RatioMoments.of(REFERENCE, population, None).best_coefficient - 1.0))
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] < 0.01
    assert RatioMoments.of(REFERENCE, OWN, None).best_coefficient == 1.0


@pytest.mark.parametrize(("batches", "noise"), [(1, 0.0), (4, 0.3)])
def test_the_mean_square_error_is_sampling_noise_and_bias(batches: int, noise: float) -> None:
    """20,000 estimates: the squared error within 6 %, over four standard errors (excess kurtosis below 1)."""
    plan, draws = EstimatorPlan(Floor("mix", 0.1), 0.5), 12
    moments = RatioMoments.of(REFERENCE, POPULATION, plan.floor)
    values = plan.values(POPULATION / OWN)[_draws(20_000 * batches * draws, 3)]
    means = values.reshape(20_000, batches, draws).mean(axis=2)
    means += noise * Streams(4).stream("noise").standard_normal((20_000, batches))
    errors = means.mean(axis=1) + 0.05 - moments.expectation(0.5)
    expected = mean_square_error(moments, 0.5, draws, noise, batches, bias=0.05)
    assert np.mean(errors**2) == pytest.approx(expected, rel=0.06)


def test_every_cell_as_a_point_has_no_sampling_error() -> None:
    moments = RatioMoments.of(REFERENCE, POPULATION, Floor("mix", 0.1))
    assert mean_square_error(moments, 0.5, 0, 0.2) == pytest.approx(0.04)


@pytest.mark.parametrize("floor", [None, Floor("mix", 0.1), Floor("clip", 0.05)])
@pytest.mark.parametrize("coefficient", [0.0, 1.0])
def test_a_batchs_bias_is_its_formula(floor: Floor | None, coefficient: float) -> None:
    """20,000 batches of 3,000 examples: within 4 standard errors and 5 % for the next order (false alarm 4e-4 in all)."""
    plan, examples = EstimatorPlan(floor, coefficient), 3000
    random = np.random.default_rng(11)
    counts = random.multinomial(examples, POPULATION, size=20_000)
    values = plan.values(counts / (examples * OWN)) @ OWN
    bias = batch_bias(REFERENCE, POPULATION, floor, examples)
    error = 4 * float(values.std()) / math.sqrt(len(values))
    assert abs(values.mean() - target_divergence(REFERENCE, POPULATION, plan) - bias) < error + 0.05 * bias
    assert bias > 0


def test_at_the_reference_the_batch_bias_is_cells_less_one_over_twice_the_examples() -> None:
    """Section 4.2: 50 equal cells and 2,000 examples, .01225."""
    reference = Reference.from_probabilities(np.full(50, 0.02))
    assert batch_bias(reference, reference.probabilities, None, 2000) == pytest.approx(49 / 4000)
    assert batch_bias(reference, reference.probabilities, Floor("mix", 0.1), 2000) == pytest.approx(
        0.81 * 49 / 4000
    )


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.3]))
@settings(max_examples=60, deadline=None)
def test_mixing_under_estimates_and_the_floors_bias_is_the_difference_of_targets(
    seed: int, level: float
) -> None:
    population = np.random.default_rng(seed).dirichlet(np.full(6, 1.0)) + 1e-9
    population /= population.sum()
    for floor in (Floor("mix", level), Floor("clip", level, 3.0)):
        plan = EstimatorPlan(floor, 0.5)
        bias = floor_bias(REFERENCE, population, plan)
        expected = target_divergence(REFERENCE, population, plan) - exact_divergence(REFERENCE, population)
        assert bias == pytest.approx(expected, abs=1e-9)
        if floor.kind == "mix":
            assert bias <= 1e-12


def test_a_cell_that_the_population_misses_is_infinite_or_refused() -> None:
    missing = np.array([0.5, 0.5, 0, 0, 0, 0])
    assert floor_bias(REFERENCE, missing, EstimatorPlan(Floor("mix", 0.1))) == -math.inf
    assert batch_bias(REFERENCE, missing, None, 100) == math.inf
    assert math.isfinite(batch_bias(REFERENCE, missing, Floor("mix", 0.1), 100))
    with pytest.raises(SfumatoError, match="probability 0 without a floor"):
        RatioMoments.of(REFERENCE, missing, None)


@pytest.mark.parametrize(
    "population", [np.full(5, 0.2), np.full(6, 0.2), np.array([1.5, -0.5, 0, 0, 0, 0]), np.full(6, np.nan)]
)
def test_a_population_that_is_no_distribution_is_refused(population: Vector) -> None:
    with pytest.raises(SfumatoError, match="the population"):
        RatioMoments.of(REFERENCE, population, Floor("mix", 0.1))


@pytest.mark.parametrize("population", [[[0.5], [0.3, 0.2]], ["a"] * 3, [None] * 3, [0.5, 0.3, 0.2j], 1.0])
def test_what_is_no_distribution_over_the_cells_is_refused(population: object) -> None:
    reference = Reference.from_probabilities([0.5, 0.3, 0.2])
    with pytest.raises(SfumatoError, match=r"population .*allowed is"):
        RatioMoments.of(reference, population, Floor("mix", 0.1))  # type: ignore[arg-type]
