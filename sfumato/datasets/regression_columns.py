"""Columns of a regression data set, their public bounds, and what else is public about the set.

>>> age = Column("age", 15.0, 60.0, meaning="age", unit="years")
>>> age.scale(37.5), age.scale(80.0), age.scale(float("nan")), age.restore(-1.0)
(0.0, 1.0, 0.0, 15.0)
>>> Column("size", 0.1, 10.0, meaning="size", unit="metres", scaling="log").scale(1.0)
0.0

``Column.scale`` sees one value at a time, so nothing that is computed from several rows can enter a prepared
value: neither a mean, nor a standard deviation, nor the smallest or largest value of a column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from sfumato.datasets.spec import resolve_options
from sfumato.errors import SfumatoError

Scaling = Literal["linear", "log", "indicator"]


@dataclass(frozen=True)
class Column:
    """One column and the public constants that its values are scaled by.

    Attributes:
        name: its name, the raw file's where it stands there.
        low: values below count as this one; it becomes -1.
        high: values above count as this one; it becomes 1.
        meaning: what it says and where the bounds come from.
        unit: of the raw values.
        scaling: ``linear`` between the bounds; ``log`` for values that span orders of magnitude;
            ``indicator`` for 0 and 1, where every other number counts as missing.

    Raises:
        SfumatoError: if the bounds are not finite and in order, a logarithmic scale does not begin above 0, or
            an indicator's bounds are not 0 and 1.
    """

    name: str
    low: float
    high: float
    meaning: str
    unit: str
    scaling: Scaling = "linear"

    def __post_init__(self) -> None:
        """Check the bounds."""
        if self.scaling not in get_args(Scaling):
            raise SfumatoError(
                f"scaling of {self.name} is {self.scaling!r}; allowed are {', '.join(get_args(Scaling))}."
            )
        bounds = f"bounds of {self.name} are {self.low!r} and {self.high!r}"
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise SfumatoError(f"{bounds}; allowed are two finite numbers, the lower one first.")
        if self.scaling == "log" and self.low <= 0:
            raise SfumatoError(f"{bounds}; a logarithmic scale begins above 0.")
        if self.scaling == "indicator" and (self.low, self.high) != (0.0, 1.0):
            raise SfumatoError(f"{bounds}; an indicator's are 0 and 1.")

    def scale(self, value: float) -> float:
        """The value clipped to the bounds and mapped to -1..1; a missing one is the midpoint 0.

        Args:
            value: in the column's unit; NaN and infinities are missing, and so is what is neither 0 nor 1 in an
                indicator.
        """
        if not math.isfinite(value) or (self.scaling == "indicator" and value not in (0.0, 1.0)):
            return 0.0
        clipped = min(max(value, self.low), self.high)
        if self.scaling == "log":
            share = math.log(clipped / self.low) / math.log(self.high / self.low)
        else:
            share = (clipped - self.low) / (self.high - self.low)
        return 2.0 * share - 1.0

    def restore(self, scaled: float) -> float:
        """The value in the column's unit that ``scale`` maps to ``scaled``, a number in [-1, 1]."""
        share = (scaled + 1.0) / 2.0
        if self.scaling == "log":
            return self.low * (self.high / self.low) ** share
        return self.low + share * (self.high - self.low)


@dataclass(frozen=True)
class RegressionSpec:
    """The public facts of one regression data set; a row is what one client holds.

    Attributes:
        name: its name in parameters and file names.
        title: its name in reports.
        features: the columns that a label is predicted from, in their order.
        label: the column that is predicted, on a linear scale.
        n_train: declared public number of training rows; likewise ``n_validation`` and ``n_test``.
        unit_of_privacy: what one row is; where a person has several rows, a guarantee for a row is none for
            the person.
        licence: under which terms the data may be used.
        source: where it comes from.
        options: option name -> allowed texts, the first one being the default.
        known_radius: a bound on the Euclidean norm of the scaled features that follows from what they are, where
            there is one below that of the box, sqrt(n).

    Raises:
        SfumatoError: if two columns share a name, or the label is not on a linear scale.
    """

    name: str
    title: str
    features: tuple[Column, ...]
    label: Column
    n_train: int
    n_validation: int
    n_test: int
    unit_of_privacy: str
    licence: str
    source: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    known_radius: float | None = None

    def __post_init__(self) -> None:
        """Check the columns."""
        names = [*self.feature_names, self.label.name]
        if len(set(names)) < len(names):
            raise SfumatoError(f"columns of {self.name} are {', '.join(names)}; each name is allowed once.")
        if self.label.scaling != "linear":
            raise SfumatoError(
                f"the label {self.label.name} of {self.name} is on the scale {self.label.scaling!r}; allowed is "
                "'linear', since errors are converted back to its unit by one factor."
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, in the order of the prepared columns."""
        return tuple(column.name for column in self.features)

    @property
    def radius(self) -> float:
        """Public bound on the Euclidean norm of the scaled features: the known one, or sqrt(n) of the box [-1, 1]^n."""
        return math.sqrt(len(self.features)) if self.known_radius is None else self.known_radius

    @property
    def label_scale(self) -> float:
        """Units of the label per scaled unit: half of the distance between the label's bounds."""
        return (self.label.high - self.label.low) / 2.0

    def sizes(self) -> dict[str, int]:
        """Split name -> declared public number of rows."""
        return {"train": self.n_train, "validation": self.n_validation, "test": self.n_test}

    def resolve(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options with defaults filled in.

        Raises:
            SfumatoError: if an option or its value is unknown.
        """
        return resolve_options(self.name, self.options, options)
