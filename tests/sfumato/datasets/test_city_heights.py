"""The committed building heights: verified, complete, under their licence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfumato.datasets.city_heights import CHECKSUM, CITIES, FILE, load_city_heights
from sfumato.errors import DataUnavailableError, SfumatoError


def test_four_cities_in_whole_metres() -> None:
    shapes = {
        "munich": (1205, 1475),
        "florence": (1100, 1000),
        "etoile": (676, 853),
        "san_francisco": (927, 1221),
    }
    heights = load_city_heights()
    assert tuple(heights) == CITIES
    assert {name: values.shape for name, values in heights.items()} == shapes
    for values in heights.values():
        assert values.dtype == np.uint8
        assert 0.2 < (values > 0).mean() < 0.5
        assert 40 < values.max() < 120


def test_the_notice_lies_beside_the_file_and_names_licence_and_checksum() -> None:
    notice = FILE.with_suffix(".txt").read_text(encoding="utf-8")
    for words in ("OpenStreetMap contributors", "Open Database License 1.0", "sionna-rt 2.2.0", CHECKSUM):
        assert words in notice


def test_another_content_is_refused(tmp_path: Path) -> None:
    changed = tmp_path / "heights.npz"
    changed.write_bytes(FILE.read_bytes()[:-1] + b"\0\0")
    with pytest.raises(DataUnavailableError, match="another content"):
        load_city_heights(file=changed)
    with pytest.raises(DataUnavailableError, match="is missing"):
        load_city_heights(file=tmp_path / "none.npz")


def test_an_unknown_city_is_refused() -> None:
    with pytest.raises(SfumatoError, match="'paris' is unknown; allowed are munich"):
        load_city_heights(["paris"])
