"""The part of params.yaml that describes the divergence system.

>>> sorted(Divergence.model_fields)
['attack', 'drift', 'grid', 'studies', 'timeline', 'train']
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sfumato.params.drift import Drift
from sfumato.params.fields import (
    Budget,
    Confidence,
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
FloorLevel = Annotated[float, Field(ge=1e-12, lt=1, allow_inf_nan=False)]
EXAMPLES_PER_BATCH = 200
"""With fewer on average, some group of clients could hold too few examples for an estimate."""
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
    examples: Annotated[int, Field(ge=100, le=10**7)]
    smoothing: OpenUnit
    points: Points
    coefficient: Coefficient | Literal["chosen"]
    floor: Literal["mix", "clip"]
    floor_level: FloorLevel
    batches: Batches
    confidence: Annotated[float, Field(gt=0.5, le=1 - 1e-9, allow_inf_nan=False)]
    protocol_clients: Annotated[int, Field(ge=4, le=10_000)]
    sampling_variance: Literal["public_bound", "budget_share"]
    budget_share: Annotated[float, Field(ge=0.01, le=0.99, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _a_variance_is_read_off_two_points(self) -> Self:
        if self.sampling_variance == "budget_share" and self.points < 2:
            raise ValueError(
                f"divergence.train.points is {self.points} with sampling_variance 'budget_share'; allowed is at least 2, since "
                "one point has no variance"
            )
        return self


class DivergenceStudies(Section):
    """Values that are tried one at a time around train's, without changing anything else."""

    epsilon: Budget
    coefficients: Annotated[tuple[Coefficient, ...], AfterValidator(distinct)]
    points: Annotated[tuple[Points, ...], AfterValidator(distinct)]
    batches: Annotated[tuple[Batches, ...], AfterValidator(distinct)]
    floor_levels: Annotated[tuple[FloorLevel, ...], AfterValidator(distinct)]


class DivergenceTimeline(Section):
    """A population that drifts, watched check by check; no data set: left out."""

    datasets: PopulationNames
    checks: Annotated[int, Field(ge=2, le=1000)]
    epsilon: Budget
    yearly_epsilon: Budget
    threshold: Positive
    correction: Literal["none", "bonferroni"]
    floor_level: FloorLevel
    drift_at: Annotated[int, Field(ge=0, le=1000)]
    drift_share: Ratio

    @model_validator(mode="after")
    def _the_year_pays_for_a_check(self) -> Self:
        if self.epsilon > self.yearly_epsilon:
            raise ValueError(
                f"divergence.timeline.epsilon is {self.epsilon:g}; allowed is at most yearly_epsilon, {self.yearly_epsilon:g}"
            )
        return self


class DivergenceAttack(Section):
    """The audit by repeated runs on neighbouring data sets; no data set: not run."""

    datasets: PopulationNames
    methods: Annotated[tuple[Literal["trusted_aggregator", "all_cells"], ...], AfterValidator(distinct)]
    epsilons: Epsilons
    runs: Annotated[int, Field(ge=100, le=10**8)]
    confidence: Confidence


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
    def _every_batch_has_examples(self) -> Self:
        most = max(1, self.train.examples // EXAMPLES_PER_BATCH)
        used = [("studies", number) for number in self.studies.batches]
        if "per_batch" in self.grid.methods:
            used.insert(0, ("train", self.train.batches))
        for section, number in used:
            if number > most:
                raise ValueError(
                    f"divergence.{section}.batches {'is' if section == 'train' else 'holds'} {number}; allowed is at most {most}, "
                    f"one for {EXAMPLES_PER_BATCH} of the {self.train.examples} divergence.train.examples"
                )
        return self

    @model_validator(mode="after")
    def _the_threshold_can_be_reached(self) -> Self:
        highest = -math.log(self.timeline.floor_level)
        if self.train.floor == "mix" and self.timeline.threshold >= highest:
            raise ValueError(
                f"divergence.timeline.threshold is {self.timeline.threshold:g}; allowed is below -ln floor_level = "
                f"{highest:.4g}, the largest divergence that a mixed ratio can show"
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
