"""Noise for a target: priced back, in two phases, and refused where no noise meets it."""

from __future__ import annotations

import math
import time

import pytest

from sfumato.accounting import (
    calibrate,
    calibrate_gaussian,
    calibrate_subsampled,
    calibrate_two_phases,
    epsilon,
)
from sfumato.errors import AccountingError
from sfumato.mechanisms import gaussian_event, subsampled_gaussian
from tests.cases import quick_ones


def test_reference_calibration_of_one_multiplier() -> None:
    start = time.process_time()
    noise = calibrate_subsampled(0.01, 1000, 8.0, 1e-5)
    assert time.process_time() - start < 3.0
    assert noise == pytest.approx(0.58627, abs=2e-5)


@pytest.mark.parametrize("target", quick_ones([0.01, 0.1, 1.0, 10.0, 50.0, 200.0], {0.01, 1.0, 200.0}))
@pytest.mark.parametrize("delta", quick_ones([1e-5, 1e-12], {1e-5}))
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


def test_a_warm_up_share_that_cannot_be_met_is_named_with_the_epsilon_that_was_asked_for() -> None:
    with pytest.raises(
        AccountingError, match=r"warmup_budget_share is 0\.05 of epsilon 0\.01, .* 0\.0005 for"
    ):
        calibrate_two_phases(0.01, 40, 80, 0.01, 1e-5, 0.05)
    with pytest.raises(AccountingError, match=r"warmup_budget_share is 0\.9999999 of epsilon 3, .* 80 steps"):
        calibrate_two_phases(256 / 55000, 40, 80, 3.0, 1e-5, 1 - 1e-7)
    with pytest.raises(AccountingError, match=r"warmup_budget_share is 0\.3 of epsilon 1, .* 5 steps; even"):
        calibrate_two_phases(1e-6, 5, 80, 1.0, 1e-5, 0.3)
    with pytest.raises(AccountingError, match="steps_1 is 0"):
        calibrate_two_phases(0.01, 0, 80, 1.0, 1e-5, 0.3)
    with pytest.raises(AccountingError, match="steps_2 is nan"):
        calibrate_two_phases(0.01, 5, math.nan, 1.0, 1e-5, 0.3)  # type: ignore[arg-type]
    with pytest.raises(AccountingError, match=r"sampling_rate is 1\.5"):
        calibrate_subsampled(1.5, 5, 1.0, 1e-5)


@pytest.mark.parametrize("target", [1e-2, 1.0, 200.0])
def test_no_noise_is_calibrated_where_delta_covers_every_sampled_record(target: float) -> None:
    with pytest.raises(AccountingError, match="even a noise multiplier"):
        calibrate_subsampled(1e-6, 10, target, 1e-5)


@pytest.mark.parametrize("target", [1.0, 8.0])
@pytest.mark.parametrize(("batch", "steps"), [(1, 2), (2, 2), (1, 20)])
def test_few_small_batches_are_calibrated_to_the_target(target: float, batch: int, steps: int) -> None:
    rate = batch / 1000
    noise = calibrate_subsampled(rate, steps, target, 9e-4)
    back = epsilon([subsampled_gaussian(rate, noise, steps)], 9e-4)
    assert target * (1 - 1e-3) <= back <= target
    assert epsilon([subsampled_gaussian(rate, noise * 0.99, steps)], 9e-4) > target


def test_multipliers_that_committed_results_depend_on_stay_the_same() -> None:
    both = calibrate_two_phases(256 / 55000, 40, 80, 3.0, 1e-5, 0.3)
    assert both == pytest.approx((0.7354964553428834, 0.5635896855375745), rel=1e-10)
    assert calibrate_subsampled(256 / 55000, 120, 1.0, 1e-5) == pytest.approx(0.7621747797476321, rel=1e-10)
