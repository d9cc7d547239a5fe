"""Features are standardised by the shadow uploads alone; bad uploads are refused in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.features import Noise, Scaler, Sessions, average, check_pair, concatenate
from sfumato.radiomap.partition import partition_of


def sessions(count: int = 6, dimension: int = 4, seed: int = 0, **fields: Any) -> Sessions:
    random = np.random.default_rng(seed)
    given = {
        "uploads": random.standard_normal((count, dimension)),
        "positions": random.uniform(0.0, 100.0, (count, 2)),
        "maps": np.arange(count) // 2,
        "window": 100.0,
    }
    return Sessions(**(given | fields))


def test_features_have_mean_zero_and_deviation_one_on_the_shadow_uploads() -> None:
    uploads = np.random.default_rng(0).standard_normal((200, 3)) * [1e-6, 1.0, 1e5] + [5e-6, 0.0, -7e5]
    features = Scaler.of(uploads.astype(np.float32), limit=100.0).apply(uploads)
    assert np.allclose(features.mean(axis=0), 0.0, atol=1e-4)
    assert np.allclose(features.std(axis=0), 1.0, atol=1e-4)


def test_features_are_winsorised_at_five_deviations() -> None:
    scaler = Scaler.of(np.array([[-1.0], [1.0]], np.float32))
    assert scaler.apply(np.array([[1e30], [-9.0], [4.0]])).ravel().tolist() == [5.0, -5.0, 4.0]


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-3, -7e4])
def test_a_weight_that_never_moves_has_feature_zero_whatever_it_does_later(value: float) -> None:
    scaler = Scaler.of(np.full((7, 1), value, np.float32))
    assert scaler.apply(np.array([[value], [value + 1.0], [1e9]])).tolist() == [[0.0]] * 3


def test_a_restricted_view_holds_the_chosen_weights_only() -> None:
    full = sessions(clean=np.arange(24.0).reshape(6, 4))
    part = full.restrict(np.array([3, 1]))
    assert np.array_equal(part.uploads, full.uploads[:, [3, 1]])
    assert part.clean is not None
    assert part.clean[0].tolist() == [3.0, 1.0]
    assert full.restrict(None) is full


def test_the_average_and_the_concatenation_are_over_rounds() -> None:
    rounds = [
        sessions(uploads=np.full((6, 4), float(number)), clean=np.full((6, 4), 2.0 * number))
        for number in (1, 2, 6)
    ]
    mean, joined = average(rounds), concatenate(rounds)
    assert mean.uploads.tolist() == [[3.0] * 4] * 6
    assert mean.clean is not None
    assert mean.clean.tolist() == [[6.0] * 4] * 6
    assert joined.uploads[0].tolist() == [1.0] * 4 + [2.0] * 4 + [6.0] * 4
    assert average([rounds[0], sessions(uploads=np.ones((6, 4)))]).clean is None


def test_the_signal_of_a_group_is_the_clean_uploads_variance_or_what_the_noise_leaves() -> None:
    random = np.random.default_rng(0)
    partition = partition_of(40, {"loud": np.arange(10)})
    deviation = partition.spread(np.array([2.0, 0.5]))
    clean = random.standard_normal((4000, 40)) * np.where(np.arange(40) < 10, 3.0, 0.1)
    uploads = clean + deviation * random.standard_normal(clean.shape)
    fields = {"positions": np.zeros((4000, 2)), "maps": np.arange(4000), "window": 1.0, "uploads": uploads}
    sigmas = np.array([2.0, 0.5])
    for shadow in (Sessions(**fields), Sessions(**fields, clean=clean)):  # type: ignore[arg-type]
        noise = Noise.of(partition, sigmas, shadow)
        assert noise.variance[[0, 39]] == pytest.approx([4.0, 0.25])
        assert noise.signal[[0, 39]] == pytest.approx([9.0, 0.01], rel=0.5 if shadow.clean is None else 0.05)
    both = Noise.of(partition, np.array([[2.0, 0.0], [0.0, 0.0]]), sessions(6, 40))
    assert both.variance[0] == pytest.approx(2.0)
    assert noise.averaged(4).variance[0] == pytest.approx(1.0)
    assert noise.summed(6).variance[0] == pytest.approx(24.0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"uploads": np.full((6, 4), np.nan)}, "row 0 of the uploads holds a NaN"),
        ({"uploads": np.full((6, 4), 1e39)}, "row 0 of the uploads holds a NaN"),
        ({"uploads": np.zeros((6, 0))}, "shape (6, 0)"),
        ({"uploads": np.zeros(6)}, "shape (6,)"),
        ({"positions": np.zeros((5, 2))}, "the positions have shape (5, 2)"),
        ({"positions": np.full((6, 2), np.inf)}, "finite numbers of metres"),
        ({"positions": np.full((6, 2), 101.0)}, "outside of the window"),
        ({"maps": np.arange(6.0)}, "maps has dtype float64"),
        ({"window": 0.0}, "window is 0.0"),
        ({"clean": np.zeros((6, 3))}, "the clean uploads have shape (6, 3)"),
    ],
)
def test_bad_sessions_are_refused_in_one_sentence(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SfumatoError) as caught:
        sessions(**fields)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("attacked", "shadow", "says"),
    [
        (sessions(6, 5), sessions(6, 4), "the attacked uploads have 5 weights; allowed is 4"),
        (sessions(6, 4, window=101.0), sessions(6, 4), "101 metres wide"),
        (sessions(6, 4), sessions(4, 4), "the shadow uploads come from 2 maps; allowed are at least 3"),
    ],
)
def test_uploads_that_do_not_fit_are_refused(attacked: Sessions, shadow: Sessions, says: str) -> None:
    with pytest.raises(SfumatoError, match=says):
        check_pair(shadow, attacked)


def test_other_misfits_are_refused() -> None:
    with pytest.raises(SfumatoError, match="5 weights; allowed is 4"):
        Scaler.of(np.eye(4, dtype=np.float32)).apply(np.zeros((1, 5)))
    with pytest.raises(SfumatoError, match="positions 0 to 4; allowed are 0 to 3"):
        sessions().restrict(np.array([0, 4]))
    with pytest.raises(SfumatoError, match="round 1 holds other sessions"):
        average([sessions(), sessions(seed=1)])
    with pytest.raises(SfumatoError, match="no rounds"):
        concatenate([])
    with pytest.raises(SfumatoError, match="one sigma per group"):
        Noise.of(partition_of(4, {}), np.ones(2), sessions())
    with pytest.raises(SfumatoError, match="negative or not finite"):
        Noise.of(partition_of(4, {}), -np.ones(1), sessions())
