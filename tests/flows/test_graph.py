"""The Prefect side of a run: states, failure, timings, cancel."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from flows.errors import FlowError, StageFailedError
from flows.graph import GraphResult, run_graph
from flows.jobs import say_where_to_look
from flows.timings import StageTiming
from tests.flows import toy


def task_states(server: str) -> dict[str, str]:
    """State name of the latest task run of each name."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import TaskRunSort

    with get_client(sync_client=True) as client:
        runs: list[Any] = client.read_task_runs(sort=TaskRunSort.EXPECTED_START_TIME_DESC, limit=20)
    result: dict[str, str] = {}
    for run in runs:
        result.setdefault(run.name, run.state.name)
    return result


def test_second_run_is_cached_and_keeps_the_time_of_the_real_one(repository: Path, server: str) -> None:
    targets = ["prepare@a", "other-train"]
    first = run_graph(repository, targets)
    assert first.count("ran") == 2
    before = json.loads((repository / "report/timings.json").read_text())["stages"]
    second = run_graph(repository, targets)
    assert second.count("cached") == 2
    assert task_states(server)["prepare@a"] == "Cached"
    after = json.loads((repository / "report/timings.json").read_text())
    assert after["stages"]["prepare@a"]["last_run_seconds"] == before["prepare@a"]["seconds"] > 0
    assert after["stages"]["prepare@a"]["state"] == "cached"
    assert after["run"]["state"] == "completed"


@pytest.mark.parametrize(
    ("fail", "status", "sentence"),
    [
        pytest.param("a-1", 1, "RuntimeError: the fit went astray", marks=pytest.mark.slow),
        ("refuse:a-1", 2, "toy.scale is wrong; allowed are numbers above 0."),
    ],
)
def test_failed_stage_fails_the_flow_and_stops_only_what_needs_it(
    repository: Path, server: str, fail: str, status: int, sentence: str
) -> None:
    toy.set_params(repository, fail=fail)
    with pytest.raises(StageFailedError, match="topk-train@a-1 failed") as caught:
        run_graph(repository, ["topk-account", "topk-train@a-3", "report"])
    assert caught.value.status == status
    assert str(caught.value).splitlines()[0] == f"stage topk-train@a-1 failed: {sentence}"
    states = {name: entry["state"] for name, entry in json.loads(timings(repository))["stages"].items()}
    assert states["topk-train@a-1"] == "failed"
    assert states["topk-account"] == states["report"] == "not run"
    assert states["topk-train@a-3"] == states["topk-train@b-1"] == "ran"
    assert not (repository / "data/metrics/topk/train/a-dense-1.json").exists()
    attempts = (repository / ".runtime/logs/topk-train@a-1.log").read_text().count("Running stage")
    assert attempts == 1
    assert task_states(server)["topk-train@a-1"] == "Failed"


def timings(repository: Path) -> str:
    return (repository / "report/timings.json").read_text()


def test_stages_run_side_by_side(undisturbed: Path, tmp_path: Path, server: str) -> None:
    repository = toy.copied(undisturbed, tmp_path / "toy")
    toy.set_params(repository, steps=1, delay=2.0)
    begin = time.monotonic()
    result = run_graph(repository, ["topk-train@a-1", "topk-train@a-3"], workers=2)
    assert result.count("ran") == 2
    assert time.monotonic() - begin < sum(stage.seconds for stage in result.stages)


def test_wrong_worker_count_is_refused(repository: Path) -> None:
    with pytest.raises(FlowError, match="workers is 0; allowed are integers of at least 1"):
        run_graph(repository, workers=0)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_cancel_ends_every_process_within_seconds(
    repository: Path, server: str, number: signal.Signals
) -> None:
    toy.set_params(repository, steps=600, delay=0.1)
    flow = toy.start("graph", repository, "topk-train@a-1", "topk-train@a-3", url=server)
    toy.wait_until(
        lambda: sum("step.py train" in line for line in toy.processes_in(repository).values()) >= 2
    )
    begin = time.monotonic()
    flow.send_signal(number)
    status, output = toy.finish(flow, 60)
    assert time.monotonic() - begin < 15  # seconds on a busy machine; 2 to 3 on an idle one
    assert status != 0, output
    toy.wait_until(lambda: not toy.processes_in(repository), 5)
    assert not (repository / "data/metrics/topk/train/a-dense-1.json").exists()


@pytest.mark.parametrize(
    ("state", "sentence"), [("ran", "was reproduced bit for bit"), ("cached", "Nothing had to run")]
)
def test_a_run_that_computed_nothing_does_not_claim_to_have_reproduced(
    state: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = GraphResult((StageTiming("train", state, "2026-01-01T00:00:00+00:00", 1.0),))
    say_where_to_look(tmp_path, result, "bitwise")
    said = capsys.readouterr().out
    assert sentence in said
    assert ("reproduced" in said) == (state == "ran")
