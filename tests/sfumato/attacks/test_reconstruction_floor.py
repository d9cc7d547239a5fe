from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.attacks.message_model import MessageModel, unit_directions
from sfumato.attacks.phase_noise import arcsine_gaussian_information
from sfumato.attacks.reconstruction import linear_posterior_error, linear_unbiased_error
from sfumato.attacks.reconstruction_floor import (
    bayesian_floor,
    known_phase_floor,
    known_phase_floor_at,
    least_bayes_error,
    reconstruction_floor,
)
from sfumato.errors import SfumatoError
from tests.sfumato.attacks.modulated_messages import rotating, stream

amplitudes = st.sampled_from([0.0, 0.3, 1.0, 4.0, 40.0])
scales = st.sampled_from([0.2, 0.8, 1.0])
sigmas = st.sampled_from([0.1, 1.0, 3.7])
shapes = st.sampled_from([(1, 1, 1), (2, 1, 1), (5, 1, 4), (5, 3, 2), (4, 0, 3)])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(shapes, scales, amplitudes, sigmas)
def test_floor_of_directions_that_stay_is_the_papers_formula(shape, scale, amplitude, sigma):
    features, count, rounds = shape
    floor = reconstruction_floor(
        MessageModel(unit_directions(features, count, rounds), scale, amplitude, sigma)
    )
    information = arcsine_gaussian_information(amplitude, sigma)
    assert floor.across == pytest.approx((features - count) * sigma**2 / (rounds * scale**2), abs=1e-9)
    assert floor.along == pytest.approx(count / information / (rounds * scale**2))
    assert floor.total == pytest.approx(floor.across + floor.along)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sampled_from([(4, 1, 2), (4, 1, 20), (5, 3, 4)]), st.integers(0, 5), amplitudes, sigmas)
def test_floor_of_directions_that_change_is_between_that_of_no_modulation_and_of_ones_that_stay(
    shape, seed, amplitude, sigma
):
    features, _count, rounds = shape
    changing = reconstruction_floor(MessageModel(rotating(*shape, seed), 0.8, amplitude, sigma)).total
    staying = reconstruction_floor(MessageModel(unit_directions(*shape), 0.8, amplitude, sigma)).total
    gaussian = features * sigma**2 / (rounds * 0.8**2)
    assert gaussian * (1 - 1e-9) <= changing <= staying * (1 + 1e-9)
    if amplitude >= 1.0 * sigma:
        assert changing < 0.999 * staying


def test_floor_is_the_same_in_other_coordinates_and_grows_with_the_amplitude():
    directions = rotating(4, 2, 3)
    turn = rotating(4, 4, 1, seed=9)[0]
    here = reconstruction_floor(MessageModel(directions, 0.8, 2.0, 0.5))
    there = reconstruction_floor(MessageModel(np.einsum("ij,tjm->tim", turn, directions), 0.8, 2.0, 0.5))
    assert (there.total, there.along) == (pytest.approx(here.total), pytest.approx(here.along))
    totals = [
        reconstruction_floor(MessageModel(directions, 0.8, a, 0.5)).total for a in np.linspace(0, 9, 19)
    ]
    assert np.all(np.diff(totals) > 0)


@pytest.mark.parametrize("steepness", [0.0, 0.3, 0.9])
def test_known_phase_floor_is_the_average_over_uniform_phases(steepness):
    model = MessageModel(rotating(4, 2, 1), 1.1, 0.5, 0.7)
    frequency = steepness * 1.1 / 0.5
    # A trapezoid rule on a period: exact to rounding with so many nodes.
    angles = 2 * np.pi * np.arange(200) / 200
    bounds = [known_phase_floor_at(model, frequency, np.array([[first, 0.0]])) for first in angles]
    fixed = known_phase_floor_at(model, frequency, np.zeros((1, 2)))
    wanted = np.mean([bound.along for bound in bounds]) - fixed.along / 2
    floor = known_phase_floor(model, frequency)
    assert floor.along == pytest.approx(2 * wanted, rel=1e-6)
    assert floor.across == pytest.approx(2 * 0.7**2 / 1.1**2)
    assert floor.total == pytest.approx(floor.along + floor.across)


def test_known_phase_floor_is_infinite_where_the_message_is_not_one_to_one_in_the_sample():
    model = MessageModel(unit_directions(3, 1), 0.8, 2.0, 0.7)
    assert known_phase_floor(model, 0.39).total < math.inf
    for frequency in (0.4, 0.5):
        floor = known_phase_floor(model, frequency)
        assert (floor.total, floor.along) == (math.inf, math.inf)
        assert floor.across == pytest.approx(2 * 0.7**2 / 0.8**2)
    at_flat = known_phase_floor_at(model, 0.4, np.full((1, 1), np.pi / 2))
    assert at_flat.total == math.inf
    # Attackers who are right on average over phases exist all the same, and have a finite bound.
    assert known_phase_floor(model, 0.5, "average_phase").total < math.inf


@settings(max_examples=60, deadline=None, derandomize=True)
@given(shapes, scales, amplitudes, sigmas, st.sampled_from([0.0, 0.5, 1.0, 8.0]))
def test_seeing_the_phases_never_raises_the_bound_of_attackers_who_are_unbiased_on_average(
    shape, scale, amplitude, sigma, frequency
):
    model = MessageModel(unit_directions(*shape), scale, amplitude, sigma)
    known = known_phase_floor(model, frequency, "average_phase").total
    assert known <= reconstruction_floor(model).total * (1 + 1e-9)
    if shape[2] == 1:
        assert known <= known_phase_floor(model, frequency).total * (1 + 1e-9)


def test_average_phase_floor_comes_from_the_mean_of_the_information():
    model = MessageModel(rotating(3, 1, 2), 0.8, 1.5, 0.7)
    phases = 2 * np.pi * stream(0).random((4000, 2, 1))
    gains = []
    for psi in phases:
        jacobians = [
            0.8 * np.eye(3) - 1.5 * 2.0 * np.sin(psi[t, 0]) * model.directions[t] @ model.directions[t].T
            for t in range(2)
        ]
        gains.append(sum(jacobian.T @ jacobian for jacobian in jacobians) / 0.7**2)
    # The mean's relative error is about 2 % here; five of it, so that the false-alarm rate is below 1e-5.
    wanted = np.trace(np.linalg.inv(np.mean(gains, axis=0)))
    assert known_phase_floor(model, 2.0, "average_phase").total == pytest.approx(wanted, rel=0.1)
    one = known_phase_floor_at(model, 2.0, phases[0])
    assert one.total == pytest.approx(np.trace(np.linalg.inv(gains[0])))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.sampled_from([(1, 1), (4, 1), (5, 3)]), scales, amplitudes, sigmas, st.floats(1e-3, 1e3))
def test_bayes_errors_are_ordered(shape, scale, amplitude, sigma, variance):
    model = MessageModel(unit_directions(*shape), scale, amplitude, sigma)
    van_trees, least = bayesian_floor(model, variance), least_bayes_error(model, variance)
    linear = linear_posterior_error(model, variance)
    for part in ("total", "along"):
        assert getattr(van_trees, part) <= getattr(least, part) * (1 + 1e-9)
        assert getattr(least, part) <= getattr(linear, part) * (1 + 1e-9)
    assert linear.total <= min(shape[0] * variance, linear_unbiased_error(model).total) * (1 + 1e-9)
    assert van_trees.across == pytest.approx(least.across, abs=1e-9) == pytest.approx(linear.across, abs=1e-9)


def test_bayes_floor_without_modulation_is_the_gaussian_posteriors_variance():
    model = MessageModel(unit_directions(3, 1), 0.5, 0.0, 2.0)
    wanted = 3 / (1 / 0.3 + 0.25 / 4)
    assert bayesian_floor(model, 0.3).total == pytest.approx(wanted)
    assert least_bayes_error(model, 0.3).total == pytest.approx(wanted)


def test_bayes_floor_tends_to_the_unbiased_floor_with_a_wide_prior_and_to_the_priors_with_much_noise():
    model = MessageModel(rotating(4, 1, 5), 0.8, 3.0, 0.5)
    assert bayesian_floor(model, 1e7).total == pytest.approx(reconstruction_floor(model).total, rel=1e-6)
    noisy = MessageModel(rotating(4, 1, 5), 0.8, 3.0, 1e4)
    covariance = np.diag([0.1, 0.2, 0.3, 0.0])
    assert bayesian_floor(noisy, covariance).total == pytest.approx(0.6, rel=1e-6)


PLAIN = MessageModel(unit_directions(2, 1), 1.0, 1.0, 1.0)
TWICE = MessageModel(unit_directions(2, 1, 2), 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: known_phase_floor(PLAIN, -1.0), "frequency"),
        (lambda: known_phase_floor(PLAIN, math.inf), "frequency"),
        (lambda: known_phase_floor(PLAIN, 1.0, "sometimes"), "unbiased"),
        (lambda: known_phase_floor(TWICE, 1.0), "messages"),
        (lambda: known_phase_floor_at(TWICE, 1.0, np.zeros((1, 1))), "phases"),
        (lambda: known_phase_floor_at(PLAIN, math.nan, np.zeros((1, 1))), "frequency"),
        (lambda: bayesian_floor(PLAIN, -1.0), "prior"),
        (lambda: least_bayes_error(PLAIN, -1.0), "prior"),
        (lambda: least_bayes_error(TWICE, 1.0), "messages"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        call()
    assert str(caught.value).count("\n") == 0
