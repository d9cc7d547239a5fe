"""The estimate as a protocol: server, clients and aggregation are separate objects that exchange bytes and nothing else.

>>> import os
>>> from sfumato.divergence.plan import EstimatorPlan, Floor
>>> from sfumato.divergence.reference import Reference, all_points
>>> from sfumato.rng import Streams, SystemStream
>>> reference = Reference.from_probabilities([0.5, 0.3, 0.2])
>>> plan = EstimatorPlan(Floor("mix", 0.1))
>>> server = PopulationServer(reference, all_points(reference), plan, 1.0, 1e-5, os.urandom)
>>> codes = [np.array([0, 1, 2, 2] * 25, np.uint16) for _ in range(5)]
>>> clients = [PopulationClient(i, own, reference, os.urandom, SystemStream()) for i, own in enumerate(codes)]
>>> aggregator = TrustedAggregator(server.announcement(), reference, os.urandom, SystemStream())
>>> done = run_protocol(server, clients, aggregator, silent={4: 2})
>>> done.estimate.examples, done.survivors
(400, (0, 1, 2, 3))

Trust models. ``trusted_aggregator`` is the paper's (docs/papers.md Section 4.1): the aggregator learns the exact sum of
counts, applies Phi and adds the noise; the server sees the noisy value. ``distributed``: each client adds its share of
noise under the aggregation, so that whoever runs it sees noisy counts only.

What is public: the reference, the points, the plan, who takes part, and how many examples each client declares, since
the sensitivity and the ratio need N, the sum over those who stay to the end. A client declares as many as it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.divergence.aggregators import Aggregation, CountsAggregator, TrustedAggregator
from sfumato.divergence.client import Limits, PopulationClient
from sfumato.divergence.distributed import (
    DistributedEstimate,
)
from sfumato.divergence.estimator import Estimate
from sfumato.divergence.server import PopulationServer
from sfumato.errors import SfumatoError
from sfumato.secure_aggregation import Traffic

__all__ = [
    "CountsAggregator",
    "Limits",
    "PopulationClient",
    "PopulationServer",
    "ProtocolRun",
    "TrustedAggregator",
    "run_protocol",
]


@dataclass(frozen=True, eq=False)
class ProtocolRun:
    """A finished estimate and what it took.

    Attributes:
        estimate: what the server knows at the end.
        survivors: whose counts are in it, ascending identities.
        traffic: bytes per client, in the order of ``clients``, and kind of message; beside the secure aggregation's
            kinds there are ``announcement``, ``admission`` and ``enrolment``.
        result_bytes: of the one message to the server.
    """

    estimate: Estimate | DistributedEstimate
    survivors: tuple[int, ...]
    traffic: Traffic
    result_bytes: int


def run_protocol(
    server: PopulationServer,
    clients: Sequence[PopulationClient],
    aggregator: Aggregation,
    silent: Mapping[int, int] | None = None,
) -> ProtocolRun:
    """Carry the messages between all parties in one process, and weigh them.

    Args:
        server: who asks.
        clients: all of them enrol.
        aggregator: made from the server's announcement.
        silent: identity -> the last round of the aggregation that the client completes, from 0 (it enrols and never
            sends keys) to 3; the rounds are 1 keys, 2 shares, 3 masked input, 4 opened shares.

    Raises:
        AggregationAbortedError: if too few clients are left.
        SfumatoError: if two clients share an identity or the parties do not fit together.
    """
    wires = _Wires(clients, aggregator, silent or {})
    announcement = server.announcement()
    wires.round(0, ("announcement",), "enrolment", _to_all(clients, announcement), PopulationClient.enrol)
    admitted = aggregator.close_enrolment()
    wires.round(1, ("admission", "invitation"), "keys", admitted, PopulationClient.join)
    wires.round(2, ("neighbours",), "shares", _singly(aggregator.close_keys()), PopulationClient.share_keys)
    relayed = _singly(aggregator.close_shares())
    wires.round(3, ("relayed shares",), "masked input", relayed, PopulationClient.mask)
    wires.round(4, ("request",), "opened shares", _singly(aggregator.close_masked()), PopulationClient.unmask)
    result = aggregator.finish()
    traffic = Traffic(wires.uploaded, wires.downloaded)
    return ProtocolRun(server.receive(result), aggregator.survivors, traffic, len(result))


def _to_all(clients: Sequence[PopulationClient], message: bytes) -> dict[int, tuple[bytes, ...]]:
    return {client.identity: (message,) for client in clients}


def _singly(messages: Mapping[int, bytes]) -> dict[int, tuple[bytes, ...]]:
    return {identity: (message,) for identity, message in messages.items()}


class _Wires:
    """The wires between clients and aggregation, with a meter on them."""

    def __init__(
        self, clients: Sequence[PopulationClient], aggregator: Aggregation, silent: Mapping[int, int]
    ) -> None:
        self._clients = {client.identity: client for client in clients}
        if len(self._clients) != len(clients):
            raise SfumatoError("two clients have one identity; allowed is one client per identity.")
        self._rows = {client.identity: row for row, client in enumerate(clients)}
        self._aggregator, self._silent = aggregator, silent
        self.uploaded: dict[str, NDArray[np.int64]] = {}
        self.downloaded: dict[str, NDArray[np.int64]] = {}

    def round(
        self,
        number: int,
        received: tuple[str, ...],
        sent: str,
        messages: Mapping[int, tuple[bytes, ...]],
        answer: Callable[..., bytes],
    ) -> None:
        """Give each client what it is sent, and the aggregation the answers of those who are not silent."""
        size = len(self._clients)
        self.downloaded.update({kind: np.zeros(size, np.int64) for kind in received})
        self.uploaded[sent] = np.zeros(size, np.int64)
        for identity, parts in messages.items():
            for kind, part in zip(received, parts, strict=True):
                self.downloaded[kind][self._rows[identity]] = len(part)
            if number > self._silent.get(identity, number):
                continue
            reply = answer(self._clients[identity], *parts)
            self.uploaded[sent][self._rows[identity]] = len(reply)
            self._aggregator.receive(identity, reply)
