"""The records of a monitor: one JSON file per check, written whole, in order; what they say of the episodes.

>>> first = {"check": "0001-a", "state": "released", "decision": "drift", "reference": {"fingerprint": "staff"}}
>>> later = {**first, "check": "0002-b"}
>>> episode, alarms = episodes([first, later])
>>> episode.opened_by, sorted(alarms)
('0001-a', ['0001-a'])

They lie below ``ledger/``, beside the book of releases, since they are what was released: outside of DVC, in no cache
and in no workspace. A check is no stage, as a stage that did not change is not run, while each check is a new release.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from flows.errors import FlowError
from sfumato.artifacts import write_json
from sfumato.divergence.monitoring import Episode, follow
from sfumato.params.drift import Watch, read_record

FOLDER = Path("ledger") / "monitoring"
"""Folder of all monitors, below the root."""

Record = dict[str, Any]
_CHECK = re.compile(r"\d{4,}-[0-9a-f]{8}")
_NAME = re.compile(r"[A-Za-z0-9_]{1,60}")


class Records:
    """The checks of one monitor, on disk."""

    def __init__(self, root: Path, monitor: str) -> None:
        """Name the folder; it is made by the first check.

        Raises:
            FlowError: if the monitor's name is none.
        """
        if not _NAME.fullmatch(monitor):
            raise FlowError(f"monitor is {monitor!r}; allowed are 1 to 60 letters, digits and underscores.")
        self.monitor = monitor
        self.folder = root / FOLDER / monitor

    @contextmanager
    def locked(self, seconds: float = 0.0) -> Generator[None]:
        """Keep others from checking or writing meanwhile.

        Raises:
            FlowError: if another process does so for longer than that.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / ".lock", timeout=seconds):
                yield
        except Timeout:
            raise FlowError(
                f"monitor {self.monitor!r} is being checked by another run; allowed is one at a time."
            ) from None

    def path(self, check: str) -> Path:
        """File of a check.

        Raises:
            FlowError: if that is no name of a check.
        """
        if not _CHECK.fullmatch(check):
            raise FlowError(f"check is {check!r}; allowed is a name such as 0001-1a2b3c4d.")
        return self.folder / f"{check}.json"

    def all(self) -> list[Record]:
        """Every record, in the order of the checks.

        Raises:
            SfumatoError: if a file is damaged or is no record; without it neither the next number nor the state of
                the alarm is known.
        """
        found = [path for path in self.folder.glob("*.json") if _CHECK.fullmatch(path.stem)]
        return sorted((read_record(path) for path in found), key=lambda record: record["number"])

    def read(self, check: str) -> Record:
        """One record.

        Raises:
            FlowError: if there is none of that name.
            SfumatoError: if its file is damaged or is no record.
        """
        path = self.path(check)
        if not path.exists():
            raise FlowError(
                f"monitor {self.monitor!r} has no check {check!r}; allowed are those it has made."
            )
        return read_record(path)

    def begin(self, watch: Watch, flow_run: str | None) -> Record:
        """The record of a new check, on disk before anything is looked at."""
        number = max((record["number"] for record in self.all()), default=0) + 1
        now = datetime.now(UTC)
        record: Record = {
            "version": 1,
            "monitor": self.monitor,
            "check": f"{number:04d}-{secrets.token_hex(4)}",
            "number": number,
            "started": now.isoformat(timespec="seconds"),
            "year": now.year,
            "state": "begun",
            "watch": watch.model_dump(mode="json"),
            "prefect_flow_run": flow_run,
        }
        self.save(record)
        return record

    def save(self, record: Mapping[str, Any]) -> None:
        """Write a record whole, in place of what it was."""
        write_json(self.path(record["check"]), record)


def episodes(records: Sequence[Record]) -> tuple[Episode, set[str]]:
    """The monitor's state after all of its checks, and the checks that raised an alarm.

    Args:
        records: in order; those that released nothing are passed over.
    """
    episode, alarms = Episode(), set[str]()
    for record in records:
        if record["state"] == "released":
            fingerprint = record["reference"]["fingerprint"]
            episode, alarm = follow(episode, record["check"], record["decision"], fingerprint)
            if alarm:
                alarms.add(record["check"])
    return episode, alarms
