"""What the report reads of the topk system: its records, curves, supports, statements and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tasks import command
from tasks.reported.files import belongs, documents, seeds_of

if TYPE_CHECKING:
    from sfumato.params import Params, TopK
    from sfumato.records import Record
    from sfumato.report import Run, Statement, Support

SYSTEM = "topk"
PICTURED = ("tp_topk", "tp_rand")


def current(call: command.Call, name: tuple[str, str]) -> Run:
    """The run whose files lie in the tree.

    Args:
        call: whose parameters say what belongs to the run.
        name: profile and variant.
    """
    from sfumato.report import run_of

    found = documents(call.root / "data" / "metrics" / SYSTEM)
    topk = call.params.topk
    settings = {"share": topk.warmup.budget_share, "ratio": topk.train.active_ratio}
    return run_of(name[0], SYSTEM, name[1], found, keep=_in_grid(call.params), settings=settings)


def _in_grid(params: Params) -> Callable[[str, Record], bool]:
    """Whether a record belongs to a cell of the parameters' grid; files of other grids may lie beside."""
    from sfumato.records import epsilon_text

    grid = params.topk.grid
    sections = {"audit": params.topk.audit, "membership": params.topk.membership}
    seeds = set(seeds_of(grid.seeds))

    def keep(step: str, record: Record) -> bool:
        cells = sections.get(step, grid)
        allowed = {
            "dataset": set(cells.datasets),
            "method": {*cells.methods, *({"non_private"} if cells is grid else set())},
            "epsilon": {*(epsilon_text(e) for e in cells.epsilons), *({"inf"} if cells is grid else set())},
            "seed": seeds,
        }
        return belongs(record, allowed)

    return keep


def _cells(call: command.Call) -> Iterator[tuple[str, str, str]]:
    """Data set, method and epsilon of every fit of the grid."""
    from sfumato.records import epsilon_text

    grid = call.params.topk.grid
    for dataset in grid.datasets:
        for epsilon in grid.epsilons:
            for method in grid.methods:
                yield dataset, method, epsilon_text(epsilon)
        yield dataset, "non_private", "inf"


def curves(call: command.Call) -> Iterator[Mapping[str, str]]:
    """Rows of the training curves of every fit of the grid."""
    from sfumato import artifacts

    seeds = set(seeds_of(call.params.topk.grid.seeds))
    for dataset, method, epsilon in _cells(call):
        path = call.root / "data" / "plots" / SYSTEM / "train" / f"{dataset}-{method}-{epsilon}.csv"
        for row in artifacts.read_csv(path) if path.is_file() else []:
            if row["seed"] in seeds:
                yield {**row, "dataset": dataset, "method": method, "epsilon": epsilon}


def roc_rows(call: command.Call, step: str) -> Iterator[Mapping[str, str]]:
    """Rows of a step's ROC curves that lie in the grid, each place once."""
    from sfumato import artifacts

    cells, seeds = set(_cells(call)), {*seeds_of(call.params.topk.grid.seeds), None}
    seen: set[tuple[str, ...]] = set()
    for path in sorted((call.root / "data" / "plots" / SYSTEM / step).glob("*.csv")):
        rows = [
            row
            for row in artifacts.read_csv(path)
            if (row["dataset"], row["method"], row["epsilon"]) in cells and row.get("seed") in seeds
        ]
        names = ("dataset", "method", "epsilon", "seed", "attack")
        places = [tuple(row.get(name, "") for name in names) for row in rows]
        yield from (row for row, place in zip(rows, places, strict=True) if place not in seen)
        seen |= set(places)


def supports(call: command.Call) -> Iterator[Support]:
    """The support of the first seed, at the largest epsilon, of the methods that are pictured."""
    from sfumato import artifacts
    from sfumato.records import epsilon_text
    from sfumato.report import support_of

    grid = call.params.topk.grid
    epsilon, seed = epsilon_text(max(grid.epsilons)), seeds_of(call.params.topk.grid.seeds)[0]
    for dataset in grid.datasets:
        for method in PICTURED:
            path = (
                call.root / "data" / "models" / SYSTEM / "train" / f"{dataset}-{method}-{epsilon}.safetensors"
            )
            if method in grid.methods and path.is_file():
                tensors, metadata = artifacts.read_tensors(path), artifacts.read_metadata(path)
                found = support_of((dataset, method, epsilon, seed), tensors, metadata)
                if found is not None:
                    yield found


def statements(call: command.Call) -> Iterator[Statement]:
    """The statements, one for each seed."""
    from sfumato import artifacts
    from sfumato.records import epsilon_text
    from sfumato.report import Statement

    grid = call.params.topk.grid
    folder = call.root / "data" / "statements" / SYSTEM
    for dataset in grid.datasets:
        for number, value in enumerate(grid.epsilons):
            epsilon = epsilon_text(value)
            for method in (*grid.methods, *(("non_private",) if number == 0 else ())):
                for seed in seeds_of(call.params.topk.grid.seeds):
                    path = folder / f"{dataset}-{epsilon}" / f"{method}-{seed}.txt"
                    fields = (
                        artifacts.read_json(path.with_suffix(".json"))
                        if path.with_suffix(".json").is_file()
                        else {}
                    )
                    if path.is_file():
                        text = path.read_text(encoding="utf-8")
                        shown = "inf" if method == "non_private" else epsilon
                        yield Statement(dataset, method, shown, seed, text, fields)


def settings(params: Params) -> dict[str, Any]:
    """Facts of the parameters that the page names."""
    topk = params.topk
    batches = ", ".join(f"{name} {topk.sampling.expected_batch_size[name]}" for name in topk.grid.datasets)
    models = ", ".join(f"{name} {topk.model[name]}" for name in topk.grid.datasets)
    facts = [
        ("privacy.delta", f"{params.privacy.delta:g}"),
        ("topk.model", models),
        ("topk.sampling.expected_batch_size", batches),
        ("topk.optimizer", f"{topk.optimizer.name}, momentum {topk.optimizer.momentum:g}"),
        ("topk.warmup.steps", f"{topk.warmup.steps}"),
        ("topk.warmup.budget_share", f"{topk.warmup.budget_share:g}"),
        ("topk.train.steps", f"{topk.train.steps}"),
        ("topk.train.active_ratio", f"{topk.train.active_ratio:g}"),
        ("topk.train.score", topk.train.score),
        ("topk.train.support", topk.train.support),
        ("topk.train.reselect_every", f"{topk.train.reselect_every} (on_topk, on_rand)"),
        ("topk.train.tuning", _tuning_text(topk)),
    ]
    return {"delta": params.privacy.delta, "mode": params.privacy.mode, "facts": facts}


def _tuning_text(topk: TopK) -> str:
    """What the choice of hyper-parameters cost on each data set of the grid."""
    tuning = topk.train.tuning
    trials = ", ".join(f"{name} {tuning.private_trials[name]}" for name in topk.grid.datasets)
    return f"private trials: {trials}; chosen on {tuning.chosen_on}"
