"""The kinds of values that params.yaml holds: bounded, finite, strict.

>>> filled((1, 2))
(1, 2)
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

DatasetName = Literal["mnist", "fashion_mnist", "cifar10", "thyroid", "digits"]

Item = TypeVar("Item")


def distinct(values: tuple[Item, ...]) -> tuple[Item, ...]:
    """The values, or ValueError where one is repeated."""
    if len(set(values)) != len(values):
        raise ValueError("a list without repeated entries")
    return values


def filled(values: tuple[Item, ...]) -> tuple[Item, ...]:
    """The values, or ValueError where there is none or one is repeated."""
    if not values:
        raise ValueError("a list with at least one entry")
    return distinct(values)


def written_whole(value: object) -> object:
    """The value, or ValueError where a whole number is written as a float."""
    if isinstance(value, float) and value.is_integer():
        raise ValueError(
            f"{int(value)}, since cells are named by the text and whole numbers have one spelling"
        )
    return value


def plain_text(value: str) -> str:
    """The text, or ValueError where no path can be made of it."""
    if "\0" in value or not value.strip():
        raise ValueError("a path without NUL bytes that is not blank")
    return value


Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
OpenUnit = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Confidence = Annotated[float, Field(gt=0.5, le=1 - 1e-9, allow_inf_nan=False)]
"""Of a bound that an audit states."""
Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**6)]
Budget = Annotated[float, Field(ge=0.01, le=200, allow_inf_nan=False)]
Epsilon = Annotated[Budget, BeforeValidator(written_whole)]
ClipNorm = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
Delta = Annotated[float, Field(ge=1e-12, lt=1, allow_inf_nan=False)]
FolderPath = Annotated[str, AfterValidator(plain_text)]
Datasets = Annotated[tuple[DatasetName, ...], AfterValidator(distinct)]
Epsilons = Annotated[tuple[Epsilon, ...], AfterValidator(distinct)]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], AfterValidator(filled)]


class Section(BaseModel):
    """A part of params.yaml: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
