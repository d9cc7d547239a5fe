"""Retraining after an alarm: the configured system's job, and the links between its MLflow runs and the check's.

The automation of the deployment ``retrain/on-drift`` in prefect.yaml starts it with parameters from the event; by hand,
``python -m flows.drift_retrain --monitor NAME --check CHECK``.

>>> retrain.name
'retrain'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from prefect import flow, get_run_logger

from flows.drift_links import link
from flows.drift_records import Record, Records, episodes
from flows.environment import PROJECT_ROOT
from flows.errors import FlowError
from flows.graph import exit_status
from flows.jobs import run_job
from flows.mirror import current_flow_run
from flows.server import local_api

_LOCK_SECONDS = 600.0


@flow(name="retrain", persist_result=False)
def retrain(
    monitor: str,
    check: str,
    system: str | None = None,
    check_run: str | None = None,
    workers: int = 2,
    root: str | None = None,
) -> list[str]:
    """Bring the system that a monitor names up to date, once for each alarm.

    Args:
        monitor: the monitor's name.
        check: the check that raised the alarm.
        system: the system, as the event says; the record's when None, and it must agree with it.
        check_run: the check's MLflow run, as the event says; likewise.
        workers: stages side by side.
        root: the tree; the one that holds this package when None or empty.

    Returns:
        ids of the MLflow runs that group the retraining's cells.

    Raises:
        FlowError: if there is no such check, it raised no alarm, or it is being retrained for.
    """
    folder = Path(root).resolve() if root else PROJECT_ROOT
    records = Records(folder, monitor)
    record = _claim(records, check, system, check_run)
    if record["retraining"]["state"] == "finished":
        get_run_logger().info("check %s has been retrained for; nothing is run again.", check)
        return list(record["retraining"]["mlflow_runs"])
    wanted = record["watch"]["drift"]
    try:
        run_job(wanted["retrain"], wanted["retrain"], None, workers, wanted["retrain_profile"], None, folder)
    except BaseException:
        _note(records, check, "failed", [])
        raise
    runs = link(folder, record, current_flow_run() or "")
    _note(records, check, "finished", runs)
    return runs


def _claim(records: Records, check: str, system: str | None, check_run: str | None) -> Record:
    """The check's record, which from now on says who retrains for it.

    Raises:
        FlowError: if the check is none to retrain for, or the event says another thing than the record.
    """
    with records.locked(_LOCK_SECONDS):
        record = records.read(check)
        if check not in episodes(records.all())[1]:
            raise FlowError(
                f"check {check!r} of {records.monitor!r} raised no alarm; allowed is one that did."
            )
        wanted = record["watch"]["drift"]["retrain"]
        if system is not None and system != wanted:
            raise FlowError(f"system is {system!r}; allowed is {wanted!r}, which the check's record names.")
        if check_run and check_run != (record.get("mlflow_run") or check_run):
            raise FlowError(
                f"check_run is {check_run!r}; allowed is {record['mlflow_run']!r}, as in the record."
            )
        before = record.get("retraining") or {}
        if before.get("state") == "finished":
            return record
        if before.get("state") == "begun" and _is_running(before.get("flow_run")):
            raise FlowError(f"check {check!r} is being retrained for by the flow run {before['flow_run']}.")
        record["retraining"] = {"state": "begun", "flow_run": current_flow_run(), "mlflow_runs": []}
        records.save(record)
    return record


def _note(records: Records, check: str, state: str, runs: Sequence[str]) -> None:
    with records.locked(_LOCK_SECONDS):
        record = records.read(check)
        record["retraining"] = {**record["retraining"], "state": state, "mlflow_runs": list(runs)}
        records.save(record)


def _is_running(flow_run: str | None) -> bool:
    """Whether a flow run that began a retraining has not ended."""
    from uuid import UUID

    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    if flow_run is None or flow_run == current_flow_run():
        return False
    with get_client(sync_client=True) as client:
        try:
            state = client.read_flow_run(UUID(flow_run)).state
        except ObjectNotFound:
            return False
    return state is not None and not state.is_final()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: ``python -m flows.drift_retrain``."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.drift_retrain", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--monitor", required=True)
    parser.add_argument("--check", required=True)
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="stages side by side (default 2)")
    parser.add_argument("--root", type=Path, default=PROJECT_ROOT, help="folder of the DVC repository")
    options = parser.parse_args(arguments)

    def action() -> None:
        root = str(options.root.resolve())
        with local_api(options.root.resolve()):
            retrain(options.monitor, options.check, workers=options.workers, root=root)

    return exit_status(action)


if __name__ == "__main__":
    sys.exit(main())
