"""The page's sections on claims and on long runs, as plain cells for the template.

>>> claims_section([])["total"]
0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sfumato.records import MeanInterval
from sfumato.report import charts, tables
from sfumato.report.claims import VERDICTS, Finding, preferred
from sfumato.report.study import ALL_SEEDS, BASE, Run, Study, interval
from sfumato.report.text import NOTHING, SYSTEMS, claim_counts, plain, share
from sfumato.report.vocabulary import (
    dataset_label,
    epsilon_label,
    epsilon_order,
    method,
    method_order,
    number,
    percent,
    profile_order,
    signed,
)


def inline(svg: str) -> Any:
    """SVG that this package made, as markup that the template does not escape."""
    from markupsafe import Markup

    return Markup(svg)


def lira_rows(run: Run) -> list[dict[str, str]]:
    """Cells of the likelihood-ratio attack's table."""
    cells: list[dict[str, str]] = []
    for record in run.records.get("membership", ()):
        values = {k: float(v) for k, v in record.values.items() if isinstance(v, int | float)}
        cells.append(
            {
                "profile": run.profile,
                "dataset": dataset_label(record.levels.get("dataset", "")),
                "method": method(record.levels.get("method", "")).label,
                "epsilon": record.levels.get("epsilon", ""),
                "attack": record.levels.get("attack", NOTHING),
                "auc": f"{values['auc']:.3f}" if "auc" in values else NOTHING,
                "low": _rate(values, "tpr_at_fpr_0_001"),
                "high": _rate(values, "tpr_at_fpr_0_01"),
                "shadows": f"{values.get('shadow_models', values.get('shadows', 0)):.0f}",
            }
        )
    return cells


def _rate(values: dict[str, float], name: str) -> str:
    if name not in values:
        return NOTHING
    if f"{name}_low" not in values:
        return percent(values[name], 2)
    return f"{percent(values[name], 2)} ({percent(values[f'{name}_low'], 2)} to {percent(values[f'{name}_high'], 2)})"


def claims_section(findings: Sequence[Finding]) -> dict[str, Any]:
    """The claims by system, each with its rows; those that a larger profile superseded come last."""
    best = preferred(findings)
    shown = {id(finding) for finding in best}
    systems: list[dict[str, Any]] = []
    for system, title in SYSTEMS.items():
        entries: list[dict[str, Any]] = []
        for claim in dict.fromkeys(finding.claim for finding in findings if finding.claim.system == system):
            own = [finding for finding in findings if finding.claim == claim]
            rows = [_claim_row(finding, id(finding) in shown) for finding in own]
            rows.sort(key=lambda row: bool(row["superseded"]))
            entries.append({"claim": claim, "rows": rows})
        if entries:
            systems.append(
                {
                    "title": title,
                    "claims": entries,
                    "tested": any(f.profile for f in findings if f.claim.system == system),
                }
            )
    return {"systems": systems, "counts": claim_counts(best), "verdicts": VERDICTS, "total": len(best)}


def _claim_row(finding: Finding, shown: bool) -> dict[str, Any]:
    judgement = finding.judgement
    return {
        "id": finding.id,
        "data": finding.data or NOTHING,
        "profile": finding.profile or NOTHING,
        "measured": judgement.measured,
        "verdict": judgement.verdict,
        "tone": {"holds": "good", "does not hold": "bad"}.get(judgement.verdict, "quiet"),
        "command": finding.command,
        "superseded": not shown,
    }


def results_section(study: Study) -> dict[str, Any]:
    """Committed runs: tables of base runs and sweeps, charts of sweeps, and grids that chose settings."""
    others = sorted(
        (run for run in study.results if run.system == study.current.system),
        key=lambda r: (profile_order(r.profile), r.variant),
    )
    groups: list[dict[str, Any]] = []
    based = {run.profile for run in others if run.variant == BASE}
    for run in others:
        if run.profile not in based:
            continue
        rows = [_result_row(run, row) for row in tables.method_rows(run)]
        if rows or run.records.get("membership"):
            groups.append(
                {
                    "title": f"{run.profile} · {run.variant.replace('_', ' ')}",
                    "command": run.command,
                    "commit": run.commit[:12],
                    "rows": rows,
                    "lira": lira_rows(run),
                    "sweep": run.sweep is not None,
                }
            )
    found = [
        {
            "title": f"{dataset_label(sweep.dataset)}, {epsilon_label(sweep.epsilon)}, profile {sweep.profile}",
            "svg": inline(
                charts.sweep_chart(sweep, f"sweep-{sweep.profile}-{sweep.name}-{sweep.dataset}-{place}")
            ),
            "name": {"share": "Warm-up share", "ratio": "Active ratio"}.get(sweep.name, sweep.name),
        }
        for place, sweep in enumerate(tables.sweeps(study))
    ]
    profiles = dict.fromkeys(run.profile for run in others if run.profile not in based)
    tunings = [_tuning(name, [run for run in others if run.profile == name]) for name in profiles]
    return {"groups": groups, "sweeps": found, "tunings": tunings}


def _tuning(profile: str, runs: Sequence[Run]) -> dict[str, Any]:
    """A grid without a base run: validation accuracy of every cell under every variant, the best one marked."""
    found: dict[tuple[str, str, str], dict[str, MeanInterval]] = {}
    for run in runs:
        for row in tables.method_rows(run):
            fits = run.select("train", dataset=row.dataset, method=row.method, epsilon=row.epsilon)
            mean = interval(fits, "validation_accuracy")
            if mean is not None and row.method != "non_private":
                found.setdefault((row.dataset, row.epsilon, row.method), {})[run.variant] = mean
    variants = [run.variant for run in runs]
    rows = [
        {
            "dataset": dataset_label(dataset),
            "epsilon": epsilon,
            "method": method(name).label,
            "cells": [
                {
                    "text": share(means.get(v)),
                    "best": v in means and means[v].mean == max(m.mean for m in means.values()),
                }
                for v in variants
            ],
        }
        for (dataset, epsilon, name), means in found.items()
    ]
    command = next((run.command for run in runs if run.command), "")
    return {
        "profile": profile,
        "command": command,
        "variants": [v.replace("_", " ") for v in variants],
        "rows": rows,
    }


def _result_row(run: Run, row: tables.MethodRow) -> dict[str, str]:
    gains = {
        r.reference: signed(100 * r.difference.mean, 2)
        + ("" if r.difference.half_width is None else f" ± {100 * r.difference.half_width:.2f}")
        for r in tables.difference_rows(run, (row.method,))
        if (r.dataset, r.epsilon) == (row.dataset, row.epsilon)
    }
    return {
        "dataset": dataset_label(row.dataset),
        "method": method(row.method).label,
        "epsilon": "∞" if row.epsilon == "inf" else row.epsilon,
        "accuracy": share(row.accuracy),
        "recall": share(row.recall),
        "over_rand": gains.get("tp_rand", NOTHING),
        "over_dense": gains.get("dense", NOTHING),
        "auc": plain(row.auc),
        "audited": NOTHING if row.audited is None else f"≥ {row.audited:.2f}",
    }


def long_runs(
    study: Study, system: str, cells_of: Callable[[Run, str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Committed runs of a system, base runs of a profile before its variants.

    Args:
        study: whose results are shown.
        system: such as ``modulated``.
        cells_of: from a run and a name for its chart (empty for a variant, which has none) the parts that differ between
            systems; nothing where the run has no rows to show.
    """
    runs = sorted(
        (run for run in study.results if run.system == system),
        key=lambda run: (profile_order(run.profile), run.variant != BASE, run.variant),
    )
    found: list[dict[str, Any]] = []
    for run in runs:
        base = run.variant == BASE
        name = f"{system}-{run.profile}-{run.variant}".replace(".", "-").replace("_", "-")
        cells = cells_of(run, name if base else "")
        if cells:
            title = f"{run.profile} · {run.change.replace('_', ' ')}"
            found.append(
                {"title": title, "command": run.command, "commit": run.commit[:12], "base": base, **cells}
            )
    return found


def statement_rows(study: Study, system: str) -> list[dict[str, str]]:
    """One entry per distinct text; seeds whose statements are word for word the same share one."""
    seeds: dict[tuple[str, str, str, str], list[str]] = {}
    for s in sorted(
        (s for s in study.statements if s.system == system),
        key=lambda s: (s.dataset, epsilon_order(s.epsilon), method_order(s.method)),
    ):
        seeds.setdefault((s.dataset, s.method, s.epsilon, s.text.strip()), []).append(s.seed)
    return [
        {
            "title": f"{dataset_label(dataset)}, {method(name).label}"
            + (f", {epsilon_label(epsilon)}" if epsilon != "inf" else ""),
            "seeds": "all seeds"
            if names == [ALL_SEEDS]
            else ("seed " if len(names) == 1 else "seeds ") + ", ".join(names),
            "text": text,
        }
        for (dataset, name, epsilon, text), names in seeds.items()
    ]


def audit_section(run: Run) -> dict[str, Any] | None:
    """Cells and chart of the audits with canaries; None without any."""
    rows = tables.audit_rows(run)
    if not rows:
        return None
    cells = [
        {
            "dataset": dataset_label(row.dataset),
            "method": method(row.method).label,
            "space": row.space,
            "claimed": number(row.claimed),
            "priced": NOTHING if row.priced is None else number(row.priced, 4),
            "lower": f"{row.lower:.3f}",
            "ceiling": NOTHING if row.ceiling is None else f"{row.ceiling:.2f}",
            "guesses": NOTHING
            if row.guesses is None
            else f"{row.correct} of {row.guesses} right, {row.canaries} canaries",
            "crossed": row.crossed,
        }
        for row in rows
    ]
    chart = inline(charts.audit_chart(rows, "audit"))
    return {"chart": chart, "rows": cells, "crossed": any(row.crossed for row in rows)}
