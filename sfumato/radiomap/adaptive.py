"""The paper's defence: noise allocated by the very upload that it protects. No guarantee.

>>> import numpy as np
>>> from sfumato.radiomap.allocator import untrained
>>> from sfumato.radiomap.partition import partition_of
>>> from sfumato.rng import Streams
>>> partition = partition_of(4, {"transmitter": np.array([1])})
>>> network = untrained(10, partition.sizes, 4, np.ones((4, 10)))
>>> defence = AdaptiveDefence(partition, nu=1.0, clip_norm=2.0, allocator=network, rounds=10)
>>> defence.protect(np.array([3.0, 0.0, 4.0, 0.0]), 0, Streams(0).stream("noise", 0, 0)).sigmas.round(12).tolist()
[1.0, 1.0]
>>> hasattr(defence, "promise")
False

The levels are a function of the upload, so an upload leaks through its own noise: a level that moves by 1 % tells about
d_g (0.01)^2 nats (Section 3.5 of docs/papers.md). So the class has no `promise`: what prices, audits or states an
epsilon takes a `GuaranteedDefence`, which this is not. `certified.CertifiedDefence` is the repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import FloatArray, deviations, energy_budget
from sfumato.radiomap.allocator import Allocator
from sfumato.radiomap.clips import WholeClip, checked_update
from sfumato.radiomap.defences import Protected, add_noise
from sfumato.radiomap.partition import Partition
from sfumato.radiomap.summary import describe, moments
from sfumato.rng import RandomStream


@dataclass(frozen=True, eq=False)
class AdaptiveDefence:
    """Clips the whole upload to C, asks the allocator, adds noise of energy (nu C)^2.

    Attributes:
        partition: the groups.
        nu: the noise multiplier.
        clip_norm: C.
        allocator: trained on public maps.
        rounds: of the whole training, for the allocator's progress and phase.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """

    partition: Partition
    nu: float
    clip_norm: float
    allocator: Allocator
    rounds: int

    def __post_init__(self) -> None:
        """Check the fields."""
        energy_budget(self.nu, self.clip_norm)
        checked_rounds(self.rounds)

    @property
    def name(self) -> str:
        """``adaptive``."""
        return "adaptive"

    @property
    def energy(self) -> float:
        """Expected squared norm of the noise."""
        return energy_budget(self.nu, self.clip_norm)

    def sigmas(self, clipped: FloatArray, round: int) -> FloatArray:
        """(G,) standard deviations that the allocator gives to a clipped upload (d,) in that round, from 0 on."""
        progress = progress_of(round, self.rounds)
        seen = describe(moments(self.partition, clipped[None, :]), self.partition, self.clip_norm, progress)
        return deviations(self.allocator.shares(seen), self.energy, self.partition.sizes)

    def protect(self, delta: FloatArray, round: int, stream: RandomStream) -> Protected:
        """Clip, allocate by the clipped upload, noise.

        Args:
            delta: (d,) the client's update.
            round: from 0 on.
            stream: serves this upload alone.

        Raises:
            SfumatoError: if the update has another shape or is not finite.
        """
        values, norm = checked_update(self.partition, delta)
        clipped = WholeClip(self.clip_norm).apply(values)
        sigmas = self.sigmas(clipped, round)
        upload = add_noise(clipped, self.partition, sigmas, stream)
        return Protected(upload, sigmas, not bool((clipped == values).all()), norm)

    def observe(self, released: Sequence[NDArray[Any]]) -> AdaptiveDefence:
        """Itself: it looks at nothing but the upload at hand."""
        return self


def checked_rounds(rounds: int) -> int:
    """The number of rounds.

    Raises:
        SfumatoError: if it is not an integer of at least 1.
    """
    if not is_integer(rounds) or rounds < 1:
        raise SfumatoError(f"rounds is {rounds!r}; allowed is an integer of at least 1.")
    return rounds


def progress_of(round: int, rounds: int) -> float:
    """Round over the number of rounds, in [0, 1]; rounds beyond the last count as the last.

    Raises:
        SfumatoError: if the round is not an integer of at least 0.
    """
    if not is_integer(round) or round < 0:
        raise SfumatoError(f"round is {round!r}; allowed is an integer of at least 0.")
    return min(round / rounds, 1.0)
