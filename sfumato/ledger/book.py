"""The book of all releases of a data set: append-only, locked, on disk before any noise is drawn.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> book = ReleaseBook(Path(folder.name) / "releases.jsonl")
>>> plan = [{"kind": "gaussian", "noise_multiplier": 10.0, "count": 1}]
>>> charge = book.charge(
...     dataset_hash="ab", unit="example", neighboring_relation="add_or_remove_one", epsilon=1.0,
...     delta=1e-5, events=plan, run_key="run 1", clock=lambda: "2026-01-01T00:00:00Z")
>>> charge.releases, round(charge.epsilon, 3)
(1, 0.341)
>>> folder.cleanup()
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dp_accounting import DpEvent
from filelock import FileLock, Timeout

from sfumato.accounting import epsilon as price_epsilon
from sfumato.accounting import spent
from sfumato.accounting.gaussian import check_delta, check_epsilon, zcdp_epsilon
from sfumato.errors import AccountingError, BudgetExceededError, SfumatoError
from sfumato.ledger.recorder import EventJson, EventLedger
from sfumato.mechanisms import NeighboringRelation, require_relation


@dataclass(frozen=True)
class Charge:
    """What the book answered.

    Attributes:
        already_charged: whether this run had been charged before (a resumed run).
        epsilon: cost at the given delta of all releases of this data set, unit and relation, with this one.
        delta: the delta.
        releases: how many runs are in the book for them.
    """

    already_charged: bool
    epsilon: float
    delta: float
    releases: int


@dataclass(frozen=True)
class _Line:
    dataset_hash: str
    unit: str
    neighboring_relation: str
    run_key: str
    events: tuple[EventJson, ...]

    @property
    def account(self) -> tuple[str, str, str]:
        return self.dataset_hash, self.unit, self.neighboring_relation


class ReleaseBook:
    """The append-only book of releases; one line per run, locked, and on disk before any noise is drawn.

    Budgets belong to one (data set hash, unit of privacy, neighbouring relation) and are never mixed. A
    budget is checked by composing the events of all of its runs; epsilons are never added. What is charged
    stays charged, also when the run is aborted.
    """

    def __init__(self, path: Path, lock_timeout: float = 60.0) -> None:
        """Name the book's file; it is made by the first charge.

        Args:
            path: the file, usually ``ledger/releases.jsonl``; a ``.lock`` file is kept beside it.
            lock_timeout: seconds to wait for another process.
        """
        self._path = path
        self._lock_path = path.with_name(path.name + ".lock")
        self._timeout = lock_timeout

    @contextmanager
    def _locked(self) -> Generator[None]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._lock_path, timeout=self._timeout)
            lock.acquire()
        except Timeout as error:
            raise SfumatoError(
                f"{self._path} is locked by another process for more than {self._timeout:g} s; "
                "try again when it has ended."
            ) from error
        except OSError as error:
            raise SfumatoError(
                f"{self._path} cannot be opened ({error.strerror}); nothing was charged."
            ) from error
        try:
            yield
        finally:
            lock.release()

    def charge(
        self,
        *,
        dataset_hash: str,
        unit: str,
        neighboring_relation: NeighboringRelation,
        epsilon: float,
        delta: float,
        events: Sequence[Mapping[str, object]],
        run_key: str,
        clock: Callable[[], str],
    ) -> Charge:
        """Charge a run's whole plan before its first noise is drawn; returns once the line is on disk.

        Guarantee: after this returns, the composition of every release charged to (data set, unit,
        relation) is (epsilon, delta)-differentially private by PLD, if each run draws no more than its
        charged events.

        Args:
            dataset_hash: content hash of the private data set.
            unit: unit of privacy, such as ``example``.
            neighboring_relation: ``add_or_remove_one`` or ``replace_one``.
            epsilon: the budget of all releases together.
            delta: the budget's delta.
            events: the plan, as ``EventLedger.to_json`` gives it.
            run_key: identifies the run; a resumed run passes the same key and is not charged again.
            clock: gives the time to note down, such as an ISO 8601 text.

        Raises:
            BudgetExceededError: if the releases would pass the budget; nothing is charged.
            AccountingError: if the composition cannot be priced; nothing is charged.
            SfumatoError: if an argument or the book is malformed, the key is known with other events, or the
                disk refuses; nothing is charged.
        """
        relation = require_relation(neighboring_relation)
        for name, text in (("dataset_hash", dataset_hash), ("unit", unit), ("run_key", run_key)):
            if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SfumatoError(f"{name} is {text!r}; allowed is a text that is not empty.")
        check_epsilon(epsilon)
        check_delta(delta)
        plan = EventLedger.from_json(events)
        if plan.steps == 0:
            raise SfumatoError("events is empty; allowed is the plan of at least one release.")
        line = _Line(dataset_hash, unit, relation, run_key, tuple(plan.to_json()))
        with self._locked():
            lines = [known for known in self._read_repaired() if known.account == line.account]
            same = [known for known in lines if known.run_key == run_key]
            if same and same[0].events != line.events:
                raise SfumatoError(
                    f"run_key {run_key!r} is in the book with other events; a changed plan is a new run "
                    "and needs its own key."
                )
            if same:
                return Charge(True, self._price(lines, delta, relation), delta, len(lines))
            cost = self._price([*lines, line], delta, relation)
            if not cost <= epsilon:
                raise BudgetExceededError(
                    f"run {run_key!r} would bring the cost of this data set to epsilon = {cost:.6g} at "
                    f"delta = {delta:g} over {len(lines) + 1} releases; the budget is {epsilon:g}."
                )
            self._append(line, epsilon, delta, cost, clock())
            return Charge(False, cost, delta, len(lines) + 1)

    def spent(
        self, *, dataset_hash: str, unit: str, neighboring_relation: NeighboringRelation, delta: float
    ) -> Charge:
        """The cost at delta of what is in the book for that data set, unit and relation.

        Raises:
            SfumatoError: if the book is malformed.
        """
        relation = require_relation(neighboring_relation)
        check_delta(delta)
        with self._locked():
            account = (dataset_hash, unit, relation)
            lines = [known for known in self._read_repaired() if known.account == account]
        return Charge(bool(lines), self._price(lines, delta, relation), delta, len(lines))

    @staticmethod
    def _price(lines: Sequence[_Line], delta: float, relation: NeighboringRelation) -> float:
        events = [event for line in lines for event in EventLedger.from_json(line.events).events]
        kinds = {event["kind"] for line in lines for event in line.events}
        if "zcdp" in kinds and kinds <= {"zcdp", "gaussian", "no_op"} and relation == "replace_one":
            return _zcdp_price(events, delta)
        try:
            return price_epsilon(events, delta, "pld", relation)
        except AccountingError:
            if all(event["kind"] != "zcdp" for line in lines for event in line.events):
                raise
            return price_epsilon(events, delta, "rdp", relation)

    def _read_repaired(self) -> list[_Line]:
        """All lines; a torn last one is completed if whole but for its end, and cut off otherwise.

        A charge returns only after its whole line, with the line's end, is on disk; so a torn line belongs
        to a charge that never returned and to a run that never drew noise.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SfumatoError(
                f"{self._path} cannot be read ({error.strerror}); nothing was charged."
            ) from error
        body, newline, torn = content.rpartition(b"\n")
        whole = body + newline
        if torn:
            try:
                self._parse(torn, 0)
                kept = content + b"\n"
            except SfumatoError:
                kept = whole
            self._rewrite_end(kept, len(whole))
            whole = kept
        return [self._parse(text, number) for number, text in enumerate(whole.splitlines(), start=1)]

    def _rewrite_end(self, kept: bytes, start: int) -> None:
        """Make the file's bytes from ``start`` on those of ``kept``; complete lines are not touched."""
        try:
            with open(self._path, "r+b") as file:
                file.truncate(start)
                file.seek(start)
                file.write(kept[start:])
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SfumatoError(
                f"{self._path} cannot be repaired ({error.strerror}); nothing was charged."
            ) from error

    def _parse(self, text: bytes, number: int) -> _Line:
        where = f"line {number} of {self._path}"
        try:
            value: object = json.loads(text)
        except ValueError as error:
            raise SfumatoError(
                f"{where} is not JSON; restore the book from a copy, never delete it."
            ) from error
        if not isinstance(value, dict):
            raise SfumatoError(f"{where} is not an object; restore the book from a copy, never delete it.")
        entry = cast("dict[str, object]", value)
        names = ("dataset_hash", "unit", "neighboring_relation", "run_key")
        texts = [entry.get(name) for name in names]
        for name, field in zip(names, texts, strict=True):
            if not isinstance(field, str) or not field:
                raise SfumatoError(f"{where}: {name} is {field!r}; restore the book from a copy.")
        ledger = EventLedger.from_json(entry.get("events"))
        dataset_hash, unit, relation, run_key = cast("list[str]", texts)
        return _Line(dataset_hash, unit, require_relation(relation), run_key, tuple(ledger.to_json()))

    def _append(self, line: _Line, epsilon: float, delta: float, cost: float, time: str) -> None:
        document = {
            "version": 1,
            "time": time,
            "dataset_hash": line.dataset_hash,
            "unit": line.unit,
            "neighboring_relation": line.neighboring_relation,
            "run_key": line.run_key,
            "events": list(line.events),
            "budget_epsilon": epsilon,
            "delta": delta,
            "epsilon_after": cost if math.isfinite(cost) else None,
        }
        data = (json.dumps(document, sort_keys=True, allow_nan=False) + "\n").encode()
        new = not self._path.exists()
        start = 0 if new else self._path.stat().st_size
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                written = 0
                while written < len(data):
                    written += os.write(descriptor, data[written:])
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, start)
                raise
            finally:
                os.close(descriptor)
            if new:
                self._sync_folder()
        except OSError as error:
            raise SfumatoError(
                f"{self._path} cannot be written ({error.strerror}); nothing was charged."
            ) from error

    def _sync_folder(self) -> None:
        descriptor = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _zcdp_price(events: Sequence[DpEvent], delta: float) -> float:
    """Epsilon of Gaussian and zCDP releases under replace-one, as the mechanisms that charge them are calibrated."""
    everything = spent(events)
    return zcdp_epsilon(everything.mu(2.0) ** 2 / 2.0 + everything.zcdp_rho, delta)
