"""MLflow holds each cell once, whichever door it came through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cells import checked_name, read_cells
from flows.errors import FlowError
from flows.graph import run_graph
from flows.mirror import EXPERIMENT, KIND, main, mirror, mirror_quietly, open_store
from tests.flows import toy

TARGETS = ["topk-account", "topk-train@a-3"]


@pytest.fixture(scope="module")
def made(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy whose stages have run; tests copy it."""
    root = toy.copied(undisturbed, tmp_path_factory.mktemp("made") / "toy")
    run_graph(root, TARGETS)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        open_store(root / ".runtime" / "mlflow")  # the schema takes seconds; the copies have it
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return toy.copied(made, tmp_path / "toy")


def runs(root: Path) -> list[Any]:
    client, experiment = open_store(root / ".runtime" / "mlflow")
    assert client.get_experiment(experiment).name == EXPERIMENT
    return list(client.search_runs([experiment]))


def test_each_cell_is_logged_with_values_curves_reasons_and_statement(root: Path) -> None:
    done = mirror(root)
    assert set(done.added) == {"topk-a-dense-1", "topk-a-dense-3"}
    client, _ = open_store(root / ".runtime" / "mlflow")
    run = client.get_run(done.added["topk-a-dense-1"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["train/accuracy"] == 14.5
    assert run.data.metrics["train/seed_1/accuracy"] == 15.0
    assert run.data.params["toy.scale"] == "2"
    assert run.data.params["epsilon"] == "1"
    assert run.data.tags["train/seed_0/epsilon"] == "not priced"
    assert "train/epsilon" not in run.data.metrics
    assert run.data.tags["mlflow.parentRunId"] == done.parent
    assert len(run.data.tags["dvc.lock_sha256"]) == 64
    curve = client.get_metric_history(run.info.run_id, "curves/train/seed_0/loss")
    assert len(curve) == 200
    assert sorted(point.step for point in curve)[::199] == [0, 299]
    assert [file.path for file in client.list_artifacts(run.info.run_id, "statement")] == [
        "statement/dense.txt"
    ]
    assert not client.list_artifacts(done.added["topk-a-dense-3"], "statement")


def test_second_mirror_adds_nothing_and_a_flow_lists_cached_cells(root: Path) -> None:
    first = mirror(root)
    count = len(runs(root))
    second = mirror(root)
    assert (second.added, second.parent) == ({}, None)
    assert len(runs(root)) == count
    third = mirror(root, flow_run="a-flow")
    grouping = next(run for run in runs(root) if run.info.run_id == third.parent)
    assert grouping.data.tags["cached/topk-a-dense-1"] == first.added["topk-a-dense-1"]
    assert grouping.data.tags["prefect.flow_run"] == "a-flow"


def test_failed_flow_is_marked_failed(root: Path) -> None:
    done = mirror(root, failed=True)
    assert {run.info.run_id: run.info.status for run in runs(root)}[done.parent or ""] == "FAILED"


def test_run_that_a_kill_left_open_is_closed_and_logged_anew(root: Path) -> None:
    client, experiment = open_store(root / ".runtime" / "mlflow")
    cell = read_cells(root / "dvc.lock", root, root)[0]
    stale = client.create_run(experiment, tags={KIND: "cell", "sfumato.key": cell.key}).info.run_id
    assert cell.name in mirror(root).added
    assert client.get_run(stale).info.status == "KILLED"


def test_stale_metrics_file_that_no_stage_made_is_not_taken(root: Path) -> None:
    path = root / "data/metrics/topk/train/a-dense-1.json"
    path.write_text(path.read_text().replace("14.0", "99.0"))
    assert set(mirror(root).added) == {"topk-a-dense-3"}


def test_folder_as_store_is_refused_in_one_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "./mlruns")
    assert main(["--root", str(root)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "./mlruns" in error
    assert "sqlite:////" in error
    assert mirror_quietly(root) is None
    assert "python -m flows.mirror adds them" in capsys.readouterr().err


def test_own_database_is_respected(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'own.db'}")
    assert len(mirror(root).added) == 2
    assert (tmp_path / "own.db").exists()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert not runs(root)


@pytest.mark.parametrize("name", ["train/a@b", "train/a=b", "train/[0]", "Train/x", "ε"])
def test_names_that_a_tool_refuses_are_refused_here(name: str) -> None:
    with pytest.raises(FlowError, match="metric name"):
        checked_name(name)
