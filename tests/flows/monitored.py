"""A monitored population in the toy repository: a reference, and a current file that a test lets drift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sfumato.artifacts import write_npz

DOMAIN = 16
EXAMPLES = 20_000
REFERENCE = np.arange(1, DOMAIN + 1) / np.arange(1, DOMAIN + 1).sum()

PARAMS = """
privacy:
  mode: simulation
  delta: 1e-6
  budget_epsilon: 3
  ledger: ledger/releases.jsonl
divergence:
  drift:
    name: students
    dataset: toy_people
    reference: {path: data/reference.npz, series: []}
    population: {path: data/current.npz, series: []}
    minimum_probability: 0.01
    draws: null
    floor: mix
    floor_level: 0.1
    coefficient: 0
    checks_per_year: 12
    epsilon_per_check: 0.5
    yearly_epsilon: 2
    threshold: 0.1
    confidence: 0.95
    sides: one
    correction: bonferroni
    power: 0.9
    seed: 1
    retrain: topk
    retrain_profile: null
"""


def watch_values(**drift: Any) -> dict[str, Any]:
    """The plain values of a watch, with some keys of the monitor replaced."""
    from sfumato.params import read_yaml

    content: Any = read_yaml_text(PARAMS, read_yaml)
    return {**content["privacy"], "drift": {**content["divergence"]["drift"], **drift}}


def read_yaml_text(text: str, reader: Any) -> Any:
    """Plain values of a YAML text."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "params.yaml"
        path.write_text(text)
        return reader(path)


def write_current(root: Path, share: float, seed: int = 0) -> None:
    """A current population of which that share comes from the reversed reference."""
    probabilities = (1 - share) * REFERENCE + share * REFERENCE[::-1]
    write_codes(root / "data/current.npz", probabilities, seed)


def write_codes(path: Path, probabilities: np.ndarray[Any, Any], seed: int) -> None:
    """A population file with series 0 and 4 in turn."""
    codes = np.random.default_rng(seed).choice(DOMAIN, EXAMPLES, p=probabilities).astype(np.int32)
    series = np.tile(np.array([0, 4], np.int16), EXAMPLES // 2)
    write_npz(path, {"codes": codes, "series": series, "domain": np.array(DOMAIN)})


def add_monitor(root: Path) -> Path:
    """Write the monitor's parameters and files into a tree."""
    path = root / "params.yaml"
    path.write_text((path.read_text() if path.exists() else "") + PARAMS)
    write_codes(root / "data/reference.npz", REFERENCE, 99)
    write_current(root, 0.0)
    return root
