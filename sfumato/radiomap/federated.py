"""Federated training: who takes part when, and the rounds (Sections 3.1 and 3.2 of docs/papers.md).

>>> from sfumato.rng import Streams
>>> plan = FederationPlan(clients=5, active=2, rounds=3)
>>> schedule(plan, Streams(0).stream("schedule")).shape, plan.phase(2)
((3, 2), 'joint')
>>> FederationPlan(rounds=4, phases=("first", "second")).phase(1)
'first'
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.radiomap.client import Phase, checked_pairs
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.messages import SESSION_BYTES
from sfumato.radiomap.participants import Answer, FinishedRound, RadioClient, RadioServer
from sfumato.radiomap.pool import ClientPool, client_pool
from sfumato.radiomap.references import validation_mse
from sfumato.radiomap.unet import load_flat
from sfumato.rng import RandomStream, Streams


@dataclass(frozen=True)
class FederationPlan:
    """The public numbers of a federated training.

    Attributes:
        clients: how many there are.
        active: how many of them each round asks.
        rounds: how many rounds.
        phases: which stage learns, in equal parts of the rounds one after the other: ``("joint",)`` both all the time,
            ``("first", "second")`` as the published network was trained.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    clients: int = 14
    active: int = 6
    rounds: int = 50
    phases: tuple[Phase, ...] = ("joint",)

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("clients", "active", "rounds"):
            value = getattr(self, name)
            if not is_integer(value) or value < 1:
                raise SfumatoError(f"{name} is {value!r}; allowed is an integer of at least 1.")
        if self.active > self.clients:
            raise SfumatoError(f"active is {self.active} of {self.clients} clients; allowed is at most all.")
        if not self.phases or any(phase not in get_args(Phase) for phase in self.phases):
            raise SfumatoError(
                f"phases is {self.phases!r}; allowed is a tuple of {' or '.join(get_args(Phase))}."
            )
        if len(self.phases) > self.rounds:
            raise SfumatoError(
                f"phases are {len(self.phases)} in {self.rounds} rounds; allowed is at most one per round."
            )

    def phase(self, round: int) -> Phase:
        """Which stage learns in that round, from 0."""
        return self.phases[round * len(self.phases) // self.rounds]


def schedule(plan: FederationPlan, stream: RandomStream) -> NDArray[np.int64]:
    """Which clients each round asks: a fresh uniform draw without replacement, public.

    Args:
        plan: the counts.
        stream: draws.

    Returns:
        (rounds, active) int64, each row ascending.
    """
    rows = [np.sort(stream.permutation(plan.clients)[: plan.active]) for _ in range(plan.rounds)]
    return np.stack(rows)


@dataclass(frozen=True)
class RoundRecord:
    """What one round showed. Norms and clipping are known to the clients alone; here they are for the study.

    Attributes:
        number: from 0.
        phase: which stage learned.
        clients: who was asked, ascending.
        validation_mse: after the round, in squared encoded units, of the stage that learned (the second for
            ``joint``); None without validation maps, or where it is not finite.
        norms: of the updates before clipping, of those clients whose training was finite, in the order of the
            clients.
        clipped_share: of these, how many were clipped; 0 where there is none.
        dropped: how many uploads could not be used.
        reasons: why, one sentence each.
    """

    number: int
    phase: Phase
    clients: tuple[int, ...]
    validation_mse: float | None
    norms: tuple[float, ...]
    clipped_share: float
    dropped: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class History:
    """A finished training.

    Attributes:
        rounds: one record each.
        final: (d,) float32, the released model.
        weights: round -> (d,) float32, at which the chosen rounds began.
        uploads: round -> client -> (d,) float32, what the server received in the chosen rounds.
        validation_mse: of the released model on all that it is measured on, in squared encoded units; None without
            validation maps, or where it is not finite.
    """

    rounds: tuple[RoundRecord, ...]
    final: NDArray[np.float32]
    weights: Mapping[int, NDArray[np.float32]]
    uploads: Mapping[int, Mapping[int, NDArray[np.float32]]]
    validation_mse: float | None

    @property
    def dropped(self) -> int:
        """How many uploads of all rounds could not be used."""
        return sum(record.dropped for record in self.rounds)


@dataclass(frozen=True, eq=False)
class Validation:
    """What the model is measured on.

    Attributes:
        model: where it is computed; its weights are overwritten.
        maps: held-out ones.
        pairs: (b, 2), which of them after each round.
        final_pairs: (c, 2), which of them the released model is measured on.
    """

    model: nn.Module
    maps: MapSet
    pairs: NDArray[np.int64]
    final_pairs: NDArray[np.int64]

    def mse(self, weights: NDArray[np.float32], phase: Phase, final: bool = False) -> float | None:
        """The mean squared error of the stage that learns in that phase, None where it is not finite."""
        load_flat(self.model, weights)
        stage = "first" if phase == "first" else "second"
        pairs = self.final_pairs if final else self.pairs
        found = validation_mse(self.model, self.maps, pairs, stage)
        return found if np.isfinite(found) else None


def federate(
    weights: NDArray[np.float32],
    clients: Sequence[RadioClient],
    plan: FederationPlan,
    streams: Streams,
    validation: Validation | None = None,
    workers: int = 1,
    keep_weights: Collection[int] = (),
    keep_uploads: Collection[int] = (),
) -> History:
    """Run the rounds: the server broadcasts, the scheduled clients train and answer, the server averages.

    Deterministic bit for bit in simulation mode.

    Guarantee: towards the server and everybody who sees the uploads or the models, that of the clients'
    defences, composed over the rounds in which a client takes part. The schedule is public.

    Args:
        weights: (d,) float32, where it begins; public.
        clients: as many as planned, numbered 0, 1, ...; each with a session for every round.
        plan: the counts and phases.
        streams: of the schedule and the session's number.
        validation: what to measure after each round, if anything.
        workers: in how many processes the clients compute; the result is the same for any number.
        keep_weights: rounds whose initial weights are kept.
        keep_uploads: rounds whose uploads are kept.

    Raises:
        SfumatoError: if the clients are not as planned, or the averaged weights stop being finite.
    """
    _check_clients(clients, plan)
    session = bytes(streams.stream("session").integers(0, 256, SESSION_BYTES).astype(np.uint8))
    server = RadioServer(weights, session)
    asked = schedule(plan, streams.stream("schedule"))
    # Every client sees all released uploads.
    now, records = {client.identity: client for client in clients}, list[RoundRecord]()
    kept_weights: dict[int, NDArray[np.float32]] = {}
    kept_uploads: dict[int, Mapping[int, NDArray[np.float32]]] = {}
    with client_pool(now, workers) as pool:
        for number in range(plan.rounds):
            if number in keep_weights:
                kept_weights[number] = server.weights
            active, phase = tuple(int(client) for client in asked[number]), plan.phase(number)
            answers, finished = _round(server, pool, now, number, active, phase)
            if number in keep_uploads:
                kept_uploads[number] = finished.uploads
            now = _observed(now, finished)
            measured = validation.mse(finished.weights, phase) if validation is not None else None
            records.append(_record(number, phase, active, measured, answers, finished))
    released = validation.mse(server.weights, plan.phase(plan.rounds - 1), True) if validation else None
    return History(tuple(records), server.weights, kept_weights, kept_uploads, released)


def _round(
    server: RadioServer,
    pool: ClientPool,
    clients: Mapping[int, RadioClient],
    number: int,
    active: tuple[int, ...],
    phase: Phase,
) -> tuple[list[Answer], FinishedRound]:
    broadcast = server.begin(number, active, phase)
    answers = pool.respond(broadcast, {client: clients[client].defence for client in active})
    for client, answer in zip(active, answers, strict=True):
        server.receive(client, answer.message)
    return answers, server.finish()


def _observed(clients: Mapping[int, RadioClient], finished: FinishedRound) -> dict[int, RadioClient]:
    released = list(finished.uploads.values())
    return {
        number: replace(client, defence=client.defence.observe(released))
        for number, client in clients.items()
    }


def _record(
    number: int,
    phase: Phase,
    active: tuple[int, ...],
    measured: float | None,
    answers: Sequence[Answer],
    finished: FinishedRound,
) -> RoundRecord:
    trained = [answer for answer in answers if answer.norm_before is not None]
    norms = tuple(float(answer.norm_before) for answer in trained if answer.norm_before is not None)
    clipped = sum(answer.clipped for answer in trained) / max(1, len(trained))
    reasons = tuple(finished.dropped.values())
    return RoundRecord(number, phase, active, measured, norms, clipped, len(reasons), reasons)


def _check_clients(clients: Sequence[RadioClient], plan: FederationPlan) -> None:
    found = [client.identity for client in clients]
    if found != list(range(plan.clients)):
        raise SfumatoError(f"the clients are numbered {found}; allowed is 0 to {plan.clients - 1} in order.")
    for client in clients:
        if len(client.sessions) < plan.rounds:
            raise SfumatoError(
                f"client {client.identity} has sessions for {len(client.sessions)} rounds; allowed are at least {plan.rounds}."
            )


# --------------------------------------------------------------------------------------------------- sessions
def all_pairs(maps: MapSet) -> NDArray[np.int64]:
    """(n k, 2) int64, every map with every of its transmitters, map by map."""
    return np.indices((maps.count, maps.per_map)).reshape(2, -1).T.astype(np.int64)


def draw_sessions(
    maps: MapSet,
    pairs: NDArray[np.integer],
    rounds: int,
    per_round: int,
    stream: RandomStream,
    shared: bool = False,
    repeated: bool = False,
) -> NDArray[np.int64]:
    """What one client trains on in each round: a uniform draw of its pairs without replacement.

    Args:
        maps: the client's.
        pairs: (b, 2), those to draw from.
        rounds: how many rounds.
        per_round: how many of them a round has.
        stream: draws.
        shared: whether the pairs of one round have their transmitters in the same cell, of a cell drawn with
            probability proportional to its pairs among those cells that have enough.
        repeated: whether every round has the same pairs.

    Returns:
        (rounds, per_round, 2) int64.

    Raises:
        SfumatoError: if there are not as many pairs, or not as many of any one transmitter's cell.
    """
    given = checked_pairs(maps, pairs)
    places = maps.transmitters[given[:, 0], given[:, 1]] if shared else np.zeros((len(given), 2), np.int16)
    labels, counts = np.unique(places, axis=0, return_inverse=True, return_counts=True)[1:]
    pools = [np.flatnonzero(labels.reshape(-1) == label) for label in np.flatnonzero(counts >= per_round)]
    if per_round < 1 or not pools:
        where = " with the transmitter in one cell" if shared else ""
        raise SfumatoError(
            f"per_round is {per_round}; allowed is 1 to {int(counts.max())}, the pairs{where}."
        )
    eligible = np.concatenate(pools)
    drawn: list[NDArray[np.int64]] = []
    for _ in range(1 if repeated else rounds):
        chosen = eligible[int(stream.integers(0, len(eligible), 1)[0])]
        pool = np.flatnonzero(labels.reshape(-1) == labels.reshape(-1)[chosen])
        drawn.append(given[pool[stream.permutation(len(pool))[:per_round]]])
    return np.stack(drawn * rounds if repeated else drawn)


def session_groups(sessions: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) a number for each of (n, b, 2) sessions, the same for two that share a map, directly or through others.

    Who holds out whole groups holds out whole maps. It is the least map of the group: the map itself, where b is 1.

    >>> session_groups(np.array([[[3, 0], [5, 1]], [[5, 0], [7, 0]], [[4, 0], [4, 1]]])).tolist()
    [3, 3, 4]
    """
    maps = sessions[:, :, 0]
    least = np.arange(int(maps.max()) + 1)
    while True:
        before = least.copy()
        for row in maps:
            least[row] = least[row].min()
        if np.array_equal(before, least):
            return least[maps[:, 0]]
