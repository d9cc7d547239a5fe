"""The page's sections on the topk system, as plain cells for the template.

>>> from sfumato.report.study import Study, run_of
>>> topk_section(Study(run_of("quick", "topk", "base", [])), [])["accuracy"]
[]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sfumato.records import MeanInterval
from sfumato.report import charts, curve_charts, tables
from sfumato.report.claims import Finding
from sfumato.report.engine_table import engine_rows, engine_section
from sfumato.report.page_sections import (
    audit_section,
    inline,
    lira_rows,
    statement_rows,
)
from sfumato.report.picture import pictured, support_picture
from sfumato.report.study import Run, Study, levels_of
from sfumato.report.text import NOTHING, claim_counts, plain, share
from sfumato.report.vocabulary import (
    BINARY,
    METHODS,
    dataset_label,
    epsilon_label,
    epsilon_order,
    method,
    method_order,
    number,
    percent,
    signed,
)


def topk_section(study: Study, findings: Sequence[Finding]) -> dict[str, Any]:
    """What the template ``page.html`` names of this system; parts without data are empty."""
    run = study.current
    rows = tables.method_rows(run)
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    epsilons = sorted({row.epsilon for row in rows if row.epsilon != "inf"}, key=epsilon_order)
    seeds = levels_of(run.records.get("train", ()), "seed")
    return {
        "profile": run.profile,
        "datasets": [(name, dataset_label(name)) for name in datasets],
        "epsilons": [{"text": e, "odds": _odds(float(e))} for e in epsilons],
        "seeds": len(seeds),
        "methods": [method(name) for name in _methods(rows)],
        "single_seed": len(seeds) == 1,
        "glance": _glance(rows, findings, run),
        "accuracy": [_accuracy(study, rows, name) for name in datasets],
        "differences": _differences(run),
        "supports": [_support(study, name) for name in datasets],
        "energy": _energy(run),
        "ranking": _ranking(run),
        "training": [_training(study, name) for name in datasets],
        "attack": _attack(study, rows),
        "lira": lira_rows(run),
        "audit": audit_section(run),
        "statements": statement_rows(study, run.system),
        "engine": engine_section(engine_rows(study.engine)),
    }


def _methods(rows: Sequence[tables.MethodRow]) -> list[str]:
    return sorted({row.method for row in rows} or {m.name for m in METHODS}, key=method_order)


def _odds(epsilon: float) -> str:
    factor = tables.odds(epsilon)
    return (
        f"{factor:.1f}"
        if factor < 10
        else f"{factor:,.0f}"
        if factor < 1e6
        else f"10^{math.log10(factor):.0f}"
    )


# -------------------------------------------------------------------------------------------------- sections
def _glance(rows: Sequence[tables.MethodRow], findings: Sequence[Finding], run: Run) -> list[dict[str, str]]:
    """Three or four figures for the top of the page."""
    cards: list[dict[str, str]] = []
    private = [row for row in rows if row.epsilon != "inf" and row.accuracy]
    if private:
        top = max(
            private, key=lambda row: (epsilon_order(row.epsilon), row.accuracy.mean if row.accuracy else 0)
        )
        label = f"best test accuracy at {epsilon_label(top.epsilon)} on {dataset_label(top.dataset)}, by {method(top.method).label}"
        cards.append(
            {"figure": percent(top.accuracy.mean if top.accuracy else 0), "label": label, "tone": ""}
        )
    gains = [r for r in tables.difference_rows(run, ("tp_topk",), ("tp_rand",))]
    if gains:
        best = max(gains, key=lambda row: epsilon_order(row.epsilon))
        half = best.difference.half_width
        sure = half is not None and abs(best.difference.mean) > half
        label = f"points that a learned support gains over a random one, {dataset_label(best.dataset)}, {epsilon_label(best.epsilon)}"
        label += "" if sure else "; no difference can be told from chance"
        cards.append({"figure": signed(100 * best.difference.mean, 1), "label": label, "tone": ""})
    attacked = [row for row in rows if row.auc and row.epsilon != "inf"]
    if attacked:
        worst = max(row.auc.mean for row in attacked if row.auc)
        cards.append(
            {
                "figure": f"{worst:.3f}",
                "label": "largest attack AUC on a private model; 0.5 is guessing",
                "tone": "",
            }
        )
    audits = tables.audit_rows(run)
    if audits:
        row = max(audits, key=lambda r: r.lower / r.claimed)
        label = f"ε proven by the audit, of {row.claimed:g} claimed" + (
            "; the claim is refuted" if row.crossed else ""
        )
        cards.append({"figure": f"≥ {row.lower:.2f}", "label": label, "tone": "bad" if row.crossed else ""})
    if findings and not cards:
        counts = claim_counts(findings)
        cards.append({"figure": str(counts["not tested"]), "label": "claims wait for a run", "tone": ""})
    return cards


def _accuracy(study: Study, rows: Sequence[tables.MethodRow], dataset: str) -> dict[str, Any]:
    mine = [row for row in rows if row.dataset == dataset]
    entries = [
        {
            "method": method(row.method),
            "epsilon": "∞" if row.epsilon == "inf" else row.epsilon,
            "accuracy": share(row.accuracy),
            "balanced": share(row.balanced),
            "recall": share(row.recall),
            "auc": plain(row.auc),
            "tpr": percent(row.tpr.mean, 2) if row.tpr else NOTHING,
            "priced": "∞"
            if row.epsilon == "inf"
            else number(row.priced, 4)
            if row.priced is not None
            else NOTHING,
            "best": row.accuracy is not None and row.accuracy.mean == _best(mine, row.epsilon),
        }
        for row in mine
    ]
    chart = charts.accuracy_chart(rows, dataset, f"accuracy-{dataset}")
    return {
        "label": dataset_label(dataset),
        "chart": inline(chart),
        "rows": entries,
        "binary": dataset in BINARY,
    }


def _best(rows: Sequence[tables.MethodRow], epsilon: str) -> float:
    return max(row.accuracy.mean for row in rows if row.epsilon == epsilon and row.accuracy)


def difference_cells(row: tables.DifferenceRow) -> dict[str, str]:
    """A paired difference in words."""
    mean, half = 100 * row.difference.mean, row.difference.half_width
    if half is None:
        reading, ends = "one seed: no interval", NOTHING
    else:
        low, high = mean - 100 * half, mean + 100 * half
        ends = f"{signed(low)} to {signed(high)}"
        reading = "better" if low > 0 else "worse" if high < 0 else "no difference seen"
    return {
        "dataset": dataset_label(row.dataset),
        "epsilon": row.epsilon,
        "method": method(row.method).label,
        "reference": method(row.reference).label,
        "mean": signed(mean),
        "interval": ends,
        "seeds": str(row.difference.count),
        "reading": reading,
    }


def _differences(run: Run) -> dict[str, Any]:
    rows = [row for row in tables.difference_rows(run) if row.epsilon != "inf"]
    main = [
        row for row in rows if row.method == "tp_topk" or (row.method, row.reference) == ("tp_rand", "dense")
    ]
    chart = inline(charts.difference_chart(main, "differences")) if main else None
    return {"chart": chart, "rows": [difference_cells(row) for row in rows]}


def _support(study: Study, dataset: str) -> dict[str, Any]:
    run = study.current
    fits = run.select("train", dataset=dataset)
    epsilons = [e for e in levels_of(fits, "epsilon") if e != "inf"]
    found = pictured(study.supports, dataset, ("tp_topk", "tp_rand"))
    pictures = [
        {
            "method": method(s.method),
            "caption": f"{s.first_name}, {' × '.join(map(str, s.first_weight.shape))}; {epsilon_label(s.epsilon)}, seed "
            f"{s.seed}; {percent(float(s.first_active.mean()))} of these weights active",
            "svg": inline(support_picture(s, f"support-{dataset}-{s.method}")),
        }
        for s in found
    ]
    density = None
    if epsilons:
        epsilon = epsilons[-1]
        names = [
            m
            for m in ("tp_topk", "tp_rand", "on_topk")
            if run.select("train", dataset=dataset, epsilon=epsilon, method=m)
        ]
        rows = tables.density_rows(run, dataset, epsilon, names, study)
        active = (
            tables.largest(run.select("train", dataset=dataset, epsilon=epsilon, method=names[0]), "active")
            if names
            else None
        )
        size = tables.largest(run.select("train", dataset=dataset, epsilon=epsilon), "dimension")
        if rows and active and size:
            chart = inline(charts.density_chart(rows, active / size, f"density-{dataset}"))
            density = {
                "chart": chart,
                "epsilon": epsilon_label(epsilon),
                "active": f"{active:,.0f}",
                "size": f"{size:,.0f}",
                "methods": [method(m) for m in names],
            }
    return {"label": dataset_label(dataset), "pictures": pictures, "density": density}


def _energy(run: Run) -> dict[str, Any] | None:
    rows = tables.energy_rows(run)
    if not rows:
        return None
    cells = [
        {
            "dataset": dataset_label(row.dataset),
            "epsilon": row.epsilon,
            "method": method(row.method).label,
            "retained": share(row.retained),
            "chance": percent(row.share_active),
            "dropped": number(row.dropped),
            "active": number(row.noise_active),
            "dense": number(row.noise_dense),
            "dense_budget": number(row.noise_dense_budget),
            "saved": number(row.saved),
            "says": _answer(row.beneficial, row.seeds),
            "says_at_equal_budget": _answer(row.beneficial_at_equal_budget, row.seeds),
        }
        for row in rows
    ]
    return {"chart": inline(charts.energy_chart(rows, "energy")), "rows": cells}


def _answer(beneficial: int, seeds: int) -> str:
    return f"pays, {beneficial} of {seeds} seeds" if beneficial else "does not pay"


def _ranking(run: Run) -> dict[str, Any] | None:
    rows = tables.ranking_rows(run)
    if not rows:
        return None
    cells = [
        {
            "dataset": dataset_label(row.dataset),
            "epsilon": row.epsilon,
            "measured": share(row.measured),
            "predicted": share(row.predicted),
            "overlap": share(row.overlap),
            "chance": percent(row.chance),
        }
        for row in rows
    ]
    return {"chart": inline(charts.ranking_chart(rows, "ranking")), "rows": cells}


def _training(study: Study, dataset: str) -> dict[str, Any]:
    kinds = (
        ("held_out_accuracy", "held-out accuracy", "Share of held-out rows classified rightly"),
        (
            "gradient_norm",
            "norm of the noisy gradient",
            "Length of the gradient that updates the model; most of it is noise, which falls with the number of active coordinates",
        ),
        (
            "retained_energy",
            "gradient energy kept",
            "Share of the gradient's energy that lies on the active coordinates",
        ),
    )
    found = [
        {
            "caption": caption,
            "svg": inline(
                curve_charts.curves_chart(
                    study.curves, dataset, column, label, f"curve-{dataset}-{column.replace('_', '-')}"
                )
            ),
        }
        for column, label, caption in kinds
        if curve_charts.has_curve(
            [row for row in study.curves if row.get("epsilon") != "inf"], dataset, column
        )
    ]
    return {"label": dataset_label(dataset), "charts": found}


def _attack(study: Study, rows: Sequence[tables.MethodRow]) -> dict[str, Any]:
    delta = float(study.settings.get("delta", 1e-5))
    datasets = list(dict.fromkeys(row["dataset"] for row in study.rocs if row["epsilon"] != "inf"))
    found = [
        {
            "label": dataset_label(name),
            "svg": inline(curve_charts.roc_chart(study.rocs, name, delta, f"roc-{name}")),
        }
        for name in datasets
    ]
    cells = [
        {
            "dataset": dataset_label(row.dataset),
            "method": method(row.method),
            "epsilon": "∞" if row.epsilon == "inf" else row.epsilon,
            "auc": _with_interval(row.auc),
            "tpr": share(row.tpr, 2),
        }
        for row in rows
        if row.auc
    ]
    online = [row for row in study.lira_rocs if row.get("attack") == "online"]
    lira = [
        {
            "label": dataset_label(name),
            "svg": inline(curve_charts.roc_chart(online, name, delta, f"lira-{name}")),
        }
        for name in dict.fromkeys(row["dataset"] for row in online)
    ]
    return {"charts": found, "rows": cells, "lira": lira}


def _with_interval(mean: MeanInterval | None) -> str:
    if mean is None or mean.half_width is None:
        return plain(mean)
    return f"{mean.mean:.3f} ± {mean.half_width:.3f}"
