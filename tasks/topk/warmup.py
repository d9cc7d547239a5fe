"""Private warm-up: ``python -m tasks.warmup topk --dataset mnist --epsilon 3``."""

from __future__ import annotations

from tasks import command


def run(call: command.Call) -> None:
    """Run phase 1 once per seed; every two-phase method of this data set and epsilon starts from it."""
    from sfumato import artifacts, datasets, records
    from sfumato.topk.state import State
    from sfumato.topk.training import begin, run
    from tasks import data_cells, release
    from tasks.checkpoints import Checkpoints, run_key
    from tasks.topk import cells

    prepared = data_cells.prepared_path(call)
    problem = cells.problem_of(call, datasets.load(prepared))
    calibrated = cells.calibrated_warmup_of(call)
    phase = calibrated.phases[0]
    key = run_key(call, "warmup", [prepared])
    checkpoints = Checkpoints.of(call.root, key, State.from_tensors)
    release.charge(call, checkpoints, calibrated.events[:1])
    tensors, metadata, found = {}, {}, []
    for label, streams in cells.streams_of(call).items():
        cells.start_weights(problem, streams)
        state = checkpoints.load(label) or begin(problem, calibrated)
        observe = cells.observer(
            call, label, phase.steps, lambda state, label=label: checkpoints.save(label, state)
        )
        state = run(problem, calibrated, streams, state, until=phase.steps, observer=observe)
        checkpoints.save(label, state, force=True)
        parts, text = state.to_tensors()
        tensors |= {f"seed{label}/{name}": value for name, value in parts.items()}
        metadata |= {f"seed{label}/{name}": value for name, value in text.items()}
        levels = {
            "dataset": call.options["dataset"],
            "epsilon": records.epsilon_text(command.number(call.options, "epsilon")),
            "seed": label,
        }
        last = state.curve.points[-1]
        values: dict[str, records.Value] = {
            "steps": state.step,
            "noise_multiplier": float(phase.noise_multiplier or 0.0),
        }
        if last.held_out_loss is not None:
            values |= {"validation_accuracy": last.held_out_accuracy, "validation_loss": last.held_out_loss}
        found.append(records.Record(levels, values))
    tolerances = {"validation_accuracy": 0.05, "validation_loss": 0.1, "noise_multiplier": 1e-4}
    document = records.to_document("topk", "warmup", ["dataset", "epsilon", "seed"], found, tolerances)
    checkpoints.seal()
    artifacts.write_tensors(call.path("models", "warmup", ".safetensors"), tensors, metadata)
    artifacts.write_json(call.path("metrics", "warmup", ".json"), document)
    checkpoints.clear()
