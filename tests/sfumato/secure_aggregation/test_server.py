"""The server takes each message once, from whom it claims to be, in its round; too few clients end everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.secure_aggregation import AggregationAbortedError, Server, Setting
from sfumato.secure_aggregation.messages import Kind, decode, encode
from sfumato.secure_aggregation.shamir import SHARE_BYTES
from tests.sfumato.secure_aggregation.exchange import SMALL, Exchange, damaged, seeded

SPARSE = Setting(clients=12, length=2, degree=4, threshold=3)


def _finish(exchange: Exchange, number: int) -> np.ndarray:
    """Deliver what is there and go on to the end."""
    for later in range(number, 5):
        if later > number:
            exchange.answer(later)
        exchange.deliver()
        if later < 4:
            exchange.close(later)
    return exchange.server.finish()[0]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_message_in_anothers_name_is_refused(number: int) -> None:
    exchange = Exchange.at(number)
    for sender in (1, 4, -1, 5, None, "0", 0.0, True):
        with pytest.raises(SfumatoError, match="in the name of client 0 came from"):
            exchange.server.receive(sender, exchange.to_server[0])  # type: ignore[arg-type]
    assert np.array_equal(_finish(exchange, number), exchange.vectors.sum(axis=0))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_second_message_in_a_round_is_refused_and_the_first_counts(number: int) -> None:
    exchange = Exchange.at(number)
    exchange.server.receive(0, exchange.to_server[0])
    with pytest.raises(SfumatoError, match=r"client 0 sent .* twice|is known already"):
        exchange.server.receive(0, exchange.to_server[0])
    exchange.to_server.pop(0)
    assert np.array_equal(_finish(exchange, number), exchange.vectors.sum(axis=0))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_messages_of_other_rounds_and_sessions_are_refused(number: int) -> None:
    exchange = Exchange.at(number)
    other = Exchange.at(number, seed=1)
    with pytest.raises(SfumatoError, match="is of another session"):
        exchange.server.receive(0, other.to_server[0])
    for kind in Kind:
        if kind == 2 * number - 1:
            continue
        read = decode(exchange.to_server[0], None)
        with pytest.raises(SfumatoError, match="allowed in this round is"):
            exchange.server.receive(0, encode(kind, read.session, 0, read.body))
    assert np.array_equal(_finish(exchange, number), exchange.vectors.sum(axis=0))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m + b"\x00", lambda m: m[:22], lambda m: b""])
def test_a_message_of_another_length_is_refused(number: int, change: Callable[[bytes], bytes]) -> None:
    exchange = Exchange.at(number)
    with pytest.raises(SfumatoError, match=r"allowed are"):
        exchange.server.receive(0, change(exchange.to_server[0]))
    assert np.array_equal(_finish(exchange, number), exchange.vectors.sum(axis=0))


@pytest.mark.parametrize("number", [2, 3, 4])
def test_who_was_silent_is_not_awaited_any_more(number: int) -> None:
    exchange = Exchange.at(number - 1)
    exchange.to_server.pop(0)
    exchange.deliver()
    exchange.close(number - 1)
    read = decode(Exchange.at(number).to_server[0], None)
    with pytest.raises(SfumatoError, match="client 0 is not awaited; allowed are"):
        exchange.server.receive(0, encode(read.kind, read.session, 0, read.body))


def test_a_key_that_somebody_else_advertised_is_refused() -> None:
    exchange = Exchange.at(1)
    exchange.server.receive(0, exchange.to_server[0])
    copied = decode(exchange.to_server[0], None)
    for body in (copied.body, copied.body[32:] + copied.body[:32], copied.body[:32] * 2, bytes(64)):
        with pytest.raises(SfumatoError, match="client 1 advertised a key that is known already"):
            exchange.server.receive(1, encode(Kind.KEYS, copied.session, 1, body))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_no_bytes_do_anything_but_be_taken_or_refused(number: int, data: st.DataObject) -> None:
    """Damaged messages; the server then still takes the other clients'."""
    exchange = Exchange.at(number)
    good = exchange.to_server.pop(0)
    for bad in data.draw(st.lists(damaged(good), min_size=5, max_size=5)):
        if len(bad) == len(good) and bad[:22] == good[:22]:
            exchange.server.receive(0, bad)
            break
        with pytest.raises(SfumatoError) as caught:
            exchange.server.receive(0, bad)
        assert len(str(caught.value)) < 200
    exchange.deliver()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_rounds_are_closed_once_and_in_order(number: int) -> None:
    exchange = Exchange.at(number)
    server = exchange.server
    closers = [server.close_keys, server.close_shares, server.close_masked, server.finish]
    exchange.deliver()
    for place, close in enumerate(closers, start=1):
        if place != number:
            with pytest.raises(SfumatoError, match="is not the present one; allowed is each once"):
                close()
    closers[number - 1]()
    with pytest.raises(SfumatoError, match="is not the present one"):
        closers[number - 1]()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_too_few_clients_abort_in_every_round_and_nothing_is_revealed(number: int) -> None:
    """Two of five go where the threshold lets one go (each needs three others): the server sends nothing, holds no
    masked vector and no share, and takes nothing any more."""
    exchange = Exchange.at(number)
    message = exchange.to_server[4]
    kept = {one: exchange.to_server[one] for one in (0, 1, 2)}
    exchange.to_server = kept
    exchange.deliver()
    server = exchange.server
    close = [server.close_keys, server.close_shares, server.close_masked, server.finish][number - 1]
    with pytest.raises(
        AggregationAbortedError, match=r"neighbours left where 3 are needed; the aggregation stops"
    ) as caught:
        close()
    assert isinstance(caught.value, SfumatoError)
    assert not server._masked
    assert not server._shares
    assert not server._sealed
    with pytest.raises(SfumatoError, match="the aggregation is over"):
        server.receive(4, message)
    with pytest.raises(SfumatoError, match="is not the present one"):
        close()


def test_fewer_survivors_than_agreed_abort_before_any_share_is_asked_for() -> None:
    exchange = Exchange.at(3, Setting(6, 2, 5, 3, survivors=6))
    exchange.to_server.pop(2)
    exchange.deliver()
    with pytest.raises(AggregationAbortedError, match="5 clients are left where 6 are needed"):
        exchange.server.close_masked()


def test_one_client_without_enough_neighbours_aborts_a_sparse_aggregation() -> None:
    exchange = Exchange.at(3, SPARSE)
    lonely = exchange.server._neighbours[0]
    for gone in lonely[:2]:
        exchange.to_server.pop(gone)
    exchange.deliver()
    with pytest.raises(AggregationAbortedError, match=r"client .* has 2 neighbours left where 3 are needed"):
        exchange.server.close_masked()


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("flip", [1, 0x8000])
def test_a_false_share_is_noticed(silent: bool, flip: int) -> None:
    """Of a survivor's seed and of a silent client's mask key, in the second word, as X25519 ignores a key's lowest bits."""
    exchange = Exchange.at(3)
    if silent:
        exchange.to_server.pop(4)
    exchange.deliver()
    exchange.close(3)
    exchange.answer(4)
    place = 24 + (3 if silent else 0) * SHARE_BYTES
    good = exchange.to_server[0]
    word = int.from_bytes(good[place : place + 2], "little") ^ flip
    exchange.to_server[0] = good[:place] + word.to_bytes(2, "little") + good[place + 2 :]
    exchange.deliver()
    owner = 4 if silent else 1
    with pytest.raises(
        AggregationAbortedError, match=f"shares of client {owner} do not give back what it committed"
    ):
        exchange.server.finish()


def test_a_false_commitment_is_noticed() -> None:
    exchange = Exchange.at(2)
    good = exchange.to_server[3]
    exchange.to_server[3] = good[:22] + bytes(32) + good[54:]
    with pytest.raises(AggregationAbortedError, match="shares of client 3 do not give back"):
        _finish(exchange, 2)


def test_shares_are_relayed_to_their_addressees_alone() -> None:
    exchange = Exchange.at(2)
    exchange.deliver()
    relayed = exchange.server.close_shares()
    sent = decode(exchange.to_server[0], None).body[32:]
    parts = [sent[start : start + 88] for start in range(0, len(sent), 88)]
    for one, message in relayed.items():
        assert [part in message for part in parts] == [one == other for other in (1, 2, 3, 4)]


@pytest.mark.parametrize("source", [lambda count: b"", lambda count: bytes(count + 1)])
def test_a_source_of_entropy_that_gives_another_number_of_bytes_is_refused(source: Any) -> None:
    with pytest.raises(SfumatoError, match="source of entropy gave"):
        Server(SMALL, source)


def test_a_server_that_does_not_record_has_no_view() -> None:
    assert Server(SMALL, seeded()).view is None
