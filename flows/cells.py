"""What a run measured, cell by cell: the metrics of dvc.lock's stages, grouped by their levels but the seed.

>>> from sfumato.records import Record
>>> records = [Record({"dataset": "mnist", "seed": s}, {"test_accuracy": a}) for s, a in (("0", 0.5), ("1", 1.0))]
>>> for name, value in sorted(metric_values("train", records).items()):
...     print(name, value)
train/seed_0/test_accuracy 0.5
train/seed_1/test_accuracy 1.0
train/test_accuracy 0.75

Reads files, knows nothing of MLflow. Only what dvc.lock records is taken: a file that a killed stage left
is no output of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from flows.errors import FlowError
from flows.publish import finished_files
from flows.recovery import read_lock
from sfumato.artifacts import read_csv, read_json
from sfumato.records import Record, from_document

MAX_POINTS = 200
_NAME = re.compile(r"[a-z0-9_/.+-]+")
Levels = tuple[tuple[str, str], ...]
Series = list[tuple[int, float]]


@dataclass
class Cell:
    """One cell of the comparison.

    Attributes:
        system: such as ``topk``.
        levels: level name and text, without the seed.
        entries: the dvc.lock entries of the stages that contribute, by stage.
        metrics: name -> finite value.
        notes: name -> why a value is missing.
        curves: name -> points (step, value), at most `MAX_POINTS`.
        files: statements that belong to the cell.
    """

    system: str
    levels: Levels
    entries: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    curves: dict[str, Series] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The system and the level texts, joined by hyphens."""
        return "-".join([self.system, *(text for _, text in self.levels)])

    @property
    def key(self) -> str:
        """Hash of the cell's place and of the dvc.lock entries that it comes from."""
        text = json.dumps([self.system, self.levels, self.entries], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def params(self) -> dict[str, str]:
        """The parameters of its stages, by dotted key."""
        result: dict[str, str] = {}
        for entry in self.entries.values():
            for values in (entry.get("params") or {}).values():
                result.update(flat(values))
        return result


def read_cells(lock: Path, metrics_root: Path, root: Path) -> list[Cell]:
    """Read the cells of a run.

    Args:
        lock: its dvc.lock.
        metrics_root: folder in which its metrics lie, by their paths in dvc.lock.
        root: folder of all its other outputs.

    Raises:
        SfumatoError: if a recorded metrics file is damaged.
        FlowError: if a metric has a name that the rules do not allow.
    """
    stages = read_lock(lock) or {}
    present = {*finished_files(root, stages), *finished_files(metrics_root, stages)}
    cells: dict[tuple[str, Levels], Cell] = {}
    for name, entry in sorted(stages.items()):
        files = [path for path in present if _made_by(path, entry)]
        for path in sorted(files):
            if path.startswith("data/metrics/") and path.endswith(".json"):
                _add_metrics(cells, name, entry, read_json(metrics_root / path))
    for name, entry in sorted(stages.items()):
        for path in sorted(path for path in present if _made_by(path, entry)):
            if path.startswith("data/plots/") and path.endswith(".csv"):
                _add_curves(
                    [cell for cell in cells.values() if name in cell.entries], path, read_csv(root / path)
                )
            elif path.startswith("data/statements/"):
                _add_statement(cells.values(), path, root)
    return [cells[place] for place in sorted(cells)]


def _made_by(path: str, entry: Mapping[str, Any]) -> bool:
    return any(
        path == out["path"] or path.startswith(out["path"].rstrip("/") + "/") for out in entry.get("outs", [])
    )


def _add_metrics(cells: dict[tuple[str, Levels], Cell], stage: str, entry: Any, document: Any) -> None:
    """Spread the records of one document over the cells."""
    groups: dict[Levels, list[Record]] = defaultdict(list)
    for record in from_document(document):
        groups[tuple((k, v) for k, v in record.levels.items() if k != "seed")].append(record)
    system, step = document["system"], document["step"]
    for levels, records in groups.items():
        cell = cells.setdefault((system, levels), Cell(system, levels))
        cell.entries[stage] = entry
        cell.metrics.update(metric_values(step, records))
        cell.notes.update(missing_values(step, records))


def metric_values(step: str, records: Sequence[Record]) -> dict[str, float]:
    """Values for the comparison: each seed's own, and the mean where every seed has one.

    Raises:
        FlowError: if a name holds anything but ``a-z 0-9 _ /`` and the like.
    """
    result: dict[str, float] = {}
    sums: dict[str, list[float]] = defaultdict(list)
    for record in records:
        seed = record.levels.get("seed")
        for name, value in record.values.items():
            if isinstance(value, bool | int | float) and math.isfinite(value):
                sums[name].append(float(value))
                if seed is not None:
                    result[checked_name(f"{step}/seed_{seed}/{name}")] = float(value)
    for name, values in sums.items():
        if len(values) == len(records):
            result[checked_name(f"{step}/{name}")] = math.fsum(values) / len(values)
    return result


def missing_values(step: str, records: Sequence[Record]) -> dict[str, str]:
    """Reasons of the values that are missing, by the name that the value would have."""
    result: dict[str, str] = {}
    for record in records:
        seed = record.levels.get("seed")
        place = step if seed is None else f"{step}/seed_{seed}"
        for name, value in record.values.items():
            if value is None:
                result[checked_name(f"{place}/{name}")] = str(
                    record.values.get(f"{name}_reason", "not known")
                )
    return result


def checked_name(name: str) -> str:
    """The name, if every tool that shows it takes it.

    >>> checked_name("train/test_accuracy")
    'train/test_accuracy'

    Raises:
        FlowError: if it does not consist of ``a-z 0-9 _ / . + -``.
    """
    if not _NAME.fullmatch(name):
        raise FlowError(
            f"metric name {name!r} is not allowed; allowed are the characters a-z 0-9 _ / . + and -."
        )
    return name


def _add_curves(cells: Sequence[Cell], path: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Add the curves of one file to the cells whose levels its rows name."""
    if not rows or "step" not in rows[0]:
        return
    step_name = PurePosixPath(path).parts[3]
    for cell in cells:
        levels = dict(cell.levels)
        named = {name for name in rows[0] if name in levels}
        own = [row for row in rows if all(row[name] == levels[name] for name in named)]
        for column in rows[0]:
            if column in {"step", "seed"} | named:
                continue
            for seed, points in _series(own, column).items():
                place = step_name if seed is None else f"{step_name}/seed_{seed}"
                cell.curves[checked_name(f"curves/{place}/{column.lower()}")] = thinned(points)


def _series(rows: Sequence[Mapping[str, str]], column: str) -> dict[str | None, Series]:
    result: dict[str | None, Series] = defaultdict(list)
    for row in rows:
        try:
            step, value = int(float(row["step"])), float(row[column])
        except ValueError:
            continue
        if math.isfinite(value):
            result[row.get("seed")].append((step, value))
    return result


def thinned(points: Series, most: int = MAX_POINTS) -> Series:
    """At most ``most`` of the points, evenly, the first and the last among them.

    >>> thinned([(i, float(i)) for i in range(5)], 3)
    [(0, 0.0), (2, 2.0), (4, 4.0)]
    """
    if len(points) <= most:
        return points
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def _add_statement(cells: Any, path: str, root: Path) -> None:
    """Give a statement to the cell whose level texts its path is made of."""
    parts = PurePosixPath(path).with_suffix("").parts
    texts = sorted("-".join(parts[3:]).split("-"))
    for cell in cells:
        if cell.system == parts[2] and texts == sorted("-".join(text for _, text in cell.levels).split("-")):
            cell.files.append(root / path)


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Nested parameters by dotted key, as text.

    >>> flat({"topk": {"steps": 3, "seeds": [0, 1]}})
    {'topk.steps': '3', 'topk.seeds': '[0, 1]'}
    """
    if not isinstance(value, Mapping):
        return {prefix: str(value)}
    result: dict[str, str] = {}
    for key, child in value.items():
        result.update(flat(child, f"{prefix}.{key}" if prefix else str(key)))
    return result
