"""Private estimation: ``python -m tasks.train modulated --dataset fair``."""

from __future__ import annotations

from typing import Any

from tasks import command

LEVELS = ["dataset", "method", "epsilon", "seed"]
TOLERANCES = {
    "test_error": 0.05,
    "test_relative_error": 0.2,
    "coefficient_error": 0.5,
    "covered": 0.2,
    "half_width": 0.2,
    "step_size": 1e6,
    "clip_norm": 1.0,
    "validation_relative_error": 0.2,
}


def run(call: command.Call) -> None:
    """Fit every method at every epsilon, all seeds: coefficients, recorded events, metrics and tuning tables."""
    import numpy as np

    from sfumato import artifacts, records
    from sfumato.modulated.methods import get_method
    from tasks import data_cells
    from tasks.modulated import cells

    problem = cells.problem_of(call)
    grid = call.params.modulated.grid
    name = data_cells.regression_name(call)
    charged = _charge(call)
    found: list[Any] = []
    coefficients: dict[str, Any] = {}
    events: dict[str, Any] = {}
    table: list[list[Any]] = []
    unprotected = () if call.params.privacy.mode == "release" else (None,)
    work = [
        (get_method(method), epsilon)
        for method in grid.methods
        for epsilon in (*(grid.epsilons if get_method(method).private else ()), *unprotected)
    ]
    for done, (method, epsilon) in enumerate(work, 1):
        text = records.epsilon_text(epsilon)
        results, tuned = _fits(call, problem, method.name, epsilon)
        place = {"dataset": name, "method": method.name, "epsilon": text}
        found += [records.Record({**place, "seed": seed}, result.values) for seed, result in results.items()]
        coefficients[f"{method.name}/{text}"] = np.stack([r.fit.coefficients for r in results.values()])
        if epsilon is not None:
            events[f"{method.name}/{text}"] = {
                "step_size": tuned.step_size,
                "clip_norm": tuned.clip_norm,
                "trials": tuned.trials,
                "seeds": {seed: result.fit.ledger.to_json() for seed, result in results.items()},
            }
        table += [
            [method.name, text, size, "" if clip is None else clip, error]
            for size, clip, error in tuned.table
        ]
        command.progress(done, len(work), f"{call.cell} {method.name} at epsilon {text}")
    if charged:
        charged.seal()
    document = records.to_document("modulated", "train", LEVELS, found, TOLERANCES)
    artifacts.write_npz(call.path("models", "train", ".npz"), coefficients)
    artifacts.write_json(
        call.path("events", "train", ".json"), {"system": "modulated", "step": "train", "cells": events}
    )
    columns = ["method", "epsilon", "step_size", "clip_norm", "validation_relative_error"]
    artifacts.write_csv(call.path("plots", "train", ".csv"), columns, table)
    artifacts.write_json(call.path("metrics", "train", ".json"), document)
    if charged:
        charged.clear()


def _fits(call: command.Call, problem: Any, method: str, epsilon: float | None) -> tuple[dict[str, Any], Any]:
    """Seed -> result of one method at one epsilon, and what its grid chose."""
    from sfumato.modulated.experiment import run, tune
    from sfumato.modulated.methods import get_method
    from sfumato.modulated.setting import Tuned
    from sfumato.rng import Streams
    from tasks.modulated import cells

    setting, streams = cells.setting_of(call), cells.streams_of(call)
    if not get_method(method).private:
        streams = {seed: streams[seed] for seed in list(streams)[:1]}  # nothing is random
    tuned = Tuned(setting.step_sizes[0], setting.clip_norms[0], 0)
    if get_method(method).tunable:
        repeats = range(call.params.modulated.train.tuning_repeats)
        seeds = [Streams(cells.TUNING_SEED + repeat) for repeat in repeats]
        tuned = tune(method, problem, setting, epsilon, seeds)
    return {seed: run(method, problem, setting, epsilon, own, tuned) for seed, own in streams.items()}, tuned


def _charge(call: command.Call) -> Any:
    """In release mode charge every private fit of the stage before its first noise; in simulation nothing."""
    from sfumato.modulated.experiment import calibrated_of
    from sfumato.modulated.methods import get_method
    from sfumato.modulated.setting import Tuned
    from tasks import data_cells, release
    from tasks.checkpoints import Checkpoints, run_key
    from tasks.modulated import cells

    if call.params.privacy.mode != "release":
        return None
    grid, setting = call.params.modulated.grid, cells.setting_of(call)
    tuned = Tuned(setting.step_sizes[0], setting.clip_norms[0], 0)
    events = [
        event
        for method in map(get_method, grid.methods)
        if method.private
        for epsilon in grid.epsilons
        for event in calibrated_of(method, cells.domain_of(call), setting, epsilon, tuned).events
    ]
    checkpoints = Checkpoints.of(call.root, run_key(call, "train", [data_cells.prepared_path(call)]))
    release.charge(call, checkpoints, events, unit="client", neighboring_relation="replace_one")
    return checkpoints
