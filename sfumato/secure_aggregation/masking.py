"""Keys between two clients, and the masks that are expanded from them.

>>> own = expand(bytes(16), length=3, modulus_bits=8)
>>> pair = expand(bytes([1]) * 16, length=3, modulus_bits=8)
>>> vectors = np.array([[1, 2, 3], [10, 20, 30]], np.uint64)
>>> first = add_masks(vectors[0], own, [(1, pair)], 8)
>>> second = add_masks(vectors[1], own, [(-1, pair)], 8)
>>> reduce_words(first + second - own - own, 8)
array([11, 22, 33], dtype=uint64)

Key agreement is X25519 (RFC 7748), keys are derived with HKDF-SHA256 (RFC 5869) bound to the session, the purpose and
both identities, shares are sealed with ChaCha20-Poly1305 (RFC 8439), masks are AES-128 in counter mode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from sfumato.errors import SfumatoError

Masks = NDArray[np.uint64]

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
_MASK_KEY_BYTES: Final = 16
_NONCE: Final = bytes(12)
"""Every sealing key is derived for one message of one direction of one session, so the nonce never repeats under it."""


def public_key(secret: bytes) -> bytes:
    """The X25519 public key, 32 bytes, of a secret of 32 bytes."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: X25519PrivateKey, public: bytes, other: int) -> bytes:
    """The 32 bytes that two clients share.

    Args:
        secret: one's own.
        public: the other's, 32 bytes.
        other: whose it is, for the error.

    Raises:
        SfumatoError: if the public key is one that gives everybody the same secret.
    """
    try:
        return secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise SfumatoError(
            f"the public key of client {other} is a weak one; allowed are X25519 keys."
        ) from None


def _derive(shared: bytes, session: bytes, purpose: bytes, first: int, second: int, length: int) -> bytes:
    info = purpose + first.to_bytes(4, "little") + second.to_bytes(4, "little")
    return HKDF(hashes.SHA256(), length, session, info).derive(shared)


def pair_mask_key(shared: bytes, session: bytes, one: int, other: int) -> bytes:
    """The 16 bytes that the mask of two clients is expanded from; the same on either side."""
    return _derive(shared, session, b"mask of a pair", min(one, other), max(one, other), _MASK_KEY_BYTES)


def self_mask_key(seed: bytes, session: bytes, owner: int) -> bytes:
    """The 16 bytes that a client's own mask is expanded from."""
    return _derive(seed, session, b"mask of oneself", owner, owner, _MASK_KEY_BYTES)


def commitment(seed: bytes, session: bytes, owner: int) -> bytes:
    """32 bytes that tell a false seed from the true one and, the seed being uniform, nothing else."""
    return hashlib.sha256(b"seed" + session + owner.to_bytes(4, "little") + seed).digest()


def sealing_keys(shared: bytes, session: bytes, one: int, other: int) -> tuple[bytes, bytes]:
    """The keys, 32 bytes each, for what ``one`` sends to ``other`` and for the reverse."""
    both = _derive(shared, session, b"sealed shares", min(one, other), max(one, other), 2 * KEY_BYTES)
    upward, downward = both[:KEY_BYTES], both[KEY_BYTES:]
    return (upward, downward) if one < other else (downward, upward)


def _route(session: bytes, sender: int, recipient: int) -> bytes:
    return session + sender.to_bytes(4, "little") + recipient.to_bytes(4, "little")


def seal(key: bytes, session: bytes, sender: int, recipient: int, content: bytes) -> bytes:
    """Encrypt and authenticate; 16 bytes longer than the content. A key is for one message."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, content, _route(session, sender, recipient))


def unseal(key: bytes, session: bytes, sender: int, recipient: int, sealed: bytes) -> bytes:
    """The content.

    Raises:
        SfumatoError: if it was not sealed so by that sender for that recipient in that session.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, _route(session, sender, recipient))
    except InvalidTag:
        raise SfumatoError(
            f"the shares from client {sender} to client {recipient} are not authentic; allowed are those it sealed."
        ) from None


def expand(key: bytes, length: int, modulus_bits: int) -> Masks:
    """(length,) words below 2^modulus_bits from a key of 16 bytes."""
    width = 4 if modulus_bits <= 32 else 8
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(cipher.update(bytes(width * length)), f"<u{width}").astype(np.uint64)
    return reduce_words(words, modulus_bits)


def reduce_words(words: Masks, modulus_bits: int) -> Masks:
    """The words modulo 2^modulus_bits; sums and differences of uint64 wrap around at 2^64, which it divides."""
    return words & np.uint64((1 << modulus_bits) - 1)


def add_masks(vector: Masks, own: Masks, pairs: Iterable[tuple[int, Masks]], modulus_bits: int) -> Masks:
    """(d,) words y = x + own + sum_j sign_j pair_j modulo 2^modulus_bits (Bonawitz et al. 2017, Section 4).

    Args:
        vector: x, (d,).
        own: (d,) the client's self-mask.
        pairs: for each neighbour 1 if its identity is the larger one, -1 if it is the smaller one, and the (d,) mask
            with it; one of them in memory at a time if they are made as they are asked for.
        modulus_bits: b.
    """
    total = vector + own
    for sign, mask in pairs:
        total = total + mask if sign > 0 else total - mask
    return reduce_words(total, modulus_bits)
