"""What a private step costs: the committed rows of the engine's benchmark, for the page and the documents.

>>> rows = engine_rows([{"model": "cnn32", "engine": "planned", "support": "full", "active_ratio": 1.0, "seconds": 1.25,
...     "ratio_tuned_nonprivate": 1.25, "speedup_opacus": 4.0, "speedup_opacus_tuned": 2.0, "peak_mb": 470.0}])
>>> rows[0].steps_per_second, round(rows[0].privacy_share, 9)
(0.8, 0.2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sfumato.errors import SfumatoError

ENGINE_MARKERS: Final = ("<!-- engine:begin -->", "<!-- engine:end -->")
MODELS: Final = {"cnn32": "CIFAR-10 network", "cnn28": "MNIST network", "mlp": "784-512-256-10"}
ENGINES: Final = {
    "nonprivate_tuned": "no privacy, tuned",
    "nonprivate_naive": "no privacy, as it comes",
    "planned": "planned",
    "planned_torch": "planned, torch kernels",
    "functional": "functional",
    "opacus": "Opacus, as it comes",
    "opacus_tuned": "Opacus, tuned",
    "opacus_ghost": "Opacus, ghost clipping",
}
_NUMBERS: Final = (
    "active_ratio",
    "seconds",
    "ratio_tuned_nonprivate",
    "speedup_opacus",
    "speedup_opacus_tuned",
)


@dataclass(frozen=True)
class EngineRow:
    """One engine on one model and support, as ``benchmarks/engine.py`` prints it.

    Attributes:
        model: its name.
        engine: its name.
        support: ``full``, ``random`` or ``rows``.
        active_ratio: part of the coordinates that is active.
        seconds: processor time of a step on a batch of 512.
        ratio: of that to plain SGD's, tuned.
        opacus: how many times as fast as Opacus; on the MLP, as its ghost clipping.
        opacus_tuned: the same against the tuned one.
        peak_mb: peak memory of a process of its own, megabytes; None where it was not measured.
    """

    model: str
    engine: str
    support: str
    active_ratio: float
    seconds: float
    ratio: float
    opacus: float
    opacus_tuned: float
    peak_mb: float | None

    @property
    def steps_per_second(self) -> float:
        """Steps in a second of one core."""
        return 1.0 / self.seconds

    @property
    def privacy_share(self) -> float:
        """The part of the step that plain SGD does not need; below 0 where the private step is the cheaper one."""
        return 1.0 - 1.0 / self.ratio


def engine_rows(document: Any) -> list[EngineRow]:
    """The rows of ``python -m benchmarks.engine --json``; those of the imports alone are left out.

    Raises:
        SfumatoError: if it is no such list.
    """
    if not isinstance(document, Sequence):
        raise SfumatoError(
            f"the engine's benchmark is a {type(document).__name__}; allowed is a list of rows as benchmarks.engine prints."
        )
    rows = [_row(row) for row in cast("Sequence[object]", document)]
    return [row for row in rows if row is not None]


def _row(row: object) -> EngineRow | None:
    """The row; None for one of imports."""
    try:
        found = cast("Mapping[str, Any]", row)
        if found["engine"] == "imports":
            return None
        ratio, seconds, slower, opacus, tuned = (float(found[name]) for name in _NUMBERS)
        peak = None if found["peak_mb"] is None else float(found["peak_mb"])
        names = str(found["model"]), str(found["engine"]), str(found["support"])
    except (KeyError, TypeError, ValueError) as error:
        raise SfumatoError(
            f"a row of the engine's benchmark lacks a number ({error}); allowed are rows as benchmarks.engine prints."
        ) from None
    return EngineRow(*names, ratio, seconds, slower, opacus, tuned, peak)


def engine_cells(row: EngineRow) -> list[str]:
    """A row as text: model, engine, support, steps per second, share of privacy, and the benchmark's columns."""
    support = "all" if row.support == "full" else f"{row.support}, {row.active_ratio:.0%}"
    private = not row.engine.startswith("nonprivate")
    share = "–" if not private else f"{row.privacy_share:.0%}" if row.privacy_share > 0 else "none"
    return [
        MODELS.get(row.model, row.model),
        ENGINES.get(row.engine, row.engine),
        support,
        f"{row.steps_per_second:.3g}",
        share,
        f"{row.ratio:.2f}",
        f"{row.opacus:.2f}",
        f"{row.opacus_tuned:.2f}",
        "–" if row.peak_mb is None else f"{row.peak_mb:.0f}",
    ]


HEADINGS: Final = (
    "model",
    "engine",
    "support",
    "steps / s",
    "privacy's share",
    "÷ plain SGD, tuned",
    "× Opacus",
    "× Opacus, tuned",
    "peak MB",
)


def engine_markdown(rows: Sequence[EngineRow]) -> str:
    """The table between the markers of docs/engine.md."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(engine_cells(row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def engine_section(rows: Sequence[EngineRow]) -> dict[str, Any]:
    """What the page names of the engine: plain SGD and the planned engine on the networks of this system."""
    shown = [row for row in rows if row.engine in ("nonprivate_tuned", "planned") and row.model != "mlp"]
    return {"headings": HEADINGS, "rows": [engine_cells(row) for row in shown]}
