"""What travels: a header of 22 bytes, then fields of fixed width; nothing is read that is not exactly as it should be.

>>> message = encode(Kind.KEYS, bytes(16), 3, bytes(64))
>>> decode(message, bytes(16)).identity, len(message)
(3, 86)

The header is the format's version, the kind, the session (16 bytes) and an identity: the sender's in what a client
sends, the addressee's in what the server sends. Integers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.secure_aggregation.masking import KEY_BYTES, TAG_BYTES
from sfumato.secure_aggregation.setting import Setting
from sfumato.secure_aggregation.shamir import SHARE_BYTES

VERSION: Final = 1
SESSION_BYTES: Final = 16
EVERYBODY: Final = 0xFFFF_FFFF
SEALED_BYTES: Final = 2 * SHARE_BYTES + TAG_BYTES
COMMITMENT_BYTES: Final = 32
_HEADER: Final = struct.Struct("<BB16sI")
_SETTING: Final = struct.Struct("<IIIIBI")
_IDENTITY_BYTES: Final = 4


class Kind(IntEnum):
    """What a message is; even ones come from the server, odd ones from a client."""

    INVITATION = 0
    KEYS = 1
    NEIGHBOURS = 2
    SHARES = 3
    RELAYED_SHARES = 4
    MASKED_INPUT = 5
    REQUEST = 6
    OPENED_SHARES = 7

    @property
    def words(self) -> str:
        """The kind as a reader would write it."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Message:
    """A message whose header has been read.

    Attributes:
        kind: what it is.
        session: 16 bytes.
        identity: the sender's or the addressee's.
        body: what follows the header, unread.
    """

    kind: Kind
    session: bytes
    identity: int
    body: bytes


def encode(kind: Kind, session: bytes, identity: int, body: bytes) -> bytes:
    """The bytes of a message."""
    return _HEADER.pack(VERSION, kind, session, identity) + body


def decode(message: object, session: bytes | None) -> Message:
    """Read the header.

    Args:
        message: what was received.
        session: which session it must be of; None if any.

    Raises:
        SfumatoError: if it is no message of this format or is of another session.
    """
    if not isinstance(message, bytes) or len(message) < _HEADER.size:
        raise SfumatoError(
            f"a message is no bytes with a header of {_HEADER.size}; allowed are whole messages."
        )
    version, kind, own, identity = _HEADER.unpack_from(message)
    if version != VERSION:
        raise SfumatoError(f"a message's version is {version}; allowed is {VERSION}.")
    if kind not in Kind.__members__.values():
        raise SfumatoError(f"a message's kind is {kind}; allowed are 0 to {max(Kind)}.")
    if session is not None and own != session:
        raise SfumatoError(
            f"a message ({Kind(kind).words}) is of another session; allowed is the present one."
        )
    return Message(Kind(kind), own, identity, message[_HEADER.size :])


def require_kind(message: Message, kind: Kind) -> None:
    """Refuse a message of another kind, such as one out of its round.

    Raises:
        SfumatoError: naming both kinds.
    """
    if message.kind != kind:
        raise SfumatoError(
            f"a message is of kind {message.kind.words}; allowed in this round is {kind.words}."
        )


def require_size(message: Message, size: int) -> None:
    """Refuse a message whose body has another length.

    Raises:
        SfumatoError: naming both lengths.
    """
    if len(message.body) != size:
        raise SfumatoError(
            f"a message ({message.kind.words}) has {len(message.body)} bytes after its header; allowed are {size}."
        )


def pack_setting(setting: Setting) -> bytes:
    """A setting's fields in their order."""
    return _SETTING.pack(*astuple(setting))


def _split(message: Message, width: int) -> list[bytes]:
    """The body in records of that width."""
    if len(message.body) % width:
        raise SfumatoError(
            f"a message ({message.kind.words}) has {len(message.body)} bytes after its header; allowed is a multiple of "
            f"{width}."
        )
    return [message.body[start : start + width] for start in range(0, len(message.body), width)]


def _ascending(message: Message, identities: Sequence[int]) -> None:
    if any(later <= earlier for earlier, later in pairwise(identities)):
        raise SfumatoError(
            f"the identities of a message ({message.kind.words}) are not ascending; allowed is each once, in order."
        )


def pack_records(records: Sequence[tuple[int, bytes]]) -> bytes:
    """Identities, each followed by its bytes."""
    return b"".join(identity.to_bytes(_IDENTITY_BYTES, "little") + content for identity, content in records)


def read_records(message: Message, width: int) -> list[tuple[int, bytes]]:
    """Identities in ascending order, each with its ``width`` bytes.

    Raises:
        SfumatoError: if the length is wrong, or an identity comes twice or out of order.
    """
    parts = _split(message, _IDENTITY_BYTES + width)
    records = [(int.from_bytes(part[:_IDENTITY_BYTES], "little"), part[_IDENTITY_BYTES:]) for part in parts]
    _ascending(message, [identity for identity, _ in records])
    return records


NEIGHBOUR_BYTES: Final = 2 * KEY_BYTES
"""Of a record of ``NEIGHBOURS``: the public key of masks, then that of sealed shares."""


def pack_request(alive: Sequence[int], silent: Sequence[int]) -> bytes:
    """Whose self-mask share is asked for, then whose mask-key share."""
    return len(alive).to_bytes(_IDENTITY_BYTES, "little") + np.array([*alive, *silent], "<u4").tobytes()


def read_request(message: Message) -> tuple[list[int], list[int]]:
    """Whose self-mask share is asked for, and whose mask-key share; each list ascends.

    Raises:
        SfumatoError: if the length is wrong, or an identity comes twice or out of order in one list.
    """
    parts = [int.from_bytes(part, "little") for part in _split(message, _IDENTITY_BYTES)]
    if not parts or parts[0] >= len(parts):
        raise SfumatoError("a request does not say whom it is about; allowed are whole requests.")
    alive, silent = parts[1 : 1 + parts[0]], parts[1 + parts[0] :]
    _ascending(message, alive)
    _ascending(message, silent)
    return alive, silent


def pack_words(words: NDArray[np.uint64], width: int) -> bytes:
    """The low ``width`` bytes of each word."""
    return words.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()


def read_words(message: Message, setting: Setting) -> NDArray[np.uint64]:
    """(length,) words below 2^modulus_bits.

    Raises:
        SfumatoError: if there are not as many as the setting says, or one is too large.
    """
    width = setting.word_bytes
    require_size(message, setting.length * width)
    padded = np.zeros((setting.length, 8), np.uint8)
    padded[:, :width] = np.frombuffer(message.body, np.uint8).reshape(-1, width)
    words = padded.reshape(-1).view("<u8").astype(np.uint64)
    if setting.modulus_bits < 64 and np.any(words >> np.uint64(setting.modulus_bits)):
        raise SfumatoError(f"a masked integer is too large; allowed are {setting.modulus_bits} bits.")
    return words
