"""What the server puts together in the last round, and the masks that are then left in the sum.

>>> opened = Opened({0: bytes(32)}, {})
>>> setting = Setting(clients=3, length=2, degree=2, threshold=2, modulus_bits=8)
>>> own = expand(self_mask_key(bytes(32), bytes(16), 0), 2, 8)
>>> bool(np.array_equal(remaining_masks(opened, bytes(16), setting, {0: (1, 2)}, {}), own))
True

In the sum of the masked vectors the masks of two survivors cancel. Left are every survivor's own, whose seed its
neighbours open, and those that survivors have with silent clients, whose mask keys their neighbours open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sfumato.secure_aggregation.graph import Neighbours
from sfumato.secure_aggregation.masking import (
    KEY_BYTES,
    Masks,
    agree,
    commitment,
    expand,
    pair_mask_key,
    public_key,
    reduce_words,
    self_mask_key,
)
from sfumato.secure_aggregation.setting import Setting
from sfumato.secure_aggregation.shamir import SECRET_WORDS, combine, words_secret


@dataclass(frozen=True)
class Opened:
    """The secrets that the shares gave back, 32 bytes each; None where no secret has such shares.

    Attributes:
        seeds: of the survivors' own masks.
        mask_keys: the secret mask keys of silent clients with surviving neighbours.
    """

    seeds: Mapping[int, bytes | None]
    mask_keys: Mapping[int, bytes | None]

    @classmethod
    def combine(
        cls,
        shares: Mapping[int, Mapping[int, bytes]],
        neighbours: Neighbours,
        survivors: set[int],
        threshold: int,
    ) -> Opened:
        """Put all secrets together at once.

        Args:
            shares: of each owner, by holder, 36 bytes each, at least ``threshold`` of them.
            neighbours: whose place in an owner's list says at which point its share lies.
            survivors: the owners whose seed, not mask key, is shared.
            threshold: t; further shares are not needed.
        """
        owners = list(shares)
        points = np.empty((len(owners), threshold), np.int64)
        words = np.empty((len(owners), threshold, SECRET_WORDS), np.uint16)
        for row, owner in enumerate(owners):
            place = {holder: number for number, holder in enumerate(neighbours[owner], start=1)}
            chosen = sorted(shares[owner])[:threshold]
            points[row] = [place[holder] for holder in chosen]
            joined = b"".join(shares[owner][holder] for holder in chosen)
            words[row] = np.frombuffer(joined, "<u2").reshape(threshold, SECRET_WORDS)
        secrets = [words_secret(row) for row in combine(points, words)]
        found = dict(zip(owners, secrets, strict=True))
        return cls(
            {owner: secret for owner, secret in found.items() if owner in survivors},
            {owner: secret for owner, secret in found.items() if owner not in survivors},
        )

    def first_false(
        self, session: bytes, commitments: Mapping[int, bytes], keys: Mapping[int, bytes]
    ) -> int | None:
        """The first client whose secret is not the one that it committed to or advertised; None if all are."""
        for owner, seed in self.seeds.items():
            if seed is None or commitment(seed, session, owner) != commitments[owner]:
                return owner
        for owner, secret in self.mask_keys.items():
            if secret is None or public_key(secret) != keys[owner][:KEY_BYTES]:
                return owner
        return None


def remaining_masks(
    opened: Opened, session: bytes, setting: Setting, neighbours: Neighbours, keys: Mapping[int, bytes]
) -> Masks:
    """(d,) words: what the masked vectors' sum has too much, modulo 2^modulus_bits.

    Args:
        opened: secrets that were found to be true ones.
        session: 16 bytes.
        setting: the public agreement.
        neighbours: the graph.
        keys: both public keys of each client that advertised.
    """
    bits = setting.modulus_bits
    total = np.zeros(setting.length, np.uint64)
    for owner, seed in opened.seeds.items():
        total += expand(self_mask_key(seed or b"", session, owner), setting.length, bits)
    for silent, secret in opened.mask_keys.items():
        own = X25519PrivateKey.from_private_bytes(secret or b"")
        for other in neighbours[silent]:
            if other not in opened.seeds:
                continue
            shared = agree(own, keys[other][:KEY_BYTES], other)
            mask = expand(pair_mask_key(shared, session, silent, other), setting.length, bits)
            # The survivor added it if its own identity is the smaller one, as in ``add_masks``.
            total = total + mask if silent > other else total - mask
    return reduce_words(total, bits)
