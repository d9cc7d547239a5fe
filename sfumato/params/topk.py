"""The part of params.yaml that describes the topk system.

>>> Attack(examples=5000, confidence=0.95).examples
5000
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sfumato.params.fields import (
    ClipNorm,
    Count,
    DatasetName,
    Datasets,
    Epsilons,
    OpenUnit,
    Positive,
    Ratio,
    Section,
    Seeds,
    Steps,
    distinct,
    filled,
)

Method = Literal["tp_topk", "tp_rand", "on_topk", "on_rand", "dense"]
AnyMethod = Literal["tp_topk", "tp_rand", "on_topk", "on_rand", "dense", "non_private"]
ModelName = Literal["cnn28", "cnn32", "mlp"]
Methods = Annotated[tuple[Method, ...], AfterValidator(distinct)]


class Grid(Section):
    """The cells of the topk system. No data set: the system is left out."""

    datasets: Datasets
    references: Datasets
    methods: Annotated[Methods, AfterValidator(filled)]
    epsilons: Annotated[Epsilons, AfterValidator(filled)]
    seeds: Seeds | None


class Sampling(Section):
    """Poisson sampling from declared public sizes."""

    expected_batch_size: Mapping[DatasetName, Count]


class Optimizer(Section):
    """The optimiser of the privatised gradients and the engine of the per-example ones."""

    name: Literal["sgd", "adam"]
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    engine: Literal["planned", "functional", "opacus"]
    micro_batch: Count | None


class Warmup(Section):
    """Phase 1."""

    steps: Steps
    budget_share: OpenUnit
    clip_norm: Mapping[DatasetName, ClipNorm]
    learning_rate: Mapping[DatasetName, Positive]


class Tuning(Section):
    """What choosing the hyper-parameters cost on each data set, for the privacy statement."""

    private_trials: Mapping[DatasetName, Annotated[int, Field(ge=0, le=10**6)]]
    chosen_on: Literal["defaults", "validation rows of the same data", "public data"]

    @model_validator(mode="after")
    def _trials_fit_what_they_were_made_on(self) -> Self:
        for dataset, trials in self.private_trials.items():
            if trials > 0 and self.chosen_on != "validation rows of the same data":
                raise ValueError(
                    f"topk.train.tuning.private_trials.{dataset} is {trials} where chosen_on is {self.chosen_on!r}; "
                    "allowed there is 0, since fits on the data itself are private trials"
                )
        if self.chosen_on == "validation rows of the same data" and not any(self.private_trials.values()):
            raise ValueError(
                "topk.train.tuning.private_trials is 0 for every data set where chosen_on is 'validation rows of the "
                "same data'; allowed there is the number of fits that chose, above 0 for at least one data set"
            )
        return self


class Train(Section):
    """Phase 2, and the single phase of the dense and the non-private method."""

    steps: Steps
    active_ratio: Ratio
    score: Literal["mean_square", "square_of_mean"]
    support: Literal["global", "per_layer", "rows"]
    reselect_every: Steps
    reselect_memory: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    probe_examples: Count
    clip_norm: Mapping[DatasetName, Mapping[Method, ClipNorm]]
    learning_rate: Mapping[DatasetName, Mapping[AnyMethod, Positive]]
    tuning: Tuning


class Attack(Section):
    """Loss-threshold membership inference."""

    examples: Annotated[int, Field(ge=10, le=10**6)]
    confidence: OpenUnit


class Audit(Section):
    """One-run audit with canaries."""

    datasets: Datasets
    methods: Methods
    epsilons: Epsilons
    canaries: Annotated[int, Field(ge=10, le=10**6)]
    guesses: Annotated[int, Field(ge=2, le=10**6)]
    confidence: Annotated[
        float, Field(gt=0.75, lt=1)
    ]  # the larger of two bounds must still hold with more than 1/2


class Membership(Section):
    """LiRA with shadow models."""

    datasets: Datasets
    methods: Methods
    epsilons: Epsilons
    blocks: Annotated[tuple[Annotated[int, Field(ge=0, le=10**4)], ...], AfterValidator(distinct)]
    shadows_per_block: Annotated[int, Field(ge=1, le=1000)]
    examples: Annotated[int, Field(ge=10, le=10**6)]
    variance: Literal["auto", "global", "per_example"]


class TopK(Section):
    """Everything of the topk system."""

    grid: Grid
    model: Mapping[DatasetName, ModelName]
    sampling: Sampling
    optimizer: Optimizer
    warmup: Warmup
    train: Train
    attack: Attack
    audit: Audit
    membership: Membership

    @model_validator(mode="after")
    def _every_cell_is_described(self) -> Self:
        for dataset in sorted(self.grid.datasets):
            tables: dict[str, Mapping[DatasetName, object]] = {
                "model": self.model,
                "sampling.expected_batch_size": self.sampling.expected_batch_size,
                "warmup.clip_norm": self.warmup.clip_norm,
                "warmup.learning_rate": self.warmup.learning_rate,
                "train.clip_norm": self.train.clip_norm,
                "train.learning_rate": self.train.learning_rate,
                "train.tuning.private_trials": self.train.tuning.private_trials,
            }
            for key, table in tables.items():
                if dataset not in table:
                    raise ValueError(
                        f"topk.{key} has no entry for {dataset!r}; allowed is one for every data set in use"
                    )
            for key, table in (
                ("clip_norm", self.train.clip_norm),
                ("learning_rate", self.train.learning_rate),
            ):
                wanted: set[str] = {*self.grid.methods} | (
                    {"non_private"} if key == "learning_rate" else set()
                )
                for method in sorted(wanted - set(table[dataset])):
                    raise ValueError(
                        f"topk.train.{key}.{dataset} has no entry for {method!r}; allowed is one for every method in use"
                    )
        return self

    @model_validator(mode="after")
    def _references_lie_in_the_grid(self) -> Self:
        outside = [name for name in self.grid.references if name not in self.grid.datasets]
        if outside:
            raise ValueError(
                f"topk.grid.references holds {outside[0]!r}; allowed is what topk.grid.datasets holds"
            )
        return self

    @model_validator(mode="after")
    def _attacks_lie_in_the_grid(self) -> Self:
        for step, section in (("audit", self.audit), ("membership", self.membership)):
            if not section.datasets:
                continue
            for key in ("datasets", "methods", "epsilons"):
                outside = [x for x in getattr(section, key) if x not in getattr(self.grid, key)]
                if outside:
                    raise ValueError(
                        f"topk.{step}.{key} holds {outside[0]!r}; allowed is what topk.grid.{key} holds"
                    )
        if self.audit.guesses > self.audit.canaries:
            raise ValueError(
                f"topk.audit.guesses is {self.audit.guesses}; allowed is at most topk.audit.canaries ({self.audit.canaries})"
            )
        if self.membership.datasets and not self.membership.blocks:
            raise ValueError(
                "topk.membership.blocks is empty; allowed is at least one block when membership.datasets is not empty"
            )
        shadows = len(self.membership.blocks) * self.membership.shadows_per_block
        if self.membership.blocks and (
            shadows % 2 or sorted(self.membership.blocks) != list(range(len(self.membership.blocks)))
        ):
            raise ValueError(
                f"topk.membership.blocks gives {shadows} shadow models; allowed are blocks 0, 1, 2... with an even number of models"
            )
        return self
