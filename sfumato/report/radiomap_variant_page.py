"""The part of the radio map section on variants of a run, as plain cells for the template.

>>> from sfumato.report.study import run_of
>>> variant_parts(Study(run_of("quick", "topk", "base", [])), "radiomap")
[]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.report.page_sections import inline
from sfumato.report.radiomap_charts import round_chart
from sfumato.report.radiomap_tables import FREE, Reading, cells_of, datasets_of, round_errors
from sfumato.report.radiomap_text import change, spread
from sfumato.report.radiomap_variants import (
    OWN,
    VariantRow,
    base_of,
    base_rows,
    changed,
    variant_rows,
    variants_of,
)
from sfumato.report.study import Run, Study
from sfumato.report.text import NOTHING
from sfumato.report.vocabulary import RADIOMAP_VARIANTS, dataset_label, method

BASE_LABEL = "The base run, for comparison"


def variant_parts(study: Study, system: str) -> list[dict[str, Any]]:
    """Per profile that has variants of this system a block per variant, and charts of the errors at the defences' own weights.

    Args:
        study: all runs.
        system: whose variants.
    """
    mine = [run for run in study.runs if run.system == system]
    parts = [
        _part(profile, [run for run in mine if run.profile == profile])
        for profile in dict.fromkeys(run.profile for run in mine)
    ]
    return [part for part in parts if part["blocks"]]


def _part(profile: str, runs: Sequence[Run]) -> dict[str, Any]:
    """One profile: nothing in its blocks where no variant has a row."""
    base, variants = base_of(runs), variants_of(runs)
    found = [(_label(run), variant_rows(run, base)) for run in variants]
    blocks = [{"label": label, "rows": _lines(rows)} for label, rows in found if rows]
    compared = base_rows(base, variants) if base is not None and blocks else []
    if compared:
        blocks.insert(0, {"label": BASE_LABEL, "rows": _lines(compared)})
    charts = [chart for run in changed(OWN)(runs) for chart in _rounds(profile, run)]
    return {"title": f"Profile {profile}", "blocks": blocks, "rounds": charts}


def _label(run: Run) -> str:
    """What was changed, in words; the variant's name where it has none.

    >>> _label(Run("medium", "radiomap", "radiomap_circular", {})), _label(Run("medium", "radiomap", "maps_4", {}))
    ('Circular padding instead of zeros', 'Maps 4')
    """
    words = RADIOMAP_VARIANTS.get(run.change) or run.change.replace("_", " ")
    return words[:1].upper() + words[1:]


def _lines(rows: Sequence[VariantRow]) -> list[dict[str, Any]]:
    return [
        {
            "method": method(row.method),
            "dataset": dataset_label(row.dataset),
            "multiplier": NOTHING if row.method in FREE else row.multiplier,
            "validation": spread(row.validation, 2),
            "utility_change": change(row.utility_change, 2),
            "best": spread(row.best, 1),
            "privacy_change": change(row.privacy_change, 1),
            "constant": spread(row.constant, 1),
        }
        for row in rows
    ]


def _rounds(profile: str, run: Run) -> list[dict[str, Any]]:
    """A chart per data set that was attacked at more than one round."""
    return [
        {"label": dataset_label(dataset), "chart": inline(round_chart(run, dataset, _id(profile, dataset)))}
        for dataset in datasets_of(run)
        if any(len(round_errors(run, cell, Reading())) > 1 for cell in cells_of(run, dataset))
    ]


def _id(profile: str, dataset: str) -> str:
    return f"radiomap-own-{profile}-{dataset}".replace("_", "-").replace(".", "-")
