"""The same client under Flower gives the same model, and says in one sentence that Flower is missing."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.federated import FederationPlan, federate, schedule
from sfumato.radiomap.flower import flower_client
from sfumato.radiomap.unet import flat
from sfumato.rng import Streams
from tests.sfumato.radiomap.learning import some_clients

SESSION = bytes(16)


class _NumPyClient:
    """The part of Flower's class that a deployment uses: it calls ``fit`` if a subclass has one."""

    def to_client(self) -> _NumPyClient:
        return self


@pytest.fixture
def _flower(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("flwr.client")
    module.NumPyClient = _NumPyClient
    monkeypatch.setitem(sys.modules, "flwr", types.ModuleType("flwr"))
    monkeypatch.setitem(sys.modules, "flwr.client", module)


@pytest.mark.usefixtures("_flower")
def test_averaged_by_flower_the_model_is_the_servers() -> None:
    plan = FederationPlan(clients=3, active=2, rounds=2)
    model, clients = some_clients(plan.clients, plan.rounds)
    start = flat(model)
    ours = federate(start, clients, plan, Streams(0)).final
    weights = start
    for number, asked in enumerate(schedule(plan, Streams(0).stream("schedule"))):
        found = [
            flower_client(clients[int(client)], SESSION).to_client().fit([weights], {"round": number})
            for client in asked
        ]
        assert all(examples == 1 and metrics == {} for _, examples, metrics in found)
        weights = np.mean([parameters[0] for parameters, _, _ in found], axis=0, dtype=np.float32)
    assert np.allclose(weights, ours, rtol=0, atol=1e-6)
    assert not np.allclose(ours, start, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("_flower")
def test_nothing_but_fit_answers_flower() -> None:
    _, clients = some_clients(1, rounds=1)
    made = flower_client(clients[0], SESSION)
    assert isinstance(made, _NumPyClient)
    assert not {"evaluate", "get_parameters", "get_properties"} & set(dir(made))


@pytest.mark.usefixtures("_flower")
@pytest.mark.parametrize(
    ("arrays", "config"), [(2, {"round": 0}), (1, {}), (1, {"round": 1}), (1, {"round": -1})]
)
def test_a_call_that_does_not_fit_is_refused(arrays: int, config: dict[str, Any]) -> None:
    model, clients = some_clients(1, rounds=1)
    with pytest.raises(SfumatoError, match="round"):
        flower_client(clients[0], SESSION).fit([flat(model)] * arrays, config)


@pytest.mark.usefixtures("_flower")
def test_a_withdrawal_is_an_error_to_flower() -> None:
    training = LocalTraining(optimizer="sgd", learning_rate=1e30, epochs=4, batch_size=1)
    model, clients = some_clients(1, rounds=1, training=training)
    with pytest.raises(SfumatoError, match="client 0 withdrew from round 0"):
        flower_client(clients[0], SESSION).fit([flat(model)], {"round": 0})


def test_without_flower_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.client", None)
    _, clients = some_clients(1, rounds=1)
    with pytest.raises(SfumatoError, match=r"sfumato\[flwr\]"):
        flower_client(clients[0], SESSION)


def test_flowers_own_client_and_average_give_the_servers_model() -> None:
    """Runs where the extra ``flwr`` is installed: Flower's serialised parameters, client wrapper and FedAvg."""
    common = pytest.importorskip("flwr.common")
    strategies = pytest.importorskip("flwr.server.strategy")
    plan = FederationPlan(clients=3, active=2, rounds=2)
    model, clients = some_clients(plan.clients, plan.rounds)
    start = flat(model)
    ours = federate(start, clients, plan, Streams(0)).final
    strategy = strategies.FedAvg(fraction_evaluate=0.0)
    parameters = common.ndarrays_to_parameters([start])
    for number, asked in enumerate(schedule(plan, Streams(0).stream("schedule"))):
        asking = common.FitIns(parameters, {"round": number})
        answers = [flower_client(clients[int(client)], SESSION).to_client().fit(asking) for client in asked]
        assert all(answer.num_examples == 1 and answer.metrics == {} for answer in answers)
        parameters, _ = strategy.aggregate_fit(number + 1, [(None, answer) for answer in answers], [])
    (weights,) = common.parameters_to_ndarrays(parameters)
    assert np.allclose(weights, ours, rtol=0, atol=1e-6)
    assert not np.allclose(ours, start, rtol=0, atol=1e-4)
