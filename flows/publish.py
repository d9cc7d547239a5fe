"""Figures of a long run, copied from its workspace to ``results/``, with where they come from.

>>> published_name("data/metrics/topk/train/mnist-1.json")
('topk', 'metrics/train/mnist-1.json')
>>> published_name("data/statements/topk/mnist-1/dense-0.txt") is None  # made again from the recorded parameters
True
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from flows.recovery import parse_lock, run_git
from sfumato.artifacts import write_bytes, write_json
from sfumato.params import read_yaml

RESULTS = Path("results")


def published_name(path: str) -> tuple[str, str] | None:
    """System and name below its folder of a file that is published, or None for one that is not."""
    parts = PurePosixPath(path).parts
    if len(parts) < 4 or parts[0] != "data" or parts[1] != "metrics":
        return None
    return parts[2], "/".join((parts[1], *parts[3:]))


def publish(root: Path, workspace: Path, profile: str, variant: str, command: str) -> list[Path]:
    """Copy the metrics of finished stages to ``results/<profile>/<system>/<variant>/``.

    A file is copied when it is an output in the workspace's dvc.lock and its content is the recorded one,
    so nothing that a killed or failed stage left is taken.

    Returns:
        the files written, without those that were there already.
    """
    lock = workspace / "dvc.lock"
    if not lock.is_file():
        return []
    content = lock.read_bytes()
    written: list[Path] = []
    systems: set[str] = set()
    for path in finished_files(workspace, parse_lock(content) or {}):
        named = published_name(path)
        if named is None:
            continue
        system, name = named
        systems.add(system)
        target = root / RESULTS / profile / system / variant / name
        data = (workspace / path).read_bytes()
        if not target.is_file() or target.read_bytes() != data:
            write_bytes(target, data)
            written.append(target)
    for system in sorted(systems):
        provenance = root / RESULTS / profile / system / variant / "provenance.json"
        if not provenance.exists() or any(provenance.parent in path.parents for path in written):
            write_json(provenance, _provenance(root, workspace, content, profile, variant, command))
    return written


def finished_files(folder: Path, stages: dict[str, Any]) -> list[str]:
    """Files below ``folder`` that are outputs of a dvc.lock and hold what it records."""
    result: list[str] = []
    for stage in stages.values():
        for out in stage.get("outs", []):
            path = folder / out["path"]
            if path.is_dir() and folder_hash(path) == out.get("md5"):
                result.extend(
                    file.relative_to(folder).as_posix() for file in sorted(path.rglob("*")) if file.is_file()
                )
            elif path.is_file() and hashlib.md5(
                path.read_bytes(), usedforsecurity=False
            ).hexdigest() == out.get("md5"):
                result.append(out["path"])
    return sorted(result)


def folder_hash(folder: Path) -> str:
    """Hash of a folder as DVC computes it: over the sorted names and hashes of its files."""
    rows = [
        {"md5": hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest(), "relpath": relative}
        for relative, file in sorted(
            (f.relative_to(folder).as_posix(), f) for f in folder.rglob("*") if f.is_file()
        )
        if not (file.name.startswith(".") and file.name.endswith(".tmp"))
    ]
    text = json.dumps(rows, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() + ".dir"


def _provenance(
    root: Path, workspace: Path, lock: bytes, profile: str, variant: str, command: str
) -> dict[str, Any]:
    commit = run_git(root, "rev-parse", "HEAD")
    changes = run_git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results")
    known = commit is not None and commit.returncode == 0
    return {
        "command": command,
        "commit": commit.stdout.decode().strip() if commit is not None and known else None,
        "uncommitted_changes": bool(changes.stdout.strip()) if changes is not None and known else None,
        "date": datetime.now(UTC).date().isoformat(),
        "dvc_lock_sha256": hashlib.sha256(lock).hexdigest(),
        "params": read_yaml(workspace / "params.yaml"),
        "params_sha256": hashlib.sha256((workspace / "params.yaml").read_bytes()).hexdigest(),
        "profile": profile,
        "variant": variant,
    }
