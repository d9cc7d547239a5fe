"""The strongest test on the released number: an audit on the two neighbours that are farthest apart.

>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import all_points
>>> from sfumato.rng import Streams
>>> reference, plan = Reference.from_probabilities([0.5, 0.3, 0.2]), EstimatorPlan(Floor("mix", 0.1), 0.0)
>>> audit = audit_release(
...     all_points(reference), reference, 100, plan, 2.0, 1e-5, runs=20_000, stream=Streams(0).stream("attack")
... )
>>> 0.0 < audit.bound.epsilon_lower < audit.epsilon
True

The neighbours attain the exact sensitivity, and the log-likelihood ratio of the released number is the best score there
is, so the audit measures the mechanism itself: no other pair of populations could show more.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.attacks.distinguishing import audit_ceiling, audit_local_mechanism
from sfumato.attacks.roc import EpsilonBound
from sfumato.divergence.evaluation import evaluate
from sfumato.divergence.noise import add_noise, calibrated_mechanism
from sfumato.divergence.plan import EstimatorPlan, Vector
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.divergence.sensitivity import Neighbors, sensitivity
from sfumato.mechanisms import DiscreteGaussian, Gaussian
from sfumato.rng import RandomStream


@dataclass(frozen=True)
class ReleaseAudit:
    """A measured lower bound of epsilon beside the claim.

    Attributes:
        bound: the lower bound, with its rates and confidence.
        epsilon: what the release claims at the same delta.
        ceiling: the bound if no run had been mistaken, the most that so many runs could have shown.
        neighbors: the two populations.
        distance: how far apart their estimates are without noise, in nats.
        noise_std: of the audited release.
        runs: releases per population.
    """

    bound: EpsilonBound
    epsilon: float
    ceiling: float
    neighbors: Neighbors
    distance: float
    noise_std: float
    runs: int

    @property
    def holds(self) -> bool:
        """Whether the measured bound does not contradict the claim."""
        return self.bound.epsilon_lower <= self.epsilon


def audit_release(
    points: PublicPoints,
    reference: Reference,
    examples: int,
    plan: EstimatorPlan,
    epsilon: float,
    delta: float,
    *,
    runs: int,
    stream: RandomStream,
    confidence: float = 0.95,
    mechanism: Gaussian | DiscreteGaussian | None = None,
) -> ReleaseAudit:
    """Release ``runs`` times on each of two neighbours that attain the sensitivity, and bound epsilon from below.

    Guarantee:
        The true epsilon at ``delta`` is at least ``bound.epsilon_lower`` with probability ``confidence`` (Section 4.2,
        Sensitivity, says which neighbours; ``attacks/distinguishing.py`` how the threshold is chosen).

    Args:
        points: public, of the release.
        reference: Pi.
        examples: N.
        plan: floor and lambda.
        epsilon: what the release claims.
        delta: likewise.
        runs: releases per population, at least 4; half of them choose the threshold.
        stream: of the noise and of the halves.
        confidence: of the lower bound.
        mechanism: noise that really is added, where it is not what the claim asks for.

    Raises:
        SfumatoError: if an argument is outside of what is allowed, or the plan has no floor.
    """
    moved = sensitivity(points, reference, examples, plan)
    noise = mechanism or calibrated_mechanism(moved.charged, epsilon, delta, discrete=False)
    before, after = moved.worst.populations(reference.cells, examples)

    def value(population: Vector) -> float:
        return evaluate(population[points.cells].astype(int), examples, points, reference, plan)

    low, high = value(before.astype(float)), value(after.astype(float))

    def sampler(population: Vector, count: int, own: RandomStream) -> Vector:
        return add_noise(value(population), noise, own, count)

    def ratio(seen: Vector) -> Vector:
        return (high - low) * (2.0 * seen - low - high) / (2.0 * noise.sigma**2)

    bound = audit_local_mechanism(
        sampler,
        before.astype(float),
        after.astype(float),
        ratio,
        runs=runs,
        delta=delta,
        stream=stream,
        confidence=confidence,
    )
    return ReleaseAudit(
        bound,
        float(epsilon),
        audit_ceiling(runs, delta, confidence),
        moved.worst,
        abs(high - low),
        noise.sigma,
        runs,
    )
