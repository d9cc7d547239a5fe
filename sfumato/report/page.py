"""The report's page: one self-contained HTML document from a study and its findings.

>>> from sfumato.report.study import Study, run_of
>>> text = render(Study(run_of("quick", "topk", "base", [])), [])
>>> text.startswith("<!doctype html>"), "No fit of this grid is finished yet" in text
(True, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from sfumato.report.claims import Finding
from sfumato.report.divergence_page import divergence_section
from sfumato.report.modulated_page import modulated_section
from sfumato.report.page_sections import (
    claims_section,
    results_section,
)
from sfumato.report.radiomap_page import radiomap_section
from sfumato.report.study import Study
from sfumato.report.text import NOTHING
from sfumato.report.topk_page import topk_section
from sfumato.report.vocabulary import (
    ALL_METHODS,
    GAIN_COLOURS,
)


def render(study: Study, findings: Sequence[Finding]) -> str:
    """The page as HTML text; equal inputs give equal bytes.

    Args:
        study: everything that is shown.
        findings: the evaluated claims.
    """
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    folder = resources.files("sfumato.report") / "templates"
    names = ("page.html", "modulated.html", "radiomap.html", "divergence.html")
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    environment = Environment(
        loader=DictLoader(texts),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html")
    context = _context(study, findings)
    style = Markup(_palette() + (folder / "style.css").read_text(encoding="utf-8"))
    return template.render(**context, style=style) + "\n"


def _palette() -> str:
    """CSS variables of the methods' and of the radio maps' colours, light and dark."""
    light = "".join(f"--m-{m.name.replace('_', '-')}:{m.colour};" for m in ALL_METHODS)
    dark = "".join(f"--m-{m.name.replace('_', '-')}:{m.dark};" for m in ALL_METHODS)
    light += "".join(f"--gain-{level}:{pair[0]};" for level, pair in enumerate(GAIN_COLOURS))
    dark += "".join(f"--gain-{level}:{pair[1]};" for level, pair in enumerate(GAIN_COLOURS))
    return f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n@media print{{:root{{{light}}}}}\n"


def _context(study: Study, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        **topk_section(study, findings),
        "settings": study.settings,
        "modulated": modulated_section(study),
        "divergence": divergence_section(study),
        "radiomap": radiomap_section(study),
        "claims": claims_section(findings),
        "results": results_section(study),
        "nothing": NOTHING,
    }
