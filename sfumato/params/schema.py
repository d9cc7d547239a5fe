"""The whole of params.yaml, and what its parts must agree on.

>>> sorted(Params.model_fields)
['data', 'divergence', 'modulated', 'privacy', 'radiomap', 'topk']
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from sfumato.datasets.population_specs import get_population_spec
from sfumato.datasets.regression_specs import get_regression_spec
from sfumato.datasets.spec import get_spec
from sfumato.params.divergence import RELEASED_METHODS, Divergence
from sfumato.params.fields import Budget, Delta, FolderPath, Section, distinct
from sfumato.params.modulated import Modulated
from sfumato.params.radiomap import Radiomap
from sfumato.params.topk import TopK


def _below_ledger(value: str) -> str:
    parts = Path(value).parts
    if len(parts) < 2 or parts[0] != "ledger" or ".." in parts:
        raise ValueError("a file below the folder ledger/, which every workspace shares")
    return value


class Privacy(Section):
    """Mode, delta and the release book."""

    mode: Literal["simulation", "release"]
    delta: Delta
    budget_epsilon: Budget
    ledger: Annotated[FolderPath, AfterValidator(_below_ledger)]


class Data(Section):
    """Which copy of the data a run uses; never decided by what happens to lie around."""

    search_dirs: Annotated[tuple[FolderPath, ...], AfterValidator(distinct)]
    cifar10_source: Literal["png", "jpeg"]
    thyroid_target: Literal["hypothyroid", "hyperthyroid"]
    population_partition: Literal["dirichlet", "writer"]


class Params(Section):
    """The whole of params.yaml."""

    privacy: Privacy
    data: Data
    topk: TopK
    modulated: Modulated
    divergence: Divergence
    radiomap: Radiomap

    @model_validator(mode="after")
    def _seeds_fit_the_mode(self) -> Self:
        seeds = self.topk.grid.seeds
        if not self.topk.grid.datasets:
            return self
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

    @model_validator(mode="after")
    def _modulated_fits_the_mode(self) -> Self:
        seeds, release = self.modulated.grid.seeds, self.privacy.mode == "release"
        if not self.modulated.grid.datasets:
            return self
        if release != (seeds is None):
            given = None if seeds is None else list(seeds)
            allowed = (
                "null, since a known noise seed voids the guarantee" if release else "a list of integers"
            )
            raise ValueError(
                f"modulated.grid.seeds is {'null' if given is None else given} in {self.privacy.mode} mode; allowed is {allowed}"
            )
        train, attack = self.modulated.train, self.modulated.attack
        bare = [name for name in self.modulated.grid.methods if name in ("least_squares", "mean")]
        if release and bare:
            raise ValueError(
                f"modulated.grid.methods holds {bare[0]!r} in release mode; allowed are methods with noise, since this one "
                "would keep what it read of the clients as it is"
            )
        uncharged = {
            "modulated.train.step_sizes": len(train.step_sizes) > 1 and list(train.step_sizes),
            "modulated.train.clip_norms": len(train.clip_norms) > 1 and list(train.clip_norms),
            "modulated.attack.datasets": list(attack.datasets),
        }
        for key, value in uncharged.items():
            if release and value:
                allowed = "one value, since a choice among several looks at the private data"
                allowed = (
                    allowed if ".train." in key else "[], since attacks are simulations on the private data"
                )
                raise ValueError(f"{key} is {value} in release mode; allowed is {allowed}")
        return self

    @model_validator(mode="after")
    def _modulated_fits_the_declared_sizes(self) -> Self:
        modulated = self.modulated
        for name in modulated.grid.datasets:
            spec = get_regression_spec(name)
            features = len(spec.features)
            if modulated.client.amplitude > 0 and modulated.client.directions >= features:
                raise ValueError(
                    f"modulated.client.directions is {modulated.client.directions}; allowed is less than the "
                    f"{features} features of {name}"
                )
            if modulated.train.rounds > spec.n_train:
                raise ValueError(
                    f"modulated.train.rounds is {modulated.train.rounds}; allowed is at most {spec.n_train}, the "
                    f"declared number of clients of {name}"
                )
            if self.privacy.delta * spec.n_train >= 1:
                raise ValueError(
                    f"privacy.delta is {self.privacy.delta}; allowed is a number below 1 / {spec.n_train}, the "
                    f"declared size of {name}"
                )
        return self

    @model_validator(mode="after")
    def _divergence_fits_the_mode(self) -> Self:
        divergence, release = self.divergence, self.privacy.mode == "release"
        seeds = divergence.grid.seeds
        if not divergence.grid.datasets:
            return self
        if release != (seeds is None):
            given = "null" if seeds is None else list(seeds)
            allowed = (
                "null, since a known noise seed voids the guarantee" if release else "a list of integers"
            )
            raise ValueError(
                f"divergence.grid.seeds is {given} in {self.privacy.mode} mode; allowed is {allowed}"
            )
        bare = [name for name in divergence.grid.methods if name not in RELEASED_METHODS]
        if release and bare:
            raise ValueError(
                f"divergence.grid.methods holds {bare[0]!r} in release mode; allowed are {', '.join(RELEASED_METHODS)}, since "
                "the others are baselines"
            )
        looking = "digits" in divergence.grid.comparisons or divergence.train.drift == "labels"
        if release and looking:
            raise ValueError(
                "divergence.grid.comparisons or divergence.train.drift sorts examples by private labels in release mode; "
                "allowed are comparisons other than digits, with the drift of series"
            )
        for key, names in (
            ("timeline", divergence.timeline.datasets),
            ("attack", divergence.attack.datasets),
        ):
            if release and names:
                raise ValueError(
                    f"divergence.{key}.datasets is {list(names)} in release mode; allowed is [], since its releases are not "
                    "charged to the book"
                )
        return self

    @model_validator(mode="after")
    def _radiomap_fits_the_mode(self) -> Self:
        if self.privacy.mode == "release" and self.radiomap.grid.datasets:
            raise ValueError(
                f"radiomap.grid.datasets is {list(self.radiomap.grid.datasets)} in release mode; allowed is [], since its clients are "
                "simulated on public maps; a real client holds sfumato.radiomap.participants.RadioClient"
            )
        return self

    @model_validator(mode="after")
    def _divergence_fits_the_data(self) -> Self:
        divergence = self.divergence
        for name in divergence.grid.datasets:
            examples = get_population_spec(name).examples
            if examples is not None and divergence.train.examples > examples:
                raise ValueError(
                    f"divergence.train.examples is {divergence.train.examples}; allowed is at most {examples}, the declared "
                    f"size of {name}"
                )
            largest = max(
                divergence.train.examples, 0 if "digits" not in divergence.grid.comparisons else 10_000
            )
            if self.privacy.delta * largest >= 1:
                raise ValueError(
                    f"privacy.delta is {self.privacy.delta}; allowed is a number below 1 / {largest}, the size of a population "
                    f"of {name}"
                )
            unknown = name == "mnist_population" and self.data.population_partition == "dirichlet"
            if unknown and (
                divergence.train.drift == "series" or "labels_series" in divergence.grid.comparisons
            ):
                raise ValueError(
                    "divergence.train.drift or divergence.grid.comparisons needs the series of mnist_population; allowed is "
                    "'labels' and no labels_series, or data.population_partition 'writer'"
                )
        return self
