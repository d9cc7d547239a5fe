"""The divergence system's plain texts: its table in the terminal's summary and in the README.

>>> from sfumato.records import MeanInterval
>>> half = MeanInterval(0.95, 0.04, 20)
>>> row = EstimateRow("mnist_population", "digits", "local_mix", "epsilon", "1", half, None, None, {}, None, 1.0, None,
...                   None, 0.01, 90, 0, 20)
>>> error_lines([row])
[['MNIST digits', 'digit against digit', '1', '–', '–', '–', '–', '0.95 ± 0.04']]

The methods are fixed: none is chosen by its result.
"""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.report.divergence_tables import EstimateRow, at_place, by_method, epsilons_of, places_of
from sfumato.report.text import NOTHING, markdown_table, table, with_spread
from sfumato.report.vocabulary import comparison_label, dataset_label

BEGIN, END = "<!-- divergence:begin -->", "<!-- divergence:end -->"
MARKERS = (BEGIN, END)
SHOWN = ("non_private", "trusted_aggregator", "all_cells", "distributed", "local_mix")
RELEASED_HEADINGS = ["data", "comparison", "pair", "method", "ε", "estimate", "interval"]
HEADINGS = [
    "data",
    "comparison",
    "ε",
    "no privacy",
    "trusted aggregator",
    "all cells",
    "distributed noise",
    "local noise",
]


def error_lines(rows: Sequence[EstimateRow]) -> list[list[str]]:
    """A line per data set, comparison and epsilon: the errors of five methods."""
    lines: list[list[str]] = []
    mine = [row for row in rows if row.study == "epsilon"]
    for place in places_of(mine):
        here = at_place(mine, place, "epsilon")
        for epsilon in epsilons_of(here):
            found = by_method(here, epsilon)
            cells = [with_spread(found[name].error) if name in found else NOTHING for name in SHOWN]
            lines.append([dataset_label(place[0]), comparison_label(place[1]), epsilon, *cells])
    return lines


def _seeds(rows: Sequence[EstimateRow]) -> int:
    return max((row.seeds for row in rows), default=0)


def _truth(rows: Sequence[EstimateRow]) -> str:
    """What the errors are measured against."""
    smoothing = next((row.smoothing for row in rows if row.smoothing), None)
    return "" if smoothing is None else f", the population smoothed by {smoothing:g} of the reference"


def divergence_summary(profile: str, rows: Sequence[EstimateRow]) -> str:
    """The divergence table of the terminal's summary; empty without rows."""
    lines = error_lines(rows)
    if not lines:
        return ""
    return (
        f"Private KL divergence to a public reference, profile {profile}: mean error in nats over the pairs of a\n"
        f"comparison, {_seeds(rows)} seeds. Trusted aggregator: the paper's method. Local noise: its baseline.\n"
        f"Errors are against the true divergence{_truth(rows)}.\n\n"
        f"{table(HEADINGS, lines)}\n"
    )


def divergence_released_summary(lines: Sequence[Sequence[str]]) -> str:
    """The summary of a release; empty where nothing was released.

    Args:
        lines: cells of the released estimates, in the order of ``RELEASED_HEADINGS``.
    """
    if not lines:
        return ""
    return f"Divergence from a public reference, released estimates in nats.\n\n{table(RELEASED_HEADINGS, lines)}\n"


def divergence_readme_table(profile: str, rows: Sequence[EstimateRow]) -> str:
    """The README's table of the divergence system; a sentence where there is nothing to show."""
    lines = error_lines(rows)
    if not lines:
        return "No estimate of this grid is finished yet; `make run` makes this table.\n"
    text = (
        f"Profile `{profile}`, {_seeds(rows)} seeds. Mean absolute error of the raw estimate in nats over the pairs of a comparison, "
        f"against the true divergence{_truth(rows)}: mean ± half of the 95 % Student t interval over the seeds. Trusted aggregator: the paper's "
        "method, noise once on the finished estimate; all cells: the same without drawing points; distributed noise: no "
        "aggregator is trusted; local noise: the paper's baseline, mixed floor."
    )
    return markdown_table(HEADINGS, lines) + "\n" + text + "\n"
