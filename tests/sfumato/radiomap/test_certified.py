"""The certified allocation is a function of what was released, and never under its floor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import energies
from sfumato.radiomap.certified import CertifiedDefence, public_inputs
from sfumato.rng import Streams
from tests.sfumato.radiomap.defended import lively, three_groups

PARTITION = three_groups(24)
# A network of steep answers, so that the floor is really met.
DEFENCE = CertifiedDefence(PARTITION, 0.7, 1.5, lively(PARTITION, size=20.0), rounds=5, floor=0.1)
ANY = st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1e-300, 1e100])
UPLOADS = arrays(np.float64, (2, 24), elements=ANY)
LEAST = np.sqrt(0.1) * 0.7 * 1.5 / np.sqrt(24)


def _after(history: list[np.ndarray]) -> CertifiedDefence:
    state = DEFENCE
    for released in history:
        state = state.observe(list(released))
    return state


@given(st.lists(UPLOADS, max_size=4), arrays(np.float64, (2, 24), elements=st.floats(-1e3, 1e3)))
@settings(max_examples=40, deadline=None)
def test_the_same_history_gives_the_same_levels_whatever_the_own_upload(
    history: list[np.ndarray], updates: np.ndarray
) -> None:
    state = _after(history)
    first, second = (
        state.protect(update, number, Streams(number).stream("noise"))
        for number, update in enumerate(updates)
    )
    assert np.array_equal(first.sigmas, second.sigmas)
    assert np.array_equal(first.sigmas, _after(history).sigmas)


@given(st.lists(UPLOADS, max_size=4))
@settings(max_examples=40, deadline=None)
def test_no_history_brings_a_level_under_the_floor_or_the_energy_off_the_budget(
    history: list[np.ndarray],
) -> None:
    sigmas = _after(history).sigmas
    assert np.all(sigmas >= LEAST * (1 - 1e-12))
    assert energies(sigmas, PARTITION.sizes).sum() == pytest.approx((0.7 * 1.5) ** 2, rel=1e-12)


def test_the_floor_is_met_and_the_levels_do_move_with_the_history() -> None:
    random = np.random.default_rng(0)
    found = np.array(
        [
            _after([PARTITION.spread(10.0 ** random.normal(size=3)) * random.normal(size=(2, 24))]).sigmas
            for _ in range(20)
        ]
    )
    assert found.min() == pytest.approx(LEAST, rel=1e-3)
    assert np.ptp(found, axis=0).min() > 1e-3


def test_the_promise_is_that_of_the_floor_in_every_state() -> None:
    state = _after([np.random.default_rng(0).normal(size=(2, 24))])
    assert state.promise == DEFENCE.promise
    assert state.promise.mu == pytest.approx(2.0 * 1.5 / LEAST)
    assert state.promise.mu >= 2.0 * 1.5 / state.sigmas.min() - 1e-12


def test_a_round_without_uploads_keeps_the_statistics_and_counts() -> None:
    state = _after([np.random.default_rng(0).normal(size=(2, 24))])
    idle = state.observe([])
    assert idle.round == state.round + 1
    assert idle.seen is state.seen
    assert DEFENCE.observe([]).sigmas == pytest.approx(np.full(3, 0.7 * 1.5 / np.sqrt(24)))


def test_the_statistics_remember_past_rounds_as_much_as_they_are_told_to() -> None:
    history = [size * np.random.default_rng(1).normal(size=(2, 24)) for size in (30.0, 3.0)]
    fresh = replace(DEFENCE, memory=0.0)
    forgetful = fresh.observe(list(history[0])).observe(list(history[1]))
    remembering = _after(history)
    assert remembering.seen is not None
    assert forgetful.seen is not None
    assert np.all(remembering.seen >= forgetful.seen)
    assert remembering.seen[0] == pytest.approx(
        0.5 * np.array(_after(history[:1]).seen)[0]
        + 0.5 * np.mean(_moments_of(history[1], _after(history[:1])), axis=0)
    )


def _moments_of(released: np.ndarray, state: CertifiedDefence) -> list[np.ndarray]:
    """The mean square of each group, less the noise, as written by hand."""
    squares = [np.mean(released[:, group.index] ** 2) for group in PARTITION.groups]
    return [np.maximum(np.array(squares) - state.sigmas**2, 0.0)]


def test_public_inputs_show_shadow_uploads_round_by_round_through_uniform_noise() -> None:
    shadows = np.random.default_rng(0).normal(size=(5, 24))
    rows = public_inputs(PARTITION, shadows, np.linspace(0, 1, 5), 0.7, 1.5, 2, Streams(0).stream("noise"))
    assert rows.shape == (5, 14)
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[1], rows[2])
    assert rows[:, 12].tolist() == [0.0, 0.0, 0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nu": 0.0}, "without noise nothing is certified"),
        ({"floor": 0.0}, "floor is 0.0"),
        ({"memory": 1.0}, "memory is 1.0"),
        ({"rounds": 0}, "rounds is 0"),
        ({"clip_norm": np.inf}, "clip_norm is inf"),
    ],
)
def test_numbers_out_of_range_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(SfumatoError, match=message):
        replace(DEFENCE, **change)  # type: ignore[arg-type]


def test_a_released_upload_that_is_not_finite_is_refused() -> None:
    with pytest.raises(SfumatoError, match="not finite"):
        DEFENCE.observe([np.full(24, np.nan)])
    with pytest.raises(SfumatoError, match="per_round is 0"):
        public_inputs(PARTITION, np.zeros((1, 24)), np.zeros(1), 0.7, 1.5, 0, Streams(0).stream("noise"))
