"""How records decide the claims on messages, audits, intervals and alarms of the divergence system.

>>> list(no_alarm_before_drift([]))
[]
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence

from sfumato.report.claims import Judgement, Outcome
from sfumato.report.divergence_monitor_tables import (
    KILOBYTE,
    AuditRow,
    CheckRow,
    MonitorRow,
    audit_rows,
    check_rows,
    monitor_rows,
    payload_rows,
)
from sfumato.report.divergence_rules import outcome
from sfumato.report.divergence_tables import (
    EstimateRow,
    at_place,
    estimate_rows,
    mean_covered,
    methods_of,
    places_of,
)
from sfumato.report.study import Run, bases
from sfumato.report.vocabulary import method, number

BOUND = 0.95
"""Of the binomial interval of a coverage, both sides together."""
OTHER_AIM = "per_batch"
"""Its intervals are for the mean over its batches, which is another number."""


def message_below_1kb(runs: Sequence[Run]) -> Iterator[Outcome]:
    """A client's counts message stays below 1 KB; all bytes of the protocol are named beside it."""
    for run in bases(runs):
        rows = payload_rows(run)
        for dataset in dict.fromkeys(row.dataset for row in rows):
            mine = [row for row in rows if row.dataset == dataset]
            largest = max(mine, key=lambda row: row.counts_message)
            parts = [
                f"{method(row.trust).label}: {row.counts_message:,.0f} bytes of counts for {row.points} points; in all "
                f"{row.sent:,.0f} sent and {row.received:,.0f} received per client, keys and shares included"
                for row in mine
            ]
            verdict = "holds" if largest.counts_message < KILOBYTE else "does not hold"
            judged = Judgement("; ".join(parts), verdict, largest.counts_message, None, "bytes")
            yield Outcome(dataset, "", judged, run, f"{largest.clients:,} clients")


def audits_stay_below(runs: Sequence[Run]) -> Iterator[Outcome]:
    """No lower bound of the audit exceeds the claimed epsilon."""
    for run in bases(runs):
        rows = audit_rows(run)
        for dataset in dict.fromkeys(row.dataset for row in rows):
            yield Outcome(dataset, "", _audits([r for r in rows if r.dataset == dataset]), run, "all ε")


def _audits(rows: Sequence[AuditRow]) -> Judgement:
    top = max(rows, key=lambda row: row.lower / row.claimed)
    crossed = any(row.crossed for row in rows)
    text = f"{len(rows)} audits; the closest proves {number(top.lower)} of {number(top.claimed)} claimed "
    text += f"({method(top.method).label}; each at {100 * top.confidence:g} % confidence)"
    text += "; the claim is refuted" if crossed else "; not refuted"
    return Judgement(text, "does not hold" if crossed else "holds", top.lower, None, "ε")


# ------------------------------------------------------------------------------------------------- coverage
def binomial_interval(share: float, trials: int) -> tuple[float, float]:
    """The exact (Clopper-Pearson) 95 % interval of a share of so many trials.

    >>> [round(end, 3) for end in binomial_interval(0.9, 100)]
    [0.824, 0.951]
    """
    special = importlib.import_module("scipy.special")
    hits, tail = share * trials, (1 - BOUND) / 2
    low = 0.0 if hits <= 0 else float(special.betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits >= trials else float(special.betaincinv(hits + 1, trials - hits, 1 - tail))
    return low, high


def intervals_cover(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The intervals of every method that gives them hold their target at least as often as they say."""
    for run in bases(runs):
        nominal, rows = run.setting("divergence_confidence"), estimate_rows(run)
        for place in places_of(rows):
            mine = [row for row in at_place(rows, place, "epsilon") if row.value != "inf"]
            judged = None if nominal is None else _coverage(mine, nominal)
            if judged is not None:
                yield outcome(place, judged, run, "all ε")


def _coverage(rows: Sequence[EstimateRow], nominal: float) -> Judgement | None:
    """The lowest coverage of a method; the intervals of one epsilon count as the trials, since all ε share the data."""
    found: list[tuple[float, tuple[float, float], str]] = []
    for name in (name for name in methods_of(rows) if name != OTHER_AIM):
        covered = mean_covered([row for row in rows if row.method == name])
        if covered is not None:
            ends = binomial_interval(*covered)
            text = f"{method(name).label}: {covered[0]:.3f} (95 % interval {ends[0]:.3f} to {ends[1]:.3f}, {covered[1]:,} intervals per ε)"
            found.append((covered[0], ends, text))
    if not found:
        return None
    lowest = min(found, key=lambda entry: entry[1][1])
    text = f"{'; '.join(entry[2] for entry in found)}; nominal {nominal:g}"
    verdict = "holds" if lowest[1][1] >= nominal else "does not hold"
    return Judgement(text, verdict, lowest[0], lowest[1], "share")


# --------------------------------------------------------------------------------------------------- alarms
def _watched(run: Run) -> Iterator[tuple[MonitorRow, list[CheckRow]]]:
    for monitor in monitor_rows(run):
        checks = check_rows(run, monitor.dataset)
        if checks:
            yield monitor, checks


def no_alarm_before_drift(runs: Sequence[Run]) -> Iterator[Outcome]:
    """None of the checks before the population drifts raises an alarm."""
    for run in bases(runs):
        for monitor, checks in _watched(run):
            quiet = [row for row in checks if row.check < monitor.drift_at]
            early = [str(row.check) for row in quiet if row.alarm]
            if not quiet:
                continue
            text = f"{len(early)} alarms in {len(quiet)} checks before the drift" + (
                f", at {', '.join(early)}" if early else ""
            )
            if monitor.false_alarms_per_year is not None:
                text += f"; expected false alarms per year: {number(monitor.false_alarms_per_year)}"
            judged = Judgement(text, "does not hold" if early else "holds", float(len(early)), None, "alarms")
            yield Outcome(monitor.dataset, "", judged, run, f"threshold {number(monitor.threshold)} nats")


def alarm_after_drift(runs: Sequence[Run]) -> Iterator[Outcome]:
    """An alarm is raised once the population drifts; not tested where it never drifts as far as one check can find."""
    for run in bases(runs):
        for monitor, checks in _watched(run):
            drifted = [row for row in checks if row.check >= monitor.drift_at]
            if not drifted:
                continue
            late = [row for row in drifted if row.alarm]
            if late:
                delay = late[0].check - monitor.drift_at
                text = f"alarm at check {late[0].check}, {delay} checks after the drift began at {monitor.drift_at}"
                judged = Judgement(text, "holds", float(delay), None, "checks")
            else:
                text = f"no alarm in {len(drifted)} checks from the drift on"
                if monitor.power_at_end is not None:
                    text += f"; the chance to find the last divergence in one check is {number(monitor.power_at_end)}"
                largest = max((row.target for row in drifted), default=0.0)
                small = monitor.minimal is not None and largest < monitor.minimal
                if monitor.minimal is not None and small:
                    text += (
                        f"; the drift ends at {number(largest)} nats, and one check finds {number(monitor.minimal)} nine "
                        "times in ten"
                    )
                judged = Judgement(text, "not tested" if small else "does not hold", None, None, "checks")
            yield Outcome(monitor.dataset, "", judged, run, f"threshold {number(monitor.threshold)} nats")
