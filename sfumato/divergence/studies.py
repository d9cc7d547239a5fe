"""The figures of the comparison: many estimates of a cell, summed up over pairs and seeds.

>>> import numpy as np
>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import Reference
>>> values = np.repeat(np.arange(3), [300, 300, 400]).astype(np.int32)
>>> pair = Pair.of("example", Reference.from_probabilities([0.5, 0.3, 0.2]), values, np.arange(1000) // 10)
>>> cell = Cell("epsilon", "1", "all_cells", Setting(Floor("mix", 0.1)), 1.0)
>>> found = measure(cell, [pair], {"0": Streams(0), "1": Streams(1)}, smoothing=0.01)
>>> found.values["seeds"], found.values["pairs"], round(found.values["divergence"], 4)
(2, 1, 0.1145)

An error of a seed is the mean over the pairs; intervals are Student's over seeds. The pairs are fixed: they are not a
sample of anything, and an interval does not say what other pairs would give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dp_accounting import DpEvent

from sfumato.divergence.comparisons import Pair
from sfumato.divergence.experiment import Found, Setting, estimate
from sfumato.divergence.methods import get_method
from sfumato.records import MeanInterval, Value, mean_and_interval
from sfumato.rng import Streams

ONE_SEED = "one seed has no spread"
NO_NOISE = "no noise is added"
NO_INTERVAL = "no interval was computed"


@dataclass(frozen=True)
class Cell:
    """What is estimated.

    Attributes:
        study: which number is varied: ``epsilon``, ``coefficient``, ``points``, ``batches``, ``floor`` or ``pair``.
        value: its text.
        method: by name.
        setting: all public numbers.
        epsilon: None without privacy.
        interval: whether intervals are computed and held against what they are for.
    """

    study: str
    value: str
    method: str
    setting: Setting
    epsilon: float | None
    interval: bool = False


@dataclass(frozen=True, eq=False)
class Measured:
    """What a cell gave.

    Attributes:
        values: for a record.
        events: seed -> pair -> the events of that estimate.
        estimates: seed -> pair -> the estimate.
    """

    values: dict[str, Value]
    events: dict[str, dict[str, tuple[DpEvent, ...]]]
    estimates: dict[str, dict[str, Found]]


def measure(cell: Cell, pairs: Sequence[Pair], seeds: Mapping[str, Streams], smoothing: float) -> Measured:
    """Estimate every pair with every seed, and sum up.

    Args:
        cell: what.
        pairs: at least one.
        seeds: seed's text -> its randomness.
        smoothing: s of the truth that errors are measured against.

    Raises:
        SfumatoError: as ``estimate``.
    """
    found = {
        seed: {
            pair.name: estimate(cell.method, pair, cell.setting, cell.epsilon, streams, cell.interval)
            for pair in pairs
        }
        for seed, streams in seeds.items()
    }
    truths = {pair.name: pair.divergence(smoothing) for pair in pairs}
    rows = {seed: [(one, truths[name]) for name, one in own.items()] for seed, own in found.items()}
    values: dict[str, Value] = {
        "divergence": _mean(list(truths.values())),
        "target": _mean([one.target for own in rows.values() for one, _truth in own]),
        "pairs": len(pairs),
        "infinite": sum(not math.isfinite(pair.divergence()) for pair in pairs),
        "seeds": len(rows),
        "smoothing": smoothing,
    }
    errors = {seed: _mean([abs(o.raw - t) for o, t in own]) for seed, own in rows.items()}
    values |= _spread("absolute_error", list(errors.values()))
    if cell.study != "pair":  # methods share points and noise of a seed, so differences are paired by seed
        values |= {f"absolute_error_seed_{seed}": error for seed, error in errors.items()}
    values |= _spread(
        "target_error", [_mean([abs(o.raw - o.target) for o, _t in own]) for own in rows.values()]
    )
    values |= _spread("bias", [_mean([o.raw - o.target for o, _t in own]) for own in rows.values()])
    values |= _noise_and_coverage([one for own in rows.values() for one, _truth in own])
    events = {seed: {name: one.events for name, one in own.items()} for seed, own in found.items()}
    return Measured(values, events, found)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _spread(name: str, values: Sequence[float]) -> dict[str, Value]:
    found: MeanInterval = mean_and_interval(list(values))
    half: dict[str, Value] = {f"{name}_half_width": found.half_width}
    if found.half_width is None:
        half[f"{name}_half_width_reason"] = ONE_SEED
    return {name: found.mean, **half}


def _noise_and_coverage(found: Sequence[Found]) -> dict[str, Value]:
    noises = [one.noise_std for one in found if one.noise_std is not None]
    values: dict[str, Value] = {"noise_std": _mean(noises) if noises else None}
    if not noises:
        values["noise_std_reason"] = NO_NOISE
    held = [
        one.interval[0] <= one.interval_target <= one.interval[1]
        for one in found
        if one.interval is not None and one.interval_target is not None
    ]
    values["covered"] = _mean([float(inside) for inside in held]) if held else None
    if not held:
        values["covered_reason"] = NO_INTERVAL
    return values


def epsilon_cells(
    methods: Sequence[str], epsilons: Mapping[str, float], setting: Setting, with_intervals: bool
) -> list[Cell]:
    """Every method at every epsilon; without privacy once, at the text ``inf``."""
    cells: list[Cell] = []
    for name in methods:
        if not get_method(name).private:
            cells.append(Cell("epsilon", "inf", name, setting, None))
            continue
        released = get_method(name).trust == "central" and name != "histogram"
        cells += [
            Cell("epsilon", text, name, setting, epsilon, with_intervals and released)
            for text, epsilon in epsilons.items()
        ]
    return cells
