"""What an attacker reads of uploads: standardised, winsorised features and what is known of the noise in them.

>>> import numpy as np
>>> uploads = np.array([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
>>> shadow = Sessions(uploads, np.array([[8.0, 8.0], [16.0, 8.0], [24.0, 8.0]]), np.array([0, 1, 2]), window=32.0)
>>> Scaler.of(shadow.uploads).apply(uploads).astype(float).round(2).tolist()
[[-1.22, 0.0], [0.0, 0.0], [1.22, 0.0]]

The server knows the weights that clients start a round from, so it can make uploads of its own at the same weights, on
its own maps, and send them through the same defence. These shadow uploads, with their transmitters' positions, are what
it learns from (Section 3.5 of docs/papers.md: the attacker is trained on defended uploads).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.errors import SfumatoError
from sfumato.radiomap.localisation import Vector, checked_positions
from sfumato.radiomap.partition import Partition

Features = NDArray[np.float32]

LEAST_MAPS: Final = 3
WINSORISED: Final = 5.0


@dataclass(frozen=True, eq=False)
class Sessions:
    """Uploads whose transmitters' positions are known: an attacker's own, or those it is judged on.

    Attributes:
        uploads: (n, d) float32, as the server receives them.
        positions: (n, 2) float64, the transmitter of each in metres from the window's corner.
        maps: (n,) int64, the map of each; uploads of one map, and several noisy copies of one session, are held out
            together.
        window: side of the window in metres; guesses are clamped to it.
        clean: (n, d) float32, the same uploads after the clip and before the noise, which an attacker has of its own
            sessions only; None where they are not known.

    Raises:
        SfumatoError: if a shape, a number or a position is not allowed.
    """

    uploads: Features
    positions: Vector
    maps: NDArray[np.int64]
    window: float
    clean: Features | None = None

    def __post_init__(self) -> None:
        """Check the fields and bring them to their types."""
        uploads = checked_uploads(self.uploads, "the uploads")
        if not is_number(self.window) or not 0 < self.window < math.inf:
            raise SfumatoError(f"window is {self.window!r}; allowed is a positive number of metres.")
        positions = checked_positions(self.positions, "the positions", len(uploads))
        if bool((positions < 0).any()) or bool((positions > self.window).any()):
            raise SfumatoError(
                f"a position lies outside of the window; allowed are 0 to {float(self.window):g} metres."
            )
        maps = np.asarray(self.maps)
        if maps.shape != (len(uploads),) or maps.dtype.kind not in "iu":
            raise SfumatoError(
                f"maps has dtype {maps.dtype} and shape {maps.shape}; allowed are integers of shape ({len(uploads)},)."
            )
        if self.clean is not None:
            clean = checked_uploads(self.clean, "the clean uploads")
            if clean.shape != uploads.shape:
                raise SfumatoError(f"the clean uploads have shape {clean.shape}; allowed is {uploads.shape}.")
            object.__setattr__(self, "clean", clean)
        for name, value in (("uploads", uploads), ("positions", positions), ("maps", maps.astype(np.int64))):
            object.__setattr__(self, name, value)

    @property
    def count(self) -> int:
        """n, how many uploads there are."""
        return len(self.uploads)

    @property
    def dimension(self) -> int:
        """d, how many weights an upload has."""
        return self.uploads.shape[1]

    def restrict(self, index: NDArray[Any] | None) -> Sessions:
        """The same sessions seen through some weights only, such as the transmitter's: the paper's view.

        Args:
            index: (k,) positions in an upload; None for all weights.

        Raises:
            SfumatoError: if there is no position or one is outside of an upload.
        """
        if index is None:
            return self
        kept = checked_index(index, self.dimension)
        clean = None if self.clean is None else self.clean[:, kept]
        return replace(self, uploads=self.uploads[:, kept], clean=clean)

    def transformed(self, change: Callable[[Features], NDArray[Any]]) -> Sessions:
        """The same sessions in other coordinates, such as those in which a defence's noise is independent.

        Args:
            change: linear, from (n, d) to (n, k).
        """
        clean = None if self.clean is None else change(self.clean)
        return replace(self, uploads=change(self.uploads), clean=clean)

    def select(self, rows: NDArray[Any]) -> Sessions:
        """Some of the sessions, by positions or a mask of shape (n,)."""
        clean = None if self.clean is None else self.clean[rows]
        return Sessions(self.uploads[rows], self.positions[rows], self.maps[rows], self.window, clean)


def checked_uploads(uploads: NDArray[Any], what: str) -> Features:
    """Uploads as float32.

    Raises:
        SfumatoError: unless they are finite numbers of shape (n, d) with n, d >= 1, also as float32.
    """
    given = np.asarray(uploads)
    if given.ndim != 2 or 0 in given.shape or given.dtype.kind not in "fiu":
        raise SfumatoError(
            f"{what} have dtype {given.dtype} and shape {given.shape}; allowed are numbers of shape (n, d), n, d >= 1."
        )
    with np.errstate(over="ignore"):
        rows = given.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise SfumatoError(
            f"row {bad[0]} of {what} holds a NaN, an infinity or more than float32 can; allowed are finite numbers."
        )
    return rows


def checked_index(index: NDArray[Any], dimension: int) -> NDArray[np.int64]:
    """Positions in an upload as int64.

    Raises:
        SfumatoError: if there is none, or one is not an integer from 0 to d - 1.
    """
    given = np.asarray(index)
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise SfumatoError(
            f"the view has positions of dtype {given.dtype} and shape {given.shape}; allowed are integers of shape "
            "(k,), k >= 1."
        )
    if int(given.min()) < 0 or int(given.max()) >= dimension:
        raise SfumatoError(
            f"the view has positions {given.min()} to {given.max()}; allowed are 0 to {dimension - 1}."
        )
    return given.astype(np.int64)


def check_pair(shadow: Sessions, attacked: Sessions) -> None:
    """Refuse attacked uploads that the shadow uploads cannot teach about.

    Raises:
        SfumatoError: if they differ in d or window, or there are fewer than three shadow maps.
    """
    if shadow.dimension != attacked.dimension:
        raise SfumatoError(
            f"the attacked uploads have {attacked.dimension} weights; allowed is {shadow.dimension}, as the shadow "
            "uploads have."
        )
    if shadow.window != attacked.window:
        raise SfumatoError(
            f"the attacked window is {attacked.window:g} metres wide; allowed is {shadow.window:g}, as the shadow's."
        )
    check_maps(shadow.maps)


def check_maps(maps: NDArray[np.int64]) -> None:
    """Refuse shadow uploads of too few maps.

    Raises:
        SfumatoError: if there are fewer than three.
    """
    count = len(np.unique(maps))
    if count < LEAST_MAPS:
        raise SfumatoError(
            f"the shadow uploads come from {count} maps; allowed are at least {LEAST_MAPS}, as whole maps are held out."
        )


@dataclass(frozen=True, eq=False)
class Scaler:
    """Standardisation by the shadow uploads' mean and deviation, winsorised.

    Attributes:
        mean: (d,) float32.
        deviation: (d,) float32; 0 where all shadow uploads are equal, whose features are 0.
        limit: features are cut to +-limit deviations.
    """

    mean: Features
    deviation: Features
    limit: float = WINSORISED

    @staticmethod
    def of(uploads: Features, limit: float = WINSORISED) -> Scaler:
        """The scaler of (n, d) shadow uploads.

        Raises:
            SfumatoError: if the limit is not positive or an upload is not finite.
        """
        if not is_number(limit) or not limit > 0:
            raise SfumatoError(f"limit is {limit!r}; allowed is a positive number of deviations.")
        rows = checked_uploads(uploads, "the shadow uploads")
        mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        # Equal numbers can leave a deviation of rounding size, which would blow rounding up to a feature.
        deviation[deviation <= 1e-6 * np.abs(mean)] = 0.0
        return Scaler(mean.astype(np.float32), deviation.astype(np.float32), float(limit))

    def apply(self, uploads: NDArray[Any]) -> Features:
        """(m, d) float32 features of (m, d) uploads.

        Raises:
            SfumatoError: if an upload is not finite or of another size.
        """
        rows = checked_uploads(uploads, "the uploads")
        if rows.shape[1] != len(self.mean):
            raise SfumatoError(
                f"the uploads have {rows.shape[1]} weights; allowed is {len(self.mean)}, as the shadow uploads have."
            )
        # A variance below float32's range counts as none.
        alive = self.deviation > 0.0
        factor = np.divide(1.0, self.deviation, out=np.zeros_like(self.deviation), where=alive)
        features = rows - self.mean
        features *= factor
        np.clip(features, -self.limit, self.limit, out=features)
        return features


@dataclass(frozen=True, eq=False)
class Noise:
    """What an attacker knows of a defence: how much of each weight's variance is noise.

    Attributes:
        variance: (d,) float64, of the noise; equal within a group.
        signal: (d,) float64, variance of the clean uploads; equal within a group.
    """

    variance: Vector
    signal: Vector

    def __post_init__(self) -> None:
        """Refuse variances that are not finite, negative, or of different sizes."""
        for name, value in (("variance", self.variance), ("signal", self.signal)):
            bad = value.ndim != 1 or len(value) != len(self.variance)
            if bad or not np.isfinite(value).all() or bool((value < 0).any()):
                raise SfumatoError(
                    f"{name} of the noise has shape {value.shape}; allowed are finite numbers of at least 0, one per weight."
                )

    @staticmethod
    def of(partition: Partition, sigmas: NDArray[Any], shadow: Sessions) -> Noise:
        """What the published deviations and the attacker's own uploads tell.

        Args:
            partition: the groups.
            sigmas: (G,) standard deviation of the noise per weight of each group, or (n, G) if they differ by upload,
                of which the mean square counts.
            shadow: the attacker's sessions; the signal's variance is that of its clean uploads if it has them, else
                what the noise leaves of the defended ones'.

        Raises:
            SfumatoError: if a size does not match or a sigma is negative or not finite.
        """
        given = np.atleast_2d(np.asarray(sigmas, np.float64))
        if given.ndim != 2 or given.shape[1] != partition.count or partition.dimension != shadow.dimension:
            raise SfumatoError(
                f"there are {partition.dimension} weights in {partition.count} groups, sigmas of shape "
                f"{np.shape(sigmas)} and uploads of {shadow.dimension} weights; allowed is one sigma per group."
            )
        if not np.isfinite(given).all() or bool((given < 0).any()):
            raise SfumatoError("sigmas holds a number that is negative or not finite.")
        noise = np.mean(given**2, axis=0)
        seen = shadow.uploads if shadow.clean is None else shadow.clean
        total = seen.var(axis=0, dtype=np.float64)
        signal = np.array([total[group.index].mean() for group in partition.groups])
        if shadow.clean is None:
            signal = np.maximum(signal - noise, 0.0)
        return Noise(partition.spread(noise), partition.spread(signal))

    def restrict(self, index: NDArray[Any] | None) -> Noise:
        """The same, of some weights only; None for all."""
        return self if index is None else Noise(self.variance[index], self.signal[index])

    def averaged(self, count: int) -> Noise:
        """Of the mean of several uploads with independent noise and the same signal."""
        return Noise(self.variance / count, self.signal)

    def summed(self, count: int) -> Noise:
        """Of the sum of several independent uploads."""
        return Noise(self.variance * count, self.signal * count)


def average(sessions: Sequence[Sessions]) -> Sessions:
    """The mean upload of each session over several rounds with the same transmitter.

    Raises:
        SfumatoError: if there is no round, or the rounds are not of the same sessions.
    """
    _check_same(sessions)
    clean = [part.clean for part in sessions]
    mean = np.mean([part.uploads for part in sessions], axis=0, dtype=np.float64)
    known = None
    if all(part is not None for part in clean):
        known = np.mean(cast("list[Features]", clean), axis=0, dtype=np.float64).astype(np.float32)
    return replace(sessions[0], uploads=mean.astype(np.float32), clean=known)


def concatenate(sessions: Sequence[Sessions]) -> Sessions:
    """Each session's uploads of several rounds behind each other: (n, R d).

    Raises:
        SfumatoError: if there is no round, or the rounds are not of the same sessions.
    """
    _check_same(sessions)
    clean = [part.clean for part in sessions]
    known = None
    if all(part is not None for part in clean):
        known = np.concatenate(cast("list[Features]", clean), axis=1)
    uploads = np.concatenate([part.uploads for part in sessions], axis=1)
    return replace(sessions[0], uploads=uploads, clean=known)


def _check_same(sessions: Sequence[Sessions]) -> None:
    if not sessions:
        raise SfumatoError("there are no rounds to combine; allowed is at least one.")
    first = sessions[0]
    for number, part in enumerate(sessions):
        same = part.uploads.shape == first.uploads.shape and np.array_equal(part.positions, first.positions)
        if not same or not np.array_equal(part.maps, first.maps):
            raise SfumatoError(
                f"round {number} holds other sessions than the first; allowed are the same transmitters in every round."
            )
