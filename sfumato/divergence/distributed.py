"""No trusted aggregator: every client adds its share of noise to its counts, and Phi sees the noisy sum.

>>> from sfumato.rng import Streams
>>> noise = count_noise(epsilon=1.0, delta=1e-5, shares=20)
>>> shares = [draw_noise(noise.sigma, 3, Streams(0).stream("noise", client)) for client in range(20)]
>>> round(noise.sigma, 2), round(noise.noise_std, 2), sum(shares).shape
(1.28, 5.72, (3,))

The bound takes no less than a certain noise of each client, however many share it; at this epsilon and delta:

>>> [round(count_noise(epsilon=1.0, delta=1e-5, shares=clients).sigma, 2) for clients in (10, 100, 1000, 100_000)]
[1.81, 0.77, 0.75, 0.75]

The price of trusting nobody (beyond the paper; docs/papers.md Section 4.1 has the trusted aggregator): the noise is
added before the logarithm, which turns it into bias; `noisy_counts` has that bias exactly, and an interval that holds
whatever it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
from dp_accounting import dp_event
from numpy.typing import ArrayLike, NDArray

from sfumato.accounting.discrete_gaussian_sums import (
    MAX_TABLE,
    DiscreteGaussianSum,
    calibrate_discrete_gaussian_sum,
    discrete_gaussian_law,
    sum_law,
    sum_law_size,
)
from sfumato.divergence.estimator import describe_target
from sfumato.divergence.intervals import (
    Sampling,
    Tail,
    clipped_value,
    inverted_interval,
    target_range,
    value_reach,
    variance_bound,
)
from sfumato.divergence.noisy_counts import evaluate_noisy, noise_bias, require_points, value_interval
from sfumato.divergence.plan import (
    EstimatorPlan,
    require_choice,
    require_count,
    require_number,
)
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.errors import AccountingError, SfumatoError
from sfumato.mechanisms import discrete_gaussian_noise
from sfumato.rng import RandomStream, SystemStream

MOVED_COUNTS = 2
"""Replacing one example takes one off a count and adds one to another; counts of points not asked for are not sent."""

MAX_DRAWN_SIGMA = 1e8
"""Beyond, the exact sampler's integers of 32 bits could be too short."""


def count_noise(epsilon: float, delta: float, shares: int) -> DiscreteGaussianSum:
    """The noise that every client adds to each of its counts.

    Guarantee: whoever sees the sum of the clients' noisy counts, and nothing else of them, learns of any one example
    no more than (epsilon, delta)-differential privacy allows, under replacement of one example of one client, if at
    least ``shares`` clients in the sum drew their noise as said and told nobody. It covers all points of one release,
    and their number does not matter: a replaced example changes two counts at most.

    Args:
        epsilon: target of the release, above 0.
        delta: target, in (0, 1).
        shares: the survivors that the protocol insists on, less the clients that may collude with who sees the sum.

    Raises:
        AccountingError: if an argument is outside of what is allowed.
    """
    moved = math.sqrt(MOVED_COUNTS), float(MOVED_COUNTS), MOVED_COUNTS
    return DiscreteGaussianSum(
        calibrate_discrete_gaussian_sum(epsilon, delta, shares, *moved), shares, *moved
    )


def counted_shares(clients: int, survivors: int, corrupted_share: float) -> int:
    """How many shares of noise are sure to be in the sum and unknown to whoever sees it.

    Args:
        clients: how many take part.
        survivors: with fewer of them at the end there is no release.
        corrupted_share: of the clients, rounded up, may tell their noise to whoever sees the sum.

    Raises:
        SfumatoError: if none is left.
    """
    # Rounded up as the aggregation's graph rounds it; what lies this little above an integer got there by rounding.
    corrupted = math.ceil(corrupted_share * clients - 1e-9)
    if survivors - corrupted < 1:
        raise SfumatoError(
            f"survivors are {survivors} with {corrupted} corrupted clients; allowed are more survivors than corrupted "
            "clients, since nobody else's noise hides the counts."
        )
    return survivors - corrupted


def require_readable(points: int, noise: DiscreteGaussianSum, clients: int = 1) -> None:
    """Refuse, before anything is sent, a release of which no estimate could be made afterwards.

    With more shares the sum is no less noisy, so what is refused for one share and one client, which is all that is known
    before clients enrol, would be refused for any number of them.

    Args:
        points: how many counts each client sends.
        noise: what each client adds to each of them.
        clients: how many there can be in the sum.

    Raises:
        SfumatoError: if the points are too many for an interval, or the noise is too wide for its exact law.
    """
    require_points(points)
    try:
        sum_law_size(noise.sigma, clients)
    except AccountingError:
        raise SfumatoError(
            f"the noise of a sum of {clients} counts is {math.sqrt(clients) * noise.sigma:.3g}, as epsilon and delta ask; "
            f"allowed is noise whose law takes at most {MAX_TABLE} numbers, that is a larger epsilon or delta."
        ) from None


def draw_noise(sigma: float, size: int, stream: RandomStream) -> NDArray[np.int64]:
    """One client's share: independent draws of N_Z(0, sigma^2).

    On the operating system's entropy the draws are exact (Canonne, Kamath and Steinke 2020, as OpenDP samples them). On a
    seeded stream, which protects nothing anyway, they are quantiles of uniforms of 53 bits, so every probability is right
    to 2^-53 and less than 2^-60 of the law is cut off.

    Args:
        sigma: from 0.01 to 1e8.
        size: how many counts.
        stream: the client's own.

    Returns:
        (size,) int64.

    Raises:
        SfumatoError: if the arguments are outside of what is allowed.
    """
    require_number("sigma", sigma, 0.01, MAX_DRAWN_SIGMA)
    require_count("number of counts", size, 1, 2**24)
    if isinstance(stream, SystemStream):
        return discrete_gaussian_noise(sigma, size)
    law = discrete_gaussian_law(sigma)
    steps = np.cumsum(law.probabilities)
    return np.searchsorted(steps[:-1], stream.random(size), side="right").astype(np.int64) + law.first


@dataclass(frozen=True)
class DistributedEstimate:
    """A released divergence in the model without a trusted aggregator.

    Attributes:
        raw: Phi's mean at the noisy counts, in nats, biased by the noise.
        clipped: the same, cut to the range of the target, which a floor of kind ``clip`` lets reach below 0.
        low: of the interval for the target, over the draw of the points and the noise.
        high: of that interval.
        value_low: of the interval for Phi's mean at these points without noise; valid without any approximation.
        value_high: of that interval.
        confidence: of both intervals, at least; where points were drawn and the normal tail was asked for, of ``low`` and
            ``high`` only about that (``sfumato.divergence.estimator.release``).
        sampling: how ``low`` and ``high`` allow for the draw of the points, as in ``sfumato.divergence.estimator``.
        bias: the noise's average shift of ``raw``, estimated at the noisy counts.
        sigma: of one client's share.
        noise_std: of one noisy count, the sum of all survivors' shares.
        shares: how many shares the guarantee counts on.
        epsilon: of the release, at ``delta``.
        delta: likewise.
        examples: N of the survivors.
        survivors: how many clients are in the sum.
        target: the number that the interval covers, in words.
        events: what it cost, to be recorded.
    """

    raw: float
    clipped: float
    low: float
    high: float
    value_low: float
    value_high: float
    confidence: float
    sampling: Sampling
    bias: float
    sigma: float
    noise_std: float
    shares: int
    epsilon: float
    delta: float
    examples: int
    survivors: int
    target: str
    events: tuple[dp_event.DpEvent, ...]


def estimate(
    counts: ArrayLike,
    examples: int,
    survivors: int,
    noise: DiscreteGaussianSum,
    points: PublicPoints,
    reference: Reference,
    plan: EstimatorPlan,
    delta: float,
    confidence: float = 0.95,
    tail: Tail = "guaranteed",
) -> DistributedEstimate:
    """The divergence from the sum of the clients' noisy counts.

    Guarantee: post-processing of that sum, which ``count_noise`` priced; nothing is drawn and nothing more is spent.

    Args:
        counts: (k,) int64, the noisy sum.
        examples: N of the clients in the sum, public.
        survivors: how many clients are in the sum, at least as many as the noise counts on.
        noise: what each of them added.
        points: the public points.
        reference: Pi.
        plan: floor and lambda.
        delta: of the release.
        confidence: of the interval.
        tail: of the mean over drawn points, as in ``sfumato.divergence.estimator.release``. The noise is bounded without
            any approximation, and by default so is the draw.

    Raises:
        SfumatoError: if an argument does not fit, or fewer clients survived than the guarantee needs.
    """
    require_choice("tail", tail, get_args(Tail))
    require_count("survivors", survivors, noise.shares, 10**8)
    noise_std = math.sqrt(survivors) * noise.sigma
    raw = evaluate_noisy(counts, examples, points, reference, plan)
    targets = target_range(plan, reference.smallest)
    drawn = points.draws > 0
    # Where points were drawn, half of the allowed misses go to the noise and half to the draw.
    each = (1.0 + confidence) / 2.0 if drawn else confidence
    inner = value_interval(counts, examples, points, reference, plan, noise_std, each)
    low, high = _target_interval(inner, points, reference, plan, each, tail) if drawn else inner
    return DistributedEstimate(
        raw=raw,
        clipped=clipped_value(raw, plan, reference.smallest),
        low=targets.clip(low),
        high=targets.clip(high),
        value_low=inner[0],
        value_high=inner[1],
        confidence=confidence,
        sampling="public_bound" if drawn else "none",
        bias=noise_bias(counts, examples, points, reference, plan, sum_law(noise.sigma, int(survivors))),
        sigma=noise.sigma,
        noise_std=noise_std,
        shares=noise.shares,
        epsilon=noise.epsilon(delta),
        delta=delta,
        examples=int(examples),
        survivors=int(survivors),
        target=describe_target(reference, plan, 1),
        events=(noise.event,),
    )


def _target_interval(
    inner: tuple[float, float],
    points: PublicPoints,
    reference: Reference,
    plan: EstimatorPlan,
    confidence: float,
    tail: Tail,
) -> tuple[float, float]:
    """Every target from which some value within ``inner`` is not a surprise, by the public bound on Phi's variance."""
    targets, bound = target_range(plan, reference.smallest), variance_bound(plan, reference.smallest)
    reach = value_reach(plan, reference.smallest) if tail == "guaranteed" else None
    ends = [inverted_interval(v, 0.0, points.draws, bound, targets, confidence, 0.0, reach) for v in inner]
    return ends[0].low, ends[1].high
