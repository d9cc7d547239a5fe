"""What the parties of the federated training send one another, as bytes: versioned, of fixed layout, parsed strictly.

>>> import numpy as np
>>> sent = Upload(session=bytes(16), round=3, client=7, examples=4, delta=np.zeros(5, np.float32)).encode()
>>> len(sent), Upload.decode(sent).client
(54, 7)
>>> Upload.decode(sent[:-1])
Traceback (most recent call last):
sfumato.errors.SfumatoError: an upload of 53 bytes came; allowed are 54 bytes for its 5 numbers.

Every message starts with the version, its kind and the session's 16 random bytes; numbers are little-endian.
What does not parse is refused in one sentence that repeats nothing of the content, so that an error log holds
no data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Final, get_args

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.radiomap.client import Phase

VERSION: Final = 1
SESSION_BYTES: Final = 16
MOST_NUMBERS: Final = 2**28
_HEADER: Final = struct.Struct("<BB16s")
_COUNT: Final = 2**32


@dataclass(frozen=True, eq=False)
class Broadcast:
    """The server to the active clients: the weights at which the round begins.

    Attributes:
        session: 16 bytes that all messages of this training carry.
        round: from 0.
        phase: which stage learns.
        weights: (d,) float32, finite.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    session: bytes
    round: int
    phase: Phase
    weights: NDArray[np.float32]

    kind: ClassVar[int] = 81
    _LAYOUT: ClassVar = struct.Struct("<IBI")

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_session("a broadcast", self.session)
        _check_count("a broadcast", "round", self.round)
        if self.phase not in get_args(Phase):
            raise SfumatoError(f"a broadcast has no such phase; allowed is {' or '.join(get_args(Phase))}.")
        object.__setattr__(self, "weights", _checked_numbers("a broadcast", self.weights))

    def encode(self) -> bytes:
        """The message as bytes."""
        fields = (self.round, get_args(Phase).index(self.phase), len(self.weights))
        header = _HEADER.pack(VERSION, self.kind, self.session) + self._LAYOUT.pack(*fields)
        return header + self.weights.astype("<f4").tobytes()

    @classmethod
    def decode(cls, data: object) -> Broadcast:
        """The message in the bytes.

        Raises:
            SfumatoError: if they are none.
        """
        session, (number, phase, size), body = _opened("a broadcast", cls.kind, data, cls._LAYOUT)
        weights = _numbers("a broadcast", data, body, size)
        if phase >= len(get_args(Phase)):
            raise SfumatoError("a broadcast has no such phase; allowed is 0, 1 or 2.")
        return cls(session, number, get_args(Phase)[phase], weights)


@dataclass(frozen=True, eq=False)
class Upload:
    """A client to the server: its defended update.

    Attributes:
        session: as in the broadcast.
        round: likewise.
        client: its number.
        examples: how many maps it trained on, a public number.
        delta: (d,) float32, finite.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    session: bytes
    round: int
    client: int
    examples: int
    delta: NDArray[np.float32]

    kind: ClassVar[int] = 82
    _LAYOUT: ClassVar = struct.Struct("<IIII")

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_session("an upload", self.session)
        for name in ("round", "client", "examples"):
            _check_count("an upload", name, getattr(self, name))
        object.__setattr__(self, "delta", _checked_numbers("an upload", self.delta))

    def encode(self) -> bytes:
        """The message as bytes."""
        fields = (self.round, self.client, self.examples, len(self.delta))
        header = _HEADER.pack(VERSION, self.kind, self.session) + self._LAYOUT.pack(*fields)
        return header + self.delta.astype("<f4").tobytes()

    @classmethod
    def decode(cls, data: object) -> Upload:
        """The message in the bytes.

        Raises:
            SfumatoError: if they are none.
        """
        session, (number, client, examples, size), body = _opened("an upload", cls.kind, data, cls._LAYOUT)
        return cls(session, number, client, examples, _numbers("an upload", data, body, size))


@dataclass(frozen=True)
class Withdrawal:
    """A client to the server: nothing will come in this round, since the local training was not finite.

    Attributes:
        session: as in the broadcast.
        round: likewise.
        client: its number.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    session: bytes
    round: int
    client: int

    kind: ClassVar[int] = 83
    _LAYOUT: ClassVar = struct.Struct("<II")

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_session("a withdrawal", self.session)
        for name in ("round", "client"):
            _check_count("a withdrawal", name, getattr(self, name))

    def encode(self) -> bytes:
        """The message as bytes."""
        return _HEADER.pack(VERSION, self.kind, self.session) + self._LAYOUT.pack(self.round, self.client)

    @classmethod
    def decode(cls, data: object) -> Withdrawal:
        """The message in the bytes.

        Raises:
            SfumatoError: if they are none.
        """
        session, (number, client), body = _opened("a withdrawal", cls.kind, data, cls._LAYOUT)
        if len(body):
            raise SfumatoError("a withdrawal has bytes behind its end; allowed are none.")
        return cls(session, number, client)


def read_answer(data: object) -> Upload | Withdrawal:
    """What a client answered with.

    Raises:
        SfumatoError: if it is neither an upload nor a withdrawal.
    """
    withdrew = isinstance(data, bytes) and len(data) > 1 and data[1] == Withdrawal.kind
    return Withdrawal.decode(data) if withdrew else Upload.decode(data)


def _opened(
    name: str, kind: int, data: object, layout: struct.Struct
) -> tuple[bytes, tuple[int, ...], memoryview]:
    """(session, the fixed fields, what follows them)."""
    if not isinstance(data, bytes):
        raise SfumatoError(f"{name} came as {type(data).__name__}; allowed are bytes.")
    least = _HEADER.size + layout.size
    if len(data) < least:
        raise SfumatoError(f"{name} of {len(data)} bytes came; allowed are at least {least} bytes.")
    version, found, session = _HEADER.unpack_from(data)
    if version != VERSION:
        raise SfumatoError(f"{name} of format {version} came; allowed is format {VERSION}.")
    if found != kind:
        raise SfumatoError(f"a message of kind {found} came; allowed here is {name} ({kind}).")
    return session, layout.unpack_from(data, _HEADER.size), memoryview(data)[least:]


def _numbers(name: str, data: Any, body: memoryview, size: int) -> NDArray[np.float32]:
    if len(body) != 4 * size:
        raise SfumatoError(
            f"{name} of {len(data)} bytes came; allowed are {len(data) - len(body) + 4 * size} bytes for its {size} numbers."
        )
    return np.frombuffer(body, "<f4").astype(np.float32)


def _checked_numbers(name: str, values: NDArray[Any]) -> NDArray[np.float32]:
    """A read-only float32 copy, checked."""
    given = np.asarray(values)
    if given.ndim != 1 or not 1 <= len(given) <= MOST_NUMBERS or given.dtype != np.float32:
        raise SfumatoError(
            f"{name} has numbers of shape {given.shape} and {given.dtype}; allowed are 1 to {MOST_NUMBERS} of float32."
        )
    if not np.isfinite(given).all():
        raise SfumatoError(f"{name} has numbers that are not finite; allowed are finite ones.")
    copied = given.copy()
    copied.flags.writeable = False
    return copied


def _check_session(name: str, session: object) -> None:
    if not isinstance(session, bytes) or len(session) != SESSION_BYTES:
        raise SfumatoError(f"{name} has a session that is none; allowed are {SESSION_BYTES} bytes.")


def _check_count(name: str, field: str, value: object) -> None:
    if not is_integer(value) or not 0 <= value < _COUNT:  # type: ignore[operator]
        raise SfumatoError(
            f"{name} has a {field} that is none; allowed is an integer from 0 to {_COUNT - 1}."
        )
