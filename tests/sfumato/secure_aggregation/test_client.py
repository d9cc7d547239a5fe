"""A client refuses whatever is not as it should be, goes on as if that had not come, and never opens both secrets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.secure_aggregation import Client, Server, Setting
from sfumato.secure_aggregation.messages import (
    NEIGHBOUR_BYTES,
    SEALED_BYTES,
    Kind,
    decode,
    encode,
    pack_records,
    pack_request,
    read_records,
)
from tests.sfumato.secure_aggregation.exchange import SMALL, Exchange, damaged, seeded

Records = list[tuple[int, bytes]]


def _asked(number: int, seed: int = 0) -> tuple[Exchange, bytes]:
    """Client 0 is about to answer in round ``number``: the exchange, and the message that it would answer."""
    if number == 1:
        exchange = Exchange.start(seed=seed)
    else:
        exchange = Exchange.at(number - 1, seed=seed)
        exchange.deliver()
        exchange.close(number - 1)
    return exchange, exchange.to_clients[0]


def _changed(message: bytes, change: Callable[[Records], Records], width: int) -> bytes:
    read = decode(message, None)
    return encode(read.kind, read.session, read.identity, pack_records(change(read_records(read, width))))


def _request(message: bytes, alive: list[int], silent: list[int]) -> bytes:
    read = decode(message, None)
    return encode(Kind.REQUEST, read.session, read.identity, pack_request(alive, silent))


def _refused(number: int, exchange: Exchange, good: bytes, bad: Any, words: str) -> None:
    """The client refuses the message in one sentence, and then takes the one that should have come."""
    with pytest.raises(SfumatoError, match=words) as caught:
        exchange.ask(number, 0, bad)
    assert str(caught.value).endswith(".")
    assert str(caught.value).count(". ") == 0
    assert exchange.ask(number, 0, good)


@pytest.mark.parametrize("identity", [-1, 5, 1.0, True, "0", None])
def test_an_identity_that_is_none_is_refused(identity: Any) -> None:
    with pytest.raises(SfumatoError, match="allowed is an integer from 0 to 4"):
        Client(SMALL, identity, seeded())


def test_an_invitation_to_another_setting_is_refused() -> None:
    exchange, good = _asked(1)
    other = Server(Setting(5, 3, 4, 4), seeded()).invitation()
    _refused(1, exchange, good, other, "to another setting")
    longer, good = _asked(1)
    _refused(1, longer, good, good + b"\x00", "to another setting")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda records: records[:2], "has 2 neighbours left; allowed are at least 3"),
        (lambda records: [(0, records[0][1]), *records[:3]], "given neighbour 0; allowed are other clients"),
        (lambda records: [*records[:3], (5, records[3][1])], "given neighbour 5"),
        (lambda records: [*records, (9, records[3][1])], "given 5 neighbours; allowed are up to 4"),
        (lambda records: [records[0], records[0], *records[2:]], "not ascending"),
        (lambda records: records[::-1], "not ascending"),
        (
            lambda records: [(1, records[0][1][:32] + bytes(32)), *records[1:]],
            "public key of client 1 is a weak",
        ),
    ],
)
def test_neighbours_that_the_setting_does_not_allow_are_refused(
    change: Callable[[Records], Records], words: str
) -> None:
    exchange, good = _asked(2)
    _refused(2, exchange, good, _changed(good, change, NEIGHBOUR_BYTES), words)


def test_a_weak_key_for_masks_is_refused_before_the_vector_is_masked() -> None:
    exchange, good = _asked(2)
    weak = _changed(
        good, lambda records: [(1, bytes(32) + records[0][1][32:]), *records[1:]], NEIGHBOUR_BYTES
    )
    exchange.to_clients[0] = weak
    exchange.answer(2)
    exchange.deliver()
    exchange.close(2)
    with pytest.raises(SfumatoError, match="public key of client 1 is a weak one"):
        exchange.ask(3, 0, exchange.to_clients[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda records: records[:2], "has 2 neighbours left"),
        (lambda records: [*records[:3], (7, records[3][1])], "about client 7; allowed are its neighbours"),
        (
            lambda records: [(1, records[1][1]), *records[1:]],
            "shares from client 1 to client 0 are not authentic",
        ),
        (
            lambda records: [(1, bytes(SEALED_BYTES)), *records[1:]],
            "from client 1 to client 0 are not authentic",
        ),
        (lambda records: records[1:] + records[:1], "not ascending"),
    ],
)
def test_shares_that_the_neighbours_did_not_seal_for_it_are_refused(
    change: Callable[[Records], Records], words: str
) -> None:
    exchange, good = _asked(3)
    _refused(3, exchange, good, _changed(good, change, SEALED_BYTES), words)


def test_shares_that_were_sealed_for_somebody_else_are_refused() -> None:
    exchange, good = _asked(3)
    elsewhere = dict(read_records(decode(exchange.to_clients[1], None), SEALED_BYTES))
    swapped = _changed(good, lambda records: [records[0], (2, elsewhere[2]), *records[2:]], SEALED_BYTES)
    _refused(3, exchange, good, swapped, "from client 2 to client 0 are not authentic")


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(2, int),
        np.zeros((1, 3), int),
        np.zeros(3),
        np.array([True, False, True]),
        np.array([0, 0, 1 << 31]),
        np.array([0, 0, -(1 << 31) - 1]),
        np.array([0, 0, 1 << 63], np.uint64),
        np.array([0, 1, None]),
        "text",
        None,
    ],
)
def test_a_vector_that_does_not_fit_is_refused_without_its_numbers(vector: Any) -> None:
    exchange, good = _asked(3)
    with pytest.raises(SfumatoError, match=r"allowed are integers (of shape|from)") as caught:
        exchange.clients[0].mask(good, vector)
    assert "9223372036854775808" not in str(caught.value)
    assert exchange.ask(3, 0, good)


@pytest.mark.parametrize("client", range(1, 5))
def test_both_secrets_of_one_neighbour_are_never_opened(client: int) -> None:
    exchange, good = _asked(4)
    alive = [1, 2, 3, 4]
    bad = _request(good, alive, [client])
    _refused(4, exchange, good, bad, f"both secrets of client {client}; allowed is one of each")


def test_a_second_request_is_refused_whatever_it_asks() -> None:
    exchange, good = _asked(4)
    exchange.ask(4, 0, good)
    for again in (good, _request(good, [1, 2, 3], [4])):
        with pytest.raises(SfumatoError, match="client 0 was asked out of turn"):
            exchange.ask(4, 0, again)


@pytest.mark.parametrize(
    ("alive", "silent", "words"),
    [
        ([1, 2, 3], [], "names 3 neighbours; allowed is each of the 4"),
        ([1, 2, 3, 4], [9], "about client 9; allowed are its neighbours"),
        ([0, 1, 2, 3, 4], [], "about client 0; allowed are its neighbours"),
        ([1, 2], [3, 4], "has 2 neighbours left; allowed are at least 3"),
        ([1, 1, 2, 3], [], "not ascending"),
        ([4, 3, 2, 1], [], "not ascending"),
        ([1, 2, 3], [4, 4], "not ascending"),
    ],
)
def test_a_request_must_name_each_neighbour_once_and_enough_of_them_as_left(
    alive: list[int], silent: list[int], words: str
) -> None:
    exchange, good = _asked(4)
    _refused(4, exchange, good, _request(good, alive, silent), words)


def test_opened_are_the_seeds_shares_of_the_living_and_the_keys_shares_of_the_silent() -> None:
    """The two halves of a share are opened as the request says, and neither holds the other."""
    one, good = _asked(4)
    other, _ = _asked(4)
    seeds = decode(one.ask(4, 0, good), None).body
    mixed = decode(other.ask(4, 0, _request(good, [1, 2, 3], [4])), None).body
    assert mixed[:108] == seeds[:108]
    assert len(mixed) == len(seeds) == 144
    assert mixed[108:] != seeds[108:]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_every_round_is_answered_once_and_in_order(number: int) -> None:
    exchange, good = _asked(number)
    for other in {1, 2, 3, 4} - {number}:
        with pytest.raises(SfumatoError, match="client 0 was asked out of turn"):
            exchange.ask(other, 0, good)
    exchange.ask(number, 0, good)
    with pytest.raises(SfumatoError, match="client 0 was asked out of turn"):
        exchange.ask(number, 0, good)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_messages_of_another_session_or_for_another_client_are_refused(number: int) -> None:
    exchange, good = _asked(number)
    _, replayed = _asked(number, seed=1)
    with pytest.raises(SfumatoError, match="is of another session"):
        exchange.ask(number, 0, replayed)
    _refused(number, exchange, good, exchange.to_clients[1], "addressed to client 1; allowed is 0")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_no_bytes_do_anything_but_be_refused(number: int, data: st.DataObject) -> None:
    """Damaged messages, five in a row; the sound one is taken afterwards."""
    exchange, good = _asked(number)
    for bad in data.draw(st.lists(damaged(good), min_size=5, max_size=5)):
        if number == 1 and bad[:2] + bad[18:] == good[:2] + good[18:]:
            continue  # the invitation to another session is as good
        if number == 2 and bad[:22] == good[:22] and (len(bad) - 22) % ((len(good) - 22) // 4) == 0:
            continue  # other public keys are as good, and so are fewer neighbours, some of whom may have gone
        with pytest.raises(SfumatoError):
            exchange.ask(number, 0, bad)
    assert exchange.ask(number, 0, good)


def test_bytes_with_a_good_header_are_an_invitation_or_neighbours_or_refused() -> None:
    rng = np.random.default_rng(0)
    for number in (1, 2):
        for _ in range(40):
            exchange, good = _asked(number)
            body = bytearray(good)
            body[int(rng.integers(22, len(good)))] ^= int(rng.integers(1, 256))
            cut = bytes(body)[: int(rng.integers(22, len(good) + 1))]
            try:
                answer = exchange.ask(number, 0, cut)
            except SfumatoError:
                continue
            assert len(answer) == (86 if number == 1 else 22 + 32 + 4 * SEALED_BYTES)


def test_two_clients_and_two_sessions_share_no_bytes_of_keys_or_masks() -> None:
    exchange = Exchange.at(3)
    other = Exchange.at(3, seed=1)
    bodies = [
        decode(message, None).body for message in [*exchange.to_server.values(), *other.to_server.values()]
    ]
    assert all(one != next_one for one, next_one in pairwise(sorted(bodies)))


def test_no_error_holds_a_secret_or_an_input() -> None:
    """Every refusal that these messages cause, searched for the client's secrets in bytes, hexadecimal and decimal."""
    exchange = Exchange.at(3)
    exchange.vectors[0] = [123456789, 987654321, 555555555]
    client = exchange.clients[0]
    secrets = [share for share in client._held.values()]
    exchange.deliver()
    exchange.close(3)
    good = exchange.to_clients[0]
    texts = []
    for bad in (
        b"",
        good[:-1],
        good + b"\x00",
        _request(good, [1, 2, 3, 4], [1]),
        _request(good, [1, 2], [3, 4]),
    ):
        with pytest.raises(SfumatoError) as caught:
            client.unmask(bad)
        texts.append(str(caught.value))
    for text in texts:
        assert not any(secret.hex()[:8] in text or repr(secret)[2:10] in text for secret in secrets)
        assert not any(str(number) in text for number in exchange.vectors[0])
        assert len(text) < 200
