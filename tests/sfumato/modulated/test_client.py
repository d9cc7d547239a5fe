"""What clients send: bounded, noised as promised, one sample at a time. Seeds are fixed; each statistical test names its
false-alarm rate for a fresh seed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.clipping import clip_to_norm
from sfumato.errors import SfumatoError
from sfumato.modulated.client import (
    BLOCK,
    add_multiple,
    add_product,
    clip_samples,
    messages,
    orthonormal_directions,
    send,
)
from sfumato.modulated.plan import CalibratedModulation, Domain, ModulatedPlan, Modulation
from sfumato.rng import Streams

DOMAIN = Domain(3, 1.0)
PLAN = ModulatedPlan(DOMAIN, Modulation(0.2, 0.6, 3.0, 2))
QUIET = PLAN.calibrate(None, 1e-5)
ANY = st.floats(allow_nan=True, allow_infinity=True, width=32)


def _all(
    calibrated: CalibratedModulation, x: np.ndarray, y: np.ndarray, directions: np.ndarray, seed: int = 0
) -> tuple:
    blocks = list(
        (block.features.copy(), block.labels.copy(), block.faulty)
        for block in messages(x, y, calibrated, directions, Streams(seed))
    )
    return (
        np.concatenate([b[0] for b in blocks]),
        np.concatenate([b[1] for b in blocks]),
        sum(b[2] for b in blocks),
    )


def _directions(count: int = 2, size: int = 3) -> np.ndarray:
    return orthonormal_directions(np.zeros(size), count, Streams(1).stream("directions"))


@given(arrays(np.float32, (7, 3), elements=ANY), arrays(np.float32, 7, elements=ANY))
@settings(max_examples=150, deadline=None)
def test_every_sample_ends_within_the_public_bounds(x: np.ndarray, y: np.ndarray) -> None:
    for dtype in (np.float32, np.float64):
        clipped, labels, faulty = clip_samples(x.astype(dtype), y.astype(dtype), DOMAIN)
        assert np.all(np.linalg.norm(clipped.astype(np.float64), axis=1) <= 1.0)
        assert np.all(np.abs(labels) <= 1.0)
        finite = np.isfinite(x).all(axis=1) & np.isfinite(y)
        assert np.array_equal(faulty, ~finite)
        assert not clipped[faulty].any()
        assert np.array_equal(labels, np.clip(np.where(np.isfinite(y), y, 0.0), -1.0, 1.0).astype(np.float64))


@given(arrays(np.float64, (6, 3), elements=st.floats(-3, 3)))
@settings(max_examples=100, deadline=None)
def test_clipping_agrees_with_the_shared_one(x: np.ndarray) -> None:
    clipped, _labels, _faulty = clip_samples(x, np.zeros(6), DOMAIN)
    assert np.allclose(clipped, clip_to_norm(x, 1.0), rtol=1e-12, atol=1e-15)


@given(st.integers(0, 5), arrays(np.float64, 3, elements=st.floats(-5, 5)))
@settings(max_examples=40, deadline=None)
def test_a_clients_message_depends_on_its_own_sample_alone(place: int, other: np.ndarray) -> None:
    x = np.linspace(-2, 2, 18).reshape(6, 3)
    changed = x.copy()
    changed[place] = other
    calibrated = PLAN.calibrate(1.0, 1e-5)
    one, two = (_all(calibrated, rows, np.zeros(6), _directions())[0] for rows in (x, changed))
    assert np.array_equal(np.delete(one, place, axis=0), np.delete(two, place, axis=0))


@given(arrays(np.float32, 3, elements=ANY), st.floats(-2, 2))
@settings(max_examples=50, deadline=None)
def test_a_label_in_the_clear_says_nothing_about_its_features(x: np.ndarray, label: float) -> None:
    """Neighbours have the same label (statement of the public-label protocol), so it must not follow the features."""
    calibrated = PLAN.calibrate(1.0, 1e-5)
    one, two = (
        send(features, label, calibrated, _directions(), Streams(0).stream("one")).label
        for features in (x.astype(np.float64), np.zeros(3))
    )
    assert one == two


def test_samples_are_not_changed() -> None:
    x = np.array([[9.0, 0, 0], [np.nan, 0, 0], [0.1, 0.2, 0.3]], np.float32)
    before, y = x.copy(), np.array([5.0, 0.0, np.inf])
    _sent, labels, faulty = _all(PLAN.calibrate(1.0, 1e-5), x, y, _directions())
    assert np.array_equal(x, before, equal_nan=True)
    assert faulty == 2
    assert labels.tolist() == [1.0, 0.0, 0.0]


def test_the_message_of_a_faulty_sample_is_noise_of_the_same_law() -> None:
    """Kolmogorov-Smirnov against a sample at zero, false alarms 1e-4."""
    calibrated = PLAN.calibrate(1.0, 1e-5)
    bad, zero = np.full((20_000, 3), np.nan), np.zeros((20_000, 3))
    one = _all(calibrated, bad, np.zeros(20_000), _directions(), 1)[0]
    two = _all(calibrated, zero, np.zeros(20_000), _directions(), 2)[0]
    assert all(_kolmogorov(one[:, i], two[:, i]) > 1e-4 for i in range(3))


def _kolmogorov(one: np.ndarray, two: np.ndarray) -> float:
    from scipy.stats import ks_2samp

    return float(ks_2samp(one, two).pvalue)


def test_modulation_tells_nothing_about_the_sample_when_phases_are_fresh() -> None:
    """The key finding, Section 1.3 a': un-noised modulation along v has the same law for far-apart samples and for
    other frequencies; Kolmogorov-Smirnov, three tests at 1e-4 each."""
    loud = ModulatedPlan(Domain(3, 2.0), Modulation(0.0, 1.0, 4.0, 1)).calibrate(None, 1e-5)
    other = replace(loud, plan=replace(loud.plan, modulation=Modulation(0.0, 1.0, 0.3, 1)))
    directions = _directions(1)
    near, far = np.tile([0.0, 0, 0], (20_000, 1)), np.tile([1.0, -1.0, 0.7], (20_000, 1))

    def wave(calibrated: CalibratedModulation, x: np.ndarray, seed: int) -> np.ndarray:
        return (_all(calibrated, x, np.zeros(len(x)), directions, seed)[0] - x) @ directions[:, 0]

    reference = wave(loud, near, 1)
    assert np.std(reference) == pytest.approx(math.sqrt(0.5), rel=0.02)
    assert _kolmogorov(reference, wave(loud, far, 2)) > 1e-4
    assert _kolmogorov(reference, wave(other, far, 3)) > 1e-4
    spread = np.random.default_rng(0).uniform(-1, 1, (20_000, 3))
    assert abs(np.corrcoef(wave(loud, spread, 4), spread @ directions[:, 0])[0, 1]) < 0.03


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("frequency", [1e3, 1e6, 1e9])
def test_the_phase_survives_the_rounding_of_any_allowed_frequency(dtype: type, frequency: float) -> None:
    """Kolmogorov-Smirnov between two samples at 1e-4, and as many different waves as clients but for float32's grid."""
    plan = ModulatedPlan(Domain(3, 1.0), Modulation(0.0, 1e3, frequency, 1))
    directions = _directions(1)
    waves = []
    for seed, place in ((1, 0.3), (2, 0.77)):
        x = np.tile(np.array([place, -0.1, 0.2], dtype), (20_000, 1))
        sent = _all(plan.calibrate(None, 1e-5), x, np.zeros(20_000), directions, seed)[0]
        waves.append((sent - x) @ directions[:, 0])
    assert len(np.unique(waves[0])) > 15_000
    assert _kolmogorov(*waves) > 1e-4


def test_a_frequency_that_rounding_could_not_bear_is_refused() -> None:
    with pytest.raises(SfumatoError, match=r"frequency times radius is 2e\+09; allowed is up to 1e\+09"):
        ModulatedPlan(Domain(3, 2.0), Modulation(0.0, 1.0, 1e9, 1))


@pytest.mark.parametrize("factor", [1e20, 2.0, 0.0, np.nan, np.inf])
def test_directions_of_a_server_that_cheats_are_refused(factor: float) -> None:
    calibrated, directions = PLAN.calibrate(1.0, 1e-5), _directions() * factor
    with pytest.raises(SfumatoError, match="directions are off from orthonormal by"):
        send(np.zeros(3), 0.0, calibrated, directions, Streams(0).stream("client/7"))
    with pytest.raises(SfumatoError, match="directions are off from orthonormal by"):
        next(messages(np.zeros((4, 3)), np.zeros(4), calibrated, directions, Streams(0)))


@pytest.mark.parametrize("phase", ["shared", "revealed"])
def test_no_client_follows_a_protocol_that_is_not_implemented(phase: str) -> None:
    modulation = replace(PLAN.modulation, phase=phase)  # type: ignore[arg-type]
    calibrated = replace(PLAN, modulation=modulation, calibration="lipschitz").calibrate(1.0, 1e-5)
    with pytest.raises(SfumatoError, match=rf"phase is '{phase}'; allowed for sending is 'fresh'"):
        next(messages(np.zeros((4, 3)), np.zeros(4), calibrated, _directions(), Streams(0)))


@pytest.mark.parametrize("number", [-1, 1])
def test_a_round_that_the_budget_does_not_hold_is_refused(number: int) -> None:
    with pytest.raises(SfumatoError, match=rf"round_number is {number}; allowed with 1 rounds is 0 to 0"):
        next(
            messages(
                np.zeros((4, 3)), np.zeros(4), PLAN.calibrate(1.0, 1e-5), _directions(), Streams(0), number
            )
        )


@pytest.mark.parametrize(("scale", "radius"), [(3e38, 1e-3), (3e38, 1e-6), (1e-5, 1e-9), (1e30, 1.0)])
def test_clipping_keeps_its_bound_where_factors_are_tiny(scale: float, radius: float) -> None:
    x = np.array([[scale, scale / 2, 0.0]], np.float32)
    clipped, _labels, _faulty = clip_samples(x, np.zeros(1), Domain(3, radius))
    assert 0 < np.linalg.norm(clipped.astype(np.float64)) <= radius


@pytest.mark.parametrize("make", [lambda x: x[:, ::2], np.asfortranarray])
def test_layouts_of_samples_change_nothing(make: Any) -> None:
    """Strided, Fortran-ordered and read-only samples give the messages of their plain copies."""
    columns = 5 if make(np.zeros((2, 5))).shape[1] == 3 else 3
    view = make(np.random.default_rng(0).uniform(-1, 1, (50, columns)))
    view.setflags(write=False)
    calibrated = PLAN.calibrate(1.0, 1e-5)
    one, two = (
        _all(calibrated, x, np.zeros(50), _directions())[0] for x in (view, np.ascontiguousarray(view))
    )
    assert np.allclose(one, two, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_has_the_calibrated_deviation_in_every_coordinate(dtype: type) -> None:
    """80,000 draws a coordinate: a relative error of 1 % is four standard errors; false alarms 4e-4 over 3 coordinates."""
    calibrated = ModulatedPlan(DOMAIN).calibrate(3.0, 1e-5)
    sent = _all(calibrated, np.zeros((80_000, 3), dtype), np.zeros(80_000), np.zeros((3, 0)))[0]
    assert np.std(sent, axis=0) == pytest.approx(np.full(3, calibrated.noise_std), rel=0.01)
    assert np.abs(np.corrcoef(sent.T) - np.eye(3)).max() < 0.015
    assert sent.dtype == dtype


def test_private_labels_have_the_features_noise_over_their_weight() -> None:
    """80,000 draws: 1 % is four standard errors, false alarms 7e-5."""
    plan = replace(PLAN, labels="private", label_weight=0.5)
    calibrated = plan.calibrate(3.0, 1e-5)
    labels = _all(calibrated, np.zeros((80_000, 3)), np.full(80_000, 0.25), _directions())[1]
    assert np.std(labels) == pytest.approx(calibrated.noise_std / 0.5, rel=0.01)
    assert abs(np.mean(labels) - 0.25) < 4.5 * np.std(labels) / math.sqrt(80_000)


def test_public_labels_arrive_as_they_are() -> None:
    labels = _all(PLAN.calibrate(1.0, 1e-5), np.zeros((5, 3)), np.linspace(-1, 1, 5), _directions())[1]
    assert np.array_equal(labels, np.linspace(-1, 1, 5))


def test_a_message_without_noise_lies_on_the_modulated_curve() -> None:
    directions = _directions()
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (50, 3))
    sent = _all(QUIET, x, np.zeros(50), directions)[0]
    waves = (sent - 0.8 * x) @ directions
    assert np.abs(waves).max() <= 0.6 / math.sqrt(2) + 1e-12
    assert np.allclose(sent, 0.8 * x + waves @ directions.T)


def test_a_single_client_sends_what_a_block_of_one_sends() -> None:
    calibrated, directions = PLAN.calibrate(1.0, 1e-5), _directions()
    x = np.array([[0.3, 0.1, -0.9]])
    block = _all(calibrated, x, np.array([0.4]), directions, 7)
    one = send(x[0], 0.4, calibrated, directions, Streams(7).bulk("clients", 0))
    assert np.array_equal(one.features, block[0][0])
    assert one.label == block[1][0]


def test_rounds_have_noise_of_their_own_and_seeds_repeat_it() -> None:
    calibrated, x, y = PLAN.calibrate(1.0, 1e-5), np.zeros((BLOCK + 5, 3)), np.zeros(BLOCK + 5)
    calibrated = replace(PLAN, rounds=2).calibrate(1.0, 1e-5)
    rounds = [
        np.concatenate(
            [b.features.copy() for b in messages(x, y, calibrated, _directions(), Streams(3), number)]
        )
        for number in (0, 1, 0)
    ]
    assert np.array_equal(rounds[0], rounds[2])
    assert not np.any(rounds[0] == rounds[1])
    assert len(np.unique(rounds[0])) == rounds[0].size


def test_release_mode_draws_anew() -> None:
    calibrated, x = PLAN.calibrate(1.0, 1e-5), np.zeros((4, 3))
    one, two = (
        next(messages(x, np.zeros(4), calibrated, _directions(), Streams(None, "release"))).features.copy()
        for _ in range(2)
    )
    assert not np.any(one == two)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=50, deadline=None)
def test_directions_are_orthonormal_and_orthogonal_to_the_coefficients(
    size: int, seed: int, zero: bool
) -> None:
    coefficients = np.zeros(size) if zero else np.random.default_rng(seed).standard_normal(size)
    count = size if zero else size - 1
    found = orthonormal_directions(coefficients, count, Streams(seed).stream("directions"))
    assert np.allclose(found.T @ found, np.eye(count), atol=1e-10)
    assert np.allclose(coefficients @ found, 0, atol=1e-9 * (1 + np.linalg.norm(coefficients)))
    with pytest.raises(SfumatoError, match=rf"directions is {count + 1}; allowed with {size} features"):
        orthonormal_directions(coefficients, count + 1, Streams(seed).stream("directions"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_is_added_in_place(dtype: type) -> None:
    random = np.random.default_rng(0)
    target, left, right = (random.standard_normal(shape).astype(dtype) for shape in ((9, 4), (9, 2), (4, 2)))
    expected = target + left @ right.T
    add_product(target, left, right)
    assert np.allclose(target, expected, rtol=1e-5)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_multiple_is_added_in_place(dtype: type, order: Literal["C", "F"]) -> None:
    random = np.random.default_rng(0)
    target, values = (random.standard_normal((9, 4)).astype(dtype) for _ in range(2))
    expected = target + 0.3 * values
    add_multiple(target, np.asarray(values, order=order), 0.3)
    assert np.allclose(target, expected, rtol=1e-5)


def test_what_cannot_be_added_to_in_place_is_refused() -> None:
    target = np.zeros((4, 9)).T
    for add in (
        lambda: add_multiple(target, np.zeros((9, 4)), 1.0),
        lambda: add_product(target, target, np.eye(4)),
    ):
        with pytest.raises(SfumatoError, match="not C-contiguous"):
            add()


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (np.zeros((4, 2)), np.zeros(4), r"features has shape \(4, 2\); allowed is \(clients, 3\)"),
        (np.zeros((4, 3), int), np.zeros(4), r"features has dtype int64; allowed are float32 and float64"),
        (np.zeros((4, 3)), np.zeros(5), r"labels has shape \(5,\); allowed is \(4,\)"),
    ],
)
def test_wrong_shapes_are_one_sentence(x: np.ndarray, y: np.ndarray, sentence: str) -> None:
    with pytest.raises(SfumatoError, match=sentence):
        next(messages(x, y, PLAN.calibrate(1.0, 1e-5), _directions(), Streams(0)))
