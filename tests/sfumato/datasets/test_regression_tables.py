"""The five tables: every row is cleaned on its own, by public rules, into samples in [-1, 1]."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato import datasets
from sfumato.datasets import REGRESSION_SPECS, regression_tables
from sfumato.datasets.fetching import Source, SourceError
from sfumato.datasets.regression_tables import TABLES, clean, clean_row, date_features, read_rows, sources
from sfumato.errors import DataUnavailableError, SfumatoError

ROWS = {
    "co2": {"date": "19580329", "co2": "316.1"},
    "fair": {
        "rate_marriage": "3",
        "age": "32",
        "yrs_married": "9",
        "children": "3",
        "religious": "3",
        "educ": "17",
        "occupation": "2",
        "occupation_husb": "5",
        "affairs": "0.1111111",
    },
    "modechoice": {
        "individual": "1",
        "mode": "1",
        "choice": "0",
        "ttme": "69",
        "invc": "59",
        "invt": "100",
        "gc": "70",
        "hinc": "35",
        "psize": "1",
    },
    "randhie": {
        "mdvis": "2",
        "lncoins": "4.61512",
        "idp": "1",
        "lpi": "6.907755",
        "fmde": "0",
        "physlm": "0",
        "disea": "13.73189",
        "hlthg": "1",
        "hlthf": "0",
        "hlthp": "0",
    },
    "anes96": {
        "popul": "190",
        "TVnews": "1",
        "selfLR": "3",
        "ClinLR": "3",
        "DoleLR": "5",
        "PID": "1",
        "age": "20",
        "educ": "4",
        "income": "1",
        "vote": "0",
    },
}
FIELDS = st.one_of(
    st.floats().map(repr), st.integers(-(10**6), 10**6).map(str), st.text(max_size=6), st.just("")
)


def features(name: str, **changes: str) -> dict[str, float]:
    cleaned = clean_row(name, {**ROWS[name], **changes})
    assert cleaned is not None
    return dict(zip(REGRESSION_SPECS[name].feature_names, cleaned[0], strict=True))


def written(name: str, rows: list[dict[str, str]]) -> str:
    """The text of a file in the manner of the data set's own."""
    table = TABLES[name]
    header = table.delimiter.join(f"{table.quote}{column}{table.quote}" for column in rows[0])
    return "\n".join([header, *(table.delimiter.join(row.values()) for row in rows)]) + "\n"


# ----------------------------------------------------------------------------------------------------- rules
@pytest.mark.parametrize("name", TABLES)
@given(data=st.data())
def test_samples_are_in_the_interval_whatever_a_row_holds(name: str, data: st.DataObject) -> None:
    cleaned = clean_row(name, {column: data.draw(FIELDS) for column in ROWS[name]})
    if cleaned is not None:
        values = np.array([*cleaned[0], cleaned[1]])
        assert np.isfinite(values).all()
        assert np.abs(values).max() <= 1.0


@pytest.mark.parametrize("name", TABLES)
def test_a_row_does_not_depend_on_the_other_rows(name: str) -> None:
    """A permuted and a reduced file give the same cleaned rows, bit for bit."""
    first, label = ROWS[name], REGRESSION_SPECS[name].label.name
    rows = [{**first, label: str(2 * number)} for number in range(40)]
    if "date" in first:
        rows = [{**row, "date": f"{1960 + number}0401"} for number, row in enumerate(rows)]
    whole = clean(name, rows)
    order = np.random.default_rng(0).permutation(40)
    permuted = clean(name, [rows[place] for place in order])
    np.testing.assert_array_equal(permuted.x, whole.x[order])
    np.testing.assert_array_equal(permuted.y, whole.y[order])
    extremes = [{**first, **dict.fromkeys(first, "1e9"), "date": "99991231", label: "-1e9"}]
    reduced = clean(name, [*extremes, *rows[10:12]])
    np.testing.assert_array_equal(reduced.x[1:], whole.x[10:12])
    np.testing.assert_array_equal(reduced.y[1:], whole.y[10:12])


@pytest.mark.parametrize(
    ("name", "column"),
    [(name, column) for name in TABLES if name != "co2" for column in REGRESSION_SPECS[name].feature_names],
)
def test_a_missing_feature_is_the_midpoint_and_moves_no_other(name: str, column: str) -> None:
    for text in ("", "NA", "nan", "inf"):
        assert features(name, **{column: text}) == {**features(name), column: 0.0}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("text", ["", "NA", "nan", "-inf"])
def test_a_row_without_a_label_is_no_client(name: str, text: str) -> None:
    row = ROWS[name]
    unlabelled = {**row, REGRESSION_SPECS[name].label.name: text}
    assert clean_row(name, unlabelled) is None
    assert len(clean(name, [row, unlabelled, row])) == 2
    assert clean(name, [unlabelled]).x.shape == (0, len(REGRESSION_SPECS[name].features))


@pytest.mark.parametrize("name", TABLES)
def test_the_label_does_not_reach_the_features(name: str) -> None:
    label = REGRESSION_SPECS[name].label.name
    assert features(name, **{label: "1"}) == features(name, **{label: "5"})


@pytest.mark.parametrize(
    ("name", "column", "text", "scaled"),
    [
        ("fair", "rate_marriage", "1", -1.0),
        ("fair", "rate_marriage", "5", 1.0),
        ("fair", "age", "37.5", 0.0),
        ("fair", "affairs", "0", -1.0),
        ("fair", "affairs", "1", 0.0),
        ("fair", "affairs", "1000", 1.0),
        ("modechoice", "choice", "1", 1.0),
        ("modechoice", "invt", "720", 0.0),
        ("modechoice", "invt", "9999", 1.0),
        ("randhie", "physlm", "1", 1.0),
        ("randhie", "physlm", "0.1442925", 0.0),
        ("randhie", "disea", "25", -0.5),
        ("anes96", "vote", "0", -1.0),
        ("anes96", "popul", "0", -1.0),
        ("anes96", "popul", "10000", 1.0),
        ("anes96", "DoleLR", "4", 0.0),
    ],
)
def test_values_are_scaled_by_the_public_bounds(name: str, column: str, text: str, scaled: float) -> None:
    assert features(name, **{column: text})[column] == pytest.approx(scaled, abs=1e-12)


def test_traveller_number_is_no_feature() -> None:
    assert features("modechoice", individual="1") == features("modechoice", individual="210")


# ------------------------------------------------------------------------------------------------------- co2
def test_dates_become_trend_and_harmonics_of_the_year() -> None:
    start, end = date_features("19580101"), date_features("20020101")
    assert (start["trend"], end["trend"]) == (-1.0, 1.0)
    assert (start["trend_squared"], end["trend_squared"]) == (1.0, 1.0)
    assert (start["sine_1"], start["cosine_1"], start["sine_2"], start["cosine_2"]) == (0.0, 1.0, 0.0, 1.0)
    summer = date_features("19800702")  # half a year later, within two days
    assert summer["cosine_1"] == pytest.approx(-1.0, abs=2e-3)
    assert summer["cosine_2"] == pytest.approx(1.0, abs=5e-3)
    spring = date_features("19800401")
    assert spring["sine_1"] == pytest.approx(1.0, abs=2e-3)
    assert abs(spring["trend"] - 22.25 / 22.0 + 1.0) < 1e-3


def test_harmonics_are_those_of_the_same_angle() -> None:
    for year in range(1958, 2002, 7):
        values = date_features(f"{year}1013")
        assert values["sine_1"] ** 2 + values["cosine_1"] ** 2 == pytest.approx(1.0)
        assert values["sine_2"] == pytest.approx(2.0 * values["sine_1"] * values["cosine_1"])
        assert values["cosine_2"] == pytest.approx(2.0 * values["cosine_1"] ** 2 - 1.0)
        assert values["trend_squared"] == values["trend"] ** 2


@pytest.mark.parametrize("text", ["", "1958", "19581301", "1958-03-29", "long ago", "195803" + "9" * 30])
def test_a_date_that_is_none_leaves_every_feature_missing(text: str) -> None:
    assert all(math.isnan(value) for value in date_features(text).values())
    assert set(features("co2", date=text).values()) == {0.0}


# ------------------------------------------------------------------------------------------------------ files
@pytest.mark.parametrize("name", TABLES)
def test_rows_come_back_from_text_in_each_file_s_own_manner(name: str) -> None:
    rows = [ROWS[name], {**ROWS[name], REGRESSION_SPECS[name].label.name: "4"}]
    assert read_rows(name, written(name, rows)) == rows


@pytest.mark.parametrize("name", TABLES)
def test_a_missing_column_is_one_sentence(name: str) -> None:
    needed = "date" if name == "co2" else REGRESSION_SPECS[name].feature_names[-1]
    for column in (needed, REGRESSION_SPECS[name].label.name):
        row = {key: value for key, value in ROWS[name].items() if key != column}
        with pytest.raises(SfumatoError, match=rf"^{name}\.csv lacks the column {column}; it holds .*\.$"):
            read_rows(name, written(name, [row]))
    with pytest.raises(SfumatoError, match="it holds nothing"):
        read_rows(name, "")


def test_a_row_with_another_number_of_fields_is_one_sentence() -> None:
    text = written("fair", [ROWS["fair"]]) + "1,2,3\n"
    with pytest.raises(SfumatoError, match=r"^row 1 of fair\.csv has 3 fields; its header has 9\.$"):
        read_rows("fair", text)


@pytest.mark.parametrize("name", TABLES)
def test_a_missing_or_damaged_file_is_one_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataUnavailableError, match=rf"{name}\.csv is missing; fetch {name} first"):
        datasets.prepare(name, tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{name}.csv").write_bytes(b"x" * TABLES[name].file.size)
    with pytest.raises(DataUnavailableError, match="has another checksum than expected"):
        datasets.prepare(name, tmp_path)


def test_a_damaged_copy_is_not_fetched_and_the_sentence_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = sources("fair", {})[0].description
    monkeypatch.setattr(regression_tables, "pip_source", lambda *_: Source(package, unreachable))
    monkeypatch.setattr(regression_tables, "mirror_source", lambda *_: Source("its mirror", unreachable))
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / "fair.csv").write_bytes(b"damaged")
    with pytest.raises(DataUnavailableError) as caught:
        datasets.fetch("fair", tmp_path / "raw", [tmp_path / "copies"])
    sentence = str(caught.value)
    assert "the Python package statsmodels==0.15.0 (it cannot be reached) or its mirror" in sentence
    assert "fair.csv has another checksum than expected" in sentence
    assert "\n" not in sentence
    assert not (tmp_path / "raw" / "fair" / "fair.csv").exists()


def unreachable(*_: object) -> dict[str, Path]:
    raise SourceError("it cannot be reached")


@pytest.mark.parametrize("name", TABLES)
def test_sources_are_the_pinned_package_and_then_its_repository(name: str) -> None:
    package, repository = sources(name, {})
    assert package.description == "the Python package statsmodels==0.15.0"
    assert repository.description.endswith(f"/v0.15.0/statsmodels/datasets/{name}/{name}.csv")
    assert TABLES[name].file.checksum.startswith("sha256:")
