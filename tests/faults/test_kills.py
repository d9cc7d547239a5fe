"""After a kill at any moment one rerun completes, with the same artifacts, and no process is left."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from flows.graph import run_graph
from tests.flows import toy

TARGETS = ["topk-account"]


def slow_toy(folder: Path) -> Path:
    """A toy whose one fit takes two seconds."""
    root = toy.make_repository(folder)
    toy.set_params(root, datasets="[a]", steps=20, delay=0.1)
    return root


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Artifacts of a run that nothing disturbed."""
    toy.shared_server()
    root = slow_toy(tmp_path_factory.mktemp("reference") / "toy")
    run_graph(root, TARGETS)
    return toy.contents(root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return slow_toy(tmp_path / "toy")


def process_of(root: Path, what: str) -> int | None:
    """Process id of the process in the toy whose command line holds a text."""
    return next((pid for pid, line in toy.processes_in(root).items() if what in line), None)


def training(root: Path) -> bool:
    return process_of(root, "step.py train") is not None


def test_killed_flow_takes_everything_along_and_one_rerun_completes(
    root: Path, reference: dict[str, bytes], server: str
) -> None:
    flow = toy.start("graph", root, *TARGETS, url=server)
    toy.wait_until(lambda: training(root))
    flow.kill()
    flow.communicate()
    toy.wait_until(lambda: not toy.processes_in(root), 10)
    assert not (root / "data/metrics/topk/train/a-dense-1.json").exists()
    run_graph(root, TARGETS)
    assert toy.contents(root) == reference


@pytest.mark.slow
def test_a_killed_flow_does_not_stay_running_in_prefect(root: Path, server: str) -> None:
    from prefect.client.orchestration import get_client

    flow = toy.start("graph", root, *TARGETS, url=server)
    toy.wait_until(lambda: training(root))
    notes = {path.stem: json.loads(path.read_text()) for path in running_notes()}
    (killed,) = (run for run, note in notes.items() if note["pid"] == flow.pid)
    flow.kill()
    flow.communicate()
    with get_client(sync_client=True) as client:
        before = client.read_flow_run(UUID(killed)).state
        assert before is not None
        assert before.is_running()
        assert toy.finish(toy.start("graph", root, *TARGETS, url=server))[0] == 0
        after = client.read_flow_run(UUID(killed)).state
    assert after is not None
    assert after.is_crashed()
    assert after.message == "The process of the flow was killed."
    assert killed not in {path.stem for path in running_notes()}


def running_notes() -> list[Path]:
    return list((Path(os.environ["PREFECT_HOME"]) / "running").glob("*.json"))


@pytest.mark.parametrize(
    "victim", [pytest.param("repro --single-item topk-train", marks=pytest.mark.slow), "step.py train"]
)
def test_killed_dvc_or_stage_is_tried_again_in_the_same_flow(
    root: Path, reference: dict[str, bytes], server: str, victim: str
) -> None:
    flow = toy.start("graph", root, *TARGETS, url=server)
    toy.wait_until(lambda: training(root))
    os.kill(process_of(root, victim) or 0, signal.SIGKILL)
    status, output = toy.finish(flow)
    assert status == 0, output
    assert toy.contents(root) == reference
    assert not toy.processes_in(root)


@pytest.mark.slow
def test_two_flows_at_once_both_complete(root: Path, reference: dict[str, bytes], server: str) -> None:
    flows = [toy.start("graph", root, *TARGETS, url=server) for _ in range(2)]
    ends = [toy.finish(flow) for flow in flows]
    assert [status for status, _ in ends] == [0, 0], ends
    output = "".join(text for _, text in ends)
    assert sum("topk-train@a-1" in line and " ran " in line for line in output.splitlines()) == 1, output
    assert toy.contents(root) == reference


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_kill_at_a_random_moment(root: Path, reference: dict[str, bytes], server: str, seed: int) -> None:
    moment = random.Random(seed)
    flow = toy.start("graph", root, *TARGETS, url=server)
    toy.wait_until(lambda: bool(toy.processes_in(root)))
    time.sleep(moment.uniform(0, 12))
    victims = [pid for pid in toy.processes_in(root) if pid != flow.pid]
    victim = moment.choice([flow.pid, *victims])
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    toy.finish(flow)
    toy.wait_until(lambda: not toy.processes_in(root), 10)
    run_graph(root, TARGETS)
    assert toy.contents(root) == reference


@pytest.mark.slow
def test_two_flows_with_servers_of_their_own_on_a_fresh_home(root: Path, reference: dict[str, bytes]) -> None:
    home = root.parent / "home"
    environment = {"PREFECT_HOME": str(home)}
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        flows = [toy.start("reproduce", root, "--targets", *TARGETS) for _ in range(2)]
    finally:
        os.environ.clear()
        os.environ.update(before)
    ends = [toy.finish(flow, 240) for flow in flows]
    assert [status for status, _ in ends] == [0, 0], ends
    assert toy.contents(root) == reference
    shutil.rmtree(home)
