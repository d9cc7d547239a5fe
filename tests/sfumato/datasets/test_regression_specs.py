"""The declared facts of the regression data sets: sizes, bounds from the codebooks, and what a row is."""

from __future__ import annotations

import math

import pytest

from sfumato.datasets import REGRESSION_SPECS, SPECS, Column, get_regression_spec
from sfumato.errors import SfumatoError


def columns(name: str) -> dict[str, Column]:
    spec = REGRESSION_SPECS[name]
    return {column.name: column for column in (*spec.features, spec.label)}


def test_declared_sizes_are_those_of_the_sources() -> None:
    totals = {name: sum(spec.sizes().values()) for name, spec in REGRESSION_SPECS.items()}
    assert totals == {
        "co2": 2_225,  # of 2,284 weeks, 59 of which have no measurement
        "fair": 6_366,
        "modechoice": 840,
        "randhie": 20_190,
        "anes96": 944,
        "generated": 65_000,
    }


@pytest.mark.parametrize("name", [name for name in REGRESSION_SPECS if name != "generated"])
def test_splits_are_seventy_ten_and_twenty_per_cent(name: str) -> None:
    sizes = REGRESSION_SPECS[name].sizes()
    total = sum(sizes.values())
    for split, share in (("train", 0.7), ("validation", 0.1), ("test", 0.2)):
        assert abs(sizes[split] - share * total) < 1.0


def test_names_are_apart_from_those_of_the_classification_sets() -> None:
    assert not set(REGRESSION_SPECS) & set(SPECS)
    assert {name: spec.name for name, spec in REGRESSION_SPECS.items()} == {n: n for n in REGRESSION_SPECS}


@pytest.mark.parametrize("name", REGRESSION_SPECS)
def test_every_column_says_what_it_means_and_every_set_where_it_is_from(name: str) -> None:
    spec = REGRESSION_SPECS[name]
    assert all(column.meaning and column.unit for column in columns(name).values())
    assert spec.title
    assert spec.licence
    assert spec.source
    assert spec.unit_of_privacy


@pytest.mark.parametrize(
    ("name", "column", "low", "high"),
    [
        ("fair", "rate_marriage", 1, 5),
        ("fair", "religious", 1, 4),
        ("fair", "educ", 9, 20),
        ("fair", "occupation", 1, 6),
        ("fair", "occupation_husb", 1, 6),
        ("modechoice", "mode", 1, 4),
        ("randhie", "lncoins", 0, math.log(101)),
        ("anes96", "TVnews", 0, 7),
        ("anes96", "selfLR", 1, 7),
        ("anes96", "ClinLR", 1, 7),
        ("anes96", "DoleLR", 1, 7),
        ("anes96", "educ", 1, 7),
        ("anes96", "income", 1, 24),
        ("anes96", "PID", 0, 6),
    ],
)
def test_documented_codes_are_the_bounds(name: str, column: str, low: float, high: float) -> None:
    found = columns(name)[column]
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize(
    ("name", "indicators"),
    [
        ("modechoice", {"choice"}),
        ("randhie", {"idp", "physlm", "hlthg", "hlthf", "hlthp"}),
        ("anes96", {"vote"}),
        ("fair", set()),
    ],
)
def test_yes_or_no_columns_are_indicators(name: str, indicators: set[str]) -> None:
    assert {c.name for c in columns(name).values() if c.scaling == "indicator"} == indicators


def test_specs_cannot_be_replaced() -> None:
    with pytest.raises(TypeError):
        REGRESSION_SPECS["fair"] = REGRESSION_SPECS["co2"]  # type: ignore[index]


def test_unknown_name_is_one_sentence() -> None:
    assert get_regression_spec("co2") is REGRESSION_SPECS["co2"]
    with pytest.raises(SfumatoError, match="there is no regression data set 'mnist'; allowed are co2, fair"):
        get_regression_spec("mnist")
