"""Defences of one upload, as steps clip -> allocate -> noise, and what each of them promises.

>>> import numpy as np
>>> from sfumato.radiomap.partition import partition_of
>>> from sfumato.rng import Streams
>>> partition = partition_of(4, {"transmitter": np.array([1])}, sensitive={"transmitter"})
>>> defence = uniform(partition, nu=1.0, clip_norm=2.0)
>>> sent = defence.protect(np.array([3.0, 0.0, 4.0, 0.0]), 0, Streams(0).stream("noise", 0, 0))
>>> sent.norm_before, sent.clipped, sent.sigmas.tolist()
(5.0, True, [1.0, 1.0])
>>> defence.promise.mu
4.0

Who wants another defence writes a class with the attributes of `Defence`; one that also has those of
`GuaranteedDefence` can be priced, audited and stated. Source: Sections 3.1, 3.4 and 3.5 of docs/papers.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import (
    FloatArray,
    checked_shares,
    deviations,
    energies,
    energy_budget,
    optimal_shares,
)
from sfumato.radiomap.clips import Clip, GroupClips, NoClip, WholeClip, checked_update
from sfumato.radiomap.partition import Partition
from sfumato.rng import RandomStream

Matching = Literal["energy", "multiplier"]
Norm = Literal["euclidean", "per_group", "mahalanobis"]


@dataclass(frozen=True, eq=False)
class Protected:
    """What a client sends, and what was done to it.

    Attributes:
        upload: (d,) float64, clipped and noised: all that leaves the client.
        sigmas: (G,) standard deviation of the noise per coordinate of each group; its root mean square where it
            differs within a group.
        clipped: whether clipping changed the update; stays with the client.
        norm_before: Euclidean norm of the update before clipping; stays with the client.
    """

    upload: FloatArray
    sigmas: FloatArray
    clipped: bool
    norm_before: float


@dataclass(frozen=True)
class Promise:
    """What bounds one upload's leak: how far two clipped updates can be apart, and the least noise over that.

    Guarantee: one upload is mu-Gaussian differentially private for replacing the update by any other finite one,
    where the noise is a real-valued normal, fresh and known to nobody. Uploads compose to the root of the sum of mu^2,
    also when the noise is chosen by what was released before (Section 3.5 of docs/papers.md).

    Attributes:
        norm: in which distances are measured: ``euclidean`` of the whole, ``per_group``, or ``mahalanobis``.
        sensitivities: largest distance between two clipped updates; one per group for ``per_group``, else one.
        sigmas: least standard deviation of the noise in that norm, likewise, above 0.
    """

    norm: Norm
    sensitivities: tuple[float, ...]
    sigmas: tuple[float, ...]

    @property
    def mu(self) -> float:
        """Of one upload: sqrt(sum (sensitivity / sigma)^2)."""
        return math.hypot(
            *(moved / sigma for moved, sigma in zip(self.sensitivities, self.sigmas, strict=True))
        )


class Defence(Protocol):
    """Protects one upload; a new state after each round, where it learns from what was released."""

    @property
    def name(self) -> str:
        """Its name, such as ``uniform``."""
        ...

    @property
    def partition(self) -> Partition:
        """The groups of weights."""
        ...

    def protect(self, delta: FloatArray, round: int, stream: RandomStream) -> Protected:
        """Clip the update (d,), allocate, add noise from a stream that serves this upload alone."""
        ...

    def observe(self, released: Sequence[NDArray[Any]]) -> Defence:
        """The state after a round in which these (d,) uploads were released."""
        ...


class GuaranteedDefence(Defence, Protocol):
    """A defence whose noise does not depend on the update that it protects, so that it can be priced."""

    @property
    def promise(self) -> Promise:
        """The bound at the least noise that any round can have."""
        ...

    def farthest(self) -> FloatArray:
        """A (d,) update x that clipping keeps and that is as far from -x, over the noise now, as any two can be."""
        ...

    def precise(self, vector: FloatArray) -> FloatArray:
        """The inverse of the noise's covariance now, times a (d,) vector."""
        ...

    def observe(self, released: Sequence[NDArray[Any]]) -> GuaranteedDefence:
        """The state after a round in which these (d,) uploads were released."""
        ...


def add_noise(
    clipped: FloatArray, partition: Partition, sigmas: FloatArray, stream: RandomStream
) -> FloatArray:
    """The clipped update plus independent N(0, sigma_g^2) on every coordinate of group g, in float64.

    All d normals are drawn whatever the sigmas, so that the draws of one group never depend on another's level.
    """
    return clipped + partition.spread(sigmas) * stream.standard_normal(partition.dimension)


@dataclass(frozen=True, eq=False)
class StaticDefence:
    """Clips and adds noise of levels that are fixed in advance.

    Guarantee: see `promise`, which refuses where a level is 0 or nothing is clipped.

    Attributes:
        name: such as ``uniform``.
        partition: the groups.
        clip: the first step.
        sigmas: (G,) standard deviations per coordinate, at least 0, public.

    Raises:
        SfumatoError: if the sigmas are not (G,) finite numbers of at least 0.
    """

    name: str
    partition: Partition
    clip: Clip
    sigmas: FloatArray

    def __post_init__(self) -> None:
        """Check the sigmas."""
        sigmas = np.array(self.sigmas, np.float64)
        if sigmas.shape != (self.partition.count,) or not bool(np.all((sigmas >= 0) & (sigmas < np.inf))):
            raise SfumatoError(
                f"sigmas is {sigmas.tolist()}; allowed are {self.partition.count} finite numbers of at least 0."
            )
        sigmas.flags.writeable = False
        object.__setattr__(self, "sigmas", sigmas)

    @property
    def energy(self) -> float:
        """Expected squared norm of the noise."""
        return float(energies(self.sigmas, self.partition.sizes).sum())

    def protect(self, delta: FloatArray, round: int, stream: RandomStream) -> Protected:
        """Clip, then noise; see `Defence`. An update of norm zero is noised like any other.

        Args:
            delta: (d,) the client's update.
            round: not used, the levels are the same in all rounds.
            stream: serves this upload alone.

        Raises:
            SfumatoError: if the update has another shape or is not finite.
        """
        values, norm = checked_update(self.partition, delta)
        clipped = self.clip.apply(values)
        return Protected(
            add_noise(clipped, self.partition, self.sigmas, stream),
            self.sigmas,
            not np.array_equal(clipped, values),
            norm,
        )

    def observe(self, released: Sequence[NDArray[Any]]) -> StaticDefence:
        """Itself: it learns nothing."""
        return self

    @property
    def promise(self) -> Promise:
        """The bound of one upload.

        Raises:
            SfumatoError: if nothing is clipped or a group gets no noise: there is no bound then.
        """
        if isinstance(self.clip, NoClip):
            raise SfumatoError(
                f"{self.name} clips nothing, so no epsilon holds; allowed is a defence that clips."
            )
        silent = [self.partition.names[number] for number in np.flatnonzero(self.sigmas == 0)]
        if silent:
            raise SfumatoError(
                f"{self.name} adds no noise to the group {silent[0]!r}, which is sent as it is, so no epsilon holds; "
                "allowed is noise on every group."
            )
        if isinstance(self.clip, GroupClips):
            return Promise(
                "per_group",
                tuple(2.0 * float(norm) for norm in self.clip.norms),
                tuple(map(float, self.sigmas)),
            )
        if isinstance(self.clip, WholeClip):
            return Promise("euclidean", (2.0 * self.clip.norm,), (float(self.sigmas.min()),))
        raise SfumatoError(
            f"{self.name} clips in a way of no known bound; allowed are WholeClip and GroupClips."
        )

    def farthest(self) -> FloatArray:
        """(d,) x with x and -x both kept by clipping and mu apart in units of the noise."""
        if isinstance(self.clip, GroupClips):
            found = np.zeros(self.partition.dimension)
            for group, norm in zip(self.partition.groups, self.clip.norms, strict=True):
                found[group.index[0]] = norm
            return found
        if isinstance(self.clip, WholeClip):
            return weakest_direction(self.partition, self.sigmas, self.clip.norm)
        raise SfumatoError(f"{self.name} has no farthest pair; allowed are WholeClip and GroupClips.")

    def precise(self, vector: FloatArray) -> FloatArray:
        """(d,) the vector over the noise's variance."""
        return vector / self.partition.spread(np.square(self.sigmas))


def weakest_direction(partition: Partition, sigmas: FloatArray, norm: float) -> FloatArray:
    """(d,) of that norm, on one coordinate of the group with the least noise."""
    found = np.zeros(partition.dimension)
    found[partition.groups[int(np.argmin(sigmas))].index[0]] = norm
    return found


def none(partition: Partition) -> StaticDefence:
    """Sends the update as it is. No guarantee."""
    return StaticDefence("none", partition, NoClip(), np.zeros(partition.count))


def clip_only(partition: Partition, clip_norm: float) -> StaticDefence:
    """Clips to C and adds nothing. No guarantee."""
    return StaticDefence("clip_only", partition, WholeClip(clip_norm), np.zeros(partition.count))


def uniform(
    partition: Partition, nu: float, clip_norm: float, matching: Matching = "energy"
) -> StaticDefence:
    """The same noise, sigma = nu C / sqrt(d), on every coordinate; matched energy and matched multiplier agree.

    Guarantee: mu = 2 sqrt(d) / nu per upload, for replacing it.

    Args:
        partition: the groups.
        nu: the noise multiplier, above 0 for a guarantee.
        clip_norm: C, public.
        matching: ``energy`` or ``multiplier``.

    Raises:
        SfumatoError: if an argument is outside of what is allowed.
    """
    sigmas = _even_noise(partition, np.ones(partition.count, bool), nu, clip_norm, matching)
    return StaticDefence("uniform", partition, WholeClip(clip_norm), sigmas)


def targeted_uniform(
    partition: Partition, nu: float, clip_norm: float, matching: Matching = "energy"
) -> StaticDefence:
    """The same noise on every coordinate of the sensitive groups, none elsewhere. No guarantee.

    Args:
        partition: the groups; at least one sensitive.
        nu: the noise multiplier.
        clip_norm: C, public.
        matching: ``energy`` puts all of (nu C)^2 on the sensitive coordinates; ``multiplier`` gives each of them
            sigma = nu C / sqrt(d), which is less energy.

    Raises:
        SfumatoError: if an argument is outside of what is allowed or no group is sensitive.
    """
    if not bool(partition.sensitive.any()):
        raise SfumatoError("no group of the partition is sensitive; allowed is at least one to target.")
    sigmas = _even_noise(partition, partition.sensitive, nu, clip_norm, matching)
    return StaticDefence("targeted_uniform", partition, WholeClip(clip_norm), sigmas)


def _even_noise(
    partition: Partition, noised: NDArray[np.bool_], nu: float, clip_norm: float, matching: Matching
) -> FloatArray:
    """(G,) one sigma on the noised groups and 0 elsewhere."""
    if matching not in get_args(Matching):
        raise SfumatoError(f"matching is {matching!r}; allowed are {', '.join(get_args(Matching))}.")
    over = partition.sizes[noised].sum() if matching == "energy" else partition.dimension
    return np.where(noised, math.sqrt(energy_budget(nu, clip_norm) / float(over)), 0.0)


def static_optimal(
    partition: Partition, nu: float, clip_norm: float, group_clips: NDArray[Any]
) -> StaticDefence:
    """Clips every group to its own C_g; sigma_g^2 proportional to C_g / sqrt(d_g), with the energy (nu C)^2.

    Guarantee: mu = 2 sum_g C_g sqrt(d_g) / (nu C) per upload, for replacing it.

    Args:
        partition: the groups.
        nu: the noise multiplier.
        clip_norm: C, public, of the budget alone.
        group_clips: (G,) C_g, public numbers, as from shadow uploads on public maps.

    Raises:
        SfumatoError: if an argument is outside of what is allowed.
    """
    shares = optimal_shares(group_clips, partition.sizes)
    sigmas = deviations(shares, energy_budget(nu, clip_norm), partition.sizes)
    return StaticDefence("static_optimal", partition, GroupClips(partition, group_clips), sigmas)


def frozen(partition: Partition, nu: float, clip_norm: float, shares: NDArray[Any]) -> StaticDefence:
    """Shares of the energy that were learned on public data and never change (Section 3.5, repair iii).

    Guarantee: mu = 2C over the least sigma, per upload, for replacing it, if the shares come from public data alone.

    Args:
        partition: the groups.
        nu: the noise multiplier.
        clip_norm: C, public.
        shares: (G,) with sum 1.

    Raises:
        SfumatoError: if an argument is outside of what is allowed.
    """
    kept = checked_shares(shares, partition.count)
    sigmas = deviations(kept, energy_budget(nu, clip_norm), partition.sizes)
    return StaticDefence("frozen", partition, WholeClip(clip_norm), sigmas)
