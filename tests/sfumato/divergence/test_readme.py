"""The README's example of the room runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sfumato.divergence import exact_divergence, population_probabilities

ROOT = Path(__file__).resolve().parents[3]


def test_the_example_runs_and_its_interval_holds_the_divergence() -> None:
    """Noise is fresh in every run; the estimate is off by more than seven deviations once in 10^11."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (example,) = (block for block in blocks if "sfumato.divergence" in block)
    names: dict[str, Any] = {}
    exec(example, names)
    found, reference = names["found"], names["reference"]
    population = 0.95 * population_probabilities(names["private"], reference) + 0.05 * reference.probabilities
    assert abs(found.raw - exact_divergence(reference, population)) < 7 * found.noise_std
    assert found.low <= found.clipped <= found.high
