"""Metrics JSON to MLflow: one run for each cell, added once, whichever door the results came through.

>>> refused_store("./mlruns")
"MLFLOW_TRACKING_URI is './mlruns', a folder; MLflow takes a database or a server, such as sqlite:////data/mlflow.db."
>>> refused_store("sqlite:////data/mlflow.db") is None
True

A cell is keyed by the dvc.lock entries that it comes from, so a second mirror adds nothing and a cached
stage loses nothing. A run that a kill left open is closed by the next mirror and logged anew.
"""

from __future__ import annotations

import argparse
import logging
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from flows.cells import Cell, read_cells
from flows.committed import active_files
from flows.environment import PROJECT_ROOT, RUNTIME, check_root
from flows.errors import FlowError
from flows.recovery import run_git
from sfumato.errors import SfumatoError

EXPERIMENT = "sfumato"
KEY = "sfumato.key"
KIND = "sfumato.kind"
_PARAM_LENGTH = 5900
_TAG_LENGTH = 4900
_RETRY_SECONDS = (0.5, 1.0, 2.0)
T = TypeVar("T")


@dataclass(frozen=True)
class Mirrored:
    """What a mirror did: run ids by cell name.

    Attributes:
        added: cells that are new in the store.
        present: cells that were there.
        parent: run that groups them; None when there was nothing to group.
    """

    added: Mapping[str, str]
    present: Mapping[str, str]
    parent: str | None


def mirror(
    root: Path,
    store: Path | None = None,
    name: str = "mirror",
    failed: bool = False,
    flow_run: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Mirrored:
    """Add the cells of a run that the store does not have.

    Args:
        root: folder of the run, the main tree or a workspace.
        store: tree whose ``.runtime/mlflow`` holds the database; ``root`` when None.
        name: name of the run that groups the cells.
        failed: whether the flow failed; the grouping run is marked so.
        flow_run: id of the Prefect flow run; with one, a grouping run is made even if nothing is new.
        tags: further tags of every new run.

    Raises:
        FlowError: if the store cannot be used, after trying again for a few seconds.
        SfumatoError: if a recorded metrics file is damaged.
    """
    from filelock import FileLock, Timeout

    lock, metrics_root = active_files(root)
    cells = read_cells(lock, metrics_root, root)
    home = (store or root) / RUNTIME / "mlflow"
    common = {**_facts(root if store is None else store, lock, flow_run), **(tags or {})}
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / "mirror.lock", timeout=600):
            client, experiment = _retried(lambda: open_store(home))
            return _retried(lambda: _add(client, experiment, cells, name, failed, common))
    except (OSError, Timeout) as error:
        raise FlowError(f"MLflow's folder {RUNTIME}/mlflow cannot be used ({error}).") from error


def mirror_quietly(root: Path, store: Path | None = None, **options: Any) -> Mirrored | None:
    """Mirror at the end of a flow: what goes wrong is a warning, since the results are on disk."""
    try:
        return mirror(root, store, flow_run=current_flow_run(), **options)
    except SfumatoError as error:
        sys.stderr.write(
            f"not mirrored to MLflow: {error} The results are kept; python -m flows.mirror adds them.\n"
        )
        return None


def current_flow_run() -> str | None:
    """Id of the Prefect flow run that this code runs in, or None."""
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    return str(context.flow_run.id) if context is not None and context.flow_run is not None else None


# ------------------------------------------------------------------------------------------------- the store
def tracking_uri(home: Path) -> str:
    """The store that the user set in MLFLOW_TRACKING_URI, else the database in ``home``.

    Raises:
        FlowError: if it is a folder.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home.resolve() / 'mlflow.db'}"
    refusal = refused_store(uri)
    if refusal:
        raise FlowError(refusal)
    return uri


def refused_store(uri: str) -> str | None:
    """A sentence on a tracking address that MLflow does not take, or None."""
    scheme = uri.partition(":")[0].lower() if ":" in uri else ""
    if scheme in ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks") or "+" in scheme:
        return None
    return (
        f"MLFLOW_TRACKING_URI is {uri!r}, a folder; MLflow takes a database or a server, "
        "such as sqlite:////data/mlflow.db."
    )


def open_store(home: Path) -> tuple[Any, str]:
    """A client of the store and the id of the experiment; makes both when they are missing.

    Call it under the mirror's file lock: MLflow's schema must be made by one process alone.
    """
    uri = tracking_uri(home)
    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    _probe(uri)
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None and found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    if found is not None:
        return client, str(found.experiment_id)
    location = (home.resolve() / "artifacts").as_uri() if uri.startswith("sqlite") else None
    return client, str(client.create_experiment(EXPERIMENT, artifact_location=location))


def _probe(uri: str) -> None:
    """Try a write lock on an SQLite file, since MLflow itself waits half a minute for one that is held.

    Raises:
        sqlite3.Error: if the file is held or is no database.
    """
    path = Path(uri.removeprefix("sqlite:///").partition("?")[0])
    if uri.startswith("sqlite:///") and path.is_file():
        with closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")


def _retried(action: Callable[[], T]) -> T:
    """Do something with the store, again after a pause when it is held by another process.

    Raises:
        FlowError: in one sentence, when the store stays unusable.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    for pause in (*_RETRY_SECONDS, None):
        try:
            return action()
        except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError) as error:
            if pause is None:
                cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise FlowError(
                    f"MLflow's store cannot be used ({cause[:200]}); if its database, {RUNTIME}/mlflow/mlflow.db unless "
                    "MLFLOW_TRACKING_URI says otherwise, is damaged, move it away: a new one is filled from the results."
                ) from error
            time.sleep(pause)
    raise AssertionError


# ---------------------------------------------------------------------------------------------------- adding
def _add(
    client: Any, experiment: str, cells: Sequence[Cell], name: str, failed: bool, common: Mapping[str, str]
) -> Mirrored:
    """Close what a kill left open, then add the new cells below one grouping run."""
    _close_open_runs(client, experiment)
    there = _present(client, experiment)
    present = {cell.name: there[cell.key] for cell in cells if cell.key in there}
    new = [cell for cell in cells if cell.key not in there]
    if not new and "prefect.flow_run" not in common:
        return Mirrored({}, present, None)
    parent = _begin(client, experiment, name, {KIND: "flow", **common}).info.run_id
    added = {cell.name: _add_cell(client, experiment, cell, parent, common) for cell in new}
    counts = {"sfumato.cells_added": str(len(added)), "sfumato.cells_cached": str(len(present))}
    cached = {f"cached/{cell}": run for cell, run in present.items()}
    _log(client, parent, tags={**counts, **cached})
    client.set_terminated(parent, "FAILED" if failed else "FINISHED")
    return Mirrored(added, present, parent)


def _close_open_runs(client: Any, experiment: str) -> None:
    """Close the runs of ours that are open; under the lock nobody can be writing them."""
    for kind in ("cell", "flow"):
        for run in _search(client, experiment, f"tags.`{KIND}` = '{kind}' and attributes.status = 'RUNNING'"):
            client.set_terminated(run.info.run_id, "KILLED")


def _present(client: Any, experiment: str) -> dict[str, str]:
    """Run id of every finished cell, by its key."""
    runs = _search(client, experiment, f"tags.`{KIND}` = 'cell' and attributes.status = 'FINISHED'")
    return {run.data.tags[KEY]: run.info.run_id for run in runs if KEY in run.data.tags}


def _search(client: Any, experiment: str, query: str) -> Iterable[Any]:
    token: str | None = None
    while True:
        page = client.search_runs([experiment], query, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _begin(client: Any, experiment: str, name: str, tags: Mapping[str, str]) -> Any:
    return client.create_run(
        experiment, run_name=name, tags={key: value[:_TAG_LENGTH] for key, value in tags.items()}
    )


def _add_cell(client: Any, experiment: str, cell: Cell, parent: str, common: Mapping[str, str]) -> str:
    """Log one cell as a run; it counts as present only once it is finished."""
    levels = {f"level.{name}": text for name, text in cell.levels}
    tags = {
        KIND: "cell",
        KEY: cell.key,
        "mlflow.parentRunId": parent,
        "system": cell.system,
        **levels,
        **common,
    }
    run = _begin(client, experiment, cell.name, tags).info.run_id
    params = {**dict(cell.levels), **cell.params}
    _log(client, run, params=params, metrics=cell.metrics, curves=cell.curves, tags=cell.notes)
    for file in cell.files:
        client.log_artifact(run, str(file), "statement")
    client.set_terminated(run, "FINISHED")
    return str(run)


def _log(
    client: Any,
    run: str,
    params: Mapping[str, str] | None = None,
    metrics: Mapping[str, float] | None = None,
    curves: Mapping[str, Sequence[tuple[int, float]]] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Log in batches of the sizes that every MLflow store takes."""
    from mlflow.entities import Metric, Param, RunTag

    now = int(time.time() * 1000)
    points = [Metric(name, value, now, 0) for name, value in (metrics or {}).items()]
    points += [
        Metric(name, value, now, step) for name, series in (curves or {}).items() for step, value in series
    ]
    for part in _parts(points, 900):
        client.log_batch(run, metrics=part)
    for part in _parts(
        [Param(key[:250], _cut(value, _PARAM_LENGTH)) for key, value in (params or {}).items()], 90
    ):
        client.log_batch(run, params=part)
    for part in _parts(
        [RunTag(key[:250], _cut(value, _TAG_LENGTH)) for key, value in (tags or {}).items()], 90
    ):
        client.log_batch(run, tags=part)


def _parts(items: list[T], size: int) -> Iterable[list[T]]:
    return (items[i : i + size] for i in range(0, len(items), size))


def _cut(text: str, length: int) -> str:
    """The text, cut with a mark when it is too long for the store.

    >>> _cut("abcdef", 4)
    'a...'
    """
    return text if len(text) <= length else text[: length - 3] + "..."


def _facts(root: Path, lock: Path, flow_run: str | None) -> dict[str, str]:
    """Tags that say where a run comes from."""
    import hashlib

    result: dict[str, str] = {}
    commit = run_git(root, "rev-parse", "HEAD")
    if commit is not None and commit.returncode == 0:
        result["git.commit"] = commit.stdout.decode().strip()
    if lock.is_file():
        result["dvc.lock_sha256"] = hashlib.sha256(lock.read_bytes()).hexdigest()
    if flow_run is not None:
        result["prefect.flow_run"] = flow_run
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: ``python -m flows.mirror``."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.mirror", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--root", type=Path, default=PROJECT_ROOT, help="folder of the DVC repository")
    options = parser.parse_args(arguments)
    try:
        done = mirror(check_root(options.root))
    except SfumatoError as error:
        sys.stderr.write(f"{error}\n")
        return getattr(error, "status", 2)
    sys.stdout.write(f"MLflow: {len(done.added)} cells added, {len(done.present)} were there.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
