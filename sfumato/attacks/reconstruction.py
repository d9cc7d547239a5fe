"""Attackers who reconstruct a client's sample from its messages, all clients at once.

>>> model = MessageModel(unit_directions(features=2, count=1, rounds=2), scale=0.5, amplitude=1.0, sigma=0.5)
>>> received = np.array([[[0.9, 0.1], [-0.7, 0.3]]])
>>> linear_unbiased(received, scale=0.5).round(3).tolist()
[[0.2, 0.4]]
>>> linear_posterior_mean(received, model, prior_mean=np.zeros(2), prior_variance=0.1).round(3).tolist()
[[0.013, 0.067]]

``linear_unbiased`` knows the scale alone. ``linear_posterior_mean`` is the best linear attacker with a prior, for any
number of messages; ``exact_posterior_mean`` the best of all, for one message and an isotropic Gaussian prior.
``maximum_likelihood`` (likelihood.py) needs no prior. Every error is measured by ``squared_errors``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from sfumato.attacks.message_model import (
    MessageModel,
    check_scale,
    posterior_covariance,
    prior_covariance,
    unit_directions,
)
from sfumato.attacks.phase_noise import noise_moments
from sfumato.attacks.reconstruction_floor import SquaredError, split_error
from sfumato.attacks.roc import FloatArray, check_fraction
from sfumato.errors import SfumatoError

special = cast(Any, _special)

__all__ = [
    "MeanError",
    "MessageModel",
    "SquaredErrors",
    "exact_posterior_mean",
    "linear_posterior_error",
    "linear_posterior_mean",
    "linear_unbiased",
    "linear_unbiased_error",
    "onto_ball",
    "squared_errors",
    "unit_directions",
]


@dataclass(frozen=True)
class MeanError:
    """A mean over clients and its confidence interval.

    Attributes:
        mean: of the squared errors.
        low: lower end, at least 0.
        high: upper end; ``math.inf`` for a single client.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class SquaredErrors:
    """Measured squared errors of an attacker, in the units of the samples squared.

    Attributes:
        total: of the whole sample.
        along: of its projection to the modulated directions of a message, averaged over the messages.
        across: of the rest.
        clients: how many were averaged.
        confidence: two-sided level of each interval.
    """

    total: MeanError
    along: MeanError
    across: MeanError
    clients: int
    confidence: float


def linear_unbiased(messages: FloatArray, scale: float) -> FloatArray:
    """The mean of the messages over the scale: unbiased whatever the noise, as long as that has mean zero.

    Args:
        messages: (K, T, n).
        scale: s = 1 - alpha, above 0.

    Returns:
        Estimates, float64 (K, n).

    Raises:
        SfumatoError: if the messages are not three-dimensional with at least one each, or the scale is not above 0.
    """
    check_scale(scale)
    if messages.ndim != 3 or not messages.size:
        raise SfumatoError(f"messages has shape {messages.shape}; allowed is (clients, messages, features).")
    return np.asarray(messages, dtype=np.float64).mean(axis=1) / scale


def linear_unbiased_error(model: MessageModel) -> SquaredError:
    """The expected error of ``linear_unbiased``: [(n - m) sigma^2 + m (sigma^2 + a^2 / 2)] / (s^2 T) in all."""
    outer = model.amplitude**2 / 2.0 * model.modulated / model.rounds
    covariance = (model.sigma**2 * np.eye(model.features) + outer) / (model.rounds * model.scale**2)
    return split_error(covariance, model.directions)


def _residuals(
    messages: FloatArray, model: MessageModel, prior_mean: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(prior mean (n,), messages less what it predicts (K, T, n))."""
    center = np.asarray(prior_mean, dtype=np.float64)
    if center.shape != (model.features,) or not np.all(np.isfinite(center)):
        raise SfumatoError(
            f"prior mean has shape {center.shape}; allowed are {model.features} finite numbers."
        )
    return center, model.check_messages(messages) - model.scale * center


def linear_posterior_mean(
    messages: FloatArray, model: MessageModel, prior_mean: FloatArray, prior_variance: float | FloatArray
) -> FloatArray:
    """The best linear estimate under a prior with that mean and covariance, for any number of messages.

    It takes the cosines for Gaussian noise of their variance a^2 / 2. So it is not the posterior mean unless a = 0;
    no linear estimate has a smaller expected squared error, whatever the shape of the prior.

    Args:
        messages: (K, T, n).
        model: the public protocol.
        prior_mean: mu, (n,).
        prior_variance: tau^2, or a covariance (n, n).

    Returns:
        Estimates, float64 (K, n).

    Raises:
        SfumatoError: if a shape does not fit or a number is outside of what is allowed.
    """
    center, rest = _residuals(messages, model, prior_mean)
    covariance = posterior_covariance(
        model.linear_information, prior_covariance(model.features, prior_variance)
    )
    # s sum_t Omega_t^-1 rest_t with Omega_t^-1 = [I - a^2 / (2 sigma^2 + a^2) V_t V_t^T] / sigma^2.
    along = np.einsum("ktn,tnm->ktm", rest, model.directions)
    share = model.amplitude**2 / (2.0 * model.sigma**2 + model.amplitude**2)
    weighted = rest.sum(axis=1) - share * np.einsum("ktm,tnm->kn", along, model.directions)
    return center + (model.scale / model.sigma**2) * weighted @ covariance.T


def linear_posterior_error(model: MessageModel, prior_variance: float | FloatArray) -> SquaredError:
    """The expected error of ``linear_posterior_mean`` over samples from the prior.

    Raises:
        SfumatoError: if the variance is not one.
    """
    covariance = prior_covariance(model.features, prior_variance)
    return split_error(posterior_covariance(model.linear_information, covariance), model.directions)


def exact_posterior_mean(
    messages: FloatArray, model: MessageModel, prior_mean: FloatArray, prior_variance: float
) -> FloatArray:
    """The posterior mean given one message and the prior N(mu, tau^2 I), exact: no attacker has a smaller error.

    Under the prior the message less s mu is N(0, S^2) across the directions and a cos(U) + N(0, S^2) along each, with
    S^2 = s^2 tau^2 + sigma^2, all independent, and E[x | g] = mu - s tau^2 (log f)' (Tweedie's formula). The density
    f is integrated over the phase numerically, to about 1e-9.

    Args:
        messages: (K, 1, n).
        model: the public protocol, of one message.
        prior_mean: mu, (n,).
        prior_variance: tau^2, at least 0.

    Returns:
        Estimates, float64 (K, n); their expected error is ``reconstruction_floor.least_bayes_error``.

    Raises:
        SfumatoError: if there are several messages, a shape does not fit or a number is outside of what is allowed.
    """
    if model.rounds != 1:
        raise SfumatoError(
            f"there are {model.rounds} messages; allowed is 1, for more take linear_posterior_mean."
        )
    center, rest = _residuals(messages, model, prior_mean)
    variance = float(prior_covariance(1, prior_variance)[0, 0])
    spread = math.hypot(model.scale * math.sqrt(variance), model.sigma)
    directions = model.directions[0]
    along = rest[:, 0] @ directions
    score = noise_moments(along, model.amplitude, spread).score
    # Of noise without a cosine the score is -rest / S^2; along the directions it is put right.
    scores = -rest[:, 0] / spread**2 + (score + along / spread**2) @ directions.T
    return center - model.scale * variance * scores


def onto_ball(estimates: FloatArray, radius: float) -> FloatArray:
    """The nearest points of the ball that every sample lies in, (K, n): never farther from the sample than before.

    Args:
        estimates: (K, n).
        radius: R, the public bound of a sample's norm, above 0.

    Raises:
        SfumatoError: if the radius is not above 0.
    """
    if not radius > 0.0:
        raise SfumatoError(f"radius is {radius!r}; allowed is a number above 0.")
    norms = np.linalg.norm(estimates, axis=1, keepdims=True)
    return estimates * (radius / np.maximum(norms, radius))


def _mean_error(values: FloatArray, confidence: float) -> MeanError:
    mean = float(values.mean())
    if len(values) < 2:
        return MeanError(mean, 0.0, math.inf)
    quantile = float(special.stdtrit(len(values) - 1, (1.0 + confidence) / 2.0))
    margin = quantile * float(values.std(ddof=1)) / math.sqrt(len(values))
    return MeanError(mean, max(0.0, mean - margin), mean + margin)


def squared_errors(
    samples: FloatArray, estimates: FloatArray, directions: FloatArray, confidence: float = 0.95
) -> SquaredErrors:
    """Mean squared errors over clients: total, along the modulated directions and across them.

    The intervals are Student's, for clients whose errors are independent; right for many clients, approximate for few.

    Args:
        samples: the true ones, (K, n).
        estimates: the attacker's, (K, n).
        directions: V, (T, n, m).
        confidence: two-sided level of each interval, in (0, 1).

    Raises:
        SfumatoError: if shapes do not fit, there is no client or the level is out of its range.
    """
    check_fraction("confidence", confidence)
    if samples.ndim != 2 or samples.shape != estimates.shape or not len(samples):
        raise SfumatoError(
            f"samples has shape {samples.shape} and estimates {estimates.shape}; allowed is (clients, features) for both."
        )
    if directions.ndim != 3 or directions.shape[1] != samples.shape[1]:
        raise SfumatoError(
            f"directions has shape {directions.shape}; allowed is (messages, {samples.shape[1]}, directions)."
        )
    error = np.asarray(estimates, dtype=np.float64) - samples
    total = np.einsum("kn,kn->k", error, error)
    projected = np.tensordot(error, directions, axes=(1, 1))
    along = np.einsum("ktm,ktm->k", projected, projected) / len(directions)
    parts = [_mean_error(values, confidence) for values in (total, along, total - along)]
    return SquaredErrors(parts[0], parts[1], parts[2], len(samples), confidence)
