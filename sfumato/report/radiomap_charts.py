"""The radio map system's charts, each a pure function from records' rows to an inline SVG text.

>>> from sfumato.report.study import Run
>>> tradeoff_chart(Run("quick", "radiomap", "base", {}), "example").startswith("<svg")
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sfumato.records import MeanInterval
from sfumato.report.charts import WIDTH
from sfumato.report.curve_charts import over_seeds
from sfumato.report.figure import INK, MUTED, PAPER, styled, subplots, to_svg
from sfumato.report.radiomap_tables import (
    FREE,
    NO_NOISE,
    REFERENCE,
    Cell,
    DefenceRow,
    Reading,
    References,
    datasets_of,
    defence_rows,
    errors,
    mean,
    methods_of,
    multipliers_of,
    order,
    references_of,
    round_errors,
)
from sfumato.report.study import Run
from sfumato.report.vocabulary import MINUS, dataset_label, method, method_order, number

COLUMNS = 2
DB = "validation error, dB (left is better)"
METRES = "error of the located transmitter, m"
CONSTANT = "constant guess"
STARTS: tuple[tuple[str, str, Any], ...] = (
    ("mean_map", "mean map", (0, (1, 2))),
    ("distance", "distance only", (0, (4, 2))),
    ("warm_start", "public warm start", (0, (6, 2, 1, 2))),
)
"""What needs no client: attribute of the references, label, line style."""


def look_of(name: str) -> dict[str, Any]:
    """Line and marker of a defence; open markers where the line is not solid."""
    look = method(name)
    return {
        "color": look.colour,
        "marker": look.marker,
        "ls": look.line,
        "lw": 1.2,
        "ms": 4.6,
        "mfc": look.colour if look.line == "-" else PAPER,
        "mec": look.colour,
        "mew": 1.0,
    }


def _panels(count: int, height: float) -> tuple[Any, list[Any]]:
    """A figure and as many axes as are asked for; those beyond are hidden."""
    across = min(COLUMNS, max(count, 1))
    lines = math.ceil(max(count, 1) / across)
    figure, axes = subplots(lines, across, WIDTH, 0.85 + height * lines)
    panels = [panel for line in axes for panel in line]
    for ax in panels[count:]:
        ax.set_visible(False)
    return figure, panels[: max(count, 1)]


def _legend(figure: Any, names: Iterable[str], lines: Sequence[tuple[str, Any]] = ()) -> None:
    """Defences by their look, and further lines by label and style, below the panels."""
    from matplotlib.lines import Line2D

    handles: list[Any] = [Line2D([], [], label=method(name).label, **look_of(name)) for name in names]
    handles += [Line2D([], [], color=INK, lw=0.9, ls=style, label=label) for label, style in lines]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)


def _half(value: MeanInterval) -> float:
    return value.half_width or 0.0


def _db(value: float) -> str:
    return f"{value:.2f} dB".replace("-", MINUS)


# ------------------------------------------------------------------------------------- privacy and utility
def tradeoff_chart(run: Run, name: str) -> str:
    """Error of location (up) against validation error (left is better), a line per defence over the noise multipliers.

    Args:
        run: whose records; a panel per data set.
        name: prefix of the ids.
    """
    rows, datasets = defence_rows(run), datasets_of(run)
    with styled(name):
        figure, panels = _panels(len(datasets), 4.1)
        words: list[str] = []
        for ax, dataset in zip(panels, datasets, strict=False):
            mine = [row for row in rows if row.dataset == dataset]
            words += _tradeoff_panel(ax, mine, references_of(run, dataset))
            ax.set_title(dataset_label(dataset))
            ax.set_xlabel(DB)
            ax.set_ylabel(METRES)
        starts = [(label, style) for _key, label, style in STARTS]
        _legend(figure, _names(rows), [*starts, (CONSTANT, "-")])
        return to_svg(figure, name, "Privacy against utility, by defence", "; ".join(words))


def _names(rows: Iterable[DefenceRow]) -> list[str]:
    return sorted({row.method for row in rows}, key=method_order)


def _tradeoff_panel(ax: Any, rows: Sequence[DefenceRow], references: References) -> list[str]:
    """One data set; returns what it shows in words."""
    words: list[str] = []
    for entry in _names(rows):
        mine = [row for row in rows if row.method == entry]
        drawn = [(row, row.validation, row.best) for row in (mine[:1] if entry in FREE else mine)]
        points = [(row, db, metres) for row, db, metres in drawn if db is not None and metres is not None]
        look = {**look_of(entry), "ms": 0}
        ax.plot([db.mean for _r, db, _m in points], [metres.mean for _r, _d, metres in points], **look)
        for place, (row, db, metres) in enumerate(points):
            _crossed_bars(ax, db, metres, method(entry).colour)
            size = {"ms": 4.2 + 1.3 * place, "ls": "", "zorder": 3}
            ax.plot([db.mean], [metres.mean], **{**look_of(entry), **size})
            noise = "" if entry in FREE else f", ν = {row.multiplier}"
            if entry == REFERENCE:
                _tag(ax, db.mean, metres.mean, f"ν = {row.multiplier}")
            words.append(f"{method(entry).label}{noise}: {_db(db.mean)}, {number(metres.mean)} m")
    for key, label, style in STARTS:
        value: float | None = getattr(references, key)
        if value is not None:
            ax.axvline(value, color=INK, lw=0.9, ls=style, zorder=1)
            words.append(f"{label}: {_db(value)}")
    words += _constant_line(ax, [row.constant for row in rows if row.constant])
    ax.margins(x=0.08, y=0.1)
    return words


def _crossed_bars(ax: Any, x: MeanInterval, y: MeanInterval, colour: str) -> None:
    """95 % intervals in both directions."""
    style = {"color": colour, "lw": 1.0, "alpha": 0.7, "solid_capstyle": "butt", "zorder": 2}
    if x.half_width:
        ax.plot([x.mean - _half(x), x.mean + _half(x)], [y.mean] * 2, **style)
    if y.half_width:
        ax.plot([x.mean] * 2, [y.mean - _half(y), y.mean + _half(y)], **style)


def _tag(ax: Any, x: float, y: float, text: str) -> None:
    place = {"xytext": (5, -9), "textcoords": "offset points"}
    ax.annotate(text, xy=(x, y), fontsize=7.5, color=MUTED, **place)


def _constant_line(ax: Any, values: Sequence[MeanInterval]) -> list[str]:
    """The error of guessing without looking, averaged over the defences."""
    if not values:
        return []
    level = math.fsum(value.mean for value in values) / len(values)
    ax.axhline(level, color=INK, lw=0.9, zorder=1)
    return [f"{CONSTANT}: {number(level)} m"]


# ------------------------------------------------------------------------------------------------- rounds
def has_curve(rows: Iterable[Mapping[str, str]], dataset: str, column: str) -> bool:
    """Whether any defence on that data set has a number in that column."""
    return any(row["dataset"] == dataset and row.get(column) for row in rows)


def curve_chart(rows: Sequence[Mapping[str, str]], dataset: str, column: str, label: str, name: str) -> str:
    """A column of the training curves per round, mean and range over seeds; a panel per noise multiplier.

    Args:
        rows: of the curves, with dataset and method added.
        dataset: which of them.
        column: such as ``validation_db``.
        label: of the vertical axis.
        name: prefix of the ids.
    """
    mine = [row for row in rows if row["dataset"] == dataset and row.get(column)]
    noises = sorted({row["multiplier"] for row in mine} - {NO_NOISE}, key=order) or [NO_NOISE]
    shown = sorted({row["method"] for row in mine}, key=method_order)
    with styled(name):
        figure, panels = _panels(len(noises), 2.7)
        words: list[str] = []
        for ax, noise in zip(panels, noises, strict=True):
            here = [row for row in mine if row["multiplier"] in (noise, NO_NOISE)]
            words += _curve_panel(ax, here, column, noise)
        for ax in panels[::COLUMNS]:
            ax.set_ylabel(label)
        _legend(figure, shown)
        title = f"{dataset_label(dataset)}: {label} per round, by defence"
        return to_svg(figure, name, title, "; ".join(words))


def _curve_panel(ax: Any, rows: Sequence[Mapping[str, str]], column: str, noise: str) -> list[str]:
    words: list[str] = []
    for entry in sorted({row["method"] for row in rows}, key=method_order):
        steps, middle, low, high = over_seeds([row for row in rows if row["method"] == entry], column)
        if len(steps) == 0:
            continue
        look = look_of(entry)
        ax.fill_between(steps, low, high, color=look["color"], alpha=0.1, lw=0)
        every = max(len(steps) // 5, 1)
        ax.plot(steps, middle, markevery=(every - 1, every), **{**look, "ms": 3.6})
        words.append(f"ν = {noise}, {method(entry).label} ends at {middle[-1]:.3g}".replace("-", MINUS))
    ax.set_title(f"ν = {noise}")
    ax.set_xlabel("round")
    return words


def round_chart(run: Run, dataset: str, name: str) -> str:
    """Error of location at the attacked rounds, 95 % intervals over seeds; a panel per noise multiplier.

    Args:
        run: whose records.
        dataset: which of them.
        name: prefix of the ids.
    """
    noises = multipliers_of(run, dataset)
    with styled(name):
        figure, panels = _panels(len(noises), 2.9)
        words, shown = list[str](), set[str]()
        for ax, noise in zip(panels, noises, strict=False):
            names = methods_of(run, dataset, noise)
            words += _round_panel(ax, run, [Cell(dataset, entry, noise) for entry in names])
            shown |= set(names)
        for ax in panels[::COLUMNS]:
            ax.set_ylabel(METRES)
        _legend(figure, sorted(shown, key=method_order), [(CONSTANT, "-")])
        title = f"{dataset_label(dataset)}: error of the located transmitter over the rounds"
        return to_svg(figure, name, title, "; ".join(words))


def _round_panel(ax: Any, run: Run, cells: Sequence[Cell]) -> list[str]:
    from matplotlib.ticker import MaxNLocator

    words: list[str] = []
    span = max((place for cell in cells for place, _value in round_errors(run, cell, Reading())), default=1.0)
    for index, cell in enumerate(cells):
        points = round_errors(run, cell, Reading())
        shift = 0.006 * span * (index - (len(cells) - 1) / 2)
        xs = [place + shift for place, _value in points]
        ax.plot(xs, [value.mean for _place, value in points], zorder=3, **look_of(cell.method))
        for x, (_place, value) in zip(xs, points, strict=True):
            ends = [value.mean - _half(value), value.mean + _half(value)]
            ax.plot([x, x], ends, color=method(cell.method).colour, lw=1.0, solid_capstyle="butt", zorder=2)
        if points:
            ends_text = f"{number(points[0][1].mean)} m at round {points[0][0]:g}"
            last = f"{number(points[-1][1].mean)} m at round {points[-1][0]:g}"
            words.append(f"ν = {cell.multiplier}, {method(cell.method).label}: {ends_text}, {last}")
    constants = [mean(errors(run, cell, Reading("constant"))) for cell in cells]
    words += _constant_line(ax, [value for value in constants if value is not None])
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_title(f"ν = {cells[0].multiplier}" if cells else "")
    ax.set_xlabel("round")
    return words
