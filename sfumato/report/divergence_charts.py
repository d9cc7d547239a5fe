"""The charts of the divergence system's errors, each a pure function from rows to an inline SVG text.

>>> from sfumato.records import MeanInterval
>>> half = MeanInterval(0.2, 0.05, 20)
>>> row = EstimateRow("mnist_population", "digits", "all_cells", "epsilon", "1", half, half, half, {}, 0.1, 1.0, 0.9,
...                   0.95, 0.01, 90, 0, 20)
>>> error_chart([row], "example").startswith("<svg")
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sfumato.records import MeanInterval
from sfumato.report.charts import WIDTH
from sfumato.report.divergence_tables import (
    EstimateRow,
    at_place,
    epsilons_of,
    methods_of,
    own_method,
    places_of,
)
from sfumato.report.figure import (
    INK,
    MUTED,
    PAPER,
    epsilon_axis,
    label_axis,
    log_axis,
    plain_number,
    styled,
    subplots,
    to_svg,
)
from sfumato.report.vocabulary import STUDIES, comparison_label, dataset_label, method, number

COLUMNS = 3
VARIED = ("coefficient", "points", "batches", "floor")
"""The studies in small multiples."""
FREE = "non_private"
SMALL = 0.01
"""Below this many nats the axis of a bias is linear."""


def place_label(place: tuple[str, str]) -> str:
    """Data set and comparison, for readers."""
    return f"{dataset_label(place[0])}, {comparison_label(place[1])}"


def look_of(name: str) -> dict[str, Any]:
    """Line and marker of a method; open markers where the line is not solid."""
    look = own_method(name)
    solid = look.line == "-"
    return {
        "color": look.colour,
        "marker": look.marker,
        "ls": look.line,
        "lw": 1.2,
        "ms": 4.6,
        "mfc": look.colour if solid else PAPER,
        "mec": look.colour,
        "mew": 1.0,
    }


def _panels(count: int, columns: int, height: float) -> tuple[Any, list[Any]]:
    """A figure and as many axes as are asked for; those beyond are hidden."""
    across = min(columns, max(count, 1))
    lines = math.ceil(max(count, 1) / across)
    figure, axes = subplots(lines, across, WIDTH, 0.75 + height * lines)
    panels = [panel for line in axes for panel in line]
    for ax in panels[count:]:
        ax.set_visible(False)
    return figure, panels[: max(count, 1)]


def _bar(ax: Any, x: float, mean: MeanInterval, colour: str, floor: float | None = None) -> None:
    """The 95 % interval of a mean, upright; cut at the lower end of a logarithmic axis."""
    if mean.half_width:
        low, high = mean.mean - mean.half_width, mean.mean + mean.half_width
        ends = [low if floor is None else max(low, floor), high]
        ax.plot([x, x], ends, color=colour, lw=1.2, solid_capstyle="butt", zorder=2)


def _legend(figure: Any, names: Sequence[str], more: Sequence[Any] = ()) -> None:
    from matplotlib.lines import Line2D

    handles: list[Any] = [Line2D([], [], label=method(name).label, **look_of(name)) for name in names]
    figure.legend(handles=[*handles, *more], loc="outside lower center", ncols=4, frameon=False, fontsize=8)


def _log_error_axis(ax: Any, means: Sequence[MeanInterval]) -> float:
    """Logarithmic errors; returns the lower end."""
    values = [mean.mean for mean in means if mean.mean > 0] or [1.0]
    low, high = min(values) / 1.6, max(values) * 1.6
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    log_axis(ax.yaxis, low, high)
    return low


# --------------------------------------------------------------------------------------------------- errors
def error_chart(rows: Sequence[EstimateRow], name: str) -> str:
    """Error against epsilon, both axes logarithmic, one panel per data set and comparison, 95 % intervals over seeds.

    Args:
        rows: of every study; those of epsilon are drawn.
        name: prefix of the ids.
    """
    mine = [row for row in rows if row.study == "epsilon"]
    places = places_of(mine)
    with styled(name):
        figure, panels = _panels(len(places), COLUMNS, 2.75)
        words: list[str] = []
        for ax, place in zip(panels, places, strict=False):
            words += _error_panel(ax, at_place(mine, place, "epsilon"))
            ax.set_title(place_label(place))
        for ax in panels[::COLUMNS]:
            ax.set_ylabel("error, nats")
        _legend(figure, methods_of(mine))
        return to_svg(figure, name, "Error of the divergence against ε, by method", "; ".join(words))


def _error_panel(ax: Any, rows: Sequence[EstimateRow]) -> list[str]:
    """One comparison; returns what it shows in words."""
    epsilons = epsilons_of(rows) or ["1"]
    epsilon_axis(ax, epsilons)
    low = _log_error_axis(ax, [row.error for row in rows])
    names, words = [name for name in methods_of(rows) if name != FREE], list[str]()
    for row in rows:
        if row.value == "inf":
            look, half = own_method(row.method), row.error.half_width or 0.0
            ends = max(row.error.mean - half, low), row.error.mean + half
            ax.axhspan(*ends, color=look.colour, alpha=0.18, lw=0, zorder=0)
            ax.axhline(row.error.mean, color=look.colour, lw=1.1, ls=look.line, zorder=1)
            words.append(f"{place_label(row.place)}, {look.label}: {number(row.error.mean)}")
    for index, entry in enumerate(names):
        points = [row for row in rows if row.method == entry and row.value != "inf"]
        shift = 1.025 ** (index - (len(names) - 1) / 2)
        xs = [row.number * shift for row in points]
        ax.plot(xs, [row.error.mean for row in points], zorder=3, **look_of(entry))
        for x, row in zip(xs, points, strict=True):
            _bar(ax, x, row.error, method(entry).colour, low)
            label = f"{place_label(row.place)}, {method(entry).label}, ε = {row.value}"
            words.append(f"{label}: {number(row.error.mean)}")
    ax.set_xlabel("ε")
    return words


# -------------------------------------------------------------------------------------------------- studies
def study_chart(rows: Sequence[EstimateRow], place: tuple[str, str], name: str) -> str:
    """Error against lambda, m, T and gamma at one data set and comparison, a small panel each.

    Args:
        rows: of every study and place.
        place: data set and comparison.
        name: prefix of the ids.
    """
    found = [study for study in VARIED if at_place(rows, place, study)]
    with styled(name):
        figure, panels = _panels(len(found), 2, 2.35)
        words: list[str] = []
        for ax, study in zip(panels, found, strict=False):
            words += _study_panel(ax, at_place(rows, place, study), study)
        for ax in panels[::2]:
            ax.set_ylabel("error, nats")
        shown = [row for row in rows if row.place == place and row.study in found]
        _legend(figure, methods_of(shown))
        title = f"Error against the estimator’s settings, {place_label(place)}"
        return to_svg(figure, name, title, "; ".join(words))


def _study_panel(ax: Any, rows: Sequence[EstimateRow], study: str) -> list[str]:
    from matplotlib.ticker import MaxNLocator, NullLocator

    low = _log_error_axis(ax, [row.error for row in rows])
    values = sorted({row.number for row in rows})
    if study == "coefficient":
        ax.xaxis.set_major_locator(MaxNLocator(6))
    elif min(values) > 0:
        ax.set_xscale("log")
        ax.set_xticks(values, [plain_number(value) for value in values])
        ax.xaxis.set_minor_locator(NullLocator())
    words: list[str] = []
    for entry in methods_of(rows):
        points = [(row.number, row.error) for row in rows if row.method == entry]
        ax.plot([x for x, _mean in points], [mean.mean for _x, mean in points], zorder=3, **look_of(entry))
        for x, mean in points:
            _bar(ax, x, mean, method(entry).colour, low)
            words.append(f"{STUDIES[study]} = {plain_number(x)}, {method(entry).label}: {number(mean.mean)}")
    ax.set_xlabel(STUDIES[study])
    ax.grid(axis="x", visible=False)
    return words


# --------------------------------------------------------------------------------------------- pairs, bias
def pair_chart(rows: Sequence[EstimateRow], name: str) -> str:
    """Error of every pair against its true divergence, both axes logarithmic, one panel per data set and comparison.

    Args:
        rows: of every study; pairs with a positive divergence are drawn.
        name: prefix of the ids.
    """
    mine = [row for row in rows if row.study == "pair" and row.error.mean > 0]
    mine = [row for row in mine if row.divergence is not None and row.divergence > 0]
    places = places_of(mine)
    with styled(name):
        figure, panels = _panels(len(places), COLUMNS, 2.75)
        words: list[str] = []
        for ax, place in zip(panels, places, strict=False):
            words += _pair_panel(ax, at_place(mine, place, "pair"))
            ax.set_title(place_label(place))
        for ax in panels[::COLUMNS]:
            ax.set_ylabel("error, nats")
        _legend(figure, methods_of(mine), _answers_nothing())
        return to_svg(figure, name, "Error against the true divergence, pair by pair", "; ".join(words))


def _answers_nothing() -> list[Any]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], color=INK, lw=0.9, label="error of answering 0")]


def _pair_panel(ax: Any, rows: Sequence[EstimateRow]) -> list[str]:
    truths = [row.divergence for row in rows if row.divergence is not None]
    left, right = min(truths) / 1.3, max(truths) * 1.3
    _log_error_axis(ax, [row.error for row in rows])
    ax.set_xscale("log")
    ax.set_xlim(left, right)
    log_axis(ax.xaxis, left, right)
    ax.plot([left, right], [left, right], color=INK, lw=0.9, zorder=1)
    words: list[str] = []
    for entry in methods_of(rows):
        found = sorted(
            (row.divergence, row.error.mean) for row in rows if row.method == entry and row.divergence
        )
        look = {**look_of(entry), "ls": "", "ms": 3.6, "alpha": 0.75}
        ax.plot([x for x, _y in found], [y for _x, y in found], zorder=3, **look)
        ends = ", ".join(f"{number(y)} at {number(x)}" for x, y in (found[0], found[-1]))
        words.append(f"{place_label(rows[0].place)}, {method(entry).label}: {ends} nats")
    ax.set_xlabel("true divergence, nats")
    return words


def bias_chart(rows: Sequence[EstimateRow], name: str) -> str:
    """Bias of every method at each epsilon with 95 % intervals, zero marked, one panel per data set and comparison.

    Args:
        rows: of every study; those of epsilon are drawn.
        name: prefix of the ids.
    """
    mine = [row for row in rows if row.study == "epsilon" and row.bias]
    places, names = places_of(mine), methods_of(mine)
    with styled(name):
        figure, axes = subplots(
            1, max(len(places), 1), WIDTH, 0.9 + 0.08 * _lines(mine, places) + 0.3 * len(names)
        )
        words: list[str] = []
        for ax, place in zip(axes[0], places, strict=False):
            words += _bias_panel(ax, at_place(mine, place, "epsilon"), names)
            ax.set_title(place_label(place))
        for ax in axes[0][1:]:
            ax.set_yticklabels([])
        title = "Bias of the estimates, by method"
        return to_svg(figure, name, title, "; ".join(words))


def _lines(rows: Sequence[EstimateRow], places: Sequence[tuple[str, str]]) -> int:
    return max((len(at_place(rows, place, "epsilon")) for place in places), default=1)


def _bias_panel(ax: Any, rows: Sequence[EstimateRow], names: Sequence[str]) -> list[str]:
    words: list[str] = []
    for place, entry in enumerate(names):
        mine = [row for row in rows if row.method == entry]
        for index, row in enumerate(mine):
            if row.bias is None:
                continue
            y = place + 0.62 * ((index + 0.5) / len(mine) - 0.5)
            half = row.bias.half_width or 0.0
            look = {**look_of(entry), "ls": "", "ms": 3.8}
            ends = row.bias.mean - half, row.bias.mean + half
            ax.plot(ends, [y, y], color=method(entry).colour, lw=1.2, solid_capstyle="butt", zorder=2)
            ax.plot([row.bias.mean], [y], zorder=3, **look)
            where = "" if row.value == "inf" else f", ε = {row.value}"
            words.append(
                f"{place_label(row.place)}, {method(entry).label}{where}: {number(row.bias.mean)} nats"
            )
    ax.axvline(0.0, color=INK, lw=0.9, zorder=1)
    ax.set_xscale("symlog", linthresh=SMALL)
    _symmetric_ticks(ax, plain_number)
    ax.set_yticks(range(len(names)), [method(entry).label for entry in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("bias, nats")
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="x", labelcolor=MUTED)
    return words


def _symmetric_ticks(ax: Any, text: Callable[[float], str]) -> None:
    """Few plain ticks of an axis that is linear around zero and logarithmic beyond."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = ax.get_xlim()
    decades = [SMALL * 10.0**power for power in range(8)]
    inside = [sign * value for sign in (-1, 1) for value in decades if low <= sign * value <= high]
    every = 2 if len(inside) > 6 else 1
    kept = [value for value in inside if round(math.log10(abs(value) / SMALL)) % every == 0]
    ax.xaxis.set_major_locator(FixedLocator(sorted([0.0, *kept])))
    ax.xaxis.set_minor_locator(NullLocator())
    label_axis(ax.xaxis, lambda value: text(value).replace("-", "−"))
