"""Messages: what is sent is what is read, and no other bytes are read."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.divergence.messages import Admission, Announcement, Enrolment, NoisyCounts, Result
from sfumato.errors import SfumatoError

SESSION = bytes(range(16))
KINDS = (Announcement, Enrolment, Admission, Result, NoisyCounts)


def announcement(**changes: object) -> Announcement:
    """A valid one with some fields changed."""
    fields: dict[str, object] = {
        "session": SESSION,
        "trust": "distributed",
        "digest": bytes(32),
        "cells": np.array([2, 5, 9], np.int32),
        "multiplicities": np.array([4, 1, 5]),
        "floor": "clip",
        "level": 0.1,
        "ceiling": 3.0,
        "coefficient": 0.5,
        "epsilon": 1.0,
        "delta": 1e-5,
    }
    return Announcement(**{**fields, **changes})  # type: ignore[arg-type]


SAMPLES = (
    announcement(),
    announcement(floor="mix", ceiling=None, multiplicities=np.zeros(3, np.int64), trust="trusted_aggregator"),
    Enrolment(SESSION, 7, 104),
    Admission(SESSION, 7, 3, 10, 8, 9, 6, 32),
    Result(SESSION, 8, 2000, True, -0.25),
    NoisyCounts(SESSION, 10, 8, 9, 2000, np.array([-3, 2**40, 17])),
)


def same(left: object, right: object) -> bool:
    """Whether two messages have equal fields."""
    pairs = zip(vars(left).values(), vars(right).values(), strict=True)
    return type(left) is type(right) and all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("sent", SAMPLES, ids=lambda sent: type(sent).__name__)
def test_what_is_sent_is_read(sent: Announcement) -> None:
    assert same(type(sent).decode(sent.encode()), sent)


@given(
    cells=st.sets(st.integers(0, 65_535), min_size=1, max_size=40),
    data=st.data(),
    level=st.floats(1e-9, 0.99),
    coefficient=st.floats(0, 10),
    epsilon=st.floats(1e-3, 100),
    share=st.floats(0, 0.9),
)
@settings(deadline=None, max_examples=100)
def test_any_announcement_survives_the_wire(
    cells: set[int], data: st.DataObject, level: float, coefficient: float, epsilon: float, share: float
) -> None:
    times = data.draw(st.lists(st.integers(1, 2**32 - 1), min_size=len(cells), max_size=len(cells)))
    sent = announcement(
        cells=np.array(sorted(cells), np.int32),
        multiplicities=np.array(times),
        level=level,
        coefficient=coefficient,
        epsilon=epsilon,
        corrupted_share=share,
    )
    read = Announcement.decode(sent.encode())
    assert same(read, sent)
    assert read.draws == sum(times)


@pytest.mark.parametrize("sent", SAMPLES, ids=lambda sent: type(sent).__name__)
def test_every_other_length_is_refused(sent: Announcement) -> None:
    whole = sent.encode()
    for other in [*(whole[:size] for size in range(len(whole))), whole + b"\0", whole * 2]:
        with pytest.raises(SfumatoError, match="allowed"):
            type(sent).decode(other)


@pytest.mark.parametrize("sent", SAMPLES, ids=lambda sent: type(sent).__name__)
def test_other_kinds_and_versions_are_refused(sent: Announcement) -> None:
    whole = sent.encode()
    for kind in KINDS:
        if not isinstance(sent, kind):
            with pytest.raises(SfumatoError, match="allowed"):
                kind.decode(whole)
    with pytest.raises(SfumatoError, match="of format 2 came; allowed is format 1"):
        type(sent).decode(b"\x02" + whole[1:])


@given(noise=st.binary(max_size=300), kind=st.sampled_from(KINDS))
@settings(deadline=None, max_examples=300)
def test_no_bytes_do_more_than_be_refused(noise: bytes, kind: type[Announcement]) -> None:
    for data in (noise, kind(**vars(next(s for s in SAMPLES if type(s) is kind))).encode()[:18] + noise):
        try:
            read = kind.decode(data)
        except SfumatoError:
            continue
        assert read.encode() == data


@given(sent=st.sampled_from(SAMPLES), place=st.integers(0, 10_000), flip=st.integers(1, 255))
@settings(deadline=None, max_examples=400)
def test_a_changed_byte_is_refused_or_read_as_it_is(sent: Announcement, place: int, flip: int) -> None:
    changed = bytearray(sent.encode())
    changed[place % len(changed)] ^= flip
    try:
        read = type(sent).decode(bytes(changed))
    except SfumatoError:
        return
    assert read.encode() == bytes(changed)


@pytest.mark.parametrize("data", [None, "text", bytearray(30), 5, [1]])
def test_what_is_not_bytes_is_refused(data: object) -> None:
    with pytest.raises(SfumatoError, match="allowed are bytes"):
        Enrolment.decode(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"session": b"short"},
        {"trust": "nobody"},
        {"digest": b""},
        {"cells": np.array([], np.int32), "multiplicities": np.array([], np.int64)},
        {"cells": np.array([2, 2, 9], np.int32)},
        {"cells": np.array([9, 5, 2], np.int32)},
        {"cells": np.array([-1, 5, 9], np.int32)},
        {"multiplicities": np.array([4, 0, 5])},
        {"multiplicities": np.array([4, 1])},
        {"multiplicities": np.array([4, 1, 2**32])},
        {"floor": "none"},
        {"level": float("nan")},
        {"ceiling": float("inf")},
        {"coefficient": -1.0},
        {"epsilon": 0.0},
        {"epsilon": float("nan")},
        {"delta": 1.0},
        {"confidence": 0.0},
        {"corrupted_share": 1.0},
    ],
    ids=str,
)
def test_an_announcement_of_impossible_fields_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(
        SfumatoError, match=r"an announcement has (a [^aeiou]|an [aeiou]).* that is none; allowed is"
    ):
        announcement(**changes)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Enrolment, (SESSION, -1, 5)),
        (Enrolment, (SESSION, 1, 0)),
        (Enrolment, (SESSION, 1, 2**60)),
        (Admission, (SESSION, 7, 10, 10, 8, 9, 6, 32)),
        (Admission, (SESSION, 7, 3, 1, 1, 1, 1, 32)),
        (Admission, (SESSION, 7, 3, 10, 11, 9, 6, 32)),
        (Admission, (SESSION, 7, 3, 10, 8, 10, 6, 32)),
        (Admission, (SESSION, 7, 3, 10, 8, 9, 10, 32)),
        (Admission, (SESSION, 7, 3, 10, 8, 9, 6, 65)),
        (Result, (SESSION, 1, 2000, True, 0.1)),
        (Result, (SESSION, 8, 1, True, 0.1)),
        (Result, (SESSION, 8, 2000, 2, 0.1)),
        (Result, (SESSION, 8, 2000, True, float("nan"))),
        (NoisyCounts, (SESSION, 10, 8, 7, 2000, np.array([1]))),
        (NoisyCounts, (SESSION, 10, 8, 11, 2000, np.array([1]))),
        (NoisyCounts, (SESSION, 10, 8, 9, 2000, np.array([], np.int64))),
    ],
)
def test_other_impossible_fields_are_refused(kind: type[Result], fields: tuple[object, ...]) -> None:
    with pytest.raises(SfumatoError, match="that is none; allowed is"):
        kind(*fields)  # type: ignore[arg-type]


def test_a_refusal_repeats_nothing_of_the_content() -> None:
    secret = struct.pack("<d", 123.456)
    whole = Result(SESSION, 8, 2000, True, 123.456).encode()
    assert secret in whole
    for broken in (whole[:-1], whole + b"1", b"\x02" + whole[1:], whole[:1] + b"\x41" + whole[2:]):
        with pytest.raises(SfumatoError) as caught:
            Result.decode(broken)
        assert not re.search(r"123|2000", str(caught.value))
