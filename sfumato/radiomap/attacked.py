"""Every defence against every attacker, on the same uploads: shadow and victims' updates are computed once.

>>> from sfumato.radiomap.partition import partition_of
>>> partition = partition_of(4, {"transmitter": np.array([1, 3])}, sensitive={"transmitter"})
>>> sensitive_index(partition)
array([1, 3])

The attacker is the server: it knows the weights of a round, the defence and all its public numbers, has maps of its own
in another city, and makes updates on them as clients do (Section 3.5 of docs/papers.md: a final attacker that differs
from the proxy, trained on defended uploads, judged on other maps). Defences are compared at one set of weights per seed
and round, so that their differences are paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.radiomap.attackers import attack
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.defences import Defence
from sfumato.radiomap.features import Noise, Sessions, average
from sfumato.radiomap.federated import all_pairs, draw_sessions, session_groups
from sfumato.radiomap.localisation import AttackResult, Localisation
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.partition import Partition
from sfumato.radiomap.shaped import ShapedDefence
from sfumato.radiomap.summed import SumResult, attack_sums
from sfumato.radiomap.training import session_updates
from sfumato.radiomap.unet import RadioUNet
from sfumato.records import Record, Value
from sfumato.rng import RandomStream, Streams

NAMES: Final = {
    "ridge": "ridge",
    "rbf_ridge": "kernel",
    "perceptron": "mlp",
    "whitened_ridge": "whitened",
    "noise_aware_ridge": "noise_aware",
}
"""Attackers as records name them; ``best`` is the one that held-out shadow maps choose, ``least`` the smallest test error."""
OBSERVED_ROUNDS: Final = 3
"""Of how many of the last rounds a defence that learns from releases has seen such uploads before it is attacked."""
SUMMANDS: Final = 6


@dataclass(frozen=True, eq=False)
class Updates:
    """Undefended updates of one round's weights.

    Attributes:
        updates: (n, d) float32.
        sessions: (n, b, 2) the pairs of each.
        positions: (n, 2) metres.
        maps: (n,) the map of each; of several maps a number that all sessions have which share one (`session_groups`).
        window: metres.
    """

    updates: NDArray[np.float32]
    sessions: NDArray[np.int64]
    positions: NDArray[np.float64]
    maps: NDArray[np.int64]
    window: float


def make_updates(
    model: RadioUNet,
    weights: NDArray[np.float32],
    maps: MapSet,
    count: int,
    maps_per_upload: int,
    local: LocalTraining,
    streams: Streams,
    who: str,
) -> Updates:
    """Updates of drawn sessions at the given weights; the same sessions for the same streams and name.

    Args:
        model: where it is computed; its weights are overwritten.
        weights: (d,) of the round.
        maps: whose.
        count: how many sessions.
        maps_per_upload: of each, with one transmitter.
        local: how clients train.
        streams: the seed's randomness.
        who: ``shadow`` or ``victims``.
    """
    pairs = all_pairs(maps)
    stream = streams.stream("attack", who, "sessions")
    sessions = draw_sessions(maps, pairs, count, maps_per_upload, stream, maps_per_upload > 1)
    updates = session_updates(weights, model, maps, sessions, local, streams)
    first = sessions[:, 0]
    return Updates(updates, sessions, maps.positions(first), session_groups(sessions), maps.size * maps.cell)


@dataclass(frozen=True, eq=False)
class Defended:
    """What an attacker has of one defence.

    Attributes:
        shadow: its own defended uploads.
        attacked: the victims'.
        sigmas: (n, G) of its own uploads' noise.
        defence: in the state that protected them.
    """

    shadow: Sessions
    attacked: Sessions
    sigmas: NDArray[np.float64]
    defence: Defence


def defend(defence: Defence, shadow: Updates, victims: Updates, round: int, streams: Streams) -> Defended:
    """Protect both sets of updates with fresh noise.

    Args:
        defence: at its first state.
        shadow: the attacker's.
        victims: the clients'.
        round: of the weights.
        streams: of the noise; the same draws for every defence.
    """
    state = observed_state(defence, victims, round, streams)
    ours, sigmas = _protected(state, shadow, round, streams, "shadow")
    theirs, _sigmas = _protected(state, victims, round, streams, "victims")
    return Defended(ours, replace(theirs, clean=None), sigmas, state)


def observed_state(defence: Defence, victims: Updates, round: int, streams: Streams) -> Defence:
    """The defence as it is when the round begins; most do not learn from what was released.

    It observed as many rounds as there were, the last ``OBSERVED_ROUNDS`` of them with six victims' uploads. Of those
    before nothing is left in it but their number, which an allocator is told.
    """
    state, seen = defence, min(round, OBSERVED_ROUNDS)
    for _number in range(round - seen):
        state = state.observe([])
    for number in range(seen):
        rows = victims.updates[number * SUMMANDS : (number + 1) * SUMMANDS]
        noises = [streams.stream("attack", "observed", round, number, place) for place in range(len(rows))]
        released = [
            state.protect(row.astype(np.float64), round, noise).upload
            for row, noise in zip(rows, noises, strict=True)
        ]
        state = state.observe(released)
    return state


def victims_noise(streams: Streams, round: int, number: int) -> RandomStream:
    """The noise of one victim's upload, the same in every attack on it."""
    return streams.stream("attack", "victims", "noise", round, number)


def _protected(
    state: Defence, made: Updates, round: int, streams: Streams, who: str
) -> tuple[Sessions, NDArray[np.float64]]:
    noisy, clean = np.empty_like(made.updates), np.empty_like(made.updates)
    sigmas = np.empty((len(made.updates), state.partition.count))
    for number, row in enumerate(made.updates):
        delta = row.astype(np.float64)
        noise = streams.stream("attack", who, "noise", round, number)
        protected = state.protect(delta, round, noise)
        noisy[number], sigmas[number] = protected.upload, protected.sigmas
        quiet = state.protect(delta, round, _Silent())
        clean[number] = quiet.upload
    return Sessions(noisy, made.positions, made.maps, made.window, clean), sigmas


class _Silent:
    """A stream of zeros: what a defence sends without its noise is the clipped update."""

    def standard_normal(self, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        return np.zeros(size)

    def random(self, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        return np.zeros(size)

    def permutation(self, n: int) -> NDArray[np.int64]:
        return np.arange(n)

    def integers(self, low: int, high: int, size: int | tuple[int, ...]) -> NDArray[np.int64]:
        return np.full(size, low, np.int64)

    def fill_normal(self, out: NDArray[Any], deviation: float = 1.0) -> None:
        out[...] = 0.0


# ---------------------------------------------------------------------------------------------------- attacks
def sensitive_index(partition: Partition) -> NDArray[np.int64]:
    """Positions of the weights that meet the transmitter: the paper's view."""
    return np.sort(np.concatenate([group.index for group in partition.groups if group.sensitive]))


def attack_defended(
    made: Defended,
    streams: Streams,
    index: NDArray[np.int64] | None = None,
    names: Sequence[str] | None = None,
) -> AttackResult:
    """All attackers against one defence.

    Where the noise is independent in other coordinates only, the attackers that use what they know of it read the uploads
    there.

    Args:
        made: what the attacker has.
        streams: the seed's randomness.
        index: weights that are read; None for all.
        names: the attackers; by default all that can be had.
    """
    shadow, attacked = made.shadow.restrict(index), made.attacked.restrict(index)
    noise = _noise(made).restrict(index)
    if index is not None:
        return attack(shadow, attacked, streams, noise, names)
    return _attack_whole(made.defence, shadow, attacked, streams, noise, names, 1)


def _attack_whole(
    defence: Defence,
    shadow: Sessions,
    attacked: Sessions,
    streams: Streams,
    noise: Noise,
    names: Sequence[str] | None,
    averaged: int,
) -> AttackResult:
    """On all weights of means of ``averaged`` uploads."""
    found = attack(shadow, attacked, streams, noise, names)
    chosen = _aware(found.scores)
    if not isinstance(defence, ShapedDefence) or not chosen:
        return found
    ours, theirs, known = _even(defence, shadow, attacked)
    aware = attack(ours, theirs, streams, known.averaged(averaged), chosen)
    return AttackResult(
        {**found.scores, **aware.scores}, found.constant, {**found.predictions, **aware.predictions}
    )


def _even(shaped: ShapedDefence, shadow: Sessions, attacked: Sessions) -> tuple[Sessions, Sessions, Noise]:
    """Both in the coordinates in which the noise of one upload is independent and the same everywhere, and that noise."""

    def even(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.stack([shaped.shape.power(row.astype(np.float64), -0.5) for row in rows]).astype(np.float32)

    ours = shadow.transformed(even)
    signal = np.asarray(ours.clean, np.float64).var(axis=0)
    noise = Noise(np.full(ours.dimension, shaped.sigma**2), signal)
    return ours, attacked.transformed(even), noise


def _aware(names: Mapping[str, Any]) -> list[str]:
    """Those of the attackers that use what they know of the noise."""
    return [name for name in ("whitened_ridge", "noise_aware_ridge") if name in names]


def _noise(made: Defended) -> Noise:
    return Noise.of(made.defence.partition, made.sigmas, made.shadow)


def attack_average(
    rounds: Sequence[Defended], streams: Streams, names: Sequence[str] | None = None
) -> AttackResult:
    """The attackers on each session's mean upload over several rounds, in which it kept its transmitter."""
    shadow = average([made.shadow for made in rounds])
    attacked = average([made.attacked for made in rounds])
    defence, sigmas = rounds[-1].defence, np.concatenate([made.sigmas for made in rounds])
    noise = Noise.of(defence.partition, sigmas, shadow).averaged(len(rounds))
    return _attack_whole(defence, shadow, attacked, streams, noise, names, len(rounds))


def attack_secure_sum(made: Defended, streams: Streams, names: Sequence[str] | None = None) -> SumResult:
    """The attackers on sums of six uploads, all that secure aggregation shows."""
    count = made.shadow.count
    found = attack_sums(made.shadow, made.attacked, SUMMANDS, count, streams, _noise(made), names)
    chosen = _aware(found.each)
    if not isinstance(made.defence, ShapedDefence) or not chosen:
        return found
    ours, theirs, known = _even(made.defence, made.shadow, made.attacked)
    aware = attack_sums(ours, theirs, SUMMANDS, count, streams, known, chosen)
    return replace(
        found,
        each={**found.each, **aware.each},
        nearest={**found.nearest, **aware.nearest},
        held_out={**found.held_out, **aware.held_out},
    )


# ---------------------------------------------------------------------------------------------------- records
def attack_records(result: AttackResult, levels: Mapping[str, str]) -> list[Record]:
    """A record per attacker, and the chosen, the least and the constant one.

    Args:
        result: what they got.
        levels: all but ``attacker``.
    """
    rows = {NAMES[name]: scored.test for name, scored in result.scores.items()}
    rows |= {
        "best": result.scores[result.chosen].test,
        "least": result.scores[result.minimum].test,
        "constant": result.constant,
    }
    return [Record({**levels, "attacker": name}, attack_values(found)) for name, found in rows.items()]


def sum_records(result: SumResult, levels: Mapping[str, str]) -> list[Record]:
    """As `attack_records`, with the error for every summand's transmitter."""
    rows = {NAMES[name]: found for name, found in result.each.items()}
    rows |= {"best": result.each[result.chosen], "least": result.each[result.minimum]}
    rows["constant"] = result.constant_each
    return [Record({**levels, "attacker": name}, attack_values(found)) for name, found in rows.items()]


def attack_values(found: Localisation) -> dict[str, Value]:
    """Leaves of a metrics document for one attacker."""
    values: dict[str, Value] = {"rmse": found.rmse, "median": found.median, "count": found.count}
    if found.low is None or found.high is None:
        return values | {"half_width": None, "half_width_reason": "the positions lie on one map"}
    return values | {"half_width": (found.high - found.low) / 2.0}


def guessed(result: AttackResult, number: int) -> NDArray[np.float64]:
    """(2,) metres: where the chosen attacker puts one victim."""
    return result.predictions[result.chosen][number]
