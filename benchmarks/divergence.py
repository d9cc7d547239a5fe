"""One estimate at full scale, and its secure aggregation: python -m benchmarks.divergence [--json] [--clients K].

Counts: a million clients with ten samples each over 2^16 codes, ten public points, from the codes to the estimate without
noise, beside one ``numpy.bincount`` of the same codes; process time, one thread, in turns, median of nine rounds. Secure
aggregation: 500 clients of whom a tenth falls silent after sharing keys, all of them and the server in this process, on
one thread; one client's seconds are the mean over those who stay. Bytes are measured on the messages of the protocol,
as is the whole traffic of the client with the most, both ways, keys and shares included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import Any

from benchmarks.common import times_in_turns

DOMAIN = 2**16
SAMPLES = 10
POINTS = 10
FLOOR = 0.1
AGGREGATED = 500
ROUNDS = 9


def _population(clients: int) -> tuple[Any, Any, Any]:
    """Codes of all clients, the public reference and ten points."""
    import numpy as np

    from sfumato.divergence.reference import Reference, draw_points
    from sfumato.rng import Streams

    streams = Streams(0)
    weights = streams.stream("reference").random(DOMAIN) ** 8
    reference = Reference.from_probabilities(weights / weights.sum())
    steps = np.cumsum(weights / weights.sum())[:-1]
    codes = np.searchsorted(steps, streams.stream("samples").random(clients * SAMPLES)).astype(np.uint16)
    return codes, reference, draw_points(reference, POINTS, streams.stream("points"))


def counting(clients: int) -> dict[str, float]:
    """Milliseconds from the codes to the estimate, and of one bincount of the same codes."""
    import numpy as np

    from sfumato.divergence.counting import count_points
    from sfumato.divergence.estimator import evaluate
    from sfumato.divergence.plan import EstimatorPlan, Floor

    codes, reference, points = _population(clients)
    plan = EstimatorPlan(Floor("mix", FLOOR), 0.0)
    times = times_in_turns(
        {
            "counts_ms": lambda: evaluate(
                count_points(codes, reference, points), len(codes), points, reference, plan
            ),
            "bincount_ms": lambda: np.bincount(codes, minlength=DOMAIN),
        },
        ROUNDS,
    )
    return {name: round(1000.0 * statistics.median(values), 3) for name, values in times.items()}


def aggregation(clients: int) -> dict[str, float]:
    """Seconds of the secure aggregation, the server's and one client's, and the graph that they were spent on."""
    import numpy as np

    from sfumato.secure_aggregation import Setting, aggregate

    setting = Setting.recommended(clients, POINTS)
    vectors = np.random.default_rng(0).integers(0, SAMPLES, (clients, POINTS))
    silent = range(clients // 10)
    done = aggregate(vectors, setting, os.urandom, dict.fromkeys(silent, 2), clock=time.process_time)
    if not np.array_equal(done.total, vectors[clients // 10 :].sum(axis=0)) or done.seconds is None:
        raise SystemExit("the aggregation is not the sum of the clients that stayed")
    stayed = done.seconds.clients[clients // 10 :]
    return {
        "secure_aggregation_s": round(done.seconds.total, 3),
        "server_s": round(done.seconds.server, 3),
        "client_s": round(float(stayed.mean()), 5),
        "neighbours": setting.degree,
        "threshold": setting.threshold,
    }


def payload(clients: int) -> dict[str, int]:
    """Bytes of the message with the counts, and all bytes to and from one client, in a whole run of the protocol."""
    from sfumato.divergence.plan import EstimatorPlan, Floor
    from sfumato.divergence.protocol import (
        PopulationClient,
        PopulationServer,
        TrustedAggregator,
        run_protocol,
    )
    from sfumato.rng import SystemStream

    codes, reference, points = _population(clients)
    plan, stream = EstimatorPlan(Floor("mix", FLOOR), 0.0), SystemStream()
    server = PopulationServer(reference, points, plan, 1.0, 1e-5, os.urandom)
    everybody = [
        PopulationClient(i, codes[SAMPLES * i : SAMPLES * (i + 1)], reference, os.urandom, stream)
        for i in range(clients)
    ]
    aggregator = TrustedAggregator(server.announcement(), reference, os.urandom, stream)
    traffic = run_protocol(server, everybody, aggregator).traffic
    return {"payload_bytes": traffic.masked_input, "total_bytes_per_client": traffic.largest_client}


def measure(clients: int, aggregated: int) -> dict[str, Any]:
    """All figures of one machine."""
    return {
        "clients": clients,
        "samples_per_client": SAMPLES,
        "domain": DOMAIN,
        "points": POINTS,
        **counting(clients),
        "aggregated_clients": aggregated,
        **aggregation(aggregated),
        **payload(aggregated),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.divergence")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument(
        "--aggregated", type=int, default=AGGREGATED, help="clients of the secure aggregation"
    )
    options = parser.parse_args()
    found = measure(options.clients, options.aggregated)
    if options.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name:<24}{value:.4g}\n" if isinstance(value, float) else f"{name:<24}{value}\n")


if __name__ == "__main__":
    main()
