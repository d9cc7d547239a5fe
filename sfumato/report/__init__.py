"""From records to tables, charts, one HTML page and the claims: pure functions, no I/O.

>>> study = Study(run_of("quick", "topk", "base", []))
>>> outputs = build(study)
>>> sorted({finding.judgement.verdict for finding in outputs.findings})
['not tested']
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.report.claims import Claim, Finding, Judgement, evaluate
from sfumato.report.divergence_claims import DIVERGENCE_CLAIMS
from sfumato.report.divergence_tables import estimate_rows
from sfumato.report.divergence_text import MARKERS as DIVERGENCE_MARKERS
from sfumato.report.divergence_text import (
    divergence_readme_table,
    divergence_released_summary,
    divergence_summary,
)
from sfumato.report.engine_table import ENGINE_MARKERS, engine_markdown, engine_rows
from sfumato.report.modulated_claims import MODULATED_CLAIMS
from sfumato.report.modulated_tables import error_rows
from sfumato.report.modulated_text import MARKERS as MODULATED_MARKERS
from sfumato.report.modulated_text import modulated_readme_table, modulated_summary, released_summary
from sfumato.report.page import render
from sfumato.report.radiomap_claims import RADIOMAP_CLAIMS
from sfumato.report.radiomap_pictures import RadiomapPictures, pictures_of
from sfumato.report.radiomap_tables import defence_rows
from sfumato.report.radiomap_text import MARKERS as RADIOMAP_MARKERS
from sfumato.report.radiomap_text import radiomap_readme_table, radiomap_summary
from sfumato.report.study import Run, Statement, Study, Support, run_of, support_of
from sfumato.report.tables import method_rows
from sfumato.report.text import between_markers, claims_json, claims_markdown, readme_table, summary
from sfumato.report.topk_claims import TOPK_CLAIMS

__all__ = [
    "CLAIMS",
    "DIVERGENCE_MARKERS",
    "ENGINE_MARKERS",
    "MODULATED_MARKERS",
    "RADIOMAP_MARKERS",
    "Claim",
    "Finding",
    "Judgement",
    "Outputs",
    "RadiomapPictures",
    "Run",
    "Statement",
    "Study",
    "Support",
    "between_markers",
    "build",
    "claims_json",
    "claims_markdown",
    "defence_rows",
    "divergence_readme_table",
    "engine_markdown",
    "engine_rows",
    "error_rows",
    "estimate_rows",
    "evaluate",
    "method_rows",
    "modulated_readme_table",
    "modulated_summary",
    "pictures_of",
    "radiomap_readme_table",
    "readme_table",
    "render",
    "run_of",
    "summary",
    "support_of",
]

CLAIMS: tuple[Claim, ...] = (*TOPK_CLAIMS, *MODULATED_CLAIMS, *RADIOMAP_CLAIMS, *DIVERGENCE_CLAIMS)


@dataclass(frozen=True)
class Outputs:
    """What a report consists of.

    Attributes:
        html: the page.
        summary: plain text for a terminal.
        findings: the evaluated claims.
    """

    html: str
    summary: str
    findings: tuple[Finding, ...]


def build(study: Study) -> Outputs:
    """The report of a study; equal studies give equal bytes."""
    findings = tuple(evaluate(CLAIMS, study.runs))
    rows = method_rows(study.current)
    modulated, divergence = study.current_of("modulated"), study.current_of("divergence")
    radiomap = study.current_of("radiomap")
    further = ""
    if modulated:
        further = modulated_summary(modulated.profile, error_rows(modulated)) or released_summary(modulated)
    if radiomap:
        further += radiomap_summary(radiomap, defence_rows(radiomap))
    if divergence:
        made = divergence_summary(divergence.profile, estimate_rows(divergence))
        further += made or divergence_released_summary(study.settings.get("divergence_released", ()))
    return Outputs(render(study, findings), summary(study.current.profile, rows, findings, further), findings)
