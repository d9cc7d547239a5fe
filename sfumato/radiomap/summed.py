"""What a server that sees only the sum of several uploads (secure aggregation) learns of each transmitter.

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> random = np.random.default_rng(0)
>>> place = random.uniform(0.0, 256.0, (240, 2))
>>> sessions = Sessions(place @ random.standard_normal((2, 20)), place, np.arange(240) // 4, window=256.0)
>>> found = attack_sums(sessions.select(np.arange(180)), sessions.select(np.arange(180, 240)), 6, 120, Streams(0),
...                     names=["ridge"])
>>> each = found.each["ridge"].rmse / found.constant_each.rmse
>>> bool(0.8 < each < 1.0), found.nearest["ridge"].rmse < found.each["ridge"].rmse
(True, True)

A sum says nothing about which client added what, and the server's shadow uploads say nothing about one client rather than
another. So the best guess of each position, in mean square, is the same for all: that of the *mean* of the positions. The
attacker regresses it from the sum, and errors are those of this one guess, for ``each`` transmitter and for the ``nearest``
one, beside the constant predictor's of the same kind. Even a perfect reading of the mean leaves the spread of the positions
around it, sqrt(1 - 1/k) of the constant predictor's error for ``each`` of k.

This is the server alone. One that colludes with all other clients of the sum subtracts their uploads and is back at the
attack on a single upload (`sfumato.radiomap.attackers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.radiomap.attackers import constant, fit_attackers
from sfumato.radiomap.features import Noise, Sessions, check_maps, check_pair
from sfumato.radiomap.localisation import Localisation, Vector, root_mean_square, summarise
from sfumato.rng import RandomStream, Streams

_PARTS: Final = 5


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of k uploads.

    Attributes:
        sessions: the sums as sessions; ``positions`` are the mean positions, ``maps`` the parts of `draw_sums`.
        members: (n, k, 2) metres, the position of every summand's transmitter.
    """

    sessions: Sessions
    members: Vector


@dataclass(frozen=True, eq=False)
class SumResult:
    """Errors of one guess per sum, in metres; intervals resample sums.

    Attributes:
        each: attacker -> errors for every summand's transmitter.
        nearest: attacker -> errors for the transmitter nearest to the guess.
        constant_each: of the mean shadow position.
        constant_nearest: likewise.
        held_out: attacker -> root mean square error of the mean positions of held-out shadow sums.
        summands: k.
    """

    each: Mapping[str, Localisation]
    nearest: Mapping[str, Localisation]
    constant_each: Localisation
    constant_nearest: Localisation
    held_out: Mapping[str, float]
    summands: int

    @property
    def chosen(self) -> str:
        """The attacker that held-out shadow sums choose."""
        return min(self.held_out, key=lambda name: self.held_out[name])

    @property
    def minimum(self) -> str:
        """The attacker with the smallest error ``each``: pessimistic."""
        return min(self.each, key=lambda name: self.each[name].rmse)


def disjoint_sums(sessions: Sessions, summands: int, stream: RandomStream) -> Sums:
    """Every session in one sum at most, as clients are in one round; what is left over is dropped.

    Args:
        sessions: the clients' uploads.
        summands: k, in one sum.
        stream: deals the sessions out.

    Raises:
        SfumatoError: if there are fewer than k sessions.
    """
    _check_summands(summands, sessions.count)
    order = stream.permutation(sessions.count)
    whole = sessions.count // summands
    rows = order[: whole * summands].reshape(whole, summands)
    return _sums(sessions, rows, np.arange(whole))


def draw_sums(sessions: Sessions, summands: int, count: int, stream: RandomStream) -> Sums:
    """Sums of random sessions for training; maps are parted first, so that no map is in sums of two parts.

    Args:
        sessions: the attacker's own uploads.
        summands: k, in one sum.
        count: how many sums.
        stream: parts the maps and draws the sessions, without repetition within a sum.

    Raises:
        SfumatoError: if there are too few maps, too few sessions in a part of them, or no sum is asked for.
    """
    check_maps(sessions.maps)
    if not is_integer(count) or count < 1:
        raise SfumatoError(f"{count!r} sums are asked for; allowed is an integer of at least 1.")
    names, numbers = np.unique(sessions.maps, return_inverse=True)
    parts = min(_PARTS, len(names))
    part_of = (stream.permutation(len(names)) % parts)[numbers]
    smallest = int(np.bincount(part_of, minlength=parts).min())
    _check_summands(
        summands, smallest, ", as many as that fifth of the maps has which has fewest: make more uploads"
    )
    labels = np.arange(count) % parts
    rows = np.empty((count, summands), np.int64)
    for number, label in enumerate(labels):
        inside = np.flatnonzero(part_of == label)
        rows[number] = inside[stream.permutation(len(inside))[:summands]]
    return _sums(sessions, rows, labels)


def _check_summands(summands: int, sessions: int, why: str = "") -> None:
    if not is_integer(summands) or not 1 <= summands <= sessions:
        raise SfumatoError(f"{summands!r} uploads are to be summed; allowed are 1 to {sessions}{why}.")


def _sums(sessions: Sessions, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> Sums:
    members = sessions.positions[rows]
    clean = None if sessions.clean is None else sessions.clean[rows].sum(axis=1, dtype=np.float64)
    uploads = sessions.uploads[rows].sum(axis=1, dtype=np.float64)
    means = np.clip(members.mean(axis=1), 0.0, sessions.window)
    return Sums(
        Sessions(
            uploads.astype(np.float32),
            means,
            labels,
            sessions.window,
            None if clean is None else clean.astype(np.float32),
        ),
        members,
    )


def attack_sums(
    shadow: Sessions,
    attacked: Sessions,
    summands: int,
    count: int,
    streams: Streams,
    noise: Noise | None = None,
    names: Sequence[str] | None = None,
) -> SumResult:
    """Attack sums of k clients' uploads.

    Args:
        shadow: the attacker's own defended uploads.
        attacked: clients' defended uploads, on other maps.
        summands: k, such as 6.
        count: how many shadow sums to train on.
        streams: the attack's randomness.
        noise: what is known of the noise of one upload.
        names: the attackers; by default all that can be had.

    Raises:
        SfumatoError: if there are too few sessions for the sums, or `attackers.attack` would refuse.
    """
    check_pair(shadow, attacked)
    ours = draw_sums(shadow, summands, count, streams.stream("attack/sums", "shadow"))
    theirs = disjoint_sums(attacked, summands, streams.stream("attack/sums", "attacked"))
    fitted = fit_attackers(ours.sessions, streams, None if noise is None else noise.summed(summands), names)
    errors = {
        attacker.name: root_mean_square(attacker.held_out, ours.sessions.positions) for attacker in fitted
    }
    each: dict[str, Localisation] = {}
    nearest: dict[str, Localisation] = {}
    for attacker in fitted:
        guesses = attacker.predict(theirs.sessions.uploads)
        each[attacker.name], nearest[attacker.name] = _both(guesses, theirs.members, streams)
    constant_each, constant_nearest = _both(constant(shadow, len(theirs.members)), theirs.members, streams)
    return SumResult(
        each,
        nearest,
        constant_each,
        constant_nearest,
        errors,
        summands,
    )


def _both(guesses: Vector, members: Vector, streams: Streams) -> tuple[Localisation, Localisation]:
    """Errors of (n, 2) guesses for each of the (n, k, 2) positions, and for the nearest."""
    away = np.linalg.norm(members - guesses[:, None], axis=2)
    sums = np.arange(len(away))
    return (
        summarise(away.ravel(), np.repeat(sums, away.shape[1]), streams.stream("attack/intervals")),
        summarise(away.min(axis=1), sums, streams.stream("attack/intervals")),
    )
