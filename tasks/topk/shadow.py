"""Shadow models for LiRA: ``python -m tasks.shadow topk --dataset mnist --method tp_topk --epsilon 3 --block 0``."""

from __future__ import annotations

from tasks import command


def run(call: command.Call) -> None:
    """Train one block of shadow models: their memberships and confidences on the attacked rows."""
    import numpy as np

    from sfumato import artifacts, datasets
    from sfumato.rng import Streams
    from sfumato.topk.shadow import shadow_confidences, shadow_members
    from tasks import data_cells
    from tasks.topk import cells

    method = cells.method_name(call)
    setting = call.params.topk.membership
    block = command.whole_number(call.options, "block")
    problem = cells.problem_of(call, datasets.load(data_cells.prepared_path(call)))
    calibrated = cells.calibrated_of(call, method)
    models = len(setting.blocks) * setting.shadows_per_block
    members, confidences = [], []
    for model in range(block * setting.shadows_per_block, (block + 1) * setting.shadows_per_block):
        inside = shadow_members(models, setting.examples, model, Streams(0))
        observe = cells.observer(call, f"shadow {model}", calibrated.plan.total_steps, lambda _state: None)
        members.append(inside)
        confidences.append(
            shadow_confidences(problem, calibrated, inside, Streams(1_000_000 + model), observe)
        )
    arrays = {"members": np.stack(members), "confidences": np.stack(confidences)}
    cell = command.cell_text({name: value for name, value in call.options.items() if name != "block"})
    artifacts.write_npz(call.root / "data/models/topk/shadow" / cell / f"{call.options['block']}.npz", arrays)
