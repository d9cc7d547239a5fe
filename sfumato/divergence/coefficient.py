"""Choosing lambda from public numbers alone.

>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import draw_points
>>> from sfumato.rng import Streams
>>> reference = Reference.from_probabilities([0.5, 0.3, 0.2])
>>> points = draw_points(reference, 10, Streams(0).stream("points"))
>>> prior = uniform_prior(reference, 0.5)
>>> choice = choose_coefficient(reference, points, 1000, Floor("mix", 0.1), 1.0, 1e-5, prior)
>>> round(choice.coefficient, 2), round(choice.sampling_std, 4), round(choice.noise_std, 4)
(0.96, 0.0032, 0.0325)

Sampling alone asks for lambda* = J / chi^2, near 1 for a population near the reference. Privacy noise depends on lambda
through the signed steps of the realised points: it grows where a rarer cell gains, and shrinks where it loses. The
population is unknown, so a public prior stands for it (Section 4.2 e of docs/papers.md): a choice that looked at P
would be a release of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.accounting import calibrate_gaussian
from sfumato.accounting.numeric import minimum
from sfumato.divergence.plan import EstimatorPlan, Floor, Vector, require_number
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.divergence.sensitivity import sensitivity
from sfumato.divergence.theory import RatioMoments
from sfumato.errors import SfumatoError


@dataclass(frozen=True)
class CoefficientChoice:
    """A lambda and what is expected of it under the prior.

    Attributes:
        coefficient: lambda.
        sampling_std: standard deviation of the draw of the points, if the prior were the population.
        noise_std: of the privacy noise, which does not depend on the population.
        prior_divergence: the target under the prior, the scale on which both are to be read.
    """

    coefficient: float
    sampling_std: float
    noise_std: float
    prior_divergence: float

    @property
    def plan_note(self) -> str:
        """One line for a statement."""
        return (
            f"lambda = {self.coefficient:.4g}, chosen from public numbers: expected standard deviations {self.sampling_std:.3g} "
            f"(points) and {self.noise_std:.3g} (noise) at a divergence of {self.prior_divergence:.3g}"
        )


def uniform_prior(reference: Reference, share: float) -> Vector:
    """(1 - t) Pi + t Uniform over the cells, a public stand-in for a population that has drifted.

    Args:
        reference: Pi.
        share: t, from 0 to 1.

    Returns:
        (cells,) float64.

    Raises:
        SfumatoError: if the share is out of its range.
    """
    require_number("share of the uniform prior", share, 0.0, 1.0)
    return (1.0 - share) * reference.probabilities + share / reference.cells


def choose_coefficient(
    reference: Reference,
    points: PublicPoints,
    examples: int,
    floor: Floor,
    epsilon: float | None,
    delta: float,
    prior: ArrayLike,
    highest: float = 2.0,
) -> CoefficientChoice:
    """The lambda of [0, highest] with the least Var Phi / m + sigma^2 under a public prior.

    Var Phi is quadratic in lambda and the sensitivity of the realised points a maximum of linear functions, so the sum
    is convex.

    Guarantee:
        Data-free: no argument depends on a private example, so neither does the choice.

    Args:
        reference: Pi.
        points: the public points of the release, drawn before.
        examples: N, public.
        floor: of the release.
        epsilon: budget of the release; None for no noise, which gives lambda* of the prior.
        delta: of the budget.
        prior: (cells,) a public distribution, such as ``uniform_prior`` or last year's published one.
        highest: the largest lambda that is considered.

    Raises:
        SfumatoError: if an argument is outside of what is allowed, or the prior is no distribution over the cells.
    """
    require_number("highest coefficient", highest, 0.0, 1e3, open_low=True)
    moments = RatioMoments.of(reference, prior, floor)
    multiplier = 0.0 if epsilon is None else calibrate_gaussian(epsilon, delta)
    draws = points.draws

    def deviations(coefficient: float) -> tuple[float, float]:
        moved = sensitivity(points, reference, examples, EstimatorPlan(floor, coefficient))
        sampling = moments.variance(coefficient) / draws if draws else 0.0
        return float(np.sqrt(sampling)), multiplier * moved.charged

    def risk(coefficient: float) -> float:
        sampling, noise = deviations(coefficient)
        return sampling**2 + noise**2

    best = min((minimum(risk, 0.0, highest)[0], 0.0, highest), key=risk)
    sampling, noise = deviations(best)
    if not np.isfinite(risk(best)):
        raise SfumatoError(
            "the prior has an infinite risk for every lambda; allowed is one of finite variance."
        )
    return CoefficientChoice(best, sampling, noise, moments.expectation(best))
