"""What all parties of the protocol derive from public messages alone: points, plan, setting, and the estimate's interval.

>>> from sfumato.divergence.reference import all_points
>>> reference = Reference.from_probabilities([0.5, 0.3, 0.2])
>>> reference_digest(reference).hex()[:8]
'f5b9f09f'
>>> plan = EstimatorPlan(Floor("mix", 0.1))
>>> found = estimate_from_value(0.09, 400, all_points(reference), reference, plan, 1.0, 1e-5, 0.95, False)
>>> found.raw, round(found.low, 3), found.high < 1.5
(0.09, 0.0, True)
"""

from __future__ import annotations

import hashlib
from typing import get_args

import numpy as np

from sfumato.divergence.estimator import Estimate, calibrated_mechanism, describe_target
from sfumato.divergence.intervals import (
    Tail,
    clipped_value,
    fixed_interval,
    inverted_interval,
    normal_quantile_of,
    target_range,
    value_reach,
    variance_bound,
)
from sfumato.divergence.messages import Admission, Announcement
from sfumato.divergence.plan import EstimatorPlan, Floor, require_choice
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.divergence.sensitivity import sensitivity
from sfumato.errors import SfumatoError
from sfumato.mechanisms import DiscreteGaussian
from sfumato.secure_aggregation import Setting


def reference_digest(reference: Reference) -> bytes:
    """32 bytes that tell one public reference from any other: SHA-256 of its cells and probabilities."""
    content = hashlib.sha256()
    for part in (reference.cell_of.astype("<i4"), reference.probabilities.astype("<f8")):
        content.update(len(part).to_bytes(8, "little") + part.tobytes())
    return content.digest()


def plan_of(announced: Announcement) -> EstimatorPlan:
    """Floor and lambda as announced.

    Raises:
        SfumatoError: if they are outside of what is allowed.
    """
    return EstimatorPlan(Floor(announced.floor, announced.level, announced.ceiling), announced.coefficient)


def points_of(announced: Announcement, reference: Reference) -> PublicPoints:
    """The announced points, on the reference that all parties hold.

    Raises:
        SfumatoError: if the announcement was made on another reference, or a point is no cell of it.
    """
    if announced.digest != reference_digest(reference):
        raise SfumatoError(
            "an announcement is about another reference; allowed is the public one that was agreed upon."
        )
    if int(announced.cells[-1]) >= reference.cells:
        raise SfumatoError(
            f"an announcement asks for the cell {int(announced.cells[-1])}; allowed are 0 to {reference.cells - 1}."
        )
    if announced.draws:
        weights = announced.multiplicities / announced.draws
    else:
        weights = np.asarray(reference.probabilities[announced.cells])
    return PublicPoints(announced.cells, weights, announced.draws)


def setting_of(admitted: Admission, length: int) -> Setting:
    """What the secure aggregation of so many counts was set to.

    Raises:
        SfumatoError: if the fields do not agree.
    """
    return Setting(
        admitted.clients,
        length,
        admitted.degree,
        admitted.threshold,
        admitted.modulus_bits,
        admitted.survivors,
    )


def estimate_from_value(
    value: float,
    examples: int,
    points: PublicPoints,
    reference: Reference,
    plan: EstimatorPlan,
    epsilon: float,
    delta: float,
    confidence: float,
    discrete: bool,
    tail: Tail = "normal",
) -> Estimate:
    """What ``sfumato.divergence.estimator.release`` returns, rebuilt from its noisy value by who sees only that.

    Args:
        value: the noisy value.
        examples: N.
        points: the public points.
        reference: Pi.
        plan: floor and lambda.
        epsilon: of the release.
        delta: likewise.
        confidence: of the interval.
        discrete: whether the noise is discrete.
        tail: as for ``release``.

    Raises:
        SfumatoError: if an argument is outside of what is allowed.
    """
    require_choice("tail", tail, get_args(Tail))
    moved = sensitivity(points, reference, examples, plan)
    mechanism = calibrated_mechanism(moved.charged, epsilon, delta, discrete)
    rounding = mechanism.granularity / 2.0 if isinstance(mechanism, DiscreteGaussian) else 0.0
    targets, drawn = target_range(plan, reference.smallest), points.draws > 0
    spread = 0.0
    if drawn:
        bound = variance_bound(plan, reference.smallest)
        spread = float(np.sqrt(bound.at(targets.clip(value)) / points.draws))
        reach = value_reach(plan, reference.smallest) if tail == "guaranteed" else None
        found = inverted_interval(
            value, mechanism.sigma, points.draws, bound, targets, confidence, rounding, reach
        )
    else:
        found = fixed_interval(value, normal_quantile_of(confidence) * mechanism.sigma + rounding, targets)
    return Estimate(
        raw=value,
        clipped=clipped_value(value, plan, reference.smallest),
        low=found.low,
        high=found.high,
        confidence=confidence,
        noise_std=mechanism.sigma,
        sampling_std=spread,
        sampling="public_bound" if drawn else "none",
        epsilon=float(epsilon),
        delta=float(delta),
        sensitivity=moved,
        events=(mechanism.event,),
        target=describe_target(reference, plan, 1),
        examples=int(examples),
        draws=points.draws,
    )
