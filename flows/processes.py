"""Child processes of one run: each leads its own process group, and none outlives the run.

>>> children = Children()
>>> lines: list[str] = []
>>> children.run([sys.executable, "-c", "print('ready')"], Path(), {}, lines.append)
0
>>> lines
['ready']
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from flows.errors import StoppedError


class Children:
    """The children of one run; run-time state, made by the flow and never held by a module.

    Attributes:
        stopped: set once the run is being stopped; every wait of the run looks at it.
    """

    def __init__(self) -> None:
        """Start without children."""
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._live: dict[int, subprocess.Popen[str]] = {}

    def run(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
    ) -> int:
        """Run a command in its own process group and hand over its output line by line.

        Args:
            command: the program and its arguments; no shell is involved.
            folder: the working folder.
            environment: the whole environment of the child.
            on_line: called with each line of output and error output, without the line's end.

        Returns:
            the exit status; negative when a signal ended the process.

        Raises:
            StoppedError: if the run was stopped before or while the command ran.
        """
        with self._lock:
            self.check()
            process = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            self._live[process.pid] = process
        threading.Thread(target=_end_group_after, args=(process,), daemon=True).start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                on_line(line.rstrip("\n"))
            status = process.wait()
        finally:
            end_group(process)
            with self._lock:
                self._live.pop(process.pid, None)
        self.check()
        return status

    def check(self) -> None:
        """Raise when the run is being stopped.

        Raises:
            StoppedError: if `stop` was called.
        """
        if self.stopped.is_set():
            raise StoppedError("the run was stopped.")

    def pause(self, seconds: float) -> None:
        """Wait, at most until the run is stopped.

        Raises:
            StoppedError: if `stop` was called.
        """
        self.stopped.wait(seconds)
        self.check()

    def stop(self, grace: float = 1.0) -> None:
        """End every child's group: SIGTERM, then SIGKILL after ``grace`` seconds."""
        self.stopped.set()
        with self._lock:
            live = list(self._live.values())
        for process in live:
            _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline and any(process.poll() is None for process in live):
            time.sleep(0.05)
        for process in live:
            _signal_group(process.pid, signal.SIGKILL)


def _end_group_after(process: subprocess.Popen[str]) -> None:
    """Kill what a leader left behind; else a grandchild that holds the pipe would keep it open."""
    process.wait()
    _signal_group(process.pid, signal.SIGKILL)


def end_group(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a child's process group, and close its output."""
    _signal_group(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def tied_module(module: str, *arguments: str) -> list[str]:
    """Command that runs a module with this interpreter in a child that dies with this process."""
    script = Path(__file__).with_name("child.py")
    return [sys.executable, "-P", str(script), str(os.getpid()), module, *arguments]
