"""Attackers reach known optima, find nothing where there is nothing, and hold whole maps out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.attackers import ATTACKERS, attack, attack_views, fit_attackers
from sfumato.radiomap.features import Noise, Sessions
from sfumato.rng import Streams
from tests.sfumato.radiomap.attacked import WINDOW, best_linear_error, knowledge, linear_sessions


def mixing(dimension: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, dimension))


@pytest.mark.parametrize("deviation", [50.0, 200.0])
def test_linear_attackers_reach_the_least_linear_error(deviation: float) -> None:
    """480 shadow uploads of 20 weights: within 8 % of the optimum on 1500 others; the error's own deviation is 2.5 %."""
    weights = mixing(20)
    shadow, attacked = (
        linear_sessions(480, weights, deviation, 1),
        linear_sessions(1500, weights, deviation, 2, 1000),
    )
    found = attack(
        shadow,
        attacked,
        Streams(0),
        knowledge(shadow, deviation),
        ["ridge", "whitened_ridge", "noise_aware_ridge"],
    )
    least = best_linear_error(weights, deviation)
    assert found.constant.rmse > 1.3 * least
    for scored in found.scores.values():
        assert scored.test.rmse == pytest.approx(least, rel=0.08)
        assert scored.validation.rmse == pytest.approx(least, rel=0.08)


def uneven(dimension: int) -> np.ndarray:
    """Little noise on a tenth of the weights, fifty times as much on the others."""
    return np.where(np.arange(dimension) < dimension // 10, 200.0, 10_000.0)


def test_knowing_the_noise_helps_where_it_is_uneven() -> None:
    """100 shadow uploads of 1000 weights: clean shadow uploads come near the optimum, noisy ones cannot."""
    weights, deviation = mixing(1000), uneven(1000)
    shadow, attacked = (
        linear_sessions(100, weights, deviation, 1),
        linear_sessions(500, weights, deviation, 2, 1000),
    )
    names = ["ridge", "whitened_ridge", "noise_aware_ridge"]
    found = attack(shadow, attacked, Streams(0), knowledge(shadow, deviation), names).scores
    assert found["noise_aware_ridge"].test.rmse < 1.15 * best_linear_error(weights, deviation)
    assert found["whitened_ridge"].test.rmse < 0.7 * found["ridge"].test.rmse
    assert found["noise_aware_ridge"].test.rmse < 0.9 * found["whitened_ridge"].test.rmse


@pytest.mark.parametrize("seed", range(6))
def test_whitening_is_never_much_worse_than_the_plain_ridge(seed: int) -> None:
    """Random noise levels of four groups over three decades: at most 5 % worse on 600 uploads."""
    random = np.random.default_rng(seed)
    weights = mixing(400, seed)
    deviation = np.repeat(10.0 ** random.uniform(1.0, 4.0, 4), 100)
    shadow = linear_sessions(160, weights, deviation, seed + 10)
    attacked = linear_sessions(600, weights, deviation, seed + 20, 1000)
    names = ["ridge", "whitened_ridge", "noise_aware_ridge"]
    found = attack(shadow, attacked, Streams(0), knowledge(shadow, deviation), names).scores
    assert found["whitened_ridge"].test.rmse < 1.05 * found["ridge"].test.rmse
    assert found["noise_aware_ridge"].test.rmse < 1.05 * found["whitened_ridge"].test.rmse


def test_noise_alone_gives_the_constant_predictors_error() -> None:
    shadow = linear_sessions(200, np.zeros((2, 1000)), 1.0, 1)
    attacked = linear_sessions(400, np.zeros((2, 1000)), 1.0, 2, 1000)
    found = attack(shadow, attacked, Streams(0), knowledge(shadow, 1.0))
    assert len(found.scores) == 5
    for scored in found.scores.values():
        assert scored.test.rmse == pytest.approx(found.constant.rmse, rel=0.03)
        assert scored.validation.rmse > 0.97 * found.constant.rmse


@pytest.mark.parametrize("name", ["rbf_ridge", "perceptron"])
def test_attackers_that_are_not_linear_see_what_a_line_cannot(name: str) -> None:
    random = np.random.default_rng(0)
    places = random.uniform(0.0, WINDOW, (500, 2))
    angles = (places / WINDOW * 1.5 * np.pi)[:, :, None] + np.array([0.0, np.pi / 2])
    uploads = np.cos(angles).reshape(500, 4) @ random.standard_normal((4, 60))
    sessions = Sessions(uploads, places, np.arange(500) // 4, WINDOW)  # type: ignore[arg-type]
    shadow, attacked = sessions.select(np.arange(300)), sessions.select(np.arange(300, 500))
    found = attack(shadow, attacked, Streams(0), names=["ridge", name]).scores
    assert found[name].test.rmse < 0.6 * found["ridge"].test.rmse


def test_a_view_sees_the_signal_of_its_weights_only() -> None:
    weights = mixing(50)
    weights[:, 25:] = 0.0
    shadow, attacked = linear_sessions(200, weights, 30.0, 1), linear_sessions(400, weights, 30.0, 2, 1000)
    views = {"all": None, "with": np.arange(25), "without": np.arange(25, 50)}
    found = attack_views(
        shadow, attacked, views, Streams(0), knowledge(shadow, 30.0), ["ridge", "whitened_ridge"]
    )
    assert list(found) == ["all", "with", "without"]
    for name in ("ridge", "whitened_ridge"):
        assert found["with"].scores[name].test.rmse < 0.3 * found["with"].constant.rmse
        assert found["all"].scores[name].test.rmse < 0.3 * found["with"].constant.rmse
        assert found["without"].scores[name].test.rmse > 0.95 * found["with"].constant.rmse


@pytest.mark.parametrize("name", list(ATTACKERS))
def test_held_out_errors_foretell_the_errors_on_other_maps_in_many_dimensions(name: str) -> None:
    """Components of the held-out uploads themselves would flatter by 30 %. The ratio's deviation over seeds is 5 %."""
    weights = mixing(3000)
    shadow, attacked = (
        linear_sessions(160, weights, 1500.0, 1),
        linear_sessions(1000, weights, 1500.0, 2, 1000),
    )
    found = attack(shadow, attacked, Streams(0), knowledge(shadow, 1500.0), [name]).scores[name]
    assert found.validation.rmse == pytest.approx(found.test.rmse, rel=0.15)


def test_copies_of_an_uploaded_session_do_not_deceive_validation() -> None:
    """Uploads name their map and nothing else; four copies each. No attacker may think that it has found anything."""
    random = np.random.default_rng(0)
    places = np.repeat(random.uniform(0.0, WINDOW, (40, 2)), 4, axis=0)
    uploads = np.repeat(random.standard_normal((40, 300)), 4, axis=0) + 0.1 * random.standard_normal(
        (160, 300)
    )
    shadow = Sessions(uploads, places, np.repeat(np.arange(40), 4), WINDOW)  # type: ignore[arg-type]
    for attacker in fit_attackers(shadow, Streams(0)):
        away = np.linalg.norm(attacker.held_out - places, axis=1)
        assert np.sqrt(np.mean(away**2)) > 0.93 * np.sqrt(places.var(axis=0).sum())


def test_guesses_stay_in_the_window_and_every_bit_is_reproduced() -> None:
    weights = mixing(20)
    shadow = linear_sessions(60, weights, 10.0, 1)
    wild = 1e6 * np.random.default_rng(0).standard_normal((30, 20))
    first = fit_attackers(shadow, Streams(3), knowledge(shadow, 10.0))
    again = fit_attackers(shadow, Streams(3), knowledge(shadow, 10.0))
    for one, other in zip(first, again, strict=True):
        guesses = one.predict(wild)
        assert guesses.shape == (30, 2)
        assert guesses.min() >= 0.0
        assert guesses.max() <= WINDOW
        assert np.array_equal(guesses, other.predict(wild))
        assert np.array_equal(one.held_out, other.held_out)


def test_uploads_without_any_difference_leave_the_constant_guess() -> None:
    shadow = linear_sessions(40, np.zeros((2, 7)), 0.0, 1)
    attacked = linear_sessions(40, np.zeros((2, 7)), 0.0, 2, 1000)
    found = attack(shadow, attacked, Streams(0), knowledge(shadow, 0.0))
    for scored in found.scores.values():
        assert scored.test.rmse == pytest.approx(found.constant.rmse, rel=0.02)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"names": ["oracle"]}, "attacker 'oracle' is unknown"),
        ({"names": []}, "attacker None is unknown"),
        ({"names": ["noise_aware_ridge"]}, "no clean shadow uploads or no noise"),
        ({"noise": Noise(np.ones(3), np.ones(3))}, "the noise is known of 3 weights; allowed is 8"),
        ({"shadow": linear_sessions(8, mixing(8), 1.0, 1)}, "come from 2 maps"),
        ({"attacked": linear_sessions(8, mixing(9), 1.0, 1)}, "have 9 weights; allowed is 8"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change: dict[str, Any], says: str) -> None:
    given = {
        "shadow": linear_sessions(20, mixing(8), 1.0, 1),
        "attacked": linear_sessions(8, mixing(8), 1.0, 2),
        "streams": Streams(0),
    }
    with pytest.raises(SfumatoError, match=says):
        attack(**(given | change))
    with pytest.raises(SfumatoError, match="row 1 of the uploads holds a NaN"):
        fit_attackers(given["shadow"], Streams(0), names=["ridge"])[0].predict(  # type: ignore[arg-type]
            np.array([[0.0] * 8, [np.nan] * 8])
        )
