"""A client: it gives a masked vector and, of each neighbour, a share of one secret, never of both.

>>> import os
>>> from sfumato.secure_aggregation.server import Server
>>> setting = Setting(clients=3, length=2, degree=2, threshold=2)
>>> server = Server(setting, os.urandom)
>>> len(Client(setting, 0, os.urandom).advertise(server.invitation()))
86

The four rounds are those of Bonawitz et al. (2017, Section 4), each one method that takes what the server sent and
returns what is sent back. A message that is not as it should be is refused and changes nothing. Errors name
identities, kinds and lengths, never a key, a share or an input.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.secure_aggregation.masking import (
    KEY_BYTES,
    add_masks,
    agree,
    commitment,
    expand,
    pair_mask_key,
    public_key,
    reduce_words,
    seal,
    sealing_keys,
    self_mask_key,
    unseal,
)
from sfumato.secure_aggregation.messages import (
    EVERYBODY,
    NEIGHBOUR_BYTES,
    SEALED_BYTES,
    Kind,
    Message,
    decode,
    encode,
    pack_setting,
    pack_words,
    read_records,
    read_request,
    require_kind,
)
from sfumato.secure_aggregation.setting import Setting
from sfumato.secure_aggregation.shamir import SHARE_BYTES, Entropy, draw, secret_words, share

Integers = NDArray[np.integer]


def vector_words(vector: object, setting: Setting) -> NDArray[np.uint64]:
    """(d,) words modulo 2^b of a client's input.

    Raises:
        SfumatoError: unless it is (d,) integers of [-2^(b-1), 2^(b-1)); no entry is named.
    """
    array = np.asarray(vector)
    if array.dtype.kind not in "iu" or array.shape != (setting.length,):
        raise SfumatoError(
            f"a vector has dtype {array.dtype} and shape {array.shape}; allowed are integers of shape ({setting.length},)."
        )
    half = 1 << (setting.modulus_bits - 1)
    if int(array.max()) >= half or int(array.min()) < -half:
        raise SfumatoError(
            f"a vector has an entry out of range; allowed are integers from {-half} to {half - 1}."
        )
    words = array.astype(np.int64).view(np.uint64)
    return reduce_words(words, setting.modulus_bits)


class Client:
    """One participant of one aggregation.

    Guarantee:
        Against a server that follows the protocol and sees everything it receives, alone or with corrupted clients:
        beyond the sum over the honest survivors and who they are, nothing about an honest client's input can be
        computed, as long as every honest client has fewer than ``threshold`` corrupted neighbours and the honest
        survivors are connected (``Setting.recommended`` says how surely). This rests on X25519, HKDF, AES and
        ChaCha20-Poly1305, on fresh entropy, and on channels that authenticate who sends. Not covered: a server that
        forges keys, graphs or lists of survivors (there is no public-key infrastructure here), corrupted clients that
        send false shares (noticed, but they end the aggregation), and what the sum itself tells.

    Args:
        setting: the public agreement.
        identity: 0 to ``clients - 1``.
        entropy: a source of fresh bytes, such as ``os.urandom``; a reproducible one gives no security.

    Raises:
        SfumatoError: if the identity is none.
    """

    def __init__(self, setting: Setting, identity: int, entropy: Entropy) -> None:
        """A client before the first round."""
        if not is_integer(identity) or not 0 <= identity < setting.clients:
            raise SfumatoError(
                f"identity is {identity!r}; allowed is an integer from 0 to {setting.clients - 1}."
            )
        self._setting, self._identity, self._entropy = setting, int(identity), entropy
        self._next: Kind | None = Kind.INVITATION
        self._session = self._mask_secret = self._channel_secret = self._seed = b""
        self._mask_publics: dict[int, bytes] = {}
        self._opening_keys: dict[int, bytes] = {}
        self._held: dict[int, bytes] = {}

    def advertise(self, invitation: bytes) -> bytes:
        """Round 1: two public keys, one for masks and one for sealed shares.

        Raises:
            SfumatoError: if it is not the first round, or the invitation is not to this setting.
        """
        message = self._read(invitation, Kind.INVITATION)
        if message.body != pack_setting(self._setting):
            raise SfumatoError("the invitation is to another setting; allowed is the one agreed upon.")
        self._session = message.session
        self._mask_secret = draw(self._entropy, KEY_BYTES)
        self._channel_secret = draw(self._entropy, KEY_BYTES)
        self._seed = draw(self._entropy, KEY_BYTES)
        self._next = Kind.NEIGHBOURS
        return self._send(Kind.KEYS, public_key(self._mask_secret) + public_key(self._channel_secret))

    def share_keys(self, neighbours: bytes) -> bytes:
        """Round 2: for every neighbour, sealed, a share of the self-mask's seed and one of the mask key.

        Raises:
            SfumatoError: if it is not the second round, or the neighbours are not a list that the setting allows.
        """
        message = self._read(neighbours, Kind.NEIGHBOURS)
        records = read_records(message, NEIGHBOUR_BYTES)
        identities = [identity for identity, _ in records]
        self._check_neighbours(identities)
        words = np.concatenate([secret_words(self._seed), secret_words(self._mask_secret)])
        shares = share(words, len(records), self._setting.threshold, self._entropy)
        secret = X25519PrivateKey.from_private_bytes(self._channel_secret)
        sealed: list[bytes] = []
        opening_keys: dict[int, bytes] = {}
        for (other, keys), own_share in zip(records, shares, strict=True):
            shared = agree(secret, keys[KEY_BYTES:], other)
            outward, opening_keys[other] = sealing_keys(shared, self._session, self._identity, other)
            content = own_share.astype("<u2").tobytes()
            sealed.append(seal(outward, self._session, self._identity, other, content))
        self._mask_publics = {other: keys[:KEY_BYTES] for other, keys in records}
        self._opening_keys, self._channel_secret = opening_keys, b""
        self._next = Kind.RELAYED_SHARES
        committed = commitment(self._seed, self._session, self._identity)
        return self._send(Kind.SHARES, committed + b"".join(sealed))

    def mask(self, relayed_shares: bytes, vector: Integers) -> bytes:
        """Round 3: the vector plus the self-mask plus or minus the masks with all neighbours that are left.

        Args:
            relayed_shares: from the server.
            vector: (d,) integers of [-2^(b-1), 2^(b-1)).

        Raises:
            SfumatoError: if it is not the third round, the vector does not fit, too few neighbours are left, or a
                share is not authentic.
        """
        message = self._read(relayed_shares, Kind.RELAYED_SHARES)
        words = vector_words(vector, self._setting)
        records = read_records(message, SEALED_BYTES)
        others = [other for other, _ in records]
        self._require_known(others)
        self._require_enough(others)
        held = {
            other: unseal(self._opening_keys[other], self._session, other, self._identity, sealed)
            for other, sealed in records
        }
        masked = self._masked(words, others)
        self._held, self._opening_keys = held, {}
        self._mask_secret = self._seed = b""
        self._next = Kind.REQUEST
        return self._send(Kind.MASKED_INPUT, pack_words(masked, self._setting.word_bytes))

    def unmask(self, request: bytes) -> bytes:
        """Round 4: of every neighbour that is left the self-mask's share, of every silent one the mask key's.

        A second request is refused, and so is one that names a neighbour on both lists or on none: with the two
        secrets of one client its input would be bare.

        Raises:
            SfumatoError: if it is not the fourth round, or the request is not such.
        """
        alive, silent = read_request(self._read(request, Kind.REQUEST))
        both = set(alive).intersection(silent)
        if both:
            raise SfumatoError(
                f"the request asks for both secrets of client {min(both)}; allowed is one of each neighbour's."
            )
        self._require_known([*alive, *silent])
        if len(alive) + len(silent) != len(self._held):
            raise SfumatoError(
                f"the request names {len(alive) + len(silent)} neighbours; allowed is each of the {len(self._held)} "
                "whose shares are held."
            )
        self._require_enough(alive)
        opened = [self._held[other][:SHARE_BYTES] for other in alive]
        opened += [self._held[other][SHARE_BYTES:] for other in silent]
        self._held, self._next = {}, None
        return self._send(Kind.OPENED_SHARES, b"".join(opened))

    def _masked(self, words: NDArray[np.uint64], others: list[int]) -> NDArray[np.uint64]:
        length, bits = self._setting.length, self._setting.modulus_bits
        secret = X25519PrivateKey.from_private_bytes(self._mask_secret)

        def pairs() -> Iterator[tuple[int, NDArray[np.uint64]]]:
            for other in others:
                shared = agree(secret, self._mask_publics[other], other)
                key = pair_mask_key(shared, self._session, self._identity, other)
                yield (1 if other > self._identity else -1), expand(key, length, bits)

        own = expand(self_mask_key(self._seed, self._session, self._identity), length, bits)
        return add_masks(words, own, pairs(), bits)

    def _read(self, message: object, kind: Kind) -> Message:
        if self._next != kind:
            raise SfumatoError(
                f"client {self._identity} was asked out of turn ({kind.words}); allowed is each round once, in order."
            )
        read = decode(message, None if kind == Kind.INVITATION else self._session)
        require_kind(read, kind)
        if read.identity != (EVERYBODY if kind == Kind.INVITATION else self._identity):
            raise SfumatoError(
                f"a message ({kind.words}) is addressed to client {read.identity}; allowed is {self._identity}."
            )
        return read

    def _send(self, kind: Kind, body: bytes) -> bytes:
        return encode(kind, self._session, self._identity, body)

    def _check_neighbours(self, identities: list[int]) -> None:
        self._require_enough(identities)
        if len(identities) > self._setting.degree:
            raise SfumatoError(
                f"client {self._identity} was given {len(identities)} neighbours; allowed are up to {self._setting.degree}."
            )
        for identity in identities:
            if identity == self._identity or identity >= self._setting.clients:
                raise SfumatoError(
                    f"client {self._identity} was given neighbour {identity}; allowed are other clients below "
                    f"{self._setting.clients}."
                )

    def _require_known(self, others: list[int]) -> None:
        known = self._held or self._opening_keys
        for other in others:
            if other not in known:
                raise SfumatoError(
                    f"a message to client {self._identity} is about client {other}; allowed are its neighbours."
                )

    def _require_enough(self, others: list[int]) -> None:
        if len(others) < self._setting.threshold:
            raise SfumatoError(
                f"client {self._identity} has {len(others)} neighbours left; allowed are at least "
                f"{self._setting.threshold}."
            )
