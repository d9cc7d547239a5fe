"""A small world in which two groups of the uploads tell the position and a third is costly to noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.radiomap.partition import Partition, partition_of
from sfumato.radiomap.proxy import ProxyAttacker, proxy_attacker


@dataclass(frozen=True, eq=False)
class World:
    """Uploads with their positions, and the attacker that is to be misled."""

    partition: Partition
    uploads: np.ndarray
    positions: np.ndarray
    maps: np.ndarray
    clip_norm: float
    costs: np.ndarray

    @property
    def proxy(self) -> ProxyAttacker:
        """The closed-form attacker on these uploads."""
        return proxy_attacker(self.uploads, self.positions, self.maps, self.partition)

    def variances(self, nu: float, shares: np.ndarray) -> np.ndarray:
        """(G,) of noise of energy (nu C)^2 with these shares."""
        return shares * (nu * self.clip_norm) ** 2 / self.partition.sizes

    @property
    def even(self) -> np.ndarray:
        """Shares of uniform noise."""
        return self.partition.sizes / self.partition.dimension


def world(count: int = 60, seed: int = 0) -> World:
    """Positions on 250 m; ``leak`` and ``weak`` move with them, ``task`` and ``rest`` do not."""
    random = np.random.default_rng(seed)
    positions = random.uniform(0, 250, (count, 2))
    standard = (positions - 125.0) / 72.0
    uploads = 0.05 * random.normal(size=(count, 200))
    uploads[:, :10] += 0.15 * standard @ random.normal(size=(2, 10))
    uploads[:, 10:60] += 0.02 * standard @ random.normal(size=(2, 50))
    groups = {"leak": np.arange(10), "weak": np.arange(10, 60), "task": np.arange(60, 80)}
    clip_norm = float(np.median(np.linalg.norm(uploads, axis=1)))
    costs = np.array([1.0, 1.0, 8.0, 0.5])
    return World(partition_of(200, groups), uploads, positions, np.arange(count) % 6, clip_norm, costs)
