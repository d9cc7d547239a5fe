"""Small populations that several tests share."""

from __future__ import annotations

import numpy as np

from sfumato.datasets.generated_population import generate_population, zipf_law
from sfumato.datasets.population import Population, joined
from sfumato.divergence.comparisons import Pair
from sfumato.divergence.experiment import Setting
from sfumato.divergence.plan import Floor
from sfumato.divergence.reference import Reference
from sfumato.rng import Streams

REFERENCE = Reference.from_probabilities([0.4, 0.3, 0.2, 0.1])
SETTING = Setting(Floor("mix", 0.1), batches=5, points=8)


def pair(counts: tuple[int, ...] = (300, 300, 250, 150), clients: int = 100, name: str = "example") -> Pair:
    """A population with these counts, dealt to clients in turn."""
    values = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    values = values[np.random.default_rng(0).permutation(len(values))]
    return Pair.of(name, REFERENCE, values, np.arange(len(values)) % clients)


def population() -> Population:
    """Two series of a generated law, the second one drifted."""
    law, streams = zipf_law(64, drift=0.5), Streams(0)
    parts = [
        generate_population(law, 60, 40, streams.stream("staff"), current=False, series=0),
        generate_population(law, 60, 40, streams.stream("students"), series=4, first_client=60),
    ]
    return joined(parts)
