"""From a cell's name and the parameters to the objects of the divergence library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato import datasets
from sfumato.divergence.comparisons import CompareSetting, Pair, compare
from sfumato.divergence.experiment import Setting
from sfumato.divergence.plan import Floor
from sfumato.params.divergence import UNSUITABLE
from sfumato.rng import Streams
from tasks.command import Call
from tasks.data_cells import RELEASE, prepared_path

if TYPE_CHECKING:
    from sfumato.datasets.population import Population

PUBLIC_SEED = 3_000_000
"""Of which examples a mixed population takes: the population is the data, and the same for every seed."""


def setting_of(call: Call) -> Setting:
    """The public numbers of the estimates."""
    train = call.params.divergence.train
    return Setting(
        Floor(train.floor, train.floor_level),
        None if train.coefficient == "chosen" else train.coefficient,
        points=train.points,
        batches=train.batches,
        delta=call.params.privacy.delta,
        confidence=train.confidence,
        sampling=train.sampling_variance,
        variance_share=train.budget_share,
    )


def comparisons_of(call: Call) -> tuple[str, ...]:
    """The parameters' comparisons that the cell's data set has."""
    name, wanted = call.options["dataset"], call.params.divergence.grid.comparisons
    return tuple(comparison for comparison in wanted if (name, comparison) not in UNSUITABLE)


def population_of(call: Call) -> Population:
    """The cell's prepared population."""
    return datasets.load(prepared_path(call), datasets.Population)


def pairs_of(
    call: Call, population: Population, comparison: str, shares: tuple[float, ...] = ()
) -> list[Pair]:
    """The pairs of a comparison, at the parameters' shares of drift or at those given."""
    train = call.params.divergence.train
    setting = CompareSetting(
        train.minimum_probability, shares or train.drift_shares, train.drift, train.examples
    )
    return compare(population, comparison, setting, Streams(PUBLIC_SEED))


def streams_of(call: Call) -> dict[str, Streams]:
    """The streams of every run, by the seed's text; one unseeded run in release mode."""
    seeds = call.params.divergence.grid.seeds
    if call.params.privacy.mode == "release" or seeds is None:
        return {RELEASE: Streams(None, "release")}
    return {str(seed): Streams(seed) for seed in seeds}
