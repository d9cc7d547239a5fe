"""The estimate without privacy, the numbers that it aims at, and these in words.

>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import all_points
>>> reference, plan = Reference.from_probabilities([0.5, 0.3, 0.2]), EstimatorPlan(Floor("mix", 0.1), 0.0)
>>> population = np.array([0.3, 0.3, 0.4])
>>> round(evaluate([3000, 3000, 4000], 10_000, all_points(reference), reference, plan), 4)
0.0948
>>> round(target_divergence(reference, population, plan), 4), round(exact_divergence(reference, population), 4)
(0.0948, 0.1168)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.divergence.plan import EstimatorPlan, Vector, array_of, require_examples
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.errors import SfumatoError


def ratios(counts: ArrayLike, examples: int, points: PublicPoints, reference: Reference) -> Vector:
    """Ratios r = c / (N Pi) at the points, (k,) float64.

    Where every cell is a point the counts have to sum to N: an N above that, such as one false declaration makes, would
    lower the noise for everybody. At drawn points less is seen, and their counts sum to N at most.

    Raises:
        SfumatoError: if the counts do not fit the points or N; the sentence names no count.
    """
    require_examples(examples)
    points.check_within(reference)
    own = array_of("counts", counts)
    if own.shape != (points.count,) or own.dtype.kind not in "iu":
        raise SfumatoError(
            f"counts are {own.dtype} of shape {own.shape}; allowed is one integer for each of {points.count} points."
        )
    if int(own.min()) < 0 or int(own.max()) > examples or not _sum_fits(own, examples, points.draws == 0):
        raise SfumatoError(
            f"counts are no counts of {examples} examples; allowed are numbers from 0 with "
            f"{'at most that sum' if points.draws else 'that sum, as every cell is counted'}."
        )
    return own / (examples * reference.probabilities[points.cells])


def _sum_fits(counts: NDArray[Any], examples: int, whole: bool) -> bool:
    """Whether counts of at most N each sum to N, or to no more of it."""
    if float(counts.sum(dtype=np.float64)) > 2.0 * examples:  # first, since an integer sum could wrap around
        return False
    total = int(counts.sum(dtype=np.int64))
    return total == examples if whole else total <= examples


def evaluate(
    counts: ArrayLike, examples: int, points: PublicPoints, reference: Reference, plan: EstimatorPlan
) -> float:
    """The estimate without privacy: the weighted mean of Phi over the points (Section 4.1).

    Args:
        counts: (k,) integers, how often the population shows each point.
        examples: N, at least 2.
        points: where it was counted.
        reference: Pi.
        plan: floor and lambda.

    Returns:
        nats; infinite where a point has no example and there is no floor.

    Raises:
        SfumatoError: if the counts do not fit the points or N.
    """
    return float(points.weights @ plan.values(ratios(counts, examples, points, reference)))


def exact_divergence(reference: Reference, probabilities: ArrayLike) -> float:
    """KL(Pi || P) in nats, infinite where P misses a cell: what the estimators aim at.

    Args:
        reference: Pi.
        probabilities: P over the cells, (cells,).

    Raises:
        SfumatoError: if there is not one number from 0 for each cell.
    """
    return target_divergence(reference, probabilities, EstimatorPlan(None, 0.0))


def target_divergence(reference: Reference, probabilities: ArrayLike, plan: EstimatorPlan) -> float:
    """E_Pi Phi of the floored ratio: what the pooled estimate is unbiased for (Section 4.2 B).

    Mixed, it is KL(Pi || (1 - gamma) P + gamma Pi) for every lambda, at most min(-ln gamma, (1 - gamma) KL(Pi || P)).

    Args:
        reference: Pi.
        probabilities: P over the cells, (cells,).
        plan: floor and lambda.

    Raises:
        SfumatoError: if there is not one number from 0 for each cell.
    """
    own = array_of("probabilities of the population", probabilities)
    numbers = own.shape == (reference.cells,) and own.dtype.kind in "fiu"
    if not numbers or not bool(np.all(np.isfinite(own))) or float(own.min()) < 0.0:
        raise SfumatoError(
            f"probabilities of the population have shape {own.shape}; allowed is a number from 0 for each of "
            f"{reference.cells} cells."
        )
    return float(reference.probabilities @ plan.values(own.astype(np.float64) / reference.probabilities))


def describe_target(reference: Reference, plan: EstimatorPlan, batches: int = 1) -> str:
    """What an estimate's interval covers, in words, for statements.

    Args:
        reference: Pi.
        plan: with a floor.
        batches: how many estimates are averaged.

    Raises:
        SfumatoError: if there is no floor.
    """
    floor = plan.required_floor
    if floor.kind == "mix":
        what = f"KL(Pi || (1 - gamma) P + gamma Pi) with gamma = {floor.level:g}, which is below KL(Pi || P)"
    else:
        high = "" if floor.ceiling is None else f" and at most {floor.ceiling:g}"
        what = f"the mean of Phi over Pi with the ratio clipped to at least {floor.level:g}{high}"
    if reference.merged:
        what += f"; {reference.merged} rare codes count as one cell, which lowers the divergence further"
    if batches > 1:
        what = f"the mean over {batches} batches, P being each batch's own distribution, of {what}"
    return what
