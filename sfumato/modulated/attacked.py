"""What an attacker gets from real messages: reconstructions beside their floors, and an audit of the mechanism.

>>> from sfumato.modulated.plan import Domain, ModulatedPlan, Modulation
>>> plan = ModulatedPlan(Domain(3, 1.0), Modulation(amplitude=0.5), labels="private")
>>> x = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 3))
>>> found = reconstruct(x, x.sum(axis=1) / 2, plan.calibrate(5.0, 1e-5), Streams(0))
>>> sorted(found), found["linear_unbiased"].floor < found["linear_unbiased"].errors.total.high
(['exact_posterior_mean', 'linear_posterior_mean', 'linear_unbiased', 'maximum_likelihood'], True)

Everything is a simulation by the holder of the data. The prior of the attackers who have one is Gaussian with the
attacked clients' own mean and spread: more than an attacker would know. With private labels an attacker rebuilds the
label too, and the audit tells samples apart by features and label together. Features are rebuilt from the features'
part of a message alone: no attacker here is told how labels and features go together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks import (
    EpsilonBound,
    MeanError,
    MessageModel,
    SquaredErrors,
    audit_local_mechanism,
    bayesian_floor,
    exact_posterior_mean,
    fresh_phase_ratio,
    known_phase_floor,
    linear_posterior_mean,
    linear_unbiased,
    maximum_likelihood,
    opposite_pair,
    reconstruction_floor,
    squared_errors,
)
from sfumato.errors import SfumatoError
from sfumato.modulated.client import messages, orthonormal_directions
from sfumato.modulated.plan import CalibratedModulation
from sfumato.modulated.server import Vector
from sfumato.rng import RandomStream, Streams

Pair = Literal["across", "along"]


@dataclass(frozen=True, eq=False)
class Received:
    """T messages of every client.

    Attributes:
        features: (K, T, n), privatised.
        labels: (K, T), privatised; None with public labels, which the attacker has in the clear.
    """

    features: Vector
    labels: Vector | None


@dataclass(frozen=True)
class LabelReconstruction:
    """One attacker's errors on private labels and what bounds them; in the units of the labels squared.

    Attributes:
        error: mean squared error over the attacked clients, with its interval.
        floor: Cramer-Rao bound of unbiased attackers, sigma_y^2 / T.
        floor_bayes: of attackers who see the labels' part of the messages and know the clients' mean and spread: of
            linear ones whatever the labels' distribution, of all if that is Gaussian.
        prior_error: of guessing the mean.
    """

    error: MeanError
    floor: float
    floor_bayes: float
    prior_error: float

    def to_values(self) -> dict[str, float | bool | str | None]:
        """Leaves of a metrics document."""
        return {
            "label_mse": self.error.mean,
            "label_mse_low": self.error.low,
            "label_mse_high": self.error.high,
            "label_floor": self.floor,
            "label_floor_bayes": self.floor_bayes,
            "label_prior_mse": self.prior_error,
        }


@dataclass(frozen=True)
class Reconstruction:
    """One attacker's errors and what bounds them.

    Attributes:
        errors: mean squared errors over the attacked clients, with intervals.
        floor: Cramer-Rao bound of unbiased attackers who do not know the phases; its parts along and across.
        floor_along: of the error along a message's directions.
        floor_across: of the rest.
        floor_known_phase: of unbiased attackers who see the phases, for one message; infinite where there are none.
        floor_bayes: van Trees' bound under a Gaussian prior of the attacked clients' spread; it would bind everybody
            if samples were Gaussian, and is a reference where they are not.
        prior_error: of guessing the prior's mean.
        unbiased: whether the Cramer-Rao bound binds this attacker.
        features: n.
        directions: m in each message; the error and the floor per direction are ``along / m`` and
            ``across / (n - m)``.
        label: the same attacker's errors on the label; None with public labels.
    """

    errors: SquaredErrors
    floor: float
    floor_along: float
    floor_across: float
    floor_known_phase: float | None
    floor_bayes: float
    prior_error: float
    unbiased: bool
    features: int
    directions: int
    label: LabelReconstruction | None = None

    def to_values(self) -> dict[str, float | bool | str | None]:
        """Leaves of a metrics document."""
        total = self.errors.total
        values: dict[str, float | bool | str | None] = {
            "mse": total.mean,
            "mse_low": total.low,
            "mse_high": total.high,
            "mse_along": self.errors.along.mean,
            "mse_across": self.errors.across.mean,
            "features": self.features,
            "directions": self.directions,
            "floor": self.floor,
            "floor_along": self.floor_along,
            "floor_across": self.floor_across,
            "floor_bayes": self.floor_bayes,
            "prior_mse": self.prior_error,
            "unbiased": self.unbiased,
            "floor_known_phase": self.floor_known_phase,
        }
        for part, count in (("along", self.directions), ("across", self.features - self.directions)):
            for kind in ("mse", "floor"):
                name = f"{kind}_{part}"
                values[f"{name}_per_direction"] = float(values[name] or 0.0) / count if count else None
                if not count:
                    values[f"{name}_per_direction_reason"] = "there is no such direction"
        if self.floor_known_phase is None:
            values["floor_known_phase_reason"] = "there is a closed form for one message only"
        elif math.isinf(self.floor_known_phase):
            values["floor_known_phase"] = None
            values["floor_known_phase_reason"] = (
                "lambda omega is at least 1 - alpha, so no attacker is unbiased"
            )
        return values | (self.label.to_values() if self.label else {})


def model_of(calibrated: CalibratedModulation, directions: Vector) -> MessageModel:
    """What everybody knows of the messages; directions (T, n, m)."""
    modulation = calibrated.plan.modulation
    return MessageModel(directions, modulation.scale, modulation.direction_amplitude, calibrated.noise_std)


def label_model_of(calibrated: CalibratedModulation) -> MessageModel:
    """What everybody knows of the private labels: one number per release, without modulation or shrinkage."""
    rounds = calibrated.plan.releases
    return MessageModel(np.zeros((rounds, 1, 0)), 1.0, 0.0, calibrated.label_noise_std)


def public_directions(calibrated: CalibratedModulation, streams: Streams) -> Vector:
    """The directions of all of a client's releases, (T, n, m)."""
    plan = calibrated.plan
    count = plan.modulation.directions if plan.modulation.amplitude > 0 else 0
    origin = np.zeros(plan.domain.features)
    return np.stack(
        [
            orthonormal_directions(origin, count, streams.stream("directions", number))
            for number in range(plan.releases)
        ]
    )


def received(
    features: NDArray[Any],
    labels: NDArray[Any],
    calibrated: CalibratedModulation,
    directions: Vector,
    streams: Streams,
) -> Received:
    """All releases of every client by the client's own code.

    Args:
        features: (K, n).
        labels: (K,).
        calibrated: the public protocol.
        directions: (T, n, m), as many as the plan has releases.
        streams: the clients' randomness.
    """
    rows, targets = np.asarray(features, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    seen = np.empty((len(rows), len(directions), calibrated.plan.domain.features))
    seen_labels = np.empty(seen.shape[:2])
    for number in range(len(directions)):
        start = 0
        for block in messages(rows, targets, calibrated, directions[number], streams, number):
            end = start + len(block.features)
            seen[start:end, number], seen_labels[start:end, number] = block.features, block.labels
            start = end
    return Received(seen, seen_labels if calibrated.plan.labels == "private" else None)


def reconstruct(
    features: NDArray[Any], labels: NDArray[Any], calibrated: CalibratedModulation, streams: Streams
) -> Mapping[str, Reconstruction]:
    """Attack every client by every attacker, with the floors beside.

    Args:
        features: (K, n) samples within the domain.
        labels: (K,) likewise; attacked where they are private.
        calibrated: a plan with noise; all of a client's releases are attacked together.
        streams: the clients' randomness.

    Raises:
        SfumatoError: if there is no client.
    """
    if not len(features):
        raise SfumatoError("there are no clients to attack; allowed is at least one.")
    directions, rounds = public_directions(calibrated, streams), calibrated.plan.releases
    sent = received(features, labels, calibrated, directions, streams)
    seen, model = sent.features, model_of(calibrated, directions)
    samples = np.asarray(features, dtype=np.float64)
    mean, variance = _mean_and_variance(samples)
    estimates = {
        "linear_unbiased": linear_unbiased(seen, model.scale),
        "linear_posterior_mean": linear_posterior_mean(seen, model, mean, variance),
        "maximum_likelihood": maximum_likelihood(seen, model).estimates,
    }
    if rounds == 1:
        estimates["exact_posterior_mean"] = exact_posterior_mean(seen, model, mean, variance)
    floor, bayes = reconstruction_floor(model), bayesian_floor(model, variance)
    known = known_phase_floor(model, calibrated.plan.modulation.frequency).total if rounds == 1 else None
    found = _label_reconstructions(sent.labels, np.asarray(labels, np.float64), calibrated)
    return {
        name: Reconstruction(
            squared_errors(samples, estimate, directions),
            floor.total,
            floor.along,
            floor.across,
            known,
            bayes.total,
            variance * samples.shape[1],
            name == "linear_unbiased",
            samples.shape[1],
            directions.shape[2],
            found.get(name),
        )
        for name, estimate in estimates.items()
    }


def _mean_and_variance(samples: Vector) -> tuple[Vector, float]:
    """The clients' mean (n,) and their variance per coordinate."""
    mean = samples.mean(axis=0)
    away: Vector = samples - mean
    return mean, float(np.vdot(away, away)) / away.size


def _label_reconstructions(
    seen: Vector | None, labels: Vector, calibrated: CalibratedModulation
) -> Mapping[str, LabelReconstruction]:
    """What each attacker makes of the privatised labels (K, T); nothing where labels are public.

    The noise is Gaussian alone, so the mean of what was seen is the maximum-likelihood estimate too, and the linear
    posterior mean is exact under a Gaussian prior.
    """
    if seen is None:
        return {}
    model, truth, sent = label_model_of(calibrated), labels[:, None], seen[:, :, None]
    mean, variance = _mean_and_variance(truth)
    unbiased = linear_unbiased(sent, model.scale)
    posterior = linear_posterior_mean(sent, model, mean, variance)
    floor, bayes = reconstruction_floor(model).total, bayesian_floor(model, variance).total
    return {
        name: LabelReconstruction(
            squared_errors(truth, estimate, model.directions).total, floor, bayes, variance
        )
        for name, estimate in (
            ("linear_unbiased", unbiased),
            ("maximum_likelihood", unbiased),
            ("linear_posterior_mean", posterior),
            ("exact_posterior_mean", posterior),
        )
    }


def audit_messages(
    calibrated: CalibratedModulation, pair: Pair, runs: int, streams: Streams, confidence: float = 0.95
) -> EpsilonBound:
    """A lower bound of the local mechanism's epsilon from real messages of two samples at opposite ends of the domain.

    With private labels the two labels are at opposite ends too, and the score is the likelihood ratio of features and
    label together: that pair is as far apart as the joint sensitivity says.

    Args:
        calibrated: the protocol with its noise; all of a client's releases are audited together, at its delta.
        pair: ``across`` the directions, where the Gaussian noise alone hides the pair, or ``along`` them.
        runs: series of messages per sample.
        streams: randomness of directions, clients and audit.
        confidence: of the bound.
    """
    plan = calibrated.plan
    directions = public_directions(calibrated, streams)
    model = model_of(calibrated, directions)
    end = plan.domain.label_bound if plan.labels == "private" else 0.0
    # A sample here is features and label, (n + 1,).
    low, high = (
        np.append(sample, label)
        for sample, label in zip(opposite_pair(model, plan.domain.radius, pair), (-end, end), strict=True)
    )
    own = replace(streams)

    def sampler(sample: Vector, times: int, stream: RandomStream) -> Received:
        # Every block of runs gets streams of its own, named by a number that the audit's stream draws.
        seeds = stream.integers(0, 2**62, (1,))
        fresh = replace(own, seed=int(seeds[0])) if own.mode == "simulation" else own
        rows, labels = np.tile(sample[:-1], (times, 1)), np.full(times, sample[-1])
        return received(rows, labels, calibrated, directions, fresh)

    return audit_local_mechanism(
        sampler,
        low,
        high,
        lambda seen: _joint_ratio(seen, low, high, model, calibrated),
        runs=runs,
        delta=calibrated.delta,
        stream=streams.stream("audit", pair),
        confidence=confidence,
    )


def _joint_ratio(
    seen: Received, low: Vector, high: Vector, model: MessageModel, calibrated: CalibratedModulation
) -> Vector:
    """The exact log-likelihood ratio (K,) of two samples, features and label (n + 1,), whose noises are independent."""
    features = fresh_phase_ratio(seen.features, low[:-1], high[:-1], model)
    if seen.labels is None:
        return features
    labels = seen.labels[:, :, None]
    return features + fresh_phase_ratio(labels, low[-1:], high[-1:], label_model_of(calibrated))
