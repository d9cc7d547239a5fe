"""The README's picture of the graph shows what dvc.yaml says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sfumato.params import read_yaml

ROOT = Path(__file__).resolve().parents[2]


def _outs(stage: dict[str, Any]) -> list[str]:
    listed = [*stage.get("outs", []), *stage.get("metrics", [])]
    return [next(iter(out)) if isinstance(out, dict) else out for out in listed]


def _edges(stages: dict[str, Any]) -> set[tuple[str, str]]:
    """(earlier, later) wherever a stage depends on an out, or on a folder that holds one."""
    return {
        (first, then)
        for then, stage in stages.items()
        for dep in stage["deps"]
        for first, other in stages.items()
        if any(out == dep or out.startswith(f"{dep}/") for out in _outs(other))
    }


def test_the_picture_names_every_stage_and_draws_no_edge_that_is_not_there() -> None:
    pipeline: Any = read_yaml(ROOT / "dvc.yaml")
    stages = pipeline["stages"]
    picture = re.findall(r"```mermaid\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    names = dict(re.findall(r'(\w+)\["([\w-]+)(?:<br/>[^"]*)?"\]', picture))
    assert set(names.values()) == set(stages)
    drawn = {(names[a], names[b]) for a, b in re.findall(r'(\w+)(?:\["[^"]*"\])? --> (\w+)', picture)}
    real = _edges(stages)
    assert drawn <= real
    reached = {then for _, then in drawn}
    assert reached == {name for name in stages if not name.endswith("prepare")}
