"""What an attacker gets from real messages: reconstructions beside their floors, and an audit of the mechanism.

>>> from sfumato.modulated.plan import Domain, Modulation
>>> plan = ModulatedPlan(Domain(3, 1.0), Modulation(amplitude=0.5))
>>> x = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 3))
>>> found = reconstruct(x, plan.calibrate(5.0, 1e-5), 1, Streams(0))
>>> sorted(found), found["linear_unbiased"].floor < found["linear_unbiased"].errors.total.high
(['exact_posterior_mean', 'linear_posterior_mean', 'linear_unbiased', 'maximum_likelihood'], True)

Everything is a simulation by the holder of the data. The prior of the attackers who have one is Gaussian with the
attacked clients' own mean and spread: more than an attacker would know.
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
from sfumato.modulated.plan import CalibratedModulation, ModulatedPlan
from sfumato.modulated.server import Vector
from sfumato.rng import RandomStream, Streams

Pair = Literal["across", "along"]


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
        return values


def model_of(calibrated: CalibratedModulation, directions: Vector) -> MessageModel:
    """What everybody knows of the messages; directions (T, n, m)."""
    modulation = calibrated.plan.modulation
    return MessageModel(directions, modulation.scale, modulation.direction_amplitude, calibrated.noise_std)


def received(
    features: NDArray[Any], calibrated: CalibratedModulation, rounds: int, streams: Streams
) -> tuple[Vector, Vector]:
    """T messages of every client by the client's own code: (K, T, n), and the directions (T, n, m)."""
    rows: Vector = np.asarray(features, dtype=np.float64)
    size, modulation = calibrated.plan.domain.features, calibrated.plan.modulation
    count = modulation.directions if modulation.amplitude > 0 else 0
    labels = np.zeros(len(rows))
    seen, directions = np.empty((len(rows), rounds, size)), np.empty((rounds, size, count))
    for number in range(rounds):
        directions[number] = orthonormal_directions(
            np.zeros(size), count, streams.stream("directions", number)
        )
        start = 0
        for block in messages(rows, labels, calibrated, directions[number], streams, number):
            seen[start : start + len(block.features), number] = block.features
            start += len(block.features)
    return seen, directions


def reconstruct(
    features: NDArray[Any], calibrated: CalibratedModulation, rounds: int, streams: Streams
) -> Mapping[str, Reconstruction]:
    """Attack every client by every attacker, with the floors beside.

    Args:
        features: (K, n) samples within the domain.
        calibrated: a plan with noise whose releases are ``rounds`` of the same clients.
        rounds: T messages per client.
        streams: the clients' randomness.

    Raises:
        SfumatoError: if there is no client.
    """
    if not len(features):
        raise SfumatoError("there are no clients to attack; allowed is at least one.")
    seen, directions = received(features, calibrated, rounds, streams)
    model = model_of(calibrated, directions)
    samples = np.asarray(features, dtype=np.float64)
    mean = samples.mean(axis=0)
    away: Vector = samples - mean
    variance = float(np.vdot(away, away)) / away.size
    estimates = {
        "linear_unbiased": linear_unbiased(seen, model.scale),
        "linear_posterior_mean": linear_posterior_mean(seen, model, mean, variance),
        "maximum_likelihood": maximum_likelihood(seen, model).estimates,
    }
    if rounds == 1:
        estimates["exact_posterior_mean"] = exact_posterior_mean(seen, model, mean, variance)
    floor, bayes = reconstruction_floor(model), bayesian_floor(model, variance)
    known = known_phase_floor(model, calibrated.plan.modulation.frequency).total if rounds == 1 else None
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
        )
        for name, estimate in estimates.items()
    }


def audit_messages(
    plan: ModulatedPlan,
    epsilon: float,
    delta: float,
    pair: Pair,
    runs: int,
    streams: Streams,
    confidence: float = 0.95,
) -> EpsilonBound:
    """A lower bound of the local mechanism's epsilon from real messages of two samples at opposite ends of the domain.

    Args:
        plan: the protocol; all of a client's releases are audited together.
        epsilon: what it is calibrated to.
        delta: likewise.
        pair: ``across`` the directions, where the Gaussian noise alone hides the pair, or ``along`` them.
        runs: series of messages per sample.
        streams: randomness of directions, clients and audit.
        confidence: of the bound.
    """
    calibrated = plan.calibrate(epsilon, delta)
    size, modulation = plan.domain.features, plan.modulation
    count = modulation.directions if modulation.amplitude > 0 else 0
    directions = np.stack(
        [
            orthonormal_directions(np.zeros(size), count, streams.stream("directions", number))
            for number in range(plan.releases)
        ]
    )
    model = model_of(calibrated, directions)
    low, high = opposite_pair(model, plan.domain.radius, pair)
    own = replace(streams)

    def sampler(sample: Vector, times: int, stream: RandomStream) -> Vector:
        # Every block of runs gets streams of its own, named by a number that the audit's stream draws.
        seeds = stream.integers(0, 2**62, (1,))
        fresh = replace(own, seed=int(seeds[0])) if own.mode == "simulation" else own
        rows, labels = np.tile(sample, (times, 1)), np.zeros(times)
        seen = np.empty((times, plan.releases, size))
        for number in range(plan.releases):
            start = 0
            for block in messages(rows, labels, calibrated, directions[number], fresh, number):
                seen[start : start + len(block.features), number] = block.features
                start += len(block.features)
        return seen

    return audit_local_mechanism(
        sampler,
        low,
        high,
        lambda seen: fresh_phase_ratio(seen, low, high, model),
        runs=runs,
        delta=delta,
        stream=streams.stream("audit", pair),
        confidence=confidence,
    )
