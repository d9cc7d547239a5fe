"""Keys and masks: held to the standards' own test vectors and to arithmetic modulo 2^b."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.secure_aggregation.masking import (
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
from tests.sfumato.secure_aggregation.exchange import seeded

SESSION = bytes(range(16))
ONE, OTHER = b"\x01" * 32, b"\x02" * 32


def test_key_agreement_is_that_of_rfc_7748() -> None:
    """Section 6.1 of RFC 7748."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert public_key(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert agree(X25519PrivateKey.from_private_bytes(alice), public_key(bob), 1) == shared
    assert agree(X25519PrivateKey.from_private_bytes(bob), public_key(alice), 0) == shared


def test_masks_are_the_cipher_of_fips_197() -> None:
    """AES-128 of the all-zero block under the all-zero key is a known answer."""
    block = bytes.fromhex("66e94bd4ef8a2c3b884cfa59ca342b2e")
    assert expand(bytes(16), 4, 32).tolist() == np.frombuffer(block, "<u4").tolist()
    assert expand(bytes(16), 2, 64).tolist() == np.frombuffer(block, "<u8").tolist()


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
def test_a_weak_public_key_is_refused(point: bytes) -> None:
    with pytest.raises(SfumatoError, match="public key of client 7 is a weak one"):
        agree(X25519PrivateKey.from_private_bytes(ONE), point, 7)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_either_side_derives_the_same_keys_and_nobody_else_does(one: int, other: int) -> None:
    if one == other:
        return
    assert pair_mask_key(ONE, SESSION, one, other) == pair_mask_key(ONE, SESSION, other, one)
    outward, inward = sealing_keys(ONE, SESSION, one, other)
    assert sealing_keys(ONE, SESSION, other, one) == (inward, outward)
    keys = {
        outward[:16],
        inward[:16],
        pair_mask_key(ONE, SESSION, one, other),
        pair_mask_key(OTHER, SESSION, one, other),
        pair_mask_key(ONE, bytes(16), one, other),
        self_mask_key(ONE, SESSION, one),
        self_mask_key(ONE, SESSION, other),
        commitment(ONE, SESSION, one)[:16],
        commitment(ONE, SESSION, other)[:16],
    }
    assert len(keys) == 9


def test_sealed_shares_open_for_their_sender_addressee_and_session_alone() -> None:
    sealed = seal(ONE, SESSION, 3, 4, b"content")
    assert unseal(ONE, SESSION, 3, 4, sealed) == b"content"
    assert b"content" not in sealed
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    for attempt in (
        (OTHER, SESSION, 3, 4, sealed),
        (ONE, bytes(16), 3, 4, sealed),
        (ONE, SESSION, 4, 3, sealed),
        (ONE, SESSION, 3, 5, sealed),
        (ONE, SESSION, 3, 4, changed),
        (ONE, SESSION, 3, 4, sealed[:-1]),
        (ONE, SESSION, 3, 4, b""),
    ):
        with pytest.raises(SfumatoError, match="are not authentic"):
            unseal(*attempt)


@given(st.integers(1, 64), st.integers(1, 6), st.integers(2, 7), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_masks_of_pairs_cancel_and_own_masks_remain(
    bits: int, length: int, clients: int, seed: int
) -> None:
    entropy = seeded(seed)
    vectors = [
        [int.from_bytes(entropy(8), "little") % (1 << bits) for _ in range(length)] for _ in range(clients)
    ]
    own = [expand(entropy(16), length, bits) for _ in range(clients)]
    pair = {(i, j): expand(entropy(16), length, bits) for i in range(clients) for j in range(i + 1, clients)}
    total = np.zeros(length, np.uint64)
    for one in range(clients):
        others = [other for other in range(clients) if other != one]
        pairs = [(1 if other > one else -1, pair[min(one, other), max(one, other)]) for other in others]
        masked = add_masks(np.array(vectors[one], np.uint64), own[one], pairs, bits)
        assert masked.tolist() == [
            (
                vectors[one][place]
                + int(own[one][place])
                + sum(sign * int(mask[place]) for sign, mask in pairs)
            )
            % (1 << bits)
            for place in range(length)
        ]
        total += masked
    expected = [
        (sum(vector[place] for vector in vectors) + sum(int(mask[place]) for mask in own)) % (1 << bits)
        for place in range(length)
    ]
    assert reduce_words(total, bits).tolist() == expected
