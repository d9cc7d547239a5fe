"""AdaSSP: sensitivities by brute force, what it spends, what its noise looks like, what its ridge looks at."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sfumato.accounting import calibrate_gaussian, epsilon
from sfumato.errors import SfumatoError
from sfumato.ledger import EventLedger
from sfumato.modulated.aggregate import AggregateData
from sfumato.modulated.baselines import ordinary_least_squares
from sfumato.modulated.plan import Domain
from sfumato.modulated.sufficient_statistics import (
    NoisyStatistics,
    SufficientStatisticsPlan,
    ada_ssp,
    release,
    ridge,
)
from sfumato.rng import Streams

Vector = NDArray[np.float64]
RADII = (0.2, 0.5, 0.7071, 0.8, 1.0, 1.5, 4.0)


def statistics(
    plan: SufficientStatisticsPlan, features: Vector, labels: Vector
) -> tuple[float, Vector, Vector]:
    """What is released, before noise: eigenvalue, upper triangle without the public corner, X^T y."""
    data = AggregateData.of(features, labels, plan.domain)
    exact = release(
        data.gram, len(labels), plan.calibrate(None, 1e-5), Streams(0).stream("noise"), EventLedger()
    )
    triangle = exact.matrix[np.triu_indices(plan.size)]
    return exact.smallest_eigenvalue, triangle[1:] if plan.intercept else triangle, exact.vector


def differences(
    plan: SufficientStatisticsPlan, features: Vector, labels: Vector, other: Vector, label: float
) -> tuple[float, float, float]:
    """How far the three statistics move when the first sample is replaced."""
    changed, moved = features.copy(), labels.copy()
    changed[0], moved[0] = other, label
    one, two = statistics(plan, features, labels), statistics(plan, changed, moved)
    return (
        abs(one[0] - two[0]),
        float(np.linalg.norm(one[1] - two[1])),
        float(np.linalg.norm(one[2] - two[2])),
    )


def data(clients: int, seed: int = 0) -> tuple[Vector, Vector]:
    """Three features within the unit ball and labels that depend on them, with a little noise."""
    generator = np.random.default_rng(seed)
    features = generator.uniform(-0.5, 0.5, (clients, 3))
    return features, 0.2 + features @ np.array([0.6, -0.4, 0.2]) + 0.05 * generator.standard_normal(clients)


PLAN = SufficientStatisticsPlan(Domain(features=3, radius=1.0))


# --- sensitivities


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(RADII),
    st.integers(1, 4),
    st.integers(1, 6),
    st.booleans(),
    st.floats(0.1, 3.0),
)
def test_no_replacement_moves_a_statistic_by_more_than_its_sensitivity(
    seed: int, radius: float, features: int, clients: int, intercept: bool, label_bound: float
) -> None:
    generator = np.random.default_rng(seed)
    plan = SufficientStatisticsPlan(Domain(features, radius, label_bound), intercept=intercept)
    # Twice the bounds, so that about half of the samples are clipped onto the boundary, where the extremes are.
    rows = generator.standard_normal((clients + 1, features)) * 2 * radius / math.sqrt(features)
    labels = generator.uniform(-2, 2, clients + 1) * label_bound
    if generator.random() < 0.5:
        rows[-1], labels[-1] = -rows[0] * generator.random(), -labels[0]
    moved = differences(plan, rows[:-1], labels[:-1], rows[-1], float(labels[-1]))
    allowed = (plan.eigenvalue_sensitivity, plan.matrix_sensitivity, plan.vector_sensitivity)
    assert all(one <= most * (1 + 1e-9) + 1e-12 for one, most in zip(moved, allowed, strict=True))


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("intercept", [True, False])
def test_the_sensitivity_of_the_matrix_is_attained(radius: float, intercept: bool) -> None:
    plan = SufficientStatisticsPlan(Domain(2, radius), intercept=intercept)
    # Mirrored at the diagonal, so that x x^T - z z^T is diagonal; their product is -R^2, or -1/2 where that is reached.
    product = max(-(radius**2), -0.5) if intercept else 0.0
    half = math.asin(max(-1.0, product / radius**2)) / 2
    one = radius * np.array([math.cos(half), math.sin(half)])
    moved = differences(plan, one[None, :], np.zeros(1), one[::-1], 0.0)
    assert moved[1] == pytest.approx(plan.matrix_sensitivity, rel=1e-9)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("intercept", [True, False])
def test_the_sensitivity_of_the_eigenvalue_is_the_largest_eigenvalue_of_a_difference(
    radius: float, intercept: bool
) -> None:
    plan = SufficientStatisticsPlan(Domain(2, radius), intercept=intercept)
    lengths = np.linspace(0, radius, 41) if radius <= 1 else np.append(np.linspace(0, radius, 41), 1 / radius)
    found = 0.0
    for length in lengths:
        for angle in np.linspace(0, math.pi, 61):
            one = np.array([1.0, radius, 0.0])[1 - int(intercept) :]
            other = np.array([1.0, length * math.cos(angle), length * math.sin(angle)])[1 - int(intercept) :]
            found = max(found, float(np.linalg.eigvalsh(np.outer(one, one) - np.outer(other, other))[-1]))
    assert found == pytest.approx(plan.eigenvalue_sensitivity, rel=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_the_sensitivity_of_the_vector_is_attained_by_a_label_that_changes_its_sign(intercept: bool) -> None:
    plan = SufficientStatisticsPlan(Domain(2, 1.5, label_bound=0.4), intercept=intercept)
    row = np.array([[1.5, 0.0]])
    moved = differences(plan, row, np.array([0.4]), row[0], -0.4)
    assert moved[2] == pytest.approx(plan.vector_sensitivity, rel=1e-12)


# --- what it spends


@pytest.mark.parametrize("target", [0.1, 0.5, 1.0, 5.0, 8.0])
def test_recorded_events_cost_the_target_and_no_more(target: float) -> None:
    calibrated = PLAN.calibrate(target, 1e-5)
    fit = ada_ssp(*data(100), calibrated, Streams(0).stream("noise"))
    assert fit.ledger.steps == 3
    cost = epsilon(fit.ledger.events, 1e-5, "pld", "replace_one")
    assert target * (1 - 1e-6) <= cost <= target
    assert epsilon(calibrated.events, 1e-5, "pld", "replace_one") == pytest.approx(cost, rel=1e-12)
    assert calibrated.noise_multiplier == pytest.approx(math.sqrt(3) * calibrate_gaussian(target, 1e-5))


def test_no_noise_is_recorded_as_no_privacy_and_is_least_squares() -> None:
    features, labels = data(500)
    fit = ada_ssp(features, labels, PLAN.calibrate(None, 1e-5), Streams(0).stream("noise"))
    assert epsilon(fit.ledger.events, 1e-5, "pld", "replace_one") == math.inf
    np.testing.assert_allclose(fit.coefficients, ordinary_least_squares(features, labels), atol=1e-10)
    bare = SufficientStatisticsPlan(PLAN.domain, intercept=False)
    fit = ada_ssp(features, labels, bare.calibrate(None, 1e-5), Streams(0).stream("noise"))
    np.testing.assert_allclose(fit.coefficients, ordinary_least_squares(features, labels, False), atol=1e-10)


# --- what its noise looks like


@pytest.mark.parametrize("intercept", [True, False])
def test_the_noise_is_symmetric_of_its_size_and_spares_the_public_corner(intercept: bool) -> None:
    """600 releases of zeros; each chi-square and correlation is within 5 deviations, 40 of them: alarms below 1e-4."""
    plan = SufficientStatisticsPlan(Domain(2, 1.5), intercept=intercept)
    calibrated, runs = plan.calibrate(1.0, 1e-5), 600
    stream = Streams(1).stream("noise")
    drawn = [release(np.zeros((4, 4)), 10, calibrated, stream, EventLedger()) for _ in range(runs)]
    assert all(np.array_equal(one.matrix, one.matrix.T) for one in drawn)
    triangle = np.array([one.matrix[np.triu_indices(plan.size)] for one in drawn])
    if intercept:
        assert np.all(triangle[:, 0] == 0.0)
        triangle = triangle[:, 1:]
    of_eigenvalue, of_matrix, of_vector = calibrated.mechanisms
    parts = [
        np.array([[one.smallest_eigenvalue] for one in drawn]) / of_eigenvalue.sigma,
        triangle / of_matrix.sigma,
        np.array([one.vector for one in drawn]) / of_vector.sigma,
    ]
    scaled = np.column_stack(parts)
    second = scaled.T @ scaled / runs
    allowed = 5 / math.sqrt(runs) * (1 + (math.sqrt(2) - 1) * np.eye(len(second)))
    assert np.all(np.abs(second - np.eye(len(second))) <= allowed)


# --- what its ridge looks at


def released(eigenvalue: float) -> NoisyStatistics:
    return NoisyStatistics(100, eigenvalue, np.eye(4), np.ones(4))


def test_the_ridge_is_what_the_noise_needs_beyond_the_released_eigenvalue() -> None:
    calibrated = PLAN.calibrate(1.0, 1e-5)
    of_eigenvalue, of_matrix, _ = calibrated.mechanisms
    full = of_matrix.sigma * math.sqrt(4 * math.log(2 * 16 / 0.05))
    margin = math.sqrt(math.log(6 / 1e-5)) * of_eigenvalue.sigma
    assert ridge(released(-100.0), calibrated) == pytest.approx(full)
    assert ridge(released(margin + 20.0), calibrated) == pytest.approx(full - 20.0)
    assert ridge(released(margin + full + 1.0), calibrated) == 0.0


def test_the_ridge_is_a_function_of_the_released_eigenvalue_and_public_numbers_alone() -> None:
    calibrated = PLAN.calibrate(1.0, 1e-5)
    one = NoisyStatistics(100, 55.0, np.eye(4), np.ones(4))
    other = NoisyStatistics(100, 55.0, -7 * np.ones((4, 4)), np.full(4, 1e9))
    assert ridge(one, calibrated) == ridge(other, calibrated)


def test_the_ridge_makes_the_matrix_definite_as_often_as_promised() -> None:
    """400 runs on constant features, the worst case; the failure probability is 0.05 and the bound is loose."""
    calibrated = PLAN.calibrate(1.0, 1e-5)
    gram = AggregateData.of(np.zeros((50, 3)), np.zeros(50), PLAN.domain).gram
    stream, failures = Streams(2).stream("noise"), 0
    for _ in range(400):
        noisy = release(gram, 50, calibrated, stream, EventLedger())
        failures += int(np.linalg.eigvalsh(noisy.matrix + ridge(noisy, calibrated) * np.eye(4))[0] <= 0)
    assert failures <= 0.05 * 400
    without = [release(gram, 50, calibrated, stream, EventLedger()).matrix for _ in range(50)]
    assert np.mean([np.linalg.eigvalsh(matrix)[0] <= 0 for matrix in without]) > 0.5


# --- fits


def test_the_error_shrinks_with_clients_and_grows_with_privacy() -> None:
    """Mean squared distances to least squares over 20 seeds, factors of more than 10 apart; seeds are fixed."""

    def distance(clients: int, target: float) -> float:
        features, labels = data(clients, seed=4)
        expected = ordinary_least_squares(features, labels)
        calibrated = PLAN.calibrate(target, 1e-5)
        fits = [ada_ssp(features, labels, calibrated, Streams(seed).stream("noise")) for seed in range(20)]
        return float(np.mean([np.sum((fit.coefficients - expected) ** 2) for fit in fits]))

    errors = [distance(clients, 1.0) for clients in (300, 3000, 30_000)]
    assert errors[2] < errors[1] / 5 < errors[0] / 25
    assert distance(3000, 0.1) > errors[1]


def test_coefficients_stay_in_the_ball() -> None:
    plan = SufficientStatisticsPlan(PLAN.domain, coefficient_bound=0.25)
    for seed in range(20):
        fit = ada_ssp(*data(30), plan.calibrate(0.05, 1e-5), Streams(seed).stream("noise"))
        assert np.linalg.norm(fit.coefficients) <= 0.25 * (1 + 1e-12)


def test_what_is_not_finite_of_a_sample_counts_as_zeros_and_is_counted() -> None:
    features, labels = data(50)
    features[3, 1], labels[7] = np.nan, np.inf
    zeros, none = features.copy(), labels.copy()
    zeros[[3, 7]], none[7] = 0.0, 0.0
    calibrated = PLAN.calibrate(1.0, 1e-5)
    faulty = ada_ssp(features, labels, calibrated, Streams(0).stream("noise"))
    clean = ada_ssp(zeros, none, calibrated, Streams(0).stream("noise"))
    np.testing.assert_allclose(faulty.coefficients, clean.coefficients, rtol=1e-12)
    assert (faulty.faulty, clean.faulty) == (2, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"rule": "classic"},
        {"failure_probability": 0.0},
        {"failure_probability": 1.0},
        {"coefficient_bound": 0.0},
        {"coefficient_bound": math.inf},
    ],
)
def test_a_plan_outside_of_what_is_allowed_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SfumatoError, match=f"^{next(iter(changes))} is .*allowed"):
        SufficientStatisticsPlan(**{"domain": PLAN.domain, **changes})


@pytest.mark.parametrize(
    ("features", "labels"),
    [(np.zeros((5, 2)), np.zeros(5)), (np.zeros((5, 3)), np.zeros(4)), (np.zeros((0, 3)), np.zeros(0))],
)
def test_data_that_do_not_fit_the_plan_are_refused(features: Vector, labels: Vector) -> None:
    with pytest.raises(SfumatoError, match="allowed"):
        ada_ssp(features, labels, PLAN.calibrate(1.0, 1e-5), Streams(0).stream("noise"))
