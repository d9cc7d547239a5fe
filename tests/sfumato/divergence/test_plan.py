"""Phi, the floors, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.divergence.plan import EstimatorPlan, Floor, floored_ratio, least_phi, phi
from sfumato.errors import SfumatoError

RATIOS = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=20).map(np.array)


@given(RATIOS, st.floats(0, 5))
def test_phi_is_lambda_times_r_minus_1_less_the_logarithm(ratio: np.ndarray, coefficient: float) -> None:
    assert np.allclose(phi(ratio, coefficient), [coefficient * (r - 1) - math.log(r) for r in ratio])


@given(RATIOS, st.floats(0.01, 5), st.floats(1e-3, 1e5))
def test_phi_is_nowhere_below_its_least_value(ratio: np.ndarray, coefficient: float, highest: float) -> None:
    inside = np.minimum(ratio, highest)
    assert np.all(phi(inside, coefficient) >= least_phi(coefficient, highest) - 1e-9)


def test_phi_without_a_floor_is_infinite_at_0() -> None:
    assert EstimatorPlan(None, 1.0).values([0.0]).tolist() == [math.inf]


@given(RATIOS, st.floats(1e-3, 0.9))
def test_a_mixed_ratio_is_linear_and_at_least_its_level(ratio: np.ndarray, level: float) -> None:
    mixed = floored_ratio(ratio, Floor("mix", level))
    assert np.all(mixed >= level)
    assert np.allclose(mixed, (1 - level) * ratio + level)


@given(RATIOS, st.floats(1e-3, 0.9), st.floats(1, 100))
def test_a_clipped_ratio_lies_between_floor_and_ceiling(
    ratio: np.ndarray, level: float, ceiling: float
) -> None:
    clipped = floored_ratio(ratio, Floor("clip", level, ceiling))
    assert np.array_equal(clipped, np.clip(ratio, level, ceiling))


def test_mixing_keeps_the_mean_ratio_at_1_and_clipping_does_not() -> None:
    own, population = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])
    means = [
        float(own @ floored_ratio(population / own, floor))
        for floor in (Floor("mix", 0.2), Floor("clip", 0.3, 2.0))
    ]
    assert means[0] == pytest.approx(1.0)
    assert abs(means[1] - 1.0) > 0.1


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 2.0, float("nan"), True, "x", None])
@pytest.mark.parametrize("kind", ["mix", "clip"])
def test_a_level_that_is_none_is_refused(kind: str, level: object) -> None:
    with pytest.raises(SfumatoError, match="floor level is"):
        Floor(kind, level)  # type: ignore[arg-type]


def test_other_kinds_ceilings_and_coefficients_are_refused() -> None:
    with pytest.raises(SfumatoError, match="floor kind is 'add'"):
        Floor("add", 0.1)  # type: ignore[arg-type]
    with pytest.raises(SfumatoError, match=r"ceiling is 2.0 with the kind 'mix'"):
        Floor("mix", 0.1, 2.0)
    with pytest.raises(SfumatoError, match=r"ceiling is 0.5"):
        Floor("clip", 0.1, 0.5)
    for coefficient in (-0.1, float("nan"), float("inf"), "1", True):
        with pytest.raises(SfumatoError, match="coefficient is"):
            EstimatorPlan(None, coefficient)  # type: ignore[arg-type]
    with pytest.raises(SfumatoError, match="floor is None"):
        _ = EstimatorPlan(None).required_floor
    for floor in ("mix", 0.1, ("mix", 0.1)):
        with pytest.raises(SfumatoError, match="allowed is a Floor"):
            EstimatorPlan(floor)  # type: ignore[arg-type]
    for kind in (["mix"], None):
        with pytest.raises(SfumatoError, match="floor kind is"):
            Floor(kind, 0.1)  # type: ignore[arg-type]
    with pytest.raises(SfumatoError, match="coefficient is 1000"):
        EstimatorPlan(None, 10**400)
