"""Who runs the aggregation: a trusted aggregator that adds the noise, or anybody where the clients have added it.

>>> sorted((one.trust, one.__name__) for one in (TrustedAggregator, CountsAggregator))
[('distributed', 'CountsAggregator'), ('trusted_aggregator', 'TrustedAggregator')]

Both are the server's role of ``sfumato.secure_aggregation`` behind an enrolment in which clients declare how many
examples they hold. A round is any number of ``receive`` and then its ``close_...``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.divergence.agreement import plan_of, points_of
from sfumato.divergence.distributed import count_noise, counted_shares, require_readable
from sfumato.divergence.estimator import release
from sfumato.divergence.messages import (
    MAX_EXAMPLES,
    Admission,
    Announcement,
    Enrolment,
    NoisyCounts,
    Result,
    Trust,
)
from sfumato.divergence.plan import require_count, require_stream
from sfumato.divergence.reference import Reference
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream, SystemStream
from sfumato.secure_aggregation import Server, Setting, modulus_bits_for

Entropy = Callable[[int], bytes]

MIN_MODULUS_BITS = 32


class Aggregation(ABC):
    """The party in the middle: it enrols the clients and runs the server's role of the secure aggregation.

    It learns the sum of what the survivors sent, whose noise the trust model decides. Use ``TrustedAggregator`` or
    ``CountsAggregator``, which say what becomes of the sum.

    Args:
        announcement: of the server.
        reference: Pi.
        entropy: a source of fresh bytes for the session's name and the graph.
        drop_out_share: how large a share of the clients may fall silent; with more there is no release.
        most_examples: how many examples a client can hold at most, by public knowledge. N is what the clients declare,
            and at drawn points their counts need not sum to it: without a limit one false declaration could lower the
            noise of all. Where every cell is a point the sum tells.

    Raises:
        SfumatoError: if it is no announcement on that reference, or of the other trust model.
    """

    trust: ClassVar[Trust]

    def __init__(
        self,
        announcement: bytes,
        reference: Reference,
        entropy: Entropy,
        drop_out_share: float = 0.2,
        most_examples: int = MAX_EXAMPLES,
    ) -> None:
        """An aggregation that nobody has enrolled in."""
        require_count("most_examples", most_examples, 1, MAX_EXAMPLES)
        self._most_examples = most_examples
        self._announced, self._reference = Announcement.decode(announcement), reference
        if self._announced.trust != self.trust:
            raise SfumatoError(
                f"the announced trust model is {self._announced.trust!r}; allowed here is {self.trust!r}."
            )
        self._points = points_of(self._announced, reference)
        self._entropy, self._drop_out_share = entropy, drop_out_share
        self._examples: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._secure: Server | None = None
        self._survivors: tuple[int, ...] = ()
        self._required = 0

    def receive(self, sender: int, message: bytes) -> None:
        """Take one message of a client: its enrolment, later one of the present round.

        Args:
            sender: who sent it, as the channel that authenticates the clients says.
            message: the bytes.

        Raises:
            SfumatoError: if it is malformed, in another's name, the sender's second one, of another session or round, or
                from somebody who is not awaited; it then changes nothing. Errors of the aggregation count clients by
                their place, in the order of identities.
        """
        if self._secure is not None:
            if not is_integer(sender) or sender not in self._places:
                raise SfumatoError(f"client {sender!r} is not enrolled; allowed are those who were admitted.")
            self._secure.receive(self._places[sender], message)
            return
        read = Enrolment.decode(message)
        if read.session != self._announced.session:
            raise SfumatoError("an enrolment is of another session; allowed is the present one.")
        if not is_integer(sender) or read.identity != sender:
            raise SfumatoError(
                f"an enrolment in the name of client {read.identity} came from {sender!r}; allowed is one's own name."
            )
        if read.identity in self._examples:
            raise SfumatoError(f"client {read.identity} enrolled twice; allowed is once.")
        if read.examples > self._most_examples:
            raise SfumatoError(
                f"client {read.identity} declares {read.examples} examples; allowed are at most {self._most_examples}."
            )
        self._examples[read.identity] = read.examples

    def close_enrolment(self) -> dict[int, tuple[bytes, bytes]]:
        """End the enrolment: to each client its admission, and the invitation to the secure aggregation.

        Raises:
            SfumatoError: if fewer than two enrolled, no graph is safe with so many, or nothing could be made of the sum.
        """
        if self._secure is not None:
            raise SfumatoError("the enrolment is over; allowed is to close it once.")
        if len(self._examples) < 2:
            raise SfumatoError(
                f"{len(self._examples)} {'client' if len(self._examples) == 1 else 'clients'} enrolled; allowed are at least 2, since a sum of one is its own counts."
            )
        setting = self._recommended(len(self._examples))
        self._places = {identity: place for place, identity in enumerate(sorted(self._examples))}
        self._secure = Server(setting, self._entropy)
        self._required = setting.survivors
        invitation = self._secure.invitation()
        return {
            identity: (
                Admission(
                    self._announced.session,
                    identity,
                    place,
                    setting.clients,
                    setting.survivors,
                    setting.degree,
                    setting.threshold,
                    setting.modulus_bits,
                ).encode(),
                invitation,
            )
            for identity, place in self._places.items()
        }

    def _recommended(self, clients: int) -> Setting:
        """The sparsest safe graph, and a modulus that no sum of counts and noise wraps around."""
        length, corrupted = len(self._announced.cells), self._announced.corrupted_share

        def with_bits(bits: int) -> Setting:
            return Setting.recommended(clients, length, bits, corrupted, self._drop_out_share)

        setting = with_bits(MIN_MODULUS_BITS)
        bound = sum(self._examples.values())
        if self.trust == "distributed":
            shares = counted_shares(clients, setting.survivors, corrupted)
            noise = count_noise(self._announced.epsilon, self._announced.delta, shares)
            require_readable(length, noise, clients)
            bound += int(10.0 * noise.sigma * clients) + 1
        bits = modulus_bits_for(1, bound)
        return setting if bits <= MIN_MODULUS_BITS else with_bits(bits)

    def close_keys(self) -> dict[int, bytes]:
        """End round 1: to each client its neighbours and their keys."""
        return self._named(self._running().close_keys())

    def close_shares(self) -> dict[int, bytes]:
        """End round 2: to each client the shares that were sealed for it."""
        return self._named(self._running().close_shares())

    def close_masked(self) -> dict[int, bytes]:
        """End round 3: to each survivor whose shares open the sum."""
        return self._named(self._running().close_masked())

    @property
    def survivors(self) -> tuple[int, ...]:
        """Whose counts are in the sum; nobody's before it is finished."""
        return self._survivors

    @abstractmethod
    def finish(self) -> bytes:
        """End round 4: what the server is sent."""

    def _sum(self) -> tuple[NDArray[np.int64], tuple[int, ...], int]:
        """(the sum, whose it is, how many examples they declared)."""
        total, places = self._running().finish()
        identities = {place: identity for identity, place in self._places.items()}
        survivors = tuple(identities[place] for place in places)
        self._survivors = survivors
        return total, survivors, sum(self._examples[identity] for identity in survivors)

    def _running(self) -> Server:
        if self._secure is None:
            raise SfumatoError("the enrolment is not over; allowed is to close it first.")
        return self._secure

    def _named(self, sent: Mapping[int, bytes]) -> dict[int, bytes]:
        identities = {place: identity for identity, place in self._places.items()}
        return {identities[place]: message for place, message in sent.items()}


class TrustedAggregator(Aggregation):
    """It learns the exact sum of counts, applies Phi, adds noise, and tells the server the noisy value only.

    Guarantee:
        What it sends is (epsilon, delta)-differentially private for replacing one example of one client, N public
        (``sfumato.divergence.estimator.release``), if N is right: where every cell is a point a sum that is not N is
        refused, at drawn points ``most_examples`` bounds what a false declaration can do. That it forgets the sum is trusted: such as an enclave, or several
        parties that compute jointly (docs/papers.md Section 4.5).

    Args:
        announcement: of the server.
        reference: Pi.
        entropy: a source of fresh bytes for the session's name and the graph.
        stream: of the noise after Phi; the operating system's in release mode.
        drop_out_share: how large a share of the clients may fall silent.
        most_examples: how many examples a client can hold at most.

    Raises:
        SfumatoError: as ``Aggregation``.
    """

    trust: ClassVar[Trust] = "trusted_aggregator"

    def __init__(
        self,
        announcement: bytes,
        reference: Reference,
        entropy: Entropy,
        stream: RandomStream,
        drop_out_share: float = 0.2,
        most_examples: int = MAX_EXAMPLES,
    ) -> None:
        """An aggregator that nobody has enrolled with."""
        super().__init__(announcement, reference, entropy, drop_out_share, most_examples)
        require_stream(stream)
        self._stream = stream

    def finish(self) -> bytes:
        """End round 4: the noisy value.

        Raises:
            SfumatoError: if too few are left, the sum is none of so many examples' counts (some client lied; where every
                cell is a point it has to be N), or the round is another.
        """
        counts, survivors, examples = self._sum()
        announced = self._announced
        found = release(
            counts,
            examples,
            self._points,
            self._reference,
            plan_of(announced),
            announced.epsilon,
            announced.delta,
            self._stream,
            confidence=announced.confidence,
        )
        discrete = isinstance(self._stream, SystemStream)
        return Result(announced.session, len(survivors), examples, discrete, found.raw).encode()


class CountsAggregator(Aggregation):
    """It learns the sum of noisy counts, which is private already, and passes it on; the server may be it.

    Guarantee:
        None of its own, and none is needed: the clients' noise is in what it learns (``PopulationClient``). It has to
        follow the protocol, since with fewer survivors than promised there would be less noise.
    """

    trust: ClassVar[Trust] = "distributed"

    def finish(self) -> bytes:
        """End round 4: the noisy counts.

        Raises:
            SfumatoError: if fewer clients are left than was promised, or the round is another.
        """
        counts, survivors, examples = self._sum()
        return NoisyCounts(
            self._announced.session, len(self._places), self._required, len(survivors), examples, counts
        ).encode()
