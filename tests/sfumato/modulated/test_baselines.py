"""The baselines: local gradient descent and what it spends, least squares in degenerate cases, the mean."""

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
from sfumato.modulated.baselines import (
    LocalSgdPlan,
    clipped_gradients,
    local_sgd,
    ordinary_least_squares,
    predict_the_mean,
)
from sfumato.modulated.client import BLOCK
from sfumato.modulated.iterative import Fit, Steps
from sfumato.modulated.plan import Domain
from sfumato.rng import Streams

DOMAIN = Domain(features=3, radius=1.0)
FREE = Steps(size=1.0, coefficient_bound=1e12)
SEEDS = st.integers(0, 2**32 - 1)


def samples(
    clients: int, seed: int = 0, features: int = 3
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features within the unit ball and labels that depend on them, with a little noise."""
    generator = np.random.default_rng(seed)
    rows = generator.uniform(-0.5, 0.5, (clients, features))
    slopes = np.array([0.6, -0.4, 0.2, 0.1])[:features]
    return rows, 0.2 + rows @ slopes + 0.05 * generator.standard_normal(clients)


def run(plan: LocalSgdPlan, seed: int = 0, target: float | None = 5.0, **changes: Any) -> Fit:
    """A fit of 50 clients."""
    arguments: dict[str, Any] = {
        "steps": Steps(0.1),
        "streams": Streams(seed),
        **dict(zip(("features", "labels"), samples(50), strict=True)),
    }
    return local_sgd(calibrated=plan.calibrate(target, 1e-5), **{**arguments, **changes})


# --- gradients


@given(SEEDS, st.floats(-3, 3), st.floats(-3, 3), st.integers(1, 6))
def test_no_gradient_is_longer_than_the_clip_norm(
    seed: int, log_clip: float, log_scale: float, size: int
) -> None:
    generator, clip_norm = np.random.default_rng(seed), 10.0**log_clip
    rows = generator.standard_normal((40, size)) * 10.0**log_scale
    sent = clipped_gradients(rows, generator.standard_normal(40), generator.standard_normal(size), clip_norm)
    assert np.all(np.linalg.norm(sent, axis=1) <= clip_norm)


@given(SEEDS)
def test_gradients_within_the_clip_norm_are_those_of_half_the_squared_error(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, labels, coefficients = (
        generator.standard_normal((5, 3)),
        generator.standard_normal(5),
        generator.standard_normal(3),
    )
    sent = clipped_gradients(rows, labels, coefficients, 1e6)

    def errors(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return (rows @ at - labels) ** 2 / 2

    for coordinate in range(3):
        step = np.eye(3)[coordinate] * 1e-4
        slope = (errors(coefficients + step) - errors(coefficients - step)) / 2e-4
        np.testing.assert_allclose(sent[:, coordinate], slope, rtol=1e-6, atol=1e-7)


def test_a_long_gradient_keeps_its_direction() -> None:
    sent = clipped_gradients(np.array([[3.0, 4.0]]), np.array([-1.0]), np.zeros(2), 2.0)
    np.testing.assert_allclose(sent, [[1.2, 1.6]], rtol=1e-14)


@pytest.mark.parametrize("row", [[np.nan, 1.0], [np.inf, 1.0], [1e200, 1e200]])
def test_gradients_that_are_not_finite_count_as_zeros(row: list[float]) -> None:
    sent = clipped_gradients(np.array([row, [1.0, 0.0]]), np.array([1.0, 1.0]), np.ones(2), 0.5)
    assert sent[0].tolist() == [0.0, 0.0]
    assert np.all(np.isfinite(sent))


@given(SEEDS, SEEDS)
def test_two_samples_send_gradients_at_most_twice_the_clip_norm_apart(one: int, other: int) -> None:
    plan = LocalSgdPlan(DOMAIN, clip_norm=0.7)

    def gradient(seed: int) -> NDArray[np.float64]:
        generator = np.random.default_rng(seed)
        rows, labels = 5 * generator.standard_normal((1, 3)), 5 * generator.standard_normal(1)
        # A round without noise, from the origin with step 1, moves to minus the gradient.
        fit = local_sgd(rows, labels, plan.calibrate(None, 1e-5), FREE, Streams(0))
        return -fit.coefficients

    assert np.linalg.norm(gradient(one) - gradient(other)) <= plan.neighbor_distance


def test_the_sensitivity_is_attained_by_opposite_labels() -> None:
    plan = LocalSgdPlan(DOMAIN, clip_norm=0.7)
    ends = [
        local_sgd(
            np.zeros((1, 3)), np.array([label]), plan.calibrate(None, 1e-5), FREE, Streams(0)
        ).coefficients
        for label in (-1.0, 1.0)
    ]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(plan.neighbor_distance, rel=1e-12)


# --- budgets


@pytest.mark.parametrize("regime", ["same_clients", "disjoint_groups"])
@pytest.mark.parametrize("target", [0.1, 0.5, 1.0, 5.0, 8.0])
def test_recorded_events_cost_the_target_and_no_more(regime: str, target: float) -> None:
    plan = LocalSgdPlan(DOMAIN, 0.5, rounds=7, regime=regime)  # type: ignore[arg-type]
    fit = run(plan, target=target)
    assert fit.ledger.steps == plan.releases == (7 if regime == "same_clients" else 1)
    cost = epsilon(fit.ledger.events, 1e-5, "pld", "replace_one")
    assert target * (1 - 1e-6) <= cost <= target
    assert epsilon(plan.calibrate(target, 1e-5).events, 1e-5, "pld", "replace_one") == pytest.approx(
        cost, rel=1e-12
    )


def test_noise_is_that_of_the_composition_at_sensitivity_two_clip_norms() -> None:
    same = LocalSgdPlan(DOMAIN, 0.5, rounds=16).calibrate(2.0, 1e-5)
    apart = LocalSgdPlan(DOMAIN, 0.5, rounds=16, regime="disjoint_groups").calibrate(2.0, 1e-5)
    assert apart.noise_std == pytest.approx(2 * 0.5 * calibrate_gaussian(2.0, 1e-5))
    assert same.noise_std == pytest.approx(4 * apart.noise_std)


@pytest.mark.parametrize("noise", ["clients", "mean"])
def test_disjoint_groups_ask_each_client_once(noise: str) -> None:
    features = samples(50)[0]
    plan = LocalSgdPlan(DOMAIN, 0.5, rounds=5, regime="disjoint_groups")
    before = run(plan, noise=noise)
    changed = features.copy()
    changed[25] = -changed[25]  # of the third group
    after = run(plan, noise=noise, features=changed)
    same = [bool(np.array_equal(one, other)) for one, other in zip(before.path, after.path, strict=True)]
    assert same == [True, True, False, False, False]
    # Had the client been asked again, the difference would not just shrink with the later rounds' clean steps.
    steps = np.linalg.norm(np.array(before.path) - np.array(after.path), axis=1)[2:]
    assert steps[0] >= steps[1] >= steps[2] > 0


def test_no_noise_is_recorded_as_no_privacy() -> None:
    fit = run(LocalSgdPlan(DOMAIN, 0.5, rounds=2), target=None)
    assert epsilon(fit.ledger.events, 1e-5, "pld", "replace_one") == math.inf


# --- noise


def test_every_client_of_every_round_draws_its_own_noise() -> None:
    """200 rounds of two full blocks and a part; a chi-square of 400 independent draws.

    Clean gradients are zero, so a round moves the coefficients by minus the mean of K Gaussian vectors. If blocks or
    rounds shared their noise the sum would be off by far more than the bounds, which a right one passes with
    probability 1 - 1e-6 (normal approximation at 5 standard deviations).
    """
    clients = 2 * BLOCK + 100
    plan = LocalSgdPlan(Domain(1, 1.0), clip_norm=2.0, rounds=200)
    calibrated = plan.calibrate(50.0, 1e-5)
    # Features and labels of zero, and steps so small that the intercept stays at zero: gradients are noise alone.
    fit = local_sgd(
        np.zeros((clients, 1)), np.zeros(clients), calibrated, Steps(1e-9, coefficient_bound=1e12), Streams(3)
    )
    moves = np.diff(np.array([np.zeros(2), *fit.path]), axis=0) / 1e-9
    scaled = moves * math.sqrt(clients) / calibrated.noise_std
    count = scaled.size
    assert abs(float(np.sum(scaled**2)) - count) <= 5 * math.sqrt(2 * count)
    neighbours = float(np.sum(scaled[1:] * scaled[:-1]))
    assert abs(neighbours) <= 5 * math.sqrt(count)


def test_noise_on_the_mean_has_the_distribution_of_the_clients_noise() -> None:
    """Two-sample Kolmogorov-Smirnov per coordinate, and the variances; false alarms below 1e-5 in all."""
    features, labels = samples(60, seed=5)
    plan = LocalSgdPlan(DOMAIN, 0.3, rounds=3)
    calibrated, steps, runs = plan.calibrate(8.0, 1e-5), Steps(0.4, coefficient_bound=1.0), 800
    drawn: dict[str, NDArray[np.float64]] = {}
    for offset, noise in ((0, "clients"), (10_000, "mean")):
        drawn[noise] = np.array(
            [
                local_sgd(features, labels, calibrated, steps, Streams(offset + seed), noise).coefficients  # type: ignore[arg-type]
                for seed in range(runs)
            ]
        )
    # sqrt(log(2 / alpha) / n) at alpha = 1e-6 for each of the four coordinates.
    limit = math.sqrt(math.log(2 / 1e-6) / runs)
    for one, other in zip(drawn["clients"].T, drawn["mean"].T, strict=True):
        points = np.sort(np.concatenate([one, other]))
        shares = [np.searchsorted(np.sort(values), points, side="right") / runs for values in (one, other)]
        assert float(np.max(np.abs(shares[0] - shares[1]))) <= limit
        # The ball bounds the fourth moment, so a log ratio of variances has a deviation near sqrt(4 / n).
        assert abs(math.log(float(one.var() / other.var()))) <= 5 * math.sqrt(4 / runs)


def test_noise_on_the_mean_is_refused_in_release_mode() -> None:
    plan = LocalSgdPlan(DOMAIN, 0.5)
    with pytest.raises(SfumatoError, match="each client must draw its own"):
        run(plan, streams=Streams(None, "release"), noise="mean")
    assert run(plan, streams=Streams(None, "release")).ledger.steps == 1


# --- fits


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [True, False])
def test_without_noise_and_clipping_it_ends_at_least_squares(dtype: Any, intercept: bool) -> None:
    features, labels = samples(200)
    plan = LocalSgdPlan(DOMAIN, clip_norm=100.0, rounds=600, intercept=intercept)
    fit = run(plan, target=None, features=features.astype(dtype), labels=labels, steps=Steps(1.5))
    expected = ordinary_least_squares(features.astype(dtype), labels, intercept)
    np.testing.assert_allclose(fit.coefficients, expected, atol=1e-6)
    assert len(fit.path) == fit.rounds == 600


def test_more_clients_and_more_epsilon_bring_it_closer_to_the_same_steps_without_noise() -> None:
    """Mean squared distances over 20 seeds, each a factor of 10 apart in expectation; seeds are fixed."""

    def distance(clients: int, target: float) -> float:
        features, labels = samples(clients, seed=9)
        steps, plan = Steps(0.5, coefficient_bound=3.0), LocalSgdPlan(DOMAIN, 1.0, rounds=3)
        expected = run(plan, target=None, features=features, labels=labels, steps=steps).coefficients
        fits = [
            run(plan, seed, target, features=features, labels=labels, steps=steps, noise="mean")
            for seed in range(20)
        ]
        return float(np.mean([np.sum((fit.coefficients - expected) ** 2) for fit in fits]))

    few = distance(2000, 8.0)
    assert distance(20_000, 8.0) < few / 4
    assert distance(2000, 2.0) > 4 * few


def test_what_is_not_finite_of_a_sample_counts_as_zeros_and_is_counted() -> None:
    features, labels = samples(50)
    features[3, 1], labels[7] = np.nan, np.inf
    zeros, none = features.copy(), labels.copy()
    zeros[[3, 7]], none[7] = 0.0, 0.0
    plan = LocalSgdPlan(DOMAIN, 0.5, rounds=4)
    faulty, clean = run(plan, features=features, labels=labels), run(plan, features=zeros, labels=none)
    assert np.array_equal(faulty.coefficients, clean.coefficients)
    assert (faulty.faulty, clean.faulty) == (8, 0)


def test_samples_are_clipped_into_the_domain_first() -> None:
    far = run(LocalSgdPlan(DOMAIN, 100.0), target=None, features=np.full((1, 3), 9.0), labels=np.array([9.0]))
    inside = np.full((1, 3), 1 / math.sqrt(3))
    near = run(LocalSgdPlan(DOMAIN, 100.0), target=None, features=inside, labels=np.array([1.0]))
    np.testing.assert_allclose(far.coefficients, near.coefficients, rtol=1e-12)


def test_coefficients_stay_in_the_ball() -> None:
    fit = run(LocalSgdPlan(DOMAIN, 0.5, rounds=20), target=0.1, steps=Steps(5.0, coefficient_bound=0.3))
    assert all(np.linalg.norm(point) <= 0.3 * (1 + 1e-12) for point in fit.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"clip_norm": 0.0},
        {"clip_norm": math.nan},
        {"clip_norm": "1"},
        {"rounds": 0},
        {"rounds": 1.5},
        {"regime": "some"},
        {"rule": "classic"},
    ],
)
def test_a_plan_outside_of_what_is_allowed_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SfumatoError, match=f"^{next(iter(changes))} is .*allowed"):
        LocalSgdPlan(**{"domain": DOMAIN, "clip_norm": 1.0, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros((50, 2))}, "shapes"),
        ({"labels": np.zeros(49)}, "shapes"),
        ({"features": np.zeros((0, 3)), "labels": np.zeros(0)}, "at least one client"),
        ({"noise": "server"}, "noise is 'server'"),
    ],
)
def test_data_that_do_not_fit_the_plan_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SfumatoError, match=message):
        run(LocalSgdPlan(DOMAIN, 0.5), **changes)


def test_more_disjoint_groups_than_clients_are_refused() -> None:
    with pytest.raises(SfumatoError, match="at most one round per client"):
        run(LocalSgdPlan(DOMAIN, 0.5, rounds=51, regime="disjoint_groups"))


# --- least squares without privacy


@given(SEEDS, st.integers(1, 12), st.integers(1, 6), st.integers(0, 6), st.booleans())
def test_residuals_are_orthogonal_to_every_column_at_any_rank(
    seed: int, clients: int, features: int, rank: int, intercept: bool
) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((clients, rank)) @ generator.standard_normal((rank, features)) + 3.0
    labels = generator.standard_normal(clients)
    coefficients = ordinary_least_squares(rows, labels, intercept)
    columns = np.column_stack([np.ones(clients), rows]) if intercept else rows
    gradient = columns.T @ (columns @ coefficients - labels)
    assert np.all(np.abs(gradient) <= 1e-7)
    assert np.all(np.isfinite(coefficients))


@given(SEEDS, st.integers(2, 5), st.integers(6, 9), st.booleans())
def test_with_fewer_clients_than_features_it_is_the_shortest_exact_fit(
    seed: int, clients: int, features: int, intercept: bool
) -> None:
    generator = np.random.default_rng(seed)
    rows, labels = generator.standard_normal((clients, features)), generator.standard_normal(clients)
    coefficients = ordinary_least_squares(rows, labels, intercept)
    first = int(intercept)
    level = coefficients[0] if intercept else 0.0
    np.testing.assert_allclose(level + rows @ coefficients[first:], labels, atol=1e-8)
    # Shortest: orthogonal to every direction that changes no prediction, up to a constant with an intercept.
    moved = rows - rows.mean(axis=0) if intercept else rows
    _, values, directions = np.linalg.svd(moved)
    unseen = directions[int(np.sum(values > 1e-9)) :]
    assert np.all(np.abs(unseen @ coefficients[first:]) <= 1e-8)


def test_on_full_rank_it_is_what_lstsq_gives() -> None:
    features, labels = samples(300)
    expected = np.linalg.lstsq(np.column_stack([np.ones(300), features]), labels, rcond=None)[0]
    np.testing.assert_allclose(ordinary_least_squares(features, labels), expected, atol=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6])
def test_constant_columns_get_no_coefficient(constant: float) -> None:
    features, labels = samples(300)
    features[:, 1] = constant
    with_it, without = (
        ordinary_least_squares(features, labels),
        ordinary_least_squares(features[:, [0, 2]], labels),
    )
    assert with_it[2] == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(with_it[[1, 3]], without[1:], rtol=1e-9)
    only = ordinary_least_squares(np.full((300, 2), constant), labels)
    np.testing.assert_allclose(only, [labels.mean(), 0.0, 0.0], atol=1e-12)


def test_a_repeated_column_shares_its_coefficient() -> None:
    features, labels = samples(300)
    alone = ordinary_least_squares(features[:, :1], labels)
    twice = ordinary_least_squares(features[:, [0, 0]], labels)
    np.testing.assert_allclose(twice, [alone[0], alone[1] / 2, alone[1] / 2], atol=1e-12)


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (np.zeros((3, 2)), np.zeros(2)),
        (np.zeros((0, 2)), np.zeros(0)),
        (np.zeros(3), np.zeros(3)),
        (np.array([[np.nan]]), np.zeros(1)),
        (np.zeros((1, 1)), np.array([np.inf])),
    ],
)
def test_least_squares_refuses_what_it_cannot_fit(features: NDArray[Any], labels: NDArray[Any]) -> None:
    with pytest.raises(SfumatoError):
        ordinary_least_squares(features, labels)


# --- the mean


def test_the_mean_is_predicted_for_everybody_from_clipped_labels() -> None:
    coefficients = predict_the_mean(np.array([0.5, -7.0, np.nan, 0.9]), DOMAIN)
    assert coefficients.tolist() == pytest.approx([0.1, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("labels", [np.zeros(0), np.zeros((2, 2))])
def test_the_mean_of_nothing_is_refused(labels: NDArray[Any]) -> None:
    with pytest.raises(SfumatoError, match="labels has shape"):
        predict_the_mean(labels, DOMAIN)
