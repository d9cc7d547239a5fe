"""How far a guess of a transmitter's position is off, in metres, and the records that say so.

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> true = np.array([[0.0, 0.0], [30.0, 40.0], [0.0, 0.0], [0.0, 0.0]])
>>> found = evaluate(np.zeros((4, 2)), true, np.array([0, 0, 1, 1]), Streams(0).stream("bootstrap"))
>>> found.rmse, found.median, found.low, found.count, found.maps
(25.0, 0.0, 0.0, 4, 2)

The root mean square error is that of the distance in the plane, sqrt(mean |guess - true|^2), the paper's privacy metric
(Section 3.1 of docs/papers.md); higher is better for privacy. Uploads of one map are not independent of each other, so
intervals resample whole maps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.records import Record, Value
from sfumato.rng import RandomStream

Vector = NDArray[np.float64]

CHOSEN: Final = "chosen_by_validation"
MINIMUM: Final = "minimum_over_test"
CONSTANT: Final = "constant"

_RESAMPLES: Final = 1000


@dataclass(frozen=True)
class Localisation:
    """Distances between guesses and true positions.

    Attributes:
        rmse: root mean square distance, in metres.
        median: the median distance, in metres.
        low: lower end of the 95 % interval of ``rmse``, by resampling maps; None if there is one map only.
        high: its upper end.
        count: how many positions were guessed.
        maps: on how many maps.
    """

    rmse: float
    median: float
    low: float | None
    high: float | None
    count: int
    maps: int

    def to_values(self, prefix: str = "") -> dict[str, Value]:
        """Leaves of a metrics document.

        Args:
            prefix: put before every name, such as ``validation_``.
        """
        values: dict[str, Value] = {
            "localization_rmse": self.rmse,
            "localization_rmse_low": self.low,
            "localization_rmse_high": self.high,
            "localization_median": self.median,
            "uploads": self.count,
            "maps": self.maps,
        }
        if self.low is None:
            reason = "the positions lie on one map, of which no spread between maps is known"
            values |= {"localization_rmse_low_reason": reason, "localization_rmse_high_reason": reason}
        return {f"{prefix}{name}": value for name, value in values.items()}


@dataclass(frozen=True)
class Scored:
    """One attacker's errors.

    Attributes:
        validation: on the shadow uploads, each guessed without those of its own map.
        test: on the attacked uploads.
    """

    validation: Localisation
    test: Localisation


@dataclass(frozen=True, eq=False)
class AttackResult:
    """What all attackers got from one set of uploads.

    Attributes:
        scores: attacker -> its errors; the attackers that read uploads, without the constant predictor.
        constant: errors of the mean of the shadow positions on the attacked uploads: what no reading of them gives.
        predictions: attacker -> (m, 2) guessed positions in metres.
    """

    scores: Mapping[str, Scored]
    constant: Localisation
    predictions: Mapping[str, Vector]

    @property
    def chosen(self) -> str:
        """The attacker with the smallest error on held-out shadow maps: what a real attacker would use."""
        return min(self.scores, key=lambda name: self.scores[name].validation.rmse)

    @property
    def minimum(self) -> str:
        """The attacker with the smallest error on the attacked uploads: pessimistic, as nobody could choose it."""
        return min(self.scores, key=lambda name: self.scores[name].test.rmse)


def checked_positions(positions: NDArray[Any], what: str, count: int | None = None) -> Vector:
    """Positions as float64.

    Args:
        positions: (n, 2) metres.
        what: how a message calls them.
        count: n, if it must be a certain one.

    Raises:
        SfumatoError: unless they are finite numbers of shape (n, 2).
    """
    given = np.asarray(positions)
    if given.ndim != 2 or given.shape[1] != 2 or (count is not None and len(given) != count):
        raise SfumatoError(
            f"{what} have shape {given.shape}; allowed is ({'n' if count is None else count}, 2)."
        )
    if given.dtype.kind not in "fiu" or not np.isfinite(given).all():
        raise SfumatoError(f"{what} hold something else than finite numbers of metres.")
    return given.astype(np.float64)


def distances(predicted: NDArray[Any], true: NDArray[Any]) -> Vector:
    """(n,) metres between guesses and truth.

    Raises:
        SfumatoError: if they are not finite or of different shapes.
    """
    target = checked_positions(true, "the true positions")
    guess = checked_positions(predicted, "the guessed positions", len(target))
    return np.linalg.norm(guess - target, axis=1)


def root_mean_square(predicted: NDArray[Any], true: NDArray[Any]) -> float:
    """The root mean square distance in metres.

    Raises:
        SfumatoError: if they are not finite or of different shapes.
    """
    return float(np.sqrt(np.mean(distances(predicted, true) ** 2)))


def evaluate(
    predicted: NDArray[Any], true: NDArray[Any], maps: NDArray[Any], stream: RandomStream
) -> Localisation:
    """The errors of guesses, with an interval.

    Args:
        predicted: (n, 2) guessed positions in metres.
        true: (n, 2) true positions in metres.
        maps: (n,) the map of each; labels of any kind.
        stream: resamples the maps, 1000 times; the same stream gives paired intervals of two attackers.

    Raises:
        SfumatoError: if there is no position, one is not finite, or the shapes differ.
    """
    return summarise(distances(predicted, true), maps, stream)


def summarise(away: Vector, maps: NDArray[Any], stream: RandomStream) -> Localisation:
    """The summary of (n,) distances in metres, as `evaluate` gives it.

    Raises:
        SfumatoError: if there is no distance, or not one map label for each.
    """
    if not len(away) or np.shape(maps) != away.shape:
        raise SfumatoError(
            f"there are {len(away)} distances and map labels of shape {np.shape(maps)}; allowed is one label for each "
            "distance and at least one."
        )
    _, numbers = np.unique(maps, return_inverse=True)
    counts = np.bincount(numbers).astype(np.float64)
    sums = np.bincount(numbers, weights=away**2)
    groups, low, high = len(counts), None, None
    if groups > 1:
        drawn = stream.integers(0, groups, (_RESAMPLES, groups))
        means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
        low, high = (float(end) for end in np.sqrt(np.quantile(means, [0.025, 0.975])))
    return Localisation(
        float(np.sqrt(np.mean(away**2))), float(np.median(away)), low, high, len(away), groups
    )


def records(results: Mapping[str, AttackResult], levels: Mapping[str, str]) -> list[Record]:
    """Table rows: one per view and attacker, and three more per view.

    Those are ``constant``, ``chosen_by_validation`` and ``minimum_over_test``; the last two repeat an attacker's numbers
    and say whose by a leaf ``same_as_<attacker>``.

    Args:
        results: view (``all``, ``slices``) -> result.
        levels: the levels outside, such as defence, nu, messages and seed; ``view`` and ``attacker`` are added.

    Raises:
        SfumatoError: if ``levels`` already has one of the two.
    """
    taken = sorted({"view", "attacker"} & set(levels))
    if taken:
        raise SfumatoError(f"the levels hold {taken[0]!r}; it is added here, so leave it out.")
    rows: list[Record] = []
    for view, result in results.items():
        leaves = {name: _values(scored) for name, scored in result.scores.items()}
        for label, name in ((CHOSEN, result.chosen), (MINIMUM, result.minimum)):
            leaves[label] = leaves[name] | {f"same_as_{name}": True}
        leaves[CONSTANT] = dict(result.constant.to_values())
        for name, values in leaves.items():
            rows.append(Record({**levels, "view": view, "attacker": name}, values))
    return rows


def _values(scored: Scored) -> dict[str, Value]:
    return scored.test.to_values() | scored.validation.to_values("validation_")


def curve(results: Mapping[int, AttackResult], attacker: str) -> list[dict[str, float]]:
    """Rows of a curve over rounds, ascending: ``round``, the error, its interval's ends and the constant predictor's.

    Args:
        results: round -> result.
        attacker: a name in the results, ``chosen_by_validation`` or ``minimum_over_test``.

    Raises:
        SfumatoError: if a result lacks the attacker.
    """
    rows: list[dict[str, float]] = []
    for number in sorted(results):
        result = results[number]
        name = {CHOSEN: result.chosen, MINIMUM: result.minimum}.get(attacker, attacker)
        if name not in result.scores:
            raise SfumatoError(
                f"attacker {attacker!r} has no result at round {number}; there are {sorted(result.scores)}."
            )
        test = result.scores[name].test
        ends = {"localization_rmse_low": test.low, "localization_rmse_high": test.high}
        row = {"round": float(number), "localization_rmse": test.rmse, "constant_rmse": result.constant.rmse}
        rows.append(row | {key: end for key, end in ends.items() if end is not None})
    return rows


def window_centre_error(window: float) -> float:
    """RMSE of guessing the centre when positions are uniform on the window: window / sqrt(6), in metres.

    >>> round(window_centre_error(256.0), 1)
    104.5

    Args:
        window: side of the window in metres.
    """
    return window / math.sqrt(6.0)
