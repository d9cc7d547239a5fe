"""One release of a million clients against its bound: python -m benchmarks.modulated [--json] [--clients K].

The bound is what drawing K n float32 normals by the fastest generator of the dependencies and one product of the
K x n samples with themselves take in this process. Process time, one thread, in turns, median of nine rounds; the ratio
is the median of the rounds' own ratios, so that a slow moment of the machine counts on both sides. Peak memory is what
the process needs above what it had with the samples loaded, measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import times_in_turns

FEATURES = 50
ROUNDS = 9
CHUNK = 204_800


def _problem(clients: int) -> tuple[Any, Any, Any, Any]:
    """Samples within the unit ball, labels, a calibrated plan and its directions."""
    import numpy as np

    from sfumato.datasets.generated import generate_arrays
    from sfumato.modulated import Domain, ModulatedPlan, Modulation, orthonormal_directions
    from sfumato.rng import Streams

    x, y = generate_arrays(clients, FEATURES, Streams(0))
    calibrated = ModulatedPlan(Domain(FEATURES, 1.0), Modulation(amplitude=0.5, frequency=2.0)).calibrate(
        5.0, 1e-5
    )
    directions = orthonormal_directions(np.zeros(FEATURES), 1, Streams(1).stream("directions"))
    return x, y, calibrated, directions


def _generators(count: int) -> dict[str, Callable[[], object]]:
    """Ways to draw so many float32 normals."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    buffer, tensor = np.empty(CHUNK, np.float32), torch.empty(CHUNK)
    generator = np.random.Generator(np.random.SFC64(1))

    def numpy_sfc64() -> None:
        for _ in range(count // CHUNK):
            generator.standard_normal(out=buffer, dtype=np.float32)

    def torch_normal() -> None:
        for _ in range(count // CHUNK):
            tensor.normal_()

    return {"numpy_sfc64": numpy_sfc64, "torch": torch_normal}


def measure(clients: int) -> dict[str, Any]:
    """Seconds of every part, the ratio to the bound, the aggregate's re-draw and peak memory."""
    import numpy as np

    from sfumato.modulated import collect, messages
    from sfumato.modulated.aggregate import AggregateData
    from sfumato.rng import BulkStream, Streams

    x, y, calibrated, directions = _problem(clients)
    streams, own, buffer = Streams(2), BulkStream(bytes(32)), np.empty(CHUNK, np.float32)

    def our_normals() -> None:
        for _ in range(clients * FEATURES // CHUNK):
            own.fill_normal(buffer)

    calls: dict[str, Callable[[], object]] = {
        **_generators(clients * FEATURES),
        "gram": lambda: x.T @ x,
        "our_normals": our_normals,
        "release": lambda: collect(messages(x, y, calibrated, directions, streams)),
    }
    times = times_in_turns(calls, ROUNDS)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    fastest = min(("numpy_sfc64", "torch"), key=lambda name: seconds[name])
    rounds = zip(times["release"], times[fastest], times["gram"], strict=True)
    ratio = statistics.median(release / (normals + gram) for release, normals, gram in rounds)
    start = time.process_time()
    data = AggregateData.of(x, y, calibrated.plan.domain)
    seconds["aggregate_setup"] = time.process_time() - start
    start = time.process_time()
    phases = data.phases(1, streams.stream("phases"))
    seconds["aggregate_phases"] = time.process_time() - start
    redraws: list[float] = []
    for _ in range(ROUNDS):
        start = time.process_time()
        data.moments(calibrated, directions, phases, streams.stream("noise"))
        redraws.append(time.process_time() - start)
    seconds["aggregate_redraw"] = statistics.median(redraws)
    return {
        "clients": clients,
        "features": FEATURES,
        "fastest_generator": fastest,
        "ratio_to_bound": ratio,
        "peak_mb_above_start": _peak_in_a_process_of_its_own(clients),
        "seconds": {name: round(value, 6) for name, value in seconds.items()},
    }


def _peak_in_a_process_of_its_own(clients: int) -> float:
    words = [sys.executable, "-m", "benchmarks.modulated", "--peak", "--clients", str(clients)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return float(done.stdout)


def peak(clients: int) -> float:
    """Megabytes of resident memory above what the process has with the samples loaded."""
    from sfumato.modulated import collect, messages
    from sfumato.rng import Streams

    x, y, calibrated, directions = _problem(clients)
    collect(messages(x[:10], y[:10], calibrated, directions, Streams(2)))  # modules that load on first use
    highest, done = [_resident()], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            highest[0] = max(highest[0], _resident())

    start = _resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    collect(messages(x, y, calibrated, directions, Streams(2)))
    done.set()
    watcher.join()
    return (highest[0] - start) / 1e6


def _resident() -> int:
    """Bytes of resident memory."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.modulated")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        sys.stdout.write(f"{peak(options.clients):.3f}\n")
        return
    found = measure(options.clients)
    if options.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    seconds = found.pop("seconds")
    for name, value in {**found, **seconds}.items():
        sys.stdout.write(f"{name:<22}{value:.4g}\n" if isinstance(value, float) else f"{name:<22}{value}\n")


if __name__ == "__main__":
    main()
