"""The part of params.yaml that describes the divergence system.

>>> sorted(Divergence.model_fields)
['attack', 'drift', 'grid', 'studies', 'timeline', 'train']
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sfumato.params.drift import Drift
from sfumato.params.fields import (
    Epsilons,
    OpenUnit,
    Positive,
    Ratio,
    Section,
    Seeds,
    distinct,
    filled,
)

PopulationName = Literal["mnist_population", "femnist_population", "generated_population"]
Comparison = Literal["digits", "codes", "labels", "labels_series"]
DivergenceMethod = Literal[
    "non_private",
    "trusted_aggregator",
    "all_cells",
    "per_batch",
    "distributed",
    "local_mix",
    "local_clip",
    "histogram",
]
UNSUITABLE = {("generated_population", "digits")}
"""Comparisons that a data set does not have: a generated population has no images of digits."""
RELEASED_METHODS = ("trusted_aggregator", "all_cells", "per_batch", "distributed")
"""Methods with a release mode."""
PopulationNames = Annotated[tuple[PopulationName, ...], AfterValidator(distinct)]
Methods = Annotated[tuple[DivergenceMethod, ...], AfterValidator(filled)]
Points = Annotated[int, Field(ge=1, le=10_000)]
Batches = Annotated[int, Field(ge=1, le=10_000)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Coefficient = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class DivergenceGrid(Section):
    """The cells of the divergence system: a stage per data set, all else is looped inside. No data set: left out."""

    datasets: PopulationNames
    comparisons: Annotated[tuple[Comparison, ...], AfterValidator(filled)]
    methods: Methods
    epsilons: Annotated[Epsilons, AfterValidator(filled)]
    seeds: Seeds | None


class DivergenceTrain(Section):
    """The estimator's public numbers."""

    minimum_probability: Annotated[float, Field(gt=0, lt=0.5, allow_inf_nan=False)]
    drift: Literal["labels", "series"]
    drift_shares: Annotated[tuple[Share, ...], AfterValidator(filled)]
    examples: Annotated[int, Field(ge=2, le=10**7)]
    smoothing: OpenUnit
    points: Points
    coefficient: Coefficient | Literal["chosen"]
    floor: Literal["mix", "clip"]
    floor_level: OpenUnit
    batches: Batches
    confidence: OpenUnit
    protocol_clients: Annotated[int, Field(ge=3, le=10_000)]
    sampling_variance: Literal["public_bound", "budget_share"]
    budget_share: OpenUnit


class DivergenceStudies(Section):
    """Values that are tried one at a time around train's, without changing anything else."""

    epsilon: Positive
    coefficients: Annotated[tuple[Coefficient, ...], AfterValidator(distinct)]
    points: Annotated[tuple[Points, ...], AfterValidator(distinct)]
    batches: Annotated[tuple[Batches, ...], AfterValidator(distinct)]
    floor_levels: Annotated[tuple[OpenUnit, ...], AfterValidator(distinct)]


class DivergenceTimeline(Section):
    """A population that drifts, watched check by check; no data set: left out."""

    datasets: PopulationNames
    checks: Annotated[int, Field(ge=2, le=10_000)]
    epsilon: Positive
    yearly_epsilon: Positive
    threshold: Positive
    correction: Literal["none", "bonferroni"]
    floor_level: OpenUnit
    drift_at: Annotated[int, Field(ge=0, le=10_000)]
    drift_share: Ratio


class DivergenceAttack(Section):
    """The audit by repeated runs on neighbouring data sets; no data set: not run."""

    datasets: PopulationNames
    methods: Annotated[tuple[Literal["trusted_aggregator", "all_cells"], ...], AfterValidator(distinct)]
    epsilons: Epsilons
    runs: Annotated[int, Field(ge=100, le=10**8)]
    confidence: OpenUnit


class Divergence(Section):
    """Everything of the divergence system."""

    grid: DivergenceGrid
    train: DivergenceTrain
    studies: DivergenceStudies
    timeline: DivergenceTimeline
    attack: DivergenceAttack
    drift: Drift

    @model_validator(mode="after")
    def _comparisons_suit_the_data(self) -> Self:
        for name in self.grid.datasets:
            if all((name, comparison) in UNSUITABLE for comparison in self.grid.comparisons):
                raise ValueError(
                    f"divergence.grid.comparisons is {list(self.grid.comparisons)}; allowed is at least one that {name} has"
                )
        return self

    @model_validator(mode="after")
    def _further_stages_lie_in_the_grid(self) -> Self:
        for section, names in (
            ("timeline", self.timeline.datasets),
            ("attack", self.attack.datasets),
        ):
            outside = [name for name in names if name not in self.grid.datasets]
            if outside:
                raise ValueError(
                    f"divergence.{section}.datasets holds {outside[0]!r}; allowed is what divergence.grid.datasets holds"
                )
        if self.timeline.datasets and self.timeline.drift_at >= self.timeline.checks:
            raise ValueError(
                f"divergence.timeline.drift_at is {self.timeline.drift_at}; allowed is less than the "
                f"{self.timeline.checks} checks"
            )
        if self.attack.datasets and self.train.sampling_variance == "budget_share":
            raise ValueError(
                f"divergence.attack.datasets is {list(self.attack.datasets)} with sampling_variance 'budget_share'; allowed is [], "
                "since the audit knows releases of one number only"
            )
        if self.attack.datasets and not (self.attack.epsilons and self.attack.methods):
            raise ValueError(
                "divergence.attack has datasets without epsilons or methods; allowed is at least one of each"
            )
        return self
