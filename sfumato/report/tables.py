"""The numbers of the report, row by row, from records; no formatting.

>>> from sfumato.records import MeanInterval
>>> odds(3.0)
20.085536923187668
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sfumato.records import MeanInterval, Record
from sfumato.report.study import Run, Study, by_seed, interval, levels_of, paired


def odds(epsilon: float) -> float:
    """The factor by which an (epsilon, 0) mechanism can move an attacker's odds, e^epsilon."""
    return math.exp(epsilon)


@dataclass(frozen=True)
class MethodRow:
    """One method at one data set and epsilon.

    Attributes:
        accuracy: test accuracy over seeds.
        balanced, recall: balanced accuracy; recall of the rare class, for two classes only.
        auc, tpr: of the loss-threshold attack: area under ROC, true-positive rate at 1 % false positives.
        tpr_interval: for one seed's model, Clopper-Pearson, averaged over seeds.
        audited: largest lower bound of epsilon by the one-run audit; None where it was not audited.
        priced: epsilon of the recorded steps by PLD, the largest over seeds.
    """

    dataset: str
    method: str
    epsilon: str
    accuracy: MeanInterval | None
    balanced: MeanInterval | None
    recall: MeanInterval | None
    auc: MeanInterval | None
    tpr: MeanInterval | None
    audited: float | None
    priced: float | None


def method_rows(run: Run) -> list[MethodRow]:
    """A row per data set, epsilon and method of a run's fits, in the report's order; non-private last."""
    rows: list[MethodRow] = []
    for dataset in levels_of(run.records.get("train", ()), "dataset"):
        for epsilon in levels_of(run.select("train", dataset=dataset), "epsilon"):
            for name in levels_of(run.select("train", dataset=dataset, epsilon=epsilon), "method"):
                rows.append(_method_row(run, dataset, name, epsilon))
    return rows


def _method_row(run: Run, dataset: str, name: str, epsilon: str) -> MethodRow:
    place = {"dataset": dataset, "method": name, "epsilon": epsilon}
    fits, attacks = run.select("train", **place), run.select("attack", **place)
    return MethodRow(
        **place,
        accuracy=interval(fits, "test_accuracy"),
        balanced=interval(fits, "test_balanced_accuracy"),
        recall=interval(fits, "test_positive_recall"),
        auc=interval(attacks, "auc"),
        tpr=interval(attacks, "tpr_at_fpr_0_01"),
        audited=largest(run.select("audit", **place), "epsilon_lower"),
        priced=largest(run.select("account", **place), "epsilon_pld"),
    )


def largest(records: Sequence[Record], name: str) -> float | None:
    """The largest number of that name, or None."""
    values = [record.values.get(name) for record in records]
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return max(numbers) if numbers else None


@dataclass(frozen=True)
class DifferenceRow:
    """TP-TopK, or another method, minus a reference on the same seeds."""

    dataset: str
    epsilon: str
    method: str
    reference: str
    difference: MeanInterval
    seeds: Mapping[str, float]


def difference_rows(
    run: Run,
    methods: Sequence[str] = ("tp_topk", "tp_rand", "on_topk", "on_rand"),
    references: Sequence[str] = ("tp_rand", "dense"),
    metric: str = "test_accuracy",
) -> list[DifferenceRow]:
    """Paired differences of a metric wherever both methods have a seed in common."""
    rows: list[DifferenceRow] = []
    train = run.records.get("train", ())
    for dataset in levels_of(train, "dataset"):
        for epsilon in levels_of(run.select("train", dataset=dataset), "epsilon"):
            for reference in references:
                for name in methods:
                    first, second = (
                        by_seed(run.select("train", dataset=dataset, epsilon=epsilon, method=m), metric)
                        for m in (name, reference)
                    )
                    difference = paired(first, second)
                    if name != reference and difference is not None:
                        seeds = {seed: first[seed] - second[seed] for seed in first if seed in second}
                        rows.append(DifferenceRow(dataset, epsilon, name, reference, difference, seeds))
    return rows


@dataclass(frozen=True)
class EnergyRow:
    """What a support keeps of the gradient and what it saves of the noise, means over seeds."""

    dataset: str
    epsilon: str
    method: str
    retained: MeanInterval
    share_active: float
    dropped: float
    noise_active: float
    noise_dense: float
    noise_dense_budget: float
    beneficial: int
    beneficial_at_equal_budget: int
    seeds: int

    @property
    def saved(self) -> float:
        """Noise energy that restriction saves per step against a dense step of the whole budget."""
        return self.noise_dense_budget - self.noise_active


def energy_rows(run: Run) -> list[EnergyRow]:
    """A row per restricted method whose fits measured their energies."""
    rows: list[EnergyRow] = []
    for row in method_rows(run):
        fits = run.select("train", dataset=row.dataset, epsilon=row.epsilon, method=row.method)
        energies = ("noise_energy_active", "noise_energy_dense", "noise_energy_dense_budget")
        names = ("dropped_energy", *energies, "active", "dimension")
        retained = interval(fits, "retained_energy")
        means = [interval(fits, name) for name in names]
        if retained is None or any(mean is None for mean in means):
            continue
        dropped, active, dense, dense_budget, k, d = (mean.mean for mean in means if mean is not None)
        says = by_seed(fits, "restriction_beneficial")
        says_at_equal_budget = by_seed(fits, "restriction_beneficial_at_equal_budget")
        rows.append(
            EnergyRow(
                row.dataset,
                row.epsilon,
                row.method,
                retained,
                k / d if d else 0.0,
                dropped,
                active,
                dense,
                dense_budget,
                round(sum(says.values())),
                round(sum(says_at_equal_budget.values())),
                len(says),
            )
        )
    return rows


@dataclass(frozen=True)
class RankingRow:
    """How well noisy scores ranked the coordinates, beside the prediction."""

    dataset: str
    epsilon: str
    measured: MeanInterval
    predicted: MeanInterval
    overlap: MeanInterval
    chance: float
    points: tuple[tuple[float, float], ...]


def ranking_rows(run: Run, method: str = "tp_topk") -> list[RankingRow]:
    """A row per data set and epsilon with misranking figures."""
    rows: list[RankingRow] = []
    for row in method_rows(run):
        fits = run.select("train", dataset=row.dataset, epsilon=row.epsilon, method=row.method)
        found = [
            interval(fits, n)
            for n in ("misranked", "misranked_predicted", "top_overlap", "top_overlap_by_chance")
        ]
        if row.method != method or any(mean is None for mean in found):
            continue
        measured, predicted, overlap, chance = (mean for mean in found if mean is not None)
        one, two = by_seed(fits, "misranked"), by_seed(fits, "misranked_predicted")
        points = tuple((two[seed], one[seed]) for seed in one if seed in two)
        rows.append(RankingRow(row.dataset, row.epsilon, measured, predicted, overlap, chance.mean, points))
    return rows


@dataclass(frozen=True)
class AuditRow:
    """A claimed epsilon beside a lower bound that an attack on a labelled fit proved."""

    dataset: str
    epsilon: str
    method: str
    space: str
    claimed: float
    priced: float | None
    lower: float
    ceiling: float | None
    correct: int | None
    guesses: int | None
    canaries: int | None
    confidence: float | None

    @property
    def crossed(self) -> bool:
        """Whether the audit refutes the claim."""
        return self.lower > self.claimed


def audit_rows(run: Run) -> list[AuditRow]:
    """A row per audit record."""
    rows: list[AuditRow] = []
    for record in run.records.get("audit", ()):
        levels, values = record.levels, record.values
        lower = values.get("epsilon_lower")
        if not isinstance(lower, int | float):
            continue
        place = {name: levels.get(name, "") for name in ("dataset", "epsilon", "method")}
        numbers = {
            name: values.get(name)
            for name in ("correct", "guesses", "canaries", "epsilon_ceiling", "confidence")
        }
        plain = {k: v if isinstance(v, int | float) else None for k, v in numbers.items()}
        counts = [
            None if plain[n] is None else int(plain[n] or 0) for n in ("correct", "guesses", "canaries")
        ]
        rows.append(
            AuditRow(
                place["dataset"],
                place["epsilon"],
                place["method"],
                levels.get("space", ""),
                float(place["epsilon"]),
                largest(run.select("account", **place), "epsilon_pld"),
                float(lower),
                None if plain["epsilon_ceiling"] is None else float(plain["epsilon_ceiling"] or 0.0),
                counts[0],
                counts[1],
                counts[2],
                None if plain["confidence"] is None else float(plain["confidence"] or 0.0),
            )
        )
    return rows


@dataclass(frozen=True)
class DensityRow:
    """The share of a parameter's coordinates that are active, by method, means over seeds."""

    parameter: str
    size: int | None
    densities: Mapping[str, float]


def density_rows(
    run: Run, dataset: str, epsilon: str, methods: Sequence[str], study: Study
) -> list[DensityRow]:
    """Rows in the order of the network's parameters, where a support's layout tells it."""
    fits = {name: run.select("train", dataset=dataset, epsilon=epsilon, method=name) for name in methods}
    names = {k for records in fits.values() for r in records for k in r.values if k.startswith("density/")}
    layout = next((s.layout for s in study.supports if s.dataset == dataset), ())
    sizes = {_leaf(name): (name, math.prod(shape)) for name, shape in layout}
    order = {leaf: place for place, leaf in enumerate(sizes)}
    rows: list[DensityRow] = []
    for key in sorted(names, key=lambda k: (order.get(k.removeprefix("density/"), len(order)), k)):
        leaf = key.removeprefix("density/")
        label, size = sizes.get(leaf, (leaf, None))
        means = {name: interval(records, key) for name, records in fits.items()}
        rows.append(DensityRow(label, size, {n: mean.mean for n, mean in means.items() if mean is not None}))
    return rows


def _leaf(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower())


@dataclass(frozen=True)
class SweepPoint:
    """TP-TopK, and what it gains over a random support, at one value of a swept setting."""

    value: float
    accuracy: MeanInterval
    gain: MeanInterval | None


@dataclass(frozen=True)
class Sweep:
    """One setting varied, the others fixed."""

    profile: str
    name: str
    dataset: str
    epsilon: str
    points: tuple[SweepPoint, ...]


def sweeps(study: Study) -> list[Sweep]:
    """Every sweep of the results with at least two values."""
    found: list[Sweep] = []
    for profile in dict.fromkeys(run.profile for run in study.runs):
        runs = [run for run in study.runs if run.profile == profile]
        for name in ("share", "ratio"):
            swept = [run for run in runs if run.sweep and run.sweep[0] == name]
            cells = dict.fromkeys((r.dataset, r.epsilon) for run in swept for r in method_rows(run))
            for dataset, epsilon in cells:
                points = _points([*[r for r in runs if r.variant == "base"], *swept], name, dataset, epsilon)
                if epsilon != "inf" and len(points) > 1:
                    found.append(Sweep(profile, name, dataset, epsilon, points))
    return found


def _points(runs: Sequence[Run], name: str, dataset: str, epsilon: str) -> tuple[SweepPoint, ...]:
    points: dict[float, SweepPoint] = {}
    for run in runs:
        value = run.setting(name)
        topk, rand = (
            run.select("train", dataset=dataset, epsilon=epsilon, method=m) for m in ("tp_topk", "tp_rand")
        )
        accuracy = interval(topk, "test_accuracy")
        if value is not None and accuracy is not None:
            gain = paired(by_seed(topk, "test_accuracy"), by_seed(rand, "test_accuracy"))
            points[value] = SweepPoint(value, accuracy, gain)
    return tuple(points[value] for value in sorted(points))
