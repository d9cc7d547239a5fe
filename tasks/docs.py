"""The documents made from runs: ``python -m tasks.docs`` refreshes the README's table and docs/claims.*."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import SfumatoError
from tasks import command

if TYPE_CHECKING:
    from sfumato.report import Study


def docs(call: command.Call) -> None:
    """Write the tables between the markers of README.md and docs/engine.md, docs/claims.md and docs/claims.json."""
    from sfumato import artifacts, report
    from tasks.report import gather

    study = gather(call)
    findings = report.evaluate(report.CLAIMS, study.runs)
    rows = report.method_rows(study.current)
    readme = call.root / "README.md"
    if not readme.is_file():
        raise SfumatoError("README.md is missing; needed is one with the lines that mark the results.")
    seconds = _seconds(call.root)
    if not rows or not seconds:
        raise SfumatoError("there is no finished run to document; needed is one, such as make run leaves.")
    table = report.readme_table(study.current.profile, rows, seconds)
    text = report.between_markers(readme.read_text(encoding="utf-8"), table)
    text = _with_divergence(_with_radiomap(_with_modulated(text, study), study), study)
    artifacts.write_json(call.root / "docs" / "claims.json", report.claims_json(findings))
    artifacts.write_text(call.root / "docs" / "claims.md", report.claims_markdown(findings))
    artifacts.write_text(readme, text)
    page, measured = call.root / "docs" / "engine.md", report.engine_rows(study.engine)
    if page.is_file() and measured:
        table = report.engine_markdown(measured)
        said = report.between_markers(
            page.read_text(encoding="utf-8"), table, page.name, report.ENGINE_MARKERS
        )
        artifacts.write_text(page, said)


def _with_modulated(text: str, study: Study) -> str:
    """The README with the modulated system's table, where the README has a place for it and the run has figures."""
    from sfumato import report

    run = study.current_of("modulated")
    rows = report.error_rows(run) if run else []
    if run is None or not rows or not any(marker in text for marker in report.MODULATED_MARKERS):
        return text
    table = report.modulated_readme_table(run.profile, rows)
    return report.between_markers(text, table, markers=report.MODULATED_MARKERS)


def _with_radiomap(text: str, study: Study) -> str:
    """The README with the radio map system's table, under the same conditions."""
    from sfumato import report

    run = study.current_of("radiomap")
    rows = report.defence_rows(run) if run else []
    if run is None or not rows or not any(marker in text for marker in report.RADIOMAP_MARKERS):
        return text
    table = report.radiomap_readme_table(run, rows)
    return report.between_markers(text, table, markers=report.RADIOMAP_MARKERS)


def _with_divergence(text: str, study: Study) -> str:
    """The README with the divergence system's table, under the same conditions."""
    from sfumato import report

    run = study.current_of("divergence")
    rows = report.estimate_rows(run) if run else []
    if run is None or not rows or not any(marker in text for marker in report.DIVERGENCE_MARKERS):
        return text
    table = report.divergence_readme_table(run.profile, rows)
    return report.between_markers(text, table, markers=report.DIVERGENCE_MARKERS)


def _seconds(root: Path) -> dict[str, float]:
    """Stage -> seconds of its last real run, from report/timings.json; empty without it."""
    from sfumato import artifacts

    try:
        document = artifacts.read_json(root / "report" / "timings.json")
    except SfumatoError:
        return {}
    stages = document.get("stages") if isinstance(document, dict) else None
    found: dict[str, float] = {}
    for name, entry in (stages if isinstance(stages, dict) else {}).items():
        value = entry.get("last_run_seconds") if isinstance(entry, dict) else None
        if isinstance(value, int | float):
            found[name] = float(value)
    return found


if __name__ == "__main__":
    sys.exit(command.main("docs", {"": docs}))
