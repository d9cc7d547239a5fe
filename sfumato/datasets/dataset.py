"""A prepared data set: three splits of examples, their scaling by public constants, and its npz file.

>>> rows = Examples(np.zeros((2, 1, 28, 28), np.uint8), np.array([3, 7]))
>>> data = Dataset("mnist", rows, rows, rows)
>>> data.inputs("train").shape, float(data.inputs("train").min())
((2, 1, 28, 28), -1.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.artifacts import PathLike
from sfumato.datasets.prepared import SPLITS, PreparedFile, read_prepared, write_prepared
from sfumato.datasets.spec import DatasetSpec, get_spec, public_permutation
from sfumato.errors import SfumatoError


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and labels of one split.

    Attributes:
        x: inputs as stored: uint8 images of shape (n, channels, height, width), or float32 (n, features).
        y: labels, int64 of shape (n,).
    """

    x: NDArray[Any]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        """The realised number of rows; privacy parameters use the spec's declared sizes instead."""
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set ready for training.

    Attributes:
        name: a name in `SPECS`.
        train: the rows that the guarantee protects.
        validation: rows for choosing parameters.
        test: rows for the reported figures.
        options: what it was prepared with, such as ``{"target": "hypothyroid"}``.
    """

    name: str
    train: Examples
    validation: Examples
    test: Examples
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def spec(self) -> DatasetSpec:
        """The public facts."""
        return get_spec(self.name)

    @property
    def title(self) -> str:
        """Its name in reports, which says when the data are not the original ones."""
        if self.options.get("source") == "jpeg":
            return f"{self.spec.title} (JPEG copy)"
        if "target" in self.options:
            return f"{self.spec.title} ({self.options['target']})"
        return self.spec.title

    def split(self, split: str) -> Examples:
        """The examples of ``train``, ``validation`` or ``test``.

        Raises:
            SfumatoError: if there is no such split.
        """
        if split not in SPLITS:
            raise SfumatoError(f"there is no split {split!r}; allowed are {', '.join(SPLITS)}.")
        return cast("Examples", getattr(self, split))

    def inputs(self, split: str) -> NDArray[np.float32]:
        """The inputs of a split, scaled by public constants.

        Args:
            split: ``train``, ``validation`` or ``test``.

        Returns:
            float32 of shape (n, *example_shape) in [-1, 1]: (x/maximum - 0.5)/0.5 for images, the
            prepared features for tables. No statistic of the data enters.
        """
        x = self.split(split).x
        maximum = self.spec.pixel_maximum
        scaled = x.astype(np.float32)
        if maximum is not None:
            scaled /= np.float32(maximum)
            scaled -= np.float32(0.5)
            scaled /= np.float32(0.5)
        return scaled

    def labels(self, split: str) -> NDArray[np.int64]:
        """The labels of a split, int64 of shape (n,)."""
        return self.split(split).y


def check_declared(dataset: Dataset) -> Dataset:
    """The data set itself, if it has the sizes, shapes, types and labels that its spec declares.

    Raises:
        SfumatoError: if anything differs; the sentence names the split and both values.
    """
    spec = dataset.spec
    dtype = np.dtype(np.float32 if spec.pixel_maximum is None else np.uint8)
    for split, size in spec.sizes().items():
        examples = dataset.split(split)
        expected = (size, *spec.example_shape)
        where = f"the {split} split of {spec.name}"
        if examples.x.shape != expected or examples.y.shape != (size,):
            raise SfumatoError(
                f"{where} has inputs {examples.x.shape} and labels {examples.y.shape}; "
                f"declared are {expected}."
            )
        if examples.x.dtype != dtype or examples.y.dtype != np.int64:
            raise SfumatoError(
                f"{where} has inputs {examples.x.dtype} and labels {examples.y.dtype}; "
                f"needed are {dtype} and int64."
            )
        if examples.y.min() < 0 or examples.y.max() >= spec.classes:
            raise SfumatoError(
                f"{where} has labels {examples.y.min()}..{examples.y.max()}; "
                f"declared are 0..{spec.classes - 1}."
            )
        bound = 1 if spec.pixel_maximum is None else spec.pixel_maximum
        if not bool(
            (np.abs(examples.x) <= bound).all() if dtype.kind == "f" else (examples.x <= bound).all()
        ):
            raise SfumatoError(f"{where} has inputs outside of the declared bound {bound}.")
    return dataset


def split_images(
    name: str, train: tuple[NDArray[np.uint8], NDArray[Any]], test: tuple[NDArray[np.uint8], NDArray[Any]]
) -> Dataset:
    """The data set of official training and test images; a fixed public permutation parts off the validation rows.

    The files are in the order of their writers or classes; after the permutation training and validation rows
    are alike, so that a membership attack on them measures membership and not the order of a file.

    Args:
        name: a name in `SPECS`.
        train: images (n, channels, height, width) and labels (n,) of the official training part.
        test: the same of the official test part.
    """
    spec = get_spec(name)
    x, y = train[0], train[1].astype(np.int64)
    order = public_permutation(name, len(y))
    inside, outside = order[: spec.n_train], order[spec.n_train :]
    return Dataset(
        name=name,
        train=Examples(x[inside], y[inside]),
        validation=Examples(x[outside], y[outside]),
        test=Examples(test[0], test[1].astype(np.int64)),
    )


def split_rows(name: str, x: NDArray[Any], y: NDArray[np.int64], options: Mapping[str, str]) -> Dataset:
    """The data set of rows without an official split: a fixed public permutation, 60/20/20."""
    spec = get_spec(name)
    order = public_permutation(name, len(y))
    first, second = spec.n_train, spec.n_train + spec.n_validation
    parts = [Examples(x[rows], y[rows]) for rows in (order[:first], order[first:second], order[second:])]
    return Dataset(name, parts[0], parts[1], parts[2], dict(options))


def save(path: PathLike, dataset: Dataset) -> None:
    """Write a prepared data set as a byte-stable npz file, images as uint8."""
    splits = {split: (dataset.split(split).x, dataset.split(split).y) for split in SPLITS}
    write_prepared(path, PreparedFile(dataset.name, dataset.options, splits))


def load(path: PathLike) -> Dataset:
    """Read a prepared data set and hold it against the declared public sizes.

    Raises:
        SfumatoError: if the file is missing, damaged, not a prepared data set, or differs from its spec.
    """
    content = read_prepared(path)
    train, validation, test = (Examples(*content.splits[split]) for split in SPLITS)
    dataset = Dataset(content.name, train, validation, test, content.options)
    dataset.spec.resolve(dataset.options)
    return check_declared(dataset)
