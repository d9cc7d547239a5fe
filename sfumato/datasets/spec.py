"""What is public about each data set: sizes, classes, shapes, licence and source.

>>> SPECS["mnist"].n_train, SPECS["mnist"].example_shape
(55000, (1, 28, 28))

The sizes are declared here, never counted: a privacy statement may use them because they would be the
same constants for a neighbouring data set. The splits are public functions of the row numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError


def resolve_options(
    dataset: str, allowed: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> dict[str, str]:
    """The given options with defaults, the first allowed text of each, filled in.

    Raises:
        SfumatoError: if an option or its value is unknown.
    """
    for name, value in given.items():
        if name not in allowed:
            raise SfumatoError(
                f"{dataset} has no option {name!r}; allowed are: {', '.join(allowed) or 'none'}."
            )
        if value not in allowed[name]:
            raise SfumatoError(f"{name} of {dataset} is {value!r}; allowed are {', '.join(allowed[name])}.")
    return {name: given.get(name, texts[0]) for name, texts in allowed.items()}


@dataclass(frozen=True)
class DatasetSpec:
    """The public facts of one data set.

    Attributes:
        name: its name in parameters and file names.
        title: its name in reports.
        classes: how many labels there are, 0..classes-1.
        example_shape: the shape of one example's inputs, (channels, height, width) or (features,).
        n_train: declared public number of training rows; likewise ``n_validation`` and ``n_test``.
        pixel_maximum: the largest stored pixel value of images, None for tables.
        positive_class: the rare class whose recall is reported, None where classes are alike.
        licence: under which terms the data may be used.
        source: where it comes from.
        default_model: the architecture that suits it: ``cnn28``, ``cnn32`` or ``mlp``.
        options: option name -> allowed texts, the first one being the default.
    """

    name: str
    title: str
    classes: int
    example_shape: tuple[int, ...]
    n_train: int
    n_validation: int
    n_test: int
    pixel_maximum: int | None
    positive_class: int | None
    licence: str
    source: str
    default_model: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def sizes(self) -> dict[str, int]:
        """Split name -> declared public number of rows."""
        return {"train": self.n_train, "validation": self.n_validation, "test": self.n_test}

    def resolve(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options with defaults filled in.

        Raises:
            SfumatoError: if an option or its value is unknown.
        """
        return resolve_options(self.name, self.options, options)


_MNIST = DatasetSpec(
    name="mnist",
    title="MNIST",
    classes=10,
    example_shape=(1, 28, 28),
    n_train=55_000,
    n_validation=5_000,
    n_test=10_000,
    pixel_maximum=255,
    positive_class=None,
    licence="Creative Commons Attribution-ShareAlike 3.0",
    source="Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST database of handwritten digits",
    default_model="cnn28",
)

_FASHION_MNIST = DatasetSpec(
    name="fashion_mnist",
    title="Fashion-MNIST",
    classes=10,
    example_shape=(1, 28, 28),
    n_train=55_000,
    n_validation=5_000,
    n_test=10_000,
    pixel_maximum=255,
    positive_class=None,
    licence="MIT",
    source="H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST (2017)",
    default_model="cnn28",
)

_CIFAR10 = DatasetSpec(
    name="cifar10",
    title="CIFAR-10",
    classes=10,
    example_shape=(3, 32, 32),
    n_train=45_000,
    n_validation=5_000,
    n_test=10_000,
    pixel_maximum=255,
    positive_class=None,
    licence="no licence stated; free for research with citation",
    source="A. Krizhevsky, Learning multiple layers of features from tiny images (2009)",
    default_model="cnn32",
    options=MappingProxyType({"source": ("png", "jpeg")}),
)

_THYROID = DatasetSpec(
    name="thyroid",
    title="Thyroid disease",
    classes=2,
    example_shape=(35,),
    n_train=5_503,
    n_validation=1_834,
    n_test=1_835,
    pixel_maximum=None,
    positive_class=1,
    licence="CC0 1.0",
    source="R. Quinlan, Thyroid disease records of the Garavan Institute, Sydney (1984-1987)",
    default_model="mlp",
    options=MappingProxyType({"target": ("hypothyroid", "hyperthyroid")}),
)

_DIGITS = DatasetSpec(
    name="digits",
    title="Digits 8x8",
    classes=10,
    example_shape=(1, 8, 8),
    n_train=1_078,
    n_validation=359,
    n_test=360,
    pixel_maximum=16,
    positive_class=None,
    licence="Creative Commons Attribution 4.0",
    source="E. Alpaydin and C. Kaynak, Optical recognition of handwritten digits (1998), in scikit-learn",
    default_model="mlp",
)

SPECS: Mapping[str, DatasetSpec] = MappingProxyType(
    {spec.name: spec for spec in (_MNIST, _FASHION_MNIST, _CIFAR10, _THYROID, _DIGITS)}
)


def get_spec(name: str) -> DatasetSpec:
    """The spec of that name.

    Raises:
        SfumatoError: if there is no such data set.
    """
    if name not in SPECS:
        raise SfumatoError(f"there is no data set {name!r}; allowed are {', '.join(SPECS)}.")
    return SPECS[name]


def public_permutation(name: str, n: int) -> NDArray[np.int64]:
    """A fixed permutation of 0..n-1 that depends on the data set's name alone.

    Row numbers are ordered by the SHA-256 of ``sfumato/<name>/<row>``, so the order is the same with
    every version of every library and independent of what the rows hold.

    >>> public_permutation("digits", 5).tolist() == sorted(public_permutation("digits", 5).tolist())
    False
    """
    keys = [hashlib.sha256(f"sfumato/{name}/{row}".encode()).digest() for row in range(n)]
    return np.array(sorted(range(n), key=keys.__getitem__), dtype=np.int64)
