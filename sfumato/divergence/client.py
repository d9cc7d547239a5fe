"""Who has something to lose: a client counts its own samples, checks what it is promised, and hides its counts.

>>> import os
>>> import numpy as np
>>> from sfumato.rng import SystemStream
>>> reference = Reference.from_probabilities([0.5, 0.3, 0.2])
>>> client = PopulationClient(7, np.array([0, 2, 2]), reference, os.urandom, SystemStream(), limits=Limits(epsilon=2.0))
>>> client.mask(b"")
Traceback (most recent call last):
sfumato.errors.SfumatoError: client 7 was not admitted; allowed is to join first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sfumato.divergence.aggregators import Entropy
from sfumato.divergence.agreement import plan_of, points_of, setting_of
from sfumato.divergence.counting import cell_counts
from sfumato.divergence.distributed import (
    count_noise,
    counted_shares,
    draw_noise,
    require_readable,
)
from sfumato.divergence.messages import (
    MAX_CLIENTS,
    Admission,
    Announcement,
    Enrolment,
)
from sfumato.divergence.plan import require_count
from sfumato.divergence.reference import Reference
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream
from sfumato.secure_aggregation import Client


@dataclass(frozen=True)
class Limits:
    """What a client answers to, whatever a server announces; it is the client that has something to lose.

    Attributes:
        epsilon: the largest of one estimate.
        delta: the largest of one estimate.
        corrupted_share: the least share of the clients whose noise must not be counted on, where clients share it.
    """

    epsilon: float = 10.0
    delta: float = 1e-3
    corrupted_share: float = 0.0

    def check(self, announced: Announcement) -> None:
        """Refuse an announcement that promises less.

        Raises:
            SfumatoError: if a number is beyond its limit; the sentence names both.
        """
        for name, value, limit in (
            ("epsilon", announced.epsilon, self.epsilon),
            ("delta", announced.delta, self.delta),
        ):
            if value > limit:
                raise SfumatoError(
                    f"the announced {name} is {value:g}; allowed for this client is at most {limit:g}."
                )
        if announced.trust == "distributed" and announced.corrupted_share < self.corrupted_share:
            raise SfumatoError(
                f"the announced corrupted_share is {announced.corrupted_share:g}; allowed for this client is at least "
                f"{self.corrupted_share:g}."
            )


class PopulationClient:
    """One client: it counts its own samples at the announced points, and hides the counts in a secure aggregation.

    Guarantee:
        ``trusted_aggregator``: whoever runs the aggregation learns the sum of the survivors' counts, and of this
        client's nothing beyond that (``sfumato.secure_aggregation.Client``); the server learns the noisy value.
        ``distributed``: the client itself computes how much noise the announced (epsilon, delta) takes from the number
        of survivors that it was promised, and adds its share; the sum over that many survivors, less the corrupted
        share, is (epsilon, delta)-differentially private for replacing one of its examples
        (``sfumato.divergence.distributed.count_noise``). It rests on an aggregation that keeps its promise about the
        survivors, as on one that follows the protocol. Not protected: taking part, and the number of examples.

    Args:
        identity: from 0, unique among the clients.
        codes: (n,) integer samples, at least one.
        reference: Pi, which the client knows beforehand.
        entropy: a source of fresh bytes for keys, such as ``os.urandom``.
        stream: of the client's share of noise; the operating system's in release mode.
        trusts_aggregator: whether it answers where an aggregator is to be trusted.
        limits: the weakest guarantee that it answers to.

    Raises:
        SfumatoError: if it has no samples, one is outside of the domain, or the identity is none; no sample is named.
    """

    def __init__(
        self,
        identity: int,
        codes: NDArray[Any],
        reference: Reference,
        entropy: Entropy,
        stream: RandomStream,
        *,
        trusts_aggregator: bool = True,
        limits: Limits | None = None,
    ) -> None:
        """A client before any announcement."""
        require_count("identity", identity, 0, MAX_CLIENTS)
        self._identity, self._reference = int(identity), reference
        self._cell_counts = cell_counts(codes, reference)
        self._entropy, self._stream, self._trusts_aggregator = entropy, stream, trusts_aggregator
        self._limits = limits or Limits()
        self._announced: Announcement | None = None
        self._sigma = 0.0
        self._secure: Client | None = None

    @property
    def identity(self) -> int:
        """Who it is."""
        return self._identity

    def enrol(self, announcement: bytes) -> bytes:
        """Agree to take part in one estimate, and declare the number of examples.

        Raises:
            SfumatoError: if it is no announcement on the agreed reference, the client does not trust that way, it takes
                part in an estimate already, or nothing could be made of what it would send.
        """
        read = Announcement.decode(announcement)
        if self._announced is not None:
            raise SfumatoError(
                f"client {self._identity} was asked to enrol twice; allowed is one estimate, since each spends the budget."
            )
        if read.trust == "trusted_aggregator" and not self._trusts_aggregator:
            raise SfumatoError(
                f"client {self._identity} trusts no aggregator; allowed is the trust model 'distributed'."
            )
        self._limits.check(read)
        points, _ = points_of(read, self._reference), plan_of(read)
        if read.trust == "distributed":
            require_readable(points.count, count_noise(read.epsilon, read.delta, 1))
        self._announced = read
        return Enrolment(read.session, self._identity, int(self._cell_counts.sum())).encode()

    def join(self, admission: bytes, invitation: bytes) -> bytes:
        """Round 1 of the aggregation: public keys.

        Args:
            admission: the client's place and how many have to stay.
            invitation: of the secure aggregation.

        Raises:
            SfumatoError: if these are none, are somebody else's, promise too few survivors for any noise, or nothing could
                be made of the sum of so many clients' noise.
        """
        announced, read = self._enrolled(), Admission.decode(admission)
        if read.session != announced.session or read.identity != self._identity:
            raise SfumatoError(
                f"client {self._identity} was given an admission that is not its own; allowed is its own of this session."
            )
        if self._secure is not None:
            raise SfumatoError(f"client {self._identity} was admitted twice; allowed is once.")
        if announced.trust == "distributed":
            shares = counted_shares(read.clients, read.survivors, announced.corrupted_share)
            noise = count_noise(announced.epsilon, announced.delta, shares)
            require_readable(len(announced.cells), noise, read.clients)
            self._sigma = noise.sigma
        secure = Client(setting_of(read, len(announced.cells)), read.place, self._entropy)
        keys = secure.advertise(invitation)
        self._secure = secure
        return keys

    def share_keys(self, neighbours: bytes) -> bytes:
        """Round 2: sealed shares of the client's secrets."""
        return self._joined().share_keys(neighbours)

    def mask(self, relayed_shares: bytes) -> bytes:
        """Round 3: the counts, with the client's share of noise where nobody is trusted, under masks.

        Raises:
            SfumatoError: as ``sfumato.secure_aggregation.Client.mask``.
        """
        secure = self._joined()
        announced = self._enrolled()
        counts = self._cell_counts[announced.cells]
        if announced.trust == "distributed":
            counts = counts + draw_noise(self._sigma, len(counts), self._stream)
        return secure.mask(relayed_shares, counts)

    def unmask(self, request: bytes) -> bytes:
        """Round 4: of each neighbour one share, which opens the sum."""
        return self._joined().unmask(request)

    def _enrolled(self) -> Announcement:
        if self._announced is None:
            raise SfumatoError(f"client {self._identity} has not enrolled; allowed is to enrol first.")
        return self._announced

    def _joined(self) -> Client:
        if self._secure is None:
            raise SfumatoError(f"client {self._identity} was not admitted; allowed is to join first.")
        return self._secure
