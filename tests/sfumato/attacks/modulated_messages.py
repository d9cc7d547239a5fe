"""The clients of the message model, written out once more, and a test of a mean."""

from __future__ import annotations

import math

import numpy as np

from sfumato.attacks.message_model import MessageModel
from sfumato.rng import Streams


def stream(seed: int, name: str = "attack"):
    return Streams(seed).stream(name)


def rotating(features: int, count: int, rounds: int, seed: int = 0):
    """Other random orthonormal directions in every round."""
    draws = stream(seed, "directions").standard_normal((rounds, features, count))
    return np.stack([np.linalg.qr(matrix)[0] for matrix in draws])


def draw(samples, model: MessageModel, frequency: float, random, phases=None):
    """Messages (K, T, n) and the phases (K, T, m) they were made with: fresh ones, unless some are given."""
    shape = (len(samples), model.rounds, model.count)
    if phases is None:
        phases = 2 * np.pi * random.random(shape)
    messages = model.sigma * random.standard_normal((*shape[:2], model.features))
    for t in range(model.rounds):
        for k in range(model.count):
            direction = model.directions[t, :, k]
            angle = frequency * (samples @ direction) + np.broadcast_to(phases, shape)[:, t, k]
            messages[:, t] += model.amplitude * np.cos(angle)[:, None] * direction
        messages[:, t] += model.scale * samples
    return messages, phases


def deviations(values, expected: float) -> float:
    """How many standard errors the mean of independent values is above the expected one."""
    return (float(np.mean(values)) - expected) / (float(np.std(values, ddof=1)) / math.sqrt(len(values)))
