"""The exact Gaussian, zCDP and their tables: any mu, in log space."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import (
    calibrate_gaussian,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    zcdp_epsilon,
)

EPSILONS = (0.1, 0.5, 1, 2, 3, 5, 8, 10, 20)
# Section 1.3 a of docs/papers.md, sigma / sensitivity at delta = 1e-5.
SIGMAS = {
    "bun_steinke": (48.1, 9.70, 4.90, 2.50, 1.70, 1.055, 0.690, 0.568, 0.318),
    "zcdp": (34.0, 7.67, 4.05, 2.15, 1.49, 0.953, 0.638, 0.530, 0.305),
    "exact": (30.8, 7.03, 3.73, 1.99, 1.39, 0.892, 0.600, 0.500, 0.290),
}


@pytest.mark.parametrize("rule", ["bun_steinke", "zcdp", "exact"])
def test_gaussian_noise_agrees_with_the_table_to_three_digits(rule: str) -> None:
    for target, sigma in zip(EPSILONS, SIGMAS[rule], strict=True):
        assert calibrate_gaussian(target, 1e-5, rule) == pytest.approx(sigma, rel=2.5e-3)  # type: ignore[arg-type]


@given(st.floats(1e-3, 30.0), st.floats(-200.0, -0.7))
def test_exact_is_at_most_optimal_zcdp_is_at_most_bun_steinke(mu: float, log_delta: float) -> None:
    delta, rho = math.exp(log_delta), mu * mu / 2
    exact, optimal, simple = (
        gaussian_epsilon(mu, delta),
        zcdp_epsilon(rho, delta),
        zcdp_epsilon(rho, delta, "bun_steinke"),
    )
    assert 0.0 <= exact <= optimal * (1 + 1e-12) + 1e-15 <= simple * (1 + 2e-12) + 2e-15


@pytest.mark.parametrize("mu", [1e-10, 1e-6, 9.9e-6, 1.01e-5, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-12, 1e-100, 1e-270])
def test_exact_gaussian_epsilon_and_delta_are_inverse_at_any_mu(mu: float, delta: float) -> None:
    cost = gaussian_epsilon(mu, delta)
    assert math.isfinite(cost)
    assert cost >= 0.0
    assert gaussian_log_delta(mu, cost) <= math.log(delta)
    if cost > 0:
        assert gaussian_log_delta(mu, cost * (1 - 1e-6)) > math.log(delta)


def test_exact_gaussian_delta_is_continuous_where_the_formula_changes() -> None:
    for mu in (9.999e-6, 1.0001e-5):
        # delta(0) = 2 Phi(mu/2) - 1 is about mu * phi(0).
        assert gaussian_delta(mu, 0.0) == pytest.approx(mu / math.sqrt(2 * math.pi), rel=1e-6)
    below, above = gaussian_log_delta(39.999, 1e-9), gaussian_log_delta(40.001, 1e-9)
    assert below <= above <= 0.0
    assert above - below < 1e-3


def test_gaussian_mu_prices_back_to_at_most_epsilon() -> None:
    for target in (0.01, 1.0, 200.0):
        mu = gaussian_mu(target, 1e-12)
        assert target * (1 - 1e-9) <= gaussian_epsilon(mu, 1e-12) <= target


def test_releases_of_one_client_compose_with_the_square_root() -> None:
    assert calibrate_gaussian(1.0, 1e-5, releases=25) == pytest.approx(5 * calibrate_gaussian(1.0, 1e-5))
