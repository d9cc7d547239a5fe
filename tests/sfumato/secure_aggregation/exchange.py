"""Runs of the protocol that a test can hold at any round; reproducible, on entropy that is nobody's secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sfumato.rng import Streams
from sfumato.secure_aggregation import Client, Server, Setting, entropy_of
from sfumato.secure_aggregation.shamir import Entropy

SMALL = Setting(clients=5, length=3, degree=4, threshold=3)
"""Everybody is everybody's neighbour; two may fall silent."""


def connected(members: Iterable[int], neighbours: Mapping[int, tuple[int, ...]]) -> bool:
    """Whether the members, with the edges among them, are in one piece."""
    row = {one: number for number, one in enumerate(members)}
    edges = np.zeros((len(row), len(row)))
    for one in row:
        for other in neighbours[one]:
            if other in row:
                edges[row[one], row[other]] = 1
    return connected_components(csr_array(edges), directed=False)[0] <= 1


def seeded(seed: int = 0) -> Entropy:
    return entropy_of(Streams(seed).stream("entropy"))


@dataclass
class Exchange:
    """A server, its clients, and what they would say next.

    ``to_clients`` is what the server last sent; ``to_server`` what the clients answered.
    """

    setting: Setting
    server: Server
    clients: list[Client]
    vectors: np.ndarray
    to_clients: dict[int, bytes]
    to_server: dict[int, bytes]

    @classmethod
    def start(cls, setting: Setting = SMALL, seed: int = 0, record: bool = False) -> Exchange:
        entropy = seeded(seed)
        server = Server(setting, entropy, record)
        vectors = np.arange(setting.clients * setting.length).reshape(setting.clients, setting.length)
        clients = [Client(setting, identity, entropy) for identity in range(setting.clients)]
        invited = dict.fromkeys(range(setting.clients), server.invitation())
        return cls(setting, server, clients, vectors, invited, {})

    @classmethod
    def at(cls, number: int, setting: Setting = SMALL, seed: int = 0) -> Exchange:
        """The clients have answered in round ``number``; the server has not yet received that."""
        exchange = cls.start(setting, seed)
        exchange.answer(1)
        for later in range(2, number + 1):
            exchange.deliver()
            exchange.close(later - 1)
            exchange.answer(later)
        return exchange

    def answer(self, number: int, silent: Iterable[int] = ()) -> None:
        self.to_server = {
            one: self.ask(number, one, message)
            for one, message in self.to_clients.items()
            if one not in set(silent)
        }

    def ask(self, number: int, one: int, message: bytes) -> bytes:
        client = self.clients[one]
        if number == 3:
            return client.mask(message, self.vectors[one])
        return {1: client.advertise, 2: client.share_keys, 4: client.unmask}[number](message)

    def deliver(self) -> None:
        for one, message in self.to_server.items():
            self.server.receive(one, message)

    def close(self, number: int) -> None:
        server = self.server
        closers = {1: server.close_keys, 2: server.close_shares, 3: server.close_masked}
        self.to_clients = closers[number]()


def damaged(good: bytes) -> st.SearchStrategy[bytes]:
    """Noise, and a message that was cut, lengthened, given another body, or altered in one byte."""
    altered = st.tuples(st.integers(0, len(good) - 1), st.integers(1, 255)).map(
        lambda change: good[: change[0]] + bytes([good[change[0]] ^ change[1]]) + good[change[0] + 1 :]
    )
    return st.one_of(
        st.binary(max_size=120),
        st.integers(0, len(good) - 1).map(lambda end: good[:end]),
        st.binary(min_size=1, max_size=90).map(lambda more: good + more),
        st.binary(max_size=150).map(lambda body: good[:22] + body),
        altered,
    )
