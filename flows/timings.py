"""How long each stage took, in report/timings.json: facts of this machine, never an output of a stage.

>>> merged({}, [StageTiming("train", "ran", "2024-01-01T00:00:00+00:00", 3.0)])["train"]["last_run_seconds"]
3.0
>>> before = {"train": {"last_run_seconds": 3.0, "last_run_start": "2024-01-01T00:00:00+00:00"}}
>>> merged(before, [StageTiming("train", "cached", "2024-01-02T00:00:00+00:00", 0.1)])["train"]["last_run_seconds"]
3.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMINGS = Path("report") / "timings.json"


@dataclass(frozen=True)
class StageTiming:
    """One stage of one run.

    Attributes:
        name: the stage.
        state: ``ran``, ``cached``, ``failed``, ``stopped`` or ``not run``.
        start: when it began, ISO 8601 with time zone; empty when it was not run.
        seconds: wall-clock seconds that it took.
    """

    name: str
    state: str
    start: str
    seconds: float


def merged(before: Mapping[str, Any], timings: Iterable[StageTiming]) -> dict[str, Any]:
    """Entries of the file after a run; the last real run of a cached stage is kept."""
    result = dict(before)
    for timing in timings:
        entry: dict[str, Any] = {
            "state": timing.state,
            "start": timing.start,
            "seconds": round(timing.seconds, 3),
        }
        old = before.get(timing.name)
        old = old if isinstance(old, dict) else {}
        if timing.state == "ran":
            entry.update(last_run_start=timing.start, last_run_seconds=round(timing.seconds, 3))
        else:
            entry.update({key: old[key] for key in ("last_run_start", "last_run_seconds") if key in old})
        result[timing.name] = entry
    return result


def read_timings(root: Path) -> dict[str, Any]:
    """The stage entries of report/timings.json; empty when it is missing or damaged."""
    from sfumato.artifacts import read_json
    from sfumato.errors import SfumatoError

    try:
        document = read_json(root / TIMINGS)
    except (SfumatoError, OSError):
        return {}
    stages = document.get("stages") if isinstance(document, dict) else None
    return dict(stages) if isinstance(stages, dict) else {}


def write_timings(root: Path, timings: Iterable[StageTiming], run: Mapping[str, Any]) -> None:
    """Merge the timings of a run into report/timings.json, atomically.

    Args:
        root: the repository.
        timings: one entry for each stage of the run.
        run: facts of the whole run: start, seconds, workers, state.
    """
    from sfumato.artifacts import write_json

    write_json(root / TIMINGS, {"run": dict(run), "stages": merged(read_timings(root), timings)})


def last_seconds(root: Path) -> dict[str, float]:
    """Seconds of the last real run of each stage, as far as they are known."""
    return {
        name: float(entry["last_run_seconds"])
        for name, entry in read_timings(root).items()
        if isinstance(entry, dict) and isinstance(entry.get("last_run_seconds"), int | float)
    }
