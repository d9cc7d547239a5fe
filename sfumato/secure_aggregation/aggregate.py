"""All clients and the server in one process, exchanging bytes; who is silent from when on; what travelled.

>>> import os
>>> setting = Setting(clients=5, length=3, degree=4, threshold=3)
>>> vectors = np.arange(15).reshape(5, 3)
>>> done = aggregate(vectors, setting, os.urandom, drop_outs={4: 2})
>>> done.total, done.survivors, done.traffic.uploaded["masked input"].tolist()
(array([18, 22, 26]), (0, 1, 2, 3), [34, 34, 34, 34, 0])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream
from sfumato.secure_aggregation.client import Client, vector_words
from sfumato.secure_aggregation.masking import KEY_BYTES
from sfumato.secure_aggregation.messages import COMMITMENT_BYTES, NEIGHBOUR_BYTES, SEALED_BYTES, Kind
from sfumato.secure_aggregation.server import Server, ServerView
from sfumato.secure_aggregation.setting import Setting
from sfumato.secure_aggregation.shamir import SHARE_BYTES, Entropy

_Result = TypeVar("_Result")
Bytes = Mapping[str, NDArray[np.int64]]
ROUNDS = 4
_UPLOADS = (Kind.KEYS, Kind.SHARES, Kind.MASKED_INPUT, Kind.OPENED_SHARES)
_DOWNLOADS = (Kind.INVITATION, Kind.NEIGHBOURS, Kind.RELAYED_SHARES, Kind.REQUEST)
_HEADER_BYTES = 22
_SETTING_BYTES = 21
_IDENTITY_BYTES = 4


@dataclass(frozen=True, eq=False)
class Traffic:
    """Bytes of messages, headers included and the transport's own framing not.

    Attributes:
        uploaded: (clients,) bytes that each client sent, by kind: ``keys``, ``shares``, ``masked input``, ``opened
            shares``.
        downloaded: (clients,) bytes that each client was sent: ``invitation``, ``neighbours``, ``relayed shares``,
            ``request``.
    """

    uploaded: Bytes
    downloaded: Bytes

    @property
    def masked_input(self) -> int:
        """The largest message that carries a vector."""
        return int(self.uploaded[Kind.MASKED_INPUT.words].max())

    @property
    def largest_client(self) -> int:
        """All bytes to and from the client with the most."""
        return int(sum([*self.uploaded.values(), *self.downloaded.values()]).max())  # type: ignore[union-attr]

    @property
    def server(self) -> int:
        """All bytes to and from the server."""
        return sum(int(sizes.sum()) for sizes in [*self.uploaded.values(), *self.downloaded.values()])


@dataclass(frozen=True, eq=False)
class Seconds:
    """Where the time went, by the clock that was given.

    Attributes:
        server: of the server.
        clients: (clients,) of each client.
    """

    server: float
    clients: NDArray[np.float64]

    @property
    def total(self) -> float:
        """Of all of them together."""
        return self.server + float(self.clients.sum())


@dataclass(frozen=True, eq=False)
class Aggregated:
    """A finished aggregation.

    Attributes:
        total: (d,) the sum over the survivors, taken from [-2^(b-1), 2^(b-1)).
        survivors: whose vectors are in it, ascending.
        traffic: bytes per client and kind.
        view: all that the server saw, if it was asked to record that.
        seconds: None without a clock.
    """

    total: NDArray[np.int64]
    survivors: tuple[int, ...]
    traffic: Traffic
    view: ServerView | None
    seconds: Seconds | None


def entropy_of(stream: RandomStream) -> Entropy:
    """Reproducible bytes of a stream, for simulations on public data: whoever knows the seed reads every input.

    Args:
        stream: where they come from, uniform if its integers are.
    """

    def give(count: int) -> bytes:
        return stream.integers(0, 256, count).astype(np.uint8).tobytes()

    return give


def aggregate(
    vectors: NDArray[np.integer],
    setting: Setting,
    entropy: Entropy,
    drop_outs: Mapping[int, int] | None = None,
    *,
    record: bool = False,
    clock: Callable[[], float] | None = None,
) -> Aggregated:
    """Run the protocol with every client and the server as an object of its own (Bonawitz et al. 2017; Bell et al. 2020).

    Args:
        vectors: (clients, d) integers of [-2^(b-1), 2^(b-1)); row i is client i's.
        setting: the public agreement.
        entropy: a source of fresh bytes for everybody; ``os.urandom`` in earnest, ``entropy_of`` in simulations.
        drop_outs: identity -> the last round that the client completes, from 0 (it never sends anything) to 3; the
            rounds are 1 keys, 2 shares, 3 masked input, 4 opened shares. A vector counts from 3 on.
        record: whether to keep the server's view.
        clock: what tells the time in seconds, such as ``time.perf_counter``.

    Raises:
        AggregationAbortedError: if too few clients are left; nothing but who is left was learnt.
        SfumatoError: if an argument is outside of what is allowed.
    """
    silent_after = _check(vectors, setting, drop_outs or {})
    run = _Run(setting, entropy, silent_after, record, clock)
    server, clients = run.server, run.clients
    invitation = server.invitation()
    run.round(1, Kind.KEYS, dict.fromkeys(range(setting.clients), invitation), Client.advertise)
    run.round(2, Kind.SHARES, run.timed(server.close_keys), Client.share_keys)
    relayed = run.timed(server.close_shares)
    numbers = {id(client): row for client, row in zip(clients, vectors, strict=True)}
    run.round(
        3, Kind.MASKED_INPUT, relayed, lambda client, message: client.mask(message, numbers[id(client)])
    )
    run.round(4, Kind.OPENED_SHARES, run.timed(server.close_masked), Client.unmask)
    total, survivors = run.timed(server.finish)
    return Aggregated(total, survivors, run.traffic(), server.view, run.seconds())


def estimate_traffic(setting: Setting) -> Traffic:
    """What each client's messages weigh when nobody falls silent; exact, and without running anything.

    Args:
        setting: the public agreement.
    """
    degree, header = setting.degree, _HEADER_BYTES
    uploaded = {
        Kind.KEYS: header + 2 * KEY_BYTES,
        Kind.SHARES: header + COMMITMENT_BYTES + degree * SEALED_BYTES,
        Kind.MASKED_INPUT: header + setting.length * setting.word_bytes,
        Kind.OPENED_SHARES: header + degree * SHARE_BYTES,
    }
    downloaded = {
        Kind.INVITATION: header + _SETTING_BYTES,
        Kind.NEIGHBOURS: header + degree * (_IDENTITY_BYTES + NEIGHBOUR_BYTES),
        Kind.RELAYED_SHARES: header + degree * (_IDENTITY_BYTES + SEALED_BYTES),
        Kind.REQUEST: header + (1 + degree) * _IDENTITY_BYTES,
    }
    return Traffic(
        {kind.words: np.full(setting.clients, size, np.int64) for kind, size in uploaded.items()},
        {kind.words: np.full(setting.clients, size, np.int64) for kind, size in downloaded.items()},
    )


def _check(vectors: NDArray[np.integer], setting: Setting, drop_outs: Mapping[int, int]) -> dict[int, int]:
    """Everything that could be wrong, before anybody sends anything."""
    if np.ndim(vectors) != 2 or len(vectors) != setting.clients:
        raise SfumatoError(
            f"vectors has shape {np.shape(vectors)}; allowed is ({setting.clients}, {setting.length})."
        )
    for row in vectors:
        vector_words(row, setting)
    for identity, last in drop_outs.items():
        if not is_integer(identity) or not 0 <= identity < setting.clients:
            raise SfumatoError(
                f"drop_outs names client {identity!r}; allowed are 0 to {setting.clients - 1}."
            )
        if not is_integer(last) or not 0 <= last < ROUNDS:
            raise SfumatoError(f"client {identity} drops out after round {last!r}; allowed are 0 to 3.")
    return {int(identity): int(last) for identity, last in drop_outs.items()}


class _Run:
    """The wires between the parties, with a meter on them."""

    def __init__(
        self,
        setting: Setting,
        entropy: Entropy,
        silent_after: Mapping[int, int],
        record: bool,
        clock: Callable[[], float] | None,
    ) -> None:
        self._silent_after, self._clock = silent_after, clock
        self._server_seconds, self._client_seconds = 0.0, np.zeros(setting.clients)
        self._sizes = {kind: np.zeros(setting.clients, np.int64) for kind in Kind}
        self.server = self.timed(lambda: Server(setting, entropy, record))
        self.clients = [Client(setting, identity, entropy) for identity in range(setting.clients)]

    def _now(self) -> float:
        return self._clock() if self._clock is not None else 0.0

    def timed(self, act: Callable[[], _Result]) -> _Result:
        """What the server does, on its account."""
        start = self._now()
        try:
            return act()
        finally:
            self._server_seconds += self._now() - start

    def round(
        self, number: int, kind: Kind, sent: Mapping[int, bytes], answer: Callable[[Client, bytes], bytes]
    ) -> None:
        """Give each client what the server sent it, and the server the answers of those who are not silent."""
        for identity, message in sent.items():
            self._sizes[Kind(kind - 1)][identity] = len(message)
            if self._silent_after.get(identity, ROUNDS) < number:
                continue
            start = self._now()
            reply = answer(self.clients[identity], message)
            between = self._now()
            self._client_seconds[identity] += between - start
            self._sizes[kind][identity] = len(reply)
            self.server.receive(identity, reply)
            self._server_seconds += self._now() - between

    def traffic(self) -> Traffic:
        """What was metered."""
        return Traffic(
            {kind.words: self._sizes[kind] for kind in _UPLOADS},
            {kind.words: self._sizes[kind] for kind in _DOWNLOADS},
        )

    def seconds(self) -> Seconds | None:
        """What the clock said."""
        return None if self._clock is None else Seconds(self._server_seconds, self._client_seconds)
