"""What the systems' parts of the report share: records documents, statements, and which records belong to the parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.records import Record
    from sfumato.report import Statement

Levels = Mapping[str, Collection[str]]


def documents(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Every records document below a folder, by path; other JSON files are passed over."""
    from sfumato import artifacts

    for path in sorted(folder.rglob("*.json")):
        document = artifacts.read_json(path)
        if isinstance(document, dict) and {"system", "step", "levels", "values"} <= set(document):
            yield document


def belongs(record: Record, allowed: Levels) -> bool:
    """Whether every level that is named has an allowed text; levels that the record lacks are passed over."""
    return all(record.levels[name] in texts for name, texts in allowed.items() if name in record.levels)


def seeds_of(seeds: Sequence[int] | None) -> list[str]:
    """The seeds of a grid as a record has them; a release has one, without a number."""
    return ["release"] if seeds is None else [str(seed) for seed in seeds]


def shared_statements(root: Path, system: str, grid: Any) -> Iterator[Statement]:
    """The statements of a system that writes one for all seeds.

    Args:
        root: of the tree.
        system: such as ``modulated``.
        grid: its data sets, methods and epsilons.
    """
    from sfumato import artifacts
    from sfumato.records import epsilon_text
    from sfumato.report import Statement
    from sfumato.report.study import ALL_SEEDS

    for dataset in grid.datasets:
        for epsilon in (epsilon_text(value) for value in grid.epsilons):
            for method in grid.methods:
                path = root / "data" / "statements" / system / dataset / f"{method}-{epsilon}.txt"
                fields = path.with_suffix(".json")
                if path.is_file():
                    content = artifacts.read_json(fields) if fields.is_file() else {}
                    text = path.read_text(encoding="utf-8")
                    yield Statement(dataset, method, epsilon, ALL_SEEDS, text, content, system)
