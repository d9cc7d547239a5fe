"""The real protocol among some clients of a population, and what its messages weigh.

>>> import numpy as np
>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import Reference
>>> values = np.repeat(np.arange(3), [300, 300, 400]).astype(np.int32)
>>> pair = Pair.of("example", Reference.from_probabilities([0.5, 0.3, 0.2]), values, np.arange(1000) // 50)
>>> found = weigh("trusted_aggregator", pair, Setting(Floor("mix", 0.1)), 1.0, Streams(0), 10)
>>> found.clients, found.counts_message < 1024
(10, True)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.divergence.comparisons import Pair
from sfumato.divergence.experiment import Setting
from sfumato.divergence.messages import Trust
from sfumato.divergence.plan import EstimatorPlan
from sfumato.divergence.protocol import (
    CountsAggregator,
    PopulationClient,
    PopulationServer,
    TrustedAggregator,
    run_protocol,
)
from sfumato.divergence.reference import draw_points
from sfumato.rng import Streams
from sfumato.secure_aggregation.aggregate import entropy_of


@dataclass(frozen=True)
class Payload:
    """Bytes of one estimate by the protocol.

    Attributes:
        clients: how many took part.
        points: m, how many points were drawn.
        counts_message: of the largest message that carries a client's counts.
        sent: of everything that a client sends, the most of any client.
        received: of everything that it is sent.
        raw: the estimate that came out, in nats.
    """

    clients: int
    points: int
    counts_message: int
    sent: int
    received: int
    raw: float


def weigh(
    trust: Trust, pair: Pair, setting: Setting, epsilon: float, streams: Streams, clients: int
) -> Payload:
    """Run the protocol once, keys, shares and masks included, with seeded keys that protect nothing.

    Args:
        trust: who is trusted.
        pair: whose first clients take part, with all of their samples.
        setting: the public numbers.
        epsilon: of the release.
        streams: of points, keys and noise.
        clients: at most how many.

    Raises:
        SfumatoError: if there are fewer clients than the aggregation needs.
    """
    count = min(clients, pair.client_count)
    points = draw_points(pair.reference, setting.points, streams.stream("points", "protocol"))
    plan = EstimatorPlan(setting.floor, setting.coefficient or 0.0)
    server = PopulationServer(
        pair.reference,
        points,
        plan,
        epsilon,
        setting.delta,
        entropy_of(streams.stream("keys", "server")),
        trust,
        setting.confidence,
        setting.corrupted_share,
    )
    parties = [
        PopulationClient(
            number,
            pair.values[pair.clients == number],
            pair.reference,
            entropy_of(streams.stream("keys", number)),
            streams.stream("noise", "client", number),
        )
        for number in range(count)
    ]
    entropy = entropy_of(streams.stream("keys", "aggregator"))
    announced = server.announcement()
    aggregator = (
        TrustedAggregator(announced, pair.reference, entropy, streams.stream("noise", "aggregator"))
        if trust == "trusted_aggregator"
        else CountsAggregator(announced, pair.reference, entropy)
    )
    done = run_protocol(server, parties, aggregator)
    sent = np.sum(list(done.traffic.uploaded.values()), axis=0)
    received = np.sum(list(done.traffic.downloaded.values()), axis=0)
    return Payload(
        count,
        setting.points,
        done.traffic.masked_input,
        int(sent.max()),
        int(received.max()),
        done.estimate.raw,
    )
