"""Checks and retrainings in MLflow, each with the other's run in its tags.

>>> check_metrics({"estimate": {"raw": 0.25, "low": 0.2, "target": "merged"}, "budget": {"epsilon_after": 1.5}})
{'raw': 0.25, 'low': 0.2, 'budget/epsilon_after': 1.5}
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.environment import RUNTIME
from flows.errors import FlowError
from flows.mirror import KIND, open_store

CHECK_RUN = "sfumato.drift.check_run"
RETRAINING_RUN = "sfumato.drift.retraining_run"
_SECONDS = 600


def log_check(root: Path, record: Mapping[str, Any]) -> str:
    """Log a check as one run.

    Args:
        root: the tree whose ``.runtime/mlflow`` holds the store.
        record: the check's record, with estimate, budget and decision.

    Returns:
        the run's id; that of the run which is there, if the check was logged before.

    Raises:
        FlowError: if the store cannot be used.
    """
    from mlflow.entities import Metric, Param

    drift = record["watch"]["drift"]
    name = f"drift/{record['monitor']}/{record['check']}"
    tags = {
        KIND: "check",
        "system": "divergence",
        "sfumato.drift.monitor": record["monitor"],
        "sfumato.drift.check": record["check"],
        "sfumato.drift.decision": record["decision"],
        "prefect.flow_run": record["prefect_flow_run"] or "",
    }
    with _store(root) as (client, experiment):
        there = _of_check(client, experiment, record)
        if there:
            return there[0]
        run = client.create_run(experiment, run_name=name, tags=tags)
        identity = str(run.info.run_id)
        now = int(time.time() * 1000)
        metrics = [Metric(key, value, now, record["number"]) for key, value in check_metrics(record).items()]
        params = [Param(key, str(value)) for key, value in drift.items() if not isinstance(value, Mapping)]
        client.log_batch(identity, metrics=metrics, params=params)
        client.set_terminated(identity, "FINISHED")
    return identity


def check_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record, by name; those of the estimate without a prefix."""
    result: dict[str, float] = {}
    for part in ("estimate", "budget", "power", "false_alarms"):
        for key, value in record.get(part, {}).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                result[key if part == "estimate" else f"{part}/{key}"] = float(value)
    return result


def link(root: Path, record: Mapping[str, Any], flow_run: str) -> list[str]:
    """Tag the runs of a retraining with the check's run, and the check's run with theirs.

    Args:
        root: the tree.
        record: of the check.
        flow_run: id of the retraining's Prefect flow run, which its MLflow runs are tagged with.

    Returns:
        ids of the runs that group the retraining's cells, the oldest first.

    Raises:
        FlowError: if the store cannot be used.
    """
    with _store(root) as (client, experiment):
        query = f"tags.`prefect.flow_run` = '{flow_run}' and tags.`{KIND}` = 'flow'"
        found = client.search_runs([experiment], query, order_by=["attributes.start_time ASC"])
        runs = [str(run.info.run_id) for run in found]
        checks = _of_check(client, experiment, record)
        for run in runs:
            client.set_tag(run, "sfumato.drift.check", record["check"])
            if checks:
                client.set_tag(run, CHECK_RUN, checks[0])
        for run in checks if runs else ():
            client.set_tag(run, RETRAINING_RUN, ",".join(runs))
    return runs


def _of_check(client: Any, experiment: str, record: Mapping[str, Any]) -> Sequence[str]:
    query = (
        f"tags.`{KIND}` = 'check' and tags.`sfumato.drift.monitor` = '{record['monitor']}' "
        f"and tags.`sfumato.drift.check` = '{record['check']}' and attributes.status = 'FINISHED'"
    )
    return [str(run.info.run_id) for run in client.search_runs([experiment], query)]


@contextmanager
def _store(root: Path) -> Generator[tuple[Any, str]]:
    """The store under the mirror's lock.

    Raises:
        FlowError: in one sentence, if it cannot be used.
    """
    import sqlite3

    from filelock import FileLock, Timeout
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    home = root / RUNTIME / "mlflow"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / "mirror.lock", timeout=_SECONDS):
            yield open_store(home)
    except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError, Timeout) as error:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise FlowError(f"MLflow's store cannot be used ({cause[:200]}).") from error
