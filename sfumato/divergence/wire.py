"""The bytes that every message of the protocol begins with, and the sentences that refuse what is no message.

>>> session, body = open_message("result", begin("result", bytes(16)) + b"abc", size=21)
>>> len(session), body
(16, b'abc')

Errors name kinds, lengths and what is allowed, never what a message holds.
"""

from __future__ import annotations

import struct

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError

VERSION = 1
SESSION_BYTES = 16
HEADER = struct.Struct("<BB16s")
_KINDS = {
    "announcement": 65,
    "enrolment": 66,
    "admission": 67,
    "result": 68,
    "table of noisy counts": 69,
}
"""Other numbers than those of the secure aggregation's messages, which travel between the same parties."""


def begin(kind: str, session: bytes) -> bytes:
    """The 18 bytes of the header: version, kind, session."""
    return HEADER.pack(VERSION, _KINDS[kind], session)


def article(kind: str) -> str:
    """The name of a kind or a field with its article."""
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def open_message(kind: str, data: object, size: int | None) -> tuple[bytes, bytes]:
    """(session, body) of a message of that kind.

    Args:
        kind: which message is expected.
        data: what came.
        size: of the whole message, or None where the body tells.

    Raises:
        SfumatoError: if it is no message of this format, kind and size.
    """
    if not isinstance(data, bytes):
        raise SfumatoError(f"{article(kind)} came as {type(data).__name__}; allowed are bytes.")
    if len(data) < HEADER.size or (size is not None and len(data) != size):
        allowed = f"{size} bytes" if size is not None else f"at least {HEADER.size} bytes"
        raise SfumatoError(f"{article(kind)} of {len(data)} bytes came; allowed are {allowed}.")
    version, number, session = HEADER.unpack_from(data)
    if version != VERSION:
        raise SfumatoError(f"{article(kind)} of format {version} came; allowed is format {VERSION}.")
    if number != _KINDS[kind]:
        raise SfumatoError(
            f"a message of kind {number} came; allowed here is {article(kind)} ({_KINDS[kind]})."
        )
    return session, data[HEADER.size :]


def check_field(kind: str, field: str, allowed: str, valid: bool) -> None:
    """Refuse a field that is not valid, without repeating it.

    Raises:
        SfumatoError: unless ``valid``.
    """
    if not valid:
        raise SfumatoError(f"{article(kind)} has {article(field)} that is none; allowed is {allowed}.")


def check_count(kind: str, field: str, value: object, low: int, high: int) -> None:
    """Refuse a field that is no integer of the range, without repeating it.

    Raises:
        SfumatoError: unless it is one.
    """
    check_field(kind, field, f"an integer from {low} to {high}", is_whole(value, low, high))


def check_session(kind: str, session: object) -> None:
    """Refuse what names no session.

    Raises:
        SfumatoError: unless it is 16 bytes.
    """
    valid = isinstance(session, bytes) and len(session) == SESSION_BYTES
    check_field(kind, "session", f"{SESSION_BYTES} bytes", valid)


def is_within(value: object, low: float, high: float) -> bool:
    """Whether the value is a number of the range."""
    return is_number(value) and low <= value <= high  # type: ignore[operator]


def is_whole(value: object, low: int, high: int) -> bool:
    """Whether the value is an integer of the range."""
    return is_integer(value) and low <= int(value) <= high  # type: ignore[call-overload]
