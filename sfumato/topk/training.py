"""The training loop of every topk method: sample, clip on the support, add noise, record, update.

>>> from sfumato.topk.plan import TwoPhasePlan
>>> plan = TwoPhasePlan(method="on_topk", reselect_every=10, warmup_steps=5, train_steps=30)
>>> [step for step in range(35) if reselects(plan, step)]
[15, 25]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from sfumato import mechanisms
from sfumato.checks import is_integer
from sfumato.dpsgd import Engine, FastPooling, ParameterLayout, Support, get_engine, privatize, validate
from sfumato.dpsgd.optimizers import Adam, Sgd, restrict_state
from sfumato.errors import SfumatoError
from sfumato.ledger import EventLedger
from sfumato.rng import RandomStream, Streams
from sfumato.sampling import PoissonSampler
from sfumato.topk.plan import CalibratedPlan, Phase, TwoPhasePlan
from sfumato.topk.probe import Probe, measure
from sfumato.topk.scores import ScoreStatistics
from sfumato.topk.state import Curve, CurvePoint, State
from sfumato.topk.supports import choose_support, random_support

Loss = Callable[[Tensor, Tensor], Tensor]
Observer = Callable[[State], None]


cross_entropy: Final = nn.CrossEntropyLoss(reduction="none")
"""Per-example cross entropy: outputs Tensor[B, classes], targets int64 Tensor[B] -> Tensor[B]."""


@dataclass(frozen=True)
class Release:
    """What one step released, for an auditor who knows all other examples.

    Attributes:
        step: steps taken before.
        support: the active coordinates.
        gradient: Tensor[k], the privatised mean gradient.
        others: Tensor[k], the clipped sum of the sampled examples that are not canaries.
        clip_norm: C.
        noise_multiplier: sigma.
    """

    step: int
    support: Support
    gradient: Tensor
    others: Tensor
    clip_norm: float
    noise_multiplier: float


class Canaries(Protocol):
    """Planted examples of an audit, given as gradients (white-box) on the current support."""

    def contribute(self, step: int, support: Support, clip_norm: float) -> Tensor:
        """Tensor[k]: the sum of the sampled canaries' clipped gradients at this step."""
        ...

    def observe(self, release: Release) -> None:
        """See what a step released."""
        ...


@dataclass(frozen=True)
class Problem:
    """A module and the rows it learns from.

    Attributes:
        module: maps inputs to outputs, one example at a time; its parameters are overwritten during a fit.
        inputs: Tensor[rows, ...].
        targets: Tensor[rows].
        loss: per-example losses from outputs and targets.
        engine: computes clipped sums.
        probe: held-out rows for measurements outside the guarantee, or None.
        canaries: planted gradients of an audit, or None.
    """

    module: nn.Module
    inputs: Tensor
    targets: Tensor
    loss: Loss = cross_entropy
    engine: Engine = field(default_factory=get_engine)
    probe: Probe | None = None
    canaries: Canaries | None = None

    def __post_init__(self) -> None:
        """Refuse modules that mix examples and rows that do not match."""
        for name in ("inputs", "targets"):
            rows = getattr(self, name)
            if not isinstance(rows, Tensor) or rows.ndim == 0:
                kind = "a tensor without a dimension" if isinstance(rows, Tensor) else type(rows).__name__
                raise SfumatoError(
                    f"{name} is {kind}; allowed is a tensor with a row per example, as torch.as_tensor gives."
                )
        validate(self.module)
        if len(self.inputs) != len(self.targets):
            raise SfumatoError(
                f"there are {len(self.inputs)} inputs and {len(self.targets)} targets; allowed are equal numbers."
            )


def begin(problem: Problem, calibrated: CalibratedPlan) -> State:
    """The state before the first step, from the module's current parameters."""
    layout = ParameterLayout.of(problem.module)
    return State(
        0,
        layout.flatten(problem.module).to(torch.float32).clone(),
        _optimizer(calibrated.plan, calibrated.phases[0]).init(layout.size),
        Support.full(layout.size),
        ScoreStatistics.zeros(layout.size),
        EventLedger(),
        Curve(),
    )


def reselects(plan: TwoPhasePlan, step: int) -> bool:
    """Whether an online method re-chooses its support at this step, counted from the warm-up's first."""
    inside = step - plan.warmup_steps
    return plan.method in ("on_topk", "on_rand") and inside > 0 and inside % plan.reselect_every == 0


def run(
    problem: Problem,
    calibrated: CalibratedPlan,
    streams: Streams,
    state: State,
    until: int | None = None,
    observer: Observer | None = None,
) -> State:
    """Take steps from ``state`` until that many have been taken in all.

    Guarantee:
        Each step is a Poisson-subsampled Gaussian mechanism with per-example L2 sensitivity C on the support
        (add or remove one example): gradients are masked before they are clipped, the noise has standard
        deviation sigma C, the divisor is the public expected batch size, empty batches release noise too, and
        the support is a function of earlier releases. Every step is recorded in the state's ledger.

    Args:
        problem: module and rows.
        calibrated: the plan with its noise.
        streams: randomness; sampling and noise are keyed by step, so a resumed run draws the same.
        state: where to start; ``begin`` gives the first.
        until: total number of steps; all of the plan's by default.
        observer: called after each step with a state of its own, for progress and checkpoints.

    Raises:
        SfumatoError: if ``until`` exceeds the plan's steps, or the parameters stop being finite.
    """
    layout = ParameterLayout.of(problem.module)
    phases = calibrated.phases
    total = sum(phase.steps for phase in phases)
    end = total if until is None else until
    if not is_integer(end) or not 0 <= end <= total:
        raise SfumatoError(f"until is {until!r}; allowed is an integer from 0 to the plan's {total} steps.")
    while state.step < end:
        first = state.step < phases[0].steps
        phase = phases[0] if first else phases[1]
        if state.step == phases[0].steps:
            state = _enter_second_phase(calibrated.plan, phase, layout, streams, state)
        state = replace(state, ledger=state.ledger.copied())  # a state that was handed out never changes
        step = _plain_step if calibrated.plan.method == "non_private" else _private_step
        state = step(problem, calibrated, phase, layout, streams, state)
        if observer is not None:
            observer(state)
    layout.load(problem.module, state.parameters)
    if not bool(torch.isfinite(state.parameters).all()):
        raise SfumatoError(
            f"the parameters stopped being finite within {state.step} steps; allowed is a smaller learning rate "
            f"than {max(phase.learning_rate for phase in phases)}."
        )
    return state


def _optimizer(plan: TwoPhasePlan, phase: Phase) -> Sgd | Adam:
    if plan.optimizer == "adam":
        return Adam(learning_rate=phase.learning_rate)
    return Sgd(learning_rate=phase.learning_rate, momentum=plan.momentum)


def _support(plan: TwoPhasePlan, layout: ParameterLayout, streams: Streams, state: State) -> Support:
    """The support that the method chooses now, from releases or at random."""
    if plan.method in ("tp_rand", "on_rand"):
        return random_support(plan.active_ratio, plan.support, layout, streams.stream("support", state.step))
    scores = state.scores.of_kind(plan.score)
    return choose_support(scores, plan.active_ratio, plan.support, layout, streams.stream("ties", state.step))


def first_support(problem: Problem, calibrated: CalibratedPlan, streams: Streams, warm: State) -> Support:
    """The support that the second phase starts with, given the state after the warm-up."""
    return _support(calibrated.plan, ParameterLayout.of(problem.module), streams, warm)


def _enter_second_phase(
    plan: TwoPhasePlan, phase: Phase, layout: ParameterLayout, streams: Streams, state: State
) -> State:
    """Choose the support and start the optimiser afresh; frozen coordinates keep their warm-up values."""
    support = _support(plan, layout, streams, state)
    return replace(state, support=support, optimizer=_optimizer(plan, phase).init(layout.size))


def _private_step(
    problem: Problem,
    calibrated: CalibratedPlan,
    phase: Phase,
    layout: ParameterLayout,
    streams: Streams,
    state: State,
) -> State:
    """One noisy step; full-dimensional in the warm-up, in dense training and where ``on_topk`` re-chooses."""
    plan = calibrated.plan
    reselect = reselects(plan, state.step)
    if reselect and plan.method == "on_rand":
        state = _reselected(plan, layout, streams, state)
        reselect = False
    support = Support.full(layout.size) if reselect else state.support
    clip_norm = plan.clip_norm_warmup if reselect else phase.clip_norm
    gradient, noise_std = _release(problem, calibrated, phase, clip_norm, support, layout, streams, state)
    if phase.name == "warmup" or reselect:
        memory = plan.reselect_memory if reselect else 1.0
        state = replace(state, scores=state.scores.observed(gradient, noise_std**2, memory))
    if reselect:
        state = _reselected(plan, layout, streams, state)
        gradient = gradient[state.support.indices]
    return _updated(problem, plan, phase, layout, state, gradient)


def _reselected(plan: TwoPhasePlan, layout: ParameterLayout, streams: Streams, state: State) -> State:
    support = _support(plan, layout, streams, state)
    return replace(state, support=support, optimizer=restrict_state(dict(state.optimizer), support))


def _release(
    problem: Problem,
    calibrated: CalibratedPlan,
    phase: Phase,
    clip_norm: float,
    support: Support,
    layout: ParameterLayout,
    streams: Streams,
    state: State,
) -> tuple[Tensor, float]:
    """Release one privatised mean gradient and record its event: (Tensor[k], noise per coordinate)."""
    sampler = PoissonSampler(calibrated.n, calibrated.plan.expected_batch_size)
    sigma = float(phase.noise_multiplier or 0.0)
    rows = torch.from_numpy(sampler.draw(streams.stream("sampling", state.step), len(problem.inputs)))
    layout.load(problem.module, state.parameters)
    batch = (problem.inputs[rows], problem.targets[rows])
    clipped = problem.engine.clipped_sum(problem.module, problem.loss, batch, support, clip_norm)
    others = clipped.sum
    if problem.canaries is not None:
        planted = problem.canaries.contribute(state.step, support, clip_norm)
        clipped = replace(clipped, sum=others + planted)
    stream: RandomStream = streams.stream("noise", state.step)
    released = privatize(clipped, clip_norm, sigma, calibrated.plan.expected_batch_size, stream)
    noise_std = sigma * clip_norm / calibrated.plan.expected_batch_size
    _record(state, calibrated, sigma, len(rows), streams)
    if problem.canaries is not None:
        problem.canaries.observe(Release(state.step, support, released, others, clip_norm, sigma))
    return released, noise_std


def _record(
    state: State, calibrated: CalibratedPlan, sigma: float, batch_size: int, streams: Streams
) -> None:
    """Record this step's event; whether its batch was empty is private and is counted in simulation only."""
    event = mechanisms.subsampled_gaussian(calibrated.sampling_rate, sigma, 1)
    state.ledger.record(event, realised_batch_size=batch_size if streams.mode == "simulation" else None)


def _plain_step(
    problem: Problem,
    calibrated: CalibratedPlan,
    phase: Phase,
    layout: ParameterLayout,
    streams: Streams,
    state: State,
) -> State:
    """One step of plain SGD on the same batches; no clipping, no noise, no guarantee."""
    sampler = PoissonSampler(calibrated.n, calibrated.plan.expected_batch_size)
    rows = torch.from_numpy(sampler.draw(streams.stream("sampling", state.step), len(problem.inputs)))
    layout.load(problem.module, state.parameters)
    gradient = torch.zeros(layout.size)
    if len(rows) > 0:
        with FastPooling():
            losses = problem.loss(problem.module(problem.inputs[rows]), problem.targets[rows])
        parameters = [parameter for parameter in problem.module.parameters() if parameter.requires_grad]
        mean = losses.sum() / calibrated.plan.expected_batch_size
        gradients = torch.autograd.grad(mean, parameters, materialize_grads=True)
        gradient = torch.cat([gradient.reshape(-1) for gradient in gradients]).to(torch.float32)
    _record(state, calibrated, 0.0, len(rows), streams)
    return _updated(problem, calibrated.plan, phase, layout, state, gradient)


def _updated(
    problem: Problem,
    plan: TwoPhasePlan,
    phase: Phase,
    layout: ParameterLayout,
    state: State,
    gradient: Tensor,
) -> State:
    """The state after the optimiser has moved the active coordinates."""
    change, optimizer = _optimizer(plan, phase).update(dict(state.optimizer), gradient, state.support)
    parameters = state.parameters.clone()
    parameters[state.support.indices] += change
    point = CurvePoint(state.step, phase.name, float(gradient.square().sum().sqrt()))
    last = state.step + 1 in (plan.warmup_steps, plan.total_steps)
    if problem.probe is not None and (state.step % 20 == 0 or state.step == plan.warmup_steps or last):
        layout.load(problem.module, parameters)
        restricted = phase.name == "train" and (
            state.step == plan.warmup_steps or last or state.step % 60 == 0
        )
        measured = measure(
            problem.module,
            problem.loss,
            problem.engine,
            problem.probe,
            layout,
            state.support,
            phase.clip_norm if restricted else None,
        )
        point = replace(
            point,
            held_out_loss=measured.loss,
            held_out_accuracy=measured.accuracy,
            retained_energy=measured.retained_energy,
        )
    return replace(
        state,
        step=state.step + 1,
        parameters=parameters,
        optimizer=optimizer,
        curve=state.curve.with_point(point),
    )
