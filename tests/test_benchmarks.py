"""Benchmarks run and print what they promise; their figures are the machine's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_divergence_benchmark_prints_all_figures_as_json() -> None:
    words = [
        sys.executable,
        "-m",
        "benchmarks.divergence",
        "--json",
        "--clients",
        "2000",
        "--aggregated",
        "40",
    ]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    timed = ("counts_ms", "bincount_ms", "secure_aggregation_s", "server_s", "client_s")
    assert all(found[name] > 0 for name in timed)
    assert found["server_s"] + 36 * found["client_s"] <= found["secure_aggregation_s"] * 1.01
    assert found["payload_bytes"] < 1024 < found["total_bytes_per_client"]
