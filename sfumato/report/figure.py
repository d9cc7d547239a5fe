"""Matplotlib figures as small, accessible, byte-stable inline SVG that follows the page's light or dark colours.

>>> spread([1.0, 1.1, 3.0], 0.5)
[0.8, 1.3, 3.0]
"""

from __future__ import annotations

import html
import importlib
import io
import math
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from sfumato.report.vocabulary import ALL_METHODS

INK, MUTED, GRID, PAPER, ALERT, GOOD = "#1d1b19", "#6b655d", "#e3ddd2", "#fdfcfa", "#b3261d", "#2f7a3d"
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--rule",
    PAPER: "--paper",
    ALERT: "--alert",
    GOOD: "--good",
    # The first method of a colour gives it its name.
    **{entry.colour: f"--m-{entry.name.replace('_', '-')}" for entry in reversed(ALL_METHODS)},
}
_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelsize": 8.5,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "xtick.major.width": 0.6,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "path.simplify": True,
    "path.simplify_threshold": 0.3,
}


@contextmanager
def styled(name: str) -> Generator[None]:
    """Matplotlib's defaults with the report's style; a user's own settings do not reach in.

    Args:
        name: seeds the ids inside the SVG, so that two figures of one page share none.
    """
    library: Any = importlib.import_module("matplotlib")
    with library.rc_context():
        library.rcdefaults()
        library.rcParams.update({**_STYLE, "svg.hashsalt": name})
        yield


def subplots(
    rows: int, columns: int, width: float, height: float, **options: Any
) -> tuple[Any, list[list[Any]]]:
    """A figure without global state and its axes, rows by columns; sizes in inches."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), layout="constrained")
    axes: Any = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, [list(row) for row in axes]


def label_axis(axis: Any, text: Callable[[float], str]) -> None:
    """Write an axis' major ticks by a function of their value."""

    def write(value: float, _place: int | None = None) -> str:
        return text(value)

    axis.set_major_formatter(write)


def plain_number(value: float) -> str:
    """A tick without exponent or needless zeros.

    >>> plain_number(0.05), plain_number(100.0)
    ('0.05', '100')
    """
    return f"{value:.10f}".rstrip("0").rstrip(".")


def log_axis(axis: Any, low: float, high: float) -> None:
    """Ticks of a logarithmic axis: every decade, and 2 and 5 where the span is short."""
    from matplotlib.ticker import LogLocator, NullLocator

    decades = math.log10(high / low)
    subs = (1.0,) if decades > 2.2 else (1.0, 3.0) if decades > 1.2 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(10, subs=subs, numticks=12))
    axis.set_minor_locator(NullLocator())
    label_axis(axis, plain_number)


def epsilon_axis(axes: Any, epsilons: Sequence[str]) -> None:
    """A logarithmic axis whose ticks are the epsilons."""
    from matplotlib.ticker import NullLocator

    values = [float(epsilon) for epsilon in epsilons]
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 1.35, max(values) * 1.35)
    axes.set_xticks(values, epsilons)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", visible=False)


def to_svg(figure: Any, name: str, title: str, description: str) -> str:
    """The figure as one inline ``<svg>`` element; call within `styled`.

    Args:
        figure: a matplotlib figure.
        name: prefix of its ids.
        title: accessible name.
        description: what it shows, for those who do not see it.
    """
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    return _clean(buffer.getvalue(), name, title, description)


def _clean(text: str, name: str, title: str, description: str) -> str:
    body = text[text.index("<svg") :]
    inner = body[body.index(">") + 1 : body.rindex("</svg>")]
    box = re.search(r'viewBox="([^"]+)"', body)
    inner = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", inner, flags=re.S)
    inner = re.sub(r'\s*<style type="text/css">.*?</style>', "", inner, flags=re.S)
    used = set(re.findall(r'(?:href="#|url\(#)([\w.\-]+)', inner))
    inner = re.sub(r' id="([\w.\-]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", inner)
    inner = re.sub(r'(href="#|url\(#)([\w.\-]+)', rf"\g<1>{name}-\2", inner)
    inner = re.sub(r"font: ([^;\"]*?)'DejaVu Sans'[^;\"]*", r"font: \1var(--sans)", inner)
    inner = re.sub(
        r"#[0-9a-f]{6}\b", lambda m: f"var({_VARIABLES[m[0]]})" if m[0] in _VARIABLES else m[0], inner
    )
    inner = re.sub(r' (?:d|x|y|points)="[^"]*"', lambda m: _rounded(m[0]), inner)
    inner = re.sub(r"\n\s*", "\n", inner).strip()
    inner = re.sub(r"<g>\n</g>\n?", "", inner)
    return wrap(inner, box[1] if box else "0 0 100 100", name, title, description)


def _rounded(attribute: str) -> str:
    """Coordinates to a hundredth of a point.

    >>> _rounded(' d="M 1.23456 -0.001"')
    ' d="M 1.23 0"'
    """
    return re.sub(r"-?\d+\.\d+", lambda m: f"{round(float(m[0]), 2) + 0.0:g}", attribute)


def wrap(inner: str, view_box: str, name: str, title: str, description: str) -> str:
    """SVG content inside an element that carries its name and description."""
    labels = f'aria-labelledby="{name}-title {name}-text"'
    words = f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-text">{html.escape(description)}</desc>'
    return f'<svg class="chart" role="img" {labels} viewBox="{view_box}">{words}\n{inner}</svg>'


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Positions at least ``gap`` apart, in the same order, moved as little as possible (to 6 decimals)."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    clusters: list[tuple[float, int]] = []
    for index in order:
        clusters.append((places[index], 1))
        while len(clusters) > 1 and _overlap(clusters[-2], clusters[-1], gap):
            (one, n), (two, m) = clusters[-2:]
            clusters[-2:] = [((one * n + two * m) / (n + m), n + m)]
    found = [centre + gap * (i - (count - 1) / 2) for centre, count in clusters for i in range(count)]
    result = [0.0] * len(places)
    for index, place in zip(order, found, strict=True):
        result[index] = round(place, 6)
    return result


def _overlap(one: tuple[float, int], two: tuple[float, int], gap: float) -> bool:
    return two[0] - gap * (two[1] - 1) / 2 < one[0] + gap * (one[1] - 1) / 2 + gap - 1e-12
