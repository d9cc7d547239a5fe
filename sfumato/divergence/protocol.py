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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.divergence.aggregators import Aggregation, CountsAggregator, Entropy, TrustedAggregator
from sfumato.divergence.agreement import estimate_from_value, points_of, reference_digest, setting_of
from sfumato.divergence.counting import cell_counts
from sfumato.divergence.distributed import (
    DistributedEstimate,
    count_noise,
    counted_shares,
    draw_noise,
    estimate,
)
from sfumato.divergence.estimator import Estimate
from sfumato.divergence.messages import (
    MAX_CLIENTS,
    Admission,
    Announcement,
    Enrolment,
    NoisyCounts,
    Result,
    Trust,
)
from sfumato.divergence.plan import EstimatorPlan, require_count
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.divergence.wire import SESSION_BYTES
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream
from sfumato.secure_aggregation import Client, Traffic

__all__ = [
    "CountsAggregator",
    "Limits",
    "PopulationClient",
    "PopulationServer",
    "ProtocolRun",
    "TrustedAggregator",
    "run_protocol",
]


class PopulationServer:
    """Who wants to know the divergence; it is never given anything that is not private already.

    Args:
        reference: Pi, public.
        points: drawn by the server, public.
        plan: floor and lambda, chosen from public numbers.
        epsilon: of the one release.
        delta: likewise.
        entropy: a source of fresh bytes for the session's name, such as ``os.urandom``.
        trust: who adds the noise.
        confidence: of the interval.
        corrupted_share: how large a share of the clients may collude with who runs the aggregation.

    Raises:
        SfumatoError: if a value is outside of what is allowed, or the plan has no floor.
    """

    def __init__(
        self,
        reference: Reference,
        points: PublicPoints,
        plan: EstimatorPlan,
        epsilon: float,
        delta: float,
        entropy: Entropy,
        trust: Trust = "trusted_aggregator",
        confidence: float = 0.95,
        corrupted_share: float = 0.1,
    ) -> None:
        """A server before its announcement."""
        floor = plan.required_floor
        times = np.rint(points.weights * points.draws).astype(np.int64)
        self._announced = Announcement(
            session=entropy(SESSION_BYTES),
            trust=trust,
            digest=reference_digest(reference),
            cells=points.cells,
            multiplicities=times,
            floor=floor.kind,
            level=floor.level,
            ceiling=floor.ceiling,
            coefficient=plan.coefficient,
            epsilon=epsilon,
            delta=delta,
            confidence=confidence,
            corrupted_share=corrupted_share,
        )
        self._reference, self._points, self._plan = reference, points_of(self._announced, reference), plan
        if not np.allclose(self._points.weights, points.weights, rtol=1e-12, atol=0.0):
            raise SfumatoError(
                "the points' weights are no shares of draws; allowed are drawn points, or all cells by their probability."
            )
        self._finished = False

    def announcement(self) -> bytes:
        """What all parties are sent first."""
        return self._announced.encode()

    def receive(self, message: bytes) -> Estimate | DistributedEstimate:
        """The estimate that the aggregation's one message to the server makes.

        Guarantee: post-processing of the noisy value or the noisy counts, and of public numbers.

        Raises:
            SfumatoError: if it is no such message, of another session, or the second one.
        """
        announced = self._announced
        trusted = announced.trust == "trusted_aggregator"
        read = Result.decode(message) if trusted else NoisyCounts.decode(message)
        if read.session != announced.session:
            raise SfumatoError("a result is of another session; allowed is the present one.")
        if self._finished:
            raise SfumatoError("a second result came; allowed is one, since each release spends the budget.")
        made = self._from_value(read) if isinstance(read, Result) else self._from_counts(read)
        self._finished = True
        return made

    def _from_value(self, read: Result) -> Estimate:
        return estimate_from_value(
            read.value,
            read.examples,
            self._points,
            self._reference,
            self._plan,
            self._announced.epsilon,
            self._announced.delta,
            self._announced.confidence,
            read.discrete,
        )

    def _from_counts(self, read: NoisyCounts) -> DistributedEstimate:
        announced = self._announced
        shares = counted_shares(read.clients, read.required, announced.corrupted_share)
        noise = count_noise(announced.epsilon, announced.delta, shares)
        return estimate(
            read.counts,
            read.examples,
            read.survivors,
            noise,
            self._points,
            self._reference,
            self._plan,
            announced.delta,
            announced.confidence,
        )


@dataclass(frozen=True)
class Limits:
    """What a client answers to, whatever a server announces; it is the client that has something to lose.

    Attributes:
        epsilon: the largest of one estimate.
        delta: the largest of one estimate.
        corrupted_share: the least share of the clients whose noise must not be counted on, where clients share it.
    """

    epsilon: float = 10.0
    delta: float = 1e-3
    corrupted_share: float = 0.0

    def check(self, announced: Announcement) -> None:
        """Refuse an announcement that promises less.

        Raises:
            SfumatoError: if a number is beyond its limit; the sentence names both.
        """
        for name, value, limit in (
            ("epsilon", announced.epsilon, self.epsilon),
            ("delta", announced.delta, self.delta),
        ):
            if value > limit:
                raise SfumatoError(
                    f"the announced {name} is {value:g}; allowed for this client is at most {limit:g}."
                )
        if announced.trust == "distributed" and announced.corrupted_share < self.corrupted_share:
            raise SfumatoError(
                f"the announced corrupted_share is {announced.corrupted_share:g}; allowed for this client is at least "
                f"{self.corrupted_share:g}."
            )


class PopulationClient:
    """One client: it counts its own samples at the announced points, and hides the counts in a secure aggregation.

    Guarantee:
        ``trusted_aggregator``: whoever runs the aggregation learns the sum of the survivors' counts, and of this
        client's nothing beyond that (``sfumato.secure_aggregation.Client``); the server learns the noisy value.
        ``distributed``: the client itself computes how much noise the announced (epsilon, delta) takes from the number
        of survivors that it was promised, and adds its share; the sum over that many survivors, less the corrupted
        share, is (epsilon, delta)-differentially private for replacing one of its examples
        (``sfumato.divergence.distributed.count_noise``). It rests on an aggregation that keeps its promise about the
        survivors, as on one that follows the protocol. Not protected: taking part, and the number of examples.

    Args:
        identity: from 0, unique among the clients.
        codes: (n,) integer samples, at least one.
        reference: Pi, which the client knows beforehand.
        entropy: a source of fresh bytes for keys, such as ``os.urandom``.
        stream: of the client's share of noise; the operating system's in release mode.
        trusts_aggregator: whether it answers where an aggregator is to be trusted.
        limits: the weakest guarantee that it answers to.

    Raises:
        SfumatoError: if it has no samples, one is outside of the domain, or the identity is none; no sample is named.
    """

    def __init__(
        self,
        identity: int,
        codes: NDArray[Any],
        reference: Reference,
        entropy: Entropy,
        stream: RandomStream,
        *,
        trusts_aggregator: bool = True,
        limits: Limits | None = None,
    ) -> None:
        """A client before any announcement."""
        require_count("identity", identity, 0, MAX_CLIENTS)
        self._identity, self._reference = int(identity), reference
        self._cell_counts = cell_counts(codes, reference)
        self._entropy, self._stream, self._trusts_aggregator = entropy, stream, trusts_aggregator
        self._limits = limits or Limits()
        self._announced: Announcement | None = None
        self._admitted: Admission | None = None
        self._secure: Client | None = None

    @property
    def identity(self) -> int:
        """Who it is."""
        return self._identity

    def enrol(self, announcement: bytes) -> bytes:
        """Agree to take part in one estimate, and declare the number of examples.

        Raises:
            SfumatoError: if it is no announcement on the agreed reference, the client does not trust that way, or it
                takes part in an estimate already.
        """
        read = Announcement.decode(announcement)
        if self._announced is not None:
            raise SfumatoError(
                f"client {self._identity} was asked to enrol twice; allowed is one estimate, since each spends the budget."
            )
        if read.trust == "trusted_aggregator" and not self._trusts_aggregator:
            raise SfumatoError(
                f"client {self._identity} trusts no aggregator; allowed is the trust model 'distributed'."
            )
        self._limits.check(read)
        _ = points_of(read, self._reference)
        self._announced = read
        return Enrolment(read.session, self._identity, int(self._cell_counts.sum())).encode()

    def join(self, admission: bytes, invitation: bytes) -> bytes:
        """Round 1 of the aggregation: public keys.

        Args:
            admission: the client's place and how many have to stay.
            invitation: of the secure aggregation.

        Raises:
            SfumatoError: if these are none, are somebody else's, or promise too few survivors for any noise.
        """
        announced, read = self._enrolled(), Admission.decode(admission)
        if read.session != announced.session or read.identity != self._identity:
            raise SfumatoError(
                f"client {self._identity} was given an admission that is not its own; allowed is its own of this session."
            )
        if self._secure is not None:
            raise SfumatoError(f"client {self._identity} was admitted twice; allowed is once.")
        if announced.trust == "distributed":
            counted_shares(read.clients, read.survivors, announced.corrupted_share)
        secure = Client(setting_of(read, len(announced.cells)), read.place, self._entropy)
        keys = secure.advertise(invitation)
        self._admitted, self._secure = read, secure
        return keys

    def share_keys(self, neighbours: bytes) -> bytes:
        """Round 2: sealed shares of the client's secrets."""
        return self._joined()[1].share_keys(neighbours)

    def mask(self, relayed_shares: bytes) -> bytes:
        """Round 3: the counts, with the client's share of noise where nobody is trusted, under masks.

        Raises:
            SfumatoError: as ``sfumato.secure_aggregation.Client.mask``.
        """
        admitted, secure = self._joined()
        announced = self._enrolled()
        counts = self._cell_counts[announced.cells]
        if announced.trust == "distributed":
            shares = counted_shares(admitted.clients, admitted.survivors, announced.corrupted_share)
            noise = count_noise(announced.epsilon, announced.delta, shares)
            counts = counts + draw_noise(noise.sigma, len(counts), self._stream)
        return secure.mask(relayed_shares, counts)

    def unmask(self, request: bytes) -> bytes:
        """Round 4: of each neighbour one share, which opens the sum."""
        return self._joined()[1].unmask(request)

    def _enrolled(self) -> Announcement:
        if self._announced is None:
            raise SfumatoError(f"client {self._identity} has not enrolled; allowed is to enrol first.")
        return self._announced

    def _joined(self) -> tuple[Admission, Client]:
        if self._admitted is None or self._secure is None:
            raise SfumatoError(f"client {self._identity} was not admitted; allowed is to join first.")
        return self._admitted, self._secure


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
