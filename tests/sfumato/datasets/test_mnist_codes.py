from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.datasets import fetch, mnist, prepare
from sfumato.datasets.fetching import RawFile
from sfumato.datasets.mnist_codes import block_codes, pseudo_clients
from sfumato.datasets.population import UNKNOWN, client_groups
from sfumato.errors import DataUnavailableError, SfumatoError

SIXTEENTH = 7 * 7 * 255


@pytest.mark.parametrize("block", range(16))
def test_each_block_sets_its_own_bit(block: int) -> None:
    image = np.zeros((1, 28, 28), np.uint8)
    row, column = 7 * (block // 4), 7 * (block % 4)
    image[0, row : row + 7, column : column + 7] = 255
    assert block_codes(image).tolist() == [1 << block]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, SIXTEENTH))
def test_a_block_holds_ink_exactly_from_an_eighth_of_full_ink(total: int) -> None:
    pixels = np.full(49, total // 49)
    pixels[: total % 49] += 1
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, :7, :7] = pixels.reshape(7, 7)
    assert block_codes(image).tolist() == [int(total / SIXTEENTH >= 1 / 8)]


def test_codes_depend_on_each_image_alone() -> None:
    images = np.random.default_rng(0).integers(0, 60, (20, 28, 28)).astype(np.uint8)
    codes = block_codes(images)
    assert codes.dtype == np.int32
    assert codes.tolist() == [int(block_codes(image[None])[0]) for image in images]
    assert block_codes(images[:0]).shape == (0,)


@pytest.mark.parametrize(
    "images", [np.zeros((2, 28, 28)), np.zeros((2, 784), np.uint8), np.zeros((28, 28), np.uint8)]
)
def test_other_shapes_and_types_of_images_are_refused(images: np.ndarray) -> None:
    with pytest.raises(SfumatoError, match=r"images have dtype .* allowed are uint8 of \(N, 28, 28\)"):
        block_codes(images)


def test_pseudo_clients_are_as_many_and_as_large_as_stated_and_the_same_each_time() -> None:
    labels = np.random.default_rng(1).integers(0, 10, 70_000).astype(np.int16)
    table = pseudo_clients(labels)
    np.testing.assert_array_equal(table.writers, pseudo_clients(labels).writers)
    train, test = np.bincount(table.writers[:60_000]), np.bincount(table.writers[60_000:])[539:]
    assert (len(train), len(test)) == (539, 297)
    assert (train.min(), train.max(), test.min(), test.max()) == (111, 112, 33, 34)
    assert set(table.series.tolist()) == {UNKNOWN}


def idx(values: np.ndarray) -> bytes:
    shape = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + shape + values.astype(np.uint8).tobytes()


def test_the_pseudo_clients_need_the_files_of_mnist_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made of images of one pixel pattern per class, with the real sizes and order."""
    import hashlib

    labels = np.arange(70_000) % 10
    patterns = np.zeros((10, 28, 28), np.uint8)
    for label in range(10):
        patterns[label, 7 * (label // 4) : 7 * (label // 4) + 7, 7 * (label % 4) : 7 * (label % 4) + 7] = 255
    images = patterns[labels]
    contents = [idx(images[:60_000]), idx(labels[:60_000]), idx(images[60_000:]), idx(labels[60_000:])]
    files = tuple(
        RawFile(file.name, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
        for file, content in zip(mnist.FILES, contents, strict=True)
    )
    monkeypatch.setattr(mnist, "FILES", files)
    for file, content in zip(files, contents, strict=True):
        (tmp_path / file.name).write_bytes(content)
    fetch("mnist_population", tmp_path / "raw", [tmp_path])
    population = prepare("mnist_population", tmp_path / "raw")
    np.testing.assert_array_equal(population.codes, 1 << labels)
    np.testing.assert_array_equal(population.labels, labels)
    assert len(client_groups(population).identities) == 539 + 297
    assert population.options == {"partition": "dirichlet"}
    with pytest.raises(DataUnavailableError, match=r"mnist_writers\.npz is missing; fetch mnist_population"):
        prepare("mnist_population", tmp_path / "raw", partition="writer")


def test_an_unknown_partition_is_refused() -> None:
    with pytest.raises(SfumatoError, match="partition of mnist_population is 'class'; allowed are dirichlet"):
        prepare("mnist_population", "unused", partition="class")
