"""The part of params.yaml that describes the watch on a population, and how a flow reads it.

>>> sorted(Window.model_fields)
['path', 'series']
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from sfumato.errors import SfumatoError
from sfumato.mistakes import first_mistake
from sfumato.params.fields import Budget, Delta, FolderPath, OpenUnit, Positive, Section, distinct

RetrainedSystem = Literal["topk", "modulated"]


def plain_name(value: str) -> str:
    """The text, or ValueError where it could not be a folder's name and a part of an event's resource."""
    if not value.isascii() or not value.replace("_", "").isalnum() or len(value) > 60:
        raise ValueError("1 to 60 letters, digits and underscores")
    return value


Name = Annotated[str, AfterValidator(plain_name)]


class Window(Section):
    """Which examples are looked at: an npz file with ``codes`` and ``domain``, and maybe ``series``.

    Attributes:
        path: the file, from the repository's root; a prepared population is one.
        series: only the examples of these series; all when empty.
    """

    path: FolderPath
    series: Annotated[
        tuple[Annotated[int, Field(ge=-(2**15), lt=2**15)], ...],
        AfterValidator(distinct),
    ]


class Drift(Section):
    """One monitor: what is compared, at which price, what counts as drift, what is retrained.

    Attributes:
        name: of the monitor; its records are in ``ledger/monitoring/<name>``.
        dataset: name that the budget belongs to; all monitors of the same people share it.
        reference: the public population that the system was trained on.
        population: the private, current one.
        minimum_probability: codes that the reference shows less often share one cell.
        draws: m, points drawn from the reference for each check; null for every cell with its own weight.
        floor: ``mix`` or ``clip``.
        floor_level: gamma or r_min.
        coefficient: lambda.
        checks_per_year: how many checks the schedule makes.
        epsilon_per_check: the price of one.
        yearly_epsilon: what all checks on the data set may cost together in a calendar year, UTC.
        threshold: the divergence in nats from which on there is drift.
        confidence: of the deciding interval.
        sides: ``one`` or ``two``.
        correction: ``none`` or ``bonferroni``.
        power: at which the minimal detectable divergence is stated.
        seed: of the noise in simulation; null in release mode.
        retrain: the system that an alarm retrains.
        retrain_profile: profile for it, run in a workspace; null to retrain in the tree.
    """

    name: Name
    dataset: Name
    reference: Window
    population: Window
    minimum_probability: Annotated[float, Field(ge=0, lt=0.5, allow_inf_nan=False)]
    draws: Annotated[int, Field(ge=1, le=10_000_000)] | None
    floor: Literal["mix", "clip"]
    floor_level: OpenUnit
    coefficient: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
    checks_per_year: Annotated[int, Field(ge=1, le=1_000_000)]
    epsilon_per_check: Budget
    yearly_epsilon: Budget
    threshold: Positive
    confidence: OpenUnit
    sides: Literal["one", "two"]
    correction: Literal["none", "bonferroni"]
    power: OpenUnit
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None
    retrain: RetrainedSystem
    retrain_profile: Name | None

    @model_validator(mode="after")
    def _numbers_agree(self) -> Self:
        if self.epsilon_per_check > self.yearly_epsilon:
            raise ValueError(
                f"divergence.drift.epsilon_per_check is {self.epsilon_per_check:g}; allowed is at most yearly_epsilon, "
                f"{self.yearly_epsilon:g}"
            )
        if self.sides == "one" and self.confidence <= 0.5:
            raise ValueError(
                f"divergence.drift.confidence is {self.confidence:g} for one side; allowed is a number above 0.5"
            )
        if self.floor == "mix" and self.threshold >= -math.log(self.floor_level):
            raise ValueError(
                f"divergence.drift.threshold is {self.threshold:g}; allowed is below -ln floor_level = "
                f"{-math.log(self.floor_level):.4g}, the largest divergence that a mixed ratio can show"
            )
        return self


class Watch(Section):
    """What one check needs of params.yaml: the monitor, and of ``privacy`` the mode, the delta and the book.

    Attributes:
        drift: the monitor.
        mode: ``simulation`` or ``release``.
        delta: of every price.
        budget_epsilon: of the data set's name in the book of releases, in release mode.
        ledger: the book of releases.
    """

    drift: Drift
    mode: Literal["simulation", "release"]
    delta: Delta
    budget_epsilon: Budget
    ledger: FolderPath

    @model_validator(mode="after")
    def _seed_fits_the_mode(self) -> Self:
        seed = self.drift.seed
        if self.mode == "release" and seed is not None:
            raise ValueError(
                f"divergence.drift.seed is {seed} in release mode; allowed is null, since a known noise seed voids the guarantee"
            )
        if self.mode == "simulation" and seed is None:
            raise ValueError(
                "divergence.drift.seed is null in simulation mode; allowed is an integer of at least 0"
            )
        return self


def parse_watch(values: object, source: str = "params.yaml") -> Watch:
    """Check the plain values of a watch, as YAML and JSON have them.

    Args:
        values: nested mappings and lists.
        source: what to call them in a message.

    Raises:
        SfumatoError: at the first wrong key, in one sentence.
    """
    try:
        return Watch.model_validate_json(json.dumps(values))
    except ValidationError as error:
        sentence = first_mistake(error, Watch)
        where = "divergence." if sentence.startswith("drift.") else ""
        raise SfumatoError(f"{source}: {where}{sentence}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise SfumatoError(f"{source} holds a value that is no plain one ({error}).") from None
