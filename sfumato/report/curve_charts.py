"""Charts of curves: training, and the ROC of an attack.

>>> rows = [{"step": "1", "held_out_accuracy": "0.5"}, {"step": "1", "held_out_accuracy": "0.7"}]
>>> [part.tolist() for part in over_seeds(rows, "held_out_accuracy")]
[[1.0], [0.6], [0.5], [0.7]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.roc import tpr_bound
from sfumato.report.charts import WIDTH, end_labels
from sfumato.report.figure import ALERT, MUTED, label_axis, styled, subplots, to_svg
from sfumato.report.vocabulary import (
    dataset_label,
    epsilon_label,
    epsilon_order,
    method,
    method_order,
    percent,
)

Floats = NDArray[np.float64]


def over_seeds(rows: Sequence[Mapping[str, str]], column: str) -> tuple[Floats, Floats, Floats, Floats]:
    """Steps where all seeds have the column, and mean, minimum and maximum over the seeds there."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.get(column):
            found.setdefault(int(row["step"]), []).append(float(row[column]))
    seeds = max((len(values) for values in found.values()), default=0)
    steps = sorted(step for step, values in found.items() if len(values) == seeds)
    table = np.array([found[step] for step in steps]).reshape(len(steps), seeds)
    if not steps:
        empty = np.zeros(0)
        return empty, empty, empty, empty
    return np.array(steps, float), table.mean(axis=1), table.min(axis=1), table.max(axis=1)


def has_curve(rows: Sequence[Mapping[str, str]], dataset: str, column: str) -> bool:
    """Whether any fit on that data set has a number in that column."""
    return any(row.get("dataset") == dataset and row.get(column) for row in rows)


def curves_chart(rows: Sequence[Mapping[str, str]], dataset: str, column: str, label: str, name: str) -> str:
    """A column of the training curves against steps; one panel per epsilon, one line per method."""
    mine = [row for row in rows if row["dataset"] == dataset and row["epsilon"] != "inf" and row.get(column)]
    epsilons = sorted({row["epsilon"] for row in mine}, key=epsilon_order)
    with styled(name):
        figure, axes = subplots(1, max(len(epsilons), 1), WIDTH, 3.1, sharey=True)
        ends: list[str] = []
        panels: list[tuple[Any, list[tuple[float, str, str]]]] = []
        for ax, epsilon in zip(axes[0], epsilons, strict=False):
            labels: list[tuple[float, str, str]] = []
            for entry in sorted(
                {row["method"] for row in mine if row["epsilon"] == epsilon}, key=method_order
            ):
                look = method(entry)
                own = [row for row in mine if row["epsilon"] == epsilon and row["method"] == entry]
                steps, mean, low, high = over_seeds(own, column)
                if len(steps) == 0:
                    continue
                ax.fill_between(steps, low, high, color=look.colour, alpha=0.13, lw=0)
                ax.plot(steps, mean, color=look.colour, lw=1.3)
                labels.append((float(mean[-1]), look.label, look.colour))
                ends.append(f"{epsilon_label(epsilon)}, {look.label} ends at {mean[-1]:.3g}")
            switch = [
                int(row["step"]) for row in mine if row["epsilon"] == epsilon and row["phase"] == "warmup"
            ]
            if switch:
                ax.axvline(max(switch), color=MUTED, lw=0.8, ls=(0, (2, 2)))
                ax.annotate(
                    "warm-up ends",
                    xy=(max(switch), 0.02),
                    xycoords=ax.get_xaxis_transform(),
                    xytext=(3, 0),
                    textcoords="offset points",
                    fontsize=7.5,
                    color=MUTED,
                )
            ax.set_title(epsilon_label(epsilon))
            ax.set_xlabel("step")
            ax.margins(x=0.01)
            panels.append((ax, labels))
        axes[0][0].set_ylabel(label)
        axes[0][0].set_ylim(0, axes[0][0].get_ylim()[1])
        for ax, labels in panels:
            end_labels(ax, labels, 7.5)
        return to_svg(figure, name, f"{label} during training on {dataset_label(dataset)}", "; ".join(ends))


def _steps_at(rows: Sequence[Mapping[str, str]], grid: Floats) -> Floats:
    """Mean over seeds of the step-wise ROC curve at the grid's false-positive rates."""
    found: list[Floats] = []
    for seed in sorted({row.get("seed", row.get("attack", "")) for row in rows}):
        own = [row for row in rows if row.get("seed", row.get("attack", "")) == seed]
        points = sorted({(float(row["fpr"]), float(row["tpr"])) for row in own})
        fpr, tpr = (np.array([point[i] for point in points]) for i in (0, 1))
        place = np.searchsorted(fpr, grid * (1 + 1e-9), side="right") - 1
        found.append(np.where(place >= 0, tpr[np.maximum(place, 0)], 0.0))
    return np.asarray(np.mean(found, axis=0), dtype=np.float64)


def roc_chart(rows: Sequence[Mapping[str, str]], dataset: str, delta: float, name: str) -> str:
    """Membership attack on log-log axes, one panel per epsilon, with the region that (epsilon, delta) forbids."""
    mine = [row for row in rows if row["dataset"] == dataset]
    epsilons = sorted({row["epsilon"] for row in mine if row["epsilon"] != "inf"}, key=epsilon_order)
    grid = np.geomspace(1e-3, 1.0, 61)
    with styled(name):
        figure, axes = subplots(1, max(len(epsilons), 1), WIDTH, 3.7, sharey=True)
        ends: list[str] = []
        for ax, epsilon in zip(axes[0], epsilons, strict=False):
            bound = tpr_bound(grid, float(epsilon), delta)
            ax.plot(grid, bound, color=ALERT, lw=1.2, ls=(0, (5, 2)))
            ax.fill_between(grid, bound, 1.0, color=ALERT, alpha=0.06, lw=0)
            ax.plot(grid, grid, color=MUTED, lw=0.8, ls=(0, (1, 2)))
            own = [row for row in mine if row["epsilon"] in (epsilon, "inf")]
            for entry in sorted({row["method"] for row in own}, key=method_order):
                look = method(entry)
                tpr = _steps_at([row for row in own if row["method"] == entry], grid)
                seen = tpr > 0
                ax.plot(grid[seen], tpr[seen], color=look.colour, lw=1.3, drawstyle="steps-post")
                at_one = float(tpr[20])
                ends.append(
                    f"{epsilon_label(epsilon)}, {look.label}: true-positive rate {percent(at_one)} at 1 % false positives"
                )
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlim(1e-3, 1)
            ax.set_ylim(3e-4, 1)
            ax.set_title(f"{epsilon_label(epsilon)}: the (ε, δ) limit is dashed", fontsize=8.5)
            ax.set_xlabel("false-positive rate")
            for axis in (ax.xaxis, ax.yaxis):
                label_axis(axis, lambda value: f"{100 * value:g} %")
        axes[0][0].set_ylabel("true-positive rate")
        figure.get_layout_engine().set(wspace=0.06)
        handles = _legend_handles(sorted({row["method"] for row in mine}, key=method_order))
        figure.legend(
            handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8
        )
        return to_svg(
            figure, name, f"Membership attack on {dataset_label(dataset)}, log-log ROC", "; ".join(ends)
        )


def _legend_handles(methods: Sequence[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    handles: list[Any] = [
        Line2D([], [], color=method(entry).colour, lw=2, label=method(entry).label) for entry in methods
    ]
    handles.append(Line2D([], [], color=ALERT, lw=1.2, ls=(0, (5, 2)), label="(ε, δ) limit"))
    handles.append(Line2D([], [], color=MUTED, lw=0.8, ls=(0, (1, 2)), label="guessing"))
    return handles
