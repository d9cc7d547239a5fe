"""A prepared regression data set: three splits of samples within public bounds, and its npz file.

>>> part = Samples(np.zeros((2, 8)), np.array([-1.0, 0.5]))
>>> data = RegressionData("fair", part, part, part)
>>> data.label_scale, data.label_in_units(data.train.y).tolist()
(15.0, [0.0, 22.5])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sfumato.artifacts import PathLike
from sfumato.datasets.prepared import SPLITS, PreparedFile, read_prepared, write_prepared
from sfumato.datasets.regression_columns import RegressionSpec
from sfumato.datasets.regression_specs import get_regression_spec
from sfumato.datasets.spec import public_permutation
from sfumato.errors import SfumatoError


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of one split, one per client.

    Attributes:
        x: features, float64 of shape (n, features) in [-1, 1].
        y: labels, float64 of shape (n,) in [-1, 1].
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]

    def __len__(self) -> int:
        """The realised number of rows; privacy parameters use the spec's declared sizes instead."""
        return len(self.y)


@dataclass(frozen=True, eq=False)
class RegressionData:
    """A regression data set ready for estimation.

    Attributes:
        name: a name in `REGRESSION_SPECS`.
        train: the clients that the guarantee protects.
        validation: rows for choosing parameters.
        test: rows for the reported figures.
        options: what it was prepared with.
    """

    name: str
    train: Samples
    validation: Samples
    test: Samples
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def spec(self) -> RegressionSpec:
        """The public facts."""
        return get_regression_spec(self.name)

    @property
    def title(self) -> str:
        """Its name in reports."""
        return self.spec.title

    @property
    def label_scale(self) -> float:
        """Units of the label per scaled unit: an error in [-1, 1] times this is an error in the label's unit."""
        return self.spec.label_scale

    def label_in_units(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scaled labels or predictions, of any shape, in the label's unit."""
        return self.spec.label.low + (y + 1.0) * self.label_scale

    def split(self, split: str) -> Samples:
        """The samples of ``train``, ``validation`` or ``test``.

        Raises:
            SfumatoError: if there is no such split.
        """
        if split not in SPLITS:
            raise SfumatoError(f"there is no split {split!r}; allowed are {', '.join(SPLITS)}.")
        return cast("Samples", getattr(self, split))


def split_samples(name: str, samples: Samples) -> RegressionData:
    """The data set of all samples, parted into 70/10/20 per cent by a fixed public permutation.

    Args:
        name: a name in `REGRESSION_SPECS`, on which the permutation depends beside the number of samples.
        samples: as many as the spec declares for the three splits together.

    Raises:
        SfumatoError: if there are more or fewer, or anything else differs from the spec.
    """
    spec = get_regression_spec(name)
    total = sum(spec.sizes().values())
    if len(samples) != total:
        raise SfumatoError(f"{name} has {len(samples)} samples; declared are {total}.")
    order = public_permutation(name, total)
    first, second = spec.n_train, spec.n_train + spec.n_validation
    parts = [
        Samples(samples.x[rows], samples.y[rows])
        for rows in (order[:first], order[first:second], order[second:])
    ]
    return check_declared(RegressionData(name, parts[0], parts[1], parts[2]))


def check_declared(data: RegressionData) -> RegressionData:
    """The data set itself, if it has the sizes, shapes, types and bounds that its spec declares.

    Raises:
        SfumatoError: if anything differs; the sentence names the split and both values.
    """
    spec = data.spec
    for split, size in spec.sizes().items():
        samples = data.split(split)
        expected = (size, len(spec.features))
        where = f"the {split} split of {spec.name}"
        if samples.x.shape != expected or samples.y.shape != (size,):
            raise SfumatoError(
                f"{where} has features {samples.x.shape} and labels {samples.y.shape}; declared are {expected}."
            )
        if samples.x.dtype != np.float64 or samples.y.dtype != np.float64:
            raise SfumatoError(
                f"{where} has features {samples.x.dtype} and labels {samples.y.dtype}; needed are float64."
            )
        for kind, values in (("features", samples.x), ("labels", samples.y)):
            if not bool((np.abs(values) <= 1.0).all()):
                raise SfumatoError(f"{where} has {kind} outside of the declared bounds -1 and 1.")
    return data


def save_regression(path: PathLike, data: RegressionData) -> None:
    """Write a prepared regression data set as a byte-stable npz file, as float64."""
    splits = {split: (data.split(split).x, data.split(split).y) for split in SPLITS}
    write_prepared(path, PreparedFile(data.name, data.options, splits))


def load_regression(path: PathLike) -> RegressionData:
    """Read a prepared regression data set and hold it against its spec.

    Raises:
        SfumatoError: if the file is missing, damaged, not a prepared regression data set, or differs from its
            spec in sizes, shapes, types or bounds.
    """
    content = read_prepared(path)
    train, validation, test = (Samples(*content.splits[split]) for split in SPLITS)
    data = RegressionData(content.name, train, validation, test, content.options)
    data.spec.resolve(data.options)
    return check_declared(data)
