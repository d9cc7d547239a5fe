"""Variants of a radio map run beside its profile's base run: which there are, and the figures of both; no formatting.

>>> runs = [Run("medium", "radiomap", name, {}) for name in ("base", "radiomap_own", "radiomap_circular")]
>>> [run.variant for run in variants_of(runs)]
['radiomap_circular', 'radiomap_own']
>>> changed("own")(runs)[0].variant
'radiomap_own'

A variant differs from the base run in one setting and has the same seeds: the maps, the transmitters and the schedule are the
same, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sfumato.records import MeanInterval
from sfumato.report.radiomap_tables import (
    Cell,
    Reading,
    cells_of,
    datasets_of,
    errors,
    mean,
    read,
    rounds_of,
    seed_gaps,
    utility,
)
from sfumato.report.study import BASE, Run, bases, paired
from sfumato.report.vocabulary import RADIOMAP_VARIANTS

OWN = "own"
"""The variant in which every defence is attacked at the weights of its own training."""
CONSTANT = Reading("constant")


@dataclass(frozen=True)
class VariantRow:
    """One defence in one variant; means over seeds.

    Attributes:
        dataset, method, multiplier: where; the multiplier is 0 without noise.
        round: the last round whose updates are attacked.
        validation: error in dB.
        best: error in metres of the attacker chosen by validation, who reads one whole update, at that round.
        constant: of the constant guess at that round.
        utility_change, privacy_change: against the same defence in the base run, paired over seeds, in dB and metres, the
            latter at the last round that both were attacked at; None for the base run itself, and without a shared seed.
    """

    dataset: str
    method: str
    multiplier: str
    round: str
    validation: MeanInterval | None
    best: MeanInterval | None
    constant: MeanInterval | None
    utility_change: MeanInterval | None
    privacy_change: MeanInterval | None


def variants_of(runs: Sequence[Run]) -> list[Run]:
    """The runs in which something was varied: those that have a description in its order, then others by name."""
    names = list(RADIOMAP_VARIANTS)

    def place(run: Run) -> tuple[int, str]:
        return names.index(run.change) if run.change in names else len(names), run.variant

    return sorted((run for run in runs if run.variant != BASE), key=place)


def changed(name: str) -> Callable[[Sequence[Run]], list[Run]]:
    """A choice among a profile's runs: the one with this change, with or without the system's name before it, or none."""

    def choose(runs: Sequence[Run]) -> list[Run]:
        return [run for run in variants_of(runs) if run.change == name][:1]

    return choose


def base_of(runs: Sequence[Run]) -> Run | None:
    """The run of a profile in which nothing was varied, or None."""
    return next(iter(bases(runs)), None)


def error_change(run: Run, base: Run, cell: Cell) -> MeanInterval | None:
    """The attacker's error in a variant less that in the base run in metres, at the last round that both were attacked at."""
    side = (cell, Reading())
    return mean(seed_gaps(run, side, side, base))


def utility_change(run: Run, base: Run, cell: Cell) -> MeanInterval | None:
    """The validation error in a variant less that in the base run in dB; positive: the variant is worse."""
    return paired(utility(run, cell), utility(base, cell))


def variant_rows(run: Run, base: Run | None) -> list[VariantRow]:
    """A row per data set and defence of a variant, in the report's order.

    Args:
        run: the variant.
        base: what it is held against; None where there is no such run.
    """
    return [_row(run, base, cell) for dataset in datasets_of(run) for cell in cells_of(run, dataset)]


def base_rows(base: Run, variants: Sequence[Run]) -> list[VariantRow]:
    """The base run's own rows of those defences that a variant has, too."""
    cells = {cell for run in variants for dataset in datasets_of(run) for cell in cells_of(run, dataset)}
    return [
        _row(base, None, cell)
        for dataset in datasets_of(base)
        for cell in cells_of(base, dataset)
        if cell in cells
    ]


def _row(run: Run, base: Run | None, cell: Cell) -> VariantRow:
    rounds = rounds_of(read(run, cell, Reading()))
    return VariantRow(
        cell.dataset,
        cell.method,
        cell.multiplier,
        rounds[-1] if rounds else "",
        validation=mean(utility(run, cell)),
        best=mean(errors(run, cell, Reading())),
        constant=mean(errors(run, cell, CONSTANT)),
        utility_change=None if base is None else utility_change(run, base, cell),
        privacy_change=None if base is None else error_change(run, base, cell),
    )
