"""A small public reference, a population over it, and the parties of one estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.divergence.aggregators import Aggregation, CountsAggregator, TrustedAggregator
from sfumato.divergence.messages import Trust
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.protocol import PopulationClient, PopulationServer
from sfumato.divergence.reference import PublicPoints, Reference, draw_points
from sfumato.rng import Streams
from sfumato.secure_aggregation import entropy_of

MASSES = (0.3, 0.25, 0.2, 0.1, 0.08, 0.05, 0.02)
REFERENCE = Reference.from_probabilities(MASSES)
PLAN = EstimatorPlan(Floor("mix", 0.1), 0.5)
STREAMS = Streams(11)
POINTS = draw_points(REFERENCE, 10, STREAMS.stream("points"))
ENTROPY = entropy_of(STREAMS.stream("keys"))


def population(sizes: Sequence[int]) -> list[NDArray[np.uint8]]:
    """Codes of clients of these sizes, of a population that is not the reference."""
    generator = np.random.default_rng(5)
    law = [0.1, 0.25, 0.3, 0.0, 0.2, 0.1, 0.05]
    return [generator.choice(7, size=size, p=law).astype(np.uint8) for size in sizes]


@dataclass
class Parties:
    """All parties of one estimate, and the codes that the clients hold."""

    server: PopulationServer
    clients: list[PopulationClient]
    aggregator: Aggregation
    codes: list[NDArray[np.uint8]]


def parties(
    trust: Trust = "trusted_aggregator",
    sizes: Sequence[int] = (40, 60, 50, 30, 70, 50, 20, 80, 60, 40),
    epsilon: float = 1.0,
    points: PublicPoints = POINTS,
    noise: str = "noise",
) -> Parties:
    """Parties with seeded streams; client i's noise is the stream (noise, i), the aggregator's (noise, "aggregator")."""
    codes = population(sizes)
    server = PopulationServer(REFERENCE, points, PLAN, epsilon, 1e-5, ENTROPY, trust)
    clients = [
        PopulationClient(identity, own, REFERENCE, ENTROPY, STREAMS.stream(noise, identity))
        for identity, own in enumerate(codes)
    ]
    aggregator = (
        CountsAggregator(server.announcement(), REFERENCE, ENTROPY)
        if trust == "distributed"
        else TrustedAggregator(server.announcement(), REFERENCE, ENTROPY, STREAMS.stream(noise, "aggregator"))
    )
    return Parties(server, clients, aggregator, codes)
