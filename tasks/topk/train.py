"""Private training: ``python -m tasks.train topk --dataset mnist --method tp_topk --epsilon 3``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks import command


def run(call: command.Call) -> None:
    """Fit one cell, every seed of it: models, recorded events, metrics and curves."""
    from sfumato import artifacts, datasets, records
    from sfumato.dpsgd import ParameterLayout
    from sfumato.topk.state import CURVE_COLUMNS, State
    from tasks import data_cells, release
    from tasks.checkpoints import Checkpoints, run_key
    from tasks.topk import cells

    method = cells.method_name(call)
    prepared = data_cells.prepared_path(call)
    calibrated = cells.calibrated_of(call, method)
    warm_path = _warmup_path(call) if calibrated.plan.two_phases else None
    data = datasets.load(prepared)
    problem = cells.problem_of(call, data)
    layout = ParameterLayout.of(problem.module)
    key = run_key(call, "train", [prepared, *([warm_path] if warm_path else [])])
    checkpoints = Checkpoints.of(call.root, key, State.from_tensors)
    if method != "non_private":
        release.charge(call, checkpoints, calibrated.events[1:] or calibrated.events)
    tensors: dict[str, Any] = {}
    events: dict[str, Any] = {"seeds": {}, "empty_batches": {}}
    found, rows = [], []
    dense_std = calibrated.dense_noise_std() if warm_path else None
    for label, streams in cells.streams_of(call).items():
        state, values = _fit(call, problem, calibrated, label, streams, warm_path, dense_std, checkpoints)
        values |= _held_out(problem.module, data) | cells.density_values(state, layout)
        levels = {
            "dataset": call.options["dataset"],
            "method": method,
            "epsilon": records.epsilon_text(calibrated.epsilon),
            "seed": label,
        }
        found.append(records.Record(levels, values))
        tensors |= {
            f"seed{label}/{name}": value.detach().clone() for name, value in problem.module.named_parameters()
        }
        tensors[f"seed{label}/support"] = state.support.indices
        events["seeds"][label] = state.ledger.to_json()
        events["empty_batches"][label] = values["empty_batches"]
        rows += [[label, *(row[name] for name in CURVE_COLUMNS)] for row in state.curve.to_rows()]
    document = records.to_document(
        "topk", "train", ["dataset", "method", "epsilon", "seed"], found, TOLERANCES
    )
    shapes = json.dumps(
        [[name, list(shape)] for name, shape in zip(layout.names, layout.shapes, strict=True)]
    )
    checkpoints.seal()
    artifacts.write_tensors(call.path("models", "train", ".safetensors"), tensors, {"layout": shapes})
    artifacts.write_json(call.path("events", "train", ".json"), _events_document(call, calibrated, events))
    artifacts.write_csv(call.path("plots", "train", ".csv"), ["seed", *CURVE_COLUMNS], rows)
    artifacts.write_json(call.path("metrics", "train", ".json"), document)
    checkpoints.clear()


TOLERANCES = {
    "test_accuracy": 0.05,
    "test_balanced_accuracy": 0.05,
    "test_loss": 0.2,
    "validation_accuracy": 0.05,
    "validation_loss": 0.2,
    "retained_energy": 0.1,
}


def _warmup_path(call: command.Call) -> Path:
    cell = f"{call.options['dataset']}-{call.options['epsilon']}"
    return call.root / "data" / "models" / "topk" / "warmup" / f"{cell}.safetensors"


def _fit(
    call: command.Call,
    problem: Any,
    calibrated: Any,
    label: str,
    streams: Any,
    warm_path: Path | None,
    dense_std: float | None,
    checkpoints: Any,
) -> tuple[Any, dict[str, Any]]:
    """One seed's fit, from its checkpoint or warm-up; the module holds its parameters afterwards."""
    from sfumato.topk.diagnostics import diagnose
    from sfumato.topk.training import begin, first_support, run
    from tasks.topk import cells

    cells.start_weights(problem, streams)
    total = sum(phase.steps for phase in calibrated.phases)
    start = cells.warm_state(warm_path, label) if warm_path else begin(problem, calibrated)
    values: dict[str, Any] = {}
    if warm_path and dense_std is not None:
        support = first_support(problem, calibrated, streams, start)
        diagnostics = diagnose(problem, calibrated, start, support, streams, dense_std)
        values |= diagnostics.to_values() if diagnostics else {}
    observe = cells.observer(call, label, total, lambda state: checkpoints.save(label, state))
    state = run(problem, calibrated, streams, checkpoints.load(label) or start, observer=observe)
    checkpoints.save(label, state, force=True)
    values |= {
        "steps": state.step,
        "active": state.support.k,
        "dimension": state.support.d,
        "empty_batches": state.ledger.empty_batches,
    }
    if streams.mode == "release":
        values |= {"empty_batches": None, "empty_batches_reason": "private, and not counted in release mode"}
    return state, values


def _held_out(module: Any, data: Any) -> dict[str, Any]:
    import torch

    from sfumato.topk.evaluation import evaluate, logits_of

    values: dict[str, Any] = {}
    for split in ("validation", "test"):
        logits = logits_of(module, torch.from_numpy(data.inputs(split)))
        values |= evaluate(logits, torch.from_numpy(getattr(data, split).y)).to_values(f"{split}_")
    return values


def _events_document(call: command.Call, calibrated: Any, events: dict[str, Any]) -> dict[str, Any]:
    return {
        "system": "topk",
        "step": "train",
        "dataset": call.options["dataset"],
        "method": call.options["method"],
        "n": calibrated.n,
        "delta": calibrated.delta,
        "epsilon_target": calibrated.epsilon,
        "neighboring_relation": "add_or_remove_one",
        **events,
    }
