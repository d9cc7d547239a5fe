"""Attacks on what a cell released.

``python -m tasks.attack topk --attack loss --dataset mnist --epsilon 3`` runs the loss-threshold membership attack
on every model of that data set and epsilon, ``--attack audit`` a labelled fit with canaries, ``--attack lira`` the
likelihood-ratio attack on the shadow models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.errors import SfumatoError
from tasks import command

KINDS = ("loss", "audit", "lira")
LEVELS = ["dataset", "method", "epsilon"]


def run(call: command.Call) -> None:
    """Run the attack that ``--attack`` names."""
    kind = command.required(call.options, "attack")
    if kind not in KINDS:
        raise SfumatoError(f"--attack is {kind!r}; allowed are {', '.join(KINDS)}.")
    {"loss": _loss_threshold, "audit": _audit, "lira": _lira}[kind](call)


def _loss_threshold(call: command.Call) -> None:
    from sfumato import artifacts, records
    from tasks import data_cells
    from tasks.topk import cells

    epsilon = command.required(call.options, "epsilon")
    grid = call.params.topk.grid
    models = [(method, epsilon) for method in grid.methods]
    if data_cells.dataset_name(call) in grid.references:
        models.append(("non_private", "inf"))
    data = _examples(call)
    problem = cells.problem_of(call, data[2])
    found, rows = [], []
    for method, text in models:
        path = (
            call.root
            / "data/models/topk/train"
            / f"{data_cells.dataset_name(call)}-{method}-{text}.safetensors"
        )
        tensors = artifacts.read_tensors(path)
        for label in cells.streams_of(call):
            levels = {
                "dataset": call.options["dataset"],
                "method": method,
                "epsilon": records.epsilon_text(float(text)),
                "seed": label,
            }
            result, curve = _attack_one(call, problem, tensors, label, data[:2])
            found.append(records.Record(levels, result))
            rows += [[*levels.values(), fpr, tpr] for fpr, tpr in curve]
    tolerances = {"auc": 0.02, "advantage": 0.03, "tpr_at_fpr_0_01": 0.02, "tpr_at_fpr_0_001": 0.01}
    document = records.to_document("topk", "attack", [*LEVELS, "seed"], found, tolerances)
    artifacts.write_csv(call.path("plots", "attack", ".csv"), [*LEVELS, "seed", "fpr", "tpr"], rows)
    artifacts.write_json(call.path("metrics", "attack", ".json"), document)


def _examples(call: command.Call) -> tuple[tuple[Any, Any], tuple[Any, Any], Any]:
    """Members (training rows), non-members (validation rows) and the whole data set.

    A public permutation has parted the two, so they are alike but for membership; the official test rows would
    differ from the training rows in more than that.
    """
    import torch

    from sfumato import datasets
    from tasks import data_cells

    data = datasets.load(data_cells.prepared_path(call))
    pairs = []
    for split in ("train", "validation"):
        count = min(call.params.topk.attack.examples, len(data.labels(split)))
        pairs.append(
            (torch.from_numpy(data.inputs(split)[:count]), torch.from_numpy(data.labels(split)[:count]))
        )
    return pairs[0], pairs[1], data


def _attack_one(
    call: command.Call,
    problem: Any,
    tensors: Any,
    label: str,
    examples: tuple[tuple[Any, Any], tuple[Any, Any]],
) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    import torch

    from sfumato.attacks.membership import loss_threshold_attack
    from sfumato.attacks.roc import thin
    from sfumato.rng import Streams
    from sfumato.topk.evaluation import losses_of

    module = problem.module
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(tensors[f"seed{label}/{name}"]))
    losses = [losses_of(module, problem.loss, *pair).double().numpy() for pair in examples]
    seed = int(label) if label.isdigit() else 0
    result = loss_threshold_attack(
        losses[0],
        losses[1],
        Streams(seed).stream("attack"),
        delta=call.params.privacy.delta,
        confidence=call.params.topk.attack.confidence,
    )
    fpr, tpr = thin(result.curve, 100)
    return dict(result.as_metrics()), list(zip(fpr.tolist(), tpr.tolist(), strict=True))


def _audit(call: command.Call) -> None:
    import torch

    from sfumato import artifacts, datasets, records
    from sfumato.rng import Streams
    from sfumato.topk.audited import AuditSetting, audit
    from tasks import data_cells
    from tasks.topk import cells

    data = datasets.load(data_cells.prepared_path(call))
    problem = cells.problem_of(call, data)
    setting = call.params.topk.audit
    calibrated = cells.calibrated_of(call, cells.method_name(call))
    streams = Streams(2_000_000)
    cells.start_weights(problem, streams)
    outcome = audit(
        problem,
        (torch.from_numpy(data.inputs("validation")), torch.from_numpy(data.validation.y)),
        datasets.SPECS[data_cells.dataset_name(call)].classes,
        calibrated,
        AuditSetting(setting.canaries, setting.guesses, setting.confidence),
        streams,
        cells.observer(call, "audit", calibrated.plan.total_steps, lambda _state: None),
    )
    cell = {"dataset": call.options["dataset"], "method": call.options["method"]}
    cell["epsilon"] = records.epsilon_text(calibrated.epsilon)
    found = [
        records.Record({**cell, "space": space}, dict(result.as_metrics()))
        for space, result in (("gradient", outcome.gradient_space), ("input", outcome.input_space))
    ]
    document = records.to_document(
        "topk",
        "audit",
        [*LEVELS, "space"],
        found,
        {"epsilon_lower": 0.5, "epsilon_ceiling": 0.01, "correct": 20},
    )
    artifacts.write_json(call.path("metrics", "audit", ".json"), document)


def _lira(call: command.Call) -> None:
    import numpy as np

    from sfumato import artifacts, records
    from sfumato.attacks.lira import lira_attack
    from sfumato.attacks.roc import thin
    from sfumato.rng import Streams

    setting = call.params.topk.membership
    for name in LEVELS:
        command.required(call.options, name)
    if not setting.blocks:
        raise SfumatoError("topk.membership.blocks is []; allowed for this attack is at least one block.")
    folder = call.root / "data/models/topk/shadow" / call.cell
    blocks = [artifacts.read_npz(_block(folder, block)) for block in setting.blocks]
    confidences = np.concatenate([block["confidences"] for block in blocks])
    members = np.concatenate([block["members"] for block in blocks]).astype(bool)
    levels = {name: call.options[name] for name in LEVELS}
    levels["epsilon"] = records.epsilon_text(float(levels["epsilon"]))
    found, rows = [], []
    for mode in ("online", "offline"):
        result = lira_attack(
            confidences,
            members,
            Streams(0).stream("attack"),
            shadow_models=len(setting.blocks) * setting.shadows_per_block,
            delta=call.params.privacy.delta,
            mode=mode,
            variance=setting.variance,
            confidence=call.params.topk.attack.confidence,
        )
        values: dict[str, Any] = {
            **result.membership.as_metrics(),
            "shadow_models": result.shadow_models,
            "references": result.references,
            "one_run_epsilon_lower": result.audit.epsilon_lower,
            "tpr_spread_at_fpr_0_001": result.tpr_spread[0],
            "tpr_spread_at_fpr_0_01": result.tpr_spread[1],
        }
        found.append(records.Record({**levels, "attack": mode}, values))
        fpr, tpr = thin(result.membership.curve, 200)
        rows += [[*levels.values(), mode, x, y] for x, y in zip(fpr.tolist(), tpr.tolist(), strict=True)]
    document = records.to_document("topk", "membership", [*LEVELS, "attack"], found, {"auc": 0.02})
    artifacts.write_csv(call.path("plots", "membership", ".csv"), [*LEVELS, "attack", "fpr", "tpr"], rows)
    artifacts.write_json(call.path("metrics", "membership", ".json"), document)


def _block(folder: Path, block: int) -> Path:
    path = folder / f"{block}.npz"
    if not path.exists():
        raise SfumatoError(
            f"shadow block {block} of {folder.name} is missing; allowed is an attack on all blocks asked for."
        )
    return path
