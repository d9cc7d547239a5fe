"""The events of a run, recorded while they happen.

>>> from sfumato.mechanisms import subsampled_gaussian_step
>>> ledger = EventLedger()
>>> for size in (3, 0, 2):
...     ledger.record(subsampled_gaussian_step(0.1, 1.0), realised_batch_size=size)
>>> ledger.steps, ledger.empty_batches
(3, 1)
>>> ledger.to_json()
[{'kind': 'poisson_sampled_gaussian', 'sampling_rate': 0.1, 'noise_multiplier': 1.0, 'count': 3}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from dp_accounting import dp_event

from sfumato.errors import SfumatoError
from sfumato.mechanisms import subsampled_gaussian_step

EventJson = dict[str, str | float | int]

_FIELDS: dict[str, tuple[str, ...]] = {
    "poisson_sampled_gaussian": ("sampling_rate", "noise_multiplier"),
    "gaussian": ("noise_multiplier",),
    "zcdp": ("rho",),
    "no_op": (),
    "non_private": (),
}


def _describe(event: object) -> EventJson:
    """The kind and numbers of one simple event."""
    if isinstance(event, dp_event.NoOpDpEvent):
        return {"kind": "no_op"}
    if isinstance(event, dp_event.NonPrivateDpEvent):
        return {"kind": "non_private"}
    if isinstance(event, dp_event.GaussianDpEvent):
        return {"kind": "gaussian", "noise_multiplier": float(event.noise_multiplier)}
    if isinstance(event, dp_event.ZCDpEvent) and event.xi == 0:
        return {"kind": "zcdp", "rho": float(event.rho)}
    if isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(
        event.event, dp_event.GaussianDpEvent
    ):
        return {
            "kind": "poisson_sampled_gaussian",
            "sampling_rate": float(event.sampling_probability),
            "noise_multiplier": float(event.event.noise_multiplier),
        }
    raise SfumatoError(
        f"event {event!r} cannot be recorded; allowed are one-step Gaussian, Poisson-sampled Gaussian, zCDP, "
        "no-op and non-private events."
    )


def _number(entry: Mapping[str, object], name: str, where: str, high: float) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= float(value) <= high:
        raise SfumatoError(f"{where}: {name} is {value!r}; allowed is a number from 0 to {high:g}.")
    return float(value)


def _entry(value: object, position: int) -> tuple[EventJson, int]:
    """(the event's description, its count) of one validated JSON entry."""
    where = f"event {position} of the list"
    if not isinstance(value, Mapping):
        raise SfumatoError(f"{where} is {value!r}; allowed is an object with kind and count.")
    entry = cast("Mapping[str, object]", value)
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise SfumatoError(f"{where}: kind is {kind!r}; allowed are {', '.join(sorted(_FIELDS))}.")
    unknown = sorted(set(entry) - {"kind", "count", *_FIELDS[kind]})
    if unknown:
        raise SfumatoError(f"{where}: {unknown[0]!r} is not a field of a {kind!r} event.")
    count = entry.get("count")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SfumatoError(f"{where}: count is {count!r}; allowed is an integer of at least 1.")
    described: EventJson = {"kind": kind}
    for name in _FIELDS[kind]:
        described[name] = _number(entry, name, where, 1.0 if name == "sampling_rate" else 1e12)
    return described, count


def _event(described: EventJson) -> dp_event.DpEvent:
    kind = described["kind"]
    if kind == "no_op":
        return dp_event.NoOpDpEvent()
    if kind == "non_private":
        return dp_event.NonPrivateDpEvent()
    if kind == "zcdp":
        return dp_event.ZCDpEvent(rho=float(described["rho"]))
    rate = float(described["sampling_rate"]) if kind == "poisson_sampled_gaussian" else 1.0
    return subsampled_gaussian_step(rate, float(described["noise_multiplier"]))


class EventLedger:
    """Records what a run releases, one event per step, as it happens; equal neighbours share an entry."""

    def __init__(self) -> None:
        """Start empty."""
        self._runs: list[tuple[EventJson, int]] = []
        self._empty_batches = 0

    def record(self, event: dp_event.DpEvent, realised_batch_size: int | None = None) -> None:
        """Record one step; a self-composed event counts as its number of steps.

        Args:
            event: a one-step Gaussian, Poisson-sampled Gaussian, zCDP, no-op or non-private event.
            realised_batch_size: how many records the batch held; 0 is counted as an empty batch. The count
                is a fact about the private data and serves simulations; release mode leaves it out.

        Raises:
            SfumatoError: if the event is of another kind or the size negative.
        """
        count = 1
        if isinstance(event, dp_event.SelfComposedDpEvent):
            event, count = event.event, int(event.count)
            if count < 1:
                raise SfumatoError(f"count of a self-composed event is {count}; allowed is at least 1.")
        described = _describe(event)
        if realised_batch_size is not None:
            if isinstance(realised_batch_size, bool) or realised_batch_size < 0 or count != 1:
                raise SfumatoError(
                    f"realised_batch_size is {realised_batch_size!r} for {count} steps; allowed is "
                    "at least 0 "
                    "for one step."
                )
            self._empty_batches += int(realised_batch_size == 0)
        self._append(described, count)

    def _append(self, described: EventJson, count: int) -> None:
        if self._runs and self._runs[-1][0] == described:
            self._runs[-1] = (described, self._runs[-1][1] + count)
        else:
            self._runs.append((described, count))

    def record_empty_batch(self) -> None:
        """Count an empty batch whose step is recorded by its own call without a size."""
        self._empty_batches += 1

    def copied(self) -> EventLedger:
        """A ledger of its own with the same content."""
        ledger = EventLedger()
        ledger._runs = list(self._runs)
        ledger._empty_batches = self._empty_batches
        return ledger

    @property
    def steps(self) -> int:
        """How many steps were recorded."""
        return sum(count for _, count in self._runs)

    @property
    def empty_batches(self) -> int:
        """How many steps had an empty batch."""
        return self._empty_batches

    @property
    def events(self) -> list[dp_event.DpEvent]:
        """The recorded events in order, run-length composed, to be priced."""
        return [dp_event.SelfComposedDpEvent(_event(described), count) for described, count in self._runs]

    def to_json(self) -> list[EventJson]:
        """The run-length list of events as plain objects."""
        return [{**described, "count": count} for described, count in self._runs]

    @classmethod
    def from_json(cls, document: object, empty_batches: int = 0) -> EventLedger:
        """The ledger of a ``to_json`` document.

        Raises:
            SfumatoError: if the document is malformed, naming the entry and the field.
        """
        if not isinstance(document, Sequence) or isinstance(document, (str, bytes)):
            raise SfumatoError(f"events is a {type(document).__name__}; allowed is a list of event objects.")
        if isinstance(empty_batches, bool) or empty_batches < 0:
            raise SfumatoError(f"empty_batches is {empty_batches!r}; allowed is an integer of at least 0.")
        ledger = cls()
        for position, value in enumerate(cast("Sequence[object]", document)):
            ledger._append(*_entry(value, position))
        if empty_batches > ledger.steps:
            raise SfumatoError(
                f"empty_batches is {empty_batches}; allowed is at most the {ledger.steps} steps."
            )
        ledger._empty_batches = empty_batches
        return ledger
