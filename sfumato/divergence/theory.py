"""What theory says about the estimator when the population is known: mean, variance, best lambda, biases.

>>> reference = Reference.from_probabilities([0.5, 0.3, 0.2])
>>> population = np.array([0.3, 0.3, 0.4])
>>> moments = RatioMoments.of(reference, population, Floor("mix", 0.1))
>>> round(moments.best_coefficient, 4), round(moments.variance(0.0), 4), round(moments.least_variance, 4)
(0.8636, 0.173, 0.0038)

For planning on public data and for tests; of a private population every number here would be a release of its own. With
r of mean 1 under Pi, Var r = chi^2(P || Pi) and Cov(r, ln r) = KL(P || Pi) + KL(Pi || P) = J (Section 4.2 e of
docs/papers.md); here both are taken of the floored ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.divergence.plan import (
    EstimatorPlan,
    Floor,
    Vector,
    array_of,
    floored_ratio,
    phi,
    require_count,
    require_examples,
    require_number,
)
from sfumato.divergence.reference import Reference
from sfumato.errors import SfumatoError


@dataclass(frozen=True)
class RatioMoments:
    """First and second moments of the floored ratio r and of ln r under Pi.

    Attributes:
        mean: of r; 1 unless it is clipped.
        mean_log: of ln r, minus infinity where r can be 0.
        ratio_variance: Var r, chi^2 of the mixed population against Pi.
        log_variance: Var ln r.
        covariance: Cov(r, ln r), J.
    """

    mean: float
    mean_log: float
    ratio_variance: float
    log_variance: float
    covariance: float

    @classmethod
    def of(cls, reference: Reference, population: ArrayLike, floor: Floor | None) -> RatioMoments:
        """Of a known population.

        Args:
            reference: Pi.
            population: P over the cells, (cells,) above 0 where there is no floor.
            floor: of the plan; None for none.

        Raises:
            SfumatoError: if P is no distribution over the cells, or some ratio is 0 and there is no floor.
        """
        ratio = floored_ratio(_checked(reference, population) / reference.probabilities, floor)
        if float(ratio.min()) <= 0.0:
            raise SfumatoError(
                "a cell of the population has probability 0 without a floor; allowed is a floor."
            )
        own, log = reference.probabilities, np.log(ratio)
        mean, mean_log = float(own @ ratio), float(own @ log)
        ratio, log = ratio - mean, log - mean_log
        return cls(mean, mean_log, float(own @ ratio**2), float(own @ log**2), float(own @ (ratio * log)))

    def expectation(self, coefficient: float) -> float:
        """E Phi = lambda (E r - 1) - E ln r, the target; it does not depend on lambda where E r = 1."""
        return coefficient * (self.mean - 1.0) - self.mean_log

    def variance(self, coefficient: float) -> float:
        """Var Phi = lambda^2 Var r + Var ln r - 2 lambda Cov(r, ln r), of one point (Section 4.2 e)."""
        quadratic = coefficient**2 * self.ratio_variance - 2.0 * coefficient * self.covariance
        return max(0.0, quadratic + self.log_variance)

    @property
    def best_coefficient(self) -> float:
        """lambda* = J / chi^2, with the least sampling variance; 1, its limit, where the population is Pi."""
        return self.covariance / self.ratio_variance if self.ratio_variance > 0.0 else 1.0

    @property
    def least_variance(self) -> float:
        """Var ln r - J^2 / chi^2, the variance at lambda*."""
        return self.variance(self.best_coefficient)


def mean_square_error(
    moments: RatioMoments,
    coefficient: float,
    draws: int,
    noise_std: float = 0.0,
    batches: int = 1,
    bias: float = 0.0,
) -> float:
    """Var Phi / (m T) + sigma^2 / T + bias^2 (Section 4.2 e), about the target.

    Args:
        moments: of the population.
        coefficient: lambda.
        draws: m of each batch; 0 where every cell is a point, which has no sampling variance.
        noise_std: sigma of each batch's privacy noise.
        batches: T.
        bias: of the mean.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """
    require_count("draws", draws, 0, 2**52)
    require_count("batches", batches, 1, 2**52)
    require_number("noise_std", noise_std, 0.0, 1e150)
    sampling = moments.variance(coefficient) / (draws * batches) if draws else 0.0
    return sampling + noise_std**2 / batches + bias**2


def batch_bias(reference: Reference, population: ArrayLike, floor: Floor | None, examples: int) -> float:
    """How much a ratio from N examples, drawn from P, over-estimates the divergence of P, to first order in 1 / N.

    (1 / 2N) sum Pi (1 - P) / P without a floor (Section 4.2, Bias not in the theorem); mixed, each term is the variance
    of the mixed ratio over twice its square, (1 - gamma)^2 P (1 - P) / (2 N Pi r^2). A clipped ratio counts where it is
    inside of its bounds. It holds for every lambda, since the ratio itself has no bias.

    Args:
        reference: Pi.
        population: P over the cells, (cells,).
        floor: of the plan; None for none.
        examples: N of the batch.

    Returns:
        nats; infinite where P misses a cell and there is no floor.

    Raises:
        SfumatoError: if P is no distribution over the cells or N is too small.
    """
    require_examples(examples)
    own, probabilities = _checked(reference, population), reference.probabilities
    raw: Vector = own / probabilities
    ratio = floored_ratio(raw, floor)
    slope: Vector = np.ones_like(raw)
    if floor is not None:
        slope = (
            np.full_like(raw, 1.0 - floor.level) if floor.kind == "mix" else (ratio == raw).astype(np.float64)
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = slope**2 * own * (1.0 - own) / (probabilities * ratio**2)
    terms[(ratio == 0.0)] = np.inf
    return float(terms.sum()) / (2.0 * examples)


def floor_bias(reference: Reference, population: ArrayLike, plan: EstimatorPlan) -> float:
    """E_Pi[Phi(floored r)] - KL(Pi || P): what the floor moves the target by (Section 4.2 A and B).

    Never positive for a mixed ratio; minus infinity where P misses a cell.

    Args:
        reference: Pi.
        population: P over the cells, (cells,).
        plan: floor and lambda.

    Raises:
        SfumatoError: if P is no distribution over the cells.
    """
    ratio: Vector = _checked(reference, population) / reference.probabilities
    exact = float(reference.probabilities @ phi(ratio, 0.0))
    return float(reference.probabilities @ plan.values(ratio)) - exact


def _checked(reference: Reference, population: ArrayLike) -> Vector:
    given = array_of("probabilities of the population", population)
    numbers = given.shape == (reference.cells,) and given.dtype.kind in "fiu"
    own = given.astype(np.float64) if numbers else np.full(1, np.nan)
    if not bool(np.all(np.isfinite(own))) or float(own.min()) < 0.0:
        raise SfumatoError(
            f"the population has shape {given.shape}; allowed is a number from 0 for each of {reference.cells} cells."
        )
    if abs(float(own.sum()) - 1.0) > 1e-9:
        raise SfumatoError(f"the population sums to {float(own.sum()):.12g}; allowed is 1, to 1e-09.")
    return own
