"""The graph of dvc.yaml as a Prefect flow: each stage a task, run as soon as the stages it needs are done.

>>> from flows.pipeline import Node
>>> plan = Plan((Node("a", ()), Node("b", ("a",)), Node("c", ("a",)), Node("d", ("c",))))
>>> weights = chain_seconds(plan, {"c": 5.0})
>>> [weights[name] for name in "abcd"]
[7.0, 1.0, 6.0, 1.0]

The graph is read from DVC at run time. A stage that did not change ends in a state named ``Cached``; a
stage that fails makes the flow fail, and what needs it is not run.
"""

from __future__ import annotations

import argparse
import queue
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed
from prefect.task_runners import ThreadPoolTaskRunner

from flows.console import Console, Progress
from flows.environment import PROJECT_ROOT, check_root
from flows.errors import FlowError, InterruptedStageError, StageFailedError
from flows.orphans import noted
from flows.pipeline import Pipeline, Plan
from flows.recovery import repair
from flows.runner import StageRunner
from flows.server import local_api
from flows.timings import StageTiming, last_seconds, write_timings
from sfumato.errors import SfumatoError

_RETRY_SECONDS = [1.0, 5.0]
_ARTIFACT_SECONDS = 2.0


@dataclass(frozen=True)
class GraphResult:
    """How every stage of a run ended, in the order of the plan."""

    stages: tuple[StageTiming, ...]

    def count(self, state: str) -> int:
        """How many stages ended in a state."""
        return sum(stage.state == state for stage in self.stages)


def run_graph(root: Path, targets: Sequence[str] | None = None, workers: int = 2) -> GraphResult:
    """Bring the targets up to date.

    Args:
        root: folder of the DVC repository.
        targets: stages, matrix groups or files, as ``dvc repro`` takes them; None for the whole graph.
        workers: how many stages run side by side.

    Returns:
        how every stage ended.

    Raises:
        FlowError: if the graph is broken or a target is unknown; nothing has run then.
        StageFailedError: if a stage failed; what does not need it has run to its end.
    """
    check_workers(workers)
    runner: Any = ThreadPoolTaskRunner(max_workers=workers)
    with local_api(root):
        return graph.with_options(task_runner=runner)(
            str(root), None if targets is None else list(targets), workers
        )


@flow(name="graph", persist_result=False, validate_parameters=False)
def graph(root: str, targets: list[str] | None = None, workers: int = 2) -> GraphResult:
    """Run the stages of a DVC repository; see `run_graph`."""
    with noted():
        return _run_stages(Path(root), targets, workers)


def _run_stages(folder: Path, targets: list[str] | None, workers: int) -> GraphResult:
    """Run the stages inside the flow, and record how they ended."""
    begin, start = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    for sentence in repair(folder):
        get_run_logger().warning(sentence)
    pipeline = Pipeline(folder)
    plan = pipeline.plan(targets)
    runner = StageRunner(folder, pipeline, Console(total=len(plan.nodes)))
    state = "failed"
    try:
        _Schedule(plan, runner, workers).run()
        state = "completed"
    except BaseException:
        runner.children.stop()
        raise
    finally:
        stages = tuple(runner.outcomes.get(n, StageTiming(n, "not run", "", 0.0)) for n in plan.names)
        facts = {
            "start": start,
            "seconds": round(time.monotonic() - begin, 3),
            "workers": workers,
            "state": state,
        }
        _guarded(lambda: write_timings(folder, stages, facts))
        pipeline.close()
    _guarded(lambda: _show_table(stages))
    _raise_failures(stages, runner)
    return GraphResult(stages)


class _Schedule:
    """Submits the stages of a plan as they become ready, the longest remaining chain first."""

    def __init__(self, plan: Plan, runner: StageRunner, workers: int) -> None:
        self._waiting = {node.name: set(node.needs) for node in plan.nodes}
        self._needs = {node.name: node.needs for node in plan.nodes}
        self._weights = chain_seconds(plan, last_seconds(runner.root))
        self._runner = runner
        self._workers = workers
        self._futures: dict[str, Any] = {}
        self._total = len(plan.nodes)

    def run(self) -> None:
        """Run until nothing is left that can run; failures are found in the runner's outcomes."""
        ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        running: set[str] = set()
        meter = _Meter("graph", f"{self._total} stages")
        while True:
            ready = [name for name, needs in self._waiting.items() if not needs]
            ready.sort(key=lambda name: -self._weights[name])
            for name in ready[: self._workers - len(running)]:
                del self._waiting[name]
                running.add(name)
                self._submit(name, ended.put)
            if not running:
                return
            name = ended.get()
            running.discard(name)
            self._futures[name].wait()
            if self._futures[name].state.is_completed():
                for needs in self._waiting.values():
                    needs.discard(name)
            done = self._total - len(self._waiting) - len(running)
            meter.show(Progress(done, self._total, ""))

    def _submit(self, name: str, on_end: Callable[[str], None]) -> None:
        future = _stage_task(name, self._runner).submit(
            wait_for=[self._futures[need] for need in self._needs[name] if need in self._futures]
        )
        self._futures[name] = future
        future.add_done_callback(lambda _: on_end(name))


def _stage_task(name: str, runner: StageRunner) -> Any:
    """The Prefect task of a stage; only what interrupts it from outside is tried again."""

    @task(
        name=name,
        task_run_name=name.replace("{", "(").replace("}", ")"),
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=len(_RETRY_SECONDS),
        retry_delay_seconds=_RETRY_SECONDS,
        retry_condition_fn=_was_interrupted,
    )
    def stage() -> Any:
        meter = _Meter(name, f"steps of {name}")
        timing = runner.execute(name, get_run_logger().info, meter.show)
        meter.finish()
        if timing.state == "cached":
            return Completed(name="Cached", message=f"{name} did not change")
        return Completed(message=f"{name} ran for {timing.seconds:.1f} s")

    return stage


def _was_interrupted(_task: Any, _run: Any, state: Any) -> bool:
    return isinstance(state.result(raise_on_failure=False), InterruptedStageError)


class _Meter:
    """A progress artifact, made at the first step and updated every few seconds."""

    def __init__(self, key: str, description: str) -> None:
        self._key = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")
        self._description = description
        self._artifact: Any = None
        self._shown = 0.0

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._shown >= _ARTIFACT_SECONDS or progress.done >= progress.total:
            self._shown = now
            _guarded(lambda: self._put(progress.percent))

    def finish(self) -> None:
        if self._artifact is not None:
            _guarded(lambda: self._put(100.0))

    def _put(self, percent: float) -> None:
        if self._artifact is None:
            self._artifact = create_progress_artifact(percent, key=self._key, description=self._description)
        else:
            update_progress_artifact(self._artifact, progress=percent)


def _guarded(action: Callable[[], object]) -> None:
    """Do what only shows or records a run; when it fails, the run goes on with a warning."""
    try:
        action()
    except Exception as error:
        get_run_logger().warning("not recorded: %s", error)


def _show_table(stages: Sequence[StageTiming]) -> None:
    rows = [
        {"stage": s.name, "state": s.state, "seconds": round(s.seconds, 1), "start": s.start} for s in stages
    ]
    create_table_artifact(table=rows, key="stages", description="How every stage of the run ended.")


def _raise_failures(stages: Sequence[StageTiming], runner: StageRunner) -> None:
    """Raise when a stage did not end well.

    Raises:
        StageFailedError: naming the stages that failed and how many were not run.
    """
    failed = [stage.name for stage in stages if stage.state not in ("ran", "cached", "not run")]
    skipped = sum(stage.state == "not run" for stage in stages)
    if not failed and not skipped:
        return
    errors = [runner.errors[name] for name in failed if name in runner.errors]
    status = max((getattr(error, "status", 1) for error in errors), default=1)
    text = "\n".join(str(error) for error in errors) or f"failed: {', '.join(failed)}"
    raise StageFailedError(f"{text}\n{len(failed)} failed, {skipped} not run.", status)


def chain_seconds(plan: Plan, seconds: Mapping[str, float], default: float = 1.0) -> dict[str, float]:
    """For each stage, the seconds of the longest chain that begins with it.

    Args:
        plan: the stages, each after those it needs.
        seconds: what is known of each stage's duration.
        default: seconds of a stage of which nothing is known.
    """
    longest = {name: 0.0 for name in plan.names}
    for node in reversed(plan.nodes):
        longest[node.name] += seconds.get(node.name, default)
        for need in node.needs:
            longest[need] = max(longest[need], longest[node.name])
    return longest


def check_workers(workers: int) -> None:
    """Refuse a number of workers that runs nothing.

    Raises:
        FlowError: if it is below 1.
    """
    if workers < 1:
        raise FlowError(f"workers is {workers}; allowed are integers of at least 1.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that all flows share."""
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="stages side by side (default 2)")
    parser.add_argument("--root", type=Path, default=PROJECT_ROOT, help="folder of the DVC repository")


def exit_status(action: Callable[[], object]) -> int:
    """Run an action for the command line: every foreseen error is printed and becomes a status.

    Returns:
        0, 2 when the input was refused, 1 when a stage failed, 130 when interrupted.
    """
    try:
        action()
    except (FlowError, StageFailedError, InterruptedStageError) as error:
        sys.stderr.write(f"{error}\n")
        return error.status
    except SfumatoError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; finished stages are kept, run again to go on.\n")
        return 130
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: ``python -m flows.graph [--workers N] [targets]``."""
    parser = argparse.ArgumentParser(prog="python -m flows.graph", description="Run the graph of dvc.yaml.")
    parser.add_argument("targets", nargs="*", help="stages, groups or outputs; everything when none is given")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return exit_status(lambda: run_graph(check_root(options.root), options.targets or None, options.workers))


if __name__ == "__main__":
    sys.exit(main())
