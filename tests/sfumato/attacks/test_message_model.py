from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sfumato.attacks.message_model import (
    MessageModel,
    log_likelihood,
    posterior_covariance,
    prior_covariance,
    unit_directions,
)
from sfumato.errors import SfumatoError
from tests.sfumato.attacks.modulated_messages import draw, rotating, stream


def test_likelihood_without_modulation_is_the_gaussians():
    model = MessageModel(rotating(4, 2, 3), 0.7, 0.0, 1.3)
    messages = stream(0).standard_normal((5, 3, 4))
    sample = np.array([0.5, -0.2, 0.1, 0.9])
    wanted = stats.norm.logpdf(messages, 0.7 * sample, 1.3).sum(axis=(1, 2))
    np.testing.assert_allclose(log_likelihood(messages, sample, model), wanted, rtol=1e-10)


@pytest.mark.parametrize(("amplitude", "frequency"), [(0.8, 1.0), (6.0, 0.0), (6.0, 25.0)])
def test_likelihood_is_the_mean_over_independent_phases_whatever_the_frequency(amplitude, frequency):
    model = MessageModel(rotating(3, 2, 1), 0.7, amplitude, 0.9)
    sample = np.array([0.5, -0.2, 0.1])
    messages, _ = draw(np.tile(sample, (6, 1)), model, frequency, stream(1))
    angles = 2 * np.pi * (np.arange(600) + 0.5) / 600
    first, second = np.meshgrid(angles, angles, indexing="ij")
    directions = model.directions[0]
    centers = 0.7 * sample + amplitude * (
        np.cos(frequency * (sample @ directions[:, 0]) + first)[..., None] * directions[:, 0]
        + np.cos(frequency * (sample @ directions[:, 1]) + second)[..., None] * directions[:, 1]
    )
    density = [
        np.exp(stats.norm.logpdf(message[0], centers, 0.9).sum(axis=-1)).mean() for message in messages
    ]
    np.testing.assert_allclose(log_likelihood(messages, sample, model), np.log(density), rtol=1e-8)


def test_likelihood_of_several_messages_is_the_sum_and_each_client_has_its_own_sample():
    model = MessageModel(rotating(3, 1, 4), 0.7, 2.0, 0.9)
    samples = stream(2).standard_normal((5, 3))
    messages, _ = draw(samples, model, 1.0, stream(3))
    parts = [
        log_likelihood(
            messages[:, t : t + 1], samples, MessageModel(model.directions[t : t + 1], 0.7, 2.0, 0.9)
        )
        for t in range(4)
    ]
    together = log_likelihood(messages, samples, model)
    np.testing.assert_allclose(together, np.sum(parts, axis=0), rtol=1e-12)
    for client in range(5):
        alone = log_likelihood(messages[client : client + 1], samples[client], model)
        assert together[client] == pytest.approx(float(alone[0]), rel=1e-12)


def test_information_is_the_covariance_of_the_score_of_drawn_messages():
    # The score by finite differences of the exact likelihood. 10 entries, each a z-test at 4.5 standard errors:
    # false-alarm rate below 1e-4 by the normal law.
    model = MessageModel(rotating(4, 1, 2), 0.8, 3.0, 0.7)
    sample = np.array([0.4, 0.1, -0.3, 0.2])
    messages, _ = draw(np.tile(sample, (40_000, 1)), model, 2.0, stream(4))
    step = 1e-4
    score = np.stack(
        [
            log_likelihood(messages, sample + step * axis, model)
            - log_likelihood(messages, sample - step * axis, model)
            for axis in np.eye(4)
        ],
        axis=1,
    ) / (2 * step)
    for i in range(4):
        for j in range(i + 1):
            product = score[:, i] * score[:, j]
            error = product.std() / math.sqrt(len(product))
            assert abs(product.mean() - model.information[i, j]) < 4.5 * error


def test_exact_likelihood_informs_at_least_as_much_as_its_first_two_moments():
    for amplitude in (0.0, 0.5, 3.0, 50.0):
        model = MessageModel(rotating(5, 2, 3), 0.8, amplitude, 0.7)
        assert np.linalg.eigvalsh(model.information - model.linear_information)[0] > -1e-9


def test_posterior_covariance_takes_singular_priors():
    information = np.diag([2.0, 3.0])
    np.testing.assert_allclose(
        posterior_covariance(information, np.diag([0.5, 0.25])), np.diag([1 / 4, 1 / 7]), rtol=1e-12
    )
    np.testing.assert_allclose(
        posterior_covariance(information, np.diag([0.5, 0.0])), np.diag([1 / 4, 0.0]), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MessageModel(np.ones((1, 3)), 1.0, 1.0, 1.0), "directions"),
        (lambda: MessageModel(np.ones((1, 2, 3)), 1.0, 1.0, 1.0), "directions"),
        (lambda: MessageModel(np.ones((1, 2, 1)), 1.0, 1.0, 1.0), "orthonormal"),
        (lambda: MessageModel(np.full((1, 2, 1), np.nan), 1.0, 1.0, 1.0), "orthonormal"),
        (lambda: MessageModel(unit_directions(2, 1), 0.0, 1.0, 1.0), "scale"),
        (lambda: MessageModel(unit_directions(2, 1), 1.0, -1.0, 1.0), "amplitude"),
        (lambda: MessageModel(unit_directions(2, 1), 1.0, 1.0, 0.0), "sigma"),
        (lambda: unit_directions(2, 3), "features"),
        (lambda: unit_directions(2, 1, 0), "messages"),
        (lambda: prior_covariance(2, -1.0), "eigenvalue"),
        (lambda: prior_covariance(2, math.nan), "finite"),
        (lambda: prior_covariance(2, np.array([[1.0, 1.0], [0.0, 1.0]])), "symmetric"),
        (lambda: prior_covariance(2, np.eye(3)), "prior variance"),
        (lambda: log_likelihood(np.zeros((1, 2, 2)), np.zeros(2), PLAIN), "messages"),
        (lambda: log_likelihood(np.full((1, 1, 2), np.inf), np.zeros(2), PLAIN), "finite"),
        (lambda: log_likelihood(np.zeros((3, 1, 2)), np.zeros((2, 2)), PLAIN), "samples"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        call()
    assert str(caught.value).count("\n") == 0


PLAIN = MessageModel(unit_directions(2, 1), 1.0, 1.0, 1.0)
