"""What the report reads of the divergence system: its records, statements, released numbers and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tasks import command
from tasks.reported.files import Levels, belongs, documents, shared_statements

if TYPE_CHECKING:
    from sfumato.params import Params
    from sfumato.records import Record
    from sfumato.report import Run, Statement

SYSTEM = "divergence"


def current(call: command.Call, name: tuple[str, str]) -> tuple[Run, ...]:
    """The run whose files lie in the tree; nothing where the grid has no data set.

    Args:
        call: whose parameters say what belongs to the run.
        name: profile and variant.
    """
    from sfumato.report import run_of

    params = call.params.divergence
    if not params.grid.datasets:
        return ()
    settings = {
        "divergence_confidence": params.train.confidence,
        "divergence_epsilon": params.studies.epsilon,
    }
    found = documents(call.root / "data" / "metrics" / SYSTEM)
    return (run_of(name[0], SYSTEM, name[1], found, keep=_in_grid(call.params), settings=settings),)


def _in_grid(params: Params) -> Callable[[str, Record], bool]:
    """Whether a record belongs to these parameters; files of other grids may lie beside."""
    divergence = params.divergence
    grid, attack, studies = divergence.grid, divergence.attack, divergence.studies
    watched: Levels = {"dataset": set(divergence.timeline.datasets)}
    cells: dict[str, Levels] = {
        "train": {"dataset": set(grid.datasets), "comparison": set(grid.comparisons)},
        "account": {
            "dataset": set(grid.datasets),
            "method": set(grid.methods),
            "epsilon": _epsilons(grid.epsilons),
        },
        "audit": {
            "dataset": set(attack.datasets),
            "method": set(attack.methods),
            "epsilon": _epsilons(attack.epsilons),
        },
        "payload": {"dataset": set(grid.datasets)},
        "timeline": watched,
        "monitor": watched,
    }
    values: dict[str, Levels] = {
        "epsilon": {"value": {*_epsilons(grid.epsilons), "inf"}, "method": set(grid.methods)},
        "coefficient": {"value": {f"{value:g}" for value in studies.coefficients}},
        "points": {"value": {f"{value:g}" for value in studies.points}},
        "batches": {"value": {f"{value:g}" for value in studies.batches}},
        "floor": {"value": {f"{value:g}" for value in studies.floor_levels}},
    }

    def keep(step: str, record: Record) -> bool:
        return belongs(record, {**cells.get(step, {}), **values.get(record.levels.get("study", ""), {})})

    return keep


def _epsilons(values: Iterable[float]) -> set[str]:
    from sfumato.records import epsilon_text

    return {epsilon_text(value) for value in values}


def statements(call: command.Call) -> Iterator[Statement]:
    """The statements, each of which is one for all seeds."""
    return shared_statements(call.root, SYSTEM, call.params.divergence.grid)


def settings(call: command.Call) -> dict[str, Any]:
    """Facts of this part of the parameters that the page names, and what release mode released."""
    divergence = call.params.divergence
    if not divergence.grid.datasets:
        return {}
    train, timeline = divergence.train, divergence.timeline
    chosen = train.coefficient if isinstance(train.coefficient, str) else f"{train.coefficient:g}"
    facts = [
        ("privacy.delta", f"{call.params.privacy.delta:g}"),
        ("divergence.train.minimum_probability", f"{train.minimum_probability:g} (rarer codes share a cell)"),
        ("divergence.train.drift", train.drift),
        ("divergence.train.drift_shares", ", ".join(f"{share:g}" for share in train.drift_shares)),
        ("divergence.train.examples", f"{train.examples:,} (of a drifting population)"),
        ("divergence.train.smoothing", f"{train.smoothing:g} (of the truth)"),
        ("divergence.train.points", f"{train.points} (m)"),
        ("divergence.train.coefficient", f"{chosen} (λ)"),
        ("divergence.train.floor", f"{train.floor}, {train.floor_level:g} (γ)"),
        ("divergence.train.batches", f"{train.batches} (T)"),
        ("divergence.train.confidence", f"{train.confidence:g}"),
        ("divergence.train.sampling_variance", train.sampling_variance),
        ("divergence.studies.epsilon", f"{divergence.studies.epsilon:g}"),
        ("divergence.timeline.correction", timeline.correction),
        ("divergence.timeline.floor_level", f"{timeline.floor_level:g} (γ of the watch)"),
    ]
    return {"divergence_facts": facts, "divergence_released": list(_released(call))}


def _released(call: command.Call) -> Iterator[tuple[str, ...]]:
    """Released estimates as cells: data set, comparison, pair, method, epsilon, estimate, interval."""
    from sfumato import artifacts
    from sfumato.report.vocabulary import comparison_label, dataset_label, method, number

    for dataset in call.params.divergence.grid.datasets:
        path = call.root / "data" / "plots" / SYSTEM / "train" / f"{dataset}.csv"
        for row in artifacts.read_csv(path) if path.is_file() else []:
            ends = " to ".join(number(float(row[end])) for end in ("low", "high") if row[end])
            place = dataset_label(dataset), comparison_label(row["comparison"]), row["pair"]
            name = method(row["method"]).label
            yield (*place, name, row["epsilon"], number(float(row["raw"])), ends or "–")
