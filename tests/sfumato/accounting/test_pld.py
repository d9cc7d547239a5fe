"""PLD beside dp_accounting, PRV and closed forms, and how cost moves with what is composed."""

from __future__ import annotations

import math

import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import (
    delta_at,
    epsilon,
    gaussian_epsilon,
    gaussian_mu,
    price,
    privacy_curve,
)
from sfumato.accounting.losses import PoissonGaussian
from sfumato.accounting.planning import plan_for_delta
from sfumato.accounting.pld import _read_epsilon, _refined
from sfumato.mechanisms import gaussian_event, subsampled_gaussian


def library_epsilon(
    rate: float, noise: float, steps: int, delta: float, interval: float, replace: bool = False
) -> float:
    """dp_accounting's PLD as the oracle."""
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=rate, neighboring_relation=relation
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


def test_reference_values_of_every_accountant() -> None:
    events = [subsampled_gaussian(0.125, 1.0, 24)]
    priced = price(events, 1e-5)
    assert priced.pld == pytest.approx(4.685, abs=1e-3)
    assert priced.rdp == pytest.approx(5.411, abs=5e-3)
    assert priced.prv is not None
    assert priced.prv_error is not None
    assert priced.prv + priced.prv_error == pytest.approx(4.695, abs=1e-3)
    assert priced.steps == 24
    assert not priced.rdp_order_at_grid_edge
    assert priced.reason("zcdp") is not None
    assert priced.zcdp is None


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta", "interval"),
    [
        (0.01, 0.58627, 1000, 1e-5, 1e-3),
        (0.125, 1.0, 24, 1e-5, 1e-3),
        (0.01, 1.0, 2000, 1e-5, 5e-4),
        (1e-4, 0.4, 20000, 1e-6, 1e-3),
        (0.01, 0.3, 1000, 1e-5, 1e-2),
        (0.5, 0.5, 1, 1e-10, 1e-3),
        (0.01, 1.0, 1, 1e-3, 1e-4),
        (0.001, 50.0, 10, 1e-8, 1e-6),
    ],
)
def test_pld_agrees_with_dp_accounting(
    rate: float, noise: float, steps: int, delta: float, interval: float
) -> None:
    mine = epsilon([subsampled_gaussian(rate, noise, steps)], delta)
    assert mine == pytest.approx(library_epsilon(rate, noise, steps, delta, interval), rel=1e-3)


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.1, 1.0, 50), (0.5, 2.0, 10), (0.01, 0.7, 300)])
def test_replace_one_agrees_with_dp_accounting(rate: float, noise: float, steps: int) -> None:
    mine = epsilon([subsampled_gaussian(rate, noise, steps)], 1e-5, neighboring_relation="replace_one")
    assert mine == pytest.approx(library_epsilon(rate, noise, steps, 1e-5, 1e-3, replace=True), rel=1e-3)
    assert mine > epsilon([subsampled_gaussian(rate, noise, steps)], 1e-5)


def test_replace_one_doubles_the_sensitivity_of_a_full_batch() -> None:
    assert epsilon([gaussian_event(2.0)], 1e-5, neighboring_relation="replace_one") == gaussian_epsilon(
        1.0, 1e-5
    )


@pytest.mark.parametrize(
    ("target", "delta", "steps"),
    [(0.01, 1e-12, 1000), (1.0, 1e-12, 100_000), (8.0, 1e-12, 1000), (200.0, 1e-12, 100), (3.0, 1e-5, 10**6)],
)
def test_composed_pld_is_never_below_the_exact_gaussian_and_within_2e_5(
    target: float, delta: float, steps: int
) -> None:
    noise = math.sqrt(steps) / gaussian_mu(target, delta)
    parts = [(PoissonGaussian(1.0, noise, "remove"), steps)]
    plan = plan_for_delta(parts, math.log(delta))
    composed = _refined(parts, plan, lambda curve: _read_epsilon(curve, delta), 0.0, 7)
    assert target * (1 - 1e-9) <= composed <= target * (1 + 2e-5)


def test_pld_of_one_step_equals_the_formula_of_one_step() -> None:
    for rate, noise in ((0.01, 1.0), (0.3, 0.5)):
        loss = privacy_loss_distribution.privacy_loss_mechanism.GaussianPrivacyLoss(noise, sampling_prob=rate)
        for value in (0.0, 0.1, 1.0):
            exact = float(loss.get_delta_for_epsilon(value))
            assert delta_at([subsampled_gaussian(rate, noise, 1)], value) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta"),
    [
        (0.01, 1.5, 1000, 1e-5),
        (0.01, 0.58627, 1000, 1e-5),
        (0.125, 1.0, 24, 1e-8),
        (0.02, 0.5, 500, 1e-5),
        (0.002, 0.6, 3000, 1e-6),
    ],
)
def test_pld_agrees_with_prv_within_one_percent_and_its_error(
    rate: float, noise: float, steps: int, delta: float
) -> None:
    priced = price([subsampled_gaussian(rate, noise, steps)], delta)
    assert priced.pld is not None
    assert priced.rdp is not None
    assert priced.prv is not None, priced.reason("prv")
    assert priced.prv_error is not None
    assert 0.5 <= priced.pld <= 20.0
    assert abs(priced.pld - priced.prv) <= 0.01 * priced.pld + priced.prv_error
    assert priced.pld <= priced.rdp


def test_two_phases_compose_as_events_and_agree_with_prv() -> None:
    events = [subsampled_gaussian(0.01, 1.2, 300), subsampled_gaussian(0.01, 0.9, 1700)]
    priced = price(events, 1e-5)
    assert priced.pld is not None
    assert priced.prv is not None
    assert priced.prv_error is not None
    assert abs(priced.pld - priced.prv) <= 0.01 * priced.pld + priced.prv_error
    separate = sum(epsilon([event], 1e-5) for event in events)
    assert max(epsilon([event], 1e-5) for event in events) < priced.pld < separate


def test_full_curve_falls_and_agrees_with_epsilon() -> None:
    events = [subsampled_gaussian(0.01, 1.0, 500)]
    grid = [3.0, 0.0, 0.5, 1.0, 2.0]
    deltas = privacy_curve(events, grid)
    by_epsilon = [deltas[grid.index(value)] for value in sorted(grid)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert all(0.0 < value < 1.0 for value in deltas)
    assert epsilon(events, deltas[3]) == pytest.approx(1.0, rel=1e-3)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.01, 0.05, 0.5, 1.0]), st.floats(0.5, 5.0), st.integers(1, 200)),
        min_size=2,
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=12, deadline=None)
def test_order_of_composition_does_not_matter(parts: list[tuple[float, float, int]], random: object) -> None:
    events = [subsampled_gaussian(*part) for part in parts]
    shuffled = list(events)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    nested = [
        dp_event.ComposedDpEvent(shuffled[:1]),
        dp_event.SelfComposedDpEvent(shuffled[1], 1),
        *shuffled[2:],
    ]
    assert epsilon(events, 1e-6) == epsilon(shuffled, 1e-6) == epsilon(nested, 1e-6)


@given(
    st.sampled_from([0.002, 0.01, 0.1, 0.6]),
    st.floats(0.4, 20.0),
    st.integers(1, 3000),
    st.sampled_from([1e-3, 1e-5, 1e-9]),
)
@settings(max_examples=5, deadline=None)
def test_cost_falls_with_noise_and_delta_and_grows_with_steps_and_rate(
    rate: float, noise: float, steps: int, delta: float
) -> None:
    slack = 1 + 1e-4  # the grid's error, which differs from one composition to the next
    floor = 1e-3 * rate / noise * math.sqrt(steps)
    here = epsilon([subsampled_gaussian(rate, noise, steps)], delta)
    assert here >= 0.0
    assert epsilon([subsampled_gaussian(rate, noise * 1.1, steps)], delta) <= here * slack + floor
    assert epsilon([subsampled_gaussian(rate, noise, steps)], delta * 3) <= here * slack + floor
    assert here <= epsilon([subsampled_gaussian(rate, noise, steps + 5)], delta) * slack + floor
    assert here <= epsilon([subsampled_gaussian(rate * 1.2, noise, steps)], delta) * slack + floor
    assert here <= epsilon([subsampled_gaussian(rate, noise, steps)], delta, "rdp") * slack + floor
