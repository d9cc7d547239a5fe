"""The page's section on the modulated system, as plain cells for the template.

>>> from sfumato.report.study import Study, run_of
>>> modulated_section(Study(run_of("quick", "topk", "base", [])))["rows"]
[]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sfumato.records import MeanInterval
from sfumato.report import modulated_charts as charts
from sfumato.report import modulated_tables as tables
from sfumato.report.modulated_label_rows import LabelRow, label_rows
from sfumato.report.modulated_text import released_lines
from sfumato.report.page_sections import inline, long_runs, statement_rows
from sfumato.report.study import BASE, Run, Study, levels_of
from sfumato.report.text import NOTHING, with_spread
from sfumato.report.vocabulary import MODULATED_METHODS, dataset_label, method, number, percent

SYSTEM = "modulated"


def modulated_section(study: Study) -> dict[str, Any]:
    """Everything that the template ``modulated.html`` names; parts without data are empty."""
    run = study.current_of(SYSTEM) or Run("", SYSTEM, BASE, {})
    rows = tables.error_rows(run)
    attacks, audits = tables.attack_rows(run), tables.local_audit_rows(run)
    return {
        "profile": run.profile,
        "seeds": len(levels_of(run.records.get("train", ()), "seed")),
        "delta": study.settings.get("delta"),
        "facts": study.settings.get("modulated_facts", []),
        "labels": study.settings.get("modulated_labels", "public"),
        "methods": [m for m in MODULATED_METHODS if any(row.method == m.name for row in rows)],
        "chart": inline(charts.error_chart(rows, "modulated-error")) if rows else None,
        "rows": error_cells(rows),
        "released": released_lines(run),
        "headings": tables.epsilons_of(rows),
        "datasets": [dataset_label(name) for name in tables.datasets_of(rows)],
        "dominated": _dominated(rows),
        "twins": _twins(run),
        "noise": [_noise_cells(row) for row in tables.noise_rows(run)],
        "along": _along(attacks),
        "attacks": _attacks(attacks),
        "label_attacks": label_cells(run),
        "audit": _audit(audits),
        "coverage": [_coverage_cells(row) for row in tables.coverage_rows(run)],
        "tuning": [_tuning_cells(row) for row in tables.tuning_rows(study.tunings)],
        "statements": statement_rows(study, SYSTEM),
        "long": long_runs(study, SYSTEM, _long_run),
    }


# ---------------------------------------------------------------------------------------------------- errors
def error_cells(rows: Sequence[tables.ErrorRow]) -> list[dict[str, Any]]:
    """A line per data set and method, a cell per epsilon; the best local method of each epsilon is marked."""
    epsilons = tables.epsilons_of(rows)
    lines: list[dict[str, Any]] = []
    for dataset in tables.datasets_of(rows):
        mine = [row for row in rows if row.dataset == dataset]
        best = {epsilon: _best(mine, epsilon) for epsilon in epsilons}
        for entry in (m for m in MODULATED_METHODS if any(row.method == m.name for row in mine)):
            found = {row.epsilon: row for row in mine if row.method == entry.name}
            free = found.get("inf")
            cells = [_error_cell(found.get(e, free), e, best[e]) for e in epsilons]
            lines.append({"dataset": dataset_label(dataset), "method": entry, "cells": cells})
    return lines


def _best(rows: Sequence[tables.ErrorRow], epsilon: str) -> float | None:
    """The smallest mean error of a local method that is worth something."""
    apart = ("ada_ssp", "least_squares", "mean")
    means = [row.error.mean for row in rows if row.epsilon == epsilon and row.method not in apart]
    return min((mean for mean in means if mean < 1), default=None)


def _error_cell(row: tables.ErrorRow | None, epsilon: str, best: float | None) -> dict[str, Any]:
    if row is None:
        return {"text": NOTHING, "tone": ""}
    worthless = row.error.mean >= 1 and row.method != "mean"
    tone = "best" if row.epsilon == epsilon and row.error.mean == best else "worthless" if worthless else ""
    return {"text": with_spread(row.error) + ("*" if row.noise_dominated else ""), "tone": tone}


def _dominated(rows: Sequence[tables.ErrorRow]) -> list[str]:
    """Where noise dominates, a phrase per data set."""
    found = {name: tables.dominated_epsilons(rows, name) for name in tables.datasets_of(rows)}
    return [f"{dataset_label(name)} at ε = {', '.join(places)}" for name, places in found.items() if places]


# ------------------------------------------------------------------------------------------------ modulation
def _twins(run: Run) -> dict[str, Any] | None:
    rows = tables.twin_rows(run)
    if not rows:
        return None
    cells = [
        {
            "dataset": dataset_label(row.dataset),
            "epsilon": row.epsilon,
            "pair": f"{method(row.method).label} ÷ {method(row.twin).label}",
            "ratio": number(math.exp(row.ratio.mean)),
            "interval": _interval_text(row.ratio),
            "seeds": row.ratio.count,
            "reading": _reading(row),
        }
        for row in rows
    ]
    return {"chart": inline(charts.twin_chart(rows, "modulated-twins")), "rows": cells}


def _interval_text(mean: MeanInterval) -> str:
    if mean.half_width is None:
        return NOTHING
    low, high = (math.exp(mean.mean + sign * mean.half_width) for sign in (-1, 1))
    return f"{number(low)} to {number(high)}"


def _reading(row: tables.TwinRow) -> str:
    half = row.ratio.half_width
    if half is None:
        return "one seed: no interval"
    seen = (
        "no difference seen"
        if abs(row.ratio.mean) <= half
        else "smaller error"
        if row.ratio.mean < 0
        else "larger error"
    )
    return seen + (", noise-dominated" if row.dominated else "")


def _noise_cells(row: tables.NoiseRow) -> dict[str, str]:
    return {
        "dataset": dataset_label(row.dataset),
        "epsilon": row.epsilon,
        "marginal": number(row.marginal),
        "lipschitz": number(row.lipschitz),
        "factor": number(row.lipschitz / row.marginal),
    }


# --------------------------------------------------------------------------------------------------- attacks
def amount(value: float) -> str:
    """A squared error: four significant digits, whole numbers from 1000 on.

    >>> amount(3563.9), amount(1.73641)
    ('3,564', '1.736')
    """
    return f"{value:,.0f}" if value >= 1000 else number(value, 4)


def _along(rows: Sequence[tables.AttackRow]) -> list[dict[str, str]]:
    """What the modulation adds to the floor of one message: along its directions, and in all."""
    cells: list[dict[str, str]] = []
    plain = {(r.dataset, r.epsilon): r for r in rows if (r.method, r.messages) == ("no_modulation", 1)}
    for row in rows:
        twin = plain.get((row.dataset, row.epsilon))
        if (row.method, row.messages, row.attack) == ("one_shot", 1, "linear_unbiased") and twin:
            cells.append(
                {
                    "dataset": dataset_label(row.dataset),
                    "epsilon": row.epsilon,
                    "along": amount(row.along),
                    "floor_along": amount(row.floor_along),
                    "across": amount(row.across),
                    "floor_across": amount(row.floor_across),
                    "floor": amount(row.floor),
                    "plain": amount(twin.floor),
                    "gain": percent(row.floor / twin.floor - 1, 2),
                }
            )
    return cells


def _attacks(rows: Sequence[tables.AttackRow]) -> dict[str, Any] | None:
    if not rows:
        return None
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    pictures = [
        {
            "label": dataset_label(name),
            "svg": inline(charts.attack_chart(rows, name, f"modulated-attack-{name}")),
        }
        for name in datasets
        if any((row.dataset, row.method) == (name, "one_shot") for row in rows)
    ]
    return {"charts": pictures, "rows": _attack_cells(rows), "learned": _learned(rows)}


def _attack_cells(rows: Sequence[tables.AttackRow] | Sequence[LabelRow]) -> list[dict[str, Any]]:
    """A line per attack, on features or on labels."""
    return [
        {
            "dataset": dataset_label(row.dataset),
            "epsilon": row.epsilon,
            "method": method(row.method).label,
            "messages": row.messages,
            "attack": tables.ATTACKS.get(row.attack, row.attack),
            "mse": amount(row.mse),
            "interval": f"{amount(row.low)} to {amount(row.high)}",
            "floor": amount(row.floor),
            "bayes": amount(row.floor_bayes),
            "prior": amount(row.prior),
            "below": row.high < row.own_floor,
        }
        for row in rows
    ]


def _learned(rows: Sequence[tables.AttackRow]) -> list[str]:
    """At every data set and epsilon what the best attacker on one-shot saves of the error of guessing."""
    found: dict[tuple[str, str], tables.AttackRow] = {}
    for row in (row for row in rows if row.method == "one_shot"):
        old = found.get((row.dataset, row.epsilon))
        if old is None or row.mse < old.mse:
            found[row.dataset, row.epsilon] = row
    return [
        f"{dataset_label(dataset)}, ε = {epsilon}: {percent(1 - row.mse / row.prior)}"
        for (dataset, epsilon), row in found.items()
    ]


def label_cells(run: Run) -> list[dict[str, Any]]:
    """A line per attack on private labels; none where labels are public."""
    return _attack_cells(label_rows(run))


def _audit(rows: Sequence[tables.LocalAuditRow]) -> dict[str, Any] | None:
    if not rows:
        return None
    cells = [
        {
            "dataset": dataset_label(row.dataset),
            "epsilon": row.epsilon,
            "method": method(row.method).label,
            "pair": row.pair,
            "lower": f"{row.lower:.3f}",
            "ceiling": NOTHING if row.ceiling is None else f"{row.ceiling:.2f}",
            "runs": f"{row.runs:,}",
            "confidence": percent(row.confidence, 0),
            "crossed": row.crossed,
        }
        for row in rows
    ]
    chart = inline(charts.local_audit_chart(rows, "modulated-audit"))
    return {"chart": chart, "rows": cells, "crossed": any(row.crossed for row in rows)}


# ---------------------------------------------------------------------------------------- intervals, tuning
def _coverage_cells(row: tables.CoverageRow) -> dict[str, str]:
    covered = NOTHING if row.covered is None else percent(row.covered.mean)
    half = row.covered.half_width if row.covered else None
    return {
        "dataset": dataset_label(row.dataset),
        "epsilon": row.epsilon,
        "covered": covered + ("" if half is None else f" ± {100 * half:.1f}"),
        "had": f"{row.with_interval} of {row.fits}",
        "width": with_spread(row.half_width),
        "dominated": "yes" if row.dominated else "no",
    }


def _tuning_cells(row: tables.TuningRow) -> dict[str, Any]:
    names = {"step_size": "step size", "clip_norm": "clip norm"}
    return {
        "dataset": dataset_label(row.dataset),
        "epsilon": row.epsilon,
        "method": method(row.method).label,
        "step": f"{row.step_size:g}",
        "clip": NOTHING if row.clip_norm is None else f"{row.clip_norm:g}",
        "trials": row.trials,
        "best": number(row.best),
        "edges": " and ".join(names[edge] for edge in row.edges) or NOTHING,
    }


# ------------------------------------------------------------------------------------------------- long runs
def _long_run(run: Run, name: str) -> dict[str, Any]:
    """The table of a committed run, with a chart where it has a name."""
    rows = tables.error_rows(run)
    if not rows:
        return {}
    chart = inline(charts.error_chart(rows, name)) if name else None
    return {
        "chart": chart,
        "rows": error_cells(rows),
        "headings": tables.epsilons_of(rows),
        "label_attacks": label_cells(run),
    }
