"""The report's plain texts: the terminal's summary, the README's table, the claims page in Markdown.

>>> print(table(["method", "ε"], [["dense", "1"], ["tp_topk", "3"]]), end="")
method   ε
dense    1
tp_topk  3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.errors import SfumatoError
from sfumato.records import MeanInterval
from sfumato.report.claims import VERDICTS, Finding, preferred
from sfumato.report.tables import MethodRow
from sfumato.report.vocabulary import MINUS, dataset_label, method, number, percent

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
NOTHING = "–"
SYSTEMS = {
    "topk": "TP-TopK: coordinate-sparse private training",
    "modulated": "Modulated learning: regression from one private sample per client",
    "radiomap": "Federated radio maps with adaptive noise",
    "divergence": "FedPriKL: private divergence to a public reference",
}


def share(mean: MeanInterval | None, digits: int = 1) -> str:
    """A mean share with half of its 95 % interval.

    >>> share(MeanInterval(0.9421, 0.0061, 3)), share(MeanInterval(0.9, None, 1)), share(None)
    ('94.2 ± 0.6 %', '90.0 %', '–')
    """
    if mean is None:
        return NOTHING
    if mean.half_width is None:
        return percent(mean.mean, digits)
    return f"{100 * mean.mean:.{digits}f} ± {100 * mean.half_width:.{digits}f} %".replace("-", MINUS)


def plain(mean: MeanInterval | None, digits: int = 3) -> str:
    """A mean number."""
    return NOTHING if mean is None else f"{mean.mean:.{digits}f}"


def with_spread(mean: MeanInterval | None) -> str:
    """A mean with half of its 95 % interval, three significant digits.

    >>> with_spread(MeanInterval(0.0479, 0.0041, 20)), with_spread(None)
    ('0.0479 ± 0.0041', '–')
    """
    if mean is None:
        return NOTHING
    return number(mean.mean) + ("" if mean.half_width is None else f" ± {number(mean.half_width, 2)}")


def row_cells(row: MethodRow) -> list[str]:
    """Data set, method, epsilon, accuracy, attack AUC, TPR at 1 % FPR, epsilon audited."""
    audited = NOTHING if row.audited is None else f"≥ {row.audited:.2f}"
    return [
        dataset_label(row.dataset),
        method(row.method).label,
        "∞" if row.epsilon == "inf" else row.epsilon,
        share(row.accuracy),
        plain(row.auc),
        share(row.tpr, 2) if row.tpr is None else percent(row.tpr.mean, 2),
        audited,
    ]


HEADINGS = ["data", "method", "ε", "test accuracy", "attack AUC", "TPR at 1 % FPR", "ε audited"]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two blanks apart, a line each."""
    widths = [max(len(line[i]) for line in [headings, *rows]) for i in range(len(headings))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in [headings, *rows]
    ]
    return "".join(line.rstrip() + "\n" for line in lines)


def summary(profile: str, rows: Sequence[MethodRow], findings: Sequence[Finding], further: str = "") -> str:
    """What the main job prints at its end: the table, those of further systems, and where to look."""
    counts = claim_counts([finding for finding in findings if finding.profile == profile])
    held = MeanInterval(0.0, None, 0)
    seeds = max((row.accuracy or held).count for row in rows) if rows else 0
    body = (
        table(HEADINGS, [row_cells(row) for row in rows])
        if rows
        else "No fit of this grid is finished yet.\n"
    )
    first = (
        f"TP-TopK, profile {profile}: test accuracy over {seeds} seeds with its 95 % interval, and the loss-threshold\n"
        "membership attack (AUC 0.5 and TPR 1 % are what guessing gives). ε audited: the larger of\n"
        "the lower bounds of two kinds of canaries, each at the audit's confidence.\n\n"
        f"{body}\n"
    )
    return (
        f"{first if rows or not further else ''}"
        f"{further}"
        f"Claims put to the test by this run: {counts['holds']} hold, {counts['does not hold']} do not.\n\n"
        "Where to look\n"
        "  report/index.html   the whole report, one page, opens in a browser without a network\n"
        "  report/claims.json  every claim, measured value, interval and verdict\n"
        "  data/statements/    the privacy statement of every fit\n"
        "  make ui             compare the runs in the browser\n"
    )


def claim_counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings have each verdict."""
    return {name: sum(f.judgement.verdict == name for f in findings) for name in VERDICTS}


# -------------------------------------------------------------------------------------------------- Markdown
def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def readme_table(profile: str, rows: Sequence[MethodRow], seconds: Mapping[str, float]) -> str:
    """The README's results: a row per method and epsilon, minutes where they are known.

    Args:
        profile: of the run.
        rows: of the run.
        seconds: stage -> seconds of its last real run; may be empty.
    """
    if not rows:
        return "No fit of this grid is finished yet; `make run` makes this table.\n"
    minutes = [seconds.get(_stage(row)) for row in rows]
    timed = any(value is not None for value in minutes)
    headings = HEADINGS + (["minutes"] if timed else [])
    cells = [
        row_cells(row) + ([NOTHING if value is None else f"{value / 60:.1f}"] if timed else [])
        for row, value in zip(rows, minutes, strict=True)
    ]
    seeds = max(row.accuracy.count if row.accuracy else 0 for row in rows)
    text = (
        f"Profile `{profile}`, {seeds} seeds. Accuracy: mean ± half of the 95 % Student t interval over the seeds. Attack: "
        "loss-threshold membership inference (0.5 and 1 % are what guessing gives). ε audited: lower bound of a one-run "
        "audit (the larger of two kinds of canaries, each at the audit's confidence), on a separate fit."
    )
    if timed:
        total = sum(seconds.values()) / 60
        text += f" Minutes: training stage, all seeds; all stages together {total:.1f} minutes, two stages at once."
    return markdown_table(headings, cells) + "\n" + text + "\n"


def _stage(row: MethodRow) -> str:
    if row.method == "non_private":
        return f"topk-reference@{row.dataset}"
    return f"topk-train@{row.dataset}-{row.method}-{row.epsilon}"


def between_markers(
    document: str, content: str, name: str = "README.md", markers: tuple[str, str] = (BEGIN, END)
) -> str:
    """The document with the part between the markers replaced.

    >>> between_markers(f"a {BEGIN} old {END} b", "new").splitlines()
    ['a <!-- results:begin -->', 'new', '<!-- results:end --> b']

    Raises:
        SfumatoError: if the markers are not there once each, in order.
    """
    begin, finish = markers
    start, end = document.find(begin), document.find(finish)
    if document.count(begin) != 1 or document.count(finish) != 1 or end < start:
        raise SfumatoError(
            f"{name} does not hold the lines {begin} and {finish}, once each and in this order."
        )
    return f"{document[: start + len(begin)]}\n{content.strip()}\n{document[end:]}"


def claims_markdown(findings: Sequence[Finding]) -> str:
    """The claims page: rules, one table per system."""
    counts = claim_counts(preferred(findings))
    parts = [
        "# Claims\n\n"
        "Made by `make docs` from the records of the runs; no number here was typed. Each row is a claim at one place "
        "(data set, ε, profile), what was measured, and the verdict by a rule that was fixed beforehand.\n\n"
        "* Direction: holds if the whole 95 % Student t interval of the difference, paired over seeds, lies on the "
        "claimed side. Otherwise it does not hold; where the interval includes zero, no difference was seen.\n"
        "* Size: holds if the interval lies above zero and reaches the claimed size, without being wider than it.\n"
        "* Closeness: holds if the whole interval lies within the stated distance; one-sided: if it lies on the better side of it.\n"
        "* Identity: holds if every value meets it.\n"
        "* Ratios of errors: the same rules of direction and closeness on the logarithm, averaged over the ε of a row, with 1 "
        "in the place of zero.\n"
        "* Floors and coverage: hold unless a whole interval lies beyond the floor or below the nominal share.\n"
        "* Separation: where records hold single seeds, holds if the whole interval of the difference (of the first error less a stated "
        "factor times the second), paired over seeds, lies on the claimed side; where they hold means and intervals only, if the order is kept by the "
        "ends of the two 95 % intervals that are worst for the claim; a factor or margin is held against the same ends.\n"
        "* Not tested: no records, a single seed where an interval is needed, or an interval of a floor or a coverage that is "
        "too wide to tell.\n\n"
        "Intervals cover the randomness of the seeds, not of the data set, and are not corrected for the number of claims. "
        "The papers' tables and hyper-parameters were not available: directions and sizes are compared, not tables.\n\n"
        f"By the largest profile that tested each: {counts['holds']} hold, {counts['does not hold']} do not, "
        f"{counts['not tested']} are not tested.\n"
    ]
    for system, title in SYSTEMS.items():
        mine = [finding for finding in findings if finding.claim.system == system]
        rows = [_claim_cells(finding) for finding in mine]
        headings = ["id", "claim", "source", "data", "profile", "measured", "verdict", "command"]
        parts.append(f"\n## {title}\n\n{markdown_table(headings, rows)}" if rows else "")
    return "".join(parts)


def _claim_cells(finding: Finding) -> list[str]:
    return [
        f"`{finding.id}`",
        finding.claim.statement
        + (" (Not a claim of the paper.)" if finding.claim.origin == "beyond" else ""),
        finding.claim.source,
        finding.data or NOTHING,
        finding.profile or NOTHING,
        finding.judgement.measured,
        f"**{finding.judgement.verdict}**",
        f"`{finding.command}`",
    ]


def claims_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Every finding as plain values."""
    return [finding.to_json() for finding in findings]
