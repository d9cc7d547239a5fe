"""What travels: exact widths, strict reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.secure_aggregation import Setting
from sfumato.secure_aggregation.messages import (
    Kind,
    Message,
    decode,
    encode,
    pack_records,
    pack_request,
    pack_words,
    read_records,
    read_request,
    read_words,
    require_kind,
    require_size,
)

SESSION = bytes(range(16))


def _body(kind: Kind, body: bytes) -> Message:
    return decode(encode(kind, SESSION, 1, body), SESSION)


@given(st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=40))
def test_a_message_is_read_as_it_was_written(kind: Kind, identity: int, body: bytes) -> None:
    message = encode(kind, SESSION, identity, body)
    assert len(message) == 22 + len(body)
    assert decode(message, SESSION) == decode(message, None) == Message(kind, SESSION, identity, body)


@given(st.binary(max_size=60))
def test_bytes_are_a_message_or_refused(message: bytes) -> None:
    try:
        read = decode(message, None)
    except SfumatoError:
        return
    assert encode(read.kind, read.session, read.identity, read.body) == message


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "header of 22"),
        (bytes(21), "header of 22"),
        (None, "header of 22"),
        ("text" * 9, "header of 22"),
        (bytearray(30), "header of 22"),
        (bytes(30), "version is 0; allowed is 1"),
        (b"\x01\x08" + bytes(30), "kind is 8; allowed are 0 to 7"),
        (encode(Kind.KEYS, bytes(16), 0, b""), "keys.* another session"),
    ],
)
def test_what_is_no_message_of_the_session_is_refused_in_one_sentence(message: Any, words: str) -> None:
    with pytest.raises(SfumatoError, match=words) as caught:
        decode(message, SESSION)
    assert str(caught.value).count(".") == 1


def test_kind_and_size_must_be_those_of_the_round() -> None:
    message = _body(Kind.KEYS, bytes(3))
    with pytest.raises(SfumatoError, match="kind keys; allowed in this round is shares"):
        require_kind(message, Kind.SHARES)
    with pytest.raises(SfumatoError, match="has 3 bytes after its header; allowed are 64"):
        require_size(message, 64)


@given(st.lists(st.tuples(st.integers(0, 99), st.binary(min_size=5, max_size=5)), max_size=6))
def test_records_are_read_if_each_identity_comes_once_and_in_order(records: list[tuple[int, bytes]]) -> None:
    message = _body(Kind.NEIGHBOURS, pack_records(records))
    identities = [identity for identity, _ in records]
    if identities == sorted(set(identities)):
        assert read_records(message, 5) == records
    else:
        with pytest.raises(SfumatoError, match="not ascending"):
            read_records(message, 5)


@given(st.binary(max_size=40))
def test_records_and_requests_of_any_bytes_are_read_or_refused(body: bytes) -> None:
    for kind, read in (
        (Kind.NEIGHBOURS, lambda message: read_records(message, 3)),
        (Kind.REQUEST, read_request),
    ):
        try:
            found = read(_body(kind, body))
        except SfumatoError:
            continue
        assert (pack_records(found) if kind == Kind.NEIGHBOURS else pack_request(*found)) == body


@pytest.mark.parametrize("body", [b"", b"\x01\x00\x00\x00", b"\xff\xff\xff\xff" + bytes(8), bytes(5)])
def test_a_request_that_says_too_little_is_refused(body: bytes) -> None:
    with pytest.raises(SfumatoError, match=r"allowed (is|are)"):
        read_request(_body(Kind.REQUEST, body))


@given(st.integers(1, 64), st.integers(1, 5), st.data())
def test_words_take_as_few_bytes_as_the_modulus_needs(bits: int, length: int, data: st.DataObject) -> None:
    setting = Setting(3, length, 2, 2, bits)
    drawn = data.draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=length, max_size=length))
    body = pack_words(np.array(drawn, np.uint64), setting.word_bytes)
    assert len(body) == length * ((bits + 7) // 8)
    assert read_words(_body(Kind.MASKED_INPUT, body), setting).tolist() == drawn


def test_words_beyond_the_modulus_are_refused() -> None:
    setting = Setting(3, 2, 2, 2, 12)
    with pytest.raises(SfumatoError, match="too large; allowed are 12 bits"):
        read_words(_body(Kind.MASKED_INPUT, b"\x00\x00\x00\x10"), setting)
    with pytest.raises(SfumatoError, match="has 3 bytes after its header; allowed are 4"):
        read_words(_body(Kind.MASKED_INPUT, bytes(3)), setting)
