"""The page's section on the radio map system, as plain cells for the template.

>>> from sfumato.report.study import Study, run_of
>>> radiomap_section(Study(run_of("quick", "topk", "base", [])))["shown"]
False
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sfumato.records import MeanInterval
from sfumato.report import radiomap_charts as charts
from sfumato.report import radiomap_pictures as drawn
from sfumato.report import radiomap_tables as tables
from sfumato.report.page_sections import inline, long_runs
from sfumato.report.radiomap_text import change, seeds_of, spread
from sfumato.report.radiomap_variant_page import variant_parts
from sfumato.report.study import BASE, Run, Study, number_of
from sfumato.report.text import NOTHING
from sfumato.report.vocabulary import (
    ATTACKERS,
    MINUS,
    RADIOMAP_METHODS,
    VIEWS,
    dataset_label,
    method,
    number,
    percent,
)

SYSTEM = "radiomap"
KNOWN_MAP = "known_map"


def radiomap_section(study: Study) -> dict[str, Any]:
    """Everything that the template ``radiomap.html`` names; parts without data are empty.

    A study without a run of this system, whose grid has no data set, has no section.
    """
    found = study.current_of(SYSTEM)
    run = found or Run("", SYSTEM, BASE, {})
    rows = tables.defence_rows(run)
    statements, long = _statements(study), long_runs(study, SYSTEM, _long_run)
    curves = [row for row in study.round_curves if row.get("system") == SYSTEM]
    return {
        "tested": bool(rows),
        "shown": found is not None or bool(long) or bool(statements),
        "profile": run.profile,
        "seeds": seeds_of(rows),
        "facts": study.settings.get("radiomap_facts", []),
        "methods": [entry for entry in RADIOMAP_METHODS if any(row.method == entry.name for row in rows)],
        "chart": _tradeoff(run, rows, "radiomap-tradeoff"),
        "tables": comparison_tables(run, rows),
        "curves": _curves(curves),
        "rounds": _rounds(run),
        "own_weights": bool(study.settings.get("radiomap_own_weights")),
        "attackers": _attackers(run),
        "uploads": _uploads(run),
        "known_map": _known_map(run),
        "account": _account(run),
        "crossed": any(row.crossed for row in tables.account_rows(run)),
        "warmup": _warmup(run),
        "pictures": [_pictures(found) for found in study.pictures],
        "statements": statements,
        "long": long,
        "variants": variant_parts(study, SYSTEM),
    }


def _text(value: float | None, digits: int = 3) -> str:
    """A number for a table; large ones in full, with separators."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 100 else number(value, digits)


def _mean(value: MeanInterval | None) -> str:
    return NOTHING if value is None else f"{value.mean:.1f}"


def _db(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}".replace("-", MINUS)


def _tradeoff(run: Run, rows: Sequence[tables.DefenceRow], name: str) -> Any:
    """The chart of privacy against utility; None without a point."""
    pointed = any(row.validation and row.best for row in rows)
    return inline(charts.tradeoff_chart(run, name)) if pointed else None


# ------------------------------------------------------------------------------------------- the comparison
def comparison_tables(run: Run, rows: Sequence[tables.DefenceRow]) -> list[dict[str, Any]]:
    """Per data set its references, and a table per noise multiplier with a line per defence; the best noisy one is marked."""
    found: list[dict[str, Any]] = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        mine = [row for row in rows if row.dataset == dataset]
        references = tables.references_of(run, dataset)
        parts = [
            {"multiplier": noise, "rows": _comparison([row for row in mine if row.multiplier == noise])}
            for noise in dict.fromkeys(row.multiplier for row in mine)
        ]
        found.append(
            {
                "label": dataset_label(dataset),
                "round": next((row.round for row in mine if row.round), ""),
                "mean_map": _db(references.mean_map),
                "distance": _db(references.distance),
                "warm_start": _db(references.warm_start),
                "attacked": _attacked(run, dataset),
                "parts": parts,
            }
        )
    return found


def _comparison(rows: Sequence[tables.DefenceRow]) -> list[dict[str, Any]]:
    noisy = [row for row in rows if row.noisy]
    useful = min((row.validation.mean for row in noisy if row.validation), default=None)
    private = max((row.best.mean for row in noisy if row.best), default=None)
    return [
        {
            "method": method(row.method),
            "validation": spread(row.validation, 2),
            "useful": row.noisy and row.validation is not None and row.validation.mean == useful,
            "utility_change": change(row.utility_change, 2),
            "best": spread(row.best, 1),
            "private": row.noisy and row.best is not None and row.best.mean == private,
            "privacy_change": change(row.privacy_change, 1),
            "least": spread(row.least, 1),
            "median": _mean(row.median),
            "slices": spread(row.slices, 1),
            "constant": _mean(row.constant),
            "clipped": NOTHING if row.clipped is None else percent(row.clipped.mean, 0),
            "energy": NOTHING if row.energy is None else f"{row.energy.mean:.3f}",
            "dropped": f"{row.dropped:,}",
        }
        for row in rows
    ]


def _attacked(run: Run, dataset: str) -> dict[str, str] | None:
    """How many updates of a seed were attacked, and how well one seed's figure is known; None where it was not recorded."""
    records = run.select("attack", dataset=dataset, attacker="best", view="all", uploads=tables.SINGLE)
    counts = [value for record in records if (value := number_of(record, "count")) is not None]
    halves = [value for record in records if (value := number_of(record, "half_width")) is not None]
    if not counts or not halves:
        return None
    return {"count": f"{max(counts):,.0f}", "half": f"{sum(halves) / len(halves):.1f}"}


# ------------------------------------------------------------------------------------------------- rounds
def _curves(rows: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Charts of the training per data set: validation error, and the updates' length before clipping."""
    columns = (("validation_db", "validation error, dB", "error"), ("norm", "length of an update", "norm"))
    found: list[dict[str, Any]] = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        made = {
            key: inline(charts.curve_chart(rows, dataset, column, label, _id(f"radiomap-{key}", dataset)))
            for column, label, key in columns
            if charts.has_curve(rows, dataset, column)
        }
        if made:
            found.append({"label": dataset_label(dataset), "error": None, "norm": None, **made})
    return found


def _id(prefix: str, dataset: str) -> str:
    return f"{prefix}-{dataset}".replace("_", "-")


def _rounds(run: Run) -> list[dict[str, Any]]:
    """The error over the attacked rounds, per data set with more than one."""
    return [
        {
            "label": dataset_label(dataset),
            "chart": inline(charts.round_chart(run, dataset, _id("radiomap-rounds", dataset))),
        }
        for dataset in tables.datasets_of(run)
        if any(
            len(tables.round_errors(run, cell, tables.Reading())) > 1
            for cell in tables.cells_of(run, dataset)
        )
    ]


# ----------------------------------------------------------------------------------------------- attackers
def _attackers(run: Run) -> list[dict[str, Any]]:
    """A table per data set and noise multiplier: a line per attacker and view, a column per defence."""
    found: list[dict[str, Any]] = []
    for dataset in tables.datasets_of(run):
        readings = [one for one in tables.readings_of(run, dataset) if one.attacker != KNOWN_MAP]
        for noise in tables.multipliers_of(run, dataset) if readings else ():
            names = tables.methods_of(run, dataset, noise)
            cells = [tables.Cell(dataset, name, noise) for name in names]
            rows = [
                {
                    "attacker": ATTACKERS.get(one.attacker, one.attacker),
                    "view": VIEWS.get(one.view, one.view),
                    "cells": [_mean(tables.mean(tables.errors(run, cell, one))) for cell in cells],
                }
                for one in readings
            ]
            headings = [method(name).label for name in names]
            found.append(
                {"label": dataset_label(dataset), "multiplier": noise, "headings": headings, "rows": rows}
            )
    return found


def _upload_label(text: str) -> str:
    """What the attacker reads, for a heading.

    >>> _upload_label("1"), _upload_label("4"), _upload_label("sum6")
    ('one update', 'mean of 4', 'sum of 6 clients')
    """
    if text.isdigit():
        return "one update" if text == tables.SINGLE else f"mean of {text}"
    return f"sum of {text.removeprefix('sum')} clients"


def _uploads(run: Run) -> list[dict[str, Any]]:
    """A table per data set with averages or sums: a line per defence and multiplier, a column per way of reading."""
    found: list[dict[str, Any]] = []
    for dataset in tables.datasets_of(run):
        ways = tables.uploads_of(run, dataset)
        lines: list[dict[str, Any]] = []
        for cell in tables.cells_of(run, dataset) if len(ways) > 1 else ():
            means = [
                tables.mean(tables.errors(run, cell, replace(tables.Reading(), uploads=way))) for way in ways
            ]
            if sum(value is not None for value in means) > 1:
                lines.append(
                    {
                        "method": method(cell.method),
                        "multiplier": NOTHING if cell.method in tables.FREE else cell.multiplier,
                        "cells": [spread(value, 1) for value in means],
                    }
                )
        if lines:
            headings = [_upload_label(way) for way in ways]
            found.append({"label": dataset_label(dataset), "headings": headings, "rows": lines})
    return found


def _known_map(run: Run) -> list[dict[str, Any]]:
    """A line per defence that the attacker with the building map was tried on, beside the regressor's figures."""
    lines: list[dict[str, Any]] = []
    for dataset in tables.datasets_of(run):
        for cell in tables.cells_of(run, dataset):
            records = tables.read(run, cell, tables.Reading(KNOWN_MAP))
            counts = [value for record in records if (value := number_of(record, "count")) is not None]
            if records:
                lines.append(
                    {
                        "dataset": dataset_label(dataset),
                        "method": method(cell.method),
                        "multiplier": NOTHING if cell.method in tables.FREE else cell.multiplier,
                        "count": f"{max(counts, default=0.0):,.0f}",
                        **_pair(run, cell, tables.Reading(KNOWN_MAP), "known"),
                        **_pair(run, cell, tables.Reading(), "regressor"),
                    }
                )
    return lines


def _pair(run: Run, cell: tables.Cell, reading: tables.Reading, key: str) -> dict[str, str]:
    return {
        f"{key}_{name}": spread(tables.mean(tables.errors(run, cell, reading, name=name)), 1)
        for name in ("rmse", "median")
    }


# ------------------------------------------------------------------------------------- guarantees and warm-up
def _account(run: Run) -> list[dict[str, Any]]:
    """A line per accounted defence and multiplier; the reason where it has no epsilon."""
    return [
        {
            "dataset": dataset_label(row.dataset),
            "method": method(row.method),
            "multiplier": NOTHING if row.method in tables.FREE else row.multiplier,
            "upload": _text(row.epsilon_upload),
            "client": _text(row.epsilon_client),
            "delta": _text(row.delta),
            "uploads": _text(row.uploads),
            "sigma": _text(row.sigma_least),
            "audit": NOTHING if row.audit_lower is None else f"≥ {number(row.audit_lower)}",
            "multiplier_10": _text(row.multiplier_10),
            "db_10": _db(row.db_10),
            "reason": row.reason,
            "crossed": row.crossed,
        }
        for row in tables.account_rows(run)
    ]


def _warmup(run: Run) -> list[dict[str, str]]:
    """Public facts that the warm-up left, a line per data set."""
    return [
        {
            "dataset": dataset_label(dataset),
            "dimension": _text(found.dimension),
            "sensitive": _text(found.sensitive),
            "clip_norm": _text(found.clip_norm),
            "loss_start": _text(found.loss_start),
            "loss_end": _text(found.loss_end),
            "share": NOTHING if found.largest_share is None else percent(found.largest_share),
        }
        for dataset in dict.fromkeys(r.levels["dataset"] for r in run.records.get("warmup", ()))
        for found in (tables.references_of(run, dataset),)
    ]


def _statements(study: Study) -> list[dict[str, str]]:
    """Title and text of every statement; one is for all seeds."""
    mine = [one for one in study.statements if one.system == SYSTEM]
    mine.sort(key=lambda one: (one.dataset, tables.order(one.epsilon), tables.method_order(one.method)))
    return [
        {
            "title": f"{dataset_label(one.dataset)}, {method(one.method).label}"
            + ("" if one.method in tables.FREE else f", ν = {one.epsilon}"),
            "text": one.text.strip(),
        }
        for one in mine
    ]


# ---------------------------------------------------------------------------------------------- pictures
def _pictures(found: drawn.RadiomapPictures) -> dict[str, Any]:
    """Buildings, truth, scale, and a prediction per defence with its error and the attacker's."""
    prefix = _id("radiomap-picture", found.dataset)
    predictions = [
        {
            "method": method(found.name(place)[0]),
            "noise": found.name(place)[1],
            "svg": inline(drawn.prediction_picture(found, place, f"{prefix}-{place}")),
            "error": f"{found.error_db(place):.1f}",
            "distance": f"{found.distance(place):,.0f}",
        }
        for place in range(len(found.names))
    ]
    return {
        "label": dataset_label(found.dataset),
        "cell": f"{found.cell:g}",
        "edge": f"{found.cell * found.size:,.0f}",
        "top": f"{found.heights_top:.0f}",
        "buildings": inline(drawn.building_picture(found, f"{prefix}-buildings")),
        "truth": inline(drawn.truth_picture(found, f"{prefix}-truth")),
        "legend": inline(drawn.legend_picture(found, f"{prefix}-legend")),
        "predictions": predictions,
    }


def _long_run(run: Run, name: str) -> dict[str, Any]:
    """The tables of a committed run, with the chart where it has a name."""
    rows = tables.defence_rows(run)
    if not rows:
        return {}
    return {
        "seeds": seeds_of(rows),
        "chart": _tradeoff(run, rows, name) if name else None,
        "tables": comparison_tables(run, rows),
        "attackers": _attackers(run) if name else [],
        "uploads": _uploads(run),
        "known_map": _known_map(run),
        "account": _account(run),
    }
