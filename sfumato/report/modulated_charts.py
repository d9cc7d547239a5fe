"""The charts of the modulated system's section, each a pure function from rows to an inline SVG text.

>>> from sfumato.records import MeanInterval
>>> row = ErrorRow("co2", "one_shot", "5", MeanInterval(0.5, 0.1, 20), True, 0.0)
>>> error_chart([row], "example").startswith("<svg")
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sfumato.records import MeanInterval
from sfumato.report.charts import WIDTH
from sfumato.report.figure import (
    ALERT,
    GRID,
    INK,
    MUTED,
    PAPER,
    epsilon_axis,
    log_axis,
    styled,
    subplots,
    to_svg,
)
from sfumato.report.modulated_tables import (
    ATTACKS,
    AttackRow,
    ErrorRow,
    LocalAuditRow,
    TwinRow,
    datasets_of,
    dominated_epsilons,
    epsilons_of,
)
from sfumato.report.vocabulary import dataset_label, epsilon_label, epsilon_order, method, number

DRAWN = (
    "one_shot",
    "one_shot_floor",
    "one_shot_lipschitz",
    "iterative",
    "iterative_lipschitz",
    "dp_sgd",
    "ada_ssp",
)
"""Methods in the picture of the errors; the table holds all."""
COLUMNS = 3


def _shade_dominated(axes: Any, epsilons: Sequence[str], dominated: Sequence[str]) -> None:
    """Grey from the left to half-way (in the logarithm) between the last dominated epsilon and the next one."""
    if not dominated:
        return
    inside = [float(epsilon) for epsilon in dominated]
    beyond = [float(epsilon) for epsilon in epsilons if float(epsilon) > max(inside)]
    end = math.sqrt(max(inside) * min(beyond)) if beyond else axes.get_xlim()[1]
    axes.axvspan(axes.get_xlim()[0], end, color=GRID, alpha=0.55, lw=0, zorder=0)
    axes.annotate(
        "noise-dominated",
        xy=(end, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=7.5,
        color=MUTED,
    )


def error_chart(rows: Sequence[ErrorRow], name: str) -> str:
    """Relative test error against epsilon, both axes logarithmic, one panel per data set, 95 % intervals over seeds."""
    datasets = datasets_of(rows)
    columns = min(COLUMNS, max(len(datasets), 1))
    lines = math.ceil(max(len(datasets), 1) / columns)
    with styled(name):
        figure, axes = subplots(lines, columns, WIDTH, 0.75 + 2.75 * lines)
        panels = [panel for line in axes for panel in line]
        words: list[str] = []
        for ax, dataset in zip(panels, datasets, strict=False):
            mine = [row for row in rows if row.dataset == dataset]
            words += _error_panel(ax, mine, dataset)
        for ax in panels[len(datasets) :]:
            ax.set_visible(False)
        for line in axes:
            line[0].set_ylabel("error ÷ error of predicting the mean")
        shown = [entry for entry in DRAWN if any(row.method == entry for row in rows)]
        _legend(figure, shown)
        return to_svg(figure, name, "Relative test error against ε, by data set", "; ".join(words))


def _error_panel(ax: Any, rows: Sequence[ErrorRow], dataset: str) -> list[str]:
    """One data set; returns what it shows in words."""
    epsilons = epsilons_of(rows) or ["1"]
    epsilon_axis(ax, epsilons)
    ax.set_yscale("log")
    drawn = [row for row in rows if row.method in DRAWN and row.epsilon != "inf"]
    free = [row.error.mean for row in rows if row.method == "least_squares"]
    means = [row.error.mean for row in drawn if row.error.mean > 0] + [m for m in free if m > 0] + [1.0]
    low, high = min(means) / 1.5, max(means) * 1.6
    ax.set_ylim(low, high)
    log_axis(ax.yaxis, low, high)
    _shade_dominated(ax, epsilons, dominated_epsilons(rows, dataset))
    ax.axhline(1.0, color=INK, lw=0.9, zorder=1)
    for mean in free:
        ax.axhline(mean, color=method("least_squares").colour, lw=1.0, ls=(0, (4, 3)), zorder=1)
    words: list[str] = []
    names = [entry for entry in DRAWN if any(row.method == entry for row in drawn)]
    for index, entry in enumerate(names):
        look = method(entry)
        shift = 1.025 ** (index - (len(names) - 1) / 2)
        points = sorted((r for r in drawn if r.method == entry), key=lambda r: epsilon_order(r.epsilon))
        xs = [float(row.epsilon) * shift for row in points]
        ax.plot(xs, [row.error.mean for row in points], zorder=3, **_look(entry))
        for x, row in zip(xs, points, strict=True):
            if row.error.half_width:
                ends = [
                    max(row.error.mean - row.error.half_width, low),
                    row.error.mean + row.error.half_width,
                ]
                ax.plot([x, x], ends, color=look.colour, lw=1.2, solid_capstyle="butt", zorder=2)
            words.append(
                f"{dataset_label(dataset)}, {look.label}, {epsilon_label(row.epsilon)}: {number(row.error.mean)}"
            )
    ax.set_title(dataset_label(dataset))
    ax.set_xlabel("ε")
    return words


def _look(name: str) -> dict[str, Any]:
    """Line and marker of a method; open markers where the line is not solid."""
    look = method(name)
    solid = look.line == "-"
    return {
        "color": look.colour,
        "marker": look.marker,
        "ls": look.line,
        "lw": 1.2,
        "ms": 7.0 if look.marker == "*" else 4.6,
        "mfc": look.colour if solid else PAPER,
        "mec": look.colour,
        "mew": 1.0,
    }


def _legend(figure: Any, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles: list[Any] = [Line2D([], [], label=method(entry).label, **_look(entry)) for entry in names]
    free = method("least_squares")
    handles.append(
        Line2D([], [], color=free.colour, lw=1.0, ls=(0, (4, 3)), label="least squares, no privacy")
    )
    handles.append(Line2D([], [], color=INK, lw=0.9, label="predicting the mean"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)


# ----------------------------------------------------------------------------------------------- attackers
_ATTACK_LOOKS = {
    "linear_unbiased": ("one_shot", "o"),
    "maximum_likelihood": ("iterative", "s"),
    "linear_posterior_mean": ("dp_sgd", "^"),
    "exact_posterior_mean": ("ada_ssp", "D"),
}


def attack_chart(rows: Sequence[AttackRow], dataset: str, name: str, whose: str = "one_shot") -> str:
    """Errors of every attacker beside the floors, one panel per epsilon, one group per number of messages."""
    mine = [row for row in rows if (row.dataset, row.method) == (dataset, whose)]
    epsilons = sorted({row.epsilon for row in mine}, key=epsilon_order)
    counts = sorted({row.messages for row in mine})
    attacks = [entry for entry in ATTACKS if any(row.attack == entry for row in mine)]
    with styled(name):
        figure, axes = subplots(1, max(len(epsilons), 1), WIDTH, 3.5, sharey=True)
        words: list[str] = []
        values = [
            v for row in mine for v in (row.low, row.high, row.floor, row.floor_bayes, row.prior) if v > 0
        ]
        low, high = (min(values) / 1.4, max(values) * 1.4) if values else (0.5, 2.0)
        for ax, epsilon in zip(axes[0], epsilons, strict=False):
            ax.set_yscale("log")
            ax.set_ylim(low, high)
            log_axis(ax.yaxis, low, high)
            for place, count in enumerate(counts):
                group = [row for row in mine if (row.epsilon, row.messages) == (epsilon, count)]
                words += _attack_group(ax, group, attacks, place)
            ax.set_xticks(range(len(counts)), [_messages(count) for count in counts])
            ax.set_xlim(-0.6, len(counts) - 0.4)
            ax.set_title(epsilon_label(epsilon))
            ax.grid(axis="x", visible=False)
        axes[0][0].set_ylabel("squared error per client")
        _attack_legend(figure, attacks)
        title = f"Reconstruction of a client’s features on {dataset_label(dataset)}, beside the floors"
        return to_svg(figure, name, title, "; ".join(words))


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _attack_group(ax: Any, rows: Sequence[AttackRow], attacks: Sequence[str], place: int) -> list[str]:
    words: list[str] = []
    for index, entry in enumerate(attacks):
        for row in (row for row in rows if row.attack == entry):
            method_name, marker = _ATTACK_LOOKS[entry]
            colour, x = method(method_name).colour, place + 0.17 * (index - (len(attacks) - 1) / 2)
            ax.plot([x, x], [row.low, row.high], color=colour, lw=1.4, solid_capstyle="butt", zorder=3)
            ax.plot([x], [row.mse], ls="", marker=marker, color=colour, ms=5, zorder=4)
            words.append(
                f"{epsilon_label(row.epsilon)}, {_messages(row.messages)}, {ATTACKS[entry]}: {number(row.mse)}, "
                f"floor {number(row.own_floor)}"
            )
    if rows:
        ends = [place - 0.42, place + 0.42]
        ax.plot(ends, [rows[0].floor] * 2, color=INK, lw=1.3, zorder=2)
        ax.plot(ends, [rows[0].floor_bayes] * 2, color=INK, lw=1.1, ls=(0, (2, 1.5)), zorder=2)
        ax.plot(ends, [rows[0].prior] * 2, color=ALERT, lw=1.0, ls=(0, (5, 2)), zorder=1)
    return words


def _attack_legend(figure: Any, attacks: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles: list[Any] = [
        Line2D(
            [],
            [],
            ls="",
            marker=_ATTACK_LOOKS[entry][1],
            color=method(_ATTACK_LOOKS[entry][0]).colour,
            label=ATTACKS[entry],
        )
        for entry in attacks
    ]
    handles += [
        Line2D([], [], color=INK, lw=1.3, label="floor, unbiased attackers"),
        Line2D([], [], color=INK, lw=1.1, ls=(0, (2, 1.5)), label="floor, knows the spread"),
        Line2D([], [], color=ALERT, lw=1.0, ls=(0, (5, 2)), label="guessing the mean"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)


# ------------------------------------------------------------------------------------------- twins, audits
def _ratio_ends(mean: MeanInterval) -> tuple[float, float]:
    half = mean.half_width or 0.0
    return math.exp(mean.mean - half), math.exp(mean.mean + half)


def twin_chart(rows: Sequence[TwinRow], name: str) -> str:
    """Ratios of the errors of twins with 95 % intervals, a logarithmic axis with 1 marked."""
    with styled(name):
        figure, axes = subplots(1, 1, WIDTH, 0.75 + 0.2 * len(rows))
        ax, words, names = axes[0][0], list[str](), list[str]()
        for place, row in enumerate(rows):
            look = method(row.method)
            ax.plot(_ratio_ends(row.ratio), [place, place], color=look.colour, lw=1.6, solid_capstyle="butt")
            ax.plot(
                [math.exp(row.ratio.mean)],
                [place],
                ls="",
                marker=look.marker,
                color=look.colour,
                mfc=PAPER if row.dominated else look.colour,
                ms=5.5,
            )
            names.append(
                f"{look.label} ÷ {method(row.twin).label}, {dataset_label(row.dataset)}, {epsilon_label(row.epsilon)}"
            )
            words.append(f"{names[-1]}: {number(math.exp(row.ratio.mean))}")
        ax.axvline(1.0, color=INK, lw=0.9, zorder=1)
        ax.set_xscale("log")
        log_axis(ax.xaxis, *ax.get_xlim())
        ax.set_yticks(range(len(rows)), names)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel("ratio of the test errors, same seeds (left of 1: the first has the smaller error)")
        ax.grid(axis="y", visible=False)
        return to_svg(figure, name, "Errors of twins that differ in one thing", "; ".join(words))


def local_audit_chart(rows: Sequence[LocalAuditRow], name: str) -> str:
    """The claimed epsilon and the audit's lower bound, both on a logarithmic axis; red where it crosses."""
    with styled(name):
        figure, axes = subplots(1, 1, WIDTH, 0.8 + 0.23 * len(rows))
        ax, words, names = axes[0][0], list[str](), list[str]()
        positive = [row.lower for row in rows if row.lower > 0] + [row.claimed for row in rows]
        left = min(positive) / 1.6
        for place, row in enumerate(rows):
            tone = ALERT if row.crossed else method(row.method).colour
            ax.plot([left, row.claimed], [place, place], color=GRID, lw=6.5, solid_capstyle="butt")
            ax.plot([row.claimed] * 2, [place - 0.33, place + 0.33], color=INK, lw=1.6)
            if row.ceiling is not None:
                ax.plot([row.ceiling], [place], ls="", marker="|", ms=8, mew=1.2, color=MUTED)
            if row.lower > 0:
                ax.plot([row.lower], [place], ls="", marker=method(row.method).marker, color=tone, ms=5.5)
            names.append(
                f"{method(row.method).label}, {dataset_label(row.dataset)}, {epsilon_label(row.epsilon)}, {row.pair}"
            )
            words.append(f"{names[-1]}: claimed {row.claimed:g}, at least {row.lower:.2f}")
        ax.set_xscale("log")
        top = max([row.claimed for row in rows] + [row.ceiling or 0.0 for row in rows])
        ax.set_xlim(left, max(top, *positive) * 1.2)
        log_axis(ax.xaxis, *ax.get_xlim())
        ax.set_yticks(range(len(rows)), names)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel(
            "ε: black mark = claimed; point = proven by the audit (none: 0); grey mark = the most it could have proven"
        )
        ax.grid(axis="y", visible=False)
        return to_svg(figure, name, "ε claimed beside ε audited, local mechanism", "; ".join(words))
