"""The benchmark of the radio maps prints what it promises; its figures are the machine's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_radiomap_benchmark_prints_all_figures_as_json() -> None:
    words = [sys.executable, "-m", "benchmarks.radiomap", "--json", "--batch", "1", "--width", "0.1"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert found["size"] == 256
    assert 25_000 <= found["small_weights"] <= 30_000 < found["weights"] < 13_274_031
    timed = ("small_gradient_ms", "small_step_ms", "map_32_ms", "map_64_ms", "map_128_ms", "step_s")
    assert all(found[name] > 0 for name in timed)
    assert found["paper_batch_s"] == pytest.approx(15 * found["step_s"], rel=0.01)
    assert found["hours_all_transmitters"] == pytest.approx(
        80 * found["hours_one_transmitter_per_map"], rel=0.02
    )
    assert found["hours_one_transmitter_per_map"] == pytest.approx(
        300 * 50 * found["step_s"] / 3600, rel=0.01
    )
