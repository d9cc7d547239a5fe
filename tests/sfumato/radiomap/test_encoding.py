"""Encoding: a public range of dB, undone by decoding, and RadioMapSeer's threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.radiomap.encoding import CITY, RADIO_MAP_SEER, Encoding, decibels, decode, encode


@given(st.floats(-400.0, 50.0), st.sampled_from([CITY, RADIO_MAP_SEER, Encoding(-120.0, -30.0, 0.5)]))
def test_decoding_undoes_encoding_within_the_range_and_cuts_outside(gain: float, encoding: Encoding) -> None:
    value = encode(gain, encoding)
    assert value.dtype == np.float32
    assert 0.0 <= float(value) <= 1.0
    expected = min(max(gain, encoding.floor), encoding.high)
    assert float(decode(value, encoding)) == pytest.approx(expected, abs=1e-4)


def test_radiomapseer_is_rescaled_as_published() -> None:
    grey = np.arange(256)
    gain = -186.0 + 139.0 * grey / 255.0
    published = (np.maximum(grey / 255.0, 0.2) - 0.2) / 0.8
    np.testing.assert_allclose(encode(gain, RADIO_MAP_SEER), published, atol=1e-6)
    np.testing.assert_allclose(RADIO_MAP_SEER.rescale(grey / 255.0), published, atol=1e-6)


def test_one_unit_of_the_city_maps_is_100_decibels() -> None:
    assert CITY.unit == 100.0
    assert float(encode(-80.0) - encode(-90.0)) == pytest.approx(0.1, abs=1e-6)


def test_buildings_become_zero() -> None:
    assert float(encode(-np.inf)) == 0.0


def test_decibels_of_a_mean_square() -> None:
    assert decibels(1e-3) == pytest.approx(-30.0)
    assert decibels(0.0) == -math.inf


@pytest.mark.parametrize("numbers", [(0.0, 0.0), (1.0, -1.0), (math.nan, 0.0), (-10.0, math.inf)])
def test_an_encoding_needs_ascending_numbers(numbers: tuple[float, float]) -> None:
    with pytest.raises(SfumatoError, match="ascending"):
        Encoding(*numbers)


@pytest.mark.parametrize("threshold", [-0.1, 1.0])
def test_a_threshold_is_a_share(threshold: float) -> None:
    with pytest.raises(SfumatoError, match="threshold"):
        Encoding(-100.0, 0.0, threshold)


def test_nan_is_refused() -> None:
    with pytest.raises(SfumatoError, match="NaN"):
        encode([math.nan])
    with pytest.raises(SfumatoError, match="mean squared error"):
        decibels(math.nan)
    with pytest.raises(SfumatoError, match="mean squared error"):
        decibels(-1.0)
