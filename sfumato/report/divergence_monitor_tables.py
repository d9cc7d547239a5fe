"""The numbers of the divergence system's messages, audit and watched population, row by row, from records.

>>> from sfumato.records import Record
>>> levels = {"dataset": "mnist_population", "method": "all_cells", "epsilon": "1"}
>>> run = Run("quick", "divergence", "base", {"audit": (Record(levels, {"epsilon_lower": 1.2}),)})
>>> audit_rows(run)[0].crossed
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.records import Record
from sfumato.report.divergence_tables import own_order, whole
from sfumato.report.study import Run, number_of
from sfumato.report.vocabulary import dataset_order, epsilon_order

KILOBYTE = 1000
"""Bytes of the 1 KB that the paper's counts message stays below; the smaller of the two meanings."""


# -------------------------------------------------------------------------------------------------- payload
@dataclass(frozen=True)
class PayloadRow:
    """Bytes of one protocol run.

    Attributes:
        dataset, trust: whose messages, under which trust model.
        clients, points: how many clients took part and how many points were counted.
        counts_message: bytes of one client's masked counts.
        sent, received: bytes of all messages of one client, keys and shares included.
    """

    dataset: str
    trust: str
    clients: int
    points: int
    counts_message: float
    sent: float
    received: float


def payload_rows(run: Run) -> list[PayloadRow]:
    """A row per payload record that holds every number."""
    rows: list[PayloadRow] = []
    for record in run.records.get("payload", ()):
        values = _numbers(
            record, ("counts_message_bytes", "bytes_sent_per_client", "bytes_received_per_client")
        )
        if values is not None:
            rows.append(
                PayloadRow(
                    record.levels["dataset"],
                    record.levels["trust"],
                    clients=whole(record, "clients"),
                    points=whole(record, "points"),
                    counts_message=values["counts_message_bytes"],
                    sent=values["bytes_sent_per_client"],
                    received=values["bytes_received_per_client"],
                )
            )
    return sorted(rows, key=lambda row: (dataset_order(row.dataset), own_order(row.trust)))


# --------------------------------------------------------------------------------------------------- audits
@dataclass(frozen=True)
class AuditRow:
    """A lower bound of epsilon from repeated runs on two neighbouring data sets, beside the claim."""

    dataset: str
    method: str
    epsilon: str
    lower: float
    ceiling: float | None
    confidence: float
    runs: int

    @property
    def claimed(self) -> float:
        """The claimed epsilon."""
        return float(self.epsilon)

    @property
    def crossed(self) -> bool:
        """Whether the audit refutes the claim."""
        return self.lower > self.claimed


def audit_rows(run: Run) -> list[AuditRow]:
    """A row per audit record with a bound."""
    rows: list[AuditRow] = []
    for record in run.records.get("audit", ()):
        levels, lower = record.levels, number_of(record, "epsilon_lower")
        if lower is not None:
            rest = number_of(record, "epsilon_ceiling"), number_of(record, "confidence") or 0.0
            place = levels["dataset"], levels["method"], levels["epsilon"]
            rows.append(AuditRow(*place, lower, *rest, whole(record, "runs")))
    return sorted(
        rows, key=lambda row: (dataset_order(row.dataset), own_order(row.method), epsilon_order(row.epsilon))
    )


# ------------------------------------------------------------------------------------------------- timeline
@dataclass(frozen=True)
class CheckRow:
    """One check of a watched population.

    Attributes:
        check: its place, from 0.
        drift_share: share of the drifted group in the population.
        divergence: the truth, with its smoothing.
        target: what the estimate aims at.
        raw: the estimate.
        low, high: ends of its interval.
        spent: epsilon of all checks so far at the year's delta.
        alarm: whether this check decided for a drift.
        cleared: whether it decided that there is none.
    """

    dataset: str
    check: int
    drift_share: float
    divergence: float | None
    target: float
    raw: float
    low: float
    high: float
    spent: float | None
    alarm: bool
    cleared: bool

    @property
    def decision(self) -> str:
        """For readers."""
        return "drift" if self.alarm else "no drift" if self.cleared else "undecided"


@dataclass(frozen=True)
class MonitorRow:
    """A watched population: what was declared, what came of it, and what the declared numbers imply.

    Attributes:
        drift_at: the check at which the population began to drift.
        first_alarm: the check of the first alarm; None without one.
        threshold: the divergence that counts as drift.
        affordable: checks that the year's budget pays for.
        false_alarm_per_check, false_alarms_per_year: expected of a population at the threshold.
        minimal: the smallest divergence that a check finds nine times of ten.
        power_at_end: chance that a check finds the divergence of the last check.
        error_std: standard deviation of an estimate.
    """

    dataset: str
    checks: int
    drift_at: int
    first_alarm: int | None
    threshold: float
    confidence: float
    epsilon_per_check: float
    yearly_epsilon: float
    spent: float | None
    delta: float | None
    affordable: int
    false_alarm_per_check: float | None
    false_alarms_per_year: float | None
    minimal: float | None
    power_at_end: float | None
    error_std: float | None


def check_rows(run: Run, dataset: str) -> list[CheckRow]:
    """The checks of one data set, in their order; records that lack a number are left out."""
    rows: list[CheckRow] = []
    for record in run.select("timeline", dataset=dataset):
        values = _numbers(record, ("drift_share", "target", "raw", "low", "high"))
        if values is not None:
            rows.append(
                CheckRow(
                    dataset,
                    int(record.levels["check"]),
                    drift_share=values["drift_share"],
                    divergence=number_of(record, "divergence"),
                    target=values["target"],
                    raw=values["raw"],
                    low=values["low"],
                    high=values["high"],
                    spent=number_of(record, "epsilon_spent"),
                    alarm=record.values.get("alarm") is True,
                    cleared=record.values.get("cleared") is True,
                )
            )
    return sorted(rows, key=lambda row: row.check)


def _numbers(record: Record, names: Sequence[str]) -> dict[str, float] | None:
    """The numbers of those names, None where one is missing."""
    found = {name: value for name in names if (value := number_of(record, name)) is not None}
    return found if len(found) == len(names) else None


def monitor_rows(run: Run) -> list[MonitorRow]:
    """A row per watched data set whose threshold and budget are known."""
    rows: list[MonitorRow] = []
    for record in run.records.get("monitor", ()):
        values = _numbers(record, ("threshold", "confidence", "epsilon_per_check", "yearly_epsilon"))
        first = number_of(record, "first_alarm")
        if values is not None:
            rows.append(
                MonitorRow(
                    record.levels["dataset"],
                    checks=whole(record, "checks"),
                    drift_at=whole(record, "drift_at"),
                    first_alarm=None if first is None else int(first),
                    threshold=values["threshold"],
                    confidence=values["confidence"],
                    epsilon_per_check=values["epsilon_per_check"],
                    yearly_epsilon=values["yearly_epsilon"],
                    spent=number_of(record, "epsilon_spent"),
                    delta=number_of(record, "delta"),
                    affordable=whole(record, "checks_affordable"),
                    false_alarm_per_check=number_of(record, "false_alarm_per_check"),
                    false_alarms_per_year=number_of(record, "false_alarms_per_year"),
                    minimal=number_of(record, "minimal_detectable_divergence"),
                    power_at_end=number_of(record, "power_at_end"),
                    error_std=number_of(record, "error_std"),
                )
            )
    return sorted(rows, key=lambda row: dataset_order(row.dataset))
