"""The whole of params.yaml, and what its parts must agree on.

>>> sorted(Params.model_fields)
['data', 'privacy', 'topk']
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from sfumato.datasets.spec import get_spec
from sfumato.params.fields import Budget, Delta, FolderPath, Section, distinct
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
