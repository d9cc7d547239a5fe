"""Replay: one step on neighbouring data sets with the same randomness tells what one example can change.

``replay_faults`` looks at a step from outside only: data, declared public numbers and random streams go in, a
released gradient comes out. The library's step passes; steps with planted bugs do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.dpsgd import ClippedSum, ParameterLayout, Support, get_engine, privatize
from sfumato.rng import RandomStream, Streams
from sfumato.sampling import PoissonSampler
from tests.sfumato.dpsgd.reference import cross_entropy, generator, initialise, reference_gradients

Data = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Plan:
    """The public numbers of a run."""

    n: int
    expected_batch_size: int
    clip_norm: float
    noise_multiplier: float
    support: Support


@dataclass(frozen=True)
class Trace:
    """What one step drew and released: rows, the vector over all d coordinates, the rate and divisor used."""

    rows: tuple[int, ...]
    released: torch.Tensor
    rate: float
    divisor: float


Step = Callable[[nn.Module, Data, Plan, Streams, int], Trace]
STEPS = 24


def private_step(
    model: nn.Module, data: Data, plan: Plan, streams: Streams, step: int, engine: str = "functional"
) -> Trace:
    """One step as the library does it."""
    sampler = PoissonSampler(plan.n, plan.expected_batch_size)
    rows = sampler.draw(streams.stream("sampling", step), available=len(data[0]))
    batch = (data[0][rows], data[1][rows])
    clipped = get_engine(engine).clipped_sum(model, cross_entropy, batch, plan.support, plan.clip_norm)
    noise = streams.stream("noise", step)
    gradient = privatize(clipped, plan.clip_norm, plan.noise_multiplier, plan.expected_batch_size, noise)
    return Trace(tuple(rows.tolist()), plan.support.scatter(gradient), sampler.rate, plan.expected_batch_size)


def replay_faults(step: Step, model: nn.Module, data: Data, plan: Plan) -> set[str]:
    """The promises that a step breaks: compared with and without the last row, on each of 24 steps, and on no data.

    Args:
        step: the step under test.
        model: the model, at fixed parameters.
        data: rows of the larger of two neighbouring data sets; the smaller one lacks the last.
        plan: the public numbers, the same for both.
    """
    faults = set[str]()
    smaller = (data[0][:-1], data[1][:-1])
    empty = (data[0][:0], data[1][:0])
    streams = Streams(5)
    for t in range(STEPS):
        one, two = (step(model, d, plan, streams, t) for d in (data, smaller))
        if one.rate != two.rate:
            faults.add("the rate follows the data")
        if one.divisor != two.divisor:
            faults.add("the divisor follows the data")
        if tuple(row for row in one.rows if row < len(smaller[0])) != two.rows:
            faults.add("the other rows' coins follow the data")
        change = (one.released.double() - two.released.double()) * plan.expected_batch_size
        # released values are rounded to float32, hence the slack beside the bound
        slack = (
            4e-7
            * plan.expected_batch_size
            * float(one.released.double().norm() + two.released.double().norm())
        )
        if not float(change.norm()) <= plan.clip_norm * (1 + 1e-5) + slack:
            faults.add("one example changes the sum by more than clip_norm")
        if one.released.shape != two.released.shape or not bool(torch.isfinite(one.released).all()):
            faults.add("the release is not finite")
    return faults | noise_faults([step(model, empty, plan, streams, t).released for t in range(STEPS)], plan)


def noise_faults(pure: list[torch.Tensor], plan: Plan) -> set[str]:
    """The promises about noise that releases from no data break."""
    faults, active = set[str](), plan.support.mask()
    noise = torch.stack(pure)
    wanted = plan.noise_multiplier * plan.clip_norm / plan.expected_batch_size
    if not bool((noise[:, ~active] == 0).all()):
        faults.add("noise lies outside of the support")
    # k*24 draws: six standard errors, 6/sqrt(2*k*24); the false alarm is 2e-9
    draws = noise[:, active].double().flatten()
    if (
        plan.support.k
        and abs(float(draws.square().mean().sqrt()) / wanted - 1) > 6 / (2 * draws.numel()) ** 0.5
    ):
        faults.add("the noise's deviation on the support is not sigma*C/B")
    if any(torch.equal(pure[i], pure[j]) for i in range(STEPS) for j in range(i)) and plan.support.k:
        faults.add("two steps share their noise")
    return faults


def network() -> nn.Module:
    return initialise(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))


def rows_that_hurt(n: int, worst: str) -> Data:
    """n ordinary rows of which the last is as bad as it can be."""
    x = torch.randn(n, 4, generator=generator(n))
    y = torch.randint(0, 3, (n,), generator=generator(n + 1))
    x[-1] = {"ordinary": x[-1], "huge": x[-1] * 1e6, "nan": x[-1] * float("nan"), "infinite": x[-1] / 0.0}[
        worst
    ]
    return x, y


def plan_for(n: int, support: Support, noise_multiplier: float = 1.0) -> Plan:
    return Plan(n, max(1, n // 2), 0.05, noise_multiplier, support)


SUPPORTS = {"all": Support.full(51), "some": Support.of(range(0, 51, 3), 51), "one": Support.of([17], 51)}


@pytest.mark.parametrize("worst", ["ordinary", "huge", "nan", "infinite"])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("support", list(SUPPORTS))
def test_library_step_keeps_every_promise(support: str, n: int, worst: str) -> None:
    assert (
        replay_faults(private_step, network(), rows_that_hurt(n, worst), plan_for(n, SUPPORTS[support]))
        == set()
    )


@pytest.mark.parametrize("n", [2, 5])
def test_reference_engine_keeps_every_promise(n: int) -> None:
    def step(model: nn.Module, data: Data, plan: Plan, streams: Streams, t: int) -> Trace:
        return private_step(model, data, plan, streams, t, engine="opacus")

    assert replay_faults(step, network(), rows_that_hurt(n, "huge"), plan_for(n, SUPPORTS["some"])) == set()


def test_the_replays_are_not_vacuous() -> None:
    """The last row takes part in some of the steps, is clipped there, and moves the sum by clip_norm exactly."""
    data, plan = rows_that_hurt(5, "huge"), plan_for(5, SUPPORTS["all"], noise_multiplier=0.0)
    changes = [
        float(
            (
                private_step(network(), data, plan, Streams(5), t).released
                - private_step(network(), (data[0][:-1], data[1][:-1]), plan, Streams(5), t).released
            ).norm()
        )
        for t in range(STEPS)
    ]
    assert max(changes) * plan.expected_batch_size == pytest.approx(plan.clip_norm, rel=1e-5)
    assert min(changes) == 0.0


def test_n_equal_and_one_less_share_every_public_number() -> None:
    for n in (2, 3, 4, 5):
        plan = plan_for(n, SUPPORTS["some"])
        data = rows_that_hurt(n, "ordinary")
        traces = [
            private_step(network(), (data[0][:m], data[1][:m]), plan, Streams(1), 0) for m in (n, n - 1)
        ]
        assert len({(t.rate, t.divisor, t.released.shape) for t in traces}) == 1


def test_empty_batches_release_noise_and_nothing_crashes() -> None:
    """20 rows at rate 0.01 for 200 steps: most batches are empty."""
    plan = Plan(100, 1, 0.5, 1.0, SUPPORTS["all"])
    data = rows_that_hurt(20, "ordinary")
    traces = [private_step(network(), data, plan, Streams(2), t) for t in range(200)]
    empty = [trace for trace in traces if not trace.rows]
    assert len(empty) > 100
    assert len(empty) < 200
    assert all(bool((trace.released != 0).all()) for trace in traces)


def planted(
    rate: Callable[[Plan, int], PoissonSampler] | None = None,
    clip: bool = True,
    divisor: Callable[[Plan, int], int] | None = None,
    release: Callable[[ClippedSum, Plan, int, RandomStream], torch.Tensor] | None = None,
    noise_key: Callable[[int], int] = lambda t: t,
) -> Step:
    """The library's step with one thing done wrongly."""

    def step(model: nn.Module, data: Data, plan: Plan, streams: Streams, t: int) -> Trace:
        sampler = rate(plan, len(data[0])) if rate else PoissonSampler(plan.n, plan.expected_batch_size)
        rows = sampler.draw(streams.stream("sampling", t), available=len(data[0]))
        batch = (data[0][rows], data[1][rows])
        clipped = get_engine().clipped_sum(model, cross_entropy, batch, plan.support, plan.clip_norm)
        if not clip and len(rows):
            raw = reference_gradients(model, cross_entropy, batch)[:, plan.support.indices].sum(dim=0)
            clipped = ClippedSum(raw.float(), clipped.norms)
        size = divisor(plan, len(rows)) if divisor else plan.expected_batch_size
        stream = streams.stream("noise", noise_key(t))
        if release:
            return Trace(tuple(rows.tolist()), release(clipped, plan, size, stream), sampler.rate, size)
        gradient = privatize(clipped, plan.clip_norm, plan.noise_multiplier, size, stream)
        return Trace(tuple(rows.tolist()), plan.support.scatter(gradient), sampler.rate, size)

    return step


def noise_divided_twice(clipped: ClippedSum, plan: Plan, size: int, stream: RandomStream) -> torch.Tensor:
    """Noise of deviation sigma*C/B added to the sum, which is then divided by B."""
    return plan.support.scatter(
        privatize(clipped, plan.clip_norm, plan.noise_multiplier / size, size, stream)
    )


def noise_outside_only(clipped: ClippedSum, plan: Plan, size: int, stream: RandomStream) -> torch.Tensor:
    """Noise on the frozen coordinates, none on the support."""
    noise = torch.from_numpy(stream.standard_normal(plan.support.d)).float()
    noise = noise * (plan.noise_multiplier * plan.clip_norm / size)
    return torch.where(plan.support.mask(), plan.support.scatter(clipped.sum / size), noise)


PLANTED: dict[str, tuple[Step, str]] = {
    "no clip": (planted(clip=False), "one example changes the sum by more than clip_norm"),
    "noise divided twice": (
        planted(release=noise_divided_twice),
        "the noise's deviation on the support is not sigma*C/B",
    ),
    "noise used again": (planted(noise_key=lambda t: t // 2), "two steps share their noise"),
    "noise outside only": (planted(release=noise_outside_only), "noise lies outside of the support"),
    "divisor from the batch": (
        planted(divisor=lambda plan, size: max(1, size)),
        "the divisor follows the data",
    ),
    "rate from the data": (
        planted(
            rate=lambda plan, size: PoissonSampler(max(1, size), min(plan.expected_batch_size, max(1, size)))
        ),
        "the rate follows the data",
    ),
}


@pytest.mark.parametrize("bug", list(PLANTED))
@pytest.mark.parametrize("n", [3, 4, 5])
def test_planted_bug_is_caught(bug: str, n: int) -> None:
    step, fault = PLANTED[bug]
    plan = Plan(n, 2, 0.05, 1.0, SUPPORTS["some"])
    assert fault in replay_faults(step, network(), rows_that_hurt(n, "huge"), plan)


def test_unplanted_step_of_the_same_construction_passes() -> None:
    plan = Plan(5, 2, 0.05, 1.0, SUPPORTS["some"])
    assert replay_faults(planted(), network(), rows_that_hurt(5, "huge"), plan) == set()


def test_divisor_from_the_batch_is_caught_by_the_release_alone() -> None:
    """Even a step that hides its divisor is caught: the shared noise is scaled by it."""
    honest_trace = PLANTED["divisor from the batch"][0]

    def hiding(model: nn.Module, data: Data, plan: Plan, streams: Streams, t: int) -> Trace:
        trace = honest_trace(model, data, plan, streams, t)
        return Trace(trace.rows, trace.released, trace.rate, plan.expected_batch_size)

    plan = Plan(5, 2, 0.05, 1.0, SUPPORTS["some"])
    faults = replay_faults(hiding, network(), rows_that_hurt(5, "ordinary"), plan)
    assert "one example changes the sum by more than clip_norm" in faults


def test_mixing_model_is_bounded_too_when_examples_are_computed_by_themselves() -> None:
    class Centre(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(dim=0, keepdim=True)

    model = initialise(nn.Sequential(Centre(), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)))
    layout = ParameterLayout.of(model)
    plan = plan_for(5, Support.full(layout.size))
    assert replay_faults(private_step, model, rows_that_hurt(5, "huge"), plan) == set()


def test_support_and_noise_do_not_read_the_data() -> None:
    """The released coordinates are those of the public support, whatever the batch holds."""
    plan = plan_for(5, SUPPORTS["some"])
    for worst in ("ordinary", "huge", "nan"):
        trace = private_step(network(), rows_that_hurt(5, worst), plan, Streams(3), 0)
        assert np.flatnonzero(trace.released.numpy()).tolist() == plan.support.indices.tolist()
