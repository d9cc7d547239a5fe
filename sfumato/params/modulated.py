"""The part of params.yaml that describes the modulated system.

>>> sorted(Modulated.model_fields)
['attack', 'client', 'grid', 'train']
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sfumato.params.fields import (
    Confidence,
    Count,
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

RegressionName = Literal["co2", "fair", "modechoice", "randhie", "anes96", "generated"]
ModulatedMethod = Literal[
    "one_shot",
    "one_shot_ridge",
    "one_shot_floor",
    "one_shot_descent",
    "iterative",
    "iterative_disjoint",
    "one_shot_lipschitz",
    "one_shot_descent_lipschitz",
    "iterative_lipschitz",
    "no_modulation",
    "other_frequency",
    "dp_sgd",
    "dp_sgd_disjoint",
    "ada_ssp",
    "least_squares",
    "mean",
]
RegressionNames = Annotated[tuple[RegressionName, ...], AfterValidator(distinct)]
NotNegative = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Grid = Annotated[tuple[Positive, ...], AfterValidator(filled)]


class ModulatedGrid(Section):
    """The cells of the modulated system; methods, epsilons and seeds are looped inside a stage. No data set: left out."""

    datasets: RegressionNames
    methods: Annotated[tuple[ModulatedMethod, ...], AfterValidator(filled)]
    epsilons: Annotated[Epsilons, AfterValidator(filled)]
    seeds: Seeds | None


class ModulatedClient(Section):
    """What a client does to its sample."""

    radius_share: Ratio
    shrinkage: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    amplitude: NotNegative
    frequency: NotNegative
    directions: Annotated[int, Field(ge=1, le=10_000)]
    labels: Literal["public", "private"]
    label_weight: Positive
    rule: Literal["exact", "zcdp", "bun_steinke"]


class ModulatedTrain(Section):
    """The estimators' public numbers; where a list has several entries, validation rows choose."""

    rounds: Steps
    server_steps: Steps
    step_sizes: Grid
    step_decay: NotNegative
    clip_norms: Grid
    tuning_repeats: Annotated[int, Field(ge=1, le=100)]
    coefficient_bound: Positive
    strength: NotNegative
    confidence: OpenUnit


class ModulatedAttack(Section):
    """Reconstruction of a client's sample, and the likelihood-ratio audit; no data set: neither is run."""

    datasets: RegressionNames
    epsilons: Epsilons
    clients: Count
    messages: Annotated[tuple[Annotated[int, Field(ge=1, le=1000)], ...], AfterValidator(filled)]
    audit_methods: Annotated[
        tuple[Literal["one_shot", "one_shot_lipschitz", "iterative", "no_modulation"], ...],
        AfterValidator(distinct),
    ]
    audit_runs: Annotated[int, Field(ge=100, le=10**8)]
    confidence: Confidence


class Modulated(Section):
    """Everything of the modulated system."""

    grid: ModulatedGrid
    client: ModulatedClient
    train: ModulatedTrain
    attack: ModulatedAttack

    @model_validator(mode="after")
    def _attacks_lie_in_the_grid(self) -> Self:
        wanted: Mapping[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
            "datasets": (self.attack.datasets, self.grid.datasets),
            "epsilons": (self.attack.epsilons, self.grid.epsilons),
            "audit_methods": (self.attack.audit_methods, self.grid.methods),
        }
        for key, (given, allowed) in wanted.items() if self.attack.datasets else ():
            outside = [item for item in given if item not in allowed]
            if outside:
                raise ValueError(
                    f"modulated.attack.{key} holds {outside[0]!r}; allowed is what modulated.grid."
                    f"{key.removeprefix('audit_')} holds"
                )
        if self.attack.datasets and not self.attack.epsilons:
            raise ValueError(
                "modulated.attack.epsilons is empty; allowed is at least one where modulated.attack.datasets is not"
            )
        return self
