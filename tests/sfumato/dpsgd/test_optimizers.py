"""The optimisers are torch's own equations on the support, and leave everything else alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sfumato.artifacts import read_tensors, write_tensors
from sfumato.dpsgd import Adam, Optimizer, ParameterLayout, Sgd, Support, restrict_state
from sfumato.errors import SfumatoError
from tests.sfumato.dpsgd.reference import generator

CASES = {
    "sgd": (Sgd(0.1, momentum=0.0), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (Sgd(0.1), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "nesterov": (
        Sgd(0.1, 0.8, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, nesterov=True),
    ),
    "adam": (Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adam_other": (Adam(0.5, 0.5, 0.7, 1e-3), lambda p: torch.optim.Adam(p, 0.5, betas=(0.5, 0.7), eps=1e-3)),
}


@pytest.mark.parametrize("indices", [[0, 3, 4], list(range(8)), [], [7]])
@pytest.mark.parametrize("name", list(CASES))
def test_ten_steps_are_those_of_torch(name: str, indices: list[int]) -> None:
    ours, theirs = CASES[name]
    model = nn.Linear(3, 2)
    layout = ParameterLayout.of(model)
    support = Support.of(indices, 8)
    wanted = nn.Parameter(layout.flatten(model)[support.indices].clone())
    other = theirs([wanted])
    before, state, source = layout.flatten(model), ours.init(8), generator(3)
    for step in range(10):
        gradient = torch.randn(support.k, generator=source)
        wanted.grad = gradient.clone()
        other.step()
        delta, state = ours.update(state, gradient, support)
        layout.add(model, support, delta)
        assert int(state["step"]) == step + 1
    after = layout.flatten(model)
    assert torch.allclose(after[support.indices], wanted.detach(), rtol=1e-5, atol=1e-6)
    assert torch.equal(after[~support.mask()], before[~support.mask()])


@pytest.mark.parametrize("name", list(CASES))
def test_state_outside_of_the_support_is_untouched_and_the_old_state_kept(name: str) -> None:
    optimizer: Optimizer = CASES[name][0]
    _, state = optimizer.update(optimizer.init(6), torch.ones(6), Support.full(6))
    copy = {key: tensor.clone() for key, tensor in state.items()}
    support = Support.of([1, 4], 6)
    _, after = optimizer.update(state, torch.tensor([5.0, 5.0]), support)
    for key in copy:
        assert torch.equal(state[key], copy[key]), "the given state was changed"
        if key != "step":
            assert after[key].dtype == torch.float32
            assert torch.equal(after[key][~support.mask()], copy[key][~support.mask()])
            assert not torch.equal(after[key], copy[key])


@pytest.mark.parametrize("name", list(CASES))
def test_advancing_writes_into_the_given_state_what_an_update_gives_anew(name: str) -> None:
    optimizer: Optimizer = CASES[name][0]
    state, support = optimizer.init(6), Support.of([1, 4], 6)
    for step in range(3):
        gradient = torch.tensor([5.0, -1.0]) * (step + 1)
        wanted, following = optimizer.update(state, gradient, support)
        assert torch.equal(optimizer.advance(state, gradient, support), wanted)
        assert all(torch.equal(state[key], following[key]) for key in following)


def test_a_refused_advance_leaves_the_state_as_it_was() -> None:
    state = Sgd(0.1).init(5)
    with pytest.raises(SfumatoError, match="gradient has shape"):
        Sgd(0.1).advance(state, torch.zeros(3), Support.of([0, 1], 5))
    assert int(state["step"]) == 0
    assert not state["momentum"].any()


def test_restricting_zeroes_the_state_outside_and_nothing_else() -> None:
    _, state = Adam(0.1).update(Adam(0.1).init(4), torch.ones(4), Support.full(4))
    restricted = restrict_state(state, Support.of([2], 4))
    assert (restricted["first_moment"] != 0).tolist() == [False, False, True, False]
    assert restricted["second_moment"][2] == state["second_moment"][2]
    assert int(restricted["step"]) == 1
    with pytest.raises(SfumatoError, match=r"shape \(4,\); allowed is \(5,\)"):
        restrict_state(state, Support.of([2], 5))


@pytest.mark.parametrize("name", list(CASES))
def test_state_survives_the_disk_with_the_same_bits(name: str, tmp_path: object) -> None:
    optimizer: Optimizer = CASES[name][0]
    _, state = optimizer.update(optimizer.init(5), torch.full((5,), 0.3), Support.full(5))
    path = tmp_path / "state.safetensors"  # type: ignore[operator]
    write_tensors(path, state, {})
    loaded = {key: torch.from_numpy(array) for key, array in read_tensors(path).items()}
    one, _ = optimizer.update(state, torch.full((5,), 0.7), Support.full(5))
    two, _ = optimizer.update(loaded, torch.full((5,), 0.7), Support.full(5))
    assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sgd(0.0), "learning_rate is 0.0; allowed is a finite number above 0."),
        (lambda: Sgd(float("nan")), "learning_rate is nan"),
        (lambda: Sgd(float("inf")), "learning_rate is inf"),
        (lambda: Sgd("1"), "learning_rate is '1'"),  # type: ignore[arg-type]
        (lambda: Sgd(True), "learning_rate is True"),
        (lambda: Sgd(1.0, momentum=1.0), "momentum is 1.0; allowed is a number of at least 0 and below 1."),
        (lambda: Sgd(1.0, momentum=float("nan")), "momentum is nan"),
        (lambda: Sgd(1.0, momentum=0.0, nesterov=True), "nesterov is True with momentum 0"),
        (lambda: Adam(-1.0), "learning_rate is -1.0"),
        (lambda: Adam(1.0, beta1=1.0), "beta1 is 1.0"),
        (lambda: Adam(1.0, beta2=-0.1), "beta2 is -0.1"),
        (lambda: Adam(1.0, epsilon=0.0), "epsilon is 0.0"),
    ],
)
def test_impossible_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises(SfumatoError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)


def test_misfits_are_named() -> None:
    sgd = Sgd(1.0)
    with pytest.raises(SfumatoError, match=r"gradient has shape \(3,\); allowed is \(2,\)"):
        sgd.update(sgd.init(5), torch.zeros(3), Support.of([0, 1], 5))
    with pytest.raises(SfumatoError, match=r"'momentum' has shape \(4,\); allowed is \(5,\)"):
        sgd.update(sgd.init(4), torch.zeros(2), Support.of([0, 1], 5))
    with pytest.raises(SfumatoError, match="optimiser state holds"):
        sgd.update(Adam(1.0).init(5), torch.zeros(2), Support.of([0, 1], 5))
