"""What the benchmarks share: alternated timing, and the two ways of printing."""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"


def alternated(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median process seconds of each call, run in turns so that a slow moment of the machine hits all alike."""
    return {name: statistics.median(values) for name, values in times_in_turns(calls, rounds).items()}


def times_in_turns(
    calls: Mapping[str, Callable[[], object]], rounds: int, turn: float = 0.0
) -> dict[str, list[float]]:
    """Process seconds of each call in each round, after one round that is not measured.

    Args:
        calls: by name.
        rounds: how many.
        turn: calls are repeated within a turn until they fill about so many seconds, as in a loop of
            their own, and a round's time is the mean: else what the others left in the caches is measured, too.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    repeats = dict.fromkeys(calls, 1)
    for name, call in calls.items():
        call()
        if turn:
            start = time.process_time()
            call()
            repeats[name] = math.ceil(turn / max(time.process_time() - start, 1e-6))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.process_time() - start) / repeats[name])
    return times


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table, or as JSON when the command line says --json."""
    if "--json" in sys.argv[1:]:
        sys.stdout.write(json.dumps(list(rows), indent=1) + "\n")
        return
    names = list(rows[0])
    cells = [
        [f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in names]
        for row in rows
    ]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    for row in [names, *cells]:
        sys.stdout.write("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + "\n")
