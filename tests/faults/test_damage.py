"""Full disks, raising stages, cut files and a held database: one rerun completes, nothing half-written counts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from flows import mirror as mirror_module
from flows.errors import StageFailedError
from flows.graph import run_graph
from flows.mirror import main, mirror
from flows.recovery import read_lock, repair
from tests.flows import toy

TARGETS = ["topk-account"]


@pytest.fixture(scope="module")
def reference(undisturbed: Path) -> dict[str, bytes]:
    """Artifacts of a run that nothing disturbed."""
    return toy.contents(undisturbed)


def small_toy(folder: Path) -> Path:
    root = toy.make_repository(folder)
    toy.set_params(root, datasets="[a]")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return small_toy(tmp_path / "toy")


def test_full_disk_fails_the_flow_and_a_rerun_completes(
    root: Path, reference: dict[str, bytes], server: str
) -> None:
    toy.set_params(root, fail="disk:a-1")
    with pytest.raises(StageFailedError, match="No space left on device"):
        run_graph(root, TARGETS)
    assert not (root / "data/metrics").exists() or not any((root / "data/metrics").rglob("*.json"))
    assert "topk-train@a-1" not in (read_lock(root / "dvc.lock") or {})
    toy.set_params(root, fail='""')
    run_graph(root, TARGETS)
    assert toy.contents(root) == reference


def test_corrupt_input_fails_in_its_stage_and_a_rerun_completes(
    root: Path, reference: dict[str, bytes], server: str
) -> None:
    good = (root / "source.txt").read_text()
    (root / "source.txt").write_text("1 2 \x00three")
    with pytest.raises(StageFailedError, match="prepare@a failed: ValueError"):
        run_graph(root, TARGETS)
    (root / "source.txt").write_text(good)
    run_graph(root, TARGETS)
    assert toy.contents(root) == reference


@pytest.fixture
def finished(undisturbed: Path, tmp_path: Path, server: str) -> Path:
    return toy.copied(undisturbed, tmp_path / "toy")


def test_damaged_outputs_and_a_cut_lock_table_are_put_right(
    finished: Path, reference: dict[str, bytes]
) -> None:
    (finished / "data/prepared/a.txt").write_text("13.")
    (finished / "data/metrics/topk/train/a-dense-1.json").write_text('{"system": "topk"')
    (finished / ".dvc/tmp").mkdir()
    (finished / ".dvc/tmp/rwlock").write_text('{"write": {"/x')
    result = run_graph(finished, TARGETS)
    assert result.count("cached") == 3
    assert toy.contents(finished) == reference


def test_lock_held_by_a_process_that_is_gone_does_not_block(finished: Path) -> None:
    import json
    import os
    import subprocess

    gone = subprocess.Popen(["true"])
    gone.wait()
    path = finished / ".dvc/tmp/rwlock"
    path.parent.mkdir()
    held = {"write": {str(finished / "data/prepared/a.txt"): {"pid": gone.pid, "cmd": "dvc repro"}}}
    path.write_text(json.dumps(held))
    os.utime(path, (1.0, 1.0))
    assert repair(finished) == ["the lock table of a killed process was removed."]
    held["write"][str(finished / "data/prepared/a.txt")]["pid"] = os.getpid()
    path.write_text(json.dumps(held))
    assert repair(finished) == []


@pytest.mark.parametrize(
    "share", [0.5, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.01, 0.25, 0.9, 0.99))]
)
def test_dvc_lock_cut_at_any_length_is_survived(
    finished: Path, reference: dict[str, bytes], share: float
) -> None:
    whole, before = (finished / "dvc.lock").read_bytes(), hashes(finished)
    (finished / "dvc.lock").write_bytes(whole[: int(share * len(whole))])
    result = run_graph(finished, TARGETS)
    assert result.count("cached") >= 2  # an entry that is cut inside may have to run again
    assert hashes(finished) == before
    assert toy.contents(finished) | {"dvc.lock": b""} == reference | {"dvc.lock": b""}


def hashes(root: Path) -> list[tuple[str, str, str]]:
    """What a lock decides by; sizes and numbers of files, which a cut may take from the last entry, decide nothing."""
    stages = read_lock(root / "dvc.lock") or {}
    return [
        (name, entry["path"], entry["md5"])
        for name in sorted(stages)
        for entry in (*stages[name].get("deps", []), *stages[name].get("outs", []))
    ]


def test_truncated_cache_object_is_not_taken_as_good(finished: Path, reference: dict[str, bytes]) -> None:
    for path in (finished / ".dvc/cache/files").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(path.read_bytes()[:1])
    (finished / "data/prepared/a.txt").unlink()
    (finished / "data/metrics/topk/train/a-dense-1.json").unlink()
    run_graph(finished, TARGETS)
    assert toy.contents(finished) == reference


def test_held_mlflow_database_costs_a_sentence_and_no_result(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(mirror_module, "_RETRY_SECONDS", (0.1,))
    before = toy.contents(finished)
    assert len(mirror(finished).added) == 1
    capsys.readouterr()
    with sqlite3.connect(finished / ".runtime/mlflow/mlflow.db") as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert main(["--root", str(finished)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("MLflow's store cannot be used (")
        assert error.count("\n") == 1
        holder.rollback()
    assert main(["--root", str(finished)]) == 0
    assert "0 cells added, 1 were there" in capsys.readouterr().out
    assert toy.contents(finished) == before


@pytest.mark.slow
def test_missing_or_ruined_mlflow_database_costs_a_sentence_and_no_result(finished: Path) -> None:
    before = toy.contents(finished)
    database = finished / ".runtime/mlflow/mlflow.db"
    assert toy.finish(toy.start("mirror", finished))[0] == 0
    for path in database.parent.glob("mlflow.db*"):
        path.unlink()
    status, output = toy.finish(toy.start("mirror", finished))
    assert (status, output) == (0, "MLflow: 1 cells added, 0 were there.\n")
    database.write_bytes(b"not a database at all" * 100)
    status, output = toy.finish(toy.start("mirror", finished))
    assert status == 2
    assert output.startswith("MLflow's store cannot be used (")
    assert output.count("\n") == 1
    assert toy.contents(finished) == before
