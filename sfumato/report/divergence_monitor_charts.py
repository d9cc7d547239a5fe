"""The charts of the divergence system's watched population and of its audit.

>>> row = AuditRow("mnist_population", "trusted_aggregator", "1", 0.9, 4.5, 0.95, 1000)
>>> audit_chart([row], "example").startswith("<svg")
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.report.charts import WIDTH
from sfumato.report.divergence_monitor_tables import AuditRow, CheckRow, MonitorRow
from sfumato.report.figure import ALERT, GRID, INK, MUTED, PAPER, log_axis, styled, subplots, to_svg
from sfumato.report.vocabulary import dataset_label, epsilon_label, method, number

METHOD = "all_cells"
"""A watch counts every cell."""


def timeline_chart(checks: Sequence[CheckRow], monitor: MonitorRow, name: str) -> str:
    """Estimate against truth over the checks with intervals and threshold, and the budget spent below.

    Args:
        checks: of one data set, at least one.
        monitor: of the same.
        name: prefix of the ids.
    """
    with styled(name):
        figure, axes = subplots(2, 1, WIDTH, 5.2, sharex=True, gridspec_kw={"height_ratios": [2.6, 1.0]})
        upper, lower = axes[0][0], axes[1][0]
        _truth(upper, checks, monitor)
        _estimates(upper, checks)
        _budget(lower, checks, monitor)
        for ax in (upper, lower):
            ax.axvline(monitor.drift_at - 0.5, color=MUTED, lw=1.0, ls=(0, (1, 2)), zorder=0)
            ax.grid(axis="x", visible=False)
        lower.set_xlim(-0.6, max(row.check for row in checks) + 0.6)
        lower.locator_params(axis="x", integer=True)
        lower.set_xlabel("check")
        _timeline_legend(figure)
        title = f"A watched population, check by check, {dataset_label(monitor.dataset)}"
        return to_svg(figure, name, title, _timeline_words(checks, monitor))


def _truth(ax: Any, checks: Sequence[CheckRow], monitor: MonitorRow) -> None:
    finite = [(row.check, row.divergence) for row in checks if row.divergence is not None]
    ax.plot([x for x, _y in finite], [y for _x, y in finite], color=MUTED, lw=1.4, zorder=2)
    ax.plot(
        [row.check for row in checks],
        [row.target for row in checks],
        color=INK,
        lw=1.0,
        ls=(0, (4, 2)),
        zorder=2,
    )
    ax.axhline(monitor.threshold, color=ALERT, lw=1.1, ls=(0, (6, 3)), zorder=1)
    _above(ax, monitor.drift_at - 0.5, "the population begins to drift", MUTED)


def _above(ax: Any, place: float, text: str, colour: str) -> None:
    """A word above the picture, at a check."""
    ax.annotate(
        text,
        xy=(place, 1.0),
        xycoords=ax.get_xaxis_transform(),
        xytext=(2, 2),
        textcoords="offset points",
        fontsize=7.5,
        color=colour,
    )


def _estimates(ax: Any, checks: Sequence[CheckRow]) -> None:
    look = method(METHOD)
    first = next((row.check for row in checks if row.alarm), None)
    for row in checks:
        tone = ALERT if row.alarm else look.colour
        ax.plot([row.check] * 2, [row.low, row.high], color=tone, lw=1.5, solid_capstyle="butt", zorder=3)
        face = tone if row.alarm or row.cleared else PAPER
        ax.plot([row.check], [row.raw], ls="", marker=look.marker, ms=5, color=tone, mfc=face, zorder=4)
        if row.check == first:
            top = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "fontsize": 7.5}
            ax.annotate("alarm", xy=(row.check, row.high), color=ALERT, **top)
    ax.set_ylabel("divergence, nats")


def _budget(ax: Any, checks: Sequence[CheckRow], monitor: MonitorRow) -> None:
    spent = [(row.check, row.spent) for row in checks if row.spent is not None]
    ax.step([x for x, _y in spent], [y for _x, y in spent], where="post", color=method(METHOD).colour, lw=1.5)
    ax.axhline(monitor.yearly_epsilon, color=INK, lw=1.0, zorder=1)
    ax.set_ylim(0, monitor.yearly_epsilon * 1.15)
    ax.set_ylabel("ε spent")
    ax.annotate(
        "the year’s budget",
        xy=(1.0, monitor.yearly_epsilon),
        xycoords=ax.get_yaxis_transform(),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        fontsize=7.5,
        color=MUTED,
    )


def _timeline_legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    look = method(METHOD)
    dot: dict[str, Any] = {"ls": "", "marker": look.marker, "color": look.colour, "ms": 5}
    handles: list[Any] = [
        Line2D([], [], color=MUTED, lw=1.4, label="true divergence"),
        Line2D([], [], color=INK, lw=1.0, ls=(0, (4, 2)), label="with the floor (what is estimated)"),
        Line2D([], [], color=ALERT, lw=1.1, ls=(0, (6, 3)), label="threshold"),
        Line2D([], [], label="estimate, decided", **dot),
        Line2D([], [], label="estimate, undecided", mfc=PAPER, **dot),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)


def _timeline_words(checks: Sequence[CheckRow], monitor: MonitorRow) -> str:
    parts = [
        f"check {row.check}: estimate {number(row.raw)}, interval {number(row.low)} to {number(row.high)}, "
        f"aims at {number(row.target)}, {row.decision}"
        for row in checks
    ]
    return f"threshold {number(monitor.threshold)}; drift from check {monitor.drift_at}; " + "; ".join(parts)


def audit_chart(rows: Sequence[AuditRow], name: str) -> str:
    """The claimed epsilon and the audit's lower bound, on a logarithmic axis; red where it crosses.

    Args:
        rows: at least one.
        name: prefix of the ids.
    """
    with styled(name):
        figure, axes = subplots(1, 1, WIDTH, 0.85 + 0.27 * len(rows))
        ax, words, names = axes[0][0], list[str](), list[str]()
        positive = [row.lower for row in rows if row.lower > 0] + [row.claimed for row in rows]
        left = min(positive) / 1.6
        for place, row in enumerate(rows):
            tone, look = ALERT if row.crossed else method(row.method).colour, method(row.method)
            ax.plot([left, row.claimed], [place, place], color=GRID, lw=6.5, solid_capstyle="butt")
            ax.plot([row.claimed] * 2, [place - 0.33, place + 0.33], color=INK, lw=1.6)
            if row.ceiling is not None:
                ax.plot([row.ceiling], [place], ls="", marker="|", ms=8, mew=1.2, color=MUTED)
            if row.lower > 0:
                ax.plot([row.lower], [place], ls="", marker=look.marker, color=tone, ms=5.5)
            names.append(f"{look.label}, {dataset_label(row.dataset)}, {epsilon_label(row.epsilon)}")
            words.append(f"{names[-1]}: claimed {row.claimed:g}, at least {row.lower:.2f}")
        ax.set_xscale("log")
        ax.set_xlim(left, max([*positive, *(row.ceiling or 0.0 for row in rows)]) * 1.2)
        log_axis(ax.xaxis, *ax.get_xlim())
        ax.set_yticks(range(len(rows)), names)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel(
            "ε: black mark = claimed; point = proven by the audit (none: 0); grey mark = the most it could have proven"
        )
        ax.grid(axis="y", visible=False)
        return to_svg(figure, name, "ε claimed beside ε audited, divergence", "; ".join(words))
