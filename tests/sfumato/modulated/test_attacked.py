"""Attackers on real messages respect their floors; the audit of the real mechanism stays below its claim.

Fixed seeds; the intervals of reconstruction errors are at 99.99 %, so a false alarm has probability 1e-4 each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.attacks import linear_unbiased_error
from sfumato.modulated.attacked import audit_messages, model_of, received, reconstruct
from sfumato.modulated.plan import CalibratedModulation, Domain, ModulatedPlan, Modulation
from sfumato.rng import Streams

PLAN = ModulatedPlan(Domain(4, 1.0), Modulation(0.1, 1.0, 2.0, 2))
SAMPLES = np.random.default_rng(0).uniform(-0.5, 0.5, (3000, 4))


def _wide(mean: float, low: float, high: float) -> tuple[float, float]:
    """The 99.99 % interval from a 95 % one."""
    half = (high - low) / 2 * 3.891 / 1.96
    return mean - half, mean + half


@pytest.mark.parametrize(("rounds", "epsilon"), [(1, 20.0), (8, 60.0)])
def test_no_attacker_is_below_the_floor_that_binds_it(rounds: int, epsilon: float) -> None:
    calibrated = replace(PLAN, rounds=rounds).calibrate(epsilon, 1e-5)
    found = reconstruct(SAMPLES, calibrated, rounds, Streams(1))
    for name, outcome in found.items():
        total = outcome.errors.total
        _low, high = _wide(total.mean, total.low, total.high)
        assert high >= outcome.floor_bayes, name
        if outcome.unbiased:
            assert high >= outcome.floor
    best = found["exact_posterior_mean" if rounds == 1 else "linear_posterior_mean"]
    assert best.errors.total.mean < outcome.prior_error
    assert best.errors.total.mean < found["linear_unbiased"].errors.total.mean


def test_the_unbiased_attackers_error_is_its_formula() -> None:
    calibrated = PLAN.calibrate(5.0, 1e-5)
    _seen, directions = received(SAMPLES, calibrated, 1, Streams(1))
    expected = linear_unbiased_error(model_of(calibrated, directions))
    errors = reconstruct(SAMPLES, calibrated, 1, Streams(1))["linear_unbiased"].errors
    for part, value in ((errors.total, expected.total), (errors.along, expected.along)):
        low, high = _wide(part.mean, part.low, part.high)
        assert low <= value <= high


def test_modulation_hurts_the_attacker_along_its_directions_alone() -> None:
    """At the same sigma the floor rises by at most m of n directions, and by nothing across them."""
    loud = CalibratedModulation(PLAN, 1.0, 1e-5, 1.0 / PLAN.neighbor_distance)
    still = CalibratedModulation(
        replace(PLAN, modulation=replace(PLAN.modulation, amplitude=0.0)), 1.0, 1e-5, loud.noise_multiplier
    )
    one, two = (reconstruct(SAMPLES[:50], c, 1, Streams(1))["linear_unbiased"] for c in (loud, still))
    assert one.floor > two.floor
    assert one.floor_across == pytest.approx(two.floor * 2 / 4)
    faster = replace(loud, plan=replace(PLAN, modulation=replace(PLAN.modulation, frequency=50.0)))
    assert reconstruct(SAMPLES[:50], faster, 1, Streams(1))["linear_unbiased"].floor == pytest.approx(
        one.floor
    )


def test_values_are_finite_or_have_a_reason() -> None:
    for rounds in (1, 3):
        for outcome in reconstruct(
            SAMPLES[:50], replace(PLAN, rounds=rounds).calibrate(5.0, 1e-5), rounds, Streams(1)
        ).values():
            values = outcome.to_values()
            for name, value in values.items():
                assert value is not None or values[f"{name}_reason"]
                assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("calibration", ["phase_marginal", "lipschitz"])
@pytest.mark.parametrize("pair", ["across", "along"])
def test_the_audited_bound_is_below_the_claim(calibration: str, pair: str) -> None:
    """False alarms: 1e-3 each, the audit's own confidence."""
    plan = replace(PLAN, calibration=calibration)  # type: ignore[arg-type]
    bound = audit_messages(plan, 3.0, 1e-5, pair, 30_000, Streams(3), 0.999)  # type: ignore[arg-type]
    assert bound.epsilon_lower <= 3.0
    if calibration == "phase_marginal":
        assert bound.epsilon_lower > 0.8


def test_noise_for_another_budget_is_caught() -> None:
    """A mechanism that is calibrated to epsilon 12 and claims 3."""
    bound = audit_messages(PLAN, 12.0, 1e-5, "across", 30_000, Streams(3), 0.999)
    assert bound.epsilon_lower > 3.0


def test_all_releases_of_a_client_are_audited_together() -> None:
    composed = audit_messages(replace(PLAN, rounds=10), 3.0, 1e-5, "across", 20_000, Streams(3), 0.99)
    assert 0.8 < composed.epsilon_lower <= 3.0
