"""Reading idx files, the format of MNIST and Fashion-MNIST.

>>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]), "labels")
array([5, 0, 4], dtype=uint8)
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.datasets.dataset import Dataset, check_declared, split_images
from sfumato.datasets.fetching import RawFile, verified_path
from sfumato.errors import SfumatoError

_UNSIGNED_BYTE = 8


def parse_idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """The array of an idx file of unsigned bytes.

    The format: two zero bytes, a type byte, the number of dimensions, each dimension as a big-endian
    32-bit number, then the values in C order.

    Args:
        content: the file's bytes.
        name: its name, for the error.

    Raises:
        SfumatoError: if the header is wrong or the length is not the one that the header gives.
    """
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTE]) or not 1 <= content[3] <= 3:
        raise SfumatoError(f"{name} does not start as an idx file of unsigned bytes; fetch it again.")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    if len(content) != start + math.prod(shape):
        raise SfumatoError(
            f"{name} has {len(content)} bytes, not those of its shape {shape}; fetch it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def prepare_idx(name: str, files: tuple[RawFile, RawFile, RawFile, RawFile], raw_dir: Path) -> Dataset:
    """The data set of four idx files: training images and labels, test images and labels."""
    parts = [parse_idx(verified_path(name, file, raw_dir).read_bytes(), file.name) for file in files]
    for images, labels in ((parts[0], parts[1]), (parts[2], parts[3])):
        if images.ndim != 3 or labels.ndim != 1:
            raise SfumatoError(
                f"{name} has images of {images.ndim} and labels of {labels.ndim} dimensions; 3 and 1."
            )
    train, test = (parts[0][:, None], parts[1]), (parts[2][:, None], parts[3])
    return check_declared(split_images(name, train, test))
