"""Messages come back as they were sent, and nothing else is read as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.errors import SfumatoError
from sfumato.radiomap.messages import Broadcast, Upload, Withdrawal, read_answer

SESSION = bytes(range(16))
NUMBERS = arrays(np.float32, st.integers(1, 20), elements=st.floats(-(2.0**100), 2.0**100, width=32))
COUNTS = st.integers(0, 2**32 - 1)


def _samples() -> list[Any]:
    values = np.array([1.5, -2.0, 3.25], np.float32)
    return [
        Broadcast(SESSION, 3, "second", values),
        Upload(SESSION, 3, 5, 8, values),
        Withdrawal(SESSION, 3, 5),
    ]


@given(round_=COUNTS, phase=st.sampled_from(["first", "second", "joint"]), values=NUMBERS)
def test_a_broadcast_comes_back_as_it_was_sent(round_: int, phase: Any, values: np.ndarray) -> None:
    found = Broadcast.decode(Broadcast(SESSION, round_, phase, values).encode())
    assert (found.session, found.round, found.phase) == (SESSION, round_, phase)
    assert found.weights.tobytes() == values.tobytes()


@given(round_=COUNTS, client=COUNTS, examples=COUNTS, values=NUMBERS)
def test_an_upload_comes_back_as_it_was_sent(
    round_: int, client: int, examples: int, values: np.ndarray
) -> None:
    found = read_answer(Upload(SESSION, round_, client, examples, values).encode())
    assert isinstance(found, Upload)
    assert (found.session, found.round, found.client, found.examples) == (SESSION, round_, client, examples)
    assert found.delta.tobytes() == values.tobytes()


@given(round_=COUNTS, client=COUNTS)
def test_a_withdrawal_comes_back_as_it_was_sent(round_: int, client: int) -> None:
    sent = Withdrawal(SESSION, round_, client)
    assert read_answer(sent.encode()) == sent


@pytest.mark.parametrize("sent", _samples(), ids=lambda sent: type(sent).__name__)
def test_no_other_length_kind_or_format_is_read(sent: Any) -> None:
    data, kind = sent.encode(), type(sent)
    cut = [data[:length] for length in range(len(data))]
    for wrong in [*cut, data + b"\0", b"\2" + data[1:], bytearray(data), "text", None]:
        with pytest.raises(SfumatoError, match="allowed"):
            kind.decode(wrong)
    for other in _samples():
        if type(other) is not kind:
            with pytest.raises(SfumatoError, match="allowed here is"):
                other.decode(data + bytes(100))


def test_a_broadcast_of_an_unknown_phase_is_refused() -> None:
    data = bytearray(_samples()[0].encode())
    data[22] = 3
    with pytest.raises(SfumatoError, match="phase"):
        Broadcast.decode(bytes(data))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_on_both_sides(bad: float) -> None:
    values = np.array([1.0, bad, 2.0], np.float32)
    with pytest.raises(SfumatoError, match="not finite"):
        Upload(SESSION, 0, 0, 1, values)
    data = Upload(SESSION, 0, 0, 1, np.ones(3, np.float32)).encode()[:-12] + values.astype("<f4").tobytes()
    with pytest.raises(SfumatoError, match="not finite"):
        Upload.decode(data)


@pytest.mark.parametrize(
    "fields",
    [
        {"session": b"short"},
        {"session": "text"},
        {"round": -1},
        {"client": 2**32},
        {"examples": 1.0},
        {"client": True},
        {"delta": np.zeros(3)},
        {"delta": np.zeros((1, 3), np.float32)},
        {"delta": np.zeros(0, np.float32)},
    ],
)
def test_an_upload_that_could_not_be_sent_is_not_made(fields: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "session": SESSION,
        "round": 0,
        "client": 1,
        "examples": 2,
        "delta": np.zeros(3, np.float32),
    }
    with pytest.raises(SfumatoError, match="allowed"):
        Upload(**{**good, **fields})


def test_a_refusal_repeats_no_number_of_the_upload() -> None:
    values = np.array([12345.678, np.nan], np.float32)
    with pytest.raises(SfumatoError) as refused:
        Upload(SESSION, 0, 0, 1, values)
    assert "12345" not in str(refused.value)


def test_a_message_holds_its_own_copy() -> None:
    values = np.ones(3, np.float32)
    sent = Upload(SESSION, 0, 0, 1, values)
    values[:] = 7.0
    assert sent.delta.tolist() == [1.0, 1.0, 1.0]
    assert not sent.delta.flags.writeable
