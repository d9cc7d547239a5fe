from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.datasets import population_writers as writers
from sfumato.datasets.fetching import RawFile, SourceError, fetch_files
from sfumato.datasets.population_writers import (
    TEST_LABELS,
    TRAIN_LABELS,
    mirror_source,
    parse_label_file,
    placed_source,
    read_writers,
    table_of_labels,
)
from sfumato.errors import DataUnavailableError, SfumatoError


def label_file(labels: np.ndarray) -> bytes:
    """In QMNIST's documented format: magic 0x0c02, rows, columns, then 32-bit numbers, all big-endian."""
    header = np.array([0x0C02, *labels.shape], ">i4")
    return header.tobytes() + labels.astype(">i4").tobytes()


def qmnist(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels of 60,000 training and 60,000 test digits."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(2):
        labels = rng.integers(0, 282_000, (60_000, 8))
        labels[:, 1] = rng.choice([0, 1, 4], 60_000)
        labels[:, 2] = rng.integers(0, 2600, 60_000)
        parts.append(labels)
    return parts[0], parts[1]


def place(folder: Path, train: np.ndarray, test: np.ndarray) -> None:
    for name, labels in ((TRAIN_LABELS, train), (TEST_LABELS, test)):
        (folder / name).write_bytes(gzip.compress(label_file(labels), 1))


def canonical(tmp_path: Path, train: np.ndarray, test: np.ndarray) -> RawFile:
    """What the table of these labels has to be, byte for byte."""
    from sfumato.artifacts import write_npz

    write_npz(tmp_path / "expected.npz", table_of_labels(train.astype(np.int32), test.astype(np.int32)))
    content = (tmp_path / "expected.npz").read_bytes()
    return RawFile("mnist_writers.npz", len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5), st.integers(0, 10**6))
def test_a_label_file_is_read_back_and_a_cut_one_refused(rows: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 282_000, (rows, 8))
    content = label_file(labels)
    np.testing.assert_array_equal(parse_label_file(content, "labels"), labels)
    for cut in range(len(content)):
        with pytest.raises(SfumatoError, match=r"labels .*; fetch it again"):
            parse_label_file(content[:cut], "labels")


@pytest.mark.parametrize("header", [[0x0802, 1, 8], [0x0C02, 1, 7], [0x0C01, 1, 8], [0x0C02, -1, 8]])
def test_another_header_is_refused(header: list[int]) -> None:
    content = np.array([*header, *range(8)], ">i4").tobytes()
    with pytest.raises(SfumatoError, match="does not start as an idx file of 32-bit integers with 8 columns"):
        parse_label_file(content, "labels")


def test_the_table_takes_writer_and_series_of_mnists_digits() -> None:
    train, test = (part.astype(np.int32) for part in qmnist())
    table = table_of_labels(train, test)
    np.testing.assert_array_equal(table["train_writer"], train[:, 2])
    np.testing.assert_array_equal(table["train_hsf"], train[:, 1])
    np.testing.assert_array_equal(table["test_writer"], test[:10_000, 2])
    np.testing.assert_array_equal(table["test_hsf"], test[:10_000, 1])
    with pytest.raises(SfumatoError, match="have 59999 training and 60000 test rows"):
        table_of_labels(train[1:], test)


def compressed_table(folder: Path, train: np.ndarray, test: np.ndarray) -> None:
    table = table_of_labels(train.astype(np.int32), test.astype(np.int32))
    np.savez_compressed(folder / "mnist_writers.npz", **{name: table[name] for name in sorted(table)})


@pytest.mark.parametrize("put", [place, compressed_table])
@pytest.mark.parametrize("inside", [True, False], ids=["in the raw folder", "in a search folder"])
def test_the_table_is_the_same_whichever_way_it_came(
    tmp_path: Path, put: Callable[[Path, np.ndarray, np.ndarray], None], inside: bool
) -> None:
    train, test = qmnist()
    file = canonical(tmp_path, train, test)
    raw, mine = tmp_path / "raw" / "mnist_population", tmp_path / "mine"
    raw.mkdir(parents=True)
    mine.mkdir()
    put(raw if inside else mine, train, test)
    source = placed_source([tmp_path / "raw", raw, mine])
    fetch_files("mnist_population", [file], tmp_path / "raw", [mine], [source])
    assert (raw / file.name).read_bytes() == (tmp_path / "expected.npz").read_bytes()
    table = read_writers(raw / file.name)
    np.testing.assert_array_equal(table.writers, [*train[:, 2], *test[:10_000, 2]])
    np.testing.assert_array_equal(table.series, [*train[:, 1], *test[:10_000, 1]])


def test_labels_of_other_digits_are_refused_by_the_tables_checksum(tmp_path: Path) -> None:
    file = canonical(tmp_path, *qmnist())
    train, test = qmnist()
    train[17, 2] += 1
    place(tmp_path, train, test)
    with pytest.raises(DataUnavailableError, match="another checksum than expected") as caught:
        fetch_files("mnist_population", [file], tmp_path / "raw", [], [placed_source([tmp_path])])
    assert not (tmp_path / "raw" / "mnist_population" / file.name).exists()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"short"), gzip.compress(bytes(1 << 23))],
    ids=["no gzip", "short", "long"],
)
def test_unreadable_label_files_are_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    for name in (TRAIN_LABELS, TEST_LABELS):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match="qmnist-train-labels-idx2-int"):
        placed_source([tmp_path]).get(tmp_path, [], None)


@pytest.mark.parametrize(
    "content",
    [
        {"train_writer": np.zeros(60_000, np.int64)},
        {
            "train_writer": np.zeros(60_000),
            "train_hsf": np.zeros(60_000, np.uint8),
            "test_writer": np.zeros(10_000, np.uint16),
            "test_hsf": np.zeros(10_000, np.uint8),
        },
    ],
)
def test_another_table_of_that_name_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    np.savez(tmp_path / "mnist_writers.npz", **content)
    with pytest.raises(SfumatoError, match=r"mnist_writers\.npz holds .*; needed are integers train_writer"):
        read_writers(tmp_path / "mnist_writers.npz")


def test_the_mirrors_files_become_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served, asked = tmp_path / "served", []
    served.mkdir()
    train, test = qmnist()
    place(served, train, test)

    def download(url: str, checksum: str, target: Path, _progress: object) -> Path:
        asked.append((url.rsplit("/", 1)[1], checksum))
        target.write_bytes((served / target.name).read_bytes())
        return target

    monkeypatch.setattr(writers, "download", download)
    file = canonical(tmp_path, train, test)
    fetch_files("mnist_population", [file], tmp_path / "raw", [], [mirror_source()])
    assert [name for name, _ in asked] == [TRAIN_LABELS, TEST_LABELS]
    assert all(checksum.startswith("md5:") for _, checksum in asked)


def test_a_missing_table_is_one_sentence_with_name_place_and_origin(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailableError) as caught:
        fetch_files("mnist_population", [writers.WRITERS], tmp_path / "raw", [], [placed_source([tmp_path])])
    text = str(caught.value)
    assert "mnist_population needs mnist_writers.npz: put it into" in text
    assert f"{TRAIN_LABELS} and {TEST_LABELS} in one of these folders (they are not there)" in text
    assert "\n" not in text
