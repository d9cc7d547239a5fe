"""The modulated system's plain texts: its table in the terminal's summary and in the README.

>>> from sfumato.records import MeanInterval
>>> from sfumato.report.modulated_tables import ErrorRow
>>> rows = [ErrorRow("co2", "one_shot", "5", MeanInterval(0.95, 0.4, 20), True, 0.0)]
>>> error_lines(rows)
[['CO₂', '5*', '0.95 ± 0.4', '–', '–', '–', '1']]

The methods are fixed: none is chosen by its result.
"""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.report.modulated_tables import ErrorRow, datasets_of, dominated_epsilons, epsilons_of
from sfumato.report.study import Run
from sfumato.report.text import markdown_table, table, with_spread
from sfumato.report.vocabulary import dataset_label, method, number

BEGIN, END = "<!-- modulated:begin -->", "<!-- modulated:end -->"
MARKERS = (BEGIN, END)
SHOWN = ("one_shot", "iterative", "dp_sgd", "ada_ssp")
RELEASED_HEADINGS = ["data", "method", "ε", "test error"]
HEADINGS = ["data", "ε", "one-shot", "iterative", "DP-SGD", "central (AdaSSP)", "mean"]


def error_lines(rows: Sequence[ErrorRow]) -> list[list[str]]:
    """A line per data set and epsilon: relative test errors of one-shot, iterative, DP-SGD, the central line, the mean."""
    lines: list[list[str]] = []
    for dataset in datasets_of(rows):
        dominated = dominated_epsilons(rows, dataset)
        mine = [row for row in rows if row.dataset == dataset]
        for epsilon in epsilons_of(mine):
            found = {row.method: row.error for row in mine if row.epsilon == epsilon}
            cells = [with_spread(found.get(name)) for name in SHOWN]
            lines.append([dataset_label(dataset), epsilon + "*" * (epsilon in dominated), *cells, "1"])
    return lines


def modulated_summary(profile: str, rows: Sequence[ErrorRow]) -> str:
    """The second table of the terminal's summary; empty without rows."""
    lines = error_lines(rows)
    if not lines:
        return ""
    seeds = max(row.error.count for row in rows)
    return (
        f"Modulated regression under local privacy, profile {profile}: squared error on held-out rows over that of\n"
        f"predicting the mean (1: worth nothing), {seeds} seeds. Central privacy is another promise, for scale.\n"
        "*: the noise of the averaged messages dominates the data.\n\n"
        f"{table(HEADINGS, lines)}\n"
    )


def released_lines(run: Run) -> list[list[str]]:
    """A line per released fit: data set, method, epsilon, mean squared error on held-out rows.

    A release keeps no figure that reads its clients without noise, so there is no error to divide by.
    """
    fits = [r for r in run.records.get("train", ()) if r.levels.get("seed") == "release"]
    return [
        [
            dataset_label(fit.levels["dataset"]),
            method(fit.levels["method"]).label,
            fit.levels["epsilon"],
            number(float(fit.values.get("test_error") or 0.0)),
        ]
        for fit in fits
    ]


def released_summary(run: Run) -> str:
    """The summary of a release; empty where nothing was released."""
    lines = released_lines(run)
    if not lines:
        return ""
    return (
        "Modulated regression, released: squared error on held-out rows, labels scaled to [-1, 1].\n"
        "The coefficients are in data/models/modulated/train/.\n\n"
        f"{table(RELEASED_HEADINGS, lines)}\n"
    )


def modulated_readme_table(profile: str, rows: Sequence[ErrorRow]) -> str:
    """The README's second table; a sentence where there is nothing to show."""
    lines = error_lines(rows)
    if not lines:
        return "No fit of this grid is finished yet; `make run` makes this table.\n"
    seeds = max(row.error.count for row in rows)
    text = (
        f"Profile `{profile}`, {seeds} seeds. Mean squared error on held-out rows over that of predicting the mean of the labels (1: "
        "worth nothing), mean ± half of the 95 % Student t interval over the seeds. One-shot, iterative and DP-SGD are under the "
        "same local (ε, δ); central privacy trusts a server and is shown for scale. *: the noise of the averaged messages "
        "dominates the data."
    )
    return markdown_table(HEADINGS, lines) + "\n" + text + "\n"
