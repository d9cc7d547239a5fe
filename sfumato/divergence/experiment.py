"""One cell of the comparison: a pair, a method and an epsilon, estimated once or many times.

>>> import numpy as np
>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import Reference
>>> values = np.repeat(np.arange(3), [300, 300, 400]).astype(np.int32)
>>> pair = Pair.of("example", Reference.from_probabilities([0.5, 0.3, 0.2]), values, np.arange(1000) // 10)
>>> found = estimate("all_cells", pair, Setting(Floor("mix", 0.1)), 1.0, Streams(0))
>>> found.events[0].__class__.__name__, round(found.target, 4), abs(found.raw - found.target) < 4 * found.noise_std
('GaussianDpEvent', 0.0948, True)

The truth that errors are measured against is KL(Pi || (1 - s) P + s Pi) with a small public smoothing s, since the plain
divergence of most pairs of digits is infinite; what a floor takes away beyond that counts as error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from sfumato.accounting.discrete_gaussian_sums import DiscreteGaussianSum, sum_law
from sfumato.divergence.baselines import central_histogram, local_release
from sfumato.divergence.coefficient import choose_coefficient, uniform_prior
from sfumato.divergence.comparisons import Pair
from sfumato.divergence.counting import Counts
from sfumato.divergence.distributed import count_noise, counted_shares, draw_noise
from sfumato.divergence.estimator import Batch, release_batches
from sfumato.divergence.estimator import Estimate as Estimated
from sfumato.divergence.evaluation import evaluate, target_divergence
from sfumato.divergence.intervals import Sampling
from sfumato.divergence.methods import Method, get_method
from sfumato.divergence.noise import add_noise, calibrated_mechanism
from sfumato.divergence.noisy_counts import evaluate_noisy
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import PublicPoints, all_points, draw_points
from sfumato.divergence.sensitivity import sensitivity
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream, Streams, SystemStream

RELEASED = ("trusted_aggregator", "all_cells", "per_batch", "distributed")
"""Methods with a release mode; the others are baselines."""
PRIOR_SHARE = 0.2
"""Of the uniform distribution in the public prior that a chosen lambda is made for."""


@dataclass(frozen=True)
class Setting:
    """The public numbers of a comparison.

    Attributes:
        floor: of every estimate; ``local_clip`` clips at the same level.
        coefficient: lambda; None to choose it from public numbers.
        points: m, draws from the reference; per batch for ``per_batch``.
        batches: T, groups of clients of ``per_batch``.
        delta: of every guarantee.
        confidence: of the intervals.
        sampling: how intervals allow for the draw of the points.
        variance_share: of the budget, where ``sampling`` is ``budget_share``.
        corrupted_share: of the clients, whose noise ``distributed`` does not count on.
    """

    floor: Floor
    coefficient: float | None = 0.0
    points: int = 10
    batches: int = 10
    delta: float = 1e-5
    confidence: float = 0.95
    sampling: Sampling = "public_bound"
    variance_share: float = 0.2
    corrupted_share: float = 0.1

    def floor_of(self, method: Method) -> Floor:
        """The floor that a method uses."""
        return Floor("clip", self.floor.level) if method.name == "local_clip" else self.floor


@dataclass(frozen=True)
class Found:
    """One estimate.

    Attributes:
        raw: in nats.
        target: what the method's floor lets it aim at, without privacy.
        noise_std: of the released number, or of each count where the noise is on counts; None without noise.
        events: what one example spent, to be priced under replace-one.
        interval: low and high, where one was asked for and the method has one.
        interval_target: what the interval is for: ``target``, but for the mean over batches the mean of the batches' own
            targets, which lies above that (``sfumato.divergence.estimator.release_batches``); None without an interval.
    """

    raw: float
    target: float
    noise_std: float | None
    events: tuple[DpEvent, ...] = ()
    interval: tuple[float, float] | None = None
    interval_target: float | None = None


def estimate(
    name: str, pair: Pair, setting: Setting, epsilon: float | None, streams: Streams, interval: bool = False
) -> Found:
    """Estimate once.

    Guarantee:
        (epsilon, delta)-differential privacy for replacing one example, N, the points and the clients public: central
        for all but ``distributed``, where whoever sees the sum is bound, and the local ones, where every message is.
        With a seeded stream it is a simulation.

    Args:
        name: of the method.
        pair: the data.
        setting: the public numbers.
        epsilon: the budget; None only for ``non_private``.
        streams: the run's randomness, of which every pair has its own; points are the same for all methods and
            epsilons, and so are standard normal draws, so that differences are paired.
        interval: whether an interval is asked for, which only the releases of one number have.

    Raises:
        SfumatoError: if a number is not allowed, or there are fewer clients than the method needs.
    """
    method = get_method(name)
    floor = setting.floor_of(method)
    points = _points(method, pair, setting, streams.stream("points", pair.name))
    plan = EstimatorPlan(floor, coefficient_of(pair, setting, points, floor, epsilon))
    target = target_divergence(pair.reference, pair.probabilities, plan)
    noise = streams.stream("noise", pair.name)
    if epsilon is None:
        raw = evaluate(pair.counts[points.cells], pair.examples, points, pair.reference, plan)
        return Found(raw, target, None)
    if method.name == "per_batch":
        counts = _batch_counts(pair, setting, streams)
        batches = _batches(counts, pair, setting, streams)
        if interval:
            each = [target_divergence(pair.reference, own / own.sum(), plan) for own in counts]
            found = _with_interval(batches, pair, setting, plan, epsilon, target, noise)
            return replace(found, interval_target=math.fsum(each) / len(each))
        return _averaged(
            [_one_number(batch, pair, setting, plan, epsilon, target, noise) for batch in batches]
        )
    if method.name == "histogram":
        found = central_histogram(
            pair.counts, pair.examples, pair.reference, plan, epsilon, setting.delta, noise
        )
        return Found(found.raw, target, found.noise_std, found.events)
    if method.trust == "local":
        sent = pair.group_counts(np.arange(pair.client_count), pair.client_count)[:, points.cells]
        local = local_release(
            sent, pair.examples, points, pair.reference, plan, epsilon, setting.delta, noise
        )
        return Found(local.raw, target, local.noise_std, local.events)
    if method.trust == "distributed":
        return _distributed(pair, setting, points, plan, epsilon, target, noise)
    batch = Batch(pair.counts[points.cells], pair.examples, points)
    if interval:
        return _with_interval([batch], pair, setting, plan, epsilon, target, noise)
    return _one_number(batch, pair, setting, plan, epsilon, target, noise)


def coefficient_of(
    pair: Pair, setting: Setting, points: PublicPoints, floor: Floor, epsilon: float | None
) -> float:
    """Lambda, given or chosen for a public prior; with every cell counted and mixed it does not matter."""
    if setting.coefficient is not None:
        return setting.coefficient
    prior = uniform_prior(pair.reference, PRIOR_SHARE)
    chosen = choose_coefficient(pair.reference, points, pair.examples, floor, epsilon, setting.delta, prior)
    return chosen.coefficient


def distributed_noise(clients: int, setting: Setting, epsilon: float) -> DiscreteGaussianSum:
    """What each client adds, if all clients stay and the corrupted share of them tells its noise."""
    return _count_noise(epsilon, setting.delta, counted_shares(clients, clients, setting.corrupted_share))


def planned_events(method: Method, pair: Pair, setting: Setting, epsilon: float) -> tuple[DpEvent, ...]:
    """What one estimate in release mode will cost an example: functions of public numbers alone.

    Args:
        method: one that has a release mode.
        pair: whose number of clients counts.
        setting: the public numbers.
        epsilon: of the estimate.

    Raises:
        SfumatoError: if the method is a baseline without a release mode.
    """
    if method.trust == "distributed":
        return (distributed_noise(pair.client_count, setting, epsilon).event,)
    if method.name not in RELEASED:
        raise SfumatoError(f"method is {method.name!r} in release mode; allowed are {', '.join(RELEASED)}.")
    return (calibrated_mechanism(1.0, epsilon, setting.delta, discrete=True).event,)


@lru_cache(maxsize=256)
def _count_noise(epsilon: float, delta: float, shares: int) -> DiscreteGaussianSum:
    return count_noise(epsilon, delta, shares)


@lru_cache(maxsize=16)
def _sum_steps(sigma: float, clients: int) -> tuple[NDArray[np.float64], int]:
    law = sum_law(sigma, clients)
    return np.cumsum(law.probabilities), law.first


def _points(method: Method, pair: Pair, setting: Setting, stream: RandomStream) -> PublicPoints:
    return draw_points(pair.reference, setting.points, stream) if method.drawn else all_points(pair.reference)


def _one_number(
    batch: Batch,
    pair: Pair,
    setting: Setting,
    plan: EstimatorPlan,
    epsilon: float,
    target: float,
    noise: RandomStream,
) -> Found:
    """The release of one pooled estimate without its interval, which sweeps have no use for."""
    moved = sensitivity(batch.points, pair.reference, batch.examples, plan)
    discrete = isinstance(noise, SystemStream)
    mechanism = calibrated_mechanism(moved.charged, epsilon, setting.delta, discrete)
    value = evaluate(batch.counts, batch.examples, batch.points, pair.reference, plan)
    return Found(float(add_noise(value, mechanism, noise)[0]), target, mechanism.sigma, (mechanism.event,))


def _with_interval(
    batches: list[Batch],
    pair: Pair,
    setting: Setting,
    plan: EstimatorPlan,
    epsilon: float,
    target: float,
    noise: RandomStream,
) -> Found:
    sampling = setting.sampling if batches[0].points.draws else "none"
    found: Estimated = release_batches(
        batches,
        pair.reference,
        plan,
        epsilon,
        setting.delta,
        noise,
        sampling=sampling,
        confidence=setting.confidence,
        variance_share=setting.variance_share,
    )
    return Found(found.raw, target, found.noise_std, found.events, (found.low, found.high), target)


def _batch_counts(pair: Pair, setting: Setting, streams: Streams) -> Counts:
    """(T, cells) counts of T groups of clients of about the same number, parted in public."""
    order = streams.stream("batches", pair.name).permutation(pair.client_count)
    groups = np.empty(pair.client_count, np.int64)
    groups[order] = np.arange(pair.client_count) % setting.batches
    return pair.group_counts(groups, setting.batches)


def _batches(counts: Counts, pair: Pair, setting: Setting, streams: Streams) -> list[Batch]:
    """The groups, each with points of its own."""
    drawn = [
        draw_points(pair.reference, setting.points, streams.stream("points", pair.name, number + 1))
        for number in range(setting.batches)
    ]
    return [Batch(own[p.cells], int(own.sum()), p) for own, p in zip(counts, drawn, strict=True)]


def _averaged(parts: Sequence[Found]) -> Found:
    """The mean of the batches' noisy values; an example is in one batch, so it spent what that batch did."""
    sigmas = [part.noise_std or 0.0 for part in parts]
    raw = sum(part.raw for part in parts) / len(parts)
    return Found(raw, parts[0].target, math.hypot(*sigmas) / len(parts), parts[0].events)


def _distributed(
    pair: Pair,
    setting: Setting,
    points: PublicPoints,
    plan: EstimatorPlan,
    epsilon: float,
    target: float,
    noise: RandomStream,
) -> Found:
    """The sum of all clients' counts with all clients' noise, drawn from the sum's own law: the same in distribution."""
    clients = pair.client_count
    own = distributed_noise(clients, setting, epsilon)
    if isinstance(noise, SystemStream):
        shares = sum(draw_noise(own.sigma, points.count, noise) for _ in range(clients))
    else:
        steps, first = _sum_steps(own.sigma, clients)
        shares = np.searchsorted(steps[:-1], noise.random(points.count), side="right") + first
    noisy = pair.counts[points.cells] + np.asarray(shares, np.int64)
    raw = evaluate_noisy(noisy, pair.examples, points, pair.reference, plan)
    return Found(raw, target, math.sqrt(clients) * own.sigma, (own.event,))


def studied(setting: Setting, study: str, value: float) -> Setting:
    """The setting with one number changed.

    Args:
        setting: the base.
        study: ``coefficient``, ``points``, ``batches`` or ``floor``.
        value: the number.
    """
    if study == "floor":
        return replace(setting, floor=replace(setting.floor, level=float(value)))
    if study == "coefficient":
        return replace(setting, coefficient=float(value))
    return replace(setting, **{study: int(value)})
