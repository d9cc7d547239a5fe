"""The server: it relays keys and shares, collects masked vectors, and learns their sum.

>>> import os
>>> Server(Setting(clients=3, length=2, degree=2, threshold=2), os.urandom).receive(0, b"noise")
Traceback (most recent call last):
...
sfumato.errors.SfumatoError: a message is no bytes with a header of 22; allowed are whole messages.

A round is any number of ``receive`` and then its ``close_...``, which says what goes to whom; who has sent nothing by
then is silent from there on. A message that is not as it should be is refused and changes nothing; too few clients
abort the aggregation, after which the server does nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.secure_aggregation.graph import draw_graph
from sfumato.secure_aggregation.masking import KEY_BYTES, Masks, reduce_words
from sfumato.secure_aggregation.messages import (
    COMMITMENT_BYTES,
    EVERYBODY,
    SEALED_BYTES,
    SESSION_BYTES,
    Kind,
    Message,
    decode,
    encode,
    pack_records,
    pack_request,
    pack_setting,
    read_words,
    require_kind,
    require_size,
)
from sfumato.secure_aggregation.setting import AggregationAbortedError, Setting
from sfumato.secure_aggregation.shamir import SHARE_BYTES, Entropy, draw
from sfumato.secure_aggregation.unmasking import Opened, remaining_masks


@dataclass
class ServerView:
    """All that the server sees, for tests of what that tells.

    Attributes:
        received: (sender, bytes) in the order of arrival.
        sent: (addressee, bytes).
        opened: the secrets that it put together in the end; None before.
    """

    received: list[tuple[int, bytes]] = field(default_factory=lambda: [])
    sent: list[tuple[int, bytes]] = field(default_factory=lambda: [])
    opened: Opened | None = None


class Server:
    """The untrusted party in the middle of one aggregation.

    Guarantee:
        None of its own: the clients' guarantee holds against it as long as it follows the protocol.

    Args:
        setting: the public agreement.
        entropy: a source of fresh bytes for the session's name and the graph.
        record: whether to keep a ``view``.
    """

    def __init__(self, setting: Setting, entropy: Entropy, record: bool = False) -> None:
        """A server before the first round."""
        self._setting, self._entropy = setting, entropy
        self._session = draw(entropy, SESSION_BYTES)
        self._awaited: Kind | None = Kind.KEYS
        self._keys: dict[int, bytes] = {}
        self._used_keys: set[bytes] = set()
        self._neighbours: dict[int, tuple[int, ...]] = {}
        self._commitments: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._masked: dict[int, Masks] = {}
        self._asked: dict[int, tuple[list[int], list[int]]] = {}
        self._shares: dict[int, dict[int, bytes]] = {}
        self._answered: set[int] = set()
        self.view: ServerView | None = ServerView() if record else None

    def invitation(self) -> bytes:
        """What every client is sent first: the session and the setting."""
        return encode(Kind.INVITATION, self._session, EVERYBODY, pack_setting(self._setting))

    def receive(self, sender: int, message: bytes) -> None:
        """Take one message of the present round.

        Args:
            sender: who sent it, as the channel that authenticates the clients says.
            message: the bytes.

        Raises:
            SfumatoError: if it is malformed, of another session or round, from somebody who is not awaited, in
                another's name, or the sender's second one.
        """
        read = decode(message, self._session)
        if self._awaited is None:
            raise SfumatoError("the aggregation is over; allowed is no further message.")
        require_kind(read, self._awaited)
        if not is_integer(sender) or not 0 <= sender < self._setting.clients or read.identity != sender:
            raise SfumatoError(
                f"a message in the name of client {read.identity} came from {sender!r}; allowed is one's own name, from 0 "
                f"to {self._setting.clients - 1}."
            )
        takers: dict[Kind, Callable[[Message], None]] = {
            Kind.KEYS: self._take_keys,
            Kind.SHARES: self._take_shares,
            Kind.MASKED_INPUT: self._take_masked,
            Kind.OPENED_SHARES: self._take_opened,
        }
        takers[read.kind](read)
        if self.view is not None:
            self.view.received.append((int(sender), message))

    def close_keys(self) -> dict[int, bytes]:
        """End round 1 and draw the graph: to each client its neighbours with their public keys.

        Raises:
            AggregationAbortedError: if fewer clients sent keys than the setting needs.
            SfumatoError: if it is another round.
        """
        self._close(Kind.KEYS)
        self._require_survivors(len(self._keys))
        self._neighbours = draw_graph(tuple(sorted(self._keys)), self._setting.degree, self._entropy)
        self._require_threshold(self._keys, self._keys)
        self._awaited = Kind.SHARES
        return self._send(
            Kind.NEIGHBOURS,
            {
                one: pack_records([(other, self._keys[other]) for other in others])
                for one, others in self._neighbours.items()
            },
        )

    def close_shares(self) -> dict[int, bytes]:
        """End round 2: to each client the shares that its neighbours sealed for it.

        Raises:
            AggregationAbortedError: if too few clients, or too few neighbours of one, are left.
            SfumatoError: if it is another round.
        """
        self._close(Kind.SHARES)
        self._require_survivors(len(self._sealed))
        self._require_threshold(self._sealed, self._sealed)
        self._awaited = Kind.MASKED_INPUT
        relayed = {
            one: pack_records([(other, self._sealed[other][one]) for other in self._left(one, self._sealed)])
            for one in sorted(self._sealed)
        }
        return self._send(Kind.RELAYED_SHARES, relayed)

    def close_masked(self) -> dict[int, bytes]:
        """End round 3: to each survivor, which neighbours are left and which fell silent.

        Raises:
            AggregationAbortedError: if too few clients, or too few neighbours of one, are left; no share is asked for
                then. Otherwise the survivors are connected (`graph`), so that no sum of a part of them shows.
            SfumatoError: if it is another round.
        """
        self._close(Kind.MASKED_INPUT)
        self._require_survivors(len(self._masked))
        silent = set(self._sealed).difference(self._masked)
        needed = [one for one in silent if self._left(one, self._masked)]
        self._require_threshold([*self._masked, *needed], self._masked)
        for one in sorted(self._masked):
            self._asked[one] = (self._left(one, self._masked), self._left(one, silent))
        self._shares = {one: {} for one in [*self._masked, *needed]}
        self._awaited = Kind.OPENED_SHARES
        return self._send(Kind.REQUEST, {one: pack_request(*asked) for one, asked in self._asked.items()})

    def finish(self) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """End round 4: the (d,) sum, taken from [-2^(b-1), 2^(b-1)), and whose vectors are in it.

        Raises:
            AggregationAbortedError: if too few shares of a secret came, or shares do not give back what their owner
                committed to.
            SfumatoError: if it is another round.
        """
        self._close(Kind.OPENED_SHARES)
        for one, shares in self._shares.items():
            if len(shares) < self._setting.threshold:
                self._abort(
                    f"client {one} has {len(shares)} neighbours left where {self._setting.threshold} are needed"
                )
        self._awaited = None
        opened = Opened.combine(self._shares, self._neighbours, set(self._masked), self._setting.threshold)
        false = opened.first_false(self._session, self._commitments, self._keys)
        if false is not None:
            self._abort(f"the shares of client {false} do not give back what it committed to")
        if self.view is not None:
            self.view.opened = opened
        masks = remaining_masks(opened, self._session, self._setting, self._neighbours, self._keys)
        words = np.zeros(self._setting.length, np.uint64)
        for masked in self._masked.values():
            words += masked
        bits = self._setting.modulus_bits
        words = reduce_words(words - masks, bits)
        return (words << np.uint64(64 - bits)).view(np.int64) >> (64 - bits), tuple(sorted(self._masked))

    def _take_keys(self, message: Message) -> None:
        require_size(message, 2 * KEY_BYTES)
        self._require_first(message, message.identity in self._keys)
        fresh = {message.body[:KEY_BYTES], message.body[KEY_BYTES:]}
        if len(fresh) < 2 or fresh & self._used_keys:
            raise SfumatoError(
                f"client {message.identity} advertised a key that is known already; allowed are fresh keys."
            )
        self._used_keys |= fresh
        self._keys[message.identity] = message.body

    def _take_shares(self, message: Message) -> None:
        others = self._neighbours.get(message.identity)
        if others is None:
            raise SfumatoError(f"client {message.identity} is not awaited; allowed are those that sent keys.")
        self._require_first(message, message.identity in self._sealed)
        require_size(message, COMMITMENT_BYTES + SEALED_BYTES * len(others))
        starts = range(COMMITMENT_BYTES, len(message.body), SEALED_BYTES)
        parts = [message.body[start : start + SEALED_BYTES] for start in starts]
        self._commitments[message.identity] = message.body[:COMMITMENT_BYTES]
        self._sealed[message.identity] = dict(zip(others, parts, strict=True))

    def _take_masked(self, message: Message) -> None:
        if message.identity not in self._sealed:
            raise SfumatoError(
                f"client {message.identity} is not awaited; allowed are those that sent shares."
            )
        self._require_first(message, message.identity in self._masked)
        self._masked[message.identity] = read_words(message, self._setting)

    def _take_opened(self, message: Message) -> None:
        if message.identity not in self._asked:
            raise SfumatoError(f"client {message.identity} is not awaited; allowed are the survivors.")
        self._require_first(message, message.identity in self._answered)
        owners = [*self._asked[message.identity][0], *self._asked[message.identity][1]]
        require_size(message, SHARE_BYTES * len(owners))
        self._answered.add(message.identity)
        for place, owner in enumerate(owners):
            share = message.body[SHARE_BYTES * place : SHARE_BYTES * (place + 1)]
            self._shares[owner][message.identity] = share

    def _abort(self, reason: str) -> NoReturn:
        self._awaited = None
        for held in (self._sealed, self._masked, self._shares, self._asked):
            held.clear()
        raise AggregationAbortedError(f"{reason}; the aggregation stops without a sum.")

    def _require_survivors(self, count: int) -> None:
        if count < self._setting.survivors:
            self._abort(f"{count} clients are left where {self._setting.survivors} are needed")

    def _require_threshold(self, owners: Iterable[int], holders: Collection[int]) -> None:
        for one in owners:
            count = len(self._left(one, holders))
            if count < self._setting.threshold:
                self._abort(
                    f"client {one} has {count} neighbours left where {self._setting.threshold} are needed"
                )

    @staticmethod
    def _require_first(message: Message, known: bool) -> None:
        if known:
            raise SfumatoError(
                f"client {message.identity} sent {message.kind.words} twice; allowed is one message a round."
            )

    def _left(self, one: int, among: Collection[int]) -> list[int]:
        return [other for other in self._neighbours[one] if other in among]

    def _close(self, kind: Kind) -> None:
        if self._awaited != kind:
            raise SfumatoError(
                f"the round of {kind.words} is not the present one; allowed is each once, in order."
            )

    def _send(self, kind: Kind, bodies: dict[int, bytes]) -> dict[int, bytes]:
        sent = {one: encode(kind, self._session, one, body) for one, body in bodies.items()}
        if self.view is not None:
            self.view.sent.extend(sent.items())
        return sent
