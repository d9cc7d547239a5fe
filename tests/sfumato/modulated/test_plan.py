"""Sensitivities and noise of the modulated protocol; the tables of Section 1.3 of docs/papers.md to three digits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import calibrate_gaussian, gaussian_epsilon, spent
from sfumato.errors import SfumatoError
from sfumato.ledger import EventLedger
from sfumato.modulated.plan import Domain, ModulatedPlan, Modulation

TABLE = {
    "bun_steinke": (48.1, 9.70, 4.90, 2.50, 1.70, 1.055, 0.690, 0.568, 0.318),
    "zcdp": (34.0, 7.67, 4.05, 2.15, 1.49, 0.953, 0.638, 0.530, 0.305),
    "exact": (30.8, 7.03, 3.73, 1.99, 1.39, 0.892, 0.600, 0.500, 0.290),
}
EPSILONS = (0.1, 0.5, 1, 2, 3, 5, 8, 10, 20)
PLAN = ModulatedPlan(Domain(4, 1.5), Modulation(0.25, 0.8, 2.0, 2))


@pytest.mark.parametrize("rule", sorted(TABLE))
def test_noise_over_sensitivity_is_that_of_the_papers_notes(rule: str) -> None:
    for epsilon, printed in zip(EPSILONS, TABLE[rule], strict=True):
        found = calibrate_gaussian(epsilon, 1e-5, rule)  # type: ignore[arg-type]
        assert found == pytest.approx(printed, abs=0.51 * 10 ** (math.floor(math.log10(printed)) - 2))


def test_exact_needs_less_noise_than_zcdp_which_needs_less_than_bun_and_steinke() -> None:
    for epsilon in EPSILONS:
        exact, optimal, simple = (
            replace(PLAN, rule=rule).noise_std(epsilon, 1e-5)
            for rule in ("exact", "zcdp", "bun_steinke")  # type: ignore[arg-type]
        )
        assert exact < optimal < simple


@given(
    st.floats(0, 0.9),
    st.floats(0, 3),
    st.floats(0, 5),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_no_pair_of_samples_moves_apart_by_more_than_the_lipschitz_bound(
    shrinkage: float, amplitude: float, frequency: float, count: int, seed: int
) -> None:
    modulation = Modulation(shrinkage, amplitude, frequency, count)
    random = np.random.default_rng(seed)
    directions = np.linalg.qr(random.standard_normal((5, count)))[0]
    phases = random.uniform(0, 2 * np.pi, count)

    def sent(x: np.ndarray) -> np.ndarray:
        waves = np.cos(modulation.frequency * (x @ directions) + phases)
        return modulation.scale * x + modulation.direction_amplitude * waves @ directions.T

    pairs = random.standard_normal((200, 2, 5)) * random.uniform(0.01, 3)
    moved = np.linalg.norm(sent(pairs[:, 0]) - sent(pairs[:, 1]), axis=1)
    apart = np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)
    assert np.all(moved <= modulation.lipschitz * apart * (1 + 1e-9))


def test_the_lipschitz_bound_is_attained_and_falls_with_the_root_of_the_directions() -> None:
    for count in (1, 4):
        modulation = Modulation(0.0, 0.8, 2.0, count)
        directions = np.eye(6)[:, :count]
        step = 1e-6 * directions.sum(axis=1) / math.sqrt(count)
        waves = np.cos(2.0 * (step @ directions) - np.pi / 2) - np.cos(-np.pi / 2)
        moved = step + modulation.direction_amplitude * waves @ directions.T
        assert np.linalg.norm(moved) / np.linalg.norm(step) == pytest.approx(modulation.lipschitz, rel=1e-6)
    assert Modulation(0.0, 0.8, 2.0, 4).lipschitz == pytest.approx(1 + 0.8 * 2.0 / 2)


def test_sensitivity_is_expansion_times_diameter_and_joins_the_label() -> None:
    assert PLAN.sensitivity("phase_marginal") == pytest.approx(0.75 * 3.0)
    assert PLAN.sensitivity("lipschitz") == pytest.approx((0.75 + 0.8 * 2.0 / math.sqrt(2)) * 3.0)
    joint = replace(PLAN, labels="private", label_weight=0.5)
    assert joint.sensitivity("phase_marginal") == pytest.approx(math.hypot(0.75 * 3.0, 1.0))


@pytest.mark.parametrize(("regime", "releases"), [("same_clients", 16), ("disjoint_groups", 1)])
def test_recorded_releases_price_to_the_target(regime: str, releases: int) -> None:
    calibrated = replace(PLAN, rounds=16, regime=regime).calibrate(2.0, 1e-5)  # type: ignore[arg-type]
    ledger = EventLedger()
    for event in calibrated.events:
        ledger.record(event)
    assert ledger.steps == releases
    assert gaussian_epsilon(spent(ledger.events).mu(2.0), 1e-5) == pytest.approx(2.0, rel=1e-6)
    single = replace(PLAN, rounds=1).noise_std(2.0, 1e-5)
    assert calibrated.noise_std == pytest.approx(single * math.sqrt(releases))


def test_without_a_budget_there_is_no_noise() -> None:
    assert PLAN.calibrate(None, 1e-5).noise_std == 0.0


@pytest.mark.parametrize("phase", ["shared", "revealed"])
def test_phases_that_leak_are_refused_by_the_phase_marginal_calibration_alone(phase: str) -> None:
    modulation = replace(PLAN.modulation, phase=phase)  # type: ignore[arg-type]
    with pytest.raises(SfumatoError, match=rf"phase is '{phase}' .* allowed is 'fresh'"):
        replace(PLAN, modulation=modulation)
    assert replace(PLAN, modulation=modulation, calibration="lipschitz").calibrate(1.0, 1e-5).noise_std > 0


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Modulation(shrinkage=1.0), r"shrinkage is 1\.0; allowed is a number from 0 to below 1"),
        (lambda: Modulation(shrinkage=float("nan")), r"shrinkage is nan; allowed"),
        (lambda: Modulation(amplitude=-0.1), r"amplitude is -0\.1; allowed is a number from 0"),
        (lambda: Modulation(frequency=-1), r"frequency is -1; allowed is a number from 0"),
        (lambda: Modulation(directions=0), r"directions is 0; allowed is an integer from 1"),
        (lambda: Modulation(directions=1.5), r"directions is 1\.5; allowed is an integer"),  # type: ignore[arg-type]
        (lambda: Domain(0, 1.0), r"features is 0; allowed"),
        (lambda: Domain(2, 0.0), r"radius is 0\.0; allowed is a number from 1e-09"),
        (lambda: Domain(2, float("inf")), r"radius is inf; allowed"),
        (
            lambda: ModulatedPlan(Domain(2, 1.0), Modulation(amplitude=1.0, directions=2)),
            r"directions is 2 for 2 features; allowed are fewer",
        ),
        (lambda: PLAN.calibrate(0.0, 1e-5), r"epsilon is 0\.0; allowed"),
        (lambda: PLAN.calibrate(-1.0, 1e-5), r"epsilon is -1\.0; allowed"),
        (lambda: PLAN.calibrate(1.0, 0.0), r"delta is 0\.0; allowed"),
        (lambda: PLAN.calibrate("1", 1e-5), r"epsilon is '1'; allowed"),  # type: ignore[arg-type]
        (lambda: PLAN.calibrate(1.0, None), r"delta is None; allowed"),  # type: ignore[arg-type]
        (lambda: PLAN.calibrate(None, 7.0), r"delta is 7\.0; allowed"),
        (lambda: replace(PLAN, rounds=0), r"rounds is 0; allowed"),
        (lambda: replace(PLAN, labels="secret"), r"labels is 'secret'; allowed are public, private"),  # type: ignore[arg-type]
        (lambda: replace(PLAN, calibration="none"), r"calibration is 'none'; allowed"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_one_sentence(build: object, sentence: str) -> None:
    with pytest.raises(SfumatoError, match=sentence):
        build()  # type: ignore[operator]
