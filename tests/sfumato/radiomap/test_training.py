"""The public warm start learns, counts its steps, and says when it diverges; sessions' updates are the clients' own."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.client import LocalTraining, local_update
from sfumato.radiomap.federated import all_pairs, draw_sessions
from sfumato.radiomap.references import validation_mse
from sfumato.radiomap.training import session_updates, warm_start
from sfumato.radiomap.unet import Architecture, build, flat, load_flat
from sfumato.rng import Streams
from tests.sfumato.radiomap.learning import TINY, some_maps

MAPS = some_maps(count=4, size=8, blocks=1)
PAIRS = all_pairs(MAPS)


def test_a_warm_start_lowers_the_error_on_other_maps() -> None:
    public, held_out = some_maps(count=12, size=16, seed=1), some_maps(count=4, size=16, seed=2)
    for seed in range(2):
        model = build(Architecture(0.14, 2), Streams(seed).stream("init"))
        before = validation_mse(model, held_out)
        weights = warm_start(
            flat(model), model, public, all_pairs(public), LocalTraining(), 25, Streams(seed).stream("warm")
        )
        load_flat(model, weights)
        assert validation_mse(model, held_out) < 0.5 * before


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 9])
def test_a_warm_start_takes_as_many_steps_as_it_is_told(steps: int) -> None:
    """With one pair and plain SGD, k steps at once are k single steps."""
    model = build(TINY, Streams(0).stream("init"))
    training = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=1)
    start, pair, stream = flat(model), PAIRS[:1], Streams(0).stream("warm")
    at_once = warm_start(start, model, MAPS, pair, training, steps, stream)
    one_by_one = start
    for _ in range(steps):
        one_by_one = warm_start(one_by_one, model, MAPS, pair, training, 1, stream)
    assert np.array_equal(at_once, one_by_one)
    assert not np.array_equal(at_once, start)


def test_no_steps_leave_the_weights_as_they_are() -> None:
    model = build(TINY, Streams(0).stream("init"))
    start = flat(model)
    assert np.array_equal(
        warm_start(start, model, MAPS, PAIRS, LocalTraining(), 0, Streams(0).stream("w")), start
    )


@pytest.mark.parametrize("steps", [-1, 1.0])
def test_a_number_of_steps_that_is_none_is_refused(steps: object) -> None:
    model = build(TINY, Streams(0).stream("init"))
    with pytest.raises(SfumatoError, match="steps"):
        warm_start(flat(model), model, MAPS, PAIRS, LocalTraining(), steps, Streams(0).stream("w"))  # type: ignore[arg-type]


def test_a_warm_start_that_diverges_is_one_sentence() -> None:
    model = build(TINY, Streams(0).stream("init"))
    wild = LocalTraining(optimizer="sgd", learning_rate=1e30)
    with pytest.raises(SfumatoError, match=r"not finite after 9 steps with learning rate 1e\+30"):
        warm_start(flat(model), model, MAPS, PAIRS, wild, 9, Streams(0).stream("w"))


def test_a_session_that_diverges_is_one_sentence() -> None:
    model = build(TINY, Streams(0).stream("init"))
    wild = LocalTraining(optimizer="sgd", learning_rate=1e30, epochs=4, batch_size=1)
    with pytest.raises(SfumatoError, match="update is not finite"):
        session_updates(flat(model), model, MAPS, PAIRS[None], wild, Streams(0))


def test_a_sessions_update_is_what_a_client_would_upload_undefended() -> None:
    model = build(TINY, Streams(0).stream("init"))
    weights, training, streams = flat(model), LocalTraining(batch_size=1), Streams(5)
    sessions = draw_sessions(MAPS, PAIRS, 3, 2, Streams(0).stream("sessions"))
    found = session_updates(weights, model, MAPS, sessions, training, streams)
    assert found.shape == (3, len(weights))
    assert found.dtype == np.float32
    for place, pairs in enumerate(sessions):
        alone = local_update(weights, model, MAPS, pairs, training, streams.stream("order", place))
        assert np.array_equal(found[place], alone.astype(np.float32))
