"""How well any attacker can find a client's sample from its messages: Cramer-Rao and Bayes floors.

>>> model = MessageModel(unit_directions(features=4, count=1), scale=1.0, amplitude=2.0, sigma=1.0)
>>> floor = reconstruction_floor(model)
>>> round(floor.across, 3), round(floor.along, 3), round(floor.total, 3)
(3.0, 2.479, 5.479)
>>> round(bayesian_floor(model, prior_variance=0.25).total, 3), round(least_bayes_error(model, 0.25).total, 3)
(0.827, 0.828)

All are bounds of E ||x_hat - x||^2, Section 1.3 d of docs/papers.md. ``reconstruction_floor`` binds attackers that
are unbiased, and no other: who guesses the same point for everybody has a smaller error as soon as the floor passes
the spread of the samples. ``bayesian_floor`` binds everybody, on average over a prior. None is a statement of
differential privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from sfumato.attacks.message_model import (
    MessageModel,
    posterior_covariance,
    prior_covariance,
    unit_directions,
)
from sfumato.attacks.phase_noise import arcsine_gaussian_information
from sfumato.attacks.roc import FloatArray
from sfumato.checks import is_number
from sfumato.errors import SfumatoError

Unbiased = Literal["every_phase", "average_phase"]

__all__ = [
    "MessageModel",
    "SquaredError",
    "Unbiased",
    "bayesian_floor",
    "known_phase_floor",
    "known_phase_floor_at",
    "least_bayes_error",
    "reconstruction_floor",
    "split_error",
    "unit_directions",
]


@dataclass(frozen=True)
class SquaredError:
    """An expected squared error, or a bound of one, in the units of the samples squared.

    Attributes:
        total: of the whole sample.
        along: of its projection to the modulated directions of a message, averaged over the messages.
        across: of the rest, ``total - along``.
    """

    total: float
    along: float
    across: float


def split_error(covariance: FloatArray, directions: FloatArray) -> SquaredError:
    """The trace of an error's covariance, parted by the directions.

    Args:
        covariance: second moment of the error, (n, n).
        directions: V, (T, n, m).
    """
    along = float(np.einsum("tnk,nl,tlk->", directions, covariance, directions)) / len(directions)
    total = float(np.trace(covariance))
    return SquaredError(total, along, total - along)


def _inverse(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def reconstruction_floor(model: MessageModel) -> SquaredError:
    """Cramer-Rao bound for unbiased attackers who do not know the phases, the trace of the inverse information.

    [(n - m) sigma^2 + m / J] / (s^2 T) where the m directions are the same in every message. Where they change, the
    bound is lower: the inverse of an average is below the average of inverses, so that dividing the bound of one
    message by T is then not a lower bound. It does not depend on omega nor on the sample.

    Args:
        model: the public protocol.

    Returns:
        The bound; along and across are bounds of their own.
    """
    return split_error(_inverse(model.information), model.directions)


def _check_frequency(frequency: float) -> None:
    if not is_number(frequency) or not 0.0 <= frequency < math.inf:
        raise SfumatoError(f"frequency is {frequency!r}; allowed is a finite number of at least 0.")


def known_phase_floor(
    model: MessageModel, frequency: float, unbiased: Unbiased = "every_phase"
) -> SquaredError:
    """Cramer-Rao bound for unbiased attackers who see the phases, averaged over uniform phases.

    For one message the bound at the phases psi_k = omega <x, v_k> + phi_k is
    sigma^2 [(n - m) / s^2 + sum_k 1 / (s - a omega sin(psi_k))^2], and the mean of each term of the sum
    s / (s^2 - a^2 omega^2)^(3/2) if a omega < s.

    Args:
        model: the public protocol; of one message for ``every_phase``.
        frequency: omega.
        unbiased: ``every_phase`` binds attackers who are unbiased at each value of the phases. The bound is infinite
            where a omega >= s, as s x + a cos(omega x + phi) then is not one-to-one; that says that there are no such
            attackers, and nothing about the error of others. ``average_phase`` binds those who are unbiased on
            average over the phases: more attackers, a lower bound, from the information
            s^2 + (a omega)^2 / 2 along each direction, at least as much as without the phases.

    Returns:
        The bound; ``math.inf`` where there are no unbiased attackers.

    Raises:
        SfumatoError: if the frequency is out of its range, or ``every_phase`` is asked for several messages, for which
            there is no closed form (average ``known_phase_floor_at`` over phases).
    """
    _check_frequency(frequency)
    if unbiased not in get_args(Unbiased):
        raise SfumatoError(f"unbiased is {unbiased!r}; allowed are {', '.join(get_args(Unbiased))}.")
    steepness, scale, variance = model.amplitude * frequency, model.scale, model.sigma**2
    if unbiased == "average_phase":
        gain = model.rounds * scale**2 * np.eye(model.features) + steepness**2 / 2.0 * model.modulated
        return split_error(variance * _inverse(gain), model.directions)
    if model.rounds != 1:
        raise SfumatoError(
            f"there are {model.rounds} messages; allowed is 1 for attackers who are unbiased at every phase."
        )
    across = variance * (model.features - model.count) / scale**2
    along = 0.0
    if model.count:
        slack = (scale - steepness) * (scale + steepness)
        along = model.count * variance * scale / slack**1.5 if slack > 0.0 else math.inf
    return SquaredError(across + along, along, across)


def known_phase_floor_at(model: MessageModel, frequency: float, phases: FloatArray) -> SquaredError:
    """Cramer-Rao bound at given phases, of attackers who know them and are unbiased at these.

    Args:
        model: the public protocol, of any number of messages.
        frequency: omega.
        phases: (T, m) the cosines' whole arguments psi_tk = omega <x, v_tk> + phi_tk, in radians.

    Returns:
        The bound; ``math.inf`` in all parts where the information is singular.

    Raises:
        SfumatoError: if the frequency is out of its range or the phases' shape does not fit.
    """
    _check_frequency(frequency)
    if phases.shape != (model.rounds, model.count):
        raise SfumatoError(f"phases has shape {phases.shape}; allowed is {(model.rounds, model.count)}.")
    slopes = (model.scale - model.amplitude * frequency * np.sin(phases)) ** 2 - model.scale**2
    gain = model.rounds * model.scale**2 * np.eye(model.features)
    gain = gain + np.einsum("tnk,tk,tlk->nl", model.directions, slopes, model.directions)
    values, vectors = np.linalg.eigh(gain)
    if values[0] <= len(values) * np.finfo(np.float64).eps * values[-1]:
        return SquaredError(math.inf, math.inf, math.inf)
    return split_error(model.sigma**2 * (vectors / values) @ vectors.T, model.directions)


def bayesian_floor(model: MessageModel, prior_variance: float | FloatArray) -> SquaredError:
    """Van Trees' bound of every attacker's error, averaged over samples from a Gaussian prior.

    The trace of (I + Sigma^-1)^-1 with the information I of the messages, which is the same at every sample, and the
    covariance Sigma of the prior. It holds for biased attackers too, and whatever they know of the prior.

    Args:
        model: the public protocol.
        prior_variance: tau^2, or a covariance (n, n).

    Raises:
        SfumatoError: if the variance is not one.
    """
    covariance = prior_covariance(model.features, prior_variance)
    return split_error(posterior_covariance(model.information, covariance), model.directions)


def least_bayes_error(model: MessageModel, prior_variance: float) -> SquaredError:
    """The error of the exact posterior mean, that no attacker goes below, for one message and N(mu, tau^2 I).

    With S^2 = s^2 tau^2 + sigma^2 it is tau^2 sigma^2 / S^2 across each direction, and tau^2 - s^2 tau^4 J(a, S) along
    it: the message itself is a location with noise a cos(U) + N(0, S^2), and the posterior mean a linear function of
    its score (Tweedie's formula).

    Args:
        model: the public protocol, of one message.
        prior_variance: tau^2, at least 0.

    Raises:
        SfumatoError: if there are several messages or the variance is negative.
    """
    if model.rounds != 1:
        raise SfumatoError(f"there are {model.rounds} messages; allowed is 1, for more take bayesian_floor.")
    variance = float(prior_covariance(1, prior_variance)[0, 0])
    spread = math.hypot(model.scale * math.sqrt(variance), model.sigma)
    across = (model.features - model.count) * variance * (model.sigma / spread) ** 2
    information = arcsine_gaussian_information(model.amplitude, spread)
    along = model.count * variance * (1.0 - model.scale**2 * variance * information)
    return SquaredError(along + across, along, across)
