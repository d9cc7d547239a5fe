"""Nothing that a run starts outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flows.errors import StoppedError
from flows.processes import Children
from tests.flows import toy

SLEEPER = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); {}"


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_stop_ends_the_whole_group_and_raises_in_the_waiting_thread() -> None:
    children = Children()
    lines: list[str] = []
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            command = [sys.executable, "-c", SLEEPER.format("import time; time.sleep(60)")]
            children.run(command, Path(), os.environ, lines.append)
        except StoppedError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    toy.wait_until(lambda: bool(lines))
    begin = time.monotonic()
    children.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert time.monotonic() - begin < 5
    assert raised
    toy.wait_until(lambda: not is_alive(int(lines[0])), 5)
    with pytest.raises(StoppedError):
        children.run([sys.executable, "-c", ""], Path(), os.environ, lines.append)


def test_killed_leader_is_reported_at_once_and_takes_its_children_along() -> None:
    lines: list[str] = []
    command = [sys.executable, "-c", SLEEPER.format("import os; os.kill(os.getpid(), 9)")]
    begin = time.monotonic()
    assert Children().run(command, Path(), os.environ, lines.append) == -signal.SIGKILL
    assert time.monotonic() - begin < 20
    toy.wait_until(lambda: not is_alive(int(lines[0])), 5)


@pytest.mark.parametrize("shell", [False, True])
def test_step_dies_with_the_dvc_that_started_it(tmp_path: Path, shell: bool) -> None:
    step = tmp_path / "step.py"
    step.write_text(
        f"import os, sys, time\nsys.path.insert(0, {str(toy.PROJECT)!r})\n"
        "from tasks import lifecycle\nlifecycle.begin()\n"
        "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )
    inner = ["sh", "-c", f"{sys.executable} step.py; true"] if shell else [sys.executable, "step.py"]
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({inner!r})"],
        cwd=tmp_path,
        env={**os.environ, "DVC_STAGE": "train"},
    )
    pid = tmp_path / "pid"
    toy.wait_until(lambda: pid.exists() and bool(pid.read_text()))
    parent.kill()
    parent.wait()
    toy.wait_until(lambda: not is_alive(int(pid.read_text())), 5)


def test_step_of_another_dvc_does_not_begin(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(toy.PROJECT)!r}); from tasks import lifecycle; lifecycle.begin(); print(1)"
    environment = {**os.environ, "DVC_STAGE": "train", "SFUMATO_DVC_PID": str(os.getppid() + 100000)}
    gone = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (gone.returncode, gone.stdout) == (1, "")
    environment["SFUMATO_DVC_PID"] = str(os.getpid())
    kept = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (kept.returncode, kept.stdout) == (0, "1\n")


WITH_A_WORKER = """
import multiprocessing, os, sys, time
sys.path.insert(0, {project!r})
from tasks import lifecycle
lifecycle.begin()

def work(path):
    open(path, "w").write(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=work, args=("pid",))
    worker.start()
    worker.join()
"""


def test_process_that_a_step_starts_begins_under_dvc_and_ends_with_the_step(tmp_path: Path) -> None:
    """It imports the step, and its parent is the step, not the dvc process that the runner names."""
    script, pid = tmp_path / "step.py", tmp_path / "pid"
    script.write_text(WITH_A_WORKER.format(project=str(toy.PROJECT)))
    environment = {**os.environ, "DVC_STAGE": "train", "SFUMATO_DVC_PID": str(os.getpid())}
    step = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, env=environment)
    toy.wait_until(lambda: pid.exists() and bool(pid.read_text()))
    assert step.poll() is None
    step.kill()
    step.wait()
    toy.wait_until(lambda: not is_alive(int(pid.read_text())), 5)


def test_step_that_a_person_starts_is_left_alone() -> None:
    code = f"import sys; sys.path.insert(0, {str(toy.PROJECT)!r}); from tasks import lifecycle; lifecycle.begin()"
    code += "; import threading; print(threading.active_count())"
    environment = {name: value for name, value in os.environ.items() if name != "DVC_STAGE"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "1\n"
