"""The report: ``python -m tasks.report`` writes report/index.html, report/summary.txt and report/claims.json."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks import command
from tasks.reported import divergence, modulated, radiomap, topk
from tasks.reported.files import documents

if TYPE_CHECKING:
    from sfumato.report import Run, Study

DEFAULT = ("quick", "base")


def report(call: command.Call) -> None:
    """Gather the run's files and the committed results, and write the three outputs."""
    from sfumato import artifacts
    from sfumato.report import build, claims_json

    outputs = build(gather(call))
    folder = call.root / "report"
    artifacts.write_json(folder / "claims.json", claims_json(outputs.findings))
    artifacts.write_text(folder / "summary.txt", outputs.summary)
    artifacts.write_text(folder / "index.html", outputs.html)


def gather(call: command.Call) -> Study:
    """Everything that the report shows, read from ``data/`` and ``results/``."""
    from sfumato.report import Study

    # Matplotlib keeps a cache of fonts; it belongs to this tree, not to the user's home.
    os.environ.setdefault("MPLCONFIGDIR", str(call.root / ".runtime" / "matplotlib"))
    values = _plain(call.root / "params.yaml")
    name = _name_of(call.root, values)
    return Study(
        current=topk.current(call, name),
        further=(
            modulated.current(call, name),
            *radiomap.current(call, name),
            *divergence.current(call, name),
        ),
        results=tuple(_results(call, values)),
        curves=tuple(topk.curves(call)),
        rocs=tuple(topk.roc_rows(call, "attack")),
        lira_rocs=tuple(topk.roc_rows(call, "membership")),
        supports=tuple(topk.supports(call)),
        statements=(
            *topk.statements(call),
            *modulated.statements(call),
            *radiomap.statements(call),
            *divergence.statements(call),
        ),
        settings={
            **topk.settings(call.params),
            **modulated.settings(call.params),
            **radiomap.settings(call),
            **divergence.settings(call),
        },
        tunings=tuple(modulated.tunings(call)),
        round_curves=tuple(radiomap.curves(call)),
        pictures=tuple(radiomap.pictures(call)),
        engine=tuple(_engine(call)),
    )


def _engine(call: command.Call) -> list[Any]:
    """The rows that the engine's benchmark printed on the machine that it was last committed from."""
    from sfumato import artifacts

    path = call.root / "results" / "benchmarks" / "engine.json"
    found = artifacts.read_json(path) if path.is_file() else []
    return found if isinstance(found, list) else [found]


def _plain(path: Path) -> Any:
    from sfumato.params import read_yaml

    return read_yaml(path)


def _results(call: command.Call, values: Any) -> Iterator[Run]:
    """The committed runs, ``results/<profile>/<system>/<variant>/``."""
    from sfumato import artifacts
    from sfumato.report import run_of
    from sfumato.report.study import settings_of

    folder = call.root / "results"
    for variant in sorted(path for path in folder.glob("*/*/*") if path.is_dir()):
        profile, system, name = variant.relative_to(folder).parts
        found = list(documents(variant))
        origin = variant / "provenance.json"
        provenance = artifacts.read_json(origin) if origin.is_file() else {}
        recorded = "params" in provenance  # what that run really used; today's files may have moved on
        settings = settings_of(provenance) if recorded else _base_settings(call.root, values, profile)
        if found:
            yield run_of(profile, system, name, found, provenance, settings=settings)


def _base_settings(root: Path, values: Any, profile: str) -> dict[str, float]:
    """Warm-up share and active ratio of a profile's base run."""
    from sfumato.params import merged
    from sfumato.report.study import settings_of

    path = root / "profiles" / f"{profile}.yaml"
    overlay = _mapping(_plain(path)).get("params") if path.is_file() else None
    return settings_of({"params": merged(values, _mapping(overlay))})


def _name_of(root: Path, values: Any) -> tuple[str, str]:
    """Profile and variant whose parameters these are: the most specific overlay that changes nothing here."""
    from sfumato.params import merged

    best, most = DEFAULT, 0
    for path in sorted((root / "profiles").glob("*.yaml")):
        document = _mapping(_plain(path))
        shared = _mapping(document.get("params"))
        for row in document.get("variants") or [{"name": "base"}]:
            overlay = merged(shared, _mapping(_mapping(row).get("params")))
            size = _leaves(overlay)
            if size > most and merged(values, overlay) == values:
                best, most = (path.stem, str(_mapping(row).get("name", "base"))), size
    return best


def _mapping(value: object) -> dict[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _leaves(value: object) -> int:
    return sum(_leaves(item) for item in value.values()) if isinstance(value, dict) else 1


if __name__ == "__main__":
    sys.exit(command.main("report", {"": report}))
