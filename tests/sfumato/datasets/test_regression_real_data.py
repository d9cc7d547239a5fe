"""The real regression tables through the real package client; skipped with the reason where none can be had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfumato import datasets
from sfumato.datasets import REGRESSION_SPECS, SPLITS, RegressionData, Samples
from sfumato.datasets.regression_tables import TABLES, clean, read_rows
from sfumato.errors import DataUnavailableError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("raw")


def fetched(name: str, folder: Path) -> RegressionData:
    try:
        datasets.fetch(name, folder)
    except DataUnavailableError as error:
        pytest.skip(str(error))
    data = datasets.prepare(name, folder)
    assert isinstance(data, RegressionData)
    return data


def r_squared(fit: Samples, score: Samples) -> float:
    """Of least squares with an intercept, fitted on one and scored on the other."""

    def design(samples: Samples) -> np.ndarray:
        return np.column_stack([np.ones(len(samples)), samples.x])

    coefficients = np.linalg.lstsq(design(fit), fit.y, rcond=None)[0]
    residuals = score.y - design(score) @ coefficients
    return float(1.0 - np.mean(residuals**2) / np.var(score.y))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("co2", 0.997, 0.999),
        ("fair", 0.855, 0.865),
        ("modechoice", 0.960, 0.965),
        ("randhie", 0.065, 0.075),
        ("anes96", 0.680, 0.690),
    ],
)
def test_least_squares_explains_what_the_raw_columns_do(
    raw: Path, name: str, low: float, high: float
) -> None:
    """R squared on all rows; without scaling it is .998, .860, .962, .069 and .685, so the bounds lose nothing."""
    data = fetched(name, raw)
    whole = Samples(
        np.concatenate([data.split(split).x for split in SPLITS]),
        np.concatenate([data.split(split).y for split in SPLITS]),
    )
    assert low < r_squared(whole, whole) < high
    assert abs(r_squared(data.train, data.test) - r_squared(whole, whole)) < 0.02


@pytest.mark.parametrize("name", TABLES)
def test_prepared_file_is_byte_stable_and_within_the_declared_bounds(
    raw: Path, tmp_path: Path, name: str
) -> None:
    data = fetched(name, raw)
    assert {split: len(data.split(split)) for split in SPLITS} == REGRESSION_SPECS[name].sizes()
    datasets.save(tmp_path / "one.npz", data)
    datasets.save(tmp_path / "two.npz", datasets.load(tmp_path / "one.npz", RegressionData))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.parametrize("name", TABLES)
def test_cleaning_a_permuted_and_reduced_file_gives_the_same_rows(raw: Path, name: str) -> None:
    fetched(name, raw)
    rows = read_rows(name, (raw / name / f"{name}.csv").read_text(encoding="utf-8"))
    rows = [row for row in rows if row[REGRESSION_SPECS[name].label.name]]
    whole = clean(name, rows)
    chosen = np.random.default_rng(1).permutation(len(rows))[: len(rows) // 3]
    part = clean(name, [rows[place] for place in chosen])
    np.testing.assert_array_equal(part.x, whole.x[chosen])
    np.testing.assert_array_equal(part.y, whole.y[chosen])


def test_weeks_without_a_measurement_are_no_clients(raw: Path) -> None:
    fetched("co2", raw)
    rows = read_rows("co2", (raw / "co2" / "co2.csv").read_text(encoding="utf-8"))
    assert len(rows) == 2_284
    assert sum(row["co2"] == "" for row in rows) == 59
    assert len(clean("co2", rows)) == 2_225


@pytest.mark.parametrize("name", TABLES)
def test_bounds_are_wide_enough_for_nearly_every_label(raw: Path, name: str) -> None:
    """Only visits to a physician are clipped, in fewer than one of a thousand years."""
    data = fetched(name, raw)
    rows = read_rows(name, (raw / name / f"{name}.csv").read_text(encoding="utf-8"))
    label = data.spec.label
    values = np.array([float(row[label.name]) for row in rows if row[label.name]])
    clipped = float(np.mean((values < label.low) | (values > label.high)))
    assert (0 < clipped < 0.001) if name == "randhie" else clipped == 0
