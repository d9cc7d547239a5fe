"""The typed schema of params.yaml: strict, frozen, and one sentence per mistake.

>>> parse({"privacy": {"mode": "simulated"}})
Traceback (most recent call last):
...
sfumato.errors.SfumatoError: params: privacy.mode is 'simulated'; allowed is 'simulation' or 'release'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from sfumato.datasets.spec import get_spec
from sfumato.errors import SfumatoError
from sfumato.mistakes import first_mistake

DatasetName = Literal["mnist", "fashion_mnist", "cifar10", "thyroid", "digits"]
Method = Literal["tp_topk", "tp_rand", "on_topk", "on_rand", "dense"]
AnyMethod = Literal["tp_topk", "tp_rand", "on_topk", "on_rand", "dense", "non_private"]
ModelName = Literal["cnn28", "cnn32", "mlp"]

Item = TypeVar("Item")


def _distinct(values: tuple[Item, ...]) -> tuple[Item, ...]:
    if len(set(values)) != len(values):
        raise ValueError("a list without repeated entries")
    return values


def _filled(values: tuple[Item, ...]) -> tuple[Item, ...]:
    if not values:
        raise ValueError("a list with at least one entry")
    return _distinct(values)


def _written_whole(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        raise ValueError(
            f"{int(value)}, since cells are named by the text and whole numbers have one spelling"
        )
    return value


def _below_ledger(value: str) -> str:
    parts = Path(value).parts
    if len(parts) < 2 or parts[0] != "ledger" or ".." in parts:
        raise ValueError("a file below the folder ledger/, which every workspace shares")
    return value


def _plain_text(value: str) -> str:
    if "\0" in value or not value.strip():
        raise ValueError("a path without NUL bytes that is not blank")
    return value


Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
OpenUnit = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**6)]
Budget = Annotated[float, Field(ge=0.01, le=200, allow_inf_nan=False)]
Epsilon = Annotated[Budget, BeforeValidator(_written_whole)]
ClipNorm = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
Delta = Annotated[float, Field(ge=1e-12, lt=1, allow_inf_nan=False)]
FolderPath = Annotated[str, AfterValidator(_plain_text)]
Datasets = Annotated[tuple[DatasetName, ...], AfterValidator(_distinct)]
Methods = Annotated[tuple[Method, ...], AfterValidator(_distinct)]
Epsilons = Annotated[tuple[Epsilon, ...], AfterValidator(_distinct)]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], AfterValidator(_filled)]


class Section(BaseModel):
    """A part of params.yaml: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Privacy(Section):
    """Mode, delta and the release book."""

    mode: Literal["simulation", "release"]
    delta: Delta
    budget_epsilon: Budget
    ledger: Annotated[FolderPath, AfterValidator(_below_ledger)]


class Data(Section):
    """Which copy of the data a run uses; never decided by what happens to lie around."""

    search_dirs: Annotated[tuple[FolderPath, ...], AfterValidator(_distinct)]
    cifar10_source: Literal["png", "jpeg"]
    thyroid_target: Literal["hypothyroid", "hyperthyroid"]


class Grid(Section):
    """The cells of the topk system."""

    datasets: Annotated[Datasets, AfterValidator(_filled)]
    references: Datasets
    methods: Annotated[Methods, AfterValidator(_filled)]
    epsilons: Annotated[Epsilons, AfterValidator(_filled)]
    seeds: Seeds | None


class Sampling(Section):
    """Poisson sampling from declared public sizes."""

    expected_batch_size: Mapping[DatasetName, Count]


class Optimizer(Section):
    """The optimiser of the privatised gradients and the engine of the per-example ones."""

    name: Literal["sgd", "adam"]
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    engine: Literal["functional", "opacus"]
    micro_batch: Count


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
    blocks: Annotated[tuple[Annotated[int, Field(ge=0, le=10**4)], ...], AfterValidator(_distinct)]
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


class Params(Section):
    """The whole of params.yaml."""

    privacy: Privacy
    data: Data
    topk: TopK

    @model_validator(mode="after")
    def _seeds_fit_the_mode(self) -> Self:
        seeds = self.topk.grid.seeds
        if self.privacy.mode == "release" and seeds is not None:
            raise ValueError(
                f"topk.grid.seeds is {list(seeds)} in release mode; allowed is null, since a known noise seed voids the guarantee"
            )
        if self.privacy.mode == "simulation" and seeds is None:
            raise ValueError(
                "topk.grid.seeds is null in simulation mode; allowed is a list of integers of at least 0"
            )
        unprotected = {
            "topk.grid.references": self.topk.grid.references,
            "topk.audit.datasets": self.topk.audit.datasets,
            "topk.membership.datasets": self.topk.membership.datasets,
        }
        for key, names in unprotected.items():
            if self.privacy.mode == "release" and names:
                raise ValueError(
                    f"{key} is {list(names)} in release mode; allowed is [], since its fits are not charged to the book"
                )
        return self

    @model_validator(mode="after")
    def _numbers_fit_the_declared_sizes(self) -> Self:
        topk = self.topk
        for name in topk.grid.datasets:
            spec = get_spec(name)
            limits = {
                f"topk.sampling.expected_batch_size.{name}": (
                    topk.sampling.expected_batch_size[name],
                    spec.n_train,
                ),
                "topk.audit.canaries": (
                    topk.audit.canaries if name in topk.audit.datasets else 0,
                    spec.n_validation,
                ),
                "topk.membership.examples": (
                    topk.membership.examples if name in topk.membership.datasets else 0,
                    spec.n_train,
                ),
            }
            for key, (value, limit) in limits.items():
                if value > limit:
                    raise ValueError(
                        f"{key} is {value}; allowed is at most {limit}, a declared size of {name}"
                    )
            if self.privacy.delta * spec.n_train >= 1:
                raise ValueError(
                    f"privacy.delta is {self.privacy.delta}; allowed is a number below 1 / {spec.n_train}, the "
                    f"declared size of {name}"
                )
            pixels = {"cnn28": (28, 28), "cnn32": (32, 32)}.get(topk.model[name])
            if pixels is not None and tuple(spec.example_shape[1:]) != pixels:
                raise ValueError(
                    f"topk.model.{name} is {topk.model[name]!r} for examples of shape {spec.example_shape}; allowed "
                    "is an architecture for that shape, or 'mlp'"
                )
        return self


def _frozen(value: object) -> object:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in cast("dict[object, object]", value).items()}
    return value


def parse(values: object, source: str = "params") -> Params:
    """Check the plain values of a parameter file.

    Args:
        values: what a YAML 1.2 loader returned.
        source: the file's name, for messages.

    Raises:
        SfumatoError: at the first wrong, missing, unknown or mistyped key, in one sentence.
    """
    try:
        return Params.model_validate(_frozen(values))
    except ValidationError as error:
        raise SfumatoError(f"{source}: {first_mistake(error, Params)}") from None
    except RecursionError:
        raise SfumatoError(f"{source} is nested too deeply; allowed are the keys of params.yaml.") from None


def read_yaml(path: Path) -> object:
    """Read a YAML 1.2 file into plain values.

    Raises:
        SfumatoError: if the file is missing, is not text, or is not YAML.
    """
    try:
        return _yaml_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SfumatoError(
            f"{path.name} cannot be read ({error.strerror}); allowed is a YAML file."
        ) from None
    except UnicodeDecodeError:
        raise SfumatoError(f"{path.name} is not UTF-8 text; allowed is a YAML file.") from None
    except (YAMLError, ValueError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise SfumatoError(
            f"{path.name} is not YAML{where} ({problem}); allowed is a YAML 1.2 mapping."
        ) from None


_yaml_load: Callable[[str], object] = cast("Any", YAML(typ="safe", pure=True)).load


def load(path: Path) -> Params:
    """Read and check a parameter file.

    Raises:
        SfumatoError: in one sentence that names the key, the value and what is allowed.
    """
    return parse(read_yaml(path), path.name)


def merged(base: object, overlay: object) -> object:
    """Overlay a mapping on another, key by key; lists and scalars are replaced whole.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    if not isinstance(base, dict) or not isinstance(overlay, dict):
        return overlay
    result = dict(cast("dict[str, object]", base))
    for key, value in cast("dict[str, object]", overlay).items():
        result[key] = merged(result[key], value) if key in result else value
    return result
