"""A sum tells the mean position and not who is where."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.summed import attack_sums, disjoint_sums, draw_sums
from sfumato.rng import Streams
from tests.sfumato.radiomap.attacked import knowledge, linear_sessions

MIXING = np.random.default_rng(0).standard_normal((2, 40))


def test_a_perfect_reading_of_the_sum_leaves_the_spread_around_the_mean() -> None:
    """For each of 6 transmitters sqrt(1 - 1/6) of the constant predictor's error; 900 uploads, within 4 %."""
    shadow, attacked = linear_sessions(400, MIXING, 1.0, 1), linear_sessions(900, MIXING, 1.0, 2, 1000)
    found = attack_sums(
        shadow, attacked, 6, 200, Streams(0), knowledge(shadow, 1.0), ["ridge", "noise_aware_ridge"]
    )
    assert found.summands == 6
    for name in ("ridge", "noise_aware_ridge"):
        ratio = found.each[name].rmse / found.constant_each.rmse
        assert ratio == pytest.approx(np.sqrt(5 / 6), rel=0.04)
        assert found.nearest[name].rmse < found.each[name].rmse
    assert (found.each["ridge"].count, found.nearest["ridge"].count) == (900, 150)
    assert found.constant_nearest.rmse < found.constant_each.rmse


def test_the_sum_of_one_upload_is_the_upload() -> None:
    shadow, attacked = linear_sessions(200, MIXING, 5.0, 1), linear_sessions(100, MIXING, 5.0, 2, 1000)
    found = attack_sums(shadow, attacked, 1, 200, Streams(0), names=["ridge"])
    assert found.each["ridge"].rmse < 0.1 * found.constant_each.rmse
    assert found.each["ridge"].rmse == pytest.approx(found.nearest["ridge"].rmse)


def test_sums_add_up_and_keep_their_members() -> None:
    sessions = linear_sessions(40, MIXING, 1.0, 1)
    sums = disjoint_sums(sessions, 6, Streams(0).stream("a"))
    assert sums.members.shape == (6, 6, 2)
    assert np.allclose(sums.members.mean(axis=1), sums.sessions.positions)
    assert sums.sessions.clean is not None
    assert np.allclose(
        sums.sessions.clean, 6 * (sums.sessions.positions - 128.0) @ MIXING, rtol=1e-4, atol=1e-2
    )
    members = sums.members.reshape(-1, 2)
    assert len(np.unique(members, axis=0)) == 36


def test_no_map_is_in_shadow_sums_of_two_parts() -> None:
    sessions = linear_sessions(80, MIXING, 1.0, 1)
    sums = draw_sums(sessions, 4, 60, Streams(0).stream("a"))
    map_at = {tuple(place): number for place, number in zip(sessions.positions, sessions.maps, strict=True)}
    parts: dict[int, set[int]] = {}
    for part, members in zip(sums.sessions.maps, sums.members, strict=True):
        numbers = [int(map_at[tuple(place)]) for place in members]
        assert len(np.unique(members, axis=0)) == 4
        for number in numbers:
            parts.setdefault(number, set()).add(int(part))
    assert all(len(found) == 1 for found in parts.values())
    assert len(np.unique(sums.sessions.maps)) == 5


def test_sums_that_cannot_be_drawn_are_refused() -> None:
    sessions = linear_sessions(20, MIXING, 1.0, 1)
    stream = Streams(0).stream("a")
    with pytest.raises(
        SfumatoError, match=r"5 uploads are to be summed; allowed are 1 to 4, as many as .* make more uploads"
    ):
        draw_sums(sessions, 5, 10, stream)
    with pytest.raises(SfumatoError, match="0 sums are asked for"):
        draw_sums(sessions, 2, 0, stream)
    with pytest.raises(SfumatoError, match="21 uploads are to be summed; allowed are 1 to 20"):
        disjoint_sums(sessions, 21, stream)
    with pytest.raises(SfumatoError, match="2 maps"):
        draw_sums(linear_sessions(8, MIXING, 1.0, 1), 2, 10, stream)
