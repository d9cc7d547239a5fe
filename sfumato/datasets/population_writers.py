"""Who wrote each MNIST digit: a table made from the label files of QMNIST, or placed by the user.

>>> WRITERS.name, TRAIN_LABELS
('mnist_writers.npz', 'qmnist-train-labels-idx2-int.gz')

QMNIST traces every digit to its writer in NIST's Special Database 19 (C. Yadav and L. Bottou, Cold Case: The Lost MNIST
Digits, 2019). Its training labels and the first 10,000 of its test labels are in MNIST's order. A label file is an idx
file of big-endian 32-bit integers with 8 columns, of which three are read: 0 the class, 1 the series (hsf), 2 the writer.

The table has one canonical form whose checksum is known here, so it does not matter which way it came: as
``mnist_writers.npz`` with any compression, as QMNIST's two label files beside it, or from the official mirror, whose
files are also held against their published MD5 sums.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.artifacts import PathLike, read_npz, write_npz
from sfumato.datasets.fetching import Progress, RawFile, Source, SourceError
from sfumato.datasets.mirrors import download
from sfumato.errors import SfumatoError

WRITERS: Final = RawFile(
    "mnist_writers.npz", 210_950, "sha256:b21b1c60207c4c6c6d5ada425ad3785ffd891df5a88cc9eda9018c52f134d917"
)
TRAIN_LABELS: Final = "qmnist-train-labels-idx2-int.gz"
TEST_LABELS: Final = "qmnist-test-labels-idx2-int.gz"
MIRROR: Final = "https://raw.githubusercontent.com/facebookresearch/qmnist/master"
CHECKSUMS: Mapping[str, str] = {
    TRAIN_LABELS: "md5:0058f8dd561b90ffdd0f734c6a30e5e4",
    TEST_LABELS: "md5:5b5b05890a5e13444e108efe57b788aa",
}

TRAIN_ROWS: Final = 60_000
TEST_ROWS: Final = 10_000

_COLUMNS: Final = 8
_INT_32: Final = 12
_MAXIMUM_BYTES: Final = 1 << 22
_TYPES: Mapping[str, type[np.unsignedinteger[Any]]] = {
    "train_writer": np.uint16,
    "train_hsf": np.uint8,
    "test_writer": np.uint16,
    "test_hsf": np.uint8,
}


@dataclass(frozen=True, eq=False)
class WriterTable:
    """Writer and series of each digit, training digits first, in MNIST's order.

    Attributes:
        writers: NIST's numbers, int32 of shape (70000,); training and test digits have no writer in common.
        series: int16 of shape (70000,): 0 employees of NIST, 4 high-school students.
    """

    writers: NDArray[np.int32]
    series: NDArray[np.int16]


def read_writers(path: PathLike) -> WriterTable:
    """The table of ``mnist_writers.npz``.

    Raises:
        SfumatoError: if the file is missing or damaged, or holds other arrays than those of the table.
    """
    arrays = _checked(read_npz(path), Path(path).name)
    writers = np.concatenate([arrays["train_writer"], arrays["test_writer"]]).astype(np.int32)
    series = np.concatenate([arrays["train_hsf"], arrays["test_hsf"]]).astype(np.int16)
    return WriterTable(writers, series)


def parse_label_file(content: bytes, name: str) -> NDArray[np.int32]:
    """The label file of QMNIST, unpacked.

    Args:
        content: the file's bytes.
        name: its name, for the error.

    Returns:
        int32 of shape (rows, 8).

    Raises:
        SfumatoError: if the header is not that of an idx file of 32-bit integers with 8 columns, or the length is not
            the one that the header gives.
    """
    header = np.frombuffer(content[:12], ">i4") if len(content) >= 12 else np.zeros(3, ">i4")
    magic, rows, columns = (int(number) for number in header)
    if magic != (_INT_32 << 8) + 2 or columns != _COLUMNS or rows < 0:
        raise SfumatoError(
            f"{name} does not start as an idx file of 32-bit integers with {_COLUMNS} columns; fetch it again."
        )
    if len(content) != 12 + 4 * math.prod((rows, columns)):
        raise SfumatoError(
            f"{name} has {len(content)} bytes, not those of its {rows} rows of {columns} numbers; fetch it again."
        )
    return np.frombuffer(content, ">i4", offset=12).reshape(rows, columns).astype(np.int32)


def table_of_labels(train: NDArray[np.int32], test: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
    """The arrays of ``mnist_writers.npz`` from QMNIST's labels.

    Args:
        train: training labels, (60000, 8).
        test: test labels, at least (10000, 8), the first 10,000 being those of MNIST's test digits.

    Raises:
        SfumatoError: if there are more or fewer rows.
    """
    if len(train) != TRAIN_ROWS or len(test) < TEST_ROWS:
        raise SfumatoError(
            f"QMNIST's labels have {len(train)} training and {len(test)} test rows; {TRAIN_ROWS} and at least "
            f"{TEST_ROWS} are needed."
        )
    columns = {
        "train_writer": train[:, 2],
        "train_hsf": train[:, 1],
        "test_writer": test[:TEST_ROWS, 2],
        "test_hsf": test[:TEST_ROWS, 1],
    }
    return {name: values.astype(_TYPES[name]) for name, values in columns.items()}


def placed_source(folders: Sequence[Path]) -> Source:
    """The table, or QMNIST's label files, where a user put them, with whatever compression."""

    def get(work: Path, _wanted: Sequence[RawFile], _progress: Progress | None) -> Mapping[str, Path]:
        for folder in folders:
            table, labels = folder / WRITERS.name, [folder / TRAIN_LABELS, folder / TEST_LABELS]
            try:
                if table.is_file():
                    return _written(work, _checked(read_npz(table), table.name))
                if all(path.is_file() for path in labels):
                    return _written(work, _from_label_files(labels[0], labels[1]))
            except SfumatoError as error:
                raise SourceError(str(error).removesuffix(".")) from None
        raise SourceError("they are not there")

    return Source(f"QMNIST's {TRAIN_LABELS} and {TEST_LABELS} in one of these folders", get)


def mirror_source() -> Source:
    """The table from QMNIST's label files on the official mirror."""

    def get(work: Path, _wanted: Sequence[RawFile], progress: Progress | None) -> Mapping[str, Path]:
        train, test = (
            download(f"{MIRROR}/{name}", checksum, work / name, progress)
            for name, checksum in CHECKSUMS.items()
        )
        try:
            return _written(work, _from_label_files(train, test))
        except SfumatoError as error:
            raise SourceError(str(error).removesuffix(".")) from None

    return Source(MIRROR, get)


def _from_label_files(train: Path, test: Path) -> dict[str, NDArray[Any]]:
    return table_of_labels(*(parse_label_file(_unpacked(path), path.name) for path in (train, test)))


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as stream:
            return stream.read(_MAXIMUM_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise SfumatoError(f"{path.name} cannot be read ({type(error).__name__}); fetch it again.") from None


def _written(work: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Path]:
    """The canonical file, in the working folder."""
    write_npz(work / WRITERS.name, arrays)
    return {WRITERS.name: work / WRITERS.name}


def _checked(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    shapes = {part: (TRAIN_ROWS if part.startswith("train") else TEST_ROWS,) for part in _TYPES}
    if {part: values.shape for part, values in arrays.items()} != shapes or any(
        values.dtype.kind not in "iu" for values in arrays.values()
    ):
        raise SfumatoError(
            f"{name} holds {', '.join(sorted(arrays)) or 'nothing'}; needed are integers {', '.join(_TYPES)}, one "
            f"for each of the {TRAIN_ROWS} training and {TEST_ROWS} test digits."
        )
    return {part: arrays[part].astype(dtype) for part, dtype in _TYPES.items()}
