"""Prepared data sets have the declared sizes, public scaling, and survive their file byte for byte."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from pathlib import Path

import numpy as np
import pytest

from sfumato import datasets
from sfumato.artifacts import read_npz, write_npz
from sfumato.datasets import SPECS, SPLITS, Dataset, Examples
from sfumato.datasets.dataset import check_declared, split_images
from sfumato.datasets.spec import public_permutation
from sfumato.errors import SfumatoError


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return datasets.prepare("digits", "unused")


def images(name: str, n: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    shape = (n, *SPECS[name].example_shape)
    x = (np.arange(np.prod(shape)) % 256).astype(np.uint8).reshape(shape)
    return x, np.arange(n) % classes


# ----------------------------------------------------------------------------------------------------- specs
def test_declared_sizes_are_those_of_the_sources() -> None:
    totals = {"mnist": 70_000, "fashion_mnist": 70_000, "cifar10": 60_000, "thyroid": 9_172, "digits": 1_797}
    assert {name: sum(spec.sizes().values()) for name, spec in SPECS.items()} == totals
    for spec in SPECS.values():
        assert spec.licence
        assert spec.source
        assert spec.default_model in ("cnn28", "cnn32", "mlp")


def test_specs_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SPECS["mnist"].n_train = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        SPECS["mnist"] = SPECS["digits"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("minst", {}, "there is no data set 'minst'; allowed are mnist"),
        ("mnist", {"source": "png"}, "mnist has no option 'source'; allowed are: none"),
        ("cifar10", {"source": "gif"}, "source of cifar10 is 'gif'; allowed are png, jpeg"),
        ("thyroid", {"target": "sick"}, "target of thyroid is 'sick'"),
    ],
)
def test_unknown_names_and_options_are_one_sentence(
    tmp_path: Path, name: str, options: dict[str, str], named: str
) -> None:
    for call in (datasets.fetch, datasets.prepare):
        with pytest.raises(SfumatoError, match=named):
            call(name, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------- splits
def test_validation_is_parted_off_by_a_public_permutation() -> None:
    x, y = images("mnist", 60_000)
    x[:, 0, 0, 0] = np.arange(60_000) % 251
    data = check_declared(split_images("mnist", (x, y), images("mnist", 10_000)))
    order = public_permutation(data.name, 60_000)
    np.testing.assert_array_equal(data.train.x, x[order[:55_000]])
    np.testing.assert_array_equal(data.validation.x, x[order[55_000:]])
    np.testing.assert_array_equal(data.validation.y, y[order[55_000:]])


def test_public_permutation_is_pinned_and_ignores_the_rows() -> None:
    order = public_permutation("thyroid", 9_172)
    assert sorted(order.tolist()) == list(range(9_172))
    assert hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()[:16] == "de63ce9fd56107e7"
    assert public_permutation("digits", 9_172).tolist() != order.tolist()


def test_splits_of_digits_are_disjoint_rows_of_the_source(digits: Dataset) -> None:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rebuilt = np.concatenate([digits.split(split).x.reshape(-1, 64) for split in SPLITS])
    labels = np.concatenate([digits.labels(split) for split in SPLITS])
    order = public_permutation("digits", 1_797)
    np.testing.assert_array_equal(rebuilt, x[order])
    np.testing.assert_array_equal(labels, y[order])


def test_another_number_of_rows_is_refused() -> None:
    data = split_images("mnist", images("mnist", 59_999), images("mnist", 10_000))
    with pytest.raises(SfumatoError, match=r"validation split of mnist has inputs \(4999, 1, 28, 28\)"):
        check_declared(data)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"x": lambda x: x.astype(np.float32)}, "needed are uint8"),
        ({"x": lambda x: x[:, 0]}, "declared are"),
        ({"x": lambda x: x + np.uint8(1)}, "outside of the declared bound 16"),
        ({"y": lambda y: y + 1}, r"labels 1\.\.10; declared are 0\.\.9"),
        ({"y": lambda y: y - 1}, r"labels -1\.\.8"),
        ({"y": lambda y: y.astype(np.int32)}, "int32"),
    ],
)
def test_content_outside_of_the_spec_is_refused(digits: Dataset, change: dict, named: str) -> None:
    test = digits.test
    changed = Examples(change.get("x", lambda x: x)(test.x), change.get("y", lambda y: y)(test.y))
    with pytest.raises(SfumatoError, match=f"the test split of digits has .*{named}"):
        check_declared(dataclasses.replace(digits, test=changed))


def test_non_finite_features_are_refused() -> None:
    sizes = SPECS["thyroid"].sizes()
    parts = {s: Examples(np.zeros((n, 35), np.float32), np.zeros(n, np.int64)) for s, n in sizes.items()}
    data = Dataset("thyroid", **parts, options={"target": "hypothyroid"})
    check_declared(data)
    data.test.x[3, 4] = np.nan
    with pytest.raises(SfumatoError, match="test split of thyroid has inputs outside"):
        check_declared(data)


# --------------------------------------------------------------------------------------------------- scaling
def test_scaling_uses_public_constants_only(digits: Dataset) -> None:
    """A row's scaled values are the same whatever the other rows hold."""
    x = digits.inputs("test")
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, (digits.test.x / 16.0 - 0.5) / 0.5, rtol=0, atol=1e-7)
    alone = dataclasses.replace(digits, test=Examples(digits.test.x[5:6], digits.test.y[5:6]))
    np.testing.assert_array_equal(alone.inputs("test"), x[5:6])


def test_scaled_images_fill_the_interval_and_leave_the_stored_ones() -> None:
    x = np.array([0, 255, 51], np.uint8).reshape(3, 1, 1, 1)
    data = Dataset("mnist", *[Examples(x, np.zeros(3, np.int64))] * 3)
    np.testing.assert_allclose(data.inputs("train").ravel(), [-1.0, 1.0, -0.6], atol=1e-6)
    assert x.ravel().tolist() == [0, 255, 51]


def test_unknown_split_is_refused(digits: Dataset) -> None:
    with pytest.raises(SfumatoError, match="there is no split 'tset'; allowed are train, validation, test"):
        digits.inputs("tset")


def test_titles_say_when_data_are_not_the_originals() -> None:
    part = Examples(np.zeros((1, 3, 32, 32), np.uint8), np.zeros(1, np.int64))
    assert Dataset("cifar10", part, part, part, {"source": "jpeg"}).title == "CIFAR-10 (JPEG copy)"
    assert Dataset("cifar10", part, part, part, {"source": "png"}).title == "CIFAR-10"


# ------------------------------------------------------------------------------------------------------ file
def test_file_is_byte_stable_and_comes_back(digits: Dataset, tmp_path: Path) -> None:
    datasets.save(tmp_path / "one.npz", digits)
    back = datasets.load(tmp_path / "one.npz")
    datasets.save(tmp_path / "two.npz", back)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert (back.name, dict(back.options)) == ("digits", {})
    for split in SPLITS:
        np.testing.assert_array_equal(back.split(split).x, digits.split(split).x)
        np.testing.assert_array_equal(back.labels(split), digits.labels(split))
        assert back.split(split).x.dtype == np.uint8


def test_full_size_images_save_and_load_quickly(tmp_path: Path) -> None:
    data = split_images("mnist", images("mnist", 60_000), images("mnist", 10_000))
    datasets.save(tmp_path / "mnist.npz", data)
    start = time.perf_counter()
    datasets.load(tmp_path / "mnist.npz")
    assert time.perf_counter() - start < 2.0  # 0.1 s on an idle machine


def test_file_that_is_no_prepared_data_set_is_refused(digits: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    datasets.save(path, digits)
    arrays = read_npz(path)
    for change, named in (
        ({"name": np.array("nothing")}, "there is no data set 'nothing'"),
        ({"options": np.array("{")}, "unreadable options"),
        ({"options": np.array('{"source": "png"}')}, "digits has no option"),
        ({"extra": np.zeros(1)}, "no prepared data set"),
        ({"train_x": arrays["train_x"][1:]}, "train split of digits has"),
    ):
        write_npz(path, {**arrays, **change})
        with pytest.raises(SfumatoError, match=named):
            datasets.load(path)
    path.write_bytes(b"PK")
    with pytest.raises(SfumatoError, match="not a readable npz"):
        datasets.load(path)
