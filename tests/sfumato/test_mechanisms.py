"""Mechanisms: scales, events, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event

from sfumato.accounting import epsilon, gaussian_epsilon
from sfumato.errors import AccountingError, SfumatoError
from sfumato.mechanisms import (
    DiscreteGaussian,
    Gaussian,
    gaussian_event,
    subsampled_gaussian,
    subsampled_gaussian_step,
)


def test_gaussian_scales_noise_with_sensitivity() -> None:
    assert Gaussian(0.5, 2.0).sigma == 1.0
    assert Gaussian(0.5, 2.0).event == dp_event.GaussianDpEvent(2.0)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_gaussian_costs_the_same_under_the_relation_its_sensitivity_is_of(relation: str) -> None:
    mechanism = Gaussian(3.0, 1.5, relation)  # type: ignore[arg-type]
    cost = epsilon([mechanism.event], 1e-5, neighboring_relation=relation)  # type: ignore[arg-type]
    assert cost == pytest.approx(gaussian_epsilon(1 / 1.5, 1e-5), rel=1e-12)


@pytest.mark.parametrize(
    ("sensitivity", "multiplier"),
    [(0, 1), (-1, 1), (math.inf, 1), (math.nan, 1), (1, -1), (1, math.nan), (1, math.inf)],
)
def test_gaussian_refuses_what_is_no_scale(sensitivity: float, multiplier: float) -> None:
    with pytest.raises(SfumatoError, match="allowed is"):
        Gaussian(sensitivity, multiplier)


def test_no_noise_is_a_non_private_event() -> None:
    assert gaussian_event(0.0) == dp_event.NonPrivateDpEvent()
    assert subsampled_gaussian_step(0.3, 0.0) == dp_event.NonPrivateDpEvent()


def test_full_batch_is_a_plain_gaussian_and_no_batch_costs_nothing() -> None:
    assert subsampled_gaussian(1.0, 2.0, 3) == dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(2.0), 3)
    assert subsampled_gaussian_step(0.0, 2.0) == dp_event.NoOpDpEvent()
    assert epsilon([subsampled_gaussian(0.0, 2.0, 1000)], 1e-5) == 0.0
    assert subsampled_gaussian(0.1, 2.0, 0) == dp_event.NoOpDpEvent()


@pytest.mark.parametrize("rate", [-0.1, 1.5, math.nan, math.inf])
def test_batch_larger_than_n_is_refused(rate: float) -> None:
    with pytest.raises(AccountingError, match="sampling_rate is"):
        subsampled_gaussian(rate, 1.0, 1)


@pytest.mark.parametrize("steps", [-1, 1.5, True, math.nan, math.inf, -math.inf, "a", "3", None])
def test_steps_must_be_whole(steps: int) -> None:
    with pytest.raises(AccountingError, match="steps is"):
        subsampled_gaussian(0.1, 1.0, steps)


def test_discrete_gaussian_charges_its_rounding() -> None:
    mechanism = DiscreteGaussian(sensitivity=1.0, noise_multiplier=2.0, granularity=0.01, dimension=4)
    rho = (1.02 / 2.0) ** 2 / 2
    assert mechanism.event == dp_event.ZCDpEvent(rho=rho)
    assert epsilon([mechanism.event], 1e-5, "zcdp") > gaussian_epsilon(0.5, 1e-5)


def test_discrete_gaussian_samples_lie_on_the_grid_with_the_right_scale() -> None:
    count = 2000
    mechanism = DiscreteGaussian(sensitivity=1.0, noise_multiplier=2.0, granularity=0.25, dimension=count)
    noise = mechanism.sample(np.full(count, 0.5)) - 0.5
    assert np.array_equal(noise / 0.25, np.rint(noise / 0.25))
    # The sample standard deviation is within 5 of its own deviations (sigma / sqrt(2 n)): false alarm 6e-7.
    assert abs(noise.std() / 2.0 - 1.0) < 5 / math.sqrt(2 * count)
    assert abs(noise.mean()) < 5 * 2.0 / math.sqrt(count)


def test_discrete_gaussian_refuses_wrong_shapes_values_and_grids() -> None:
    mechanism = DiscreteGaussian(1.0, 2.0, 0.01, 2)
    with pytest.raises(SfumatoError, match="shape"):
        mechanism.sample(np.zeros(3))
    with pytest.raises(SfumatoError, match="finite"):
        mechanism.sample(np.array([0.0, np.nan]))
    with pytest.raises(SfumatoError, match="granularity"):
        DiscreteGaussian(1.0, 2.0, 1.5, 2)


def test_a_discrete_release_is_finite_wherever_its_value_lies_on_the_grid() -> None:
    """Beyond 32 bits of grid steps the sampler's own type used to end, with the exact value in the error's text."""
    mechanism = DiscreteGaussian(1e-7, 4.0, 1e-10, 1)
    for value in (0.91, 3.0, 1e3):
        found = mechanism.sample(np.array([value]))
        assert abs(found[0] - value) < 12 * mechanism.sigma


@pytest.mark.parametrize("rate", ["a", "0.5", None, True, math.nan, math.inf, -0.1, 1.1, [0.5]])
def test_a_sampling_rate_that_is_none_is_refused_in_one_sentence(rate: float) -> None:
    for make in (lambda: subsampled_gaussian_step(rate, 1.0), lambda: subsampled_gaussian(rate, 1.0, 3)):
        with pytest.raises(AccountingError, match=r"sampling_rate is .*; allowed is a number from 0 to 1"):
            make()
