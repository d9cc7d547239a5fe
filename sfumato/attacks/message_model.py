"""What an attacker knows about a client's messages: the public protocol as numbers, and the exact likelihood.

>>> model = MessageModel(unit_directions(features=3, count=1, rounds=2), scale=1.0, amplitude=0.0, sigma=1.0)
>>> log_likelihood(np.zeros((1, 2, 3)), np.zeros(3), model).round(4).tolist()
[-5.5136]
>>> model.information.diagonal().round(6).tolist()
[2.0, 2.0, 2.0]

Message t of a client with sample x is g_t = s x + a sum_k cos(omega <x, v_tk> + phi_tk) v_tk + sigma z_t (Section 1.2 of
docs/papers.md) with s = 1 - alpha, a = lambda / sqrt(m). Its phases are fresh and uniform, so the cosines are
independent of x and of each other, and omega enters no law of this module (Section 1.3 a'): along each v_tk the
message is a location plus a cos(U) + N(0, sigma^2), across them a location plus N(0, sigma^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.attacks.phase_noise import arcsine_gaussian_information, check_noise, noise_moments
from sfumato.attacks.roc import FloatArray
from sfumato.checks import is_number
from sfumato.errors import SfumatoError


@dataclass(frozen=True, eq=False)
class MessageModel:
    """The law of one client's messages, given its sample.

    Attributes:
        directions: V, float64 (T, n, m): T messages, n features, m orthonormal directions in each; m may be 0.
        scale: s = 1 - alpha, above 0.
        amplitude: a = lambda / sqrt(m) per direction, at least 0.
        sigma: standard deviation of the Gaussian noise per coordinate, above 0.

    Raises:
        SfumatoError: if a field is outside of what is allowed or the directions of a message are not orthonormal.
    """

    directions: FloatArray
    scale: float
    amplitude: float
    sigma: float

    def __post_init__(self) -> None:
        """Check the fields."""
        check_noise(self.amplitude, self.sigma)
        check_scale(self.scale)
        shape = self.directions.shape
        if len(shape) != 3 or shape[0] < 1 or not 0 <= shape[2] <= shape[1] or shape[1] < 1:
            raise SfumatoError(
                f"directions has shape {shape}; allowed is (messages, features, directions) with at least one message "
                "and feature and no more directions than features."
            )
        gram = np.einsum("tnk,tnl->tkl", self.directions, self.directions)
        largest = float(np.max(np.abs(gram - np.eye(shape[2])), initial=0.0))
        if not largest < 1e-5:
            raise SfumatoError(
                f"directions are off from orthonormal by {largest:g}; allowed is up to 1e-05 in any product of two."
            )

    @property
    def rounds(self) -> int:
        """T, messages per client."""
        return self.directions.shape[0]

    @property
    def features(self) -> int:
        """n, features of a sample."""
        return self.directions.shape[1]

    @property
    def count(self) -> int:
        """m, directions in each message."""
        return self.directions.shape[2]

    @property
    def modulated(self) -> FloatArray:
        """Sum over messages of V_t V_t^T, float64 (n, n)."""
        return np.einsum("tnk,tlk->nl", self.directions, self.directions)

    @property
    def information(self) -> FloatArray:
        """Fisher information of all messages about the sample, float64 (n, n), the same at every sample.

        s^2 sum_t [(I - V_t V_t^T) / sigma^2 + J V_t V_t^T] (Section 1.3 d).
        """
        return self._weighted(arcsine_gaussian_information(self.amplitude, self.sigma))

    @property
    def linear_information(self) -> FloatArray:
        """s^2 sum_t Omega_t^-1, the inverse covariance of the best linear unbiased estimate, float64 (n, n)."""
        return self._weighted(1.0 / (self.sigma**2 + self.amplitude**2 / 2.0))

    def _weighted(self, along: float) -> FloatArray:
        across = 1.0 / self.sigma**2
        return self.scale**2 * (
            self.rounds * across * np.eye(self.features) - (across - along) * self.modulated
        )

    def check_messages(self, messages: FloatArray) -> FloatArray:
        """The messages as float64 (K, T, n).

        Raises:
            SfumatoError: if their shape does not fit the model or a number is not finite.
        """
        found = np.asarray(messages, dtype=np.float64)
        if found.ndim != 3 or found.shape[1:] != (self.rounds, self.features) or not len(found):
            raise SfumatoError(
                f"messages has shape {found.shape}; allowed is (clients, {self.rounds}, {self.features}), clients >= 1."
            )
        if not np.all(np.isfinite(found)):
            raise SfumatoError("messages hold a number that is not finite; allowed are finite numbers.")
        return found


def check_scale(scale: float) -> None:
    """Refuse a scale that messages cannot be divided by.

    Raises:
        SfumatoError: unless it is a finite number above 0.
    """
    if not is_number(scale) or not 0.0 < scale < math.inf:
        raise SfumatoError(f"scale is {scale!r}; allowed is a finite number above 0.")


def unit_directions(features: int, count: int, rounds: int = 1) -> FloatArray:
    """The first coordinate axes as the directions of every message, float64 (T, n, m).

    For figures that depend on no more than the numbers of features, directions and messages, as long as the
    directions stay the same from message to message.

    Raises:
        SfumatoError: if there are more directions than features, or a number is below its least.
    """
    if features < 1 or rounds < 1 or not 0 <= count <= features:
        raise SfumatoError(
            f"features, directions and messages are {features}, {count} and {rounds}; allowed are at least 1, "
            "0 to the number of features, and at least 1."
        )
    return np.ascontiguousarray(np.broadcast_to(np.eye(features)[:, :count], (rounds, features, count)))


def prior_covariance(features: int, variance: float | FloatArray) -> FloatArray:
    """The covariance of a prior as float64 (n, n), from tau^2 of every feature or from itself.

    Raises:
        SfumatoError: if it is not a finite symmetric matrix of that size without negative eigenvalues.
    """
    found = np.asarray(variance, dtype=np.float64)
    matrix = found * np.eye(features) if found.ndim == 0 else found
    if matrix.shape != (features, features):
        raise SfumatoError(
            f"prior variance has shape {found.shape}; allowed is a number or ({features}, {features})."
        )
    size = float(np.max(np.abs(matrix)))
    if not math.isfinite(size) or not np.allclose(matrix, matrix.T, rtol=0.0, atol=1e-9 * size):
        raise SfumatoError("the prior's covariance is not finite and symmetric; allowed is one that is.")
    least = float(np.linalg.eigvalsh(matrix)[0])
    if least < -1e-9 * size:
        raise SfumatoError(f"the prior's covariance has the eigenvalue {least:g}; allowed are none below 0.")
    return matrix


def posterior_covariance(information: FloatArray, covariance: FloatArray) -> FloatArray:
    """(information + covariance^-1)^-1, float64 (n, n), also where the covariance is singular."""
    inner = np.eye(len(covariance)) + covariance @ information
    return np.asarray(np.linalg.solve(inner, covariance), dtype=np.float64)


def log_likelihood(messages: FloatArray, samples: ArrayLike, model: MessageModel) -> FloatArray:
    """The exact log density of each client's messages if its sample were the given one.

    Args:
        messages: (K, T, n), finite.
        samples: (K, n), or one sample (n,) for all clients.
        model: the public protocol. It has no omega: with phases that are unknown, fresh and uniform, the density
            does not depend on it.

    Returns:
        float64 (K,), natural logarithms.

    Raises:
        SfumatoError: if a shape does not fit or a number is not finite.
    """
    received = model.check_messages(messages)
    sample = np.asarray(samples, dtype=np.float64)
    if sample.shape not in ((model.features,), (len(received), model.features)):
        raise SfumatoError(
            f"samples has shape {sample.shape}; allowed are ({model.features},) and {(len(received), model.features)}."
        )
    noise = received - model.scale * sample.reshape(-1, 1, model.features)
    along = np.einsum("ktn,tnm->ktm", noise, model.directions)
    noise -= np.einsum("ktm,tnm->ktn", along, model.directions)
    variance = model.sigma**2
    constant = -0.5 * model.rounds * (model.features - model.count) * math.log(2.0 * math.pi * variance)
    density = noise_moments(along, model.amplitude, model.sigma).log_density
    return constant - 0.5 * np.einsum("ktn,ktn->k", noise, noise) / variance + density.sum(axis=(1, 2))
