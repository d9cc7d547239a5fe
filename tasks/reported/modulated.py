"""What the report reads of the modulated system: its records, statements, tuning tables and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tasks import command
from tasks.reported.files import belongs, documents, seeds_of, shared_statements

if TYPE_CHECKING:
    from sfumato.params import Params
    from sfumato.records import Record
    from sfumato.report import Run, Statement

SYSTEM = "modulated"


def current(call: command.Call, name: tuple[str, str]) -> Run:
    """The run whose files lie in the tree.

    Args:
        call: whose parameters say what belongs to the run.
        name: profile and variant.
    """
    from sfumato.report import run_of

    found = documents(call.root / "data" / "metrics" / SYSTEM)
    train = call.params.modulated.train
    settings = {"rounds": float(train.rounds), "confidence": train.confidence}
    return run_of(name[0], SYSTEM, name[1], found, keep=_in_grid(call.params), settings=settings)


def _in_grid(params: Params) -> Callable[[str, Record], bool]:
    """Whether a record belongs to the modulated part of the parameters; methods without privacy are at inf."""
    from sfumato.records import epsilon_text

    grid, attack = params.modulated.grid, params.modulated.attack
    fits = {
        "dataset": set(grid.datasets),
        "method": set(grid.methods),
        "epsilon": {*(epsilon_text(e) for e in grid.epsilons), "inf"},
        "seed": set(seeds_of(grid.seeds)),
    }
    attacked = {"dataset": set(attack.datasets), "epsilon": {epsilon_text(e) for e in attack.epsilons}}
    cells = {
        "attack": {**attacked, "messages": {str(count) for count in attack.messages}},
        "audit": {**attacked, "method": set(attack.audit_methods)},
    }

    def keep(step: str, record: Record) -> bool:
        return belongs(record, cells.get(step, fits))

    return keep


def statements(call: command.Call) -> Iterator[Statement]:
    """The statements, each of which is one for all seeds."""
    return shared_statements(call.root, SYSTEM, call.params.modulated.grid)


def tunings(call: command.Call) -> Iterator[Mapping[str, str]]:
    """Rows of the modulated tuning tables that lie in the grid."""
    from sfumato import artifacts
    from sfumato.records import epsilon_text

    grid = call.params.modulated.grid
    epsilons = {epsilon_text(value) for value in grid.epsilons}
    for dataset in grid.datasets:
        path = call.root / "data" / "plots" / SYSTEM / "train" / f"{dataset}.csv"
        for row in artifacts.read_csv(path) if path.is_file() else []:
            if row["method"] in grid.methods and row["epsilon"] in epsilons:
                yield {**row, "system": SYSTEM, "dataset": dataset}


def settings(params: Params) -> dict[str, Any]:
    """Facts of the modulated part of the parameters that the page names."""
    client, train = params.modulated.client, params.modulated.train
    facts = [
        ("privacy.delta", f"{params.privacy.delta:g}"),
        ("modulated.client.radius_share", f"{client.radius_share:g} of the public radius R"),
        ("modulated.client.shrinkage", f"{client.shrinkage:g} (α)"),
        ("modulated.client.amplitude", f"{client.amplitude:g} R (λ)"),
        ("modulated.client.frequency", f"{client.frequency:g} / R (ω)"),
        ("modulated.client.directions", f"{client.directions} (m)"),
        ("modulated.client.labels", client.labels),
        ("modulated.client.rule", client.rule),
        ("modulated.train.rounds", f"{train.rounds}"),
        ("modulated.train.server_steps", f"{train.server_steps}"),
        ("modulated.train.coefficient_bound", f"{train.coefficient_bound:g}"),
        ("modulated.train.strength", f"{train.strength:g} (ridge and floor)"),
        ("modulated.train.confidence", f"{train.confidence:g}"),
    ]
    return {"modulated_facts": facts, "modulated_labels": client.labels}
