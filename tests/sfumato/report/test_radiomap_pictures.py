"""Pictures of radio maps: every cell in its level, errors in their units, named as defences are elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.report import pictures_of
from sfumato.report.radiomap_pictures import (
    LEVELS,
    building_picture,
    legend_picture,
    levels_of,
    prediction_picture,
    truth_picture,
)

sys.path.insert(0, str(Path(__file__).parent))
import generated_radiomap as generated


def test_every_cell_is_drawn_once_in_the_level_of_its_value() -> None:
    found = generated.pictures()
    levels = levels_of(found.truth, found.free, *found.scale, LEVELS)
    drawn = np.full(levels.shape, -1)
    for level, path in re.findall(r'gain-(\d+)\)" d="([^"]*)"', truth_picture(found, "a")):
        for column, row, width in re.findall(r"M(\d+) (\d+)h(\d+)v1", path):
            here = drawn[int(row), int(column) : int(column) + int(width)]
            assert (here == -1).all()
            here[:] = int(level)
    assert (drawn == levels).all()
    assert set(np.unique(levels)) == {-1, *range(LEVELS)}


def test_values_beyond_the_scale_have_the_colour_of_its_end() -> None:
    arrays = generated.picture_arrays(names=["uniform/3", "none/0"])
    arrays["predictions"] = np.stack([np.full((32, 32), -400.0), np.full((32, 32), 30.0)])
    found = pictures_of("city_maps", arrays)
    for place, level in ((0, 0), (1, LEVELS - 1)):
        assert set(re.findall(r"--gain-(\d+)", prediction_picture(found, place, "a"))) == {str(level)}


def test_a_picture_is_named_as_the_defence_is_elsewhere_with_its_multiplier() -> None:
    found = generated.pictures()
    assert [found.title(place) for place in range(3)] == [
        "No defence",
        "Uniform noise, ν = 3",
        "Adaptive noise, ν = 3",
    ]
    assert "Predicted radio map, Adaptive noise, ν = 3" in prediction_picture(found, 2, "a")


def test_errors_and_distances_are_in_decibels_and_metres() -> None:
    found = generated.pictures()
    assert [found.error_db(place) for place in range(3)] == pytest.approx([3.0, 6.0, 9.0])
    assert [found.distance(place) for place in range(3)] == pytest.approx([0.0, 40.0, 80.0])
    low, high = found.scale
    assert low < high <= 0
    assert f">{high:g} dB</text>".replace("-", "−") in legend_picture(found, "a")


def test_a_guess_outside_of_the_window_is_drawn_at_its_edge() -> None:
    arrays = generated.picture_arrays(names=["uniform/3"])
    arrays["guesses"] = np.array([[-50.0, 90.0]])
    drawing = prediction_picture(pictures_of("city_maps", arrays), 0, "a")
    assert 'd="M32.00 0.00L' in drawing


def test_a_window_without_buildings_or_of_one_level_is_drawn() -> None:
    arrays = generated.picture_arrays(size=8)
    arrays |= {"heights": np.zeros((8, 8)), "free": np.ones((8, 8), bool), "truth": np.full((8, 8), -90.0)}
    found = pictures_of("city_maps", arrays)
    assert found.scale == (-90.0, -85.0)
    assert building_picture(found, "a").startswith("<svg")
    assert truth_picture(found, "b").startswith("<svg")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"truth": None}, "the pictures of city_maps lack the array 'truth'; needed are heights"),
        ({"truth": np.zeros((31, 32))}, "have truth of shape (31, 32); needed is (32, 32)"),
        ({"guesses": np.zeros((2, 2))}, "have guesses of shape (2, 2); needed is (3, 2)"),
        ({"predictions": np.full((3, 32, 32), np.nan)}, "have predictions that are not finite"),
        ({"free": np.zeros((32, 32), bool)}, "have no free cell"),
        (
            {"truth": np.full((32, 32), 0.4)},
            "have a true path gain of 0.4; allowed are decibels of at most 0",
        ),
    ],
)
def test_bad_pictures_are_refused_in_one_sentence(changed: dict[str, Any], sentence: str) -> None:
    arrays = {**generated.picture_arrays(), **changed}
    with pytest.raises(SfumatoError, match=re.escape(sentence)):
        pictures_of("city_maps", {name: array for name, array in arrays.items() if array is not None})
