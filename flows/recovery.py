r"""What a killed DVC can leave behind: a cut dvc.lock, a cut or stale lock table; put right before a run.

>>> import tempfile
>>> root = Path(tempfile.mkdtemp())
>>> _ = (root / "dvc.lock").write_text("schema: '2.0'\nstages:\n  train:\n    cmd: [")
>>> repair_lock_file(root)
'dvc.lock was damaged and is set aside as .runtime/damaged/dvc.lock; finished stages come back from the cache.'
>>> (root / "dvc.lock").exists()
False

DVC writes both files in place. Losing dvc.lock costs nothing but seconds: its entries come back from
the run cache, or from the committed file.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.environment import RUNTIME


def repair(root: Path) -> list[str]:
    """Put right what an earlier, killed run left in a DVC repository.

    Call it before a run; a healthy repository is left as it is.

    Returns:
        one sentence for each thing that was put right.
    """
    return [sentence for sentence in (repair_lock_file(root), repair_lock_table(root)) if sentence]


def repair_lock_file(root: Path) -> str | None:
    """Set a dvc.lock aside that DVC cannot read, and put the committed one in its place, if any."""
    from sfumato.artifacts import write_bytes

    path = root / "dvc.lock"
    if not path.exists() or read_lock(path) is not None:
        return None
    aside = root / RUNTIME / "damaged" / "dvc.lock"
    aside.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, aside)
    committed = git_file(root, "dvc.lock")
    if committed is not None:
        write_bytes(path, committed)
    return (
        "dvc.lock was damaged and is set aside as .runtime/damaged/dvc.lock; "
        "finished stages come back from the cache."
    )


def read_lock(path: Path) -> dict[str, Any] | None:
    """The stages of a dvc.lock: name -> entry; None when it is not one that DVC accepts.

    >>> read_lock(Path("does/not/exist")) is None
    True
    """
    try:
        return parse_lock(path.read_bytes())
    except OSError:
        return None


def parse_lock(content: bytes) -> dict[str, Any] | None:
    """The stages in the content of a dvc.lock, or None when it is damaged."""
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from ruamel.yaml import YAML, YAMLError
    from voluptuous import Invalid

    try:
        document = YAML(typ="safe").load(content.decode("utf-8"))
        COMPILED_LOCKFILE_SCHEMA(document)
    except (YAMLError, Invalid, UnicodeDecodeError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return dict(document.get("stages") or {}) if isinstance(document, dict) else None


def repair_lock_table(root: Path) -> str | None:
    """Remove DVC's table of held files when it is cut, and entries of processes that are gone.

    A process id may have been given to another process since; an entry whose process is younger than
    the table is not a holder.
    """
    from dvc.lock import LockError
    from dvc.repo import Repo

    path = root / ".dvc" / "tmp" / "rwlock"
    if not path.exists():
        return None
    repo: Any = Repo(str(root))
    try:
        with repo.lock:
            table = _read_table(path)
            if table is not None and not _has_stale_holder(path, table):
                return None
            path.unlink(missing_ok=True)
            return "the lock table of a killed process was removed."
    except LockError:
        return None
    finally:
        repo.close()


def _read_table(path: Path) -> Mapping[str, Any] | None:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return table if isinstance(table, dict) else None


def _has_stale_holder(path: Path, table: Mapping[str, Any]) -> bool:
    """Whether the table names holders, and every one of them is gone or younger than the table."""
    import psutil

    written = path.stat().st_mtime
    holders = [entry for entries in table.get("read", {}).values() for entry in entries]
    holders += [entry for entry in table.get("write", {}).values() if entry]
    for holder in holders:
        try:
            if psutil.Process(int(holder["pid"])).create_time() <= written:
                return False
        except (psutil.Error, KeyError, TypeError, ValueError):
            continue
    return bool(holders)


def git_file(root: Path, name: str, revision: str = "HEAD") -> bytes | None:
    """Content of a committed file, or None when git, the commit or the file is not there."""
    result = run_git(root, "show", f"{revision}:./{name}")
    return result.stdout if result is not None and result.returncode == 0 else None


def run_git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    """Run a git command that changes nothing; None when git is not installed."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["git", *arguments], cwd=root, env=environment, capture_output=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
