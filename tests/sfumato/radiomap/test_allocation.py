"""Shares become energies that add up to the budget; the closed forms are optima."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import (
    check_floor,
    checked_shares,
    deviations,
    energies,
    energy_budget,
    energy_ratio,
    optimal_shares,
    size_shares,
    softmax,
    utility_costs,
    with_floor,
)
from sfumato.rng import Streams
from tests.sfumato.radiomap.defended import three_groups

SIZES = st.lists(st.integers(1, 10**7), min_size=1, max_size=8).map(lambda sizes: np.array(sizes, np.int64))


@settings(max_examples=50)
@given(SIZES, st.floats(1e-6, 1e6), st.floats(1e-6, 1.0), st.integers(0, 2**32 - 1))
def test_energies_add_up_to_the_budget_and_the_floor_holds(
    sizes: np.ndarray, budget: float, floor: float, seed: int
) -> None:
    logits = np.random.default_rng(seed).normal(scale=30.0, size=len(sizes))
    shares = with_floor(softmax(logits), floor, sizes)
    sigmas = deviations(checked_shares(shares, len(sizes)), budget, sizes)
    assert energies(sigmas, sizes).sum() == pytest.approx(budget, rel=1e-12)
    assert np.all(sigmas >= np.sqrt(floor * budget / sizes.sum()) * (1 - 1e-12))


@settings(max_examples=40)
@given(SIZES)
def test_shares_by_size_give_every_coordinate_the_same_noise(sizes: np.ndarray) -> None:
    sigmas = deviations(size_shares(sizes), 2.0, sizes)
    assert np.allclose(sigmas, np.sqrt(2.0 / sizes.sum()), rtol=1e-12)


def test_the_optimal_shares_spend_least_at_the_same_mu() -> None:
    """Against a numerical minimum over all allocations of the same mu."""
    clips, sizes = np.array([0.2, 1.0, 0.5]), np.array([5, 70, 900])

    def energy_at_unit_mu(log_shares: np.ndarray) -> float:
        sigmas = deviations(softmax(log_shares), 1.0, sizes)
        return float(np.sum((clips / sigmas) ** 2))  # energy 1 times mu^2, which scaling keeps

    best = minimize(energy_at_unit_mu, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    assert np.allclose(softmax(best.x), optimal_shares(clips, sizes), atol=1e-4)
    ours = energy_at_unit_mu(np.log(optimal_shares(clips, sizes)))
    assert ours <= best.fun * (1 + 1e-9)
    even = energy_at_unit_mu(np.log(size_shares(sizes)))
    assert energy_ratio(clips, sizes) == pytest.approx(ours / even)


@settings(max_examples=40)
@given(SIZES)
def test_nothing_is_saved_where_clips_follow_the_root_of_the_size(sizes: np.ndarray) -> None:
    assert energy_ratio(0.3 * np.sqrt(sizes), sizes) == pytest.approx(1.0)
    assert energy_ratio(0.3 * sizes.astype(float), sizes) <= 1.0 + 1e-12


@settings(max_examples=20)
@given(st.floats(0.1, 10.0))
def test_the_cost_of_noise_on_a_quadratic_loss_is_half_its_curvature_whatever_its_slope(slope: float) -> None:
    """L = h_g |w_g|^2 / 2 + slope . w is exact for every single draw: (L(w+n) + L(w-n)) / 2 - L(w) = h_g |n|^2 / 2."""
    partition = three_groups(24)
    curvature = np.array([4.0, 0.5, 0.0])
    per_weight = partition.spread(curvature)

    def loss(weights: np.ndarray) -> float:
        return float(0.5 * per_weight @ weights**2 + slope * weights.sum())

    costs = utility_costs(loss, np.linspace(-1, 1, 24), partition, 0.1, 2, Streams(0).stream("noise"))
    assert np.allclose(costs, curvature / 2.0, atol=1e-8 * slope + 1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: energy_budget(-1.0, 1.0), "nu is -1.0"),
        (lambda: energy_budget(np.nan, 1.0), "nu is nan"),
        (lambda: energy_budget(1.0, 0.0), "clip_norm is 0.0"),
        (lambda: checked_shares(np.array([0.5, 0.6]), 2), "with sum 1"),
        (lambda: checked_shares(np.array([1.5, -0.5]), 2), "with sum 1"),
        (lambda: checked_shares(np.array([np.nan, 1.0]), 2), "with sum 1"),
        (lambda: checked_shares(np.array([1.0]), 2), "one per group"),
        (lambda: check_floor(0.0), "floor is 0.0"),
        (lambda: check_floor(1.1), "floor is 1.1"),
        (lambda: optimal_shares(np.array([1.0]), np.array([1, 2])), "one per group"),
        (lambda: optimal_shares(np.array([1.0, 0.0]), np.array([1, 2])), "clip_norm is 0.0"),
    ],
)
def test_numbers_out_of_range_are_refused_in_a_sentence(call: object, message: str) -> None:
    with pytest.raises(SfumatoError, match=message):
        call()  # type: ignore[operator]


def test_a_loss_that_is_not_finite_no_draws_and_no_energy_are_refused() -> None:
    partition, stream = three_groups(), Streams(0).stream("noise")
    with pytest.raises(SfumatoError, match="loss under noise is not finite"):
        utility_costs(lambda _w: np.inf, np.zeros(12), partition, 1.0, 1, stream)
    with pytest.raises(SfumatoError, match="draws is 0"):
        utility_costs(lambda _w: 0.0, np.zeros(12), partition, 1.0, 0, stream)
    with pytest.raises(SfumatoError, match=r"energy is 0\.0"):
        utility_costs(lambda _w: 0.0, np.zeros(12), partition, 0.0, 1, stream)
