"""The numbers of the modulated system's section, row by row, from records; no formatting.

>>> from sfumato.records import Record
>>> from sfumato.report.study import Run
>>> levels = {"dataset": "co2", "method": "one_shot", "epsilon": "5", "seed": "0"}
>>> record = Record(levels, {"test_relative_error": 0.5, "noise_dominated": True})
>>> row = error_rows(Run("quick", "modulated", "base", {"train": (record,)}))[0]
>>> row.error.mean, row.noise_dominated
(0.5, True)

Errors are mean squared errors on held-out rows over that of predicting the training mean of the labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sfumato.records import MeanInterval, mean_and_interval
from sfumato.report.study import Run, by_seed, interval, levels_of, number_of, paired
from sfumato.report.vocabulary import dataset_order, epsilon_order, method_order

ERROR = "test_relative_error"
UNBIASED = frozenset({"linear_unbiased", "maximum_likelihood"})
"""Attackers whose yardstick is the Cramer-Rao floor; the others have a prior and the Bayes floor."""
ATTACKS = {
    "linear_unbiased": "linear, unbiased",
    "maximum_likelihood": "maximum likelihood",
    "linear_posterior_mean": "linear, knows the spread",
    "exact_posterior_mean": "posterior mean",
}


@dataclass(frozen=True)
class ErrorRow:
    """One method at one data set and epsilon.

    Attributes:
        error: relative test error over seeds.
        noise_dominated: whether the noise of the matrix exceeds what its smallest eigenvalue could be; None where the
            method has no such matrix.
        bound_reached: share of the fits whose coefficients lie on the edge of the allowed ball.
    """

    dataset: str
    method: str
    epsilon: str
    error: MeanInterval
    noise_dominated: bool | None
    bound_reached: float


def error_rows(run: Run) -> list[ErrorRow]:
    """A row per data set, epsilon and method, in the report's order; methods without privacy last."""
    rows: list[ErrorRow] = []
    for dataset in levels_of(run.records.get("train", ()), "dataset"):
        for epsilon in levels_of(run.select("train", dataset=dataset), "epsilon"):
            for name in levels_of(run.select("train", dataset=dataset, epsilon=epsilon), "method"):
                fits = run.select("train", dataset=dataset, epsilon=epsilon, method=name)
                error = interval(fits, ERROR)
                if error is not None:
                    flags = {r.values["noise_dominated"] for r in fits if "noise_dominated" in r.values}
                    reached = interval(fits, "bound_reached")
                    rows.append(
                        ErrorRow(
                            dataset,
                            name,
                            epsilon,
                            error,
                            any(flags) if flags else None,
                            reached.mean if reached else 0.0,
                        )
                    )
    return rows


def datasets_of(rows: Iterable[ErrorRow]) -> list[str]:
    """The data sets in the order of the rows."""
    return list(dict.fromkeys(row.dataset for row in rows))


def epsilons_of(rows: Iterable[ErrorRow]) -> list[str]:
    """The finite epsilons, ascending."""
    return sorted({row.epsilon for row in rows if row.epsilon != "inf"}, key=epsilon_order)


def dominated_epsilons(rows: Iterable[ErrorRow], dataset: str) -> list[str]:
    """Where the noise of one message per client dominates, by the one-shot methods calibrated without loss."""
    names = ("one_shot", "one_shot_descent", "no_modulation")
    mine = [row for row in rows if row.dataset == dataset and row.method in names]
    return sorted({row.epsilon for row in mine if row.noise_dominated}, key=epsilon_order)


# -------------------------------------------------------------------------------------------------- ratios
def log_errors(run: Run, dataset: str, name: str, epsilons: Sequence[str]) -> dict[str, float]:
    """Seed -> mean over the epsilons of the logarithm of the relative error; seeds that lack an epsilon are left out."""
    found = [
        by_seed(run.select("train", dataset=dataset, method=name, epsilon=epsilon), ERROR)
        for epsilon in epsilons
    ]
    seeds = [
        seed for seed in (found[0] if found else {}) if all(errors.get(seed, 0.0) > 0 for errors in found)
    ]
    return {seed: math.fsum(math.log(errors[seed]) for errors in found) / len(found) for seed in seeds}


def log_ratio(
    run: Run, dataset: str, first: str, second: str, epsilons: Sequence[str]
) -> MeanInterval | None:
    """Logarithm of the error of the first method over the second's, paired over seeds, averaged over the epsilons."""
    return paired(log_errors(run, dataset, first, epsilons), log_errors(run, dataset, second, epsilons))


@dataclass(frozen=True)
class TwinRow:
    """Two methods that differ in one thing, on the same seeds: the logarithm of the ratio of their errors."""

    dataset: str
    epsilon: str
    method: str
    twin: str
    ratio: MeanInterval
    dominated: bool


TWINS = (
    ("one_shot_descent", "no_modulation"),
    ("other_frequency", "one_shot_descent"),
    ("one_shot_descent_lipschitz", "one_shot_descent"),
)


def twin_rows(run: Run) -> list[TwinRow]:
    """A row per pair of twins, data set and epsilon."""
    rows = error_rows(run)
    found: list[TwinRow] = []
    for first, second in TWINS:
        for dataset in datasets_of(rows):
            for epsilon in epsilons_of(row for row in rows if row.dataset == dataset):
                ratio = log_ratio(run, dataset, first, second, [epsilon])
                if ratio is not None:
                    dominated = epsilon in dominated_epsilons(rows, dataset)
                    found.append(TwinRow(dataset, epsilon, first, second, ratio, dominated))
    return found


@dataclass(frozen=True)
class NoiseRow:
    """The noise of one message by both calibrations, in the units of the features."""

    dataset: str
    epsilon: str
    marginal: float
    lipschitz: float


def noise_rows(run: Run) -> list[NoiseRow]:
    """A row per data set and epsilon where one_shot is accounted for."""
    rows: list[NoiseRow] = []
    for record in run.select("account", method="one_shot"):
        own, other = number_of(record, "noise_std"), number_of(record, "noise_std_other")
        if own is not None and other is not None:
            rows.append(NoiseRow(record.levels["dataset"], record.levels["epsilon"], own, other))
    return rows


# ------------------------------------------------------------------------------------------------- attacks
@dataclass(frozen=True)
class AttackRow:
    """One reconstruction attack: mean squared error over clients and what bounds it.

    Attributes:
        dataset, epsilon, method: whose messages.
        messages: T messages of the same client at the same total budget.
        attack: the attacker.
        mse, low, high: mean over the clients with its 95 % interval.
        along, across: its parts in and outside of the modulated directions.
        floor, floor_along, floor_across: Cramer-Rao, of unbiased attackers who do not know the phases.
        floor_bayes: of any attacker, on average over the prior.
        prior: the error of guessing the same point for every client.
    """

    dataset: str
    epsilon: str
    method: str
    messages: int
    attack: str
    mse: float
    low: float
    high: float
    along: float
    across: float
    floor: float
    floor_along: float
    floor_across: float
    floor_bayes: float
    prior: float

    @property
    def unbiased(self) -> bool:
        """Whether the Cramer-Rao floor is this attacker's yardstick."""
        return self.attack in UNBIASED

    @property
    def own_floor(self) -> float:
        """The floor that this attacker is held against."""
        return self.floor if self.unbiased else self.floor_bayes


_ATTACK_VALUES = (
    "mse", "mse_low", "mse_high", "mse_along", "mse_across", "floor", "floor_along", "floor_across", "floor_bayes",
    "prior_mse",
)  # fmt: skip


def attack_rows(run: Run) -> list[AttackRow]:
    """A row per attack record that holds every number, ordered by data set, epsilon, method, T and attacker."""
    rows: list[AttackRow] = []
    for record in run.records.get("attack", ()):
        levels, values = record.levels, [number_of(record, name) for name in _ATTACK_VALUES]
        if "messages" in levels and all(value is not None for value in values):
            numbers = [value for value in values if value is not None]
            rows.append(
                AttackRow(
                    levels["dataset"],
                    levels["epsilon"],
                    levels["method"],
                    int(levels["messages"]),
                    levels["attack"],
                    *numbers,
                )
            )
    order = {name: place for place, name in enumerate(ATTACKS)}
    return sorted(
        rows,
        key=lambda r: (
            dataset_order(r.dataset),
            epsilon_order(r.epsilon),
            method_order(r.method),
            r.messages,
            order.get(r.attack, len(order)),
            r.attack,
        ),
    )


# -------------------------------------------------------------------------------------------------- audits
@dataclass(frozen=True)
class LocalAuditRow:
    """A lower bound of epsilon from messages of two samples, beside the claim."""

    dataset: str
    epsilon: str
    method: str
    pair: str
    claimed: float
    lower: float
    ceiling: float | None
    confidence: float
    runs: int

    @property
    def crossed(self) -> bool:
        """Whether the audit refutes the claim."""
        return self.lower > self.claimed


def local_audit_rows(run: Run) -> list[LocalAuditRow]:
    """A row per audit record."""
    rows: list[LocalAuditRow] = []
    for record in run.records.get("audit", ()):
        levels, lower = record.levels, number_of(record, "epsilon_lower")
        if lower is not None:
            rows.append(
                LocalAuditRow(
                    levels["dataset"],
                    levels["epsilon"],
                    levels["method"],
                    levels.get("pair", ""),
                    float(levels["epsilon"]),
                    lower,
                    number_of(record, "epsilon_ceiling"),
                    number_of(record, "confidence") or 0.0,
                    int(number_of(record, "runs") or 0),
                )
            )
    return rows


# ------------------------------------------------------------------------------------- intervals and tuning
@dataclass(frozen=True)
class CoverageRow:
    """How often the intervals of one_shot held the coefficients of least squares.

    Attributes:
        covered: share of the coefficients inside, over the fits that had an interval.
        with_interval, fits: how many fits had one, of how many.
        half_width: median over coefficients, mean over fits.
    """

    dataset: str
    epsilon: str
    covered: MeanInterval | None
    with_interval: int
    fits: int
    half_width: MeanInterval | None
    dominated: bool


def coverage_rows(run: Run) -> list[CoverageRow]:
    """A row per data set and epsilon of one_shot."""
    rows: list[CoverageRow] = []
    for row in error_rows(run):
        if row.method != "one_shot" or row.epsilon == "inf":
            continue
        fits = run.select("train", dataset=row.dataset, epsilon=row.epsilon, method="one_shot")
        inside = by_seed(fits, "covered")
        covered = mean_and_interval(list(inside.values())) if inside else None
        width = interval(fits, "half_width")
        dominated = bool(row.noise_dominated)
        rows.append(CoverageRow(row.dataset, row.epsilon, covered, len(inside), len(fits), width, dominated))
    return rows


@dataclass(frozen=True)
class TuningRow:
    """What a grid chose for a method on validation rows, in the grid's units.

    Attributes:
        trials: how many fits chose it.
        best: relative validation error of the choice.
        edges: names of the settings that were chosen at an end of their grid.
    """

    dataset: str
    epsilon: str
    method: str
    step_size: float
    clip_norm: float | None
    trials: int
    best: float
    edges: tuple[str, ...]


def tuning_rows(table: Sequence[Mapping[str, str]]) -> list[TuningRow]:
    """A row per data set, method and epsilon of the tuning tables."""
    groups: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for line in table:
        groups.setdefault((line["dataset"], line["epsilon"], line["method"]), []).append(line)
    rows: list[TuningRow] = []
    for (dataset, epsilon, name), lines in groups.items():
        best = min(lines, key=lambda line: float(line["validation_relative_error"]))
        edges = tuple(key for key in ("step_size", "clip_norm") if _at_edge(lines, best, key))
        rows.append(
            TuningRow(
                dataset,
                epsilon,
                name,
                float(best["step_size"]),
                float(best["clip_norm"]) if best.get("clip_norm") else None,
                len(lines),
                float(best["validation_relative_error"]),
                edges,
            )
        )
    return sorted(
        rows, key=lambda r: (dataset_order(r.dataset), method_order(r.method), epsilon_order(r.epsilon))
    )


def _at_edge(lines: Sequence[Mapping[str, str]], best: Mapping[str, str], key: str) -> bool:
    tried = sorted({float(line[key]) for line in lines if line.get(key)})
    return len(tried) > 1 and float(best[key]) in (tried[0], tried[-1])
