"""A run beside the committed one: compared, and put away so that the tree stays clean on any CPU.

>>> head = {"values": {"mnist": {"0": {"test_accuracy": 0.93}}}, "tolerances": {"test_accuracy": 0.02}}
>>> local = {"values": {"mnist": {"0": {"test_accuracy": 0.94}}}, "tolerances": {}}
>>> differences(head, local)
[Difference(key='mnist/0/test_accuracy', head=0.93, local=0.94, tolerance=0.02)]
>>> differences(head, local)[0].tolerated
True

dvc.lock and the metrics of one machine are committed. Another CPU class may compute other last bits from
the same code, parameters and data. Then the run's own dvc.lock and metrics go to ``report/local`` and the
committed ones come back; the next run begins by putting the local ones in place, so that it is cached.

Order makes it safe against a kill at any moment: ``report/local`` is complete before anything is put
back; dvc.lock is put back first and in place last, so a tree that was left half way has the committed
dvc.lock, and the next run puts the local files in place again.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.recovery import parse_lock, run_git
from sfumato.artifacts import read_json, write_bytes, write_json
from sfumato.errors import SfumatoError

LOCK = "dvc.lock"
METRICS = "data/metrics"
LOCAL = Path("report") / "local"
VERDICT = Path("report") / "reproduction.json"


@dataclass(frozen=True)
class Difference:
    """A value that is not the committed one.

    Attributes:
        key: the levels and the name, joined by slashes.
        head: the committed value; None when it is missing there.
        local: the value of this run; None when it is missing here.
        tolerance: allowed absolute difference, as the committed file declares it.
    """

    key: str
    head: Any
    local: Any
    tolerance: float

    @property
    def tolerated(self) -> bool:
        """Whether both values are numbers within the tolerance."""
        numbers = [value for value in (self.head, self.local) if isinstance(value, int | float)]
        if len(numbers) < 2 or isinstance(self.head, bool) or isinstance(self.local, bool):
            return False
        return math.isclose(self.head, self.local, rel_tol=0.0, abs_tol=self.tolerance)


@dataclass(frozen=True)
class Committed:
    """What HEAD holds: the bytes of dvc.lock and of each metrics file, by path from the root."""

    lock: bytes
    metrics: Mapping[str, bytes]


def read_committed(root: Path) -> Committed | None:
    """Read the committed run, or None outside of git or when HEAD has no dvc.lock."""
    top = run_git(root, "rev-parse", "--show-toplevel")
    if top is None or top.returncode or Path(os.fsdecode(top.stdout.strip())).resolve() != root.resolve():
        return None
    present = run_git(root, "ls-tree", "--name-only", "HEAD", LOCK, METRICS)
    if present is None or present.returncode:
        return None
    names = present.stdout.decode().split()
    if LOCK not in names:
        return None
    archive = run_git(root, "archive", "--format=tar", "HEAD", *names)
    if archive is None or archive.returncode:
        return None
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                files[member.name] = file.read()
    return Committed(files.pop(LOCK), files)


# ----------------------------------------------------------------------------------------------- before a run
def put_local_in_place(root: Path) -> bool:
    """Put this machine's own earlier run in place of the committed one, if it belongs to it.

    Returns:
        whether the files of ``report/local`` are now in the tree.
    """
    committed = read_committed(root)
    if committed is None or not local_belongs(root, committed):
        return False
    if _read(root / LOCK) != committed.lock:
        return False
    local = root / LOCAL
    own = {path.relative_to(local).as_posix(): path for path in sorted((local / METRICS).rglob("*.json"))}
    for name, content in committed.metrics.items():
        if name not in own and _read(root / name) == content:
            (root / name).unlink()
    for name, path in own.items():
        _write_if_other(root / name, path.read_bytes())
    write_bytes(root / LOCK, (local / LOCK).read_bytes())
    return True


def local_belongs(root: Path, committed: Committed) -> bool:
    """Whether ``report/local`` is complete and was made against the committed dvc.lock."""
    try:
        base = read_json(root / LOCAL / "base.json")
    except (SfumatoError, OSError):
        return False
    return (
        isinstance(base, dict)
        and base.get("head_lock") == _sha256(committed.lock)
        and (root / LOCAL / LOCK).exists()
    )


def active_files(root: Path) -> tuple[Path, Path]:
    """The dvc.lock and the root of the metrics that this machine's last run made.

    They are in the tree, unless the committed ones were put back; then they are in ``report/local``.
    """
    committed = read_committed(root)
    if committed is not None and _read(root / LOCK) == committed.lock and local_belongs(root, committed):
        return root / LOCAL / LOCK, root / LOCAL
    return root / LOCK, root


# ------------------------------------------------------------------------------------------------ after a run
def settle(root: Path) -> str | None:
    """Compare a finished run with the committed one, and put the committed one back where it may be.

    Nothing is touched when there is no committed run, or when the user changed a parameter, a command or
    a file that a stage depends on.

    Returns:
        ``bitwise``, ``within_tolerance`` or ``differs``; None when there was nothing to compare.
    """
    committed = read_committed(root)
    if committed is None:
        return None
    own_lock = _read(root / LOCK)
    if own_lock is None or not same_inputs(committed.lock, own_lock):
        (root / VERDICT).unlink(missing_ok=True)
        return None
    own = _own_metrics(root)
    if own_lock == committed.lock:
        shutil.rmtree(root / LOCAL, ignore_errors=True)
        _write_verdict(root, "bitwise", {})
        return "bitwise"
    found = _compare(committed.metrics, own)
    verdict = "differs" if any(not d.tolerated for ds in found.values() for d in ds) else "within_tolerance"
    _write_verdict(root, verdict, found)
    _keep_local(root, committed, own_lock, own)
    write_bytes(root / LOCK, committed.lock)
    for name in own:
        if name not in committed.metrics:
            (root / name).unlink(missing_ok=True)
    for name, content in committed.metrics.items():
        _write_if_other(root / name, content)
    return verdict


def same_inputs(head: bytes, local: bytes) -> bool:
    """Whether two dvc.lock files come from the same stages, commands, parameters and source files.

    What a stage takes from another stage's output may differ; what it takes from the tree may not.
    """
    first, second = parse_lock(head), parse_lock(local)
    if first is None or second is None or set(first) != set(second):
        return False
    return _inputs(first) == _inputs(second)


def _inputs(stages: Mapping[str, Any]) -> dict[str, Any]:
    """For each stage its command, parameters and the hashes of what no stage makes."""
    made = [out["path"] for stage in stages.values() for out in stage.get("outs", [])]

    def is_made(path: str) -> bool:
        return any(path == out or path.startswith(out + "/") or out.startswith(path + "/") for out in made)

    return {
        name: {
            "cmd": stage.get("cmd"),
            "params": stage.get("params"),
            "deps": {d["path"]: None if is_made(d["path"]) else d.get("md5") for d in stage.get("deps", [])},
            "outs": sorted(out["path"] for out in stage.get("outs", [])),
        }
        for name, stage in stages.items()
    }


def _own_metrics(root: Path) -> dict[str, bytes]:
    """Metrics files that the stages of dvc.lock made, by path from the root."""
    stages = parse_lock((root / LOCK).read_bytes()) or {}
    names = {out["path"] for stage in stages.values() for out in stage.get("outs", [])}
    found = {path.relative_to(root).as_posix(): path for path in (root / METRICS).rglob("*.json")}
    return {name: path.read_bytes() for name, path in sorted(found.items()) if name in names}


def _keep_local(root: Path, committed: Committed, lock: bytes, metrics: Mapping[str, bytes]) -> None:
    """Write ``report/local`` anew; ``base.json``, which makes it valid, comes last."""
    local = root / LOCAL
    shutil.rmtree(local, ignore_errors=True)
    for name, content in metrics.items():
        write_bytes(local / name, content)
    write_bytes(local / LOCK, lock)
    write_json(local / "base.json", {"head_lock": _sha256(committed.lock)})


def _compare(head: Mapping[str, bytes], own: Mapping[str, bytes]) -> dict[str, list[Difference]]:
    """The differences in every metrics file that is not equal, by its path."""
    result: dict[str, list[Difference]] = {}
    for name in sorted({*head, *own}):
        if head.get(name) != own.get(name):
            result[name] = differences(_document(head.get(name)), _document(own.get(name)))
    return result


def differences(head: Mapping[str, Any], local: Mapping[str, Any]) -> list[Difference]:
    """The leaves of two metrics documents that are not equal; the committed one declares the tolerances."""
    tolerances = head.get("tolerances", {})
    one, two = _leaves(head.get("values", {})), _leaves(local.get("values", {}))
    return [
        Difference("/".join(path), one.get(path), two.get(path), float(tolerances.get(path[-1], 0.0)))
        for path in sorted({*one, *two})
        if (path in one) != (path in two) or one[path] != two[path]
    ]


def _leaves(node: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every leaf by its path of keys; the last key is the name that a tolerance is declared for."""
    if not isinstance(node, dict):
        return {path: node}
    return {
        key: value
        for name, child in node.items()
        for key, value in _leaves(child, (*path, str(name))).items()
    }


def _document(content: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(content or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _write_verdict(root: Path, verdict: str, found: Mapping[str, list[Difference]]) -> None:
    rows = [{"file": name, **asdict(d), "tolerated": d.tolerated} for name, ds in found.items() for d in ds]
    write_json(root / VERDICT, {"verdict": verdict, "differences": rows})


def _write_if_other(path: Path, content: bytes) -> None:
    if _read(path) != content:
        write_bytes(path, content)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
