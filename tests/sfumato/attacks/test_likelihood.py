from __future__ import annotations

import numpy as np
import pytest

from sfumato.attacks import likelihood
from sfumato.attacks.likelihood import maximum_likelihood
from sfumato.attacks.message_model import MessageModel, log_likelihood, unit_directions
from sfumato.attacks.phase_noise import noise_moments, noise_shape
from sfumato.attacks.reconstruction import linear_unbiased, linear_unbiased_error, squared_errors
from sfumato.attacks.reconstruction_floor import reconstruction_floor
from sfumato.errors import SfumatoError
from tests.cases import quick_ones
from tests.sfumato.attacks.modulated_messages import draw, rotating, stream


def case(features, count, rounds, amplitude, clients=300, stay=False, seed=0):
    """A model, samples and messages; sigma is 0.7 and s is 0.8."""
    directions = unit_directions(features, count, rounds) if stay else rotating(features, count, rounds, seed)
    model = MessageModel(directions, 0.8, 0.7 * amplitude, 0.7)
    samples = 0.3 * stream(seed, "samples").standard_normal((clients, features))
    return model, samples, draw(samples, model, 2.0, stream(seed))[0]


def test_without_modulation_it_is_the_mean_of_the_messages():
    model, _, received = case(4, 2, 3, 0.0)
    fit = maximum_likelihood(received, model)
    np.testing.assert_allclose(fit.estimates, linear_unbiased(received, 0.8), atol=1e-9)
    assert fit.concave
    assert fit.converged.all()


@pytest.mark.parametrize(
    "shape",
    [
        (5, 1, 8, 1.0, False),
        (5, 2, 8, 6.0, False),
        (3, 1, 1, 6.0, True),
        (4, 2, 3, 6.0, True),
        (3, 2, 2, 20.0, False),
    ],
)
def test_estimates_are_maxima_at_least_as_likely_as_the_linear_start_and_as_the_truth(shape):
    *sizes, stay = shape
    model, samples, received = case(*sizes, stay=stay)
    fit = maximum_likelihood(received, model)
    assert fit.converged.all()
    np.testing.assert_allclose(
        fit.log_likelihoods, log_likelihood(received, fit.estimates, model), rtol=1e-12
    )
    assert np.all(
        fit.log_likelihoods >= log_likelihood(received, linear_unbiased(received, 0.8), model) - 1e-8
    )
    assert np.all(fit.log_likelihoods >= log_likelihood(received, samples, model) - 1e-8)
    for step in (1e-3, -1e-3, 0.05, -0.05):
        for axis in np.eye(model.features):
            assert np.all(
                fit.log_likelihoods >= log_likelihood(received, fit.estimates + step * axis, model) - 1e-8
            )


@pytest.mark.parametrize(
    ("rounds", "amplitude"),
    quick_ones(
        [(1, 2), (1, 8), (2, 3), (2, 20), (3, 10), (5, 3), (5, 10), (20, 3), (20, 10)],
        {(1, 8), (2, 20), (5, 10)},
    ),
)
def test_the_highest_of_several_peaks_is_found(rounds, amplitude):
    model, _, received = case(2, 1, rounds, float(amplitude), stay=True)
    fit = maximum_likelihood(received, model)
    along = received[:, :, 0] / 0.7
    grid = np.arange(-amplitude - 5.0, amplitude + 5.0, 0.02)
    heights = [noise_moments(along - place, amplitude, 1.0).log_density.sum(axis=1) for place in grid]
    found = noise_moments(along - fit.estimates[:, :1] * 0.8 / 0.7, amplitude, 1.0).log_density.sum(axis=1)
    # A search by several starts: it may miss one client in a hundred, and the seeds are fixed.
    assert np.mean(found < np.max(heights, axis=0) - 1e-9) <= 0.01
    assert not fit.concave


def test_of_one_message_and_a_wide_cosine_there_are_two_equal_peaks_and_one_is_returned():
    model, _, received = case(3, 1, 1, 10.0, stay=True)
    fit = maximum_likelihood(received, model)
    distance = np.abs(received[:, 0, 0] - 0.8 * fit.estimates[:, 0])
    np.testing.assert_allclose(distance, noise_shape(7.0, 0.7)[0], atol=0.7 / 16)
    np.testing.assert_allclose(fit.estimates[:, 1:], received[:, 0, 1:] / 0.8, atol=1e-9)


def test_concavity_is_claimed_only_where_every_hessian_is_negative():
    # By second differences at random places, along the axes and along other lines.
    for amplitude, rounds, stay, concave in (
        (1.0, 1, True, True),
        (6.0, 1, True, False),
        (6.0, 6, False, True),
    ):
        model, _, received = case(3, 1, rounds, amplitude, clients=50, stay=stay)
        assert maximum_likelihood(received, model).concave is concave
        places = 3.0 * stream(1).standard_normal((50, 3))
        worst = -np.inf
        for axis in [*np.eye(3), *rotating(3, 3, 1)[0].T]:
            middle = log_likelihood(received, places, model)
            sides = log_likelihood(received, places + 0.05 * axis, model) + log_likelihood(
                received, places - 0.05 * axis, model
            )
            worst = max(worst, float(np.max(sides - 2 * middle)))
        assert (worst <= 0) is concave


@pytest.mark.parametrize(("amplitude", "stay"), [(1.0, False), (8.0, False), (8.0, True)])
def test_with_many_messages_the_error_is_the_floors(amplitude, stay):
    # The mean over 400 clients of a squared error with 4 parts has a relative standard error of at most 5 %: 20 %
    # off by chance is a false alarm of below 1e-4. The unbiased linear attacker errs more than this from a = 2 sigma on.
    model, samples, received = case(4, 1, 120, amplitude, clients=400, stay=stay)
    fit = maximum_likelihood(received, model)
    error = squared_errors(samples, fit.estimates, model.directions)
    floor = reconstruction_floor(model)
    assert error.total.mean == pytest.approx(floor.total, rel=0.2)
    assert error.along.mean == pytest.approx(floor.along, rel=0.3)
    if amplitude > 2:
        assert error.total.mean < 0.6 * linear_unbiased_error(model).total


def test_estimates_follow_a_change_of_units_and_of_coordinates():
    model, _, received = case(4, 1, 8, 6.0, clients=40)
    fit = maximum_likelihood(received, model).estimates
    turn = rotating(4, 4, 1, seed=9)[0]
    directions = np.einsum("ij,tjm->tim", turn, model.directions)
    other = MessageModel(directions, 0.8, model.amplitude * 1e3, model.sigma * 1e3)
    turned = maximum_likelihood(1e3 * received @ turn.T, other).estimates
    np.testing.assert_allclose(turned, 1e3 * fit @ turn.T, atol=1e-2)


def test_steps_that_lead_down_are_replaced_by_ones_that_lead_up(monkeypatch):
    model, _, received = case(4, 1, 8, 2.0, clients=40)
    wanted = maximum_likelihood(received, model)
    newton = likelihood._newton_steps
    monkeypatch.setattr(likelihood, "_newton_steps", lambda *of: 4.0 * newton(*of))
    found = maximum_likelihood(received, model)
    assert found.converged.all()
    np.testing.assert_allclose(found.estimates, wanted.estimates, atol=1e-5)


def test_a_climb_that_is_cut_short_is_not_called_converged(monkeypatch):
    model, _, received = case(4, 1, 8, 6.0, clients=40)
    monkeypatch.setattr(likelihood, "_STEPS", 1)
    assert not maximum_likelihood(received, model).converged.any()


def test_messages_are_left_as_they_were():
    model, _, received = case(4, 1, 8, 6.0, clients=40)
    before = received.copy()
    maximum_likelihood(received, model)
    np.testing.assert_array_equal(received, before)


def test_messages_of_another_shape_are_refused():
    model, _, received = case(4, 1, 8, 6.0, clients=3)
    with pytest.raises(SfumatoError, match="messages"):
        maximum_likelihood(received[:, :7], model)
