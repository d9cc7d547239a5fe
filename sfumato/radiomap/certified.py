"""The adaptive defence repaired: allocation from what was already released, and a floor under every group.

>>> import numpy as np
>>> from sfumato.radiomap.allocator import untrained
>>> from sfumato.radiomap.partition import partition_of
>>> partition = partition_of(4, {"transmitter": np.array([1])})
>>> network = untrained(10, partition.sizes, 4, np.ones((4, 10)))
>>> defence = CertifiedDefence(partition, nu=1.0, clip_norm=2.0, allocator=network, rounds=10, floor=0.25)
>>> defence.sigmas.round(12).tolist(), defence.promise.mu
([1.0, 1.0], 8.0)
>>> defence.observe([np.array([1.0, 9.0, 1.0, 1.0])]).round
1

Section 3.5 of docs/papers.md, repair (i): the statistics that the network sees are those of the noisy uploads of past
rounds, less what the known noise adds to them. So the levels of a round are public before any of its uploads is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.radiomap.adaptive import checked_rounds, progress_of
from sfumato.radiomap.allocation import (
    FloatArray,
    check_floor,
    deviations,
    energy_budget,
    size_shares,
    with_floor,
)
from sfumato.radiomap.allocator import Allocator
from sfumato.radiomap.clips import WholeClip, checked_update
from sfumato.radiomap.defences import Promise, Protected, add_noise, weakest_direction
from sfumato.radiomap.partition import Partition
from sfumato.radiomap.summary import describe, moments, without_noise
from sfumato.rng import RandomStream


@dataclass(frozen=True, eq=False)
class CertifiedDefence:
    """Clips the whole upload to C and adds noise of energy (nu C)^2, allocated by past releases.

    Guarantee: for replacing an upload, mu = 2C over the least sigma that the floor allows, sqrt(floor) nu C / sqrt(d),
    whatever was released before; T uploads of a client cost sqrt(T) mu, since the levels are functions of earlier
    releases and Gaussian mechanisms compose adaptively. Conditions: allocator, clip norm and floor are public, the
    noise is fresh and known to nobody.

    Attributes:
        partition: the groups.
        nu: the noise multiplier, above 0.
        clip_norm: C, public.
        allocator: trained on public maps.
        rounds: of the whole training, for the allocator's progress and phase.
        floor: share of the energy that is spread evenly over all coordinates, in (0, 1].
        memory: weight of the past in the running mean of the statistics, in [0, 1); 0 keeps the last round alone.
        seen: (3, G) the running moments, None before the first round, when the shares are d_g / d.
        round: how many rounds were observed.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """

    partition: Partition
    nu: float
    clip_norm: float
    allocator: Allocator
    rounds: int
    floor: float = 0.25
    memory: float = 0.5
    seen: FloatArray | None = None
    round: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        if not energy_budget(self.nu, self.clip_norm) > 0.0:
            raise SfumatoError(
                f"nu is {self.nu!r}; allowed is a number above 0, since without noise nothing is certified."
            )
        checked_rounds(self.rounds)
        check_floor(self.floor)
        if not is_number(self.memory) or not 0.0 <= self.memory < 1.0:
            raise SfumatoError(f"memory is {self.memory!r}; allowed is a number from 0 to below 1.")

    @property
    def name(self) -> str:
        """``adaptive_certified``."""
        return "adaptive_certified"

    @property
    def energy(self) -> float:
        """Expected squared norm of the noise."""
        return energy_budget(self.nu, self.clip_norm)

    @cached_property
    def sigmas(self) -> FloatArray:
        """(G,) standard deviations of this round: a function of past releases and public values alone."""
        sizes = self.partition.sizes
        if self.seen is None:
            return deviations(size_shares(sizes), self.energy, sizes)
        progress = progress_of(self.round, self.rounds)
        inputs = describe(self.seen, self.partition, self.clip_norm, progress)
        return deviations(with_floor(self.allocator.shares(inputs), self.floor, sizes), self.energy, sizes)

    @property
    def promise(self) -> Promise:
        """The bound of one upload in any round: at the floor, not at the levels of this round."""
        least = math.sqrt(self.floor * self.energy / self.partition.dimension)
        return Promise("euclidean", (2.0 * self.clip_norm,), (least,))

    def protect(self, delta: FloatArray, round: int, stream: RandomStream) -> Protected:
        """Clip, then noise of levels that were fixed before the update was made.

        Args:
            delta: (d,) the client's update.
            round: not used: the levels follow the rounds that were observed.
            stream: serves this upload alone.

        Raises:
            SfumatoError: if the update has another shape or is not finite.
        """
        values, norm = checked_update(self.partition, delta)
        clipped = WholeClip(self.clip_norm).apply(values)
        upload = add_noise(clipped, self.partition, self.sigmas, stream)
        return Protected(upload, self.sigmas, not np.array_equal(clipped, values), norm)

    def observe(self, released: Sequence[NDArray[Any]]) -> CertifiedDefence:
        """The state of the next round.

        Args:
            released: the noisy uploads (d,) of this round, as the server received them; none leaves the statistics
                as they are.

        Raises:
            SfumatoError: if an upload has another shape or is not finite.
        """
        after = self.round + 1
        if not released:
            return replace(self, round=after)
        new = without_noise(moments(self.partition, np.stack(released)), self.sigmas)
        mixed = new if self.seen is None else self.memory * self.seen + (1.0 - self.memory) * new
        return replace(self, seen=mixed, round=after)

    def farthest(self) -> FloatArray:
        """(d,) x with x and -x both kept by clipping, on the group with the least noise of this round."""
        return weakest_direction(self.partition, self.sigmas, self.clip_norm)

    def precise(self, vector: FloatArray) -> FloatArray:
        """(d,) the vector over the variance of this round's noise."""
        return vector / self.partition.spread(np.square(self.sigmas))


def public_inputs(
    partition: Partition,
    uploads: NDArray[Any],
    progress: NDArray[Any],
    nu: float,
    clip_norm: float,
    per_round: int,
    stream: RandomStream,
) -> FloatArray:
    """What the certified allocator would see of shadow uploads: noised uniformly, averaged by rounds, denoised.

    Args:
        partition: the groups.
        uploads: (n, d) clipped shadow uploads of public maps; consecutive ones make a round.
        progress: (n,) in [0, 1]; a round has that of its first upload.
        nu: the noise multiplier.
        clip_norm: C.
        per_round: uploads per round, at least 1; the last round may have fewer.
        stream: of the noise.

    Returns:
        (n, 4G + 2) float64, the same row for all uploads of a round.

    Raises:
        SfumatoError: if a shape does not fit or a number is out of its range.
    """
    if not is_integer(per_round) or per_round < 1:
        raise SfumatoError(f"per_round is {per_round!r}; allowed is an integer of at least 1.")
    if progress.shape != (len(uploads),):
        raise SfumatoError(f"progress has shape {progress.shape}; allowed is ({len(uploads)},).")
    sizes = partition.sizes
    sigmas = deviations(size_shares(sizes), energy_budget(nu, clip_norm), sizes)
    rows: list[FloatArray] = []
    for first in range(0, len(uploads), per_round):
        clean = uploads[first : first + per_round]
        noisy = np.stack([add_noise(row, partition, sigmas, stream) for row in clean])
        seen = without_noise(moments(partition, noisy), sigmas)
        rows += [describe(seen, partition, clip_norm, float(progress[first]))] * len(clean)
    return np.stack(rows)
