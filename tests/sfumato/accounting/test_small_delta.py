"""Delta far below what a privacy loss distribution usually holds, and epsilon where delta is nearly everything."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import pytest

from sfumato.accounting import delta_at, epsilon, privacy_curve
from sfumato.accounting.events import Release
from sfumato.accounting.renyi import _ORDERS, _curve
from sfumato.mechanisms import subsampled_gaussian
from tests.cases import quick_ones


def one_step(rate: float, noise: float, cost: float) -> float:
    """The hockey-stick divergence of one step in closed form with 60 digits, the larger of both directions."""
    with mpmath.workdps(60):
        q, s, e = mpmath.mpf(rate), mpmath.mpf(noise), mpmath.mpf(cost)

        def tail(x: object) -> object:
            return mpmath.erfc(x / mpmath.sqrt(2)) / 2

        y = s**2 * mpmath.log((mpmath.exp(e) - 1 + q) / q) + mpmath.mpf(1) / 2
        removed = (1 - q) * tail(y / s) + q * tail((y - 1) / s) - mpmath.exp(e) * tail(y / s)
        rest = mpmath.exp(-e) - (1 - q)
        if rest <= 0:
            return float(removed)
        z = -(s**2) * mpmath.log(rest / q) - mpmath.mpf(1) / 2
        added = tail(z / s) - mpmath.exp(e) * ((1 - q) * tail(z / s) + q * tail((z + 1) / s))
        return float(max(removed, added))


def log_renyi_bound(rate: float, noise: float, steps: int, cost: float) -> float:
    """Log of the least delta by Renyi divergence, Proposition 12 of Canonne, Kamath and Steinke (2020)."""
    curve = _curve((Release(rate, noise, steps),), 0.0, 1.0, _ORDERS)
    bounds = [
        (a - 1) * (c - cost + math.log1p(-1 / a)) - math.log(a)
        for a, c in zip(_ORDERS, curve, strict=True)
        if math.isfinite(c)
    ]
    return min(0.0, *bounds)


@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.3])
@pytest.mark.parametrize("noise", quick_ones([0.6, 1.0, 3.0], {0.6, 3.0}))
@pytest.mark.parametrize("cost", quick_ones([0.0, 1e-4, 0.1, 1.0, 3.0], {0.0, 0.1, 3.0}))
def test_delta_of_one_step_is_the_closed_form_at_any_size(rate: float, noise: float, cost: float) -> None:
    exact = one_step(rate, noise, cost)
    value = delta_at([subsampled_gaussian(rate, noise, 1)], cost)
    if exact < 1e-278:
        assert value <= 1.2e-278
    else:
        assert exact * (1 - 1e-6) <= value <= exact * 1.002


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "cost", "expected"),
    [
        (1e-3, 1.0, 1, 3.0, 3.896e-25),
        (1e-3, 1.0, 10, 2.0, 7.528e-20),
        (1e-3, 1.0, 10, 2.5, 5.600e-22),
        (256 / 55000, 1.5, 120, 2.0, 1.780e-27),
        (256 / 55000, 1.5, 120, 8.0, 8.579e-86),
        (1e-4, 2.0, 10**5, 8.0, None),
        (1e-5, 1.0, 100, 0.5, None),
    ],
)
def test_small_delta_of_many_steps_lies_between_one_step_and_the_renyi_bound(
    rate: float, noise: float, steps: int, cost: float, expected: float | None
) -> None:
    value = delta_at([subsampled_gaussian(rate, noise, steps)], cost)
    assert one_step(rate, noise, cost) < value
    assert math.log(value) < log_renyi_bound(rate, noise, steps, cost)
    assert expected is None or value == pytest.approx(expected, rel=1e-3)


def test_delta_of_rare_steps_is_that_of_one_big_jump() -> None:
    """With a rate of 1e-5 only one of the steps can carry the loss: about their number times one step's."""
    one = one_step(1e-5, 1.0, 0.5)
    assert 100 * one <= delta_at([subsampled_gaussian(1e-5, 1.0, 100)], 0.5) <= 300 * one


def test_delta_at_zero_of_rare_steps_is_at_most_the_sum_of_theirs() -> None:
    value = delta_at([subsampled_gaussian(1e-6, 0.6, 10)], 0.0)
    assert one_step(1e-6, 0.6, 0.0) < value < 5.66e-6  # dp_accounting gives 5.65e-6 on a grid of 1e-4
    assert delta_at([subsampled_gaussian(1e-6, 0.05, 10)], 0.0) <= 1e-5


def test_a_curve_is_delta_at_every_epsilon_and_falls_strictly() -> None:
    events = [subsampled_gaussian(1e-3, 1.0, 10)]
    grid = [0.0, 1.0, 2.0, 2.5, 5.0]
    curve = privacy_curve(events, grid)
    assert curve == [delta_at(events, cost) for cost in grid]
    assert all(above > 2 * below for above, below in pairwise(curve))


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3, 0.4, 0.51, 0.52, 0.6, 3.0])
def test_epsilon_is_zero_where_delta_is_at_least_the_chance_to_be_sampled(noise: float) -> None:
    assert epsilon([subsampled_gaussian(1e-6, noise, 10)], 1e-5) == 0.0
    assert epsilon([subsampled_gaussian(0.01, noise, 10)], 0.5) == 0.0
    assert epsilon([subsampled_gaussian(0.01, noise, 10)], 0.5, neighboring_relation="replace_one") == 0.0


def test_epsilon_is_zero_from_delta_at_zero_on_and_positive_below_it() -> None:
    events = [subsampled_gaussian(0.01, 0.297, 10)]
    zero = delta_at(events, 0.0)
    assert zero == pytest.approx(0.0740925, rel=1e-4)
    assert epsilon(events, 0.08) == epsilon(events, zero * 1.002) == 0.0
    # dp_accounting's values on a grid of 2e-5.
    assert epsilon(events, 0.07) == pytest.approx(0.0514675, rel=1e-4)
    assert epsilon(events, 0.05) == pytest.approx(0.6355174, rel=1e-4)


def test_delta_close_below_the_chance_to_be_sampled_is_priced() -> None:
    """The loss is tiny until the noise no longer hides a sampled record, and never infinite."""
    costs = [epsilon([subsampled_gaussian(1e-6, noise, 10)], 9.9e-6) for noise in (0.6, 0.51, 0.4, 0.2, 0.1)]
    assert costs[:3] == [0.0, 0.0, 0.0]
    assert all(0.0 <= below <= above < 100 for below, above in pairwise(costs))
    assert costs[-1] > 1.0
