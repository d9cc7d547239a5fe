"""What training a RadioUNet takes: python -m benchmarks.radiomap [--json] [--batch B] [--width W] [--size S].

One thread, process seconds. A step is forward, backward and Adam on one batch, both stages. The paper's scale:
50 rounds of six clients, each with one pass over its 50 maps of 256 x 256 cells, with one transmitter each or
with all 80, in batches of 15; its hours are extrapolated from the measured step, which ``--batch`` and
``--width`` make smaller. profiles/paper.yaml trains on one map at a time, as the quick run does; its hours of training and
the memory of its attack are extrapolated likewise. The small setting is the network `SMALL` on eight maps of 32 x 32 cells. Maps of the
propagation model are of random buildings, one transmitter each.
"""

from __future__ import annotations

from benchmarks.common import times_in_turns  # isort: skip  (fixes the thread count before torch loads)

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

ROUNDS, ACTIVE, MAPS, TRANSMITTERS, BATCH, SIZE = 50, 6, 50, 80, 15, 256
SMALL_BATCH, SMALL_SIZE = 8, 32
FULL_REPETITIONS, SMALL_REPETITIONS, MAP_REPETITIONS = 2, 30, 5


def step(architecture: Any, batch: int, size: int, learn: bool = True) -> Callable[[], object]:
    """One training step on random maps."""
    from sfumato.radiomap.client import masked_error
    from sfumato.radiomap.unet import INPUTS, build
    from sfumato.rng import Streams

    model = build(architecture, Streams(0).stream("init"))
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand((batch, INPUTS, size, size), generator=generator)
    targets = torch.rand((batch, 1, size, size), generator=generator)
    masks = torch.rand((batch, 1, size, size), generator=generator) < 0.7
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        first, second = model(inputs)
        (masked_error(first, targets, masks) + masked_error(second, targets, masks)).backward()
        if learn:
            optimizer.step()

    return run


def seconds(call: Callable[[], object], repetitions: int) -> float:
    """Median process seconds after one call that is not measured."""
    return statistics.median(times_in_turns({"call": call}, repetitions)["call"])


def small() -> dict[str, Any]:
    """The small setting."""
    from sfumato.radiomap.unet import SMALL, build, dimension
    from sfumato.rng import Streams

    return {
        "small_weights": dimension(build(SMALL, Streams(0).stream("init"))),
        "small_gradient_ms": 1e3 * seconds(step(SMALL, SMALL_BATCH, SMALL_SIZE, False), SMALL_REPETITIONS),
        "small_step_ms": 1e3 * seconds(step(SMALL, SMALL_BATCH, SMALL_SIZE), SMALL_REPETITIONS),
    }


def propagation() -> dict[str, Any]:
    """Milliseconds of one map of the propagation model, by the number of cells along a side."""
    import numpy as np

    from sfumato.radiomap.propagation import Link, path_gain

    found: dict[str, Any] = {}
    for size in (32, 64, 128, 256):
        rng = np.random.default_rng(0)
        heights = np.zeros((size, size), np.float32)
        for row, column in rng.integers(0, size - 6, (size * size // 100, 2)):
            heights[row : row + 5, column : column + 5] = rng.uniform(6, 30)
        free = np.argwhere(heights == 0)
        place = free[len(free) // 2]
        transmitter = (int(place[0]), int(place[1]))
        call = lambda: path_gain(heights, transmitter, Link(), 256.0 / size)  # noqa: E731, B023
        found[f"map_{size}_ms"] = 1e3 * seconds(call, MAP_REPETITIONS)
    return found


def full(batch: int, width: float, size: int) -> dict[str, Any]:
    """The paper's scale."""
    from sfumato.radiomap.unet import Architecture, RadioUNet, dimension

    architecture = Architecture(width)
    with torch.device("meta"):
        weights = dimension(RadioUNet(width))
    measured = seconds(step(architecture, batch, size), FULL_REPETITIONS)
    hours = ROUNDS * ACTIVE * MAPS * measured / batch / 3600
    return {
        "weights": weights,
        "size": size,
        "batch": batch,
        "step_s": measured,
        "paper_batch_s": measured * BATCH / batch,
        "paper_batch_takes_over_a_minute": measured * BATCH / batch > 60,
        "hours_one_transmitter_per_map": hours,
        "hours_all_transmitters": hours * TRANSMITTERS,
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def profile(map_seconds: float, weights: int) -> dict[str, Any]:
    """What profiles/paper.yaml takes: one training step per map, and the arrays that one attack holds."""
    from pathlib import Path

    from sfumato.params import merged, parse, read_yaml

    root = Path(__file__).parent.parent
    overlay = read_yaml(root / "profiles/paper.yaml")["params"]
    plan = parse(merged(read_yaml(root / "params.yaml"), overlay)).radiomap
    noiseless = sum(name in ("none", "clip_only") for name in plan.grid.defences)
    noisy = len(plan.grid.defences) - noiseless
    fits = (noiseless + noisy * len(plan.grid.multipliers)) * len(plan.grid.seeds or (0,))
    steps = plan.train.rounds * plan.train.active * plan.train.maps_per_upload * plan.train.epochs
    # Updates of both sides at every round, and of one round the noisy and clean copies and their features.
    attack = plan.attack
    uploads = (attack.shadow_uploads + attack.client_uploads) * (
        len(attack.rounds) + 2
    ) + 2 * attack.shadow_uploads
    return {
        "profile_fits": fits,
        "profile_hours_of_training": fits * steps * map_seconds / 3600,
        "profile_attack_gb": uploads * weights * 4 / 1e9,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.radiomap")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--batch", type=int, default=BATCH, help="maps in the measured full step")
    parser.add_argument("--width", type=float, default=1.0, help="of the network of the full step")
    parser.add_argument("--size", type=int, default=SIZE, help="cells along a side in the full step")
    options = parser.parse_args()
    found = {**small(), **propagation(), **full(options.batch, options.width, options.size)}
    found |= profile(found["step_s"] / options.batch, found["weights"])
    found = {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}
    if options.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name:<34}{value}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
