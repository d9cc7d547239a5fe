"""The event of an alarm: what it says, and that the server has it.

>>> record = {"monitor": "students", "check": "0003-1a2b3c4d", "mlflow_run": None, "estimate": {"raw": 0.3, "low": 0.2,
...           "high": 0.4}, "watch": {"drift": {"retrain": "topk", "threshold": 0.1}}}
>>> event = event_of(record, "")
>>> event["event"], event["resource"]["prefect.resource.id"], event["payload"]["system"]
('sfumato.drift.detected', 'sfumato.monitor.students', 'topk')

What starts the retraining is the automation of the deployment ``retrain/on-drift`` in prefect.yaml, on the server; a
server without it would take the event and do nothing, so none is sent there and the next check tries again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

EVENT = "sfumato.drift.detected"
RESOURCE = "sfumato.monitor"
_NAMESPACE = uuid.UUID("5f0f8a63-7c9d-5c38-9a54-3b8f0f0a7f7e")
_PAUSE_SECONDS = 0.2


def event_of(record: Mapping[str, Any], root: str) -> dict[str, Any]:
    """The event of a check's alarm, as Prefect's ``emit_event`` takes it.

    Args:
        record: the check's record.
        root: the tree to retrain in; empty for the one that the worker serves.

    Returns:
        name, resource, payload and an id that depends on the check alone, so that an event that is sent again after
        a crash is the same one.
    """
    monitor, check, estimate = record["monitor"], record["check"], record["estimate"]
    return {
        "event": EVENT,
        "resource": {
            "prefect.resource.id": f"{RESOURCE}.{monitor}",
            "prefect.resource.name": monitor,
        },
        "payload": {
            "monitor": monitor,
            "check": check,
            "system": record["watch"]["drift"]["retrain"],
            "check_run": record["mlflow_run"] or "",
            "estimate": estimate["raw"],
            "low": estimate["low"],
            "high": estimate["high"],
            "threshold": record["watch"]["drift"]["threshold"],
            "root": root,
        },
        "id": uuid.uuid5(_NAMESPACE, f"{monitor}/{check}"),
    }


def send(record: Mapping[str, Any], root: str, seconds: float = 20.0) -> str | None:
    """Send the event of an alarm to the server of this run, and wait until the server has it.

    Args:
        record: the check's record.
        root: see `event_of`.
        seconds: how long to wait.

    Returns:
        None when it is there; else a sentence that says why it was not sent.
    """
    from prefect.client.orchestration import get_client
    from prefect.events import emit_event

    event = event_of(record, root)
    with get_client(sync_client=True) as client:
        if _is_there(client, event["id"]):
            return None
        if not _somebody_listens(client):
            return (
                f"no automation of this Prefect server waits for {EVENT!r}; deploy retrain/on-drift of prefect.yaml to "
                "the server that PREFECT_API_URL names, and the next check sends the event."
            )
        emit_event(**event)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if _is_there(client, event["id"]):
                return None
            time.sleep(_PAUSE_SECONDS)
    return f"the Prefect server did not take the event within {seconds:g} s; the next check sends it again."


def _is_there(client: Any, identity: uuid.UUID) -> bool:
    body = {"filter": {"id": {"id": [str(identity)]}}, "limit": 1}
    answer = client.request("POST", "/events/filter", json=body)
    answer.raise_for_status()
    return bool(answer.json()["events"])


def _somebody_listens(client: Any) -> bool:
    """Whether an enabled automation expects the event."""
    return any(
        automation.enabled and EVENT in getattr(automation.trigger, "expect", ())
        for automation in client.read_automations()
    )
