"""One check of a monitored population: estimate, decide, record, and on drift tell Prefect, which starts a retraining.

``python -m flows.drift [--set KEY=VALUE]``; on a schedule, the deployment ``drift/watch`` of prefect.yaml.

>>> drift.name
'drift'

The estimate is made by the step ``python -m tasks.check divergence`` in a child process, which charges the budget
before it draws noise. A check that the budget refuses ends the flow as failed and sends nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.drift_event import send
from flows.drift_links import log_check
from flows.drift_records import Record, Records, episodes
from flows.environment import PROJECT_ROOT, child_environment
from flows.errors import FlowError, InterruptedStageError, StageFailedError
from flows.graph import exit_status
from flows.mirror import current_flow_run
from flows.orphans import noted
from flows.processes import Children, tied_module
from flows.profiles import assignment, set_key
from flows.server import local_api
from sfumato.errors import SfumatoError
from sfumato.params import merged, read_yaml
from sfumato.params.drift import Watch, parse_watch


@flow(name="drift", persist_result=False)
def drift(settings: dict[str, Any] | None = None, root: str | None = None) -> dict[str, Any]:
    """Make one check of the monitor that ``divergence.drift`` of params.yaml describes.

    Args:
        settings: keys of ``divergence.drift`` that this check takes instead.
        root: the tree; the one that holds this package when None.

    Returns:
        the check's name, its decision, and whether it raised an alarm.

    Raises:
        FlowError: if the check was refused, by the budget or for a wrong input; nothing was released then.
    """
    folder = Path(root).resolve() if root else PROJECT_ROOT
    with noted():
        return check_once(folder, read_watch(folder, settings))


def read_watch(root: Path, settings: Mapping[str, Any] | None = None) -> Watch:
    """The monitor of a tree's params.yaml, with some of its keys replaced.

    Raises:
        SfumatoError: if the file is no YAML, or a value is wrong.
    """
    content: Any = read_yaml(root / "params.yaml")
    content = content if isinstance(content, Mapping) else {}
    section = content.get("divergence") or {}
    monitor = section.get("drift") if isinstance(section, Mapping) else None
    if monitor is None and not settings:
        raise FlowError("params.yaml has no divergence.drift; allowed is one that describes a monitor.")
    privacy = content.get("privacy")
    privacy = privacy if isinstance(privacy, Mapping) else {}
    shared = {name: privacy[name] for name in Watch.model_fields if name in privacy}
    return parse_watch({**shared, "drift": merged(monitor or {}, dict(settings or {}))})


def check_once(root: Path, watch: Watch) -> dict[str, Any]:
    """One check, inside a flow run: see `drift`."""
    logger = get_run_logger()
    records = Records(root, watch.drift.name)
    with records.locked():
        _send_what_waits(root, records)
        record = records.begin(watch, current_flow_run())
        record = estimate(root, records, record["check"])
        _, alarms = episodes(records.all())
        record["alarm"] = record["check"] in alarms
        records.save(record)
        log_to_mlflow(root, records, record)
        if record["alarm"]:
            _announce(root, records, record)
    logger.info(_sentence(record))
    _show(record)
    return {name: record[name] for name in ("check", "decision", "alarm")}


@task(name="check", cache_policy=NO_CACHE, persist_result=False)
def estimate(root: Path, records: Records, check: str) -> Record:
    """Run the step that charges, estimates and decides; its child ends with this flow.

    Raises:
        FlowError: if the step refused its input or the budget.
        InterruptedStageError: if it was killed before its release; what it charged stays charged.
        StageFailedError: if it failed otherwise. One that has released is paid for and counts, however it ended.
    """
    logger, children, last = get_run_logger(), Children(), [""]

    def on_line(line: str) -> None:
        logger.info(line)
        last[0] = line.strip() or last[0]

    path = records.path(check).relative_to(root).as_posix()
    command = tied_module("tasks.check", "divergence", "--record", path)
    try:
        status = children.run(command, root, child_environment(), on_line)
    except BaseException:
        children.stop()
        raise
    record = records.read(check)
    if status == 0:
        return record
    if record["state"] == "released":
        logger.warning("check %s ended with status %d after its release, which counts.", check, status)
        return record
    sentence = last[0].removeprefix("check: ") or "the check ended without a word."
    records.save({**record, "state": "refused" if status == 2 else "failed", "reason": sentence})
    if status == 2:
        raise FlowError(sentence)
    if status < 0:
        raise InterruptedStageError(f"check {check} was killed; what it charged stays charged.")
    raise StageFailedError(f"check {check} failed: {sentence}")


def _send_what_waits(root: Path, records: Records) -> None:
    """Send the event of the open episode, if the check that opened it could not."""
    episode, _ = episodes(records.all())
    if episode.opened_by is None:
        return
    record = records.read(episode.opened_by)
    if not (record.get("event") or {}).get("sent"):
        log_to_mlflow(root, records, record)
        _announce(root, records, record)


def log_to_mlflow(root: Path, records: Records, record: Record) -> None:
    """Log to MLflow; what goes wrong is a warning, since the record is on disk."""
    try:
        record["mlflow_run"] = log_check(root, record)
    except SfumatoError as error:
        record.setdefault("mlflow_run", None)
        get_run_logger().warning("not logged to MLflow: %s", error)
    records.save(record)


def _announce(root: Path, records: Records, record: Record) -> None:
    """Send the event of an alarm, and keep whether the server has it."""
    reason = send(record, "" if root == PROJECT_ROOT else str(root))
    record["alarm"] = True
    record["event"] = {"sent": reason is None, "reason": reason}
    records.save(record)
    if reason is not None:
        get_run_logger().warning("drift was found, but %s", reason)


def _sentence(record: Mapping[str, Any]) -> str:
    found, budget, drift = record["estimate"], record["budget"], record["watch"]["drift"]
    return (
        f"check {record['check']}: {record['decision'].replace('_', ' ')}; divergence {found['raw']:.4g} in "
        f"[{found['low']:.4g}, {found['high']:.4g}], threshold {drift['threshold']:g}; the year has cost epsilon = "
        f"{budget['epsilon_after']:.4g} of {drift['yearly_epsilon']:g}, {budget['checks_left']} checks are left."
    )


def _show(record: Mapping[str, Any]) -> None:
    """A table beside the flow run; a run without it is none the worse."""
    rows = [
        {"what": f"{part}.{name}", "value": str(value)}
        for part in ("estimate", "budget", "power", "false_alarms")
        for name, value in record[part].items()
    ]
    rows.insert(0, {"what": "decision", "value": record["decision"]})
    try:
        key = f"drift-{record['monitor']}".lower().replace("_", "-")
        create_table_artifact(table=rows, key=key, description=_sentence(record))
    except Exception as error:
        get_run_logger().warning("not recorded: %s", error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: ``python -m flows.drift``; exit status 2 when the check was refused."""
    parser = argparse.ArgumentParser(prog="python -m flows.drift", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, default=PROJECT_ROOT, help="the tree with params.yaml")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of divergence.drift, such as threshold=0.2",
    )
    options = parser.parse_args(arguments)

    def action() -> None:
        root = options.root.resolve()
        settings: dict[str, Any] = {}
        for text in options.set:
            set_key(settings, *assignment(text, "threshold=0.2"))
        watch = read_watch(root, settings)
        with local_api(root):
            done = drift(settings=settings or None, root=str(root))
        records = Records(root, watch.drift.name)
        record = records.read(done["check"])
        sys.stdout.write(
            _sentence(record) + f"\nRecord:   {records.path(record['check']).relative_to(root)}\n"
        )
        event = record.get("event") or {}
        if event and not event["sent"]:
            sys.stdout.write(f"Drift was found, but {event['reason']}\n")

    return exit_status(action)


if __name__ == "__main__":
    sys.exit(main())
