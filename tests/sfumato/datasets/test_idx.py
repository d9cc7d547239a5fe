"""idx files: read exactly, or refused with a sentence; whole data sets from four small ones."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from sfumato.datasets import dataset, fashion_mnist, idx, mnist
from sfumato.datasets.fetching import RawFile, fetch_files
from sfumato.datasets.idx import parse_idx, prepare_idx
from sfumato.datasets.spec import SPECS
from sfumato.errors import DataUnavailableError, SfumatoError


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (0, 28, 28)])
def test_array_comes_back(shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape)) % 256).astype(np.uint8).reshape(shape)
    np.testing.assert_array_equal(parse_idx(idx_bytes(array), "f"), array)


GOOD = idx_bytes(np.zeros((2, 3), np.uint8))


@pytest.mark.parametrize(
    "content",
    [b"", GOOD[:3], GOOD[:9], GOOD[:-1], GOOD + b"x", b"\x00\x00\x0d" + GOOD[3:], b"\x1f\x8b" + GOOD[2:]],
)
def test_damaged_content_is_refused_with_the_name(content: bytes) -> None:
    with pytest.raises(SfumatoError, match=r"train-images .*fetch it again"):
        parse_idx(content, "train-images")


def small_files(seed: int) -> tuple[dict[str, bytes], tuple[RawFile, ...]]:
    """Four small idx files named as the real ones, and what is known of them."""
    generator = np.random.Generator(np.random.Philox(seed))
    shapes = [(12, 28, 28), (12,), (4, 28, 28), (4,)]
    contents = {
        file.name: idx_bytes(generator.integers(0, 10, shape, dtype=np.uint8))
        for file, shape in zip(mnist.FILES, shapes, strict=True)
    }
    files = tuple(
        RawFile(name, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}", accepts_gzip=True)
        for name, content in contents.items()
    )
    return contents, files


def test_small_data_set_goes_from_files_to_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = dataclasses.replace(SPECS["mnist"], n_train=9, n_validation=3, n_test=4)
    monkeypatch.setattr(dataset, "get_spec", lambda _name: spec)
    contents, files = small_files(0)
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataUnavailableError, match="is missing; fetch mnist first"):
        prepare_idx("mnist", files, tmp_path)
    fetch_files("mnist", files, tmp_path, [], [])
    data = prepare_idx("mnist", files, tmp_path)
    assert [data.split(split).x.shape for split in ("train", "validation", "test")] == [
        (9, 1, 28, 28),
        (3, 1, 28, 28),
        (4, 1, 28, 28),
    ]
    np.testing.assert_array_equal(data.test.x[:, 0], idx.parse_idx(contents[files[2].name], "f"))


def test_equal_names_of_two_data_sets_are_told_apart_by_content(tmp_path: Path) -> None:
    """One search folder holds both, each in its sub-folder and one of them on top."""
    first, first_files = small_files(1)
    second, second_files = small_files(2)
    for folder, contents in ((tmp_path, first), (tmp_path / "fashion_mnist", second)):
        folder.mkdir(exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
    raw = tmp_path / "raw"
    fetch_files("mnist", first_files, raw, [tmp_path], [])
    fetch_files("fashion_mnist", second_files, raw, [tmp_path], [])
    name = mnist.FILES[0].name
    assert (raw / "mnist" / name).read_bytes() == first[name]
    assert (raw / "fashion_mnist" / name).read_bytes() == second[name]


def test_pinned_checksums_differ_between_the_two_data_sets() -> None:
    checksums = [file.checksum for file in (*mnist.FILES, *fashion_mnist.FILES)]
    assert len(set(checksums)) == 8
    assert all(checksum.startswith("sha256:") and len(checksum) == 71 for checksum in checksums)
