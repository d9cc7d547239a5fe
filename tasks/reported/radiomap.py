"""What the report reads of the radio map system: its records, curves, pictures, statements and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tasks import command
from tasks.reported.files import Levels, belongs, documents, seeds_of

if TYPE_CHECKING:
    from sfumato.params.radiomap import Radiomap
    from sfumato.records import Record
    from sfumato.report import RadiomapPictures, Run, Statement

SYSTEM = "radiomap"
NO_NOISE = "0"


def _params(call: command.Call) -> Radiomap | None:
    """This system's parameters; None where the grid has no data set."""
    params = call.params.radiomap
    return params if params.grid.datasets else None


def _multipliers(params: Radiomap) -> list[str]:
    """The noise multipliers as records have them; 0 is that of defences without noise."""
    return [NO_NOISE, *(f"{value:g}" for value in params.grid.multipliers)]


def current(call: command.Call, name: tuple[str, str]) -> tuple[Run, ...]:
    """The run whose files lie in the tree; nothing where the grid has no data set.

    Args:
        call: whose parameters say what belongs to the run.
        name: profile and variant.
    """
    from sfumato.report import run_of

    params = _params(call)
    if params is None:
        return ()
    found = documents(call.root / "data" / "metrics" / SYSTEM)
    return (run_of(name[0], SYSTEM, name[1], found, keep=_in_grid(params), settings={}),)


def _in_grid(params: Radiomap) -> Callable[[str, Record], bool]:
    """Whether a record belongs to these parameters; files of other grids may lie beside."""
    grid = params.grid
    allowed: Levels = {
        "dataset": set(grid.datasets),
        "method": set(grid.defences),
        "multiplier": set(_multipliers(params)),
        "seed": set(seeds_of(grid.seeds)),
    }

    def keep(_step: str, record: Record) -> bool:
        return belongs(record, allowed)

    return keep


def curves(call: command.Call) -> Iterator[Mapping[str, str]]:
    """Rows of the training curves of the grid, with system, data set and defence."""
    from sfumato import artifacts

    params = _params(call)
    if params is None:
        return
    seeds, multipliers = set(seeds_of(params.grid.seeds)), set(_multipliers(params))
    for dataset in params.grid.datasets:
        for method in params.grid.defences:
            path = call.root / "data" / "plots" / SYSTEM / "train" / f"{dataset}-{method}.csv"
            for row in artifacts.read_csv(path) if path.is_file() else []:
                if row["seed"] in seeds and row["multiplier"] in multipliers:
                    yield {**row, "system": SYSTEM, "dataset": dataset, "method": method}


def pictures(call: command.Call) -> Iterator[RadiomapPictures]:
    """The pictures of every data set that has some."""
    from sfumato import artifacts
    from sfumato.report import pictures_of

    params = _params(call)
    for dataset in () if params is None else params.grid.datasets:
        path = call.root / "data" / "plots" / SYSTEM / "pictures" / f"{dataset}.npz"
        if path.is_file():
            yield pictures_of(dataset, artifacts.read_npz(path))


def statements(call: command.Call) -> Iterator[Statement]:
    """The statements, each of which is one for all seeds."""
    from sfumato import artifacts
    from sfumato.report import Statement
    from sfumato.report.study import ALL_SEEDS

    params = _params(call)
    if params is None:
        return
    for dataset in params.grid.datasets:
        for method in params.grid.defences:
            for multiplier in _multipliers(params):
                path = call.root / "data" / "statements" / SYSTEM / dataset / f"{method}-{multiplier}.txt"
                fields = path.with_suffix(".json")
                if path.is_file():
                    content = artifacts.read_json(fields) if fields.is_file() else {}
                    text = path.read_text(encoding="utf-8")
                    yield Statement(dataset, method, multiplier, ALL_SEEDS, text, content, SYSTEM)


def settings(call: command.Call) -> dict[str, Any]:
    """Facts of this part of the parameters that the page names."""
    params = _params(call)
    if params is None:
        return {}
    maps, train, attack = params.maps, params.train, params.attack
    facts = [
        ("privacy.delta", f"{call.params.privacy.delta:g}"),
        ("radiomap.grid.matching", f"{params.grid.matching} (what equal ν means)"),
        ("radiomap.maps.clients", ", ".join(maps.clients)),
        ("radiomap.maps.shadow", f"{', '.join(maps.shadow)} (public, and the attacker’s)"),
        ("radiomap.maps.validation", ", ".join(maps.validation)),
        (
            "radiomap.maps.window",
            f"{maps.window:g} m, every {maps.stride:g} m, cells of {maps.cell:g} m",
        ),
        ("radiomap.maps.frequency", f"{maps.frequency / 1e9:g} GHz"),
        ("radiomap.network.width", f"{params.network.width:g}"),
        ("radiomap.network.padding", params.network.padding),
        ("radiomap.warmup.steps", f"{params.warmup.steps:,} (on public maps)"),
        ("radiomap.train.clients", f"{train.clients}, {train.active} of them active in a round"),
        ("radiomap.train.rounds", f"{train.rounds:,}"),
        ("radiomap.train.maps_per_upload", f"{train.maps_per_upload}"),
        (
            "radiomap.train.optimizer",
            f"{train.optimizer}, {train.learning_rate:g}, {train.epochs} local epoch{'s' if train.epochs > 1 else ''}",
        ),
        ("radiomap.train.loss_margin", f"{train.loss_margin} cells"),
        ("radiomap.attack.shadow_uploads", f"{attack.shadow_uploads:,}"),
        ("radiomap.attack.client_uploads", f"{attack.client_uploads:,}"),
        ("radiomap.attack.trajectory", f"{attack.trajectory} (at whose weights defences are attacked)"),
        ("radiomap.attack.rounds", ", ".join(str(number) for number in attack.rounds)),
    ]
    return {"radiomap_facts": facts, "radiomap_own_weights": attack.trajectory == "own"}
