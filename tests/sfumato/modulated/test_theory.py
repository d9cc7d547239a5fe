"""Theory against simulation by the clients' own code. Fixed seeds; the tolerances are stated beside each test."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.modulated.aggregate import AggregateData
from sfumato.modulated.client import orthonormal_directions
from sfumato.modulated.plan import CalibratedModulation, Domain, ModulatedPlan, Modulation
from sfumato.modulated.server import NormalEquations, Vector, estimate
from sfumato.modulated.theory import (
    DataMoments,
    MessageNoise,
    confidence_interval,
    gradient_covariance,
    gradient_variance,
    one_shot_covariance,
)
from sfumato.rng import Streams
from tests.cases import quick_ones
from tests.sfumato.modulated.populations import Population, population


def _gradients(
    people: Population, calibrated: CalibratedModulation, directions: Vector, beta: Vector, repeats: int
) -> np.ndarray:
    return np.array(
        [
            estimate(moments, calibrated, directions).gradient(beta)
            for moments in people.releases(calibrated, directions, repeats)
        ]
    )


@pytest.mark.parametrize(
    ("epsilon", "shrinkage"), quick_ones([(20.0, 0.0), (20.0, 0.5), (3.0, 0.2)], {(20.0, 0.5)})
)
def test_the_papers_variance_formula_holds_within_three_per_cent(epsilon: float, shrinkage: float) -> None:
    """20,000 releases: the trace's relative standard error is about 0.7 %, so 3 % is four of them (false alarms 1e-4)."""
    people = population(40, 4)
    plan = ModulatedPlan(Domain(4, 1.0), Modulation(shrinkage, 1.5, 2.0, 2), intercept=False)
    calibrated = plan.calibrate(epsilon, 1e-5)
    beta = np.array([0.5, -0.3, 0.2, 0.1])
    directions = orthonormal_directions(beta, 2, Streams(1).stream("directions"))
    found = 40 * np.trace(np.cov(_gradients(people, calibrated, directions, beta, 20_000).T))
    data = DataMoments.of_samples(people.features, people.labels, beta, intercept=False)
    assert found == pytest.approx(gradient_variance(beta, data, calibrated), rel=0.03)


def test_the_general_covariance_is_the_papers_formula_where_directions_are_orthogonal() -> None:
    people = population(40, 4)
    calibrated = ModulatedPlan(Domain(4, 1.0), Modulation(0.3, 1.5, 2.0, 2), intercept=False).calibrate(
        3.0, 1e-5
    )
    beta = np.array([0.5, -0.3, 0.2, 0.1])
    directions = orthonormal_directions(beta, 2, Streams(1).stream("directions"))
    data = DataMoments.of_samples(people.features, people.labels, beta, intercept=False)
    general = np.trace(gradient_covariance(beta, data, MessageNoise.of(calibrated, directions)))
    assert general == pytest.approx(gradient_variance(beta, data, calibrated), rel=1e-12)


@pytest.mark.parametrize("labels", quick_ones(["public", "private"], {"private"}))
@pytest.mark.parametrize("intercept", [True, False])
def test_the_whole_covariance_holds_for_directions_along_the_coefficients(
    labels: str, intercept: bool
) -> None:
    """10,000 releases: each entry within 6 % of the largest one, about four standard errors."""
    people = population(40, 3)
    plan = ModulatedPlan(
        Domain(3, 1.0),
        Modulation(0.2, 2.5, 2.0, 1),
        labels=labels,
        intercept=intercept,  # type: ignore[arg-type]
    )
    calibrated = plan.calibrate(30.0, 1e-5)
    beta = np.array([0.1, 0.8, -0.5, 0.3])[0 if intercept else 1 :]
    slopes = beta[-3:]
    directions = (slopes / np.linalg.norm(slopes))[:, None]
    found = 40 * np.cov(_gradients(people, calibrated, directions, beta, 10_000).T)
    data = DataMoments.of_samples(people.features, people.labels, beta, intercept)
    expected = gradient_covariance(beta, data, MessageNoise.of(calibrated, directions))
    assert np.abs(found - expected).max() < 0.06 * np.abs(expected).max()


def _one_shots(
    people: Population, calibrated: CalibratedModulation, repeats: int
) -> tuple[list[NormalEquations], Vector]:
    size = people.features.shape[1]
    directions = orthonormal_directions(np.zeros(size), 1, Streams(1).stream("directions"))
    data = AggregateData.of(people.features, people.labels, calibrated.plan.domain)
    found = []
    for repeat in range(repeats):
        streams = Streams(repeat)
        phases = data.phases(1, streams.stream("phases"))
        found.append(
            estimate(
                data.moments(calibrated, directions, phases, streams.stream("noise")), calibrated, directions
            )
        )
    return found, directions


PLAN = ModulatedPlan(Domain(3, 1.0), Modulation(0.1, 0.5, 2.0, 1))


def test_the_one_shot_solutions_covariance_is_the_delta_methods() -> None:
    """2,000 solutions: a variance within 12 %, about four standard errors of 3.2 %."""
    people = population(20_000, 3)
    calibrated = PLAN.calibrate(30.0, 1e-5)
    equations, directions = _one_shots(people, calibrated, 2000)
    solutions = np.array([np.linalg.solve(e.matrix, e.vector) for e in equations])
    x = np.column_stack([np.ones(20_000), people.features])
    second = x.T @ x / 20_000
    best = np.linalg.lstsq(x, people.labels, rcond=None)[0]
    data = DataMoments.of_samples(people.features, people.labels, best, intercept=True)
    expected = one_shot_covariance(second, best, data, MessageNoise.of(calibrated, directions)) / 20_000
    assert np.allclose(solutions.var(axis=0) / np.diag(expected), 1.0, atol=0.12)
    assert np.abs(solutions.mean(axis=0) - best).max() < 0.1 * np.sqrt(np.diag(expected)).max() + 1e-2


@pytest.mark.parametrize(
    ("labels", "epsilon"), [pytest.param("public", 10.0, marks=pytest.mark.slow), ("private", 20.0)]
)
def test_intervals_for_these_clients_solution_cover_it_as_often_as_they_say(
    labels: str, epsilon: float
) -> None:
    """1,500 intervals per coefficient, 95 % asked: between 92.5 and 97.5 %, over four standard errors of 0.56 %."""
    people = population(20_000, 3)
    calibrated = replace(PLAN, labels=labels).calibrate(epsilon, 1e-5)  # type: ignore[arg-type]
    equations, directions = _one_shots(people, calibrated, 1500)
    x = np.column_stack([np.ones(20_000), people.features])
    best = np.linalg.lstsq(x, people.labels, rcond=None)[0]
    covered = np.mean(
        [
            np.abs(interval.coefficients - best) <= interval.half_widths
            for interval in (confidence_interval(e, calibrated, directions) for e in equations)
        ],
        axis=0,
    )
    assert np.all((covered > 0.925) & (covered < 0.975)), covered


def test_intervals_for_the_population_cover_its_coefficients() -> None:
    """600 populations of 4,000 clients and one release each at hardly any noise, so that sampling is what matters:
    95 % asked, between 91 and 98.5 %, four standard errors of 0.9 %."""
    truth = np.array([0.1, 0.6, -0.4, 0.2])
    calibrated = PLAN.calibrate(5000.0, 1e-5)
    directions = orthonormal_directions(np.zeros(3), 1, Streams(1).stream("directions"))
    inside, narrow = [], []
    for repeat in range(600):
        random = np.random.default_rng(repeat)
        x = random.uniform(-1, 1, (4000, 3)) / math.sqrt(3)
        y = truth[0] + x @ truth[1:] + random.uniform(-0.15, 0.15, 4000)
        data = AggregateData.of(x, np.clip(y, -1, 1), PLAN.domain)
        streams = Streams(repeat)
        phases = data.phases(1, streams.stream("phases"))
        moments = data.moments(calibrated, directions, phases, streams.stream("noise"))
        equations = estimate(moments, calibrated, directions)
        wide = confidence_interval(equations, calibrated, directions, population=True)
        inside.append(np.abs(wide.coefficients - truth) <= wide.half_widths)
        narrow.append(confidence_interval(equations, calibrated, directions).half_widths < wide.half_widths)
    covered = np.mean(inside, axis=0)
    assert np.all((covered > 0.91) & (covered < 0.985)), covered
    assert np.all(narrow)


def test_a_matrix_without_information_gives_infinite_intervals() -> None:
    equations = NormalEquations(np.diag([1.0, -0.1, 0.2, 0.3]), np.zeros(4), 100, intercept=True)
    directions = orthonormal_directions(np.zeros(3), 1, Streams(1).stream("directions"))
    found = confidence_interval(equations, PLAN.calibrate(1.0, 1e-5), directions)
    assert np.all(np.isinf(found.half_widths))


def test_a_constant_column_gives_infinite_intervals_and_no_certainty() -> None:
    x = np.column_stack([np.linspace(-0.5, 0.5, 50), np.full(50, 0.3), np.zeros(50)])
    data = AggregateData.of(x, 0.2 + 0.4 * x[:, 0], PLAN.domain)
    quiet = replace(PLAN, modulation=Modulation()).calibrate(None, 1e-5)
    none = np.zeros((3, 0))
    moments = data.moments(quiet, none, data.phases(0, Streams(0).stream("p")), Streams(0).stream("n"))
    found = confidence_interval(estimate(moments, quiet, none), quiet, none)
    assert np.all(np.isinf(found.half_widths))


@pytest.mark.parametrize("confidence", [0.0, 1.0, 2.0, -0.5, float("nan")])
def test_a_confidence_that_is_none_is_one_sentence(confidence: float) -> None:
    equations = NormalEquations(np.eye(4), np.zeros(4), 100, intercept=True)
    directions = orthonormal_directions(np.zeros(3), 1, Streams(1).stream("directions"))
    with pytest.raises(SfumatoError, match="confidence is"):
        confidence_interval(equations, PLAN.calibrate(1.0, 1e-5), directions, confidence)


def test_wider_confidence_is_a_wider_interval() -> None:
    equations = NormalEquations(np.eye(4), np.full(4, 0.1), 10_000, intercept=True, label_square=0.2)
    directions = orthonormal_directions(np.zeros(3), 1, Streams(1).stream("directions"))
    calibrated = PLAN.calibrate(5.0, 1e-5)
    one, two = (confidence_interval(equations, calibrated, directions, level) for level in (0.9, 0.99))
    assert np.allclose(two.half_widths / one.half_widths, 2.575829 / 1.644854, rtol=1e-5)


def test_moments_read_off_messages_are_those_of_the_samples_when_there_is_no_noise() -> None:
    people = population(200, 3)
    quiet = PLAN.calibrate(None, 1e-5)
    calibrated = replace(quiet, plan=replace(PLAN, modulation=Modulation()))
    data = AggregateData.of(people.features, people.labels, PLAN.domain)
    none = np.zeros((3, 0))
    moments = data.moments(calibrated, none, data.phases(0, Streams(0).stream("p")), Streams(0).stream("n"))
    equations = estimate(moments, calibrated, none)
    beta = np.array([0.1, 0.5, -0.4, 0.2])
    read = DataMoments.of_equations(equations, beta)
    true = DataMoments.of_samples(people.features, people.labels, beta, intercept=True)
    assert np.allclose(read.second, true.second)
    assert read.residual_square == pytest.approx(true.residual_square)
    assert np.allclose(read.residual_cross, true.residual_cross)
