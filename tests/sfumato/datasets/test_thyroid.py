"""Thyroid: every row is cleaned on its own, by public rules, into features in [-1, 1]."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.datasets import thyroid
from sfumato.datasets.thyroid import FEATURE_NAMES, LABORATORY, clean, diagnosis_is
from sfumato.errors import SfumatoError


def raw_row(**changes: str) -> dict[str, str]:
    row = {"age": "50", "sex": "F", "referral_source": "SVI", "target": "-", "patient_id": "840801013"}
    row.update(dict.fromkeys(thyroid.FLAGS, "f"))
    row.update(dict.fromkeys(LABORATORY, "1"))
    return {**row, **changes}


def features(**changes: str) -> dict[str, float]:
    x, _ = clean([raw_row(**changes)])
    return dict(zip(FEATURE_NAMES, x[0].tolist(), strict=True))


@pytest.mark.parametrize(
    ("field", "hypothyroid", "hyperthyroid"),
    [
        ("-", False, False),
        ("F", True, False),
        ("GK", True, False),
        ("GKJ", True, False),
        ("H|K", True, False),
        ("A", False, True),
        ("AK", False, True),
        ("C|I", False, True),
        ("D|R", False, True),
        ("I", False, False),
        ("MK", False, False),
    ],
)
def test_diagnosis_letters(field: str, hypothyroid: bool, hyperthyroid: bool) -> None:
    assert diagnosis_is(field, "hypothyroid") is hypothyroid
    assert diagnosis_is(field, "hyperthyroid") is hyperthyroid
    assert clean([raw_row(target=field)], "hyperthyroid")[1].tolist() == [int(hyperthyroid)]


def test_unknown_target_is_refused() -> None:
    with pytest.raises(
        SfumatoError, match="target of thyroid is 'sick'; allowed are hypothyroid, hyperthyroid"
    ):
        diagnosis_is("F", "sick")


@pytest.mark.parametrize(
    ("age", "scaled"), [("0", -1.0), ("50", 0.0), ("100", 1.0), ("65526", 1.0), ("-3", -1.0)]
)
def test_age_is_capped_to_public_bounds(age: str, scaled: float) -> None:
    assert features(age=age)["age"] == scaled


@pytest.mark.parametrize("lab", LABORATORY)
def test_laboratory_values_are_clipped_and_missing_ones_marked(lab: str) -> None:
    assert features(**{lab: "1e9"})[lab] == 1.0
    assert features(**{lab: "0"})[lab] == -1.0
    assert features(**{lab: ""})[lab] == 0.0
    assert features(**{lab: ""})[f"{lab}_missing"] == 1.0
    assert features(**{lab: "1"})[f"{lab}_missing"] == 0.0


def test_tsh_is_on_a_log_scale_and_the_others_are_linear() -> None:
    assert [features(TSH=text)["TSH"] for text in ("0.1", "1", "10")] == pytest.approx([-0.5, 0.0, 0.5])
    assert features(T4U="0.5")["T4U"] == pytest.approx(-0.5)


def test_categories_are_one_hot_and_sex_has_a_missing_mark() -> None:
    row = features(referral_source="SVI", sex="")
    assert [row[f"referral_{source}"] for source in thyroid.REFERRAL_SOURCES] == [0, 0, 0, 1, 0, 0]
    assert (row["sex"], row["sex_missing"]) == (0.0, 1.0)
    assert (features(sex="M")["sex"], features(sex="F")["sex"]) == (1.0, -1.0)
    assert features(goitre="t")["goitre"] == 1.0


NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(repr)


@given(age=NUMBERS, labs=st.lists(NUMBERS | st.just(""), min_size=6, max_size=6))
def test_features_are_in_the_unit_interval_whatever_the_row_holds(age: str, labs: list[str]) -> None:
    x, _ = clean([raw_row(age=age, **dict(zip(LABORATORY, labs, strict=True)))])
    assert np.isfinite(x).all()
    assert np.abs(x).max() <= 1.0


def test_a_row_does_not_depend_on_the_other_rows() -> None:
    rows = [raw_row(age=str(age), TSH=str(age / 7), target="F" if age % 3 else "-") for age in range(1, 30)]
    together, labels = clean(rows)
    for number in (0, 13, 28):
        alone, label = clean([rows[number]])
        np.testing.assert_array_equal(alone[0], together[number])
        assert label[0] == labels[number]


def test_patient_number_and_target_do_not_reach_the_features() -> None:
    assert features(patient_id="1", target="F") == features(patient_id="2", target="-")


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("sex", "X"),
        ("goitre", ""),
        ("goitre", "T"),
        ("referral_source", "home"),
        ("age", ""),
        ("TSH", "high"),
    ],
)
def test_unknown_texts_are_refused_with_column_and_row(column: str, text: str) -> None:
    with pytest.raises(SfumatoError, match=f"{column} in row 1 of thyroid is {text!r}"):
        clean([raw_row(), raw_row(**{column: text})])


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_non_finite_numbers_are_refused(text: str) -> None:
    assert not math.isfinite(float(text))
    with pytest.raises(SfumatoError, match="TSH in row 0"):
        clean([raw_row(TSH=text)])
