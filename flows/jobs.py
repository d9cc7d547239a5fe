"""What every job does around the graph: check, run, mirror, compare with the committed run, say where to look.

>>> system_targets("topk", ["prepare@mnist", "topk-train@mnist", "radiomap-train", "report"])
['topk-train@mnist', 'report']
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flows.committed import put_local_in_place, settle
from flows.environment import PROJECT_ROOT, RUNTIME, check_root
from flows.graph import GraphResult, add_arguments, exit_status, run_graph
from flows.mirror import mirror_quietly
from flows.orphans import noted
from flows.pipeline import Pipeline
from flows.profiles import assignment, check_parameters
from flows.recovery import repair
from flows.server import local_api
from flows.workspace import Request, run_request

Overrides = Mapping[str, Any]
_SENTENCES = {
    "bitwise": "The committed run was reproduced bit for bit.",
    "within_tolerance": "The committed run was reproduced within the declared tolerances (not bit for bit).",
    "differs": "The committed run was NOT reproduced: metrics differ by more than they declare.",
}


def run_job(
    name: str,
    system: str | None = None,
    targets: Sequence[str] | None = None,
    workers: int = 2,
    profile: str | None = None,
    overrides: Overrides | None = None,
    root: Path | None = None,
) -> None:
    """Run a job in the tree, or in workspaces when it has a profile or overrides.

    Args:
        name: the job's name, for MLflow.
        system: the system whose stages are the targets; None for what ``targets`` says.
        targets: stages, groups or outputs; None for everything.
        workers: stages side by side.
        profile: name of a file in ``profiles/``.
        overrides: dotted key -> value.
        root: the tree; the one that holds this package when None.

    Raises:
        SfumatoError: if a parameter, the profile or a target is wrong; nothing has changed on disk then.
        StageFailedError: if a stage failed; finished stages are kept.
    """
    folder = (root or PROJECT_ROOT).resolve()
    with noted():
        if profile is not None or overrides:
            chosen = chosen_targets(folder, system, targets)
            run_request(Request(folder, profile, overrides, targets=chosen, workers=workers))
        else:
            run_in_tree(folder, name, system, targets, workers)


def run_in_tree(
    root: Path, name: str, system: str | None, targets: Sequence[str] | None, workers: int
) -> GraphResult:
    """Run in the tree itself; see `run_job`."""
    check_parameters(root)
    for sentence in repair(root):
        sys.stdout.write(sentence + "\n")
    chosen = chosen_targets(root, system, targets)
    with running(root, lambda: put_local_in_place(root)) as alone:
        try:
            result = run_graph(root, chosen, workers)
        except Exception:
            mirror_quietly(root, name=name, failed=True)
            raise
        mirror_quietly(root, name=name)
    verdict = alone(lambda: settle(root))
    say_where_to_look(root, result, verdict)
    return result


def chosen_targets(root: Path, system: str | None, targets: Sequence[str] | None) -> list[str] | None:
    """The targets of a job: as named, or every stage of the system."""
    if system is None or targets:
        return list(targets) if targets else None
    pipeline = Pipeline(root)
    try:
        return system_targets(system, pipeline.plan().names)
    finally:
        pipeline.close()


def system_targets(system: str, names: Sequence[str]) -> list[str]:
    """The stages of a system among all names, and the report."""
    return [name for name in names if name.startswith(f"{system}-") or name == "report"]


def load_tools() -> None:
    """Import what a job needs later and what takes long to import."""
    import dvc.repo  # pyright: ignore[reportUnusedImport]  # noqa: F401
    import mlflow.store.tracking.sqlalchemy_store  # pyright: ignore[reportUnusedImport]  # noqa: F401


@contextmanager
def running(root: Path, before: Callable[[], object]) -> Generator[Callable[[Callable[[], Any]], Any]]:
    """Mark the tree as being run in, so that nobody puts other files in its place meanwhile.

    Args:
        root: the tree.
        before: done first, unless another run is under way.

    Yields:
        a function for after the block: it does something unless another run is under way, in which case
        that run will do it at its own end, and returns its result or None.
    """
    path = root / RUNTIME / "run.lock"
    path.parent.mkdir(parents=True, exist_ok=True)

    def alone(action: Callable[[], Any]) -> Any:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            return action()

    alone(before)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield alone


def say_where_to_look(root: Path, result: GraphResult, verdict: str | None) -> None:
    """Print the report's table, if there is one, and where everything lies."""
    with suppress(OSError):
        sys.stdout.write("\n" + (root / "report" / "summary.txt").read_text(encoding="utf-8").rstrip() + "\n")
    lines = [f"\n{result.count('ran')} stages ran, {result.count('cached')} were cached."]
    if verdict is not None and not result.count("ran"):
        lines.append("Nothing had to run; the files are those of the last run.")
    elif verdict is not None:
        lines.append(_SENTENCES[verdict] + (" See report/reproduction.json." if verdict != "bitwise" else ""))
    if (root / "report" / "index.html").exists():
        lines.append("Report:   report/index.html")
    lines.append("Timings:  report/timings.json")
    lines.append("Compare:  make ui  (MLflow and Prefect on 127.0.0.1)")
    sys.stdout.write("\n".join(lines) + "\n")


def command_line(
    flow: Callable[..., object], name: str, arguments: Sequence[str] | None = None, with_targets: bool = False
) -> int:
    """Command line of a job: reads the arguments, runs the flow, and turns errors into a status.

    Args:
        flow: the Prefect flow; it takes ``workers, profile, overrides, root`` and maybe ``targets``.
        name: module name below ``flows``.
        arguments: the arguments; those of the process when None.
        with_targets: whether the flow takes targets.
    """
    parser = argparse.ArgumentParser(prog=f"python -m flows.{name}")
    if with_targets:
        parser.add_argument("--targets", nargs="+", metavar="STAGE", help="stages, groups or outputs")
    parser.add_argument("--profile", help="name of a file in profiles/; runs in a workspace")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="runs in a workspace")
    add_arguments(parser)
    options = parser.parse_args(arguments)

    def action() -> None:
        root = check_root(options.root)
        overrides = dict(assignment(text) for text in options.set)
        check_parameters(root)
        chosen: dict[str, Any] = {"targets": options.targets} if with_targets else {}
        with local_api(root, meanwhile=load_tools):
            flow(
                workers=options.workers,
                profile=options.profile,
                overrides=overrides or None,
                root=str(root),
                **chosen,
            )

    return exit_status(action)
