"""The server's moments are unbiased whatever the settings; its estimates stay finite whatever the data.

Statistical tests use fixed seeds; z-scores beyond 4.5 have a false-alarm rate of 7e-6 per number."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.modulated.client import Block, messages, orthonormal_directions
from sfumato.modulated.plan import Domain, ModulatedPlan, Modulation
from sfumato.modulated.server import (
    Moments,
    NormalEquations,
    Stabilization,
    collect,
    descend,
    estimate,
    matrix_noise,
    project,
    solve,
)
from sfumato.rng import Streams
from tests.sfumato.modulated.populations import population

REPEATS = 10_000


FAST = {
    ("public", True, 1, 0.0),
    ("public", False, 2, 0.4),
    ("private", True, 2, 0.4),
    ("private", False, 1, 0.0),
}
SETTINGS = [
    setting if setting in FAST else pytest.param(*setting, marks=pytest.mark.slow)
    for setting in product(["public", "private"], [True, False], [1, 2], [0.0, 0.4])
]


@pytest.mark.parametrize(("labels", "intercept", "count", "shrinkage"), SETTINGS)
def test_covariance_and_gradient_are_unbiased(
    labels: str, intercept: bool, count: int, shrinkage: float
) -> None:
    people = population()
    plan = ModulatedPlan(
        Domain(3, 1.0),
        Modulation(shrinkage, 1.5, 2.0, count),
        labels=labels,
        intercept=intercept,  # type: ignore[arg-type]
    )
    calibrated = plan.calibrate(8.0, 1e-5)
    directions = orthonormal_directions(np.zeros(3), count, Streams(1).stream("directions"))
    beta = np.array([0.2, 0.5, -0.3, 0.1])[0 if intercept else 1 :]
    x = np.column_stack([np.ones(40), people.features]) if intercept else people.features
    matrices, gradients, squares = [], [], []
    for moments in people.releases(calibrated, directions, REPEATS):
        equations = estimate(moments, calibrated, directions)
        matrices.append(equations.matrix)
        gradients.append(equations.gradient(beta))
        squares.append(equations.label_square)
    _centred(np.array(matrices), x.T @ x / 40)
    _centred(np.array(gradients), x.T @ (x @ beta - people.labels) / 40)
    _centred(np.array(squares), np.mean(people.labels**2))


def _centred(found: np.ndarray, truth: np.ndarray) -> None:
    errors = found.std(axis=0) / math.sqrt(len(found))
    off = found.mean(axis=0) - truth
    assert np.all(np.abs(off) <= 4.5 * errors + 1e-12)


def test_a_shared_phase_would_bias_the_covariance() -> None:
    """Why one phase per direction: with a shared one the directions' waves are correlated through the samples."""
    people = population(400, 3)
    x, count = people.features, 2
    directions = orthonormal_directions(np.zeros(3), count, Streams(1).stream("directions"))
    random = np.random.default_rng(0)
    total, repeats = np.zeros((3, 3)), 300
    for _ in range(repeats):
        phases = random.uniform(0, 2 * np.pi, (400, 1))
        sent = x + np.cos(1.0 * (x @ directions) + phases) @ directions.T
        total += sent.T @ sent / 400
    modulation = Modulation(0.0, math.sqrt(2.0), 1.0, count)
    bias = total / repeats - x.T @ x / 400 - modulation.noise_covariance(directions, 0.0)
    assert np.abs(bias).max() > 0.1


def test_moments_in_blocks_are_those_of_all_messages() -> None:
    people = population(9000, 3)
    calibrated = ModulatedPlan(Domain(3, 1.0)).calibrate(2.0, 1e-5)
    none = np.zeros((3, 0))
    sent = [
        (b.features.copy(), b.labels.copy())
        for b in messages(people.features, people.labels, calibrated, none, Streams(0))
    ]
    moments = collect(messages(people.features, people.labels, calibrated, none, Streams(0)))
    features, labels = (np.concatenate(part) for part in zip(*sent, strict=True))
    assert moments.clients == 9000
    assert np.allclose(moments.outer, features.T @ features / 9000)
    assert np.allclose(moments.features, features.mean(axis=0))
    assert np.allclose(moments.cross, labels @ features / 9000)
    assert moments.label == pytest.approx(labels.mean())
    assert moments.label_square == pytest.approx(np.mean(labels**2))


def test_float32_messages_have_the_moments_of_float64_ones() -> None:
    people = population(20_000, 3)
    calibrated = ModulatedPlan(Domain(3, 1.0)).calibrate(None, 1e-5)
    none = np.zeros((3, 0))
    one = collect(messages(people.features.astype(np.float32), people.labels, calibrated, none, Streams(0)))
    two = collect(messages(people.features, people.labels, calibrated, none, Streams(0)))
    assert np.allclose(one.outer, two.outer, rtol=1e-5, atol=1e-7)


def test_without_noise_the_closed_form_is_least_squares() -> None:
    people = population(200, 4)
    calibrated = ModulatedPlan(Domain(4, 1.0)).calibrate(None, 1e-5)
    none = np.zeros((4, 0))
    equations = estimate(
        collect(messages(people.features, people.labels, calibrated, none, Streams(0))), calibrated, none
    )
    x = np.column_stack([np.ones(200), people.features])
    expected = np.linalg.lstsq(x, people.labels, rcond=None)[0]
    assert np.allclose(solve(equations, Stabilization(5.0)), expected, atol=1e-8)
    assert np.allclose(descend(equations, 20_000, 0.9, 5.0), expected, atol=1e-8)


symmetric = st.integers(0, 2**32 - 1).map(lambda seed: _random_equations(seed))


def _random_equations(seed: int) -> NormalEquations:
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 6))
    matrix = random.standard_normal((size, size)) * 10.0 ** random.integers(-6, 6)
    if random.random() < 0.3:
        matrix[:, -1] = 0.0
    matrix = matrix + matrix.T
    return NormalEquations(matrix, random.standard_normal(size), 100, bool(random.random() < 0.5))


@given(symmetric, st.sampled_from(["none", "ridge", "eigenvalue_floor"]), st.floats(0, 10))
@settings(max_examples=200, deadline=None)
def test_estimates_are_finite_and_in_the_ball_whatever_the_noise_made_of_the_matrix(
    equations: NormalEquations, kind: str, gamma: float
) -> None:
    found = solve(equations, Stabilization(2.0, kind), gamma)  # type: ignore[arg-type]
    walked = descend(equations, 50, 10.0, 2.0)
    for coefficients in (found, walked):
        assert np.all(np.isfinite(coefficients))
        assert np.linalg.norm(coefficients) <= 2.0 * (1 + 1e-12)


def test_a_constant_column_gets_no_say_and_breaks_nothing() -> None:
    x = np.column_stack([np.linspace(-0.5, 0.5, 30), np.full(30, 0.3)])
    y = 0.2 + 0.4 * x[:, 0]
    calibrated = ModulatedPlan(Domain(2, 1.0)).calibrate(None, 1e-5)
    none = np.zeros((2, 0))
    equations = estimate(collect(messages(x, y, calibrated, none, Streams(0))), calibrated, none)
    found = solve(equations, Stabilization(3.0))
    assert np.allclose(np.column_stack([np.ones(30), x]) @ found, y, atol=1e-7)


def test_fewer_clients_than_features_give_a_finite_estimate() -> None:
    people = population(2, 5)
    calibrated = ModulatedPlan(Domain(5, 1.0)).calibrate(1.0, 1e-5)
    none = np.zeros((5, 0))
    moments = collect(messages(people.features, people.labels, calibrated, none, Streams(0)))
    found = solve(estimate(moments, calibrated, none), Stabilization(2.0))
    assert np.all(np.isfinite(found))


def test_ridge_spares_the_public_intercept_and_the_floor_raises_small_eigenvalues() -> None:
    equations = NormalEquations(np.diag([1.0, 0.5, -0.1]), np.array([0.3, 0.2, 0.1]), 10, intercept=True)
    ridge = solve(equations, Stabilization(9.0, "ridge"), 0.5)
    assert np.allclose(ridge, [0.3, 0.2, 0.25])
    floor = solve(equations, Stabilization(9.0, "eigenvalue_floor"), 0.5)
    assert np.allclose(floor, [0.3, 0.4, 0.2])


def test_the_matrixs_noise_has_the_size_that_is_predicted() -> None:
    """Operator norm of the noise over 200 releases lies within a factor of two of gamma."""
    people = population(2000, 5)
    calibrated = ModulatedPlan(Domain(5, 1.0), Modulation(0.3), intercept=False).calibrate(2.0, 1e-5)
    none = np.zeros((5, 0))
    truth = people.features.T @ people.features / 2000
    sizes = [
        np.linalg.norm(estimate(moments, calibrated, none).matrix - truth, 2)
        for moments in people.releases(calibrated, none, 200)
    ]
    gamma = matrix_noise(calibrated, 2000)
    assert gamma / 2 < np.median(sizes) < 2 * gamma


def test_what_is_not_finite_is_projected_to_zero() -> None:
    assert project(np.array([np.nan, 1.0]), 2.0).tolist() == [0.0, 0.0]
    assert project(np.array([3.0, 4.0]), 1.0) == pytest.approx([0.6, 0.8])


def test_messages_that_are_not_finite_are_rejected_counted_and_in_no_average() -> None:
    people = population(300, 3)
    calibrated = ModulatedPlan(Domain(3, 1.0)).calibrate(2.0, 1e-5)
    none = np.zeros((3, 0))
    (block,) = messages(people.features, people.labels, calibrated, none, Streams(0))
    bad = block.features.copy()
    bad[0, 1], bad[7, 2], bad[9, 0] = np.nan, np.inf, 1e300
    labels = block.labels.copy()
    labels[11] = np.nan
    found = collect([Block(bad, labels, 0)])
    good = np.ones(300, bool)
    good[[0, 7, 9, 11]] = False
    expected = collect([Block(block.features[good], block.labels[good], 0)])
    assert found.rejected == 4
    assert found.clients == 296
    assert np.allclose(found.outer, expected.outer)
    assert np.allclose(found.cross, expected.cross)
    with pytest.raises(SfumatoError, match="no messages of finite numbers"):
        collect([Block(np.full((2, 3), np.nan), np.zeros(2), 0)])


def test_a_ridge_or_floor_without_its_size_is_refused() -> None:
    equations = NormalEquations(np.eye(2), np.zeros(2), 10, intercept=False)
    for kind in ("ridge", "eigenvalue_floor"):
        with pytest.raises(SfumatoError, match="gamma is missing"):
            solve(equations, Stabilization(1.0, kind))  # type: ignore[arg-type]
    with pytest.raises(SfumatoError, match="gamma is nan"):
        solve(equations, Stabilization(1.0, "ridge"), float("nan"))
    for bound in (-1.0, 0.0, float("nan")):
        with pytest.raises(SfumatoError, match="coefficient_bound is"):
            descend(equations, 3, 0.1, bound)


def test_directions_that_do_not_fit_the_moments_are_refused() -> None:
    people = population(20, 3)
    calibrated = ModulatedPlan(Domain(3, 1.0)).calibrate(2.0, 1e-5)
    moments = collect(messages(people.features, people.labels, calibrated, np.zeros((3, 0)), Streams(0)))
    with pytest.raises(SfumatoError, match=r"directions has shape \(2, 1\); allowed is \(3, directions\)"):
        estimate(moments, calibrated, np.zeros((2, 1)))


def test_a_server_without_messages_says_so() -> None:
    with pytest.raises(SfumatoError, match="there are no messages of finite numbers"):
        collect([])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((0.0,), r"coefficient_bound is 0\.0; allowed"),
        ((1.0, "lasso"), r"kind is 'lasso'; allowed are none, ridge, eigenvalue_floor"),
        ((1.0, "ridge", -1.0), r"strength is -1\.0; allowed"),
    ],
)
def test_a_wrong_stabilization_is_one_sentence(values: tuple, sentence: str) -> None:
    with pytest.raises(SfumatoError, match=sentence):
        Stabilization(*values)


def test_moments_hold_n_squared_numbers_whatever_the_number_of_clients() -> None:
    sizes = set()
    for clients in (10, 5000):
        people = population(clients, 4)
        calibrated = ModulatedPlan(Domain(4, 1.0)).calibrate(1.0, 1e-5)
        moments = collect(messages(people.features, people.labels, calibrated, np.zeros((4, 0)), Streams(0)))
        assert isinstance(moments, Moments)
        sizes.add(sum(np.asarray(value).size for value in vars(moments).values()))
    assert len(sizes) == 1
