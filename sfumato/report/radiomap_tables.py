"""The numbers of the radio map system's section, row by row, from records; no formatting.

>>> from sfumato.records import Record
>>> levels = {"dataset": "city_maps", "method": "uniform", "multiplier": "3", "seed": "0"}
>>> record = Record(levels, {"validation_db": -16.5})
>>> row = defence_rows(Run("quick", "radiomap", "base", {"train": (record,)}))[0]
>>> row.multiplier, row.validation.mean
('3', -16.5)

Utility is the mean squared error on the free cells of the validation maps in decibels, 10 log10 of it in encoded units: lower
is better. Privacy is the root mean squared error of the located transmitter in metres: higher is better. Defences without
noise are recorded at the multiplier 0 and stand beside every other. Where a figure exists for several rounds, the last one
counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sfumato.records import MeanInterval, Record
from sfumato.report.study import Run, by_seed, interval, levels_of, number_of, paired
from sfumato.report.vocabulary import ATTACKERS, method_order

FREE = ("none", "clip_only")
"""Defences without noise."""
REFERENCE = "uniform"
"""What the others are compared with."""
NO_NOISE = "0"
SINGLE = "1"


@dataclass(frozen=True)
class Reading:
    """What an attacker reads.

    Attributes:
        attacker: who reads.
        view: which weights, ``all`` or ``slices``.
        uploads: ``1``, how many of a client are averaged, or ``sum`` and how many clients are summed.
    """

    attacker: str = "best"
    view: str = "all"
    uploads: str = SINGLE


@dataclass(frozen=True)
class Cell:
    """A defence at a noise multiplier on a data set."""

    dataset: str
    method: str
    multiplier: str

    @property
    def levels(self) -> dict[str, str]:
        """As in records."""
        recorded = NO_NOISE if self.method in FREE else self.multiplier
        return {"dataset": self.dataset, "method": self.method, "multiplier": recorded}


def order(text: str) -> tuple[float, str]:
    """Sort key of a level that is a number; others come last."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text


def datasets_of(run: Run) -> list[str]:
    """The data sets that were trained on or attacked."""
    return levels_of((*run.records.get("train", ()), *run.records.get("attack", ())), "dataset")


def _found(run: Run, dataset: str) -> list[Record]:
    return [*run.select("train", dataset=dataset), *run.select("attack", dataset=dataset)]


def multipliers_of(run: Run, dataset: str) -> list[str]:
    """The noise multipliers, ascending; 0 alone where no defence has noise."""
    texts = {record.levels["multiplier"] for record in _found(run, dataset) if "multiplier" in record.levels}
    return sorted(texts - {NO_NOISE}, key=order) or sorted(texts)


def methods_of(run: Run, dataset: str, multiplier: str) -> list[str]:
    """The defences at a multiplier, those without noise included, in the report's order."""
    found = {
        record.levels["method"]
        for record in _found(run, dataset)
        if record.levels.get("multiplier") in (multiplier, NO_NOISE)
    }
    return sorted(found, key=method_order)


def cells_of(run: Run, dataset: str) -> list[Cell]:
    """Every cell once: those without noise first, then by multiplier."""
    cells: dict[tuple[str, ...], Cell] = {}
    for multiplier in multipliers_of(run, dataset):
        for name in methods_of(run, dataset, multiplier):
            cell = Cell(dataset, name, multiplier)
            cells.setdefault(tuple(cell.levels.values()), replace(cell, multiplier=cell.levels["multiplier"]))
    return sorted(cells.values(), key=lambda cell: (order(cell.multiplier), method_order(cell.method)))


# ------------------------------------------------------------------------------------------------- look-ups
def utility(run: Run, cell: Cell) -> dict[str, float]:
    """Seed -> validation error in dB."""
    return by_seed(run.select("train", **cell.levels), "validation_db")


def read(run: Run, cell: Cell, reading: Reading) -> list[Record]:
    """The attack's records of all rounds and seeds."""
    levels = {"attacker": reading.attacker, "view": reading.view, "uploads": reading.uploads}
    return run.select("attack", **cell.levels, **levels)


def rounds_of(records: Iterable[Record]) -> list[str]:
    """The rounds, ascending."""
    return sorted({r.levels["round"] for r in records if "round" in r.levels}, key=order)


def errors(run: Run, cell: Cell, reading: Reading, round_: str = "", name: str = "rmse") -> dict[str, float]:
    """Seed -> an error in metres.

    Args:
        run: whose records.
        cell: the defence.
        reading: what is attacked.
        round_: of training; empty for the last one that was attacked.
        name: ``rmse`` or ``median``.
    """
    records = read(run, cell, reading)
    rounds = rounds_of(records)
    chosen = round_ or (rounds[-1] if rounds else "")
    return by_seed([record for record in records if record.levels.get("round") == chosen], name)


def seed_gaps(
    run: Run,
    first: tuple[Cell, Reading],
    second: tuple[Cell, Reading],
    other: Run | None = None,
    name: str = "rmse",
) -> dict[str, float]:
    """Seed -> error of the first less that of the second in metres, over the seeds that both have.

    Both are taken at the last round that both have; where they share none, each at its own last, but nothing from two runs.

    Args:
        run: whose records.
        first: what is compared.
        second: with what.
        other: the run of the second; None for the same.
        name: ``rmse`` or ``median``.
    """
    beside = run if other is None else other
    attacked = rounds_of(read(beside, *second))
    last = next((place for place in reversed(rounds_of(read(run, *first))) if place in attacked), "")
    if other is not None and not last:
        return {}
    one, two = errors(run, *first, last, name), errors(beside, *second, last, name)
    return {seed: one[seed] - two[seed] for seed in one if seed in two}


def error_gap(run: Run, first: tuple[Cell, Reading], second: tuple[Cell, Reading]) -> MeanInterval | None:
    """Mean of `seed_gaps` with its 95 % interval; None where the two share no seed."""
    return mean(seed_gaps(run, first, second))


def utility_gap(run: Run, first: Cell, second: Cell) -> MeanInterval | None:
    """Validation error of the first less that of the second in dB, paired over seeds; positive: the first is worse."""
    return paired(utility(run, first), utility(run, second))


def mean(values: dict[str, float]) -> MeanInterval | None:
    """Mean over seeds with its 95 % interval; None without a value."""
    return paired(values, dict.fromkeys(values, 0.0))


# ------------------------------------------------------------------------------------------- the comparison
@dataclass(frozen=True)
class DefenceRow:
    """One defence at one noise multiplier; means over seeds.

    Attributes:
        dataset, method, multiplier: where; the multiplier is that of the table, also for defences without noise.
        round: the round whose updates are attacked.
        validation: error in dB.
        best, least, median, slices, constant: error in metres of the attacker chosen by validation, the smallest of all
            attackers, the median distance of the chosen one, the chosen one that reads the transmitter's weights only, and of
            the constant guess.
        utility_change, privacy_change: against uniform noise at the same multiplier, paired over seeds, in dB and metres.
        clipped: share of the updates that were shortened.
        energy: energy of the added noise over its budget.
        dropped: updates that were left out since they were not finite, all seeds together.
    """

    dataset: str
    method: str
    multiplier: str
    round: str
    validation: MeanInterval | None
    best: MeanInterval | None
    least: MeanInterval | None
    median: MeanInterval | None
    slices: MeanInterval | None
    constant: MeanInterval | None
    utility_change: MeanInterval | None
    privacy_change: MeanInterval | None
    clipped: MeanInterval | None
    energy: MeanInterval | None
    dropped: int

    @property
    def noisy(self) -> bool:
        """Whether the defence adds noise."""
        return self.method not in FREE


def defence_rows(run: Run) -> list[DefenceRow]:
    """A row per data set, multiplier and defence, in the report's order; defences without noise at every multiplier."""
    return [
        _defence_row(run, Cell(dataset, name, multiplier))
        for dataset in datasets_of(run)
        for multiplier in multipliers_of(run, dataset)
        for name in methods_of(run, dataset, multiplier)
    ]


def _defence_row(run: Run, cell: Cell) -> DefenceRow:
    other, reading = replace(cell, method=REFERENCE), Reading()
    fits, rounds = run.select("train", **cell.levels), rounds_of(read(run, cell, reading))
    compared = cell.method != REFERENCE
    return DefenceRow(
        cell.dataset,
        cell.method,
        cell.multiplier,
        rounds[-1] if rounds else "",
        validation=mean(utility(run, cell)),
        best=mean(errors(run, cell, reading)),
        least=mean(errors(run, cell, Reading("least"))),
        median=mean(errors(run, cell, reading, name="median")),
        slices=mean(errors(run, cell, Reading(view="slices"))),
        constant=mean(errors(run, cell, Reading("constant"))),
        utility_change=utility_gap(run, cell, other) if compared else None,
        privacy_change=error_gap(run, (cell, reading), (other, reading)) if compared else None,
        clipped=interval(fits, "clipped_share"),
        energy=interval(fits, "energy_ratio"),
        dropped=round(math.fsum(by_seed(fits, "dropped").values())),
    )


@dataclass(frozen=True)
class References:
    """What a defence's figures are held against on one data set; None where it was not recorded.

    Attributes:
        mean_map, distance, warm_start: dB of predicting the mean map, of a path loss over distance alone, and of the public
            warm start that training begins with.
        clip_norm: the public length C.
        dimension, sensitive: how many weights there are, and how many of them meet the transmitter's channel.
        loss_start, loss_end: of the allocator, before and after its training.
        largest_share: of the budget on one group, by the trained allocator.
    """

    dataset: str
    mean_map: float | None
    distance: float | None
    warm_start: float | None
    clip_norm: float | None
    dimension: float | None
    sensitive: float | None
    loss_start: float | None
    loss_end: float | None
    largest_share: float | None


def references_of(run: Run, dataset: str) -> References:
    """Means over seeds of the warm-up's figures; those that training repeats are read there first."""
    fits, warm = run.select("train", dataset=dataset), run.select("warmup", dataset=dataset)

    def value(name: str, records: Sequence[Record] = warm) -> float | None:
        found = [number for record in records if (number := number_of(record, name)) is not None]
        return math.fsum(found) / len(found) if found else None

    repeated = [value(name, fits) for name in ("mean_map_db", "distance_only_db", "warm_start_db")]
    first = [value(name) for name in ("mean_map_db", "distance_only_db", "validation_db")]
    mean_map, distance, start = (
        one if one is not None else two for one, two in zip(repeated, first, strict=True)
    )
    return References(
        dataset,
        mean_map,
        distance,
        start,
        value("clip_norm"),
        value("dimension"),
        value("sensitive"),
        value("allocator_loss_start"),
        value("allocator_loss_end"),
        value("largest_share"),
    )


# ------------------------------------------------------------------------------------- rounds and attackers
def round_errors(run: Run, cell: Cell, reading: Reading) -> list[tuple[float, MeanInterval]]:
    """Round -> error in metres, ascending."""
    found: list[tuple[float, MeanInterval]] = []
    for name in rounds_of(read(run, cell, reading)):
        value = mean(errors(run, cell, reading, name))
        if value is not None:
            found.append((order(name)[0], value))
    return found


def readings_of(run: Run, dataset: str) -> list[Reading]:
    """Attackers and views of single updates, in the report's order."""
    names = list(ATTACKERS)
    found = {
        (record.levels["attacker"], record.levels["view"])
        for record in run.select("attack", dataset=dataset, uploads=SINGLE)
    }

    def place(pair: tuple[str, str]) -> tuple[str, int, str]:
        return pair[1], names.index(pair[0]) if pair[0] in names else len(names), pair[0]

    return [Reading(*pair) for pair in sorted(found, key=place)]


def uploads_of(run: Run, dataset: str) -> list[str]:
    """How uploads are put together: single ones, averages by their number, then sums."""
    found = {record.levels["uploads"] for record in run.select("attack", dataset=dataset)}
    return sorted(found, key=lambda text: (not text.isdigit(), len(text), text))


# ------------------------------------------------------------------------------------------------ accounting
@dataclass(frozen=True)
class AccountRow:
    """What a defence guarantees; None where it guarantees nothing.

    Attributes:
        dataset, method, multiplier: whose.
        epsilon_upload, epsilon_client: of one update, and of all that a client sends.
        delta: of both.
        uploads: how many a client sends.
        sigma_least: the smallest standard deviation of the noise on a weight.
        audit_lower, audit_confidence: lower bound on the epsilon of one update, at this confidence.
        multiplier_10, db_10: the noise multiplier that an epsilon of 10 takes, and the validation error with it in dB.
        reason: why there is no epsilon, or nothing is known of an epsilon of 10.
    """

    dataset: str
    method: str
    multiplier: str
    epsilon_upload: float | None
    epsilon_client: float | None
    delta: float | None
    uploads: float | None
    sigma_least: float | None
    audit_lower: float | None
    audit_confidence: float | None
    multiplier_10: float | None
    db_10: float | None
    reason: str

    @property
    def crossed(self) -> bool:
        """Whether the audit refutes the claim."""
        return (
            self.audit_lower is not None
            and self.epsilon_upload is not None
            and self.audit_lower > self.epsilon_upload
        )


def account_rows(run: Run) -> list[AccountRow]:
    """A row per account record, by data set, multiplier and defence."""
    rows = [
        AccountRow(
            record.levels["dataset"],
            record.levels["method"],
            record.levels["multiplier"],
            number_of(record, "epsilon_upload"),
            number_of(record, "epsilon_client"),
            number_of(record, "delta"),
            number_of(record, "uploads_per_client"),
            number_of(record, "sigma_least"),
            number_of(record, "audit_lower"),
            number_of(record, "audit_confidence"),
            number_of(record, "multiplier_for_epsilon_10"),
            number_of(record, "db_at_epsilon_10"),
            str(
                record.values.get("epsilon_upload_reason") or record.values.get("db_at_epsilon_10_reason", "")
            ),
        )
        for record in run.records.get("account", ())
    ]
    return sorted(rows, key=lambda row: (row.dataset, order(row.multiplier), method_order(row.method)))
