"""The private optimiser: the same steps as Opacus's, noise of its own at each, and every step priced."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from sfumato import accounting
from sfumato.dpsgd import ParameterLayout, Support, get_engine
from sfumato.errors import AccountingError
from sfumato.ledger import EventLedger
from sfumato.mechanisms import subsampled_gaussian
from sfumato.rng import Streams
from tests.sfumato.dpsgd.private_steps import (
    EXPECTED,
    INPUTS,
    TARGETS,
    batches,
    image_model,
    linear,
    private,
    random_support,
    sgd,
    weights,
)
from tests.sfumato.dpsgd.reference import cross_entropy, generator, initialise

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.5, momentum=0.9, weight_decay=0.01),
    "adam": partial(torch.optim.Adam, lr=0.02),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_noise_the_weights_are_those_of_opacus_on_the_same_poisson_batches(name: str) -> None:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = image_model()
    other = GradSampleModule(copy.deepcopy(model), loss_reduction="mean")
    ours = private(model, OPTIMIZERS[name](model.parameters()), noise_multiplier=0.0)
    theirs = DPOptimizer(
        OPTIMIZERS[name](other.parameters()),
        noise_multiplier=0.0,
        max_grad_norm=0.7,
        expected_batch_size=EXPECTED,
    )
    start = weights(model)
    for inputs, targets in batches(6):
        ours.step(inputs, targets)
        theirs.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            functional.cross_entropy(other(inputs), targets, reduction="sum").div(
                max(1, len(inputs))
            ).backward()
        theirs.step()
        assert float((weights(model) - weights(other._module)).abs().max()) < 1e-5
    assert float((weights(model) - start).abs().max()) > 0.1


def test_the_noise_of_a_step_has_deviation_sigma_c_over_the_expected_batch_size() -> None:
    model = initialise(nn.Linear(100, 10, bias=False))
    one = private(model, sgd(model.parameters(), lr=1.0), noise_multiplier=1.1, clip_norm=0.5)
    draws, wanted = [], 1.1 * 0.5 / EXPECTED
    for step in range(100):
        before = weights(model)
        count = (0, 3, 40)[step % 3]  # zero inputs have zero gradients: noise is all there is, at any size
        one.step(torch.zeros(count, 100), torch.zeros(count, dtype=torch.int64))
        draws.append(before - weights(model))
        assert model.weight.grad is not None
    noise = torch.stack(draws)
    # 100,000 draws: 1 % is 4.47 standard errors of the deviation, as is the mean's bound 4.5 of its own, and each of 100
    # steps alone (1,000 draws, 2.24 %) is within 5 of them: false alarm below 8e-5, with fixed seeds none
    assert abs(float(noise.std()) / wanted - 1) < 0.01
    assert abs(float(noise.mean())) < 4.5 * wanted / 100_000**0.5
    assert float((noise.std(dim=1) / wanted - 1).abs().max()) < 5 / 2000**0.5
    # 4,950 correlations of two steps' noise, each within 6 standard errors: false alarm 1e-5
    assert float((torch.corrcoef(noise) - torch.eye(100)).abs().max()) < 6 / 1000**0.5


def test_two_runs_from_the_same_streams_are_equal_in_bits_and_other_streams_differ() -> None:
    found = []
    for seed in (0, 0, 1):
        model = image_model()
        one = private(model, torch.optim.Adam(model.parameters(), lr=0.01), streams=Streams(seed))
        for batch in batches(3):
            one.step(*batch)
        found.append(weights(model))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_resumed_run_draws_and_counts_on() -> None:
    whole, parts = image_model(), image_model()
    one = private(whole)
    for batch in batches(4):
        one.step(*batch)
    first = private(parts)
    for batch in batches(4)[:2]:
        first.step(*batch)
    saved, empty = first.ledger.to_json(), first.ledger.empty_batches
    second = private(parts, ledger=EventLedger.from_json(saved, empty))
    assert second.steps == 2
    for batch in batches(4)[2:]:
        second.step(*batch)
    assert torch.equal(weights(whole), weights(parts))
    assert second.epsilon(1e-5) == one.epsilon(1e-5)
    assert second.ledger.empty_batches == one.ledger.empty_batches == 1


def test_epsilon_is_that_of_the_recorded_events_and_opacus_prices_no_less() -> None:
    from opacus.accountants import RDPAccountant

    model, accountant = linear(), RDPAccountant()
    one = private(model, sampling_rate=0.05)
    assert one.epsilon(1e-5) == 0.0
    for _ in range(30):
        one.step(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
        accountant.step(noise_multiplier=1.0, sample_rate=0.05)
    assert one.epsilon(1e-5) == accounting.epsilon([subsampled_gaussian(0.05, 1.0, 30)], 1e-5)
    assert 0 < one.epsilon(1e-5) <= accountant.get_epsilon(1e-5)
    assert private(model, noise_multiplier=0.0, ledger=one.ledger).epsilon(1e-5) == one.epsilon(1e-5)
    with pytest.raises(AccountingError, match="delta"):
        one.epsilon(0.0)


def test_without_noise_epsilon_is_infinite() -> None:
    one = private(linear(), noise_multiplier=0.0)
    one.step(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
    assert one.epsilon(1e-5) == float("inf")


def test_release_mode_draws_from_the_system_and_records_no_batch_size() -> None:
    one = private(linear(), streams=Streams(None, "release"))
    one.step(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    assert (one.steps, one.ledger.empty_batches) == (1, 0)
    assert "mode='release'" in repr(one)


@pytest.mark.parametrize("make", [sgd, partial(torch.optim.SGD, lr=0.5, momentum=0.9), torch.optim.Adam])
def test_weights_off_the_support_stay_as_they_are_in_bits(make: Callable[..., torch.optim.Optimizer]) -> None:
    model = image_model()
    support = random_support(model, 5)
    one, before = private(model, make(model.parameters()), support=support), weights(model)
    for batch in batches(3):
        one.step(*batch)
    assert torch.equal(weights(model) != before, support.mask())


def test_weight_decay_moves_inactive_weights_of_active_parameters_alone() -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3)))
    support, before = Support.of([0], ParameterLayout.of(model).size), weights(model)
    one = private(model, sgd(model.parameters(), weight_decay=0.1), support=support)
    one.step(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
    after = weights(model)
    assert torch.allclose(after[1:12], before[1:12] * (1 - 0.5 * 0.1), rtol=1e-6, atol=0)
    assert torch.equal(after[12:], before[12:])
    assert [parameter.grad is None for parameter in model.parameters()] == [False, True, True, True]


def test_a_support_step_is_the_engine_s_sum_plus_the_step_s_noise_over_the_divisor() -> None:
    model = image_model()
    support, batch, before = random_support(model, 3), batches(1 + 2)[0], weights(model)
    clipped = get_engine("functional").clipped_sum(model, cross_entropy, batch, support, 0.7)
    noise = torch.from_numpy(Streams(0).stream("noise", 0).standard_normal(support.k))
    private(model, sgd(model.parameters(), lr=1.0), support=support).step(*batch)
    wanted = (clipped.sum.double() + 0.7 * noise) / EXPECTED
    assert torch.allclose((before - weights(model))[support.indices], wanted, atol=1e-6)


def test_raw_gradients_that_stood_in_grad_are_never_applied() -> None:
    model = initialise(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3)))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e6)
    model[0].bias.requires_grad_(False)
    d = ParameterLayout.of(model).size
    one = private(model, support=Support.of([0], d), noise_multiplier=0.0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    one.step(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_parameters_that_the_optimizer_does_not_hold_count_in_no_norm_and_stay() -> None:
    model = image_model()
    head = list(model[6].parameters())
    one = private(model, sgd(head), noise_multiplier=0.0)
    d, size = ParameterLayout.of(model).size, sum(parameter.numel() for parameter in head)
    assert one.active == Support.of(list(range(d - size, d)), d)
    before = weights(model)
    one.step(*batches(3)[0])
    assert torch.equal(weights(model) != before, one.active.mask())


def test_frozen_parameters_are_left_alone() -> None:
    model = image_model()
    model[0].weight.requires_grad_(False)
    before = model[0].weight.detach().clone()
    private(model, torch.optim.AdamW(model.parameters(), weight_decay=0.1)).step(*batches(3)[0])
    assert torch.equal(model[0].weight, before)


def test_groups_and_a_scheduler_set_the_learning_rates_of_each_step() -> None:
    model = image_model()
    split = [list(model[:4].parameters()), list(model[4:].parameters())]
    optimizer = torch.optim.SGD([{"params": split[0], "lr": 0.1}, {"params": split[1], "lr": 0.0}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    one, moved = private(model, optimizer), list[torch.Tensor]()
    for number, batch in enumerate(batches(3)):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        one.step(*batch)
        scheduler.step()
        for old, parameter in zip(before, model.parameters(), strict=True):
            rate = 0.0 if any(parameter is other for other in split[1]) else 0.1 * 0.5**number
            assert parameter.grad is not None
            assert torch.allclose(parameter.detach(), old - rate * parameter.grad)
        moved.append(before[0] - model[0].weight.detach())
    assert float(moved[0].norm()) > 0


def test_double_precision_and_channels_last_are_trained_in_their_own_form() -> None:
    model = image_model().double()
    private(model).step(INPUTS[:3].double(), TARGETS[:3])
    assert all(p.grad is not None and p.grad.dtype == torch.float64 for p in model.parameters())
    model = image_model().to(memory_format=torch.channels_last)
    twin = image_model()
    for one in (model, twin):
        private(one, torch.optim.Adam(one.parameters())).step(*batches(3)[0])
    assert torch.allclose(weights(model), weights(twin), atol=1e-6)


examples = st.lists(
    st.tuples(st.sampled_from(["normal", "large", "infinite", "missing"]), st.integers(0, 2**16)), max_size=4
)


def example_of(kind: str, seed: int) -> tuple[torch.Tensor, int]:
    values = torch.randn(4, generator=generator(seed))
    if kind == "large":
        values = values * 1e18
    if kind in ("infinite", "missing"):
        values[seed % 4] = float("inf") if kind == "infinite" else float("nan")
    return values, seed % 3


@given(chosen=examples, added=examples.filter(bool), restricted=st.booleans())
@settings(max_examples=40, deadline=None)
def test_one_example_more_moves_the_noiseless_sum_by_at_most_the_clip_norm(
    chosen: list[tuple[str, int]], added: list[tuple[str, int]], restricted: bool
) -> None:
    found, start = [], weights(linear())
    for rows in (chosen, [*chosen, added[0]]):
        model, parts = linear(), [example_of(*row) for row in rows]
        inputs = torch.stack([torch.zeros(4), *(part[0] for part in parts)])[1:]
        targets = torch.tensor([part[1] for part in parts], dtype=torch.int64)
        support = Support.of([0, 3, 7, 13], 15) if restricted else None
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        private(model, optimizer, noise_multiplier=0.0, expected_batch_size=1, support=support).step(
            inputs, targets
        )
        found.append(start - weights(model))
    # weights near 1 round by 6e-8 each
    assert float((found[1] - found[0]).norm()) <= 0.7 + 5e-6


def test_an_event_stays_recorded_when_the_step_is_broken_off() -> None:
    model = linear()
    one, before = private(model), weights(model)
    batch = torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    handle = one.optimizer.register_step_pre_hook(broken)
    with pytest.raises(KeyboardInterrupt):
        one.step(*batch)
    assert one.steps == 1
    assert torch.equal(weights(model), before)
    lost = model.weight.grad.clone()
    handle.remove()
    one.step(*batch)
    assert one.steps == 2
    assert float((lost - model.weight.grad).abs().min()) > 0  # another stream


def test_printing_shows_settings_and_no_values() -> None:
    assert repr(private(linear())) == (
        "PrivateOptimizer(Linear, SGD, clip_norm=0.7, noise_multiplier=1.0, expected_batch_size=12, "
        "sampling_rate=0.2, active=15/15, steps=0, mode='simulation')"
    )


@pytest.mark.parametrize("engine", ["planned", "functional", "opacus"])
def test_every_engine_serves(engine: str) -> None:
    model, twin = image_model(), image_model()
    for one, chosen in ((model, get_engine(engine)), (twin, get_engine())):
        private(one, engine=chosen).step(*batches(3)[0])
    assert torch.allclose(weights(model), weights(twin), atol=1e-6)
