"""Noise falls with the root of the number of rounds, and the attack's error with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.features import Sessions
from sfumato.radiomap.multi_round import follow
from sfumato.rng import Streams
from tests.sfumato.radiomap.attacked import WINDOW, best_linear_error, knowledge

DEVIATION = 900.0


def rounds_of(count: int, seed: int, first_map: int, signs: tuple[float, ...]) -> list[Sessions]:
    """The same transmitters in every round, fresh noise, and a signal of changing sign."""
    mixing = np.random.default_rng(0).standard_normal((2, 30))
    random = np.random.default_rng(seed)
    places = random.uniform(0.0, WINDOW, (count, 2))
    found: list[Sessions] = []
    for sign in signs:
        clean = sign * (places - WINDOW / 2) @ mixing
        uploads = clean + DEVIATION * random.standard_normal(clean.shape)
        found.append(
            Sessions(uploads, places, first_map + np.arange(count) // 4, WINDOW, clean)  # type: ignore[arg-type]
        )
    return found


def test_the_error_over_rounds_is_the_least_one_at_noise_over_the_root_of_their_number() -> None:
    """600 attacked uploads, so the error's own deviation is 2 to 3 %; within 10 %."""
    same = (1.0,) * 16
    shadow, attacked = rounds_of(400, 1, 0, same), rounds_of(600, 2, 1000, same)
    found = follow(shadow, attacked, [16, 1, 4], Streams(0), names=["ridge"])
    mixing = np.random.default_rng(0).standard_normal((2, 30))
    assert list(found) == [1, 4, 16]
    for count, result in found.items():
        least = best_linear_error(mixing, DEVIATION / np.sqrt(count))
        assert result.scores["ridge"].test.rmse == pytest.approx(least, rel=0.1)


def test_joined_rounds_tell_what_an_average_cancels() -> None:
    signs = (1.0, -1.0) * 4
    shadow, attacked = rounds_of(200, 1, 0, signs), rounds_of(200, 2, 1000, signs)
    noise = knowledge(shadow[0], DEVIATION)
    names = ["ridge", "noise_aware_ridge"]
    averaged = follow(shadow, attacked, [8], Streams(0), noise, "averaged", names=names)[8]
    joined = follow(shadow, attacked, [8], Streams(0), noise, "joined", names=names)[8]
    for name in names:
        assert averaged.scores[name].test.rmse > 0.95 * averaged.constant.rmse
        assert joined.scores[name].test.rmse < 0.85 * joined.constant.rmse


def test_a_view_is_followed_by_itself() -> None:
    same = (1.0, 1.0)
    shadow, attacked = rounds_of(40, 1, 0, same), rounds_of(40, 2, 1000, same)
    view = np.arange(5)
    found = follow(
        shadow, attacked, [2], Streams(0), knowledge(shadow[0], DEVIATION), view=view, names=["ridge"]
    )
    cut = [[part.restrict(view) for part in parts] for parts in (shadow, attacked)]
    expected = follow(cut[0], cut[1], [2], Streams(0), names=["ridge"])
    assert np.array_equal(found[2].predictions["ridge"], expected[2].predictions["ridge"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"counts": [3]}, "3 rounds are asked for; allowed are 1 to 2"),
        ({"counts": [0]}, "0 rounds are asked for"),
        ({"counts": [1.0]}, "1.0 rounds are asked for"),
        ({"combination": "median"}, "combination is 'median'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change: dict[str, Any], says: str) -> None:
    same = (1.0, 1.0)
    given = {
        "shadow": rounds_of(12, 1, 0, same),
        "attacked": rounds_of(12, 2, 100, same),
        "counts": [1],
        "streams": Streams(0),
    }
    with pytest.raises(SfumatoError, match=says):
        follow(**(given | change))
