"""Repeated releases of one small population, by the clients' own code, at array speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sfumato.modulated.client import Block, messages
from sfumato.modulated.plan import CalibratedModulation
from sfumato.modulated.server import Moments, collect
from sfumato.rng import Streams


@dataclass(frozen=True, eq=False)
class Population:
    """K samples, and many independent releases of all of them."""

    features: np.ndarray
    labels: np.ndarray

    def releases(
        self, calibrated: CalibratedModulation, directions: np.ndarray, repeats: int, seed: int = 0
    ) -> Iterator[Moments]:
        """The moments of so many releases; the repeats are one long run of the clients' code."""
        clients = len(self.labels)
        x, y = np.tile(self.features, (repeats, 1)), np.tile(self.labels, repeats)
        sent = [
            (b.features.copy(), b.labels.copy())
            for b in messages(x, y, calibrated, directions, Streams(seed))
        ]
        features, labels = (np.concatenate(part) for part in zip(*sent, strict=True))
        for start in range(0, repeats * clients, clients):
            rows = slice(start, start + clients)
            yield collect([Block(features[rows], labels[rows], 0)])


def population(clients: int = 40, size: int = 3, seed: int = 0) -> Population:
    """Samples within the unit ball and labels that are linear but for a little."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (clients, size)) / np.sqrt(size)
    y = 0.1 + x @ np.array([0.6, -0.4, 0.2, 0.1, 0.3][:size]) + 0.05 * random.standard_normal(clients)
    return Population(x, np.clip(y, -1, 1))
