"""The part of params.yaml that describes the watch on a population, how a flow reads it, and the record of a check.

>>> sorted(Window.model_fields)
['path', 'series']
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from sfumato.errors import SfumatoError
from sfumato.mistakes import first_mistake
from sfumato.params.fields import Budget, Delta, FolderPath, OpenUnit, Positive, Section, distinct

RetrainedSystem = Literal["topk", "modulated"]
LEAST_ERROR = 1e-12
"""Of one end of the interval at one check, as the monitoring plan allows it."""


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
    floor_level: Annotated[float, Field(ge=1e-12, lt=1, allow_inf_nan=False)]
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
        error = (1.0 - self.confidence) / (2.0 if self.sides == "two" else 1.0)
        if error > 0.5 - 1e-9 or error / self.checks_per_year < LEAST_ERROR:
            raise ValueError(
                f"divergence.drift.confidence is {self.confidence!r} with sides {self.sides!r}; allowed is what leaves "
                f"one end of the interval an error below 0.5 and, divided by checks_per_year, of at least {LEAST_ERROR:g}"
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


class Found(BaseModel):
    """The estimate of a record: the numbers that decide, and what else was released."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    raw: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat


class UsedReference(Section):
    """Which reference a check used."""

    fingerprint: Annotated[str, Field(min_length=1)]
    cells: Annotated[int, Field(ge=1)] | None = None
    merged_codes: Annotated[int, Field(ge=0)] | None = None


class Announcement(Section):
    """Whether the event of an alarm was sent, and why not."""

    sent: bool
    reason: str | None


class Retraining(Section):
    """Who retrains for a check, and the runs that did."""

    state: Literal["begun", "finished", "failed"]
    flow_run: str | None
    mlflow_runs: tuple[str, ...]


class CheckRecord(Section):
    """The record of one check, as it lies in ``ledger/monitoring/<monitor>/<check>.json``.

    Attributes:
        version: of the form.
        monitor: whose check.
        check: its name, the number and eight hexadecimal digits.
        number: from 1.
        started: ISO 8601 with its offset, UTC.
        year: that of ``started``, which the check is charged to.
        state: ``begun`` until the step has ended.
        watch: what it was asked to do.
        prefect_flow_run: the flow run that began it.
        decision: with all below it of a released check: what it found.
    """

    version: Literal[1]
    monitor: Name
    check: Annotated[str, Field(pattern=r"^[0-9]{4,}-[0-9a-f]{8}$")]
    number: Annotated[int, Field(ge=1)]
    started: str
    year: int
    state: Literal["begun", "released", "refused", "failed"]
    watch: Watch
    prefect_flow_run: str | None
    decision: Literal["drift", "no_drift", "undecided"] | None = None
    estimate: Found | None = None
    reference: UsedReference | None = None
    budget: dict[str, Any] = Field(default_factory=dict)
    power: dict[str, Any] = Field(default_factory=dict)
    false_alarms: dict[str, Any] = Field(default_factory=dict)
    reason: str | None = None
    alarm: bool | None = None
    mlflow_run: str | None = None
    event: Announcement | None = None
    retraining: Retraining | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if not self.check.startswith(f"{self.number:04d}-"):
            raise ValueError(
                f"number is {self.number} of the check {self.check}; allowed is the number in its name"
            )
        if self.monitor != self.watch.drift.name:
            raise ValueError(
                f"monitor is {self.monitor!r}; allowed is {self.watch.drift.name!r}, as in watch.drift.name"
            )
        try:
            started = datetime.fromisoformat(self.started)
        except ValueError:
            started = None
        if started is None or started.utcoffset() != timedelta(0):
            raise ValueError(f"started is {self.started!r}; allowed is a time of UTC in the form of ISO 8601")
        if self.year != started.astimezone(UTC).year:
            raise ValueError(
                f"year is {self.year}; allowed is {started.astimezone(UTC).year}, the year of started"
            )
        found = (self.decision, self.estimate, self.reference)
        if self.state == "released" and None in found:
            raise ValueError(
                "state is 'released'; allowed is a record with decision, estimate and reference then"
            )
        return self


def read_record(path: Path) -> dict[str, Any]:
    """The record of a check, every field held against `CheckRecord`.

    Args:
        path: the file, whose name and folder are those of the check and the monitor.

    Raises:
        SfumatoError: if it is missing, damaged or not such a record. A record is never to be deleted: its number, and
            in simulation its noise, would be used again, and the alarm that it raised forgotten.
    """
    from sfumato.artifacts import read_json

    where = f"record {path.parent.name}/{path.name}"
    if not path.is_file():
        raise SfumatoError(f"{where} is missing; allowed is the record of a check that has begun.")
    try:
        values = read_json(path)
    except SfumatoError as error:
        raise _damaged(f"{where} {str(error).rpartition('; ')[0].removeprefix(f'{path} ')}") from None
    try:
        record = CheckRecord.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise _damaged(f"{where}: {first_mistake(error, CheckRecord).removesuffix('.')}") from None
    except (ValueError, RecursionError):
        raise _damaged(f"{where} holds a value that is no plain one") from None
    if (path.stem, path.parent.name) != (record.check, record.monitor):
        raise _damaged(f"{where} is that of check {record.check!r} of {record.monitor!r}")
    return cast("dict[str, Any]", values)


def _damaged(sentence: str) -> SfumatoError:
    return SfumatoError(f"{sentence}; restore it from a copy, a record cannot be made again.")


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
