"""The README's example of the room runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]


def test_the_example_runs_and_its_interval_holds_finite_numbers() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (example,) = (block for block in blocks if "sfumato.modulated" in block)
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["equations"].clients == 50_000
    assert np.all(np.isfinite(names["equations"].matrix))
