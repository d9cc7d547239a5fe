"""CIFAR-10: both archives are read exactly; which one is decided by the option, never by what is present."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato import datasets
from sfumato.datasets import cifar10
from sfumato.errors import DataUnavailableError, SfumatoError

Maker = Callable[..., Path]


def binary_members(rows: int, seed: int = 0) -> dict[str, bytes]:
    generator = np.random.Generator(np.random.Philox(seed))
    members: dict[str, bytes] = {}
    for name in (*cifar10._TRAIN_MEMBERS, cifar10._TEST_MEMBER):
        records = generator.integers(0, 256, (rows, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        members[name] = records.tobytes()
    return members


def test_binary_archive_is_read_in_order(
    tmp_path: Path, make_tar: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10, "_ROWS_PER_BATCH", 4)
    members = binary_members(4)
    archive = make_tar(tmp_path / "a.tar.gz", dict(reversed(list(members.items()))))
    (images, labels), (test_images, test_labels) = cifar10.read_binary(archive)
    assert images.shape == (20, 3, 32, 32)
    assert test_images.shape == (4, 3, 32, 32)
    record = np.frombuffer(members["cifar-10-batches-bin/data_batch_2.bin"], np.uint8).reshape(4, 3073)[1]
    assert labels[5] == record[0]
    assert images[5, 1, 2, 3] == record[1 + 1024 + 2 * 32 + 3]
    assert test_labels.tolist() == [members[cifar10._TEST_MEMBER][3073 * i] for i in range(4)]


def test_incomplete_binary_archives_are_refused(
    tmp_path: Path, make_tar: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10, "_ROWS_PER_BATCH", 4)
    members = binary_members(4)
    del members[cifar10._TEST_MEMBER]
    with pytest.raises(DataUnavailableError, match=r"lacks cifar-10-batches-bin/test_batch\.bin"):
        cifar10.read_binary(make_tar(tmp_path / "a.tar.gz", members))
    members[cifar10._TEST_MEMBER] = b"short"
    with pytest.raises(SfumatoError, match=r"test_batch\.bin has 5 bytes"):
        cifar10.read_binary(make_tar(tmp_path / "b.tar.gz", members))


def jpeg_members(train: int, test: int) -> dict[str, bytes]:
    """Uniform images whose grey level tells split, class and index."""
    members: dict[str, bytes] = {}
    for part, size, base in (("train", train, 0), ("test", test, 100)):
        for label, name in enumerate(cifar10.CLASS_NAMES):
            for index in range(size):
                buffer = io.BytesIO()
                Image.new("RGB", (32, 32), (base + 10 * index + label,) * 3).save(buffer, "JPEG", quality=95)
                members[f"./{part}/{name}/{index:04d}.jpg"] = buffer.getvalue()
    return members


def test_jpeg_copy_is_interleaved_by_class(tmp_path: Path, make_tar: Maker) -> None:
    archive = make_tar(tmp_path / "a.tar.gz", jpeg_members(3, 2))
    (images, labels), (test_images, test_labels) = cifar10.read_jpeg(archive, 3, 2)
    assert labels.tolist() == list(range(10)) * 3
    assert test_labels.tolist() == list(range(10)) * 2
    np.testing.assert_allclose(images[:, :, 5, 5], np.arange(30)[:, None].repeat(3, 1), atol=1)
    np.testing.assert_allclose(test_images[:, 0, 5, 5], 100 + np.arange(20), atol=1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"./train/cat/0000.jpg": None}, "has 9 of 10 train images"),
        ({"./train/cat/0001.jpg": b"x"}, r"cat/0001\.jpg in .* is no image of CIFAR-10"),
        ({"./train/cow/0000.jpg": b"x"}, r"cow/0000\.jpg in .* is no image of CIFAR-10"),
        ({"./train/cat/0000.jpg": b"no picture"}, r"cat/0000\.jpg is no readable JPEG"),
    ],
)
def test_wrong_jpeg_copies_are_refused(
    tmp_path: Path, make_tar: Maker, change: dict[str, bytes | None], named: str
) -> None:
    members = {
        name: content for name, content in {**jpeg_members(1, 1), **change}.items() if content is not None
    }
    with pytest.raises(SfumatoError, match=named):
        cifar10.read_jpeg(make_tar(tmp_path / "a.tar.gz", members), 1, 1)


def test_jpeg_of_another_size_or_format_is_refused(tmp_path: Path, make_tar: Maker) -> None:
    for size, kind, named in (((16, 32), "JPEG", "has the shape"), ((32, 32), "PNG", "no readable JPEG")):
        buffer = io.BytesIO()
        Image.new("RGB", size).save(buffer, kind)
        members = {**jpeg_members(1, 1), "./test/cat/0000.jpg": buffer.getvalue()}
        with pytest.raises(SfumatoError, match=named):
            cifar10.read_jpeg(make_tar(tmp_path / "a.tar.gz", members), 1, 1)


def test_option_alone_decides_which_archive_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10, "SOURCES", {"png": (), "jpeg": ()})
    for name in (cifar10.BINARY.name, cifar10.JPEG.name):
        (tmp_path / name).write_bytes(b"something that happens to lie here")
    for source, wanted in (("png", cifar10.BINARY.name), ("jpeg", cifar10.JPEG.name)):
        with pytest.raises(DataUnavailableError, match=f"cifar10 needs {wanted}: put it into"):
            datasets.fetch("cifar10", tmp_path / "raw", [tmp_path], source=source)


def test_archive_that_could_run_code_is_not_read_and_the_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10, "SOURCES", {"png": (), "jpeg": ()})
    with tarfile.open(tmp_path / cifar10.PYTHON_ARCHIVE, "w:gz"):
        pass
    with pytest.raises(DataUnavailableError, match=r"is not read, since opening it can run code: take cifar"):
        datasets.fetch("cifar10", tmp_path / "raw", [tmp_path])
