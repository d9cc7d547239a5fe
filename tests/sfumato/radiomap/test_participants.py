"""Parties exchange bytes: what leaves a client is defended, and what a server cannot use is dropped, counted and said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.radiomap.client import LocalTraining, local_update
from sfumato.radiomap.defences import Protected
from sfumato.radiomap.messages import Broadcast, Upload, Withdrawal, read_answer
from sfumato.radiomap.participants import RadioServer
from sfumato.radiomap.unet import flat
from sfumato.rng import Streams
from tests.sfumato.radiomap.learning import Halving, one_group, some_clients

SESSION = bytes(16)


def _upload(client: int, value: float, round_: int = 0, size: int = 3, session: bytes = SESSION) -> bytes:
    return Upload(session, round_, client, 1, np.full(size, value, np.float32)).encode()


def _server(active: tuple[int, ...] = (0, 2, 5)) -> RadioServer:
    server = RadioServer(np.array([1.0, 2.0, 3.0], np.float32), SESSION)
    server.begin(0, active, "joint")
    return server


def test_what_a_client_sends_is_its_defended_update_in_float32() -> None:
    model, clients = some_clients(1, rounds=2)
    weights, client = flat(model), clients[0]
    answer = client.respond(Broadcast(SESSION, 1, "joint", weights).encode())
    sent = read_answer(answer.message)
    assert isinstance(sent, Upload)
    order, noise = (Streams(0).stream("client/0", name, 1) for name in ("order", "noise"))
    delta = local_update(weights, model, client.maps, client.sessions[1], client.training, order)
    protected = client.defence.protect(delta, 1, noise)
    assert np.array_equal(sent.delta, protected.upload.astype(np.float32))
    assert (sent.client, sent.round, sent.examples) == (0, 1, len(client.sessions[1]))
    assert answer.norm_before == pytest.approx(np.linalg.norm(delta))
    assert answer.clipped


def test_the_broadcast_says_which_stage_learns() -> None:
    model, clients = some_clients(1, rounds=1)
    first = sum(parameter.numel() for parameter in model.first.parameters())
    answer = clients[0].respond(Broadcast(SESSION, 0, "second", flat(model)).encode())
    sent = read_answer(answer.message)
    assert isinstance(sent, Upload)
    assert np.abs(sent.delta[:first]).max() < 1e-5  # the stand-in's noise has deviation 1e-6
    assert np.abs(sent.delta[first:]).max() > 1e-4


def test_noise_and_order_differ_by_client_and_round_and_nothing_else() -> None:
    model, clients = some_clients(2, rounds=2)
    weights = flat(model)
    client = clients[0]
    messages = [client.respond(Broadcast(SESSION, r, "joint", weights).encode()).message for r in (0, 0, 1)]
    assert messages[0] == messages[1]
    twin = replace(clients[1], maps=client.maps, sessions=client.sessions)
    other = read_answer(twin.respond(Broadcast(SESSION, 0, "joint", weights).encode()).message)
    mine = read_answer(messages[0])
    assert isinstance(mine, Upload)
    assert isinstance(other, Upload)
    assert not np.array_equal(mine.delta, other.delta)


def test_a_client_whose_training_is_not_finite_withdraws_and_sends_no_number() -> None:
    training = LocalTraining(optimizer="sgd", learning_rate=1e30, epochs=4, batch_size=1)
    model, clients = some_clients(1, rounds=1, training=training)
    answer = clients[0].respond(Broadcast(SESSION, 0, "joint", flat(model)).encode())
    assert read_answer(answer.message) == Withdrawal(SESSION, 0, 0)
    assert answer.norm_before is None
    assert answer.sigmas is None


class _Huge(Halving):
    def protect(self, delta: Any, round: int, stream: Any) -> Protected:
        return Protected(np.full(len(delta), 1e300), np.array([1.0]), False, 1.0)


def test_a_client_whose_upload_does_not_fit_float32_withdraws() -> None:
    model, clients = some_clients(1, rounds=1)
    huge = replace(clients[0], defence=_Huge(clients[0].defence.partition))
    answer = huge.respond(Broadcast(SESSION, 0, "joint", flat(model)).encode())
    assert isinstance(read_answer(answer.message), Withdrawal)


def test_a_round_without_a_session_is_refused() -> None:
    model, clients = some_clients(1, rounds=2)
    with pytest.raises(SfumatoError, match="round 2 began"):
        clients[0].respond(Broadcast(SESSION, 2, "joint", flat(model)).encode())


def test_a_client_is_not_made_of_parts_that_do_not_fit() -> None:
    _, clients = some_clients(1, rounds=1)
    with pytest.raises(SfumatoError, match="is for 3 weights"):
        replace(clients[0], defence=Halving(one_group(3)))
    with pytest.raises(SfumatoError, match="BatchNorm2d"):
        replace(clients[0], model=nn.BatchNorm2d(2))
    with pytest.raises(SfumatoError, match=r"shape \(1, 2\)"):
        replace(clients[0], sessions=np.zeros((1, 2), np.int64))


# ------------------------------------------------------------------------------------------------------ server
def test_the_new_weights_are_the_old_plus_the_mean_whatever_order_uploads_come_in() -> None:
    values = {0: 1e-8, 2: 1.0, 5: -0.75}
    finished = []
    for order in ((0, 2, 5), (5, 0, 2), (2, 5, 0)):
        server = _server()
        for client in order:
            server.receive(client, _upload(client, values[client]))
        finished.append(server.finish())
    mean = sum(np.float64(np.float32(value)) for value in values.values()) / 3
    assert np.array_equal(finished[0].weights, (np.array([1.0, 2.0, 3.0]) + mean).astype(np.float32))
    assert all(np.array_equal(one.weights, finished[0].weights) for one in finished)
    assert all(list(one.uploads) == [0, 2, 5] for one in finished)


def test_what_cannot_be_used_is_dropped_counted_and_said() -> None:
    bad = {
        1: b"noise",
        2: _upload(2, 1.0, size=2),
        3: _upload(3, 1.0, round_=1),
        4: _upload(3, 1.0),
        5: _upload(5, 1.0, session=b"x" * 16),
        6: _upload(6, 1.0)[:-4] + np.array([np.nan], "<f4").tobytes(),
        7: Withdrawal(SESSION, 0, 7).encode(),
    }
    server = _server((0, *bad, 8))
    for client, message in bad.items():
        server.receive(client, message)
    server.receive(0, _upload(0, 2.0))
    finished = server.finish()
    assert finished.weights.tolist() == [3.0, 4.0, 5.0]
    assert list(finished.uploads) == [0]
    assert list(finished.dropped) == [*bad, 8]
    assert all(reason.startswith(f"client {client} ") for client, reason in finished.dropped.items())
    assert "withdrew" in finished.dropped[7]
    assert "did not answer" in finished.dropped[8]
    assert "not finite" in finished.dropped[6]


def test_a_round_in_which_nobody_answers_leaves_the_weights() -> None:
    finished = _server().finish()
    assert finished.weights.tolist() == [1.0, 2.0, 3.0]
    assert len(finished.dropped) == 3


@pytest.mark.parametrize("client", [1, 0])
def test_an_answer_of_somebody_who_was_not_asked_or_answered_already_is_refused(client: int) -> None:
    server = _server()
    server.receive(0, _upload(0, 1.0))
    with pytest.raises(SfumatoError, match="one answer of each client"):
        server.receive(client, _upload(client, 1.0))


def test_a_round_does_not_begin_at_weights_that_are_not_finite() -> None:
    server = _server((0, 1))
    for client in (0, 1):
        server.receive(client, _upload(client, 3e38))
    server.finish()
    server.begin(1, (0, 1), "joint")
    for client in (0, 1):
        server.receive(client, _upload(client, 3e38, round_=1))
    server.finish()
    with pytest.raises(SfumatoError, match="not finite at round 2"):
        server.begin(2, (0,), "joint")
