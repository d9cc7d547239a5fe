"""A real Prefect server with prefect.yaml deployed: the population drifts, and the automation starts one retraining."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from flows.drift_records import Record, Records
from flows.environment import child_environment
from flows.mirror import open_store
from flows.processes import end_group, tied_module
from flows.server import LOOPBACK, free_port, start_server, wait_for
from tests.flows import monitored, toy

DRIFTS_AT = 2
CHECKS = 4


class Stage:
    """A server, a worker and a monitored toy tree."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.port = free_port(0)
        self.url = f"http://{LOOPBACK}:{self.port}/api"
        self.environment = child_environment(
            {
                **os.environ,
                "PREFECT_HOME": str(home),
                "PREFECT_API_URL": self.url,
                "PREFECT_WORKER_QUERY_SECONDS": "1",
                "DVC_SITE_CACHE_DIR": str(home / "dvc"),
                "MLFLOW_TRACKING_URI": "",
                "PYTHONPATH": str(toy.PROJECT),
            }
        )

    def run(self, folder: Path, *module: str) -> None:
        """Run a Python module to its end, which has to be a good one."""
        done = subprocess.run(
            [sys.executable, "-m", *module],
            cwd=folder, env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def check(self) -> Record:
        """One check by the command line, against the server."""
        self.run(self.root, "flows.drift", "--root", str(self.root))
        return Records(self.root, "students").all()[-1]

    def retrainings(self) -> list[Any]:
        """Flow runs of the deployment that the automation starts, as the server lists them."""
        import httpx

        body = {"flows": {"name": {"any_": ["retrain"]}}, "sort": "EXPECTED_START_TIME_ASC"}
        return (
            httpx.post(f"{self.url}/flow_runs/filter", json=body, trust_env=False).raise_for_status().json()
        )


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Stage]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home = tmp_path / "prefect"
    home.mkdir()
    root = monitored.add_monitor(toy.make_repository(tmp_path / "toy"))
    made = Stage(root, home)
    with ExitStack() as ends:
        command = ["prefect", "server", "start", "--host", LOOPBACK, "--port", str(made.port)]
        variables = {**made.environment, "PREFECT_UI_ENABLED": "0"}
        server = start_server(tmp_path, "server", command, variables)
        ends.callback(end_group, server)
        wait_for(server, f"{made.url}/health", "the Prefect server")
        made.run(toy.PROJECT, "prefect", "--no-prompt", "work-pool", "create", "local", "--type", "process")
        made.run(toy.PROJECT, "prefect", "--no-prompt", "deploy", "-n", "retrain/on-drift")
        log = ends.enter_context((tmp_path / "worker.log").open("w"))
        worker = subprocess.Popen(
            tied_module("prefect", "worker", "start", "--pool", "local"),
            cwd=toy.PROJECT, env=made.environment, stdout=log, stderr=log, text=True, start_new_session=True,
        )  # fmt: skip
        ends.callback(end_group, worker)
        yield made


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_retraining_starts_once_after_the_drift_and_never_before(stage: Stage) -> None:
    """False alarms before the drift: probability below 1e-9, the divergence being 20 noise deviations below."""
    decisions, before = [], None
    for step in range(CHECKS):
        monitored.write_current(stage.root, 0.8 if step >= DRIFTS_AT else 0.0, seed=step)
        record = stage.check()
        decisions.append(record["decision"])
        if step < DRIFTS_AT:
            time.sleep(3)
            assert stage.retrainings() == []
        if record.get("alarm"):
            before = record
    assert decisions == ["no_drift"] * DRIFTS_AT + ["drift"] * (CHECKS - DRIFTS_AT)
    assert before is not None
    assert before["number"] == DRIFTS_AT + 1
    assert before["event"] == {"sent": True, "reason": None}

    records = Records(stage.root, "students")
    toy.wait_until(
        lambda: any(
            run["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED") for run in stage.retrainings()
        ),
        180,
    )
    runs = stage.retrainings()
    assert [run["state"]["type"] for run in runs] == ["COMPLETED"]
    parameters = runs[0]["parameters"]
    assert parameters["check"] == before["check"]
    assert parameters["system"] == "topk"
    assert parameters["check_run"] == before["mlflow_run"]
    assert runs[0]["created_by"]["type"] == "AUTOMATION"
    assert (stage.root / "data/metrics/topk/train/a-dense-1.json").exists()

    retraining = records.read(before["check"])["retraining"]
    assert retraining["state"] == "finished"
    assert retraining["flow_run"] == runs[0]["id"]
    client, _ = open_store(stage.root / ".runtime" / "mlflow")
    (run,) = retraining["mlflow_runs"]
    assert client.get_run(before["mlflow_run"]).data.tags["sfumato.drift.retraining_run"] == run
    tags = client.get_run(run).data.tags
    assert tags["sfumato.drift.check_run"] == before["mlflow_run"]
    assert tags["prefect.flow_run"] == runs[0]["id"]
    assert sum(bool(record.get("alarm")) for record in records.all()) == 1
