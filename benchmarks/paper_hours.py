"""Hours of the paper profile on two cores, extrapolated from measured steps: python -m benchmarks.paper_hours [--json]."""

from __future__ import annotations

from benchmarks.common import alternated, show  # isort: skip  (fixes the thread count before torch loads)

from pathlib import Path
from typing import Any

import torch

from sfumato.datasets import SPECS
from sfumato.dpsgd import Support, get_engine
from sfumato.params import merged, parse, read_yaml
from sfumato.rng import Streams
from sfumato.topk.models import build
from sfumato.topk.training import cross_entropy

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 2


def seconds_per_step(model: str, name: str, batch: int, ratio: float) -> float:
    """One step at that batch size and active ratio, from a quarter of the batch."""
    spec, part = SPECS[name], max(1, batch // 4)
    module = build(model, spec.example_shape, spec.classes, Streams(0).stream("init"))
    inputs = torch.from_numpy(Streams(0).stream("x").standard_normal((part, *spec.example_shape))).float()
    targets = torch.zeros(part, dtype=torch.int64)
    size = sum(parameter.numel() for parameter in module.parameters())
    chosen = Streams(0).stream("support").permutation(size)[: max(1, int(ratio * size))]
    support, engine = Support.of(chosen, size), get_engine()
    call = {"step": lambda: engine.clipped_sum(module, cross_entropy, (inputs, targets), support, 1.0)}
    return alternated(call, rounds=3)["step"] * batch / part


def main() -> None:
    base: Any = read_yaml(ROOT / "params.yaml")
    profile: Any = read_yaml(ROOT / "profiles/paper.yaml")
    common = merged(base, profile["params"])
    steps: dict[tuple[str, str, float], float] = {}
    rows = []
    for variant in profile["variants"]:
        params = parse(merged(common, variant.get("params", {}))).topk
        seeds, total, hours = len(params.grid.seeds or ()), params.warmup.steps + params.train.steps, 0.0
        for name in params.grid.datasets:
            batch = params.sampling.expected_batch_size[name]
            model, ratio = params.model[name], params.train.active_ratio
            for share in (1.0, ratio):
                if (name, model, share) not in steps:
                    steps[(name, model, share)] = seconds_per_step(model, name, batch, share)
            full, restricted = steps[(name, model, 1.0)], steps[(name, model, ratio)]
            two = sum(method != "dense" for method in params.grid.methods)
            single = len(params.grid.methods) - two
            fits = params.warmup.steps * full + two * params.train.steps * restricted + single * total * full
            seconds = fits * len(params.grid.epsilons) * seeds
            if name in params.membership.datasets:
                cells = len(params.membership.methods) * len(params.membership.epsilons)
                shadows = cells * len(params.membership.blocks) * params.membership.shadows_per_block
                seconds += shadows * total * full
            hours += seconds / 3600 / WORKERS
        rows.append({"variant": variant["name"], "hours_on_two_cores": hours})
    rows.append(
        {"variant": "all", "hours_on_two_cores": sum(float(row["hours_on_two_cores"]) for row in rows)}
    )
    show(rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
