from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from sfumato.attacks.message_model import MessageModel, unit_directions
from sfumato.attacks.phase_noise import noise_moments
from sfumato.attacks.reconstruction import (
    exact_posterior_mean,
    linear_posterior_error,
    linear_posterior_mean,
    linear_unbiased,
    linear_unbiased_error,
    onto_ball,
    squared_errors,
)
from sfumato.attacks.reconstruction_floor import bayesian_floor, least_bayes_error, reconstruction_floor
from sfumato.errors import SfumatoError
from sfumato.modulated.client import Domain, ModulatedPlan, Modulation, messages
from sfumato.modulated.plan import CalibratedModulation
from sfumato.rng import Streams
from tests.sfumato.attacks.modulated_messages import deviations, draw, rotating, stream

# Every test of a mean is a z-test at 4.5 standard errors, by the normal law a false-alarm rate of 7e-6 each.
ALARM = 4.5


def parts(error, directions):
    """Squared errors of each client: total, along, across."""
    total = (error**2).sum(axis=1)
    along = np.mean([((error @ V) ** 2).sum(axis=1) for V in directions], axis=0)
    return total, along, total - along


def assert_errors(error, directions, expected):
    for values, name in zip(parts(error, directions), ("total", "along", "across"), strict=True):
        assert abs(deviations(values, getattr(expected, name))) < ALARM, name


@pytest.mark.parametrize("count", [1, 3])
def test_unbiased_attacker_of_real_clients_errs_as_its_formula_says_and_not_less_than_the_floor(count):
    features, rounds, clients, sigma = 5, 3, 20_000, 0.4
    plan = ModulatedPlan(Domain(features, 1.0), Modulation(0.2, 1.5, 3.0, count), rounds=rounds)
    calibrated = CalibratedModulation(plan, 1.0, 1e-5, sigma / plan.neighbor_distance)
    samples = 0.2 * stream(0, "samples").standard_normal((clients, features)).clip(-2, 2)
    directions = rotating(features, count, rounds)
    received = np.stack(
        [
            np.concatenate(
                [
                    block.features.copy()
                    for block in messages(samples, np.zeros(clients), calibrated, V, Streams(5), t)
                ]
            )
            for t, V in enumerate(directions)
        ],
        axis=1,
    )
    model = MessageModel(directions, 0.8, 1.5 / math.sqrt(count), sigma)
    error = linear_unbiased(received, 0.8) - samples
    for coordinate in error.T:
        assert abs(deviations(coordinate, 0.0)) < ALARM
    assert_errors(error, directions, linear_unbiased_error(model))
    assert deviations((error**2).sum(axis=1), reconstruction_floor(model).total) > -ALARM


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from([(3, 1, 1), (5, 2, 4), (4, 0, 2)]), st.sampled_from([0.0, 0.7, 9.0]))
def test_unbiased_error_of_directions_that_stay_is_the_papers_formula_and_above_the_floor(shape, amplitude):
    features, count, rounds = shape
    model = MessageModel(unit_directions(*shape), 0.6, amplitude, 0.9)
    wanted = ((features - count) * 0.81 + count * (0.81 + amplitude**2 / 2)) / 0.36 / rounds
    assert linear_unbiased_error(model).total == pytest.approx(wanted)
    assert reconstruction_floor(model).total <= wanted * (1 + 1e-12)
    # How directions are spread over the messages does not matter to the mean of the messages.
    turned = MessageModel(rotating(*shape), 0.6, amplitude, 0.9)
    assert linear_unbiased_error(turned).total == pytest.approx(wanted)


@pytest.mark.parametrize("amplitude", [0.0, 0.5, 2.0, 12.0])
def test_posterior_means_err_as_predicted_and_the_exact_one_least(amplitude):
    model = MessageModel(rotating(4, 2, 1), 0.8, amplitude, 0.5)
    center, variance = np.array([0.3, -0.1, 0.0, 0.2]), 0.49
    samples = center + math.sqrt(variance) * stream(1, "samples").standard_normal((30_000, 4))
    received, _ = draw(samples, model, 2.0, stream(2))
    exact = exact_posterior_mean(received, model, center, variance) - samples
    linear = linear_posterior_mean(received, model, center, variance) - samples
    unbiased = linear_unbiased(received, 0.8) - samples
    assert_errors(exact, model.directions, least_bayes_error(model, variance))
    assert_errors(linear, model.directions, linear_posterior_error(model, variance))
    square_exact, square_linear, square_unbiased = ((e**2).sum(axis=1) for e in (exact, linear, unbiased))
    assert deviations(square_exact, bayesian_floor(model, variance).total) > -ALARM
    assert deviations(square_unbiased - square_linear, 0.0) > ALARM
    # Where the cosine is wide against the noise the exact mean wins clearly, else the two are all but one.
    assert deviations(square_linear - square_exact, 0.0) > (ALARM if amplitude >= 2.0 else -ALARM)
    if amplitude == 0.0:
        np.testing.assert_allclose(exact, linear, atol=1e-8)


def test_exact_posterior_mean_is_the_integral_over_the_prior():
    model = MessageModel(unit_directions(1, 1), 0.8, 2.0, 0.4)
    for message in (-3.1, 0.4, 1.9, 6.0):

        def posterior(x, message=message):
            noise = noise_moments(message - 0.8 * x, 2.0, 0.4).log_density
            return stats.norm.pdf(x, 0.5, 0.9) * math.exp(float(noise))

        mass, _ = integrate.quad(posterior, -6, 7, limit=200, epsabs=1e-14)
        mean, _ = integrate.quad(lambda x: x * posterior(x), -6, 7, limit=200, epsabs=1e-14)
        found = exact_posterior_mean(np.full((1, 1, 1), message), model, np.array([0.5]), 0.81)
        assert found.item() == pytest.approx(mean / mass, abs=1e-6)


def test_linear_posterior_mean_solves_the_normal_equations_of_many_messages():
    model = MessageModel(rotating(3, 1, 4), 0.8, 2.0, 0.4)
    covariance = np.array([[0.5, 0.1, 0.0], [0.1, 0.3, 0.0], [0.0, 0.0, 0.0]])
    center = np.array([0.1, 0.2, 0.3])
    received = stream(3).standard_normal((6, 4, 3))
    noise = [0.16 * np.eye(3) + 2.0 * V @ V.T for V in model.directions]
    joint = 0.64 * np.tile(covariance, (4, 4))
    for t in range(4):
        joint[3 * t : 3 * t + 3, 3 * t : 3 * t + 3] += noise[t]
    gain = 0.8 * np.tile(covariance, (1, 4)) @ np.linalg.inv(joint)
    wanted = center + (received - 0.8 * center).reshape(6, 12) @ gain.T
    found = linear_posterior_mean(received, model, center, covariance)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    np.testing.assert_allclose(found[:, 2], 0.3, rtol=1e-12)
    error = np.trace(covariance - gain @ (0.8 * np.tile(covariance, (4, 1))))
    assert linear_posterior_error(model, covariance).total == pytest.approx(error)


def test_linear_posterior_mean_of_many_messages_errs_as_predicted_and_not_less_than_the_floor():
    model = MessageModel(rotating(4, 1, 6), 0.8, 3.0, 1.0)
    samples = 0.5 * stream(4, "samples").standard_normal((20_000, 4))
    received, _ = draw(samples, model, 2.0, stream(5))
    error = linear_posterior_mean(received, model, np.zeros(4), 0.25) - samples
    assert_errors(error, model.directions, linear_posterior_error(model, 0.25))
    assert deviations((error**2).sum(axis=1), bayesian_floor(model, 0.25).total) > -ALARM


def test_projection_to_the_ball_never_moves_an_estimate_away_from_a_sample_within():
    samples = onto_ball(stream(6).standard_normal((2000, 3)), 1.0)
    estimates = samples + stream(7).standard_normal((2000, 3))
    nearer = onto_ball(estimates, 1.0)
    assert np.linalg.norm(nearer, axis=1).max() <= 1.0 + 1e-12
    assert np.all(
        np.linalg.norm(nearer - samples, axis=1) <= np.linalg.norm(estimates - samples, axis=1) + 1e-12
    )
    inside = np.linalg.norm(estimates, axis=1) <= 1.0
    np.testing.assert_array_equal(nearer[inside], estimates[inside])
    assert onto_ball(np.zeros((1, 2)), 1.0).tolist() == [[0.0, 0.0]]


def test_squared_errors_are_parted_by_the_directions_of_each_message():
    directions = np.eye(3)[:, :, None][[0, 1]]
    errors = np.array([[3.0, 0.0, 0.0], [0.0, 2.0, 1.0]])
    result = squared_errors(np.zeros((2, 3)), errors, directions)
    assert (result.total.mean, result.along.mean, result.across.mean) == (7.0, 3.25, 3.75)
    assert result.total.low < 7.0 < result.total.high
    alone = squared_errors(np.zeros((1, 3)), errors[:1], directions)
    assert (alone.total.mean, alone.total.low, alone.total.high) == (9.0, 0.0, math.inf)


def test_intervals_of_squared_errors_cover_at_their_level():
    # 90 % intervals of 400 repeats, mean of 60 clients' chi-squares with 3 degrees of freedom. Coverage is a little
    # less than nominal for skewed errors; outside of 330..386 happens for below 0.1 % of seeds at 88 to 91 %.
    covered = 0
    for seed in range(400):
        errors = stream(seed, "errors").standard_normal((60, 3))
        found = squared_errors(np.zeros((60, 3)), errors, unit_directions(3, 1), 0.9).total
        covered += found.low <= 3.0 <= found.high
    assert 330 <= covered <= 386


PLAIN = MessageModel(unit_directions(2, 1), 1.0, 1.0, 1.0)
TWICE = MessageModel(unit_directions(2, 1, 2), 1.0, 1.0, 1.0)
ONE = np.zeros((1, 1, 2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: linear_unbiased(np.zeros((3, 2)), 1.0), "messages"),
        (lambda: linear_unbiased(ONE, 0.0), "scale"),
        (lambda: linear_posterior_mean(ONE, TWICE, np.zeros(2), 1.0), "messages"),
        (lambda: linear_posterior_mean(ONE, PLAIN, np.zeros(3), 1.0), "prior mean"),
        (lambda: linear_posterior_mean(ONE, PLAIN, np.zeros(2), -1.0), "prior"),
        (lambda: exact_posterior_mean(np.zeros((1, 2, 2)), TWICE, np.zeros(2), 1.0), "linear_posterior_mean"),
        (lambda: exact_posterior_mean(ONE, PLAIN, np.zeros(2), -1.0), "prior"),
        (lambda: onto_ball(np.zeros((1, 2)), 0.0), "radius"),
        (lambda: squared_errors(np.zeros((1, 2)), np.zeros((2, 2)), PLAIN.directions), "estimates"),
        (lambda: squared_errors(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 3, 1))), "directions"),
        (lambda: squared_errors(np.zeros((1, 2)), np.zeros((1, 2)), PLAIN.directions, 1.0), "confidence"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        call()
    assert str(caught.value).count("\n") == 0
