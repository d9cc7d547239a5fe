"""Accounting: reference values, ordering of the accountants, extremes, calibration."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import (
    calibrate,
    calibrate_gaussian,
    calibrate_subsampled,
    calibrate_two_phases,
    delta_at,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    price,
    privacy_curve,
    spent,
    zcdp_epsilon,
)
from sfumato.accounting.events import Release
from sfumato.accounting.losses import PoissonGaussian
from sfumato.accounting.pld import _plan, _read_epsilon, _refined, pld_epsilon
from sfumato.errors import AccountingError
from sfumato.mechanisms import gaussian_event, subsampled_gaussian

EPSILONS = (0.1, 0.5, 1, 2, 3, 5, 8, 10, 20)
# Section 1.3 a of docs/papers.md, sigma / sensitivity at delta = 1e-5.
SIGMAS = {
    "bun_steinke": (48.1, 9.70, 4.90, 2.50, 1.70, 1.055, 0.690, 0.568, 0.318),
    "zcdp": (34.0, 7.67, 4.05, 2.15, 1.49, 0.953, 0.638, 0.530, 0.305),
    "exact": (30.8, 7.03, 3.73, 1.99, 1.39, 0.892, 0.600, 0.500, 0.290),
}


def library_epsilon(
    rate: float, noise: float, steps: int, delta: float, interval: float, replace: bool = False
) -> float:
    """dp_accounting's PLD as the oracle."""
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=rate, neighboring_relation=relation
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


# --- closed forms


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


# --- PLD


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
    plan = _plan(parts, None, math.log(delta))
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
@settings(max_examples=12, deadline=None)
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


# --- extremes


def test_tiny_privacy_loss_is_tiny_and_not_negative() -> None:
    priced = price([subsampled_gaussian(1e-3, 50.0, 10)], 1e-5)
    assert priced.pld is not None
    assert priced.rdp is not None
    assert 0.0 <= priced.pld <= 1.4e-4
    assert priced.pld <= priced.rdp < 3.5e-3
    assert not priced.rdp_order_at_grid_edge
    assert priced.prv is None or priced.prv >= 0.0


def test_an_order_at_the_edge_of_the_grid_is_reported() -> None:
    priced = price([subsampled_gaussian(1e-4, 1e5, 1)], 1e-12, cross_check=False)
    assert priced.rdp_order_at_grid_edge
    assert priced.rdp_order == 65536.0


@pytest.mark.parametrize("accountant", ["pld", "rdp", "prv", "zcdp", "gaussian"])
def test_nothing_released_costs_nothing(accountant: str) -> None:
    assert epsilon([], 1e-5, accountant) == 0.0  # type: ignore[arg-type]
    assert epsilon([subsampled_gaussian(0.0, 1.0, 10)], 1e-5, accountant) == 0.0  # type: ignore[arg-type]


def test_full_batch_is_priced_exactly_by_pld() -> None:
    priced = price([subsampled_gaussian(1.0, 1.0, 3)], 1e-5)
    assert priced.pld == priced.gaussian == gaussian_epsilon(math.sqrt(3.0), 1e-5)
    assert priced.gaussian_mu == pytest.approx(math.sqrt(3.0))
    assert priced.zcdp is not None
    assert priced.rdp is not None
    assert priced.pld <= priced.zcdp <= priced.rdp * (1 + 1e-9)
    assert priced.prv is None
    assert "sampling rate" in str(priced.reason("prv"))


def test_no_noise_is_infinite_and_none_with_a_reason_in_a_price() -> None:
    events = [subsampled_gaussian(0.1, 1.0, 5), subsampled_gaussian(0.1, 0.0, 1)]
    assert epsilon(events, 1e-5) == math.inf
    assert delta_at(events, 3.0) == 1.0
    document = price(events, 1e-5).to_json()
    assert document["pld"] is None
    assert "no noise" in str(document["pld_reason"])


@pytest.mark.parametrize(
    ("events", "match"),
    [
        ([dp_event.LaplaceDpEvent(1.0)], "cannot be priced"),
        ([dp_event.GaussianDpEvent(-1.0)], "noise_multiplier is"),
        ([dp_event.GaussianDpEvent(math.nan)], "noise_multiplier is"),
        ([dp_event.PoissonSampledDpEvent(1.5, dp_event.GaussianDpEvent(1.0))], "sampling_rate is"),
        ([subsampled_gaussian(0.1, 1.0, 10**9)], "number of steps"),
        ([subsampled_gaussian(0.5, 0.01, 10)], "privacy loss exceeds"),
        ([subsampled_gaussian(0.5, 0.3, 10**6)], "epsilon is above"),
        ([gaussian_event(0.01), subsampled_gaussian(0.1, 1.0, 10)], "privacy loss exceeds"),
        ([gaussian_event(1e-5)], "epsilon is above"),
    ],
)
def test_what_cannot_be_priced_is_one_sentence_and_quick(
    events: Sequence[dp_event.DpEvent], match: str
) -> None:
    start = time.process_time()
    with pytest.raises(AccountingError, match=match) as caught:
        epsilon(events, 1e-5)
    assert str(caught.value).count("\n") == 0
    assert time.process_time() - start < 20.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, True, 1e-290])
def test_delta_outside_of_what_can_be_priced_is_refused(delta: float) -> None:
    with pytest.raises(AccountingError, match="delta is"):
        epsilon([gaussian_event(1.0)], delta)


def test_wrong_accountants_relations_and_epsilons_are_named() -> None:
    sampled = [subsampled_gaussian(0.1, 1.0, 5)]
    with pytest.raises(AccountingError, match="accountant is 'gdp'"):
        epsilon(sampled, 1e-5, "gdp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="neighboring_relation is 'swap'"):
        epsilon(sampled, 1e-5, neighboring_relation="swap")  # type: ignore[arg-type]
    with pytest.raises(AccountingError, match="no bound for sampled"):
        epsilon(sampled, 1e-5, "rdp", "replace_one")
    with pytest.raises(AccountingError, match="epsilon is"):
        delta_at(sampled, -0.1)
    with pytest.raises(AccountingError, match="releases of all records"):
        epsilon(sampled, 1e-5, "gaussian")


def test_zcdp_events_are_priced_by_rdp_and_zcdp_only() -> None:
    events = [dp_event.ZCDpEvent(rho=0.1), gaussian_event(2.0)]
    assert epsilon(events, 1e-5, "zcdp") == pytest.approx(zcdp_epsilon(0.1 + 0.125, 1e-5))
    assert epsilon(events, 1e-5, "rdp") >= epsilon(events, 1e-5, "zcdp") * (1 - 1e-9)
    priced = price(events, 1e-5)
    assert priced.pld is None
    assert priced.gaussian is None
    assert priced.zcdp is not None
    with pytest.raises(AccountingError, match="no privacy loss distribution"):
        delta_at(events, 1.0)


def test_equal_events_are_merged_and_counted() -> None:
    total = spent([subsampled_gaussian(0.1, 1.0, 5), gaussian_event(3.0), subsampled_gaussian(0.1, 1.0, 7)])
    assert total.releases == (Release(0.1, 1.0, 12), Release(1.0, 3.0, 1))
    assert total.steps == 13


def test_many_steps_stay_bounded_in_time() -> None:
    start = time.process_time()
    assert 0.03 < pld_epsilon((Release(1e-6, 1.0, 10**8),), 1e-5, "add_or_remove_one") < 0.04
    assert time.process_time() - start < 20.0


# --- calibration


def test_reference_calibration_of_one_multiplier() -> None:
    start = time.process_time()
    noise = calibrate_subsampled(0.01, 1000, 8.0, 1e-5)
    assert time.process_time() - start < 3.0
    assert noise == pytest.approx(0.58627, abs=2e-5)


@pytest.mark.parametrize("target", [0.01, 0.1, 1.0, 10.0, 50.0, 200.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_back_priced_epsilon_is_just_below_the_target(target: float, delta: float) -> None:
    noise = calibrate_subsampled(0.01, 1000, target, delta)
    back = epsilon([subsampled_gaussian(0.01, noise, 1000)], delta)
    assert target * (1 - 1e-3) <= back <= target


@pytest.mark.parametrize("target", [1.0, 3.0, 8.0])
def test_the_warm_up_alone_costs_its_share_and_both_phases_cost_epsilon(target: float) -> None:
    start = time.process_time()
    first, second = calibrate_two_phases(0.01, 300, 1700, target, 1e-5, 0.3)
    assert time.process_time() - start < 6.0  # 3 s on an idle core; busy machines are slower
    warm_up, training = subsampled_gaussian(0.01, first, 300), subsampled_gaussian(0.01, second, 1700)
    share = epsilon([warm_up], 1e-5) / target
    assert 0.3 * (1 - 1e-3) <= share <= 0.3
    assert target * (1 - 1e-3) <= epsilon([warm_up, training], 1e-5) <= target


def test_calibration_against_other_accountants_and_replace_one() -> None:
    by_rdp = calibrate(lambda noise: [subsampled_gaussian(0.01, noise, 1000)], 8.0, 1e-5, "rdp")
    assert by_rdp == pytest.approx(0.6158, abs=1e-3)
    exact = calibrate(lambda noise: [gaussian_event(noise)], 1.0, 1e-5, "gaussian")
    assert exact == pytest.approx(calibrate_gaussian(1.0, 1e-5), rel=2e-5)
    replaced = calibrate(lambda noise: [gaussian_event(noise)], 1.0, 1e-5, neighboring_relation="replace_one")
    assert replaced == pytest.approx(2 * exact, rel=4e-5)


def test_unreachable_targets_are_refused_in_a_sentence() -> None:
    spent_already = subsampled_gaussian(0.01, 1.0, 1000)
    with pytest.raises(AccountingError, match="no noise multiplier"):
        calibrate(lambda noise: [spent_already, subsampled_gaussian(0.01, noise, 10)], 1.0, 1e-5)
    with pytest.raises(AccountingError, match="even a noise multiplier"):
        calibrate_subsampled(1e-5, 1, 1.0, 1e-2)
    for share in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(AccountingError, match="share is"):
            calibrate_two_phases(0.01, 10, 10, 1.0, 1e-5, share)
    for target in (0.0, -1.0, math.inf, math.nan, 1e4):
        with pytest.raises(AccountingError, match="epsilon is"):
            calibrate_subsampled(0.01, 10, target, 1e-5)
    with pytest.raises(AccountingError, match="steps is"):
        calibrate_subsampled(0.01, 0, 1.0, 1e-5)
