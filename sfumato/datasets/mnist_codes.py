"""MNIST as a population: each digit image becomes one of 2^16 codes, held by its writer or by a pseudo-client.

>>> image = np.zeros((1, 28, 28), np.uint8)
>>> image[0, :7, 7:14] = 255
>>> block_codes(image).tolist()
[2]

The image is cut into 4x4 blocks of 7x7 pixels. Bit ``4 row + column`` of the code is 1 iff the block holds ink, that is
iff its mean ink is at least 1/8 of full ink. The threshold is a public choice from what a pen does: a stroke of MNIST's
size-normalised digits is 2 to 3 pixels wide, so one that crosses a block covers 14 to 21 of its 49 pixels, and 1/8, six
pixels, is less than half of a crossing; a block that a stroke only touches, or that anti-aliasing greys, stays 0. The
earlier code's rule (papers.md 4.3), a bit for a block that is white throughout, depends on the last grey pixel of the
fringe; it was made for NIST's unscaled images and is not used here. Nothing is fitted to the images.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.datasets import mnist
from sfumato.datasets.fetching import RawFile, Source, verified_path
from sfumato.datasets.idx import parse_idx
from sfumato.datasets.population import UNKNOWN, Population, check_declared
from sfumato.datasets.population_partition import dirichlet_clients
from sfumato.datasets.population_specs import CODE_DOMAIN
from sfumato.datasets.population_writers import (
    TRAIN_ROWS,
    WRITERS,
    WriterTable,
    mirror_source,
    placed_source,
    read_writers,
)
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

NAME: Final = "mnist_population"
SIDE: Final = 28
BLOCK: Final = 7
INK_SHARE: Final = 8
"""A block holds ink iff its mean ink is at least 1 / INK_SHARE of 255."""

TRAIN_CLIENTS: Final = 539
"""Pseudo-clients of the 60,000 training images, as many as MNIST's training images have writers."""
TEST_CLIENTS: Final = 297
"""Pseudo-clients of the 10,000 test images, likewise."""
CONCENTRATION: Final = 0.5
PUBLIC_SEED: Final = 1
"""Of the pseudo-clients; who holds which image of this partition is public."""


def files(options: Mapping[str, str]) -> tuple[RawFile, ...]:
    """The raw files that the options need beside those of ``mnist``."""
    return (WRITERS,) if options["partition"] == "writer" else ()


def sources(options: Mapping[str, str]) -> tuple[Source, ...]:
    """The sources of these files, in order."""
    return (mirror_source(),) if options["partition"] == "writer" else ()


def placed(options: Mapping[str, str], folders: list[Path]) -> tuple[Source, ...]:
    """The folders where a user may have put these files in another form."""
    return (placed_source(folders),) if options["partition"] == "writer" else ()


def prepare(raw_dir: Path, options: Mapping[str, str]) -> Population:
    """The population of the verified raw files, in MNIST's order: 60,000 training digits, then 10,000 test digits.

    With the partition ``writer`` clients are NIST's writer numbers and the series is that of the writer; training and
    test digits have no writer in common. With ``dirichlet`` clients 0..538 hold the training digits, clients 539..835
    the test digits, and no series is known.

    Raises:
        DataUnavailableError: if a raw file is missing or damaged.
        SfumatoError: if the content differs from the spec.
    """
    parts = [parse_idx(verified_path("mnist", file, raw_dir).read_bytes(), file.name) for file in mnist.FILES]
    codes = np.concatenate([block_codes(images) for images in (parts[0], parts[2])])
    labels = np.concatenate([parts[1], parts[3]]).astype(np.int16)
    if options["partition"] == "writer":
        table = read_writers(verified_path(NAME, WRITERS, raw_dir))
    else:
        table = pseudo_clients(labels)
    return check_declared(
        Population(codes, labels, table.writers, table.series, CODE_DOMAIN, NAME, dict(options))
    )


def pseudo_clients(labels: NDArray[Any]) -> WriterTable:
    """The public pseudo-clients of the partition ``dirichlet``.

    Args:
        labels: classes of MNIST's 70,000 digits in their order.
    """
    streams = Streams(PUBLIC_SEED)
    train = dirichlet_clients(
        labels[:TRAIN_ROWS], TRAIN_CLIENTS, CONCENTRATION, streams.stream("pseudo_clients/train")
    )
    test = dirichlet_clients(
        labels[TRAIN_ROWS:], TEST_CLIENTS, CONCENTRATION, streams.stream("pseudo_clients/test")
    )
    holders = np.concatenate([train, test + np.int32(TRAIN_CLIENTS)])
    return WriterTable(holders, np.full(len(labels), UNKNOWN, np.int16))


def block_codes(images: NDArray[np.uint8]) -> NDArray[np.int32]:
    """The code of each image: 4x4 blocks of 7x7 pixels, one bit each, by whole numbers only.

    Args:
        images: ink, uint8 of shape (N, 28, 28), 0 no ink and 255 full ink.

    Returns:
        int32 of shape (N,) in 0..2^16-1; bit 4 row + column is that block's.

    Raises:
        SfumatoError: if the shape or the dtype is another one.
    """
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE):
        raise SfumatoError(
            f"images have dtype {images.dtype} and shape {images.shape}; allowed are uint8 of (N, {SIDE}, {SIDE})."
        )
    blocks = SIDE // BLOCK
    ink = images.reshape(-1, blocks, BLOCK, blocks, BLOCK).sum(axis=(2, 4), dtype=np.int32)
    bits = INK_SHARE * ink >= 255 * BLOCK * BLOCK
    return bits.reshape(-1, blocks * blocks) @ (np.int32(1) << np.arange(blocks * blocks, dtype=np.int32))
