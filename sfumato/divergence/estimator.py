"""The estimate of KL(Pi || P): without privacy, and released with noise after Phi and an interval.

>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import all_points
>>> from sfumato.rng import Streams
>>> reference, plan = Reference.from_probabilities([0.5, 0.3, 0.2]), EstimatorPlan(Floor("mix", 0.1), 0.0)
>>> points, counts = all_points(reference), np.array([3000, 3000, 4000])
>>> round(evaluate(counts, 10_000, points, reference, plan), 4)
0.0948
>>> found = release(counts, 10_000, points, reference, plan, 1.0, 1e-5, Streams(0).stream("noise"))
>>> round(found.high - found.low, 4), found.sampling, len(found.events)
(0.0129, 'none', 1)

Noise is added after Phi: only then is the estimate unbiased (Section 4.1 of docs/papers.md). The relation is replacing
one example, with N public. Every number beside the noisy value is a function of public numbers or of that value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import ArrayLike

from sfumato.divergence.evaluation import (
    describe_target,
    evaluate,
    exact_divergence,
    ratios,
    target_divergence,
)
from sfumato.divergence.intervals import (
    Bounds,
    Sampling,
    Tail,
    clipped_value,
    fixed_interval,
    inverted_interval,
    normal_quantile_of,
    student_quantile,
    target_range,
    value_reach,
    variance_bound,
)
from sfumato.divergence.noise import add_noise, calibrated_mechanism
from sfumato.divergence.plan import EstimatorPlan, require_between, require_choice, require_stream
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.divergence.sensitivity import Sensitivity, second_moment_sensitivity, sensitivity
from sfumato.divergence.theory import batch_bias
from sfumato.errors import SfumatoError
from sfumato.mechanisms import DiscreteGaussian, Gaussian
from sfumato.rng import RandomStream, SystemStream

_MARGIN = 1.645  # one-sided 95 %, so that noise in the second moment rarely hides a large one


__all__ = [
    "Batch",
    "Estimate",
    "describe_target",
    "evaluate",
    "exact_divergence",
    "release",
    "release_batches",
    "target_divergence",
]


@dataclass(frozen=True, eq=False)
class Estimate:
    """One released estimate with its interval; everything in it may be published.

    Attributes:
        raw: the noisy value in nats, unbiased for the target, possibly outside of its range.
        clipped: ``raw`` cut to the range of the target, which a floor of kind ``clip`` lets reach below 0.
        low: lower end of the interval, within the range of the target.
        high: upper end.
        confidence: of the interval.
        noise_std: standard deviation of the privacy noise in ``raw``.
        sampling_std: standard deviation that the interval allows for the draw of the points.
        sampling: what that rests on: ``none`` (every cell is a point), ``public_bound`` or ``budget_share``.
        epsilon: the budget of the whole release.
        delta: likewise.
        sensitivity: what the noise was calibrated to; of several batches the one with the most noise.
        events: what happened, to be priced under replace-one.
        target: the number that the interval covers, in words.
        examples: N.
        draws: m, over all batches; 0 where every cell is a point.
        batches: how many estimates were averaged; 1 pools all counts.
        bias: of the mean over batches against the pooled estimate, to first order and for a population that equals the
            reference; 0 for one.
    """

    raw: float
    clipped: float
    low: float
    high: float
    confidence: float
    noise_std: float
    sampling_std: float
    sampling: Sampling
    epsilon: float
    delta: float
    sensitivity: Sensitivity
    events: tuple[DpEvent, ...]
    target: str
    examples: int
    draws: int
    batches: int = 1
    bias: float = 0.0


@dataclass(frozen=True, eq=False)
class Batch:
    """Counts of one group of clients at points of their own.

    Attributes:
        counts: (k,) integers.
        examples: N of the group, public.
        points: drawn for this group.
    """

    counts: ArrayLike
    examples: int
    points: PublicPoints


def release(
    counts: ArrayLike,
    examples: int,
    points: PublicPoints,
    reference: Reference,
    plan: EstimatorPlan,
    epsilon: float,
    delta: float,
    stream: RandomStream,
    *,
    sampling: Sampling | None = None,
    confidence: float = 0.95,
    variance_share: float = 0.2,
    tail: Tail = "normal",
) -> Estimate:
    """Release one estimate over all counts, pooled before Phi (Algorithm 2, Section 4.2).

    The noise has the sensitivity of the realised points. The interval covers the target of the floored ratio, not
    KL(Pi || P) itself, over the draw of the points and the noise; the population is taken as it is.

    Guarantee:
        (epsilon, delta)-differential privacy for replacing one example, N and the points public, of everything in the
        result together. With a stream of the operating system's entropy the noise is discrete and exactly sampled;
        with a seeded one it is a simulation and promises nothing to who knows the seed.

    Args:
        counts: (k,) integers, how often the population shows each point.
        examples: N, public, at least 2.
        points: public, drawn before.
        reference: Pi.
        plan: floor and lambda, chosen from public numbers.
        epsilon: above 0.
        delta: above 0 and below 1.
        stream: of the noise; its kind says which noise.
        sampling: how the interval allows for the draw of the points. ``none`` where every cell is a point.
            ``public_bound`` takes the largest variance that a population with that target can have. ``budget_share``
            releases the second moment of Phi too, which is charged; its interval is approximate, as any that reads a
            variance off few points. By default ``none`` or ``public_bound``, as the points are.
        confidence: of the interval.
        variance_share: the share of mu^2 that the second moment gets.
        tail: of the mean over the points with a public bound. ``normal`` holds for many points; with about ten of them,
            and a divergence that a rare cell carries, it covers less often than it says. ``guaranteed`` holds for any
            number, at each end by itself, and is wider (Cantelli, Bernstein).

    Raises:
        SfumatoError: if an argument is outside of what is allowed, or the plan has no floor.
    """
    return release_batches(
        [Batch(counts, examples, points)],
        reference,
        plan,
        epsilon,
        delta,
        stream,
        sampling=sampling,
        confidence=confidence,
        variance_share=variance_share,
        tail=tail,
    )


def release_batches(
    batches: Sequence[Batch],
    reference: Reference,
    plan: EstimatorPlan,
    epsilon: float,
    delta: float,
    stream: RandomStream,
    *,
    sampling: Sampling | None = None,
    confidence: float = 0.95,
    variance_share: float = 0.2,
    tail: Tail = "normal",
) -> Estimate:
    """Release one estimate per batch of clients and average them, as the paper does (Algorithm 2).

    The mean of ln over batches is below that of the pooled ratio: with few examples per batch this over-estimates the
    divergence, by about ``bias`` where the population equals the reference (Section 4.2, Bias not in the theorem). The
    interval covers the mean of the batches' own targets.

    Guarantee:
        As ``release``, for the whole, if each example is in one batch and who is in which is public: replacing an
        example then changes one batch, which spent the budget (parallel composition).

    Args:
        batches: at least one; all with as many draws.
        reference: Pi.
        plan: floor and lambda.
        epsilon: of each batch and of the whole.
        delta: likewise.
        stream: of the noise.
        sampling: as for ``release``.
        confidence: of the interval.
        variance_share: as for ``release``.
        tail: as for ``release``.

    Raises:
        SfumatoError: if an argument is outside of what is allowed, or the plan has no floor.
    """
    require_choice("tail", tail, get_args(Tail))
    require_between("epsilon", epsilon, 0.0, math.inf)
    for name, value in (("delta", delta), ("confidence", confidence)):
        require_between(name, value, 0.0, 1.0)
    require_stream(stream)
    how = _checked_sampling(batches, sampling, variance_share)
    budget = _Budget(
        epsilon, delta, isinstance(stream, SystemStream), variance_share if how == "budget_share" else 0.0
    )
    parts = [_part(batch, reference, plan, budget, stream) for batch in batches]
    raw = float(np.mean([part.value for part in parts]))
    noise_std = math.hypot(*(part.noise.sigma for part in parts)) / len(parts)
    worst = max(parts, key=lambda part: part.noise.sigma)
    draws = sum(batch.points.draws for batch in batches)
    sampling_std, found = _interval(
        parts, how, raw, noise_std, draws, (plan, reference.smallest), confidence, tail
    )
    return Estimate(
        raw=raw,
        clipped=clipped_value(raw, plan, reference.smallest),
        low=found.low,
        high=found.high,
        confidence=confidence,
        noise_std=noise_std,
        sampling_std=sampling_std,
        sampling=how,
        epsilon=float(epsilon),
        delta=float(delta),
        sensitivity=worst.sensitivity,
        events=worst.events,
        target=describe_target(reference, plan, len(batches)),
        examples=sum(batch.examples for batch in batches),
        draws=draws,
        batches=len(batches),
        bias=_bias_at_reference(batches, reference, plan) if len(batches) > 1 else 0.0,
    )


@dataclass(frozen=True)
class _Budget:
    """What a release may spend, on which kind of noise, and the share of the second moment."""

    epsilon: float
    delta: float
    discrete: bool
    variance_share: float

    def mechanism(self, sensitivity: float, share: float) -> Gaussian | DiscreteGaussian:
        """The noise of one of its numbers."""
        return calibrated_mechanism(sensitivity, self.epsilon, self.delta, self.discrete, share)


@dataclass(frozen=True, eq=False)
class _Part:
    """What one batch released."""

    value: float
    sensitivity: Sensitivity
    noise: Gaussian | DiscreteGaussian
    moment: float | None
    moment_noise: Gaussian | DiscreteGaussian | None

    @property
    def events(self) -> tuple[DpEvent, ...]:
        """What its examples spent."""
        return tuple(noise.event for noise in (self.noise, self.moment_noise) if noise is not None)


def _part(
    batch: Batch, reference: Reference, plan: EstimatorPlan, budget: _Budget, stream: RandomStream
) -> _Part:
    """The batch's noisy value, and its noisy second moment where that has a share."""
    moved = sensitivity(batch.points, reference, batch.examples, plan)
    noise = budget.mechanism(moved.charged, 1.0 - budget.variance_share)
    values = plan.values(ratios(batch.counts, batch.examples, batch.points, reference))
    value = float(add_noise(float(batch.points.weights @ values), noise, stream)[0])
    if not budget.variance_share:
        return _Part(value, moved, noise, None, None)
    squares = second_moment_sensitivity(batch.points, reference, batch.examples, plan, 0.0)
    moment_noise = budget.mechanism(squares.charged, budget.variance_share)
    moment = float(add_noise(float(batch.points.weights @ values**2), moment_noise, stream)[0])
    return _Part(value, moved, noise, moment, moment_noise)


def _interval(
    parts: Sequence[_Part],
    how: Sampling,
    raw: float,
    noise_std: float,
    draws: int,
    public: tuple[EstimatorPlan, float],
    confidence: float,
    tail: Tail,
) -> tuple[float, Bounds]:
    """The sampling deviation that is allowed for, and the interval."""
    plan, smallest = public
    z, targets = normal_quantile_of(confidence), target_range(plan, smallest)
    rounding = max(
        part.noise.granularity / 2.0 if isinstance(part.noise, DiscreteGaussian) else 0.0 for part in parts
    )
    if how == "none":
        return 0.0, fixed_interval(raw, z * noise_std + rounding, targets)
    bound = variance_bound(plan, smallest)
    if how == "public_bound":
        own = bound if len(parts) == 1 else bound.concave
        sampling_std = math.sqrt(own.at(targets.clip(raw)) / draws)
        reach = value_reach(plan, smallest) if tail == "guaranteed" else None
        found = inverted_interval(raw, noise_std, draws, own, targets, confidence, rounding, reach)
        return sampling_std, found
    moment = float(np.mean([part.moment for part in parts]))  # type: ignore[arg-type]
    moment_std = math.hypot(*(part.moment_noise.sigma for part in parts if part.moment_noise)) / len(parts)
    margin = _MARGIN * math.hypot(moment_std, 2.0 * raw * noise_std)
    spread = max(0.0, moment - raw * raw + noise_std**2 + margin) * draws / (draws - 1.0)
    sampling_std = math.sqrt(min(spread, bound.largest(targets)) / draws)
    half_width = math.hypot(z * noise_std, student_quantile(confidence, draws - 1) * sampling_std)
    return sampling_std, fixed_interval(raw, half_width + rounding, targets)


def _checked_sampling(batches: Sequence[Batch], sampling: Sampling | None, variance_share: float) -> Sampling:
    """How the interval allows for sampling, after checks that the points agree with it."""
    if not batches:
        raise SfumatoError("batches are none; allowed is at least one.")
    draws = {batch.points.draws for batch in batches}
    if len(draws) > 1:
        raise SfumatoError("batches have different numbers of points; allowed is one number for all.")
    drawn = draws.pop()
    how: Sampling = sampling or ("public_bound" if drawn else "none")
    require_choice("sampling", how, get_args(Sampling))
    if (how == "none") != (drawn == 0):
        allowed = "'public_bound' and 'budget_share'" if drawn else "'none'"
        raise SfumatoError(f"sampling is {how!r} with {drawn} draws of the points; allowed is {allowed}.")
    if how == "budget_share":
        if drawn * len(batches) < 2:
            raise SfumatoError("sampling is 'budget_share' with 1 point; allowed are at least 2 points.")
        require_between("variance_share", variance_share, 0.0, 1.0)
    return how


def _bias_at_reference(batches: Sequence[Batch], reference: Reference, plan: EstimatorPlan) -> float:
    """The public part of the bias of averaging over batches: its formula at P = Pi."""
    each = [
        batch_bias(reference, reference.probabilities, plan.required_floor, batch.examples)
        for batch in batches
    ]
    return float(np.mean(each))
