"""The rounds: a public schedule, a history that can be replayed, the same bits for any number of workers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.federated import (
    FederationPlan,
    History,
    Validation,
    all_pairs,
    draw_sessions,
    federate,
    schedule,
    session_groups,
)
from sfumato.radiomap.references import validation_mse
from sfumato.radiomap.unet import TRANSMITTER, flat, load_flat
from sfumato.rng import Streams
from tests.sfumato.radiomap.learning import Halving, some_clients, some_maps

PLAN = FederationPlan(clients=4, active=2, rounds=3)


def _run(workers: int = 1, seed: int = 0, training: LocalTraining | None = None) -> History:
    model, clients = some_clients(PLAN.clients, PLAN.rounds, training=training)
    maps = some_maps(count=2, size=8, seed=9, blocks=1)
    return federate(
        flat(model),
        clients,
        PLAN,
        Streams(seed),
        Validation(model, maps, all_pairs(maps), all_pairs(maps)),
        workers,
        keep_weights=range(PLAN.rounds),
        keep_uploads=range(PLAN.rounds),
    )


def _same(one: History, other: History) -> bool:
    return (
        one.rounds == other.rounds
        and np.array_equal(one.final, other.final)
        and all(np.array_equal(one.weights[r], other.weights[r]) for r in one.weights)
        and all(
            np.array_equal(one.uploads[r][c], other.uploads[r][c])
            for r in one.uploads
            for c in one.uploads[r]
        )
    )


def test_a_training_is_a_function_of_its_streams() -> None:
    assert _same(_run(), _run())
    assert not _same(_run(), _run(seed=1))


@pytest.mark.slow
def test_two_worker_processes_give_the_same_bits_as_none() -> None:
    assert _same(_run(), _run(workers=2))


def test_each_rounds_weights_are_the_last_ones_plus_the_mean_of_its_uploads() -> None:
    history = _run()
    later = [*[history.weights[r] for r in range(1, PLAN.rounds)], history.final]
    for number, after in enumerate(later):
        uploads = history.uploads[number]
        assert tuple(uploads) == history.rounds[number].clients
        total = sum(delta.astype(np.float64) for delta in uploads.values())
        assert np.array_equal(after, (history.weights[number] + total / len(uploads)).astype(np.float32))


def test_the_record_holds_the_error_after_the_round_and_what_the_clients_saw() -> None:
    history = _run()
    model, _ = some_clients(1, rounds=1)
    maps = some_maps(count=2, size=8, seed=9, blocks=1)
    load_flat(model, history.final)
    assert history.rounds[-1].validation_mse == validation_mse(model, maps)
    assert all(len(record.norms) == PLAN.active for record in history.rounds)
    assert all(record.clipped_share == 1.0 and record.dropped == 0 for record in history.rounds)


def test_clients_that_diverge_are_counted_and_said_and_the_others_go_on() -> None:
    model, clients = some_clients(PLAN.clients, PLAN.rounds)
    wild = LocalTraining(optimizer="sgd", learning_rate=1e30, epochs=4, batch_size=1)
    history = federate(
        flat(model),
        [replace(client, training=wild) if client.identity == 0 else client for client in clients],
        PLAN,
        Streams(0),
        keep_uploads=range(PLAN.rounds),
    )
    asked = sum(0 in record.clients for record in history.rounds)
    assert asked > 0
    assert history.dropped == asked
    for record in history.rounds:
        assert record.dropped == (0 in record.clients)
        assert len(record.reasons) == record.dropped
        assert len(record.norms) == PLAN.active - record.dropped
        assert 0 not in history.uploads[record.number]
    assert np.isfinite(history.final).all()


def test_a_training_in_which_everybody_diverges_leaves_the_weights() -> None:
    wild = LocalTraining(optimizer="sgd", learning_rate=1e30, epochs=4, batch_size=1)
    history = _run(training=wild)
    assert history.dropped == PLAN.rounds * PLAN.active
    assert np.array_equal(history.final, history.weights[0])
    assert all(record.clipped_share == 0.0 and record.norms == () for record in history.rounds)


class _Witness(Halving):
    """Tells by its upload how many uploads it has seen released."""

    def protect(self, delta, round, stream):  # type: ignore[no-untyped-def]
        return replace(super().protect(delta, round, stream), upload=np.full(len(delta), float(self.seen)))

    def observe(self, released):  # type: ignore[no-untyped-def]
        return _Witness(self.partition, self.seen + len(released))


def test_every_clients_defence_has_seen_all_uploads_of_the_rounds_before() -> None:
    model, clients = some_clients(PLAN.clients, PLAN.rounds)
    watched = [replace(client, defence=_Witness(client.defence.partition)) for client in clients]
    history = federate(flat(model), watched, PLAN, Streams(0), keep_uploads=range(PLAN.rounds))
    for number, uploads in history.uploads.items():
        assert all(delta[0] == PLAN.active * number for delta in uploads.values())


def test_the_published_order_trains_one_stage_after_the_other() -> None:
    model, clients = some_clients(2, rounds=4)
    first = sum(parameter.numel() for parameter in model.first.parameters())
    plan = FederationPlan(clients=2, active=2, rounds=4, phases=("first", "second"))
    history = federate(flat(model), clients, plan, Streams(0), keep_uploads=range(4))
    assert [record.phase for record in history.rounds] == ["first", "first", "second", "second"]
    for number, uploads in history.uploads.items():
        resting = slice(first, None) if number < 2 else slice(0, first)
        assert all(
            np.abs(delta[resting]).max() < 1e-5 for delta in uploads.values()
        )  # the stand-in's noise alone


@given(clients=st.integers(1, 20), rounds=st.integers(1, 20), seed=st.integers(0, 50), data=st.data())
def test_every_round_asks_that_many_different_clients_in_ascending_order(
    clients: int, rounds: int, seed: int, data: st.DataObject
) -> None:
    active = data.draw(st.integers(1, clients))
    asked = schedule(FederationPlan(clients, active, rounds), Streams(seed).stream("schedule"))
    assert asked.shape == (rounds, active)
    assert (np.diff(asked, axis=1) > 0).all()
    assert asked.min() >= 0
    assert asked.max() < clients


def test_every_client_is_asked_equally_often() -> None:
    rounds = 4000
    asked = schedule(FederationPlan(14, 6, rounds), Streams(0).stream("schedule"))
    counts = np.bincount(asked.ravel(), minlength=14)
    # binomial(4000, 3/7) has deviation 31.3; six of them for fourteen clients: false alarms below 3e-8
    assert np.abs(counts - rounds * 6 / 14).max() < 6 * 31.3


@pytest.mark.parametrize(
    "fields",
    [
        {"clients": 0},
        {"active": 15},
        {"rounds": 1.0},
        {"phases": ()},
        {"phases": ("third",)},
        {"rounds": 1, "phases": ("first", "second")},
    ],
)
def test_a_plan_that_cannot_be_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(SfumatoError, match="allowed"):
        FederationPlan(**fields)  # type: ignore[arg-type]


def test_clients_that_are_not_as_planned_are_refused() -> None:
    model, clients = some_clients(4, rounds=2)
    for wrong, named in (
        (clients[:3], "numbered"),
        (clients[::-1], "numbered"),
        (clients, "sessions for 2 rounds"),
    ):
        with pytest.raises(SfumatoError, match=named):
            federate(flat(model), wrong, PLAN, Streams(0))


@pytest.mark.parametrize("workers", [0, 1.5, True])
def test_a_number_of_workers_that_is_none_is_refused(workers: object) -> None:
    with pytest.raises(SfumatoError, match="workers"):
        _run(workers=workers)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- sessions
def test_all_pairs_are_every_map_with_every_transmitter_once() -> None:
    maps = some_maps(count=3, size=8, per_map=2, blocks=1)
    assert all_pairs(maps).tolist() == [[m, t] for m in range(3) for t in range(2)]


@given(per_round=st.integers(1, 6), seed=st.integers(0, 50))
def test_a_sessions_pairs_are_different_ones(per_round: int, seed: int) -> None:
    maps = some_maps(count=3, size=8, per_map=2, blocks=1)
    found = draw_sessions(maps, all_pairs(maps), 5, per_round, Streams(seed).stream("sessions"))
    assert found.shape == (5, per_round, 2)
    assert all(len({tuple(pair) for pair in session}) == per_round for session in found.tolist())


def test_every_pair_is_drawn_equally_often() -> None:
    maps = some_maps(count=3, size=8, per_map=2, blocks=1)
    rounds = 3000
    found = draw_sessions(maps, all_pairs(maps), rounds, 2, Streams(0).stream("sessions"))
    counts = Counter(map(tuple, found.reshape(-1, 2).tolist()))
    # binomial(3000, 1/3) has deviation 25.8; six of them for six pairs: false alarms below 2e-8
    assert all(abs(counts[tuple(pair)] - 1000) < 6 * 25.8 for pair in all_pairs(maps).tolist())


def test_repeated_sessions_are_the_same_in_every_round() -> None:
    maps = some_maps(count=3, size=8, per_map=2, blocks=1)
    found = draw_sessions(maps, all_pairs(maps), 4, 3, Streams(0).stream("sessions"), repeated=True)
    assert (found == found[0]).all()


def test_shared_sessions_have_their_transmitters_in_one_cell() -> None:
    maps = some_maps(count=6, size=8, per_map=2, blocks=0)
    places = maps.transmitters.copy()
    places[:4, 1], places[4:, 1] = (2, 3), (5, 5)
    shared = replace(maps, transmitters=places)
    found = draw_sessions(shared, all_pairs(shared), 50, 2, Streams(0).stream("sessions"), shared=True)
    for session in found:
        hot = shared.inputs(session)[:, TRANSMITTER]
        assert (hot == hot[0]).all()
    with pytest.raises(SfumatoError, match="in one cell"):
        draw_sessions(shared, all_pairs(shared), 50, 5, Streams(0).stream("sessions"), shared=True)


@pytest.mark.parametrize("per_round", [0, 7])
def test_more_pairs_than_there_are_cannot_be_drawn(per_round: int) -> None:
    maps = some_maps(count=3, size=8, per_map=2, blocks=1)
    with pytest.raises(SfumatoError, match="allowed is 1 to 6"):
        draw_sessions(maps, all_pairs(maps), 2, per_round, Streams(0).stream("sessions"))


def test_sessions_of_one_map_are_grouped_by_it() -> None:
    sessions = np.array([[[4, 0]], [[0, 1]], [[4, 2]]])
    assert session_groups(sessions).tolist() == [4, 0, 4]


@given(count=st.integers(1, 12), per_session=st.integers(1, 3), seed=st.integers(0, 200))
def test_no_map_is_in_two_groups_of_sessions_and_no_group_could_be_split(
    count: int, per_session: int, seed: int
) -> None:
    maps = np.random.default_rng(seed).integers(0, 15, (count, per_session))
    groups = session_groups(np.stack([maps, np.zeros_like(maps)], axis=2))
    for map_ in np.unique(maps):
        assert len(set(groups[(maps == map_).any(axis=1)])) == 1
    for group in np.unique(groups):
        inside = np.flatnonzero(groups == group)
        reached, grown = {int(inside[0])}, True
        while grown:
            seen = set(maps[sorted(reached)].reshape(-1).tolist())
            wider = {int(row) for row in inside if seen & set(maps[row].tolist())}
            grown, reached = wider != reached, wider
        assert reached == set(inside.tolist())
