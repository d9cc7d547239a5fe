"""Seconds and back-priced epsilon of calibrations: python -m benchmarks.accounting [--json]."""

from __future__ import annotations

import time

from benchmarks.common import show
from sfumato import accounting, mechanisms

CASES = [(epsilon, delta) for delta in (1e-5, 1e-12) for epsilon in (0.01, 0.1, 1.0, 3.0, 10.0, 50.0, 200.0)]
RATE, STEPS = 0.01, 1000


def measure(epsilon: float, delta: float) -> dict[str, object]:
    start = time.process_time()
    sigma = accounting.calibrate(lambda s: [mechanisms.subsampled_gaussian(RATE, s, STEPS)], epsilon, delta)
    single = time.process_time() - start
    start = time.process_time()
    accounting.calibrate_two_phases(RATE, STEPS // 4, STEPS, epsilon, delta, 0.3)
    double = time.process_time() - start
    priced = accounting.epsilon([mechanisms.subsampled_gaussian(RATE, sigma, STEPS)], delta)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "noise_multiplier": sigma,
        "priced": priced,
        "seconds": single,
        "seconds_two_phases": double,
    }


if __name__ == "__main__":
    show([measure(*case) for case in CASES])
