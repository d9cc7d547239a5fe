"""One stage of one run: asked whether it changed, run by DVC in a child process, timed and logged.

>>> explain(["> python -m tasks.train", "epsilon is -1; allowed are numbers above 0.", "ERROR: failed to run: x, exited with 2"])
Failure(status=2, killed=False, sentence='epsilon is -1; allowed are numbers above 0.')

Nothing here knows Prefect; `flows.graph` gives the run its tasks, its states and its log.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from flows.console import Console, Progress, parse_progress
from flows.environment import RUNTIME, child_environment
from flows.errors import InterruptedStageError, StageFailedError
from flows.pipeline import Pipeline, is_busy
from flows.processes import Children, tied_module
from flows.timings import StageTiming

_EXIT = re.compile(r"exited with (-?\d+)")
_TAIL = 30
_BUSY_SECONDS = 3600.0


@dataclass(frozen=True)
class Failure:
    """Why a stage failed, as its output tells.

    Attributes:
        status: exit status of the stage's command; negative for a signal, 1 when it is not known.
        killed: whether a signal ended the command.
        sentence: the last line that the command itself wrote, else DVC's own error.
    """

    status: int
    killed: bool
    sentence: str


def explain(lines: Sequence[str]) -> Failure:
    """Read the reason of a failure from the last lines of DVC's output."""
    found = next((match for line in reversed(lines) if (match := _EXIT.search(line))), None)
    status = int(found[1]) if found else 1
    own = [line for line in lines if line.strip() and not line.startswith(("> ", "ERROR:", "Running stage"))]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    sentence = own[-1].strip() if own and found else (errors or own or ["no output"])[-1].strip()
    return Failure(status, status < 0 or status > 128, sentence)


class StageRunner:
    """Runs the stages of one run; holds the run's children, outcomes and terminal."""

    def __init__(self, root: Path, pipeline: Pipeline, console: Console) -> None:
        """Begin a run in ``root``."""
        self.root = root
        self.pipeline = pipeline
        self.console = console
        self.children = Children()
        self.outcomes: dict[str, StageTiming] = {}
        self.errors: dict[str, BaseException] = {}
        self._logs = root / RUNTIME / "logs"

    def execute(
        self, name: str, log: Callable[[str], None], on_progress: Callable[[Progress], None]
    ) -> StageTiming:
        """Run a stage unless it is unchanged.

        Args:
            name: the stage.
            log: takes each line of the stage's output.
            on_progress: takes each progress line of the stage.

        Returns:
            its timing, with the state ``ran`` or ``cached``.

        Raises:
            StageFailedError: if its command failed.
            InterruptedStageError: if it, or DVC, was killed or could not start.
            StoppedError: if the run was stopped.
        """
        begin, start = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")

        def outcome(state: str) -> StageTiming:
            timing = StageTiming(name, state, start, time.monotonic() - begin)
            self.outcomes[name] = timing
            return timing

        try:
            timing = outcome(self._execute(name, log, on_progress))
        except BaseException as error:
            self.errors[name] = error
            outcome("stopped" if self.children.stopped.is_set() else "failed")
            raise
        self.console.ended(name, timing.state, timing.seconds)
        return timing

    def _execute(self, name: str, log: Callable[[str], None], on_progress: Callable[[Progress], None]) -> str:
        """State of the stage after asking, and running it if need be; waits for files that are held."""
        from dvc.exceptions import DvcException

        delay, deadline = 0.5, time.monotonic() + _BUSY_SECONDS
        while True:
            self.children.check()
            try:
                if not self.pipeline.changed(name):
                    return "cached"
                return self._reproduce(name, log, on_progress)
            except (DvcException, _BusyError) as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise InterruptedStageError(f"stage {name} cannot start: {error}") from error
            log(f"stage {name} waits for another process that holds its files")
            self.children.pause(delay)
            delay = min(2 * delay, 5.0)

    def _reproduce(
        self, name: str, log: Callable[[str], None], on_progress: Callable[[Progress], None]
    ) -> str:
        """Let DVC reproduce one stage in a child process and judge how it ended."""
        tail: deque[str] = deque(maxlen=_TAIL)
        marks: set[str] = set()
        with _StageLog(self._logs, name) as file:

            def on_line(line: str) -> None:
                progress = parse_progress(line)
                if progress is not None:
                    on_progress(progress)
                    self.console.progress(name, progress)
                    return
                tail.append(line)
                if "is cached - skipping run" in line or "didn't change, skipping" in line:
                    marks.add("cached")
                file.write(f"{name} | {line}")
                log(line)

            command = tied_module("dvc", "--wait-for-lock", "repro", "--single-item", name)
            status = self.children.run(command, self.root, child_environment(), on_line)
        if status == 0:
            return "cached" if marks else "ran"
        text = "\n".join(tail)
        if is_busy(text):
            raise _BusyError(text)
        failure = explain(list(tail))
        if status < 0 or failure.killed:
            raise InterruptedStageError(
                f"stage {name} was killed by signal {-min(status, failure.status, 0) or '?'}."
            )
        raise StageFailedError(
            f"stage {name} failed: {failure.sentence}\n{text}", 2 if failure.status == 2 else 1
        )


class _BusyError(RuntimeError):
    """DVC gave up because a file is held by another process."""


class _StageLog:
    """A stage's own log file; a disk that is full does not fail the stage."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / (re.sub(r"[^A-Za-z0-9_.@-]", "_", name) + ".log")
        self._file = None

    def __enter__(self) -> _StageLog:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
        return self

    def write(self, line: str) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.write(line + "\n")
                self._file.flush()

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
