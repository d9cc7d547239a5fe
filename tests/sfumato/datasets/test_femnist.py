from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato import datasets
from sfumato.datasets import Population
from sfumato.datasets.femnist import NAME, read_file, series_of
from sfumato.datasets.mnist_codes import block_codes
from sfumato.datasets.population import STAFF, STUDENTS, UNKNOWN
from sfumato.errors import DataUnavailableError, SfumatoError


def user(seed: int, classes: list[int]) -> dict[str, Any]:
    """Images of whole grey levels over 255, as LEAF stores them: 0 ink, 1 paper."""
    pixels = np.random.default_rng(seed).integers(0, 256, (len(classes), 784))
    return {"x": (pixels / 255).tolist(), "y": classes}


def leaf(data: dict[str, dict[str, Any]], **changes: Any) -> dict[str, Any]:
    sizes = [len(entry["y"]) for entry in data.values()]
    return {"users": list(data), "num_samples": sizes, "user_data": data, **changes}


def write(folder: Path, name: str, content: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_digits_of_all_files_become_codes_of_their_writers(tmp_path: Path) -> None:
    folder = tmp_path / NAME
    first, second, third = user(1, [3, 10, 7]), user(2, [61, 0]), user(3, [9])
    write(folder, "all_data_0.json", leaf({"f2150_03": first, "f0007_11": second}))
    write(folder, "all_data_1.json", leaf({"f2150_03": third, "f3000_05": user(4, [40])}))
    datasets.fetch(NAME, tmp_path)
    population = datasets.prepare(NAME, tmp_path)
    assert isinstance(population, Population)
    assert population.labels.tolist() == [0, 3, 7, 9]
    assert population.clients.tolist() == [0, 1, 1, 1]
    assert population.series.tolist() == [STAFF, STUDENTS, STUDENTS, STUDENTS]
    images = [second["x"][1], first["x"][0], first["x"][2], third["x"][0]]
    ink = 255 - np.rint(255 * np.array(images)).astype(np.uint8)
    np.testing.assert_array_equal(population.codes, block_codes(ink.reshape(-1, 28, 28)))
    datasets.save(tmp_path / "one.npz", population)
    datasets.save(tmp_path / "two.npz", datasets.load(tmp_path / "one.npz", Population))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_paper_is_the_code_of_no_ink_and_ink_of_all(tmp_path: Path) -> None:
    entry = {"x": [[1.0] * 784, [0.0] * 784], "y": [1, 1]}
    codes, labels = read_file(write(tmp_path, "all_data_0.json", leaf({"f0001_01": entry})))["f0001_01"]
    assert codes.tolist() == [0, 2**16 - 1]
    assert labels.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("f0000_14", STAFF),
        ("f2099_01", STAFF),
        ("f2100_01", STUDENTS),
        ("f2599_99", STUDENTS),
        ("f2600_01", UNKNOWN),
        ("writer7", UNKNOWN),
    ],
)
def test_the_series_is_that_of_the_writers_number(name: str, series: int) -> None:
    assert series_of(name) == series


def test_missing_files_are_one_sentence_with_name_place_and_origin(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailableError, match=r"needs LEAF's files all_data\*\.json: put them into"):
        datasets.prepare(NAME, tmp_path)


def test_files_without_a_digit_are_refused(tmp_path: Path) -> None:
    write(tmp_path / NAME, "all_data_0.json", leaf({"f0001_01": user(1, [30]), "f0002_01": user(1, [])}))
    with pytest.raises(SfumatoError, match="hold no digit; at least one is needed"):
        datasets.prepare(NAME, tmp_path)


GOOD = {"a": user(1, [3, 4])}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "is not of LEAF's layout; needed are users, num_samples and user_data"),
        (leaf(GOOD, user_data=[]), "is not of LEAF's layout"),
        (leaf(GOOD, num_samples=[2, 2]), "do not fit; needed are one name and one number each"),
        (leaf(GOOD, num_samples=["2"]), "do not fit"),
        (leaf(GOOD, users=[1]), "do not fit"),
        (leaf(GOOD, users=["b"]), "each user is allowed once, in both"),
        (leaf(GOOD, users=["a", "a"], num_samples=[2, 2]), "each user is allowed once, in both"),
        (leaf(GOOD, num_samples=[3]), "needed are (3, 784) and (3,), as num_samples says"),
        (leaf({"a": {"x": [[0.5] * 783], "y": [1]}}), "images of shape (1, 783)"),
        (leaf({"a": {"x": [[0.5] * 784, [0.5]], "y": [1, 1]}}), "is no list of equally many numbers each"),
        (leaf({"a": {"x": [["p"] * 784], "y": [1]}}), "is no list of equally many numbers each"),
        (leaf({"a": {"x": [[1.5] * 784], "y": [1]}}), "numbers outside of 0 (ink) to 1 (paper)"),
        (leaf({"a": {"x": [[float("nan")] * 784], "y": [1]}}), "numbers outside of 0 (ink) to 1 (paper)"),
        (leaf({"a": {"x": [[0.5] * 784], "y": [62]}}), "other classes than the integers 0 to 61"),
        (leaf({"a": {"x": [[0.5] * 784], "y": [1.5]}}), "other classes than the integers 0 to 61"),
        ({"users": ["a"], "num_samples": [1], "user_data": {"a": None}}, "as num_samples says"),
    ],
)
def test_another_layout_is_refused_in_one_sentence(tmp_path: Path, content: object, sentence: str) -> None:
    path = write(tmp_path, "all_data_0.json", content)
    with pytest.raises(SfumatoError) as caught:
        read_file(path)
    text = str(caught.value)
    assert sentence in text
    assert str(path) in text
    assert "\n" not in text


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_json_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "all_data_0.json").write_bytes(content)
    with pytest.raises(DataUnavailableError, match="cannot be read as JSON"):
        read_file(tmp_path / "all_data_0.json")
