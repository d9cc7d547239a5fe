"""Fashion-MNIST: 70,000 grey images of clothes, 28x28, in four idx files named like MNIST's.

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
from sfumato.datasets.packages import debian_source

FILES = (
    RawFile(
        "train-images-idx3-ubyte",
        47_040_016,
        "sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        accepts_gzip=True,
    ),
    RawFile(
        "train-labels-idx1-ubyte",
        60_008,
        "sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        accepts_gzip=True,
    ),
    RawFile(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        accepts_gzip=True,
    ),
    RawFile(
        "t10k-labels-idx1-ubyte",
        10_008,
        "sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        accepts_gzip=True,
    ),
)

_SERVED = {
    "train-images-idx3-ubyte": ("train-images-idx3-ubyte.gz", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    "train-labels-idx1-ubyte": ("train-labels-idx1-ubyte.gz", "md5:25c81989df183df01b3e8a0aad5dffbe"),
    "t10k-images-idx3-ubyte": ("t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79"),
    "t10k-labels-idx1-ubyte": ("t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310"),
}

SOURCES: tuple[Source, ...] = (
    debian_source(
        "dataset-fashion-mnist", {f.name: f"usr/share/datasets/fashion-mnist/{f.name}.gz" for f in FILES}
    ),
    mirror_source("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", _SERVED),
)


def files(_options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """The raw files that the options need."""
    return FILES


def sources(_options: Mapping[str, str]) -> tuple[Source, ...]:
    """The sources of these files, in order."""
    return SOURCES


def prepare(raw_dir: Path, _options: Mapping[str, str]) -> Dataset:
    """The data set of the verified raw files; images uint8 of shape (n, 1, 28, 28)."""
    return prepare_idx("fashion_mnist", FILES, raw_dir)
