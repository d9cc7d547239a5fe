"""A stage whose imported library is not among its deps would be skipped after that library changes."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from sfumato.params import read_yaml
from tasks.command import SYSTEMS

ROOT = Path(__file__).resolve().parents[2]
PIPELINE: Any = read_yaml(ROOT / "dvc.yaml")
STAGES: dict[str, Any] = PIPELINE["stages"]


def _module_file(name: str) -> Path | None:
    base = ROOT / name.replace(".", "/")
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.exists():
            return path
    return None


def _imports(path: Path) -> set[Path]:
    """Files of this repository that a file imports, anywhere in it, lazily or not."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.split(".")[0] in ("sfumato", "tasks"):
                file = _module_file(name)
                if file is not None:
                    found.add(file)
    return found


def _closure(starts: list[Path]) -> set[Path]:
    seen, todo = set[Path](), list(starts)
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo += _imports(path)
    return seen


def _step_files(stage: dict[str, Any]) -> list[Path]:
    """The step's own file, and its system's, which is imported by name."""
    words = stage["cmd"].split()
    assert words[:2] == ["python", "-m"]
    names = [words[2]]
    if len(words) > 3 and words[3] in SYSTEMS:
        package, step = words[2].split(".")
        names.append(f"{package}.{words[3]}.{step}")
    files = [_module_file(name) for name in names]
    assert None not in files, names
    return [file for file in files if file is not None]


@pytest.mark.parametrize("name", sorted(STAGES))
def test_every_file_that_a_stage_imports_is_among_its_dependencies(name: str) -> None:
    stage = STAGES[name]
    deps = [ROOT / dep for dep in stage["deps"]]
    package_markers = {ROOT / "sfumato/__init__.py", *ROOT.glob("tasks/**/__init__.py")}
    missing = [
        str(path.relative_to(ROOT))
        for path in sorted(_closure(_step_files(stage)) - package_markers)
        if not any(path == dep or dep in path.parents for dep in deps)
    ]
    assert not missing


@pytest.mark.parametrize("name", sorted(STAGES))
def test_every_dependency_on_code_exists(name: str) -> None:
    for dep in STAGES[name]["deps"]:
        if dep.startswith(("sfumato", "tasks")):
            assert (ROOT / dep).exists()


@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_command_names_its_step_and_system_as_the_stage_does(name: str) -> None:
    words = STAGES[name]["cmd"].split()
    if "-" in name and not name.endswith("-prepare"):  # prepare knows data sets and no systems
        assert words[3] == name.split("-")[0]


def test_parameters_are_listed_by_section() -> None:
    for stage in STAGES.values():
        assert all(isinstance(item, str) and "/" not in item for item in stage.get("params", []))
