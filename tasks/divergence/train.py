"""Private estimation: ``python -m tasks.train divergence --dataset mnist_population``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tasks import command

if TYPE_CHECKING:
    from sfumato.divergence.comparisons import Pair
    from sfumato.divergence.studies import Cell

LEVELS = ["dataset", "comparison", "study", "value", "method"]
TOLERANCES = {
    name: 0.1
    for name in (
        "absolute_error",
        "absolute_error_half_width",
        "target_error",
        "target_error_half_width",
        "bias",
        "bias_half_width",
        "covered",
        "noise_std",
        "divergence",
        "target",
        "raw",
        "clipped",
        "low",
        "high",
    )
}


def run(call: command.Call) -> None:
    """Every comparison, method, epsilon and study of a data set; the protocol's bytes; the watch on a drift."""
    from sfumato import artifacts, records
    from sfumato.divergence.studies import measure
    from tasks.divergence import cells, watched

    params, name = call.params.divergence, call.options["dataset"]
    population, streams = cells.population_of(call), cells.streams_of(call)
    release = call.params.privacy.mode == "release"
    compared = {
        comparison: cells.pairs_of(call, population, comparison) for comparison in cells.comparisons_of(call)
    }
    charged = _charge(call, compared)
    found: list[Any] = []
    events: dict[str, Any] = {}
    rows: list[list[Any]] = []
    for comparison, pairs in compared.items():
        work = _work(call, comparison, release)
        for done, cell in enumerate(work, 1):
            measured = measure(cell, pairs, streams, params.train.smoothing)
            place = {"dataset": name, "comparison": comparison, "study": cell.study}
            if cell.study == "epsilon" and cell.epsilon is not None:
                _keep_events(events, f"{cell.method}/{cell.value}", measured.events, pairs)
                rows += _released(comparison, cell, measured.estimates) if release else []
            if not release:
                place |= {"value": cell.value, "method": cell.method}
                found.append(records.Record(place, measured.values))
            command.progress(done, len(work), f"{call.cell} {comparison}, {cell.study} {cell.value}")
        if not release:
            found += _by_pair(call, comparison, pairs, name)
    tolerances = TOLERANCES | {f"absolute_error_seed_{seed}": 0.1 for seed in streams}
    documents = {"train": (LEVELS, found), **watched.documents(call, population, compared)}
    # All is made before the first file is written: what fails leaves the former outputs as they were.
    metrics = {
        step: records.to_document("divergence", step, levels, records_, tolerances)
        for step, (levels, records_) in documents.items()
    }
    if charged:
        charged.seal()
    artifacts.write_json(
        call.path("events", "train", ".json"),
        {"system": "divergence", "step": "train", "cells": events},
    )
    columns = ["comparison", "pair", "method", "epsilon", "seed", "raw", "low", "high"]
    artifacts.write_csv(call.path("plots", "train", ".csv"), columns, rows)
    for step, document in metrics.items():
        artifacts.write_json(call.path("metrics", step, ".json"), document)
    if charged:
        charged.clear()


def _work(call: command.Call, comparison: str, release: bool) -> list[Cell]:
    """The cells of a comparison: every method and epsilon, and outside of release mode one number at a time varied."""
    from sfumato import records
    from sfumato.divergence.experiment import studied
    from sfumato.divergence.studies import Cell, epsilon_cells
    from tasks.divergence import cells

    params, setting = call.params.divergence, cells.setting_of(call)
    epsilons = {records.epsilon_text(value): value for value in params.grid.epsilons}
    found = epsilon_cells(params.grid.methods, epsilons, setting, release or comparison != "digits")
    if release:
        return found
    studies, at = params.studies, params.studies.epsilon
    varied = (
        ("coefficient", studies.coefficients, ("trusted_aggregator", "per_batch", "non_private")),
        ("points", studies.points, ("trusted_aggregator", "non_private")),
        ("batches", studies.batches, ("per_batch",)),
        ("floor", studies.floor_levels, ("trusted_aggregator", "all_cells")),
    )
    for study, values, methods in varied:
        for value in values:
            own = studied(setting, study, value)
            found += [
                Cell(study, f"{value:g}", method, own, None if method == "non_private" else at)
                for method in methods
            ]
    return found


def _by_pair(call: command.Call, comparison: str, pairs: list[Pair], name: str) -> Any:
    """The paper's estimate and the others' reference for every single pair."""
    from sfumato import records
    from sfumato.divergence.studies import Cell, measure
    from tasks.divergence import cells

    params, setting, streams = call.params.divergence, cells.setting_of(call), cells.streams_of(call)
    for pair in pairs:
        for method in ("non_private", "trusted_aggregator", "all_cells"):
            epsilon = None if method == "non_private" else params.studies.epsilon
            cell = Cell("pair", pair.name, method, setting, epsilon)
            place = {"dataset": name, "comparison": comparison, "study": "pair", "value": pair.name}
            values = measure(cell, [pair], streams, params.train.smoothing).values
            yield records.Record({**place, "method": method}, values)


def _keep_events(kept: dict[str, Any], key: str, events: Any, pairs: list[Pair]) -> None:
    """Each different list of events once with how many estimates had it, and the smallest population's N."""
    from sfumato.ledger import EventLedger

    smallest = min(pair.examples for pair in pairs)
    cell = kept.setdefault(key, {"events": {}, "releases": 0, "examples": smallest})
    cell["examples"] = min(cell["examples"], smallest)
    for own in events.values():
        for one in own.values():
            ledger = EventLedger()
            for event in one:
                ledger.record(event)
            text = json.dumps(ledger.to_json(), sort_keys=True)
            cell["events"][text] = cell["events"].get(text, 0) + 1
            cell["releases"] += 1


def _released(comparison: str, cell: Cell, estimates: Any) -> list[list[Any]]:
    """What release mode keeps: the noisy numbers and their intervals."""
    return [
        [comparison, pair, cell.method, cell.value, seed, one.raw, *(one.interval or ("", ""))]
        for seed, own in estimates.items()
        for pair, one in own.items()
    ]


def _charge(call: command.Call, compared: dict[str, list[Pair]]) -> Any:
    """In release mode charge every estimate of the stage before its first noise; in simulation nothing."""
    from sfumato.divergence.experiment import planned_events
    from sfumato.divergence.methods import get_method
    from tasks import data_cells, release
    from tasks.checkpoints import Checkpoints, run_key
    from tasks.divergence import cells

    if call.params.privacy.mode != "release":
        return None
    grid, setting = call.params.divergence.grid, cells.setting_of(call)
    events = [
        event
        for pairs in compared.values()
        for pair in pairs
        for method in map(get_method, grid.methods)
        for epsilon in grid.epsilons
        for event in planned_events(method, pair, setting, epsilon)
    ]
    checkpoints = Checkpoints.of(call.root, run_key(call, "train", [data_cells.prepared_path(call)]))
    release.charge(call, checkpoints, events, unit="example", neighboring_relation="replace_one")
    return checkpoints
