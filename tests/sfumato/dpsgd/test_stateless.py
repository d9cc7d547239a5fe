"""A module is the same object with the same tensors after it ran with others, however it shares them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.dpsgd import ParameterLayout, Support, get_engine
from sfumato.dpsgd.stateless import attributes_restored, call, places
from tests.sfumato.dpsgd.reference import (
    Tied,
    cross_entropy,
    initialise,
    make,
    reference_gradients,
    reference_sum,
)
from tests.sfumato.dpsgd.test_engines import ENGINES, assert_exact, close


class Alias(nn.Module):
    """One Linear layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Linear(6, 6)
        self.dec = self.enc
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.dec(torch.tanh(self.enc(x)))))


class SharedTwice(nn.Module):
    """A shared block within a shared block, and one weight under two names of one layer."""

    def __init__(self) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.blocks = nn.ModuleList([nn.Sequential(inner, inner), inner])
        self.again = self.blocks[0]
        self.head = nn.Linear(6, 3)
        self.head.other = self.head.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.again(self.blocks[0](x))
        return self.head(x) + nn.functional.linear(x, self.head.other)


def sequential() -> nn.Module:
    shared = nn.Linear(6, 6)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(6, 3))


SHARING: dict[str, Callable[[], nn.Module]] = {
    "sequential": sequential,
    "alias": Alias,
    "shared_twice": SharedTwice,
    "tied_between_modules": Tied,
}


@pytest.mark.parametrize("name", list(SHARING))
def test_places_count_each_modules_tensor_once(name: str) -> None:
    model = SHARING[name]()
    found = places(model)
    assert set(found.values()) == {key for key, _ in model.named_parameters()}
    owners = [(id(model.get_submodule(p.rpartition(".")[0])), p.rpartition(".")[2]) for p in found]
    assert len(set(owners)) == len(owners)
    for place, key in found.items():
        assert model.get_parameter(place) is model.get_parameter(key)


@pytest.mark.parametrize("name", list(SHARING))
def test_calls_use_the_given_tensors_and_leave_the_module(name: str) -> None:
    model, (x, _) = initialise(SHARING[name]()), make("linear", torch.float32)[1]
    doubled = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in doubled.parameters():
            parameter *= 2
    before = dict(model.named_parameters())
    tensors = {key: parameter.detach() * 2 for key, parameter in before.items()}
    assert torch.equal(call(model, tensors, places(model), x), doubled(x))
    assert all(parameter is before[key] for key, parameter in model.named_parameters())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["sequential", "alias", "tied_between_modules"])
def test_gradients_of_shared_layers_are_exact_at_every_call_and_leave_the_module(
    engine: str, name: str
) -> None:
    model, batch = initialise(SHARING[name]()), make("linear", torch.float32)[1]
    before = dict(model.named_parameters())
    gradients = reference_gradients(model, cross_entropy, batch)
    d = ParameterLayout.of(model).size
    for support in (Support.full(d), Support.of(np.arange(42, d), d), Support.full(d), Support.of([1, 2], d)):
        found = get_engine(engine, 3).clipped_sum(model, cross_entropy, batch, support, 0.3)
        wanted = reference_sum(gradients, support, 0.3)
        assert close(found.sum, wanted.sum)
        assert close(found.norms, wanted.norms)
        after = dict(model.named_parameters())
        assert after.keys() == before.keys()
        assert all(after[key] is before[key] for key in before)
    copy.deepcopy(model)


def test_blocks_shared_within_shared_blocks_are_exact() -> None:
    assert_exact(get_engine("functional", 3), initialise(SharedTwice()), make("linear", torch.float32)[1])


class Stash(nn.Module):
    """Keeps what it computed last, as an attribute and as a buffer, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.last: torch.Tensor | None = None
        self.calls = 0
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.mean = 0.5 * self.mean + 0.5 * x.mean(dim=0)
        self.last = self.linear(x)
        self.new = self.last
        return self.last


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_module_keeps_of_the_data_is_taken_from_it(engine: str) -> None:
    model, batch = initialise(Stash()), make("linear", torch.float32)[1]
    mean = model.mean
    get_engine(engine, 3).clipped_sum(model, cross_entropy, batch, Support.full(21), 0.3)
    assert (model.last, model.calls, hasattr(model, "new")) == (None, 0, False)
    assert model.mean is mean
    assert bool((mean == 0).all())


def test_attributes_are_put_back_after_an_error_too() -> None:
    model = Stash()

    def fail() -> None:
        with attributes_restored(model):
            model.calls, model.new = 7, 1
            del model.last
            model(torch.ones(2, 5))

    with pytest.raises(RuntimeError):
        fail()
    assert (model.calls, model.last, hasattr(model, "new")) == (0, None, False)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_that_works_in_place_on_its_inputs_leaves_the_batch(engine: str) -> None:
    x, y = make("linear", torch.float32)[1]
    before = x.clone()
    model = initialise(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)))
    assert_exact(get_engine(engine, 3), model, (x.clone(), y))
    get_engine(engine, 3).clipped_sum(model, cross_entropy, (x, y), Support.full(21), 0.3)
    assert torch.equal(x, before)
