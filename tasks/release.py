"""Charging the book of releases before the first noise of a release is drawn."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from dp_accounting import DpEvent

from sfumato import artifacts
from sfumato.ledger import EventLedger, ReleaseBook
from sfumato.mechanisms import NeighboringRelation
from tasks.checkpoints import Checkpoints
from tasks.command import Call
from tasks.data_cells import RELEASE


def charge(
    call: Call,
    checkpoints: Checkpoints,
    events: Sequence[DpEvent],
    unit: str = "training example",
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
) -> None:
    """In release mode charge the whole plan of this stage; in simulation do nothing.

    The run's key is drawn once and kept beside its checkpoints until the outputs are written, so an aborted
    run that goes on is charged once, and a new run of a finished stage is a new release. The budget belongs to
    the data set's name: another target or another copy of the same rows are the same people.

    Args:
        call: the call.
        checkpoints: this run's checkpoints.
        events: the stage's intended events.
        unit: what one record is.
        neighboring_relation: under which the events are priced.

    Raises:
        BudgetExceededError: if the releases would pass the budget.
        SfumatoError: if the book is damaged or locked.
    """
    privacy = call.params.privacy
    if privacy.mode != "release":
        return
    if checkpoints.must_start_anew([RELEASE]):
        checkpoints.clear()
    key_file = checkpoints.folder / "release_key.json"
    if not key_file.exists():
        artifacts.write_json(key_file, {"run_key": f"{call.system}-{call.cell}-{secrets.token_hex(8)}"})
    plan = EventLedger()
    for event in events:
        plan.record(event)
    ReleaseBook(call.root / privacy.ledger).charge(
        dataset_hash=hashlib.sha256(call.options["dataset"].encode()).hexdigest(),
        unit=unit,
        neighboring_relation=neighboring_relation,
        epsilon=privacy.budget_epsilon,
        delta=privacy.delta,
        events=plan.to_json(),
        run_key=str(artifacts.read_json(key_file)["run_key"]),
        clock=lambda: datetime.now(UTC).isoformat(timespec="seconds"),
    )
