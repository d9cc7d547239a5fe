"""Distances are those of the plane; intervals resample whole maps; rows fit a metrics document."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.localisation import (
    AttackResult,
    Localisation,
    Scored,
    curve,
    evaluate,
    records,
    window_centre_error,
)
from sfumato.records import from_document, to_document
from sfumato.rng import Streams


def found(validation: float, test: float) -> Scored:
    return Scored(
        Localisation(validation, validation, None, None, 3, 1),
        Localisation(test, test, test - 1.0, test + 1.0, 9, 3),
    )


RESULT = AttackResult(
    {"ridge": found(40.0, 50.0), "perceptron": found(45.0, 44.0)},
    Localisation(90.0, 88.0, 85.0, 95.0, 9, 3),
    {},
)


def test_the_error_is_the_root_mean_square_distance_in_the_plane() -> None:
    true = np.array([[0.0, 0.0], [10.0, 10.0], [1.0, 1.0]])
    result = evaluate(
        true + np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]]), true, np.arange(3), Streams(0).stream("a")
    )
    assert result.rmse == pytest.approx(np.sqrt((25.0 + 0.0 + 1.0) / 3))
    assert result.median == pytest.approx(1.0)
    assert (result.count, result.maps) == (3, 3)


def test_the_centre_of_a_window_is_off_by_its_side_over_the_root_of_six() -> None:
    """2e5 uniform positions; the estimate's deviation is 0.07 m, so 0.5 m is a false alarm once in 1e12."""
    places = np.random.default_rng(0).uniform(0.0, 256.0, (200_000, 2))
    away = np.linalg.norm(places - 128.0, axis=1)
    assert np.sqrt(np.mean(away**2)) == pytest.approx(window_centre_error(256.0), abs=0.5)


def test_intervals_resample_whole_maps() -> None:
    """Nine copies of each position on its map carry no more than one: the interval is as wide."""
    random = np.random.default_rng(0)
    true = random.uniform(0.0, 100.0, (40, 2))
    once = evaluate(np.full((40, 2), 50.0), true, np.arange(40), Streams(0).stream("a"))
    copies = np.repeat(true, 9, axis=0)
    many = evaluate(np.full((360, 2), 50.0), copies, np.repeat(np.arange(40), 9), Streams(0).stream("a"))
    assert (many.low, many.high) == pytest.approx((once.low, once.high))
    apart = evaluate(np.full((360, 2), 50.0), copies, np.arange(360), Streams(0).stream("a"))
    assert once.low is not None
    assert once.high is not None
    assert apart.low is not None
    assert apart.high is not None
    assert apart.high - apart.low < 0.5 * (once.high - once.low)
    assert once.low < once.rmse < once.high


def test_the_interval_covers_the_true_error_about_as_often_as_it_says() -> None:
    """200 studies of 50 maps with map effects: at least 86 % of 95 % intervals cover; false alarm below 1e-5."""
    random, covered = np.random.default_rng(0), 0
    for number in range(200):
        scale = np.repeat(random.uniform(5.0, 15.0, 50), 4)
        true = scale[:, None] * random.standard_normal((200, 2))
        result = evaluate(np.zeros((200, 2)), true, np.repeat(np.arange(50), 4), Streams(number).stream("a"))
        assert result.low is not None
        assert result.high is not None
        expected = np.sqrt(2.0 * (100.0 + 100.0 / 12.0))  # E scale^2 over a uniform scale of 5 to 15
        covered += result.low <= expected <= result.high
    assert covered >= 172


def test_one_map_has_no_interval_and_its_row_says_why() -> None:
    result = evaluate(np.zeros((2, 2)), np.ones((2, 2)), np.zeros(2, int), Streams(0).stream("a"))
    values = result.to_values()
    assert result.low is None
    assert values["localization_rmse_low"] is None
    assert "one map" in str(values["localization_rmse_low_reason"])


def test_the_chosen_attacker_is_that_of_validation_and_the_minimum_that_of_the_test() -> None:
    assert (RESULT.chosen, RESULT.minimum) == ("ridge", "perceptron")


def test_rows_fit_a_metrics_document_and_label_choice_and_minimum() -> None:
    rows = records({"all": RESULT, "slices": RESULT}, {"defence": "uniform", "seed": "0"})
    document = to_document("radiomap", "attack", ["defence", "seed", "view", "attacker"], rows)
    assert from_document(document) == sorted(rows, key=lambda row: tuple(row.levels.values()))
    leaves = document["values"]["uniform"]["0"]["all"]
    assert leaves["chosen_by_validation"]["localization_rmse"] == 50.0
    assert leaves["chosen_by_validation"]["same_as_ridge"] is True
    assert leaves["minimum_over_test"]["localization_rmse"] == 44.0
    assert leaves["minimum_over_test"]["validation_localization_rmse"] == 45.0
    assert leaves["constant"]["localization_rmse"] == 90.0
    with pytest.raises(SfumatoError, match="the levels hold 'view'"):
        records({"all": RESULT}, {"view": "all"})


def test_a_curve_has_a_row_per_round_in_order() -> None:
    rows = curve({20: RESULT, 5: RESULT}, "minimum_over_test")
    assert [row["round"] for row in rows] == [5.0, 20.0]
    assert rows[0]["localization_rmse"] == 44.0
    assert rows[0]["constant_rmse"] == 90.0
    with pytest.raises(SfumatoError, match="attacker 'oracle' has no result at round 5"):
        curve({5: RESULT}, "oracle")


def test_guesses_that_are_not_positions_are_refused() -> None:
    stream = Streams(0).stream("a")
    with pytest.raises(SfumatoError, match="finite numbers of metres"):
        evaluate(np.full((1, 2), np.nan), np.zeros((1, 2)), np.zeros(1), stream)
    with pytest.raises(SfumatoError, match=r"the guessed positions have shape \(2, 2\)"):
        evaluate(np.zeros((2, 2)), np.zeros((1, 2)), np.zeros(1), stream)
    with pytest.raises(SfumatoError, match="one label for each"):
        evaluate(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros(2), stream)
