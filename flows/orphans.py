"""Flow runs whose process was killed: the next run tells Prefect, since the killed one could not.

>>> is_gone({"pid": os.getpid(), "created": psutil.Process().create_time()})
False
>>> is_gone({"pid": os.getpid(), "created": 1.0})
True

Each flow run leaves a note of its process in Prefect's home for as long as it runs. A note whose process
is gone is that of a run that Prefect still shows as running.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from sfumato.artifacts import read_json, write_json
from sfumato.errors import SfumatoError

_FOLDER = "running"


@contextmanager
def noted() -> Generator[None]:
    """Keep a note that the current flow run belongs to this process while the block runs."""
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        yield
        return
    path = _home() / f"{context.flow_run.id}.json"
    process = psutil.Process()
    with suppress(OSError):
        write_json(path, {"pid": process.pid, "created": process.create_time(), "api": _configured()})
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def close_orphans() -> list[str]:
    """Mark the runs of processes that are gone, and their tasks, as crashed.

    Call it where the Prefect API answers. What goes wrong is left for the next call.

    Returns:
        ids of the flow runs that were closed.
    """
    closed: list[str] = []
    for path in sorted(_home().glob("*.json")):
        note = _read(path)
        if not is_gone(note) or note.get("api", "") != _configured():
            continue
        with suppress(Exception):
            _crash(path.stem)
            path.unlink(missing_ok=True)
            closed.append(path.stem)
    return closed


def is_gone(note: Mapping[str, Any]) -> bool:
    """Whether the process of a note has ended; its id may have been given to another one since."""
    try:
        return abs(psutil.Process(int(note["pid"])).create_time() - float(note["created"])) > 1.0
    except psutil.AccessDenied:
        return False
    except (psutil.Error, KeyError, TypeError, ValueError):
        return True


def _crash(flow_run: str) -> None:
    """Set a flow run and its tasks to crashed, unless they have ended."""
    from uuid import UUID

    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    state = Crashed(message="The process of the flow was killed.")
    with get_client(sync_client=True) as client:
        try:
            run = client.read_flow_run(UUID(flow_run))
        except ObjectNotFound:
            return
        only = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
        for task in client.read_task_runs(flow_run_filter=only):
            if task.state is not None and not task.state.is_final():
                client.set_task_run_state(task.id, state, force=True)
        if run.state is not None and not run.state.is_final():
            client.set_flow_run_state(run.id, state, force=True)


def _home() -> Path:
    return Path(os.environ["PREFECT_HOME"]) / _FOLDER


def _configured() -> str:
    """Address of the API that the user set; empty for the private one, whose port changes."""
    return os.environ.get("PREFECT_API_URL", "")


def _read(path: Path) -> dict[str, Any]:
    try:
        note = read_json(path)
    except (SfumatoError, OSError):
        return {}
    return note if isinstance(note, dict) else {}
