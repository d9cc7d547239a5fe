"""Rounds, groups and what one client's ledger records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.modulated.iterative import Steps, group_slices, iterate, one_release, release_of
from sfumato.modulated.plan import Domain, ModulatedPlan, Modulation
from sfumato.modulated.server import Moments
from sfumato.rng import Streams
from tests.sfumato.modulated.populations import population

PLAN = ModulatedPlan(Domain(3, 1.0), Modulation(0.1, 0.5, 2.0, 2), rounds=6)


@given(st.integers(1, 500), st.integers(1, 500))
def test_groups_are_disjoint_complete_and_of_equal_size_but_for_one(clients: int, groups: int) -> None:
    if groups > clients:
        with pytest.raises(
            SfumatoError, match=rf"rounds is {groups} with disjoint groups of {clients} clients"
        ):
            list(group_slices(clients, groups))
        return
    slices = list(group_slices(clients, groups))
    assert [i for part in slices for i in range(part.start, part.stop)] == list(range(clients))
    sizes = {part.stop - part.start for part in slices}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("regime", "asked", "spent"), [("same_clients", 60, 6), ("disjoint_groups", 10, 1)])
def test_each_regime_asks_and_records_what_it_says(regime: str, asked: int, spent: int) -> None:
    people = population(60, 3)
    calibrated = replace(PLAN, regime=regime).calibrate(4.0, 1e-5)  # type: ignore[arg-type]
    real = release_of(people.features, people.labels, calibrated, Streams(0))
    seen: list[tuple[int, np.ndarray]] = []

    def watched(clients: slice, directions: np.ndarray, number: int) -> Moments:
        moments = real(clients, directions, number)
        seen.append((moments.clients, directions))
        return moments

    fit = iterate(60, calibrated, Steps(0.3), Streams(0), watched)
    assert [count for count, _ in seen] == [asked] * 6
    assert fit.ledger.steps == spent == calibrated.plan.releases
    assert len(fit.path) == 6
    before = [np.zeros(3), *(coefficients[1:] for coefficients in fit.path[:-1])]
    for beta, (_count, directions) in zip(before, seen, strict=True):
        assert np.allclose(beta @ directions, 0.0, atol=1e-12)


def test_without_noise_the_rounds_are_gradient_descent() -> None:
    people = population(100, 3)
    calibrated = replace(PLAN, modulation=Modulation(), rounds=800).calibrate(None, 1e-5)
    fit = iterate(
        100,
        calibrated,
        Steps(1.0),
        Streams(0),
        release_of(people.features, people.labels, calibrated, Streams(0)),
    )
    x = np.column_stack([np.ones(100), people.features])
    assert np.allclose(fit.coefficients, np.linalg.lstsq(x, people.labels, rcond=None)[0], atol=1e-4)


def test_steps_decay_and_coefficients_stay_in_the_ball() -> None:
    assert Steps(1.0, 0.5).at(2) == pytest.approx(0.5)
    people = population(60, 3)
    calibrated = PLAN.calibrate(0.1, 1e-5)
    release = release_of(people.features, people.labels, calibrated, Streams(0))
    fit = iterate(60, calibrated, Steps(50.0, coefficient_bound=0.7), Streams(0), release)
    assert all(np.linalg.norm(coefficients) <= 0.7 + 1e-12 for coefficients in fit.path)


@pytest.mark.parametrize(
    "values",
    [(-1.0,), (0.0,), (float("nan"),), (1.0, -0.5), (1.0, 0.0, -1.0), (1.0, 0.0, float("nan")), ("1",)],
)
def test_steps_that_make_no_sense_are_one_sentence(values: tuple) -> None:
    with pytest.raises(
        SfumatoError, match=r"(size|decay|coefficient_bound) is .*; allowed is a finite number"
    ):
        Steps(*values)


def test_faulty_samples_are_counted_and_break_nothing() -> None:
    people = population(60, 3)
    people.features[:5] = np.nan
    calibrated = PLAN.calibrate(4.0, 1e-5)
    release = release_of(people.features, people.labels, calibrated, Streams(0))
    fit = iterate(60, calibrated, Steps(0.3), Streams(0), release)
    assert fit.faulty == 5 * 6
    assert np.all(np.isfinite(fit.coefficients))
    once = replace(PLAN, rounds=1).calibrate(4.0, 1e-5)
    single = release_of(people.features, people.labels, once, Streams(0))
    assert one_release(60, once, Streams(0), single)[2].faulty == 5


def test_a_run_is_repeated_by_its_seed_and_by_nothing_else() -> None:
    people = population(60, 3)
    calibrated = PLAN.calibrate(4.0, 1e-5)

    def fit(seed: int) -> np.ndarray:
        streams = Streams(seed)
        return iterate(
            60,
            calibrated,
            Steps(0.3),
            streams,
            release_of(people.features, people.labels, calibrated, streams),
        ).coefficients

    assert np.array_equal(fit(1), fit(1))
    assert not np.array_equal(fit(1), fit(2))
