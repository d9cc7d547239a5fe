"""The page's section on the divergence system, as plain cells for the template.

>>> from sfumato.report.study import Study, run_of
>>> divergence_section(Study(run_of("quick", "topk", "base", [])))["shown"]
False
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.report import divergence_charts as charts
from sfumato.report import divergence_monitor_charts as monitor_charts
from sfumato.report import divergence_monitor_tables as watched
from sfumato.report import divergence_tables as tables
from sfumato.report.divergence_monitor_rules import binomial_interval
from sfumato.report.page_sections import inline, long_runs, statement_rows
from sfumato.report.study import BASE, Run, Study, number_of
from sfumato.report.text import NOTHING, with_spread
from sfumato.report.vocabulary import (
    DIVERGENCE_METHODS,
    STUDIES,
    dataset_label,
    method,
    number,
    percent,
)

SYSTEM = "divergence"


def divergence_section(study: Study) -> dict[str, Any]:
    """Everything that the template ``divergence.html`` names; parts without data are empty.

    A study without a run of this system, whose grid has no data set, has no section.
    """
    found = study.current_of(SYSTEM)
    run = found or Run("", SYSTEM, BASE, {})
    rows = tables.estimate_rows(run)
    long, statements = long_runs(study, SYSTEM, _long_run), statement_rows(study, SYSTEM)
    return {
        "tested": bool(rows),
        "shown": found is not None or bool(long) or bool(statements),
        "profile": run.profile,
        "seeds": max((row.seeds for row in rows), default=0),
        "facts": study.settings.get("divergence_facts", []),
        "epsilon": _studied(run),
        "smoothing": next((f"{row.smoothing:g}" for row in rows if row.smoothing), ""),
        "released": study.settings.get("divergence_released", []),
        "confidence": percent(run.setting("divergence_confidence") or 0.0, 0),
        "methods": [m for m in DIVERGENCE_METHODS if any(row.method == m.name for row in rows)],
        "chart": _drawn(charts.error_chart, rows, "epsilon", "divergence-error"),
        "tables": error_tables(rows),
        "targets": error_tables(rows, target=True),
        "studies": _studies(rows),
        "pairs": _drawn(charts.pair_chart, rows, "pair", "divergence-pair"),
        "bias": _bias(rows),
        "coverage": _coverage(rows),
        "payload": [_payload_cells(row) for row in watched.payload_rows(run)],
        "audit": _audit(watched.audit_rows(run)),
        "timelines": _timelines(run),
        "monitors": _monitors(watched.monitor_rows(run)),
        "account": _account(run),
        "statements": statements,
        "long": long,
    }


def _studied(run: Run) -> str:
    """The epsilon of the studies, as text; empty where it is not known."""
    epsilon = run.setting("divergence_epsilon")
    return "" if epsilon is None else f"{epsilon:g}"


def _drawn(draw: Any, rows: Sequence[tables.EstimateRow], study: str, name: str) -> Any:
    """The chart of a study; None where it has no rows."""
    return inline(draw(rows, name)) if any(row.study == study for row in rows) else None


# ---------------------------------------------------------------------------------------------------- errors
def error_tables(rows: Sequence[tables.EstimateRow], target: bool = False) -> list[dict[str, Any]]:
    """A table per data set and comparison: a line per method, a cell per epsilon; the best private one is marked.

    Args:
        rows: of every study; those of epsilon are shown.
        target: whether the error against the target is shown.
    """
    found: list[dict[str, Any]] = []
    mine = [row for row in rows if row.study == "epsilon"]
    for place in tables.places_of(mine):
        here = tables.at_place(mine, place, "epsilon")
        epsilons = tables.epsilons_of(here)
        lines = [_error_line(here, name, epsilons, target) for name in tables.methods_of(here)]
        found.append(
            {
                "label": charts.place_label(place),
                "headings": epsilons,
                "rows": lines,
                "pairs": max(row.pairs for row in here),
                "infinite": max(row.infinite for row in here),
                "divergence": _first(here, "divergence"),
                "target": _first(here, "target"),
            }
        )
    return found


def _first(rows: Sequence[tables.EstimateRow], name: str) -> str:
    values = [value for row in rows if (value := getattr(row, name)) is not None]
    return number(values[0]) if values else NOTHING


def _error_line(
    rows: Sequence[tables.EstimateRow], name: str, epsilons: Sequence[str], target: bool
) -> dict[str, Any]:
    cells: list[dict[str, str]] = []
    for epsilon in epsilons:
        here = tables.by_method(rows, epsilon)
        row = here.get(name)
        means = {key: _shown(entry, target) for key, entry in here.items() if entry.value == epsilon}
        best = min((mean for mean in means.values() if mean is not None), default=None)
        own = means.get(name)
        text = NOTHING if row is None else with_spread(row.target_error if target else row.error)
        cells.append({"text": text, "tone": "best" if own is not None and own == best else ""})
    return {"method": tables.own_method(name), "cells": cells}


def _shown(row: tables.EstimateRow, target: bool) -> float | None:
    mean = row.target_error if target else row.error
    return None if mean is None else mean.mean


# --------------------------------------------------------------------------------------------------- studies
def _studies(rows: Sequence[tables.EstimateRow]) -> list[dict[str, Any]]:
    """Small multiples and their table, per data set and comparison."""
    mine = [row for row in rows if row.study in charts.VARIED]
    found: list[dict[str, Any]] = []
    for place in tables.places_of(mine):
        here = [row for row in mine if row.place == place]
        cells = [
            {
                "study": STUDIES[row.study],
                "value": f"{row.number:g}",
                "method": method(row.method).label,
                "error": with_spread(row.error),
                "target": with_spread(row.target_error),
                "bias": with_spread(row.bias),
            }
            for row in here
        ]
        name = f"divergence-study-{place[0]}-{place[1]}".replace("_", "-")
        chart = inline(charts.study_chart(mine, place, name))
        found.append({"label": charts.place_label(place), "chart": chart, "rows": cells})
    return found


def _bias(rows: Sequence[tables.EstimateRow]) -> dict[str, Any] | None:
    mine = [row for row in rows if row.study == "epsilon" and row.bias]
    if not mine:
        return None
    cells = [
        {
            "place": charts.place_label(row.place),
            "method": method(row.method).label,
            "epsilon": "∞" if row.value == "inf" else row.value,
            "bias": with_spread(row.bias),
            "noise": NOTHING if row.noise_std is None else number(row.noise_std),
            "target": NOTHING if row.target is None else number(row.target),
        }
        for row in mine
    ]
    return {"chart": inline(charts.bias_chart(mine, "divergence-bias")), "rows": cells}


def _coverage(rows: Sequence[tables.EstimateRow]) -> list[dict[str, str]]:
    """A line per comparison, method and epsilon with intervals."""
    cells: list[dict[str, str]] = []
    for row in rows:
        trials = row.pairs * row.seeds
        if row.study == "epsilon" and row.covered is not None and trials:
            low, high = binomial_interval(row.covered, trials)
            cells.append(
                {
                    "place": charts.place_label(row.place),
                    "method": method(row.method).label,
                    "epsilon": row.value,
                    "covered": percent(row.covered),
                    "interval": f"{percent(low)} to {percent(high)}",
                    "trials": f"{trials:,}",
                }
            )
    return cells


# ------------------------------------------------------------------------------------------- bytes and audit
def _payload_cells(row: watched.PayloadRow) -> dict[str, Any]:
    return {
        "dataset": dataset_label(row.dataset),
        "trust": method(row.trust).label,
        "clients": f"{row.clients:,}",
        "points": f"{row.points:,}",
        "counts": f"{row.counts_message:,.0f}",
        "sent": f"{row.sent:,.0f}",
        "received": f"{row.received:,.0f}",
        "small": row.counts_message < watched.KILOBYTE,
    }


def _audit(rows: Sequence[watched.AuditRow]) -> dict[str, Any] | None:
    if not rows:
        return None
    cells = [
        {
            "dataset": dataset_label(row.dataset),
            "method": method(row.method).label,
            "epsilon": row.epsilon,
            "lower": f"{row.lower:.3f}",
            "ceiling": NOTHING if row.ceiling is None else f"{row.ceiling:.2f}",
            "runs": f"{row.runs:,}",
            "confidence": percent(row.confidence, 0),
            "crossed": row.crossed,
        }
        for row in rows
    ]
    chart = inline(monitor_charts.audit_chart(rows, "divergence-audit"))
    return {"chart": chart, "rows": cells, "crossed": any(row.crossed for row in rows)}


# -------------------------------------------------------------------------------------------------- timeline
def _timelines(run: Run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for monitor in watched.monitor_rows(run):
        checks = watched.check_rows(run, monitor.dataset)
        if checks:
            name = f"divergence-timeline-{monitor.dataset}".replace("_", "-")
            found.append(
                {
                    "label": dataset_label(monitor.dataset),
                    "chart": inline(monitor_charts.timeline_chart(checks, monitor, name)),
                    "confidence": percent(monitor.confidence, 0),
                    "rows": [_check_cells(row) for row in checks],
                }
            )
    return found


def _check_cells(row: watched.CheckRow) -> dict[str, Any]:
    return {
        "check": row.check,
        "share": percent(row.drift_share, 0),
        "divergence": NOTHING if row.divergence is None else number(row.divergence),
        "target": number(row.target),
        "raw": number(row.raw),
        "interval": f"{number(row.low)} to {number(row.high)}",
        "spent": NOTHING if row.spent is None else number(row.spent),
        "decision": row.decision,
        "alarm": row.alarm,
    }


def _monitors(rows: Sequence[watched.MonitorRow]) -> dict[str, Any] | None:
    """A line per fact and a column per watched data set."""
    if not rows:
        return None

    def text(value: float | None) -> str:
        return NOTHING if value is None else number(value)

    lines: list[tuple[str, list[str]]] = [
        ("threshold, nats", [text(row.threshold) for row in rows]),
        ("error of an estimate, σ, nats", [text(row.error_std) for row in rows]),
        ("ε of a check", [text(row.epsilon_per_check) for row in rows]),
        ("ε of a year", [text(row.yearly_epsilon) for row in rows]),
        ("checks that the year’s ε pays for", [f"{row.affordable:,}" for row in rows]),
        ("ε spent by the checks made", [text(row.spent) for row in rows]),
        ("false alarms per check", [text(row.false_alarm_per_check) for row in rows]),
        ("false alarms per year of checks", [text(row.false_alarms_per_year) for row in rows]),
        ("divergence that a check finds nine times of ten, nats", [text(row.minimal) for row in rows]),
        ("chance to find the last check’s divergence", [_chance(row.power_at_end) for row in rows]),
        ("check at which the drift began", [str(row.drift_at) for row in rows]),
        ("check of the alarm", [NOTHING if r.first_alarm is None else str(r.first_alarm) for r in rows]),
    ]
    return {"datasets": [dataset_label(row.dataset) for row in rows], "rows": lines}


def _chance(value: float | None) -> str:
    return NOTHING if value is None else percent(value)


# ---------------------------------------------------------------------------------------- prices, long runs
def _account(run: Run) -> list[dict[str, str]]:
    """A line per accounted method and epsilon."""

    def text(value: float | None, digits: int = 4) -> str:
        return NOTHING if value is None else number(value, digits)

    return [
        {
            "dataset": dataset_label(record.levels["dataset"]),
            "method": method(record.levels["method"]).label,
            "epsilon": record.levels["epsilon"],
            "delta": text(number_of(record, "delta")),
            "examples": f"{number_of(record, 'n') or 0:,.0f}",
            "releases": f"{number_of(record, 'releases') or 0:,.0f}",
            "multiplier": text(number_of(record, "noise_multiplier")),
            "gaussian": text(number_of(record, "epsilon_gaussian")),
            "zcdp": text(number_of(record, "epsilon_zcdp")),
        }
        for record in run.records.get("account", ())
    ]


def _long_run(run: Run, name: str) -> dict[str, Any]:
    """The tables of a committed run, with a chart where it has a name."""
    rows = tables.estimate_rows(run)
    if not any(row.study == "epsilon" for row in rows):
        return {}
    chart = inline(charts.error_chart(rows, name)) if name else None
    return {"chart": chart, "tables": error_tables(rows)}
