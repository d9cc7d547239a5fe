"""The report: ``python -m tasks.report`` writes report/index.html, report/summary.txt and report/claims.json."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks import command

if TYPE_CHECKING:
    from sfumato.params import Params, TopK
    from sfumato.records import Record
    from sfumato.report import Run, Statement, Study, Support

SYSTEM = "topk"
MODULATED = "modulated"
DEFAULT = ("quick", "base")
PICTURED = ("tp_topk", "tp_rand")


def report(call: command.Call) -> None:
    """Gather the run's files and the committed results, and write the three outputs."""
    from sfumato import artifacts
    from sfumato.report import build, claims_json

    outputs = build(gather(call))
    folder = call.root / "report"
    artifacts.write_json(folder / "claims.json", claims_json(outputs.findings))
    artifacts.write_text(folder / "summary.txt", outputs.summary)
    artifacts.write_text(folder / "index.html", outputs.html)


def gather(call: command.Call) -> Study:
    """Everything that the report shows, read from ``data/`` and ``results/``."""
    from sfumato.report import Study
    from tasks import report_divergence as divergence

    # Matplotlib keeps a cache of fonts; it belongs to this tree, not to the user's home.
    os.environ.setdefault("MPLCONFIGDIR", str(call.root / ".runtime" / "matplotlib"))
    values = _plain(call.root / "params.yaml")
    documents = [d for _path, d in _documents(call.root / "data" / "metrics" / divergence.SYSTEM)]
    return Study(
        current=_current(call, values),
        results=tuple(_results(call, values)),
        curves=tuple(_curves(call)),
        rocs=tuple(_rows(call, "attack")),
        lira_rocs=tuple(_rows(call, "membership")),
        supports=tuple(_supports(call)),
        statements=(*_statements(call), *_modulated_statements(call), *divergence.statements(call)),
        settings={
            **_settings(call.params),
            **_modulated_settings(call.params),
            **divergence.settings(call),
        },
        further=(
            _modulated_current(call, values),
            *divergence.current(call, _name_of(call.root, values), documents),
        ),
        tunings=tuple(_tunings(call)),
    )


def _plain(path: Path) -> Any:
    from sfumato.params import read_yaml

    return read_yaml(path)


# ---------------------------------------------------------------------------------------------------- records
def _current(call: command.Call, values: Any) -> Run:
    from sfumato.report import run_of

    profile, variant = _name_of(call.root, values)
    documents = [document for _path, document in _documents(call.root / "data" / "metrics" / SYSTEM)]
    topk = call.params.topk
    settings = {"share": topk.warmup.budget_share, "ratio": topk.train.active_ratio}
    return run_of(profile, SYSTEM, variant, documents, keep=_in_grid(call.params), settings=settings)


def _in_grid(params: Params) -> Any:
    """Whether a record belongs to a cell of the parameters' grid; files of other grids may lie beside."""
    from sfumato.records import epsilon_text

    grid = params.topk.grid
    sections = {"audit": params.topk.audit, "membership": params.topk.membership}
    seeds = {"release"} if grid.seeds is None else {str(seed) for seed in grid.seeds}

    def keep(step: str, record: Record) -> bool:
        cells = sections.get(step, grid)
        allowed = {
            "dataset": set(cells.datasets),
            "method": {*cells.methods, *({"non_private"} if cells is grid else set())},
            "epsilon": {*(epsilon_text(e) for e in cells.epsilons), *({"inf"} if cells is grid else set())},
            "seed": seeds,
        }
        return all(record.levels[name] in texts for name, texts in allowed.items() if name in record.levels)

    return keep


def _modulated_current(call: command.Call, values: Any) -> Run:
    from sfumato.report import run_of

    profile, variant = _name_of(call.root, values)
    folder = call.root / "data" / "metrics" / MODULATED
    documents = [document for _path, document in _documents(folder)]
    train = call.params.modulated.train
    settings = {"rounds": float(train.rounds), "confidence": train.confidence}
    return run_of(
        profile, MODULATED, variant, documents, keep=_in_modulated_grid(call.params), settings=settings
    )


def _in_modulated_grid(params: Params) -> Any:
    """Whether a record belongs to the modulated part of the parameters; methods without privacy are at inf."""
    from sfumato.records import epsilon_text

    grid, attack = params.modulated.grid, params.modulated.attack
    seeds = {"release"} if grid.seeds is None else {str(seed) for seed in grid.seeds}
    fits = {
        "dataset": set(grid.datasets),
        "method": set(grid.methods),
        "epsilon": {*(epsilon_text(e) for e in grid.epsilons), "inf"},
        "seed": seeds,
    }
    attacked = {"dataset": set(attack.datasets), "epsilon": {epsilon_text(e) for e in attack.epsilons}}
    cells = {
        "attack": {**attacked, "messages": {str(count) for count in attack.messages}},
        "audit": {**attacked, "method": set(attack.audit_methods)},
    }

    def keep(step: str, record: Record) -> bool:
        allowed = cells.get(step, fits)
        return all(record.levels[name] in texts for name, texts in allowed.items() if name in record.levels)

    return keep


def _documents(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every records document below a folder, by path; other JSON files are passed over."""
    from sfumato import artifacts

    for path in sorted(folder.rglob("*.json")):
        document = artifacts.read_json(path)
        if isinstance(document, dict) and {"system", "step", "levels", "values"} <= set(document):
            yield path, document


def _results(call: command.Call, values: Any) -> Iterator[Run]:
    """The committed runs, ``results/<profile>/<system>/<variant>/``."""
    from sfumato import artifacts
    from sfumato.report import run_of
    from sfumato.report.study import settings_of

    folder = call.root / "results"
    for variant in sorted(path for path in folder.glob("*/*/*") if path.is_dir()):
        profile, system, name = variant.relative_to(folder).parts
        documents = [document for _path, document in _documents(variant)]
        origin = variant / "provenance.json"
        provenance = artifacts.read_json(origin) if origin.is_file() else {}
        recorded = "params" in provenance  # what that run really used; today's files may have moved on
        settings = settings_of(provenance) if recorded else _base_settings(call.root, values, profile)
        if documents:
            yield run_of(profile, system, name, documents, provenance, settings=settings)


def _base_settings(root: Path, values: Any, profile: str) -> dict[str, float]:
    """Warm-up share and active ratio of a profile's base run."""
    from sfumato.params import merged
    from sfumato.report.study import settings_of

    path = root / "profiles" / f"{profile}.yaml"
    overlay = _mapping(_plain(path)).get("params") if path.is_file() else None
    return settings_of({"params": merged(values, _mapping(overlay))})


def _name_of(root: Path, values: Any) -> tuple[str, str]:
    """Profile and variant whose parameters these are: the most specific overlay that changes nothing here."""
    from sfumato.params import merged

    best, most = DEFAULT, 0
    for path in sorted((root / "profiles").glob("*.yaml")):
        document = _mapping(_plain(path))
        shared = _mapping(document.get("params"))
        for row in document.get("variants") or [{"name": "base"}]:
            overlay = merged(shared, _mapping(_mapping(row).get("params")))
            size = _leaves(overlay)
            if size > most and merged(values, overlay) == values:
                best, most = (path.stem, str(_mapping(row).get("name", "base"))), size
    return best


def _mapping(value: object) -> dict[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _leaves(value: object) -> int:
    return sum(_leaves(item) for item in value.values()) if isinstance(value, dict) else 1


# ------------------------------------------------------------------------------------------------ other files
def _cells(call: command.Call) -> Iterator[tuple[str, str, str]]:
    """Data set, method and epsilon of every fit of the grid."""
    from sfumato.records import epsilon_text

    grid = call.params.topk.grid
    for dataset in grid.datasets:
        for epsilon in grid.epsilons:
            for method in grid.methods:
                yield dataset, method, epsilon_text(epsilon)
        yield dataset, "non_private", "inf"


def _seeds(call: command.Call) -> list[str]:
    seeds = call.params.topk.grid.seeds
    return ["release"] if seeds is None else [str(seed) for seed in seeds]


def _curves(call: command.Call) -> Iterator[Mapping[str, str]]:
    from sfumato import artifacts

    seeds = set(_seeds(call))
    for dataset, method, epsilon in _cells(call):
        path = call.root / "data" / "plots" / SYSTEM / "train" / f"{dataset}-{method}-{epsilon}.csv"
        for row in artifacts.read_csv(path) if path.is_file() else []:
            if row["seed"] in seeds:
                yield {**row, "dataset": dataset, "method": method, "epsilon": epsilon}


def _rows(call: command.Call, step: str) -> Iterator[Mapping[str, str]]:
    """Rows of a step's ROC curves that lie in the grid, each place once."""
    from sfumato import artifacts

    cells, seeds = set(_cells(call)), {*_seeds(call), None}
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


def _supports(call: command.Call) -> Iterator[Support]:
    """The support of the first seed, at the largest epsilon, of the methods that are pictured."""
    from sfumato import artifacts
    from sfumato.records import epsilon_text
    from sfumato.report import support_of

    grid = call.params.topk.grid
    epsilon, seed = epsilon_text(max(grid.epsilons)), _seeds(call)[0]
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


def _statements(call: command.Call) -> Iterator[Statement]:
    from sfumato import artifacts
    from sfumato.records import epsilon_text
    from sfumato.report import Statement

    grid = call.params.topk.grid
    folder = call.root / "data" / "statements" / SYSTEM
    for dataset in grid.datasets:
        for number, value in enumerate(grid.epsilons):
            epsilon = epsilon_text(value)
            for method in (*grid.methods, *(("non_private",) if number == 0 else ())):
                for seed in _seeds(call):
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


def _modulated_statements(call: command.Call) -> Iterator[Statement]:
    """The statements of the modulated system, each of which is one for all seeds."""
    from sfumato import artifacts
    from sfumato.records import epsilon_text
    from sfumato.report import Statement
    from sfumato.report.study import ALL_SEEDS

    grid = call.params.modulated.grid
    for dataset in grid.datasets:
        for epsilon in (epsilon_text(value) for value in grid.epsilons):
            for method in grid.methods:
                path = call.root / "data" / "statements" / MODULATED / dataset / f"{method}-{epsilon}.txt"
                fields = path.with_suffix(".json")
                if path.is_file():
                    content = artifacts.read_json(fields) if fields.is_file() else {}
                    text = path.read_text(encoding="utf-8")
                    yield Statement(dataset, method, epsilon, ALL_SEEDS, text, content, MODULATED)


def _tunings(call: command.Call) -> Iterator[Mapping[str, str]]:
    """Rows of the modulated tuning tables that lie in the grid."""
    from sfumato import artifacts
    from sfumato.records import epsilon_text

    grid = call.params.modulated.grid
    epsilons = {epsilon_text(value) for value in grid.epsilons}
    for dataset in grid.datasets:
        path = call.root / "data" / "plots" / MODULATED / "train" / f"{dataset}.csv"
        for row in artifacts.read_csv(path) if path.is_file() else []:
            if row["method"] in grid.methods and row["epsilon"] in epsilons:
                yield {**row, "system": MODULATED, "dataset": dataset}


def _settings(params: Params) -> dict[str, Any]:
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


def _modulated_settings(params: Params) -> dict[str, Any]:
    """Facts of the modulated part of the parameters that the page names."""
    client, train = params.modulated.client, params.modulated.train
    facts = [
        ("privacy.delta", f"{params.privacy.delta:g}"),
        ("modulated.client.radius_share", f"{client.radius_share:g} of the public radius R"),
        ("modulated.client.shrinkage", f"{client.shrinkage:g} (α)"),
        ("modulated.client.amplitude", f"{client.amplitude:g} R (λ)"),
        ("modulated.client.frequency", f"{client.frequency:g} / R (ω)"),
        ("modulated.client.directions", f"{client.directions} (m)"),
        ("modulated.client.labels", client.labels),
        ("modulated.client.rule", client.rule),
        ("modulated.train.rounds", f"{train.rounds}"),
        ("modulated.train.server_steps", f"{train.server_steps}"),
        ("modulated.train.coefficient_bound", f"{train.coefficient_bound:g}"),
        ("modulated.train.strength", f"{train.strength:g} (ridge and floor)"),
        ("modulated.train.confidence", f"{train.confidence:g}"),
    ]
    return {"modulated_facts": facts, "modulated_labels": client.labels}


def _tuning_text(topk: TopK) -> str:
    """What the choice of hyper-parameters cost on each data set of the grid."""
    tuning = topk.train.tuning
    trials = ", ".join(f"{name} {tuning.private_trials[name]}" for name in topk.grid.datasets)
    return f"private trials: {trials}; chosen on {tuning.chosen_on}"


if __name__ == "__main__":
    sys.exit(command.main("report", {"": report}))
