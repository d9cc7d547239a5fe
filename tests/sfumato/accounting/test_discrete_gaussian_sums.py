"""Sums of discrete Gaussians: the published bound against exact divergences, calibration, and the law itself."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sfumato.accounting import epsilon, zcdp_epsilon
from sfumato.accounting.discrete_gaussian_sums import (
    MAX_TABLE,
    DiscreteGaussianSum,
    calibrate_discrete_gaussian_sum,
    discrete_gaussian_law,
    sum_law,
    sum_law_size,
)
from sfumato.errors import AccountingError, SfumatoError

ORDERS = (1.001, 1.1, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


def convolved(sigma: float, shares: int) -> NDArray[np.float64]:
    """The sum's law on -R..R by direct convolution, which keeps relative precision in the tails."""
    reach = math.ceil(25 * sigma) + 60
    z = np.arange(-reach, reach + 1)
    one = np.exp(-0.5 * (z / sigma) ** 2)
    one /= one.sum()
    law = one
    for _ in range(shares - 1):
        law = np.convolve(law, one)
    return law


def orders(sigma: float, shares: int, shift: int) -> list[float]:
    """Orders whose mass lies where the law is far above the smallest float; it peaks at order * shift."""
    return [order for order in ORDERS if order * shift <= 25 * sigma * math.sqrt(shares)]


def renyi(law: NDArray[np.float64], shift: int, order: float) -> float:
    """Renyi divergence of the law from itself shifted, over the part where both are above the smallest floats."""
    upper, lower = law[shift:], law[:-shift]
    kept = (upper > 1e-290) & (lower > 1e-290)
    p, q = np.log(upper[kept]), np.log(lower[kept])
    exponents = order * p + (1 - order) * q
    top = exponents.max()
    return float(top + np.log(np.exp(exponents - top).sum())) / (order - 1)


@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0, 1.5])
@pytest.mark.parametrize("shares", [1, 2, 3, 6])
@pytest.mark.parametrize("shift", [1, 2])
def test_the_bound_is_above_the_exact_renyi_divergence(sigma: float, shares: int, shift: int) -> None:
    law = convolved(sigma, shares)
    rho = DiscreteGaussianSum(sigma, shares, float(shift), float(shift), 1).rho
    worst = max(renyi(law, shift, order) / order for order in orders(sigma, shares, shift))
    assert worst <= rho * (1 + 1e-9)
    # The other side: no zCDP parameter below the Gaussian's can hold, up to what lattices lose in variance.
    if sigma >= 1.0:
        assert worst >= 0.99 * shift**2 / (2 * shares * sigma**2)


def test_two_moved_counts_cost_the_sum_of_their_divergences() -> None:
    law = convolved(0.7, 4)
    rho = DiscreteGaussianSum(0.7, 4, math.sqrt(2), 2.0, 2).rho
    assert max(2 * renyi(law, 1, order) / order for order in orders(0.7, 4, 1)) <= rho


def test_the_exact_delta_is_below_the_one_that_is_promised() -> None:
    sigma = calibrate_discrete_gaussian_sum(1.0, 1e-4, 5, math.sqrt(2), 2.0, 2)
    law = convolved(sigma, 5)
    upper, lower = law[1:], law[:-1]
    # One count moves down and another up: a product of two independent pairs of laws.
    p, q = np.outer(upper, lower), np.outer(lower, upper)
    assert 1e-6 < np.maximum(p - math.exp(1.0) * q, 0).sum() <= 1e-4


@given(
    sigma=st.floats(0.5, 50),
    shares=st.integers(1, 3000),
    factor=st.floats(1.0, 3.0),
    coordinates=st.integers(1, 50),
)
@settings(deadline=None, max_examples=60)
def test_cost_falls_with_sigma_and_never_beats_one_gaussian_of_that_variance(
    sigma: float, shares: int, factor: float, coordinates: int
) -> None:
    total = DiscreteGaussianSum(sigma, shares, 1.0, 1.0, coordinates)
    assert DiscreteGaussianSum(sigma * factor, shares, 1.0, 1.0, coordinates).rho <= total.rho * (1 + 1e-12)
    assert total.rho >= 0.5 / total.noise_std**2 * (1 - 1e-12)


def test_more_shares_never_cost_more_at_powers_of_two() -> None:
    costs = [DiscreteGaussianSum(0.8, 2**power, math.sqrt(2), 2.0, 2).rho for power in range(20)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(costs))


def test_one_share_is_one_discrete_gaussian() -> None:
    total = DiscreteGaussianSum(3.0, 1, 1.0, 1.0, 1)
    assert total.inflation == 0.0
    assert total.rho == pytest.approx(1 / 18, rel=1e-15)


def test_the_event_is_priced_as_the_sum_says() -> None:
    total = DiscreteGaussianSum(1.2, 20, math.sqrt(2), 2.0, 2)
    assert epsilon([total.event], 1e-5, "zcdp") == pytest.approx(total.epsilon(1e-5), rel=1e-12)
    assert total.epsilon(1e-5) == zcdp_epsilon(total.rho, 1e-5)


@pytest.mark.parametrize("shares", [1, 2, 40, 3000])
@pytest.mark.parametrize("target", [0.05, 1.0, 6.0])
def test_calibration_meets_its_target_and_wastes_nothing(shares: int, target: float) -> None:
    sigma = calibrate_discrete_gaussian_sum(target, 1e-5, shares, math.sqrt(2), 2.0, 2)
    assert DiscreteGaussianSum(sigma, shares, math.sqrt(2), 2.0, 2).epsilon(1e-5) <= target
    less = DiscreteGaussianSum(sigma * 0.9999, shares, math.sqrt(2), 2.0, 2).epsilon(1e-5)
    assert less > target


def test_a_generous_budget_stops_at_the_least_sigma_of_the_bound() -> None:
    assert calibrate_discrete_gaussian_sum(500.0, 1e-5, 1, 1.0, 1.0, 1) == 0.5


@pytest.mark.parametrize(("sigma", "shares"), [(0.5, 2), (0.7, 5), (1.0, 6), (2.5, 3), (0.6, 40)])
def test_the_law_of_the_sum_equals_direct_convolution(sigma: float, shares: int) -> None:
    law, exact = sum_law(sigma, shares), convolved(sigma, shares)
    middle = len(exact) // 2
    cut = exact[middle + law.first : middle - law.first + 1]
    assert law.values[0] == -law.values[-1] == law.first
    assert np.abs(law.probabilities - cut).max() < 1e-13
    assert 1 - cut.sum() < 2.0**-50


@given(sigma=st.floats(0.5, 100), shares=st.integers(1, 2000))
@settings(deadline=None, max_examples=40)
def test_the_law_is_symmetric_and_its_variance_at_most_the_declared(sigma: float, shares: int) -> None:
    law = sum_law(sigma, shares)
    assert law.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.abs(law.probabilities - law.probabilities[::-1]).max() < 1e-14
    assert 0.86 * shares * sigma**2 < law.variance < shares * sigma**2 * (1 + 1e-9)


def test_the_table_of_one_share_has_the_mass_that_it_says() -> None:
    law = discrete_gaussian_law(0.8)
    exact = convolved(0.8, 1)
    middle = len(exact) // 2
    assert exact[: middle + law.first].sum() * 2 < 2.0**-60
    assert Counter(law.probabilities > 0)[True] == len(law.probabilities)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0.4, 5, 1.0, 1.0, 1), "sigma"),
        ((math.nan, 5, 1.0, 1.0, 1), "sigma"),
        (("1", 5, 1.0, 1.0, 1), "sigma"),
        ((1.0, 0, 1.0, 1.0, 1), "shares"),
        ((1.0, 2.5, 1.0, 1.0, 1), "shares"),
        ((1.0, True, 1.0, 1.0, 1), "shares"),
        ((1.0, 5, 0.0, 1.0, 1), "l2_sensitivity"),
        ((1.0, 5, 1.0, math.inf, 1), "l1_sensitivity"),
        ((1.0, 5, 2.0, 1.0, 4), "l1_sensitivity"),
        ((1.0, 5, 1.0, 3.0, 4), "l1_sensitivity"),
        ((1.0, 5, 1.0, 1.0, 0), "coordinates"),
    ],
)
def test_what_is_no_sum_is_refused_in_one_sentence(arguments: tuple[object, ...], named: str) -> None:
    with pytest.raises(AccountingError, match=f"^{named} is .*allowed"):
        DiscreteGaussianSum(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [0.0, -1.0, math.inf, math.nan, True])
def test_calibration_refuses_what_is_no_budget(target: float) -> None:
    with pytest.raises(SfumatoError, match="epsilon is"):
        calibrate_discrete_gaussian_sum(target, 1e-5, 5, 1.0, 1.0, 1)


def test_tables_that_would_not_fit_are_refused() -> None:
    with pytest.raises(AccountingError, match="allowed for a table"):
        discrete_gaussian_law(1e7)
    with pytest.raises(AccountingError, match="allowed for a table"):
        sum_law(1e4, 10**4)


@pytest.mark.parametrize(("sigma", "shares"), [(0.5, 1), (2.0, 10), (30.0, 7)])
def test_the_size_of_a_table_is_known_before_it_is_made(sigma: float, shares: int) -> None:
    assert len(sum_law(sigma, shares).probabilities) <= sum_law_size(sigma, shares) <= MAX_TABLE


@pytest.mark.parametrize(("sigma", "shares"), [(1e6, 1), (1e5, 100), (1.0, 0), (0.001, 1)])
def test_a_table_that_is_too_large_is_refused_alike_before_and_when_it_is_made(
    sigma: float, shares: int
) -> None:
    said: list[str] = []
    for make in (sum_law, sum_law_size):
        with pytest.raises(AccountingError) as caught:
            make(sigma, shares)
        said.append(str(caught.value))
    assert said[0] == said[1]
