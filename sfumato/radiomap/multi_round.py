"""An attacker who follows clients over rounds and combines their uploads.

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> random = np.random.default_rng(0)
>>> place, mixing = random.uniform(0.0, 256.0, (64, 2)), random.standard_normal((2, 20))
>>> rounds = [Sessions(place @ mixing + 900 * random.standard_normal((64, 20)), place, np.arange(64) // 4, 256.0)
...           for _ in range(16)]
>>> shadow, attacked = ([part.select(rows) for part in rounds] for rows in (np.arange(40), np.arange(40, 64)))
>>> found = follow(shadow, attacked, [1, 16], Streams(0), names=["ridge"])
>>> found[1].scores["ridge"].test.rmse > 1.5 * found[16].scores["ridge"].test.rmse
True

A client keeps its transmitter while its noise is fresh in every round, so the deviation of the noise in the mean of R uploads
falls with sqrt(R). Averaging assumes that the same weights tell the position in every round; behind each other (``joined``)
the uploads let the regressor weigh each round by itself, at R times the number of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.radiomap.attackers import attack
from sfumato.radiomap.features import Noise, Sessions, average, concatenate
from sfumato.radiomap.localisation import AttackResult
from sfumato.rng import Streams

Combination = Literal["averaged", "joined"]

COMBINATIONS: Final[tuple[Combination, ...]] = ("averaged", "joined")


def follow(
    shadow: Sequence[Sessions],
    attacked: Sequence[Sessions],
    counts: Sequence[int],
    streams: Streams,
    noise: Noise | None = None,
    combination: Combination = "averaged",
    view: NDArray[Any] | None = None,
    names: Sequence[str] | None = None,
) -> dict[int, AttackResult]:
    """Attack the first R uploads of every client together, for several R.

    Args:
        shadow: the attacker's own sessions of each round, at that round's global weights; the same transmitters in
            every round.
        attacked: the clients' sessions of each round, likewise.
        counts: the numbers R of rounds to combine, each from 1 to the number of rounds.
        streams: the attack's randomness.
        noise: what is known of the noise of one upload.
        combination: ``averaged`` or ``joined``.
        view: (k,) positions in an upload; None for all weights.
        names: the attackers; by default all that can be had.

    Returns:
        R -> errors in metres, ascending.

    Raises:
        SfumatoError: if a count is out of range, rounds hold different transmitters, or `attack` refuses.
    """
    if combination not in COMBINATIONS:
        raise SfumatoError(f"combination is {combination!r}; allowed are {', '.join(COMBINATIONS)}.")
    rounds = min(len(shadow), len(attacked))
    for count in counts:
        if not is_integer(count) or not 1 <= count <= rounds:
            raise SfumatoError(f"{count!r} rounds are asked for; allowed are 1 to {rounds}.")
    results: dict[int, AttackResult] = {}
    for count in sorted({int(count) for count in counts}):
        ours, theirs = (
            _combined([part.restrict(view) for part in parts[:count]], combination)
            for parts in (shadow, attacked)
        )
        known = None if noise is None else _noise(noise.restrict(view), count, combination)
        results[count] = attack(ours, theirs, streams, known, names)
    return results


def _combined(rounds: Sequence[Sessions], combination: Combination) -> Sessions:
    return average(rounds) if combination == "averaged" else concatenate(rounds)


def _noise(noise: Noise, count: int, combination: Combination) -> Noise:
    if combination == "averaged":
        return noise.averaged(count)
    return Noise(np.tile(noise.variance, count), np.tile(noise.signal, count))
