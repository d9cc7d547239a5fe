"""The radio map system's plain texts: its table in the terminal's summary and in the README.

>>> from sfumato.records import Record
>>> from sfumato.report.radiomap_tables import defence_rows
>>> levels = {"dataset": "city_maps", "method": "uniform", "multiplier": "3", "seed": "0"}
>>> record = Record(levels, {"validation_db": -16.5})
>>> defence_lines(defence_rows(Run("quick", "radiomap", "base", {"train": (record,)})))
[['City maps', '3', 'Uniform noise', '−16.50', '–', '–', '–', '–']]
"""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.records import MeanInterval
from sfumato.report.radiomap_tables import DefenceRow
from sfumato.report.study import Run
from sfumato.report.text import NOTHING, markdown_table, table
from sfumato.report.vocabulary import MINUS, dataset_label, method, signed

BEGIN, END = "<!-- radiomap:begin -->", "<!-- radiomap:end -->"
MARKERS = (BEGIN, END)
HEADINGS = [
    "data",
    "ν",
    "defence",
    "validation, dB",
    "attacker’s error, m",
    "smallest error, m",
    "transmitter’s weights only, m",
    "constant guess, m",
]


def spread(mean: MeanInterval | None, digits: int) -> str:
    """A mean with half of its 95 % interval and so many decimals.

    >>> spread(MeanInterval(-16.51, 0.2, 5), 2), spread(MeanInterval(58.26, None, 1), 1), spread(None, 1)
    ('−16.51 ± 0.20', '58.3', '–')
    """
    if mean is None:
        return NOTHING
    text = f"{mean.mean:.{digits}f}".replace("-", MINUS)
    return text if mean.half_width is None else f"{text} ± {mean.half_width:.{digits}f}"


def change(gap: MeanInterval | None, digits: int) -> str:
    """A difference with its sign, half of its 95 % interval and so many decimals.

    >>> change(MeanInterval(-1.26, 0.3, 5), 1), change(None, 1)
    ('−1.3 ± 0.3', '–')
    """
    if gap is None:
        return NOTHING
    half = "" if gap.half_width is None else f" ± {gap.half_width:.{digits}f}"
    return f"{signed(gap.mean, digits)}{half}"


def defence_lines(rows: Sequence[DefenceRow]) -> list[list[str]]:
    """A line per data set, noise multiplier and defence; those without noise once per data set."""
    lines: list[list[str]] = []
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if not row.noisy:
            if (row.dataset, row.method) in seen:
                continue
            seen.add((row.dataset, row.method))
        metres = [spread(value, 1) for value in (row.best, row.least, row.slices, row.constant)]
        noise = row.multiplier if row.noisy else NOTHING
        lines.append(
            [dataset_label(row.dataset), noise, method(row.method).label, spread(row.validation, 2), *metres]
        )
    return lines


def seeds_of(rows: Sequence[DefenceRow]) -> int:
    """The largest number of seeds behind a row."""
    means = [value for row in rows for value in (row.validation, row.best) if value is not None]
    return max((value.count for value in means), default=0)


def radiomap_summary(run: Run, rows: Sequence[DefenceRow]) -> str:
    """The radio map table of the terminal's summary; empty without rows."""
    lines = defence_lines(rows)
    if not lines:
        return ""
    return (
        f"Federated radio maps, profile {run.profile}, {seeds_of(rows)} seeds: validation error in dB (lower is better), and\n"
        "the error with which an attacker locates the transmitter from one update (higher is better). ν: noise\n"
        "multiplier. Smallest error: of the attacker that is best on\n"
        "the test itself.\n\n"
        f"{table(HEADINGS, lines)}\n"
    )


def radiomap_readme_table(run: Run, rows: Sequence[DefenceRow]) -> str:
    """The README's table of the radio map system; a sentence where there is nothing to show."""
    lines = defence_lines(rows)
    if not lines:
        return "No training of this grid is finished yet; `make run` makes this table.\n"
    text = (
        f"Profile `{run.profile}`, {seeds_of(rows)} seeds: mean ± half of the 95 % Student t interval over the seeds. Validation: mean "
        "squared error of the map on free cells in dB, lower is better. Attacker’s error: root mean squared error in metres of the located transmitter, by one who "
        "reads one whole update at the last attacked round, chosen by validation; higher is more private. Smallest error: of all attackers, on the test itself. ν: noise "
        "multiplier; defences without noise have none."
    )
    return markdown_table(HEADINGS, lines) + "\n" + text + "\n"
