"""Regression data have the declared sizes and bounds, and survive their file byte for byte."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sfumato import datasets
from sfumato.artifacts import read_npz, write_npz
from sfumato.datasets import REGRESSION_SPECS, SPLITS, Dataset, RegressionData, Samples
from sfumato.datasets.regression import check_declared, split_samples
from sfumato.datasets.spec import public_permutation
from sfumato.errors import SfumatoError

Change = Callable[[np.ndarray], np.ndarray]


def numbered(name: str) -> Samples:
    """As many samples as declared, all different, within the bounds."""
    spec = REGRESSION_SPECS[name]
    rows = np.linspace(-1.0, 1.0, sum(spec.sizes().values()))
    return Samples(np.outer(rows, np.linspace(0.1, 1.0, len(spec.features))), -rows)


@pytest.fixture
def modechoice() -> RegressionData:
    return split_samples("modechoice", numbered("modechoice"))


# ---------------------------------------------------------------------------------------------------- splits
def test_splits_are_disjoint_rows_in_the_order_of_the_public_permutation(modechoice: RegressionData) -> None:
    samples, order = numbered("modechoice"), public_permutation("modechoice", 840)
    assert [len(modechoice.split(split)) for split in SPLITS] == [588, 84, 168]
    np.testing.assert_array_equal(
        np.concatenate([modechoice.split(split).x for split in SPLITS]), samples.x[order]
    )
    np.testing.assert_array_equal(
        np.concatenate([modechoice.split(split).y for split in SPLITS]), samples.y[order]
    )


@pytest.mark.parametrize("count", [839, 0])
def test_another_number_of_samples_is_refused(count: int) -> None:
    samples = numbered("modechoice")
    with pytest.raises(SfumatoError, match=f"modechoice has {count} samples; declared are 840"):
        split_samples("modechoice", Samples(samples.x[:count], samples.y[:count]))


def test_unknown_split_is_refused(modechoice: RegressionData) -> None:
    with pytest.raises(SfumatoError, match="there is no split 'tset'; allowed are train, validation, test"):
        modechoice.split("tset")


# ----------------------------------------------------------------------------------------------------- units
def test_labels_come_back_in_units(modechoice: RegressionData) -> None:
    label = modechoice.spec.label
    dollars = np.array([30.0, 110.5, 269.0])
    scaled = np.array([label.scale(value) for value in dollars])
    np.testing.assert_allclose(modechoice.label_in_units(scaled), dollars, rtol=1e-12)
    assert modechoice.label_scale == 200.0
    assert modechoice.title == "Travel mode choice"


# --------------------------------------------------------------------------------------------------- declared
def changed_entry(value: float) -> Change:
    def change(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        values[3] = value
        return values

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"x": lambda x: x.astype(np.float32)}, "features float32 and labels float64; needed are float64"),
        ({"y": lambda y: y.astype(np.float32)}, "labels float32"),
        ({"x": lambda x: x[:, 1:]}, r"features \(168, 6\) and labels \(168,\); declared are \(168, 7\)"),
        ({"y": lambda y: y[1:]}, r"labels \(167,\)"),
        ({"x": changed_entry(1.0 + 1e-9)}, "features outside of the declared bounds -1 and 1"),
        ({"x": changed_entry(np.nan)}, "features outside"),
        ({"y": changed_entry(-1.1)}, "labels outside"),
        ({"y": changed_entry(np.inf)}, "labels outside"),
    ],
)
def test_content_outside_of_the_spec_is_refused(
    modechoice: RegressionData, change: dict[str, Change], named: str
) -> None:
    test = modechoice.test
    broken = Samples(change.get("x", lambda x: x)(test.x), change.get("y", lambda y: y)(test.y))
    with pytest.raises(SfumatoError, match=f"the test split of modechoice has .*{named}"):
        check_declared(dataclasses.replace(modechoice, test=broken))


# ------------------------------------------------------------------------------------------------------ file
def test_file_is_byte_stable_and_comes_back(modechoice: RegressionData, tmp_path: Path) -> None:
    datasets.save(tmp_path / "one.npz", modechoice)
    back = datasets.load(tmp_path / "one.npz", RegressionData)
    datasets.save(tmp_path / "two.npz", back)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert (back.name, dict(back.options)) == ("modechoice", {})
    for split in SPLITS:
        np.testing.assert_array_equal(back.split(split).x, modechoice.split(split).x)
        np.testing.assert_array_equal(back.split(split).y, modechoice.split(split).y)
        assert back.split(split).x.dtype == back.split(split).y.dtype == np.float64


def test_file_that_is_no_regression_data_set_is_refused(modechoice: RegressionData, tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    datasets.save(path, modechoice)
    arrays = read_npz(path)
    for change, named in (
        ({"name": np.array("nothing")}, "there is no regression data set 'nothing'"),
        ({"options": np.array("{")}, "unreadable options"),
        ({"options": np.array("[1]")}, "unreadable options"),
        ({"options": np.array('{"source": "png"}')}, "modechoice has no option"),
        ({"extra": np.zeros(1)}, "no prepared data set"),
        ({"train_x": arrays["train_x"][1:]}, "train split of modechoice has"),
        ({"validation_y": arrays["validation_y"] * 2.0}, "validation split of modechoice has labels outside"),
    ):
        write_npz(path, {**arrays, **change})
        with pytest.raises(SfumatoError, match=named):
            datasets.load(path, RegressionData)
    path.write_bytes(b"PK")
    with pytest.raises(SfumatoError, match="not a readable npz"):
        datasets.load(path, RegressionData)


def test_file_of_the_other_kind_is_refused_in_one_sentence(
    modechoice: RegressionData, tmp_path: Path
) -> None:
    datasets.save(tmp_path / "modechoice.npz", modechoice)
    datasets.save(tmp_path / "digits.npz", datasets.prepare("digits", "unused"))
    assert isinstance(datasets.load(tmp_path / "digits.npz"), Dataset)
    with pytest.raises(
        SfumatoError, match="holds the regression data set modechoice; a classification one is needed"
    ):
        datasets.load(tmp_path / "modechoice.npz")
    with pytest.raises(
        SfumatoError, match="holds the classification data set digits; a regression one is needed"
    ):
        datasets.load(tmp_path / "digits.npz", RegressionData)
    with pytest.raises(SfumatoError, match=r"missing\.npz"):
        datasets.load(tmp_path / "missing.npz", RegressionData)


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("fiar", {}, "there is no data set 'fiar'; allowed are mnist, .*fair"),
        ("fair", {"source": "png"}, "fair has no option 'source'; allowed are: none"),
    ],
)
def test_unknown_names_and_options_are_one_sentence(
    tmp_path: Path, name: str, options: dict[str, str], named: str
) -> None:
    for call in (datasets.fetch, datasets.prepare):
        with pytest.raises(SfumatoError, match=named):
            call(name, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []
