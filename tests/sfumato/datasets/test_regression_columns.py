"""Columns scale one value at a time by public constants, into [-1, 1] whatever the value is."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.datasets.regression_columns import Column, RegressionSpec
from sfumato.errors import SfumatoError

LINEAR = Column("age", 15.0, 60.0, "age", "years")
LOG = Column("popul", 0.1, 10_000.0, "population", "1,000 people", "log")
INDICATOR = Column("vote", 0.0, 1.0, "vote", "code", "indicator")
ANYTHING = st.floats(allow_nan=True, allow_infinity=True)


@given(value=ANYTHING)
def test_scaled_values_are_in_the_interval_whatever_the_value(value: float) -> None:
    for column in (LINEAR, LOG, INDICATOR):
        assert -1.0 <= column.scale(value) <= 1.0


@given(first=st.floats(-1e6, 1e6), second=st.floats(-1e6, 1e6))
def test_order_is_kept(first: float, second: float) -> None:
    low, high = sorted((first, second))
    for column in (LINEAR, LOG):
        assert column.scale(low) <= column.scale(high)


@pytest.mark.parametrize("column", [LINEAR, LOG])
def test_bounds_and_everything_beyond_become_the_ends(column: Column) -> None:
    assert (column.scale(column.low), column.scale(column.high)) == (-1.0, 1.0)
    assert (column.scale(-1e300), column.scale(1e300)) == (-1.0, 1.0)


def test_linear_and_log_midpoints() -> None:
    assert LINEAR.scale(37.5) == 0.0
    assert LINEAR.scale(26.25) == -0.5
    assert LOG.scale(math.sqrt(0.1 * 10_000.0)) == pytest.approx(0.0, abs=1e-15)
    assert LOG.scale(1.0) == pytest.approx(-0.6)
    assert LOG.scale(0.0) == -1.0  # no logarithm of 0 is taken


@given(share=st.floats(0.0, 1.0))
def test_restore_undoes_scale_between_the_bounds(share: float) -> None:
    for column in (LINEAR, LOG):
        value = column.low + share * (column.high - column.low)
        assert column.restore(column.scale(value)) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("column", [LINEAR, LOG, INDICATOR])
@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf])
def test_missing_values_are_the_midpoint(column: Column, missing: float) -> None:
    assert column.scale(missing) == 0.0


def test_indicators_take_0_and_1_alone() -> None:
    assert (INDICATOR.scale(0.0), INDICATOR.scale(1.0)) == (-1.0, 1.0)
    assert [INDICATOR.scale(value) for value in (0.144, -1.0, 2.0)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("bounds", "scaling", "named"),
    [
        (
            (1.0, 1.0),
            "linear",
            "bounds of c are 1.0 and 1.0; allowed are two finite numbers, the lower one first",
        ),
        ((2.0, 1.0), "linear", "the lower one first"),
        ((math.nan, 1.0), "linear", "two finite numbers"),
        ((0.0, math.inf), "linear", "two finite numbers"),
        ((0.0, 1.0), "log", "a logarithmic scale begins above 0"),
        ((0.0, 2.0), "indicator", "an indicator's are 0 and 1"),
        ((0.0, 1.0), "square", "scaling of c is 'square'; allowed are linear, log, indicator"),
    ],
)
def test_impossible_bounds_are_one_sentence(bounds: tuple[float, float], scaling: str, named: str) -> None:
    with pytest.raises(SfumatoError, match=named):
        Column("c", *bounds, "meaning", "unit", scaling)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------- specs
def spec(**changes: object) -> RegressionSpec:
    fields = {
        "name": "demo",
        "title": "Demo",
        "features": (LOG, INDICATOR),
        "label": LINEAR,
        "n_train": 7,
        "n_validation": 1,
        "n_test": 2,
        "unit_of_privacy": "one respondent",
        "licence": "none",
        "source": "none",
    }
    return RegressionSpec(**{**fields, **changes})  # type: ignore[arg-type]


def test_label_scale_converts_scaled_errors_to_units() -> None:
    scale = spec().label_scale
    assert scale == 22.5
    assert (LINEAR.scale(40.0) - LINEAR.scale(30.0)) * scale == pytest.approx(10.0)


def test_labels_on_another_than_a_linear_scale_are_refused() -> None:
    with pytest.raises(
        SfumatoError, match="the label popul of demo is on the scale 'log'; allowed is 'linear'"
    ):
        spec(features=(LINEAR,), label=LOG)


def test_columns_of_the_same_name_are_refused() -> None:
    with pytest.raises(
        SfumatoError, match="columns of demo are popul, popul, age; each name is allowed once"
    ):
        spec(features=(LOG, LOG))
    with pytest.raises(SfumatoError, match="each name is allowed once"):
        spec(features=(LINEAR,))


def test_specs_and_columns_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec().n_train = 8  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        LINEAR.low = 0.0  # type: ignore[misc]


def test_options_are_resolved_against_what_is_allowed() -> None:
    chosen = spec(options={"label": ("raw", "log")})
    assert chosen.resolve({}) == {"label": "raw"}
    assert chosen.resolve({"label": "log"}) == {"label": "log"}
    with pytest.raises(SfumatoError, match="label of demo is 'square'; allowed are raw, log"):
        chosen.resolve({"label": "square"})
    with pytest.raises(SfumatoError, match="demo has no option 'target'; allowed are: label"):
        chosen.resolve({"target": "x"})
    with pytest.raises(SfumatoError, match="demo has no option 'target'; allowed are: none"):
        spec().resolve({"target": "x"})
