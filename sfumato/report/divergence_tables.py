"""The numbers of the divergence system's section, row by row, from records; no formatting.

>>> from sfumato.records import Record
>>> levels = {"dataset": "mnist_population", "comparison": "digits", "study": "epsilon", "value": "1",
...           "method": "trusted_aggregator"}
>>> values = {"absolute_error": 0.2, "absolute_error_half_width": 0.05, "seeds": 20, "pairs": 90}
>>> row = estimate_rows(Run("quick", "divergence", "base", {"train": (Record(levels, values),)}))[0]
>>> row.error.mean, row.error.half_width, row.number
(0.2, 0.05, 1.0)

Errors are in nats. The error is that of the raw estimate against the truth, KL(Pi || (1 - s) P + s Pi) with a small public
smoothing s, since the plain divergence of most pairs is infinite; the target error is that against the divergence with
the method's own floor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sfumato.records import MeanInterval, Record
from sfumato.report.study import Run, number_of
from sfumato.report.vocabulary import (
    COMPARISONS,
    DIVERGENCE_METHODS,
    STUDIES,
    Method,
    dataset_order,
    epsilon_order,
    method,
    method_order,
)

LOCAL = ("local_mix", "local_clip")
"""Algorithm 1 with both floors."""
BY_SEED = "absolute_error_seed_"
"""Before a seed's text: the leaf of that seed's error."""


@dataclass(frozen=True)
class EstimateRow:
    """One method on one comparison at one value of one study; means over pairs and seeds.

    Attributes:
        dataset, comparison, method: what was estimated, and how.
        study, value: what was varied and to what, as text.
        error: mean of |raw - truth|.
        target_error: mean of |raw - target|.
        bias: mean of raw - target.
        by_seed: seed -> error of that seed, where recorded; points and noise of a seed are shared by all methods.
        noise_std: standard deviation of the privacy noise of the estimate, where it is one.
        divergence: mean truth.
        target: mean of what the estimate aims at.
        covered: share of the intervals that hold what they are for, where intervals were computed: the target, and over
            batches the mean of the batches' own.
        smoothing: s of the truth.
        pairs, infinite, seeds: how many pairs, how many of them with an infinite plain KL, how many seeds.
    """

    dataset: str
    comparison: str
    method: str
    study: str
    value: str
    error: MeanInterval
    target_error: MeanInterval | None
    bias: MeanInterval | None
    by_seed: Mapping[str, float]
    noise_std: float | None
    divergence: float | None
    target: float | None
    covered: float | None
    smoothing: float | None
    pairs: int
    infinite: int
    seeds: int

    @property
    def number(self) -> float:
        """The value as a number; infinite for ``inf`` and for names."""
        return epsilon_order(self.value)

    @property
    def place(self) -> tuple[str, str]:
        """Data set and comparison."""
        return self.dataset, self.comparison


def estimate_rows(run: Run) -> list[EstimateRow]:
    """A row per training record that holds an error, in the report's order."""
    rows = [_estimate_row(record) for record in run.records.get("train", ())]
    return sorted((row for row in rows if row is not None), key=_order)


def _estimate_row(record: Record) -> EstimateRow | None:
    levels, error = record.levels, _mean(record, "absolute_error")
    if error is None or not {"comparison", "study", "value", "method", "dataset"} <= set(levels):
        return None
    return EstimateRow(
        levels["dataset"],
        levels["comparison"],
        levels["method"],
        levels["study"],
        levels["value"],
        error,
        _mean(record, "target_error"),
        _mean(record, "bias"),
        _by_seed(record),
        number_of(record, "noise_std"),
        number_of(record, "divergence"),
        number_of(record, "target"),
        number_of(record, "covered"),
        number_of(record, "smoothing"),
        whole(record, "pairs"),
        whole(record, "infinite"),
        whole(record, "seeds"),
    )


def _mean(record: Record, name: str) -> MeanInterval | None:
    """A mean that the record holds with its half width."""
    mean = number_of(record, name)
    if mean is None:
        return None
    return MeanInterval(mean, number_of(record, f"{name}_half_width"), whole(record, "seeds"))


def _by_seed(record: Record) -> dict[str, float]:
    names = [name for name in record.values if name.startswith(BY_SEED)]
    found = {name.removeprefix(BY_SEED): number_of(record, name) for name in names}
    return {seed: value for seed, value in found.items() if value is not None}


def whole(record: Record, name: str) -> int:
    """A whole number of a record, 0 where it is missing."""
    return int(number_of(record, name) or 0)


def _order(row: EstimateRow) -> tuple[object, ...]:
    return (
        dataset_order(row.dataset),
        _place_in(COMPARISONS, row.comparison),
        _place_in(STUDIES, row.study),
        row.number,
        row.value,
        own_order(row.method),
    )


def _place_in(names: Iterable[str], name: str) -> tuple[int, str]:
    known = list(names)
    return (known.index(name) if name in known else len(known)), name


def own_order(name: str) -> tuple[int, tuple[int, str]]:
    """Sort key of a method within this section, where ``non_private`` comes first."""
    return _place_in([m.name for m in DIVERGENCE_METHODS], name)[0], method_order(name)


def places_of(rows: Iterable[EstimateRow]) -> list[tuple[str, str]]:
    """Data sets and comparisons, in the order of the rows."""
    return list(dict.fromkeys(row.place for row in rows))


def own_method(name: str) -> Method:
    """The method with this section's words and look.

    >>> own_method("non_private").line
    '--'
    """
    return next((m for m in DIVERGENCE_METHODS if m.name == name), method(name))


def at_place(rows: Iterable[EstimateRow], place: tuple[str, str], study: str) -> list[EstimateRow]:
    """The rows of one study at one data set and comparison."""
    return [row for row in rows if row.place == place and row.study == study]


def methods_of(rows: Iterable[EstimateRow]) -> list[str]:
    """The methods, in this section's order."""
    return sorted({row.method for row in rows}, key=own_order)


def epsilons_of(rows: Iterable[EstimateRow]) -> list[str]:
    """The finite epsilons of the study of epsilon, ascending."""
    found = {row.value for row in rows if row.study == "epsilon" and row.value != "inf"}
    return sorted(found, key=epsilon_order)


def by_method(rows: Iterable[EstimateRow], value: str) -> dict[str, EstimateRow]:
    """Method -> its row at one value; methods without privacy stand at every epsilon."""
    return {row.method: row for row in rows if row.value in (value, "inf")}


# ------------------------------------------------------------------------------------------------- coverage
def mean_covered(rows: Sequence[EstimateRow]) -> tuple[float, int] | None:
    """Coverage averaged over values, and how many intervals each value had; None where there was none."""
    found = [(row.covered, row.pairs * row.seeds) for row in rows if row.covered is not None]
    if not found or min(trials for _share, trials in found) < 1:
        return None
    return math.fsum(share for share, _trials in found) / len(found), min(trials for _share, trials in found)
