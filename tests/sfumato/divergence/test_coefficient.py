"""The choice of lambda is the least public risk of a scan, and looks at nothing private."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from sfumato.accounting import calibrate_gaussian
from sfumato.divergence.coefficient import choose_coefficient, uniform_prior
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import Reference, all_points, draw_points
from sfumato.divergence.sensitivity import sensitivity
from sfumato.divergence.theory import RatioMoments
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

REFERENCE = Reference.from_probabilities(np.random.default_rng(0).dirichlet(np.full(20, 1.5)), 0.01)
PRIOR = uniform_prior(REFERENCE, 0.4)


@pytest.mark.parametrize("floor", [Floor("mix", 0.1), Floor("clip", 0.2, 4.0)])
@pytest.mark.parametrize("epsilon", [None, 10.0, 1.0, 0.05])
def test_no_lambda_of_a_scan_has_a_smaller_risk_under_the_prior(floor: Floor, epsilon: float | None) -> None:
    points = draw_points(REFERENCE, 10, Streams(1).stream("points"))
    found = choose_coefficient(REFERENCE, points, 2000, floor, epsilon, 1e-5, PRIOR)
    moments = RatioMoments.of(REFERENCE, PRIOR, floor)
    multiplier = calibrate_gaussian(epsilon, 1e-5) if epsilon else 0.0

    def risk(coefficient: float) -> float:
        moved = sensitivity(points, REFERENCE, 2000, EstimatorPlan(floor, coefficient)).exact
        return moments.variance(coefficient) / 10 + (multiplier * moved) ** 2

    least = min(risk(coefficient) for coefficient in np.linspace(0, 2, 401))
    assert found.sampling_std**2 + found.noise_std**2 <= least * (1 + 1e-6)
    assert found.sampling_std**2 + found.noise_std**2 == pytest.approx(risk(found.coefficient), rel=1e-6)


def test_without_noise_the_choice_is_lambda_star_of_the_prior() -> None:
    points = draw_points(REFERENCE, 10, Streams(1).stream("points"))
    found = choose_coefficient(REFERENCE, points, 2000, Floor("mix", 0.1), None, 1e-5, PRIOR)
    expected = RatioMoments.of(REFERENCE, PRIOR, Floor("mix", 0.1)).best_coefficient
    assert found.coefficient == pytest.approx(expected, abs=1e-4)
    assert found.noise_std == 0.0


def test_every_cell_as_a_point_leaves_the_noise_alone() -> None:
    found = choose_coefficient(REFERENCE, all_points(REFERENCE), 2000, Floor("mix", 0.1), 1.0, 1e-5, PRIOR)
    assert found.sampling_std == 0.0
    assert found.noise_std > 0.0
    assert "chosen from public numbers" in found.plan_note


def test_no_argument_of_the_choice_is_a_count_or_a_sample() -> None:
    assert set(inspect.signature(choose_coefficient).parameters) == {
        "reference", "points", "examples", "floor", "epsilon", "delta", "prior", "highest",
    }  # fmt: skip


def test_a_uniform_prior_is_a_mixture() -> None:
    assert uniform_prior(REFERENCE, 0.0) == pytest.approx(REFERENCE.probabilities)
    assert uniform_prior(REFERENCE, 1.0) == pytest.approx(np.full(REFERENCE.cells, 1 / REFERENCE.cells))
    with pytest.raises(SfumatoError, match=r"share of the uniform prior is 1.5"):
        uniform_prior(REFERENCE, 1.5)


def test_a_prior_that_is_no_distribution_is_refused() -> None:
    with pytest.raises(SfumatoError, match="the population"):
        choose_coefficient(REFERENCE, all_points(REFERENCE), 100, Floor("mix", 0.1), 1.0, 1e-5, PRIOR * 2)
