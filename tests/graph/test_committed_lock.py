"""The committed dvc.lock was made by the committed code and parameters, so that a newcomer's run is compared with it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flows.recovery import read_lock
from sfumato.params import read_yaml

ROOT = Path(__file__).resolve().parents[2]
LOCK = read_lock(ROOT / "dvc.lock") or {}


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _source_hash(name: str) -> str | None:
    """Hash of a file or folder of the tree as DVC has it, over what git tracks; None for what a stage makes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", name],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    files = sorted(text.decode() for text in listed.stdout.split(b"\0") if text)
    files = [file for file in files if (ROOT / file).is_file()]
    if not files or name.startswith("data/"):
        return None
    if files == [name]:
        return _md5((ROOT / name).read_bytes())
    rows = [
        {"md5": _md5((ROOT / file).read_bytes()), "relpath": Path(file).relative_to(name).as_posix()}
        for file in files
    ]
    return _md5(json.dumps(sorted(rows, key=lambda row: row["relpath"]), sort_keys=True).encode()) + ".dir"


def _value(params: Any, key: str) -> Any:
    for part in key.split("."):
        params = params[part]
    return params


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the git repository")
def test_sources_are_those_that_the_lock_was_made_from() -> None:
    assert LOCK
    stale: dict[str, set[str]] = {}
    hashes = {dep["path"]: dep["md5"] for stage in LOCK.values() for dep in stage["deps"] if "md5" in dep}
    found = {path: _source_hash(path) for path in hashes}
    assert sum(value is not None for value in found.values()) > 10
    for name, stage in LOCK.items():
        for dep in stage["deps"]:
            if found[dep["path"]] not in (None, dep["md5"]):
                stale.setdefault(dep["path"], set()).add(name)
    assert not stale, f"run `make run` and commit dvc.lock with its metrics: {sorted(stale)} changed since"


def test_parameters_are_those_that_the_lock_was_made_from() -> None:
    params = read_yaml(ROOT / "params.yaml")
    for name, stage in LOCK.items():
        for key, value in stage.get("params", {}).get("params.yaml", {}).items():
            assert _value(params, key) == value, (
                f"{name}: {key} of params.yaml changed since dvc.lock was made"
            )
