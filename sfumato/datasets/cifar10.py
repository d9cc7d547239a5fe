"""CIFAR-10: 60,000 colour images, 32x32, from the official binary archive or from a JPEG copy.

>>> [file.name for file in files({"source": "png"})]
['cifar-10-binary.tar.gz']

The option ``source`` decides which one is read, never what happens to be present: ``png`` means the
lossless originals, ``jpeg`` a copy in which every image was compressed (rmse near 8/255), whose results are
named "CIFAR-10 (JPEG copy)". The official archive for Python is not read, because its batches are stored in
a format that can run code when it is opened; the binary archive from the same page holds the same images.
"""

from __future__ import annotations

import importlib
import io
import re
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.datasets.archives import extract_tar
from sfumato.datasets.dataset import Dataset, check_declared, split_images
from sfumato.datasets.fetching import PathLike, RawFile, Source, SourceError, verified_path
from sfumato.datasets.mirrors import mirror_source
from sfumato.errors import DataUnavailableError, SfumatoError

BINARY = RawFile("cifar-10-binary.tar.gz", 170_052_171, "md5:c32a1d4ab5d03f1284b67883e8d87530")
JPEG = RawFile(
    "cifar10_jpeg_yoongikim.tar.xz",
    18_780_576,
    "sha256:c76e8f7dbbff86829f7eacf391eed9f835b5c65fb631830b90ad1e66208ab4ca",
)
PYTHON_ARCHIVE = "cifar-10-python.tar.gz"
CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_TRAIN_MEMBERS = tuple(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6))
_TEST_MEMBER = "cifar-10-batches-bin/test_batch.bin"
_PIXELS = 3 * 32 * 32
_ROWS_PER_BATCH = 10_000
_IMAGE_NAME = re.compile(r"(?:\./)?(train|test)/([a-z]+)/(\d{4})\.jpg")
_MAXIMUM_JPEG_BYTES = 1 << 16

SOURCES: Mapping[str, tuple[Source, ...]] = {
    "png": (
        mirror_source("https://www.cs.toronto.edu/~kriz", {BINARY.name: (BINARY.name, BINARY.checksum)}),
    ),
    "jpeg": (),
}

Images = tuple[NDArray[np.uint8], NDArray[Any]]


def files(options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """The raw files that the options need."""
    return (BINARY,) if options["source"] == "png" else (JPEG,)


def sources(options: Mapping[str, str]) -> tuple[Source, ...]:
    """The sources of these files, in order; the JPEG copy is one that the user places."""
    return SOURCES[options["source"]]


def hint(options: Mapping[str, str], folders: list[Path]) -> str:
    """A sentence for the user whose folders hold only the archive that is not read; else an empty text."""
    if options["source"] == "png" and any((folder / PYTHON_ARCHIVE).is_file() for folder in folders):
        return (
            f"{PYTHON_ARCHIVE} is there but is not read, since opening it can run code: "
            f"take {BINARY.name} from the same page."
        )
    return ""


def prepare(raw_dir: Path, options: Mapping[str, str]) -> Dataset:
    """The data set of the verified archive; images uint8 of shape (n, 3, 32, 32).

    A fixed public permutation parts 5,000 of the 50,000 training rows off as the validation split. In the JPEG copy, whose images lie
    in one folder per class, row 10 i + c is image i of class c.
    """
    archive = verified_path("cifar10", files(options)[0], raw_dir)
    train, test = read_binary(archive) if options["source"] == "png" else read_jpeg(archive)
    dataset = split_images("cifar10", train, test)
    return check_declared(
        Dataset("cifar10", dataset.train, dataset.validation, dataset.test, options=dict(options))
    )


def read_binary(archive: PathLike) -> tuple[Images, Images]:
    """Training and test images and labels of the official binary archive.

    Each record is one byte of label and 3,072 bytes of pixels: red, green, blue planes of 32x32.

    Raises:
        SfumatoError: if a batch is missing or has another length.
    """
    source = Path(archive)
    with tempfile.TemporaryDirectory() as folder:
        members = {name: Path(folder) / Path(name).name for name in (*_TRAIN_MEMBERS, _TEST_MEMBER)}
        try:
            extract_tar(source, members, maximum_bytes=_ROWS_PER_BATCH * (_PIXELS + 1))
        except SourceError as error:
            raise DataUnavailableError(f"{source} cannot be read: {error}; fetch cifar10 again.") from error
        batches = {name: _parse_batch(path.read_bytes(), name) for name, path in members.items()}
    images = np.concatenate([batches[name][0] for name in _TRAIN_MEMBERS])
    labels = np.concatenate([batches[name][1] for name in _TRAIN_MEMBERS])
    return (images, labels), batches[_TEST_MEMBER]


def _parse_batch(content: bytes, name: str) -> Images:
    expected = _ROWS_PER_BATCH * (_PIXELS + 1)
    if len(content) != expected:
        raise SfumatoError(f"{name} has {len(content)} bytes; a batch of CIFAR-10 has {expected}.")
    records = np.frombuffer(content, np.uint8).reshape(_ROWS_PER_BATCH, _PIXELS + 1)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def read_jpeg(
    archive: PathLike, train_per_class: int = 5_000, test_per_class: int = 1_000
) -> tuple[Images, Images]:
    """Training and test images and labels of the JPEG copy, decoded by Pillow.

    Args:
        archive: a tar file of ``train|test/<class>/NNNN.jpg``.
        train_per_class: how many training images each class has.
        test_per_class: how many test images each class has.

    Raises:
        SfumatoError: if an image is missing, too many, or not a 32x32 JPEG.
    """
    sizes = {"train": train_per_class, "test": test_per_class}
    images = {part: np.zeros((size, 10, 3, 32, 32), np.uint8) for part, size in sizes.items()}
    seen = {part: np.zeros((size, 10), np.bool_) for part, size in sizes.items()}
    with tarfile.open(archive, "r:*") as tar:
        for info in tar:
            match = _IMAGE_NAME.fullmatch(info.name)
            stream = tar.extractfile(info) if match and info.isreg() else None
            if match is None or stream is None:
                continue
            part, index = match.group(1), int(match.group(3))
            if match.group(2) not in CLASS_NAMES or index >= sizes[part]:
                raise SfumatoError(f"{info.name} in {Path(archive)} is no image of CIFAR-10.")
            place = (index, CLASS_NAMES.index(match.group(2)))
            images[part][place] = _decode(stream.read(_MAXIMUM_JPEG_BYTES), info.name)
            seen[part][place] = True
    for part, size in sizes.items():
        if not seen[part].all():
            raise SfumatoError(f"{Path(archive)} has {int(seen[part].sum())} of {10 * size} {part} images.")
    labels = {part: np.tile(np.arange(10), size) for part, size in sizes.items()}
    flat = {part: images[part].reshape(-1, 3, 32, 32) for part in sizes}
    return (flat["train"], labels["train"]), (flat["test"], labels["test"])


def _decode(content: bytes, name: str) -> NDArray[np.uint8]:
    """One JPEG as (3, 32, 32) uint8."""
    image_module = importlib.import_module("PIL.Image")
    try:
        with image_module.open(io.BytesIO(content), formats=["JPEG"]) as image:
            pixels: NDArray[np.uint8] = np.asarray(image.convert("RGB"), dtype=np.uint8)
    except (OSError, ValueError, SyntaxError) as error:
        raise SfumatoError(
            f"{name} is no readable JPEG ({type(error).__name__}); fetch cifar10 again."
        ) from error
    if pixels.shape != (32, 32, 3):
        raise SfumatoError(f"{name} has the shape {pixels.shape}; CIFAR-10 images are (32, 32, 3).")
    return pixels.transpose(2, 0, 1)
