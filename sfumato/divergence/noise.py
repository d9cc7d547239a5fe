"""Noise on one released number, and the share of a budget that it spends.

>>> simulated, released = (calibrated_mechanism(0.01, 1.0, 1e-5, discrete=kind) for kind in (False, True))
>>> round(simulated.sigma, 4), round(released.sigma, 4)
(0.0373, 0.0405)
"""

from __future__ import annotations

import math

import numpy as np

from sfumato.accounting import calibrate_gaussian
from sfumato.divergence.plan import Vector
from sfumato.mechanisms import DiscreteGaussian, Gaussian
from sfumato.rng import RandomStream

_GRID_STEPS = 1024.0
"""Steps of the grid of discrete noise within one sensitivity: rounding then costs a thousandth of the budget."""


def calibrated_mechanism(
    sensitivity: float, epsilon: float, delta: float, discrete: bool, share: float = 1.0
) -> Gaussian | DiscreteGaussian:
    """The noise of one number that spends a share of (epsilon, delta).

    Shares are of mu^2 = (sensitivity / sigma)^2, so shares that sum to 1 compose to exactly the budget.

    Guarantee:
        A number that two neighbours have at most ``sensitivity`` apart is (epsilon, delta)-differentially private with
        this noise at share 1: the continuous one by the exact curve of the Gaussian mechanism, the discrete one by
        zCDP with the optimal conversion, rounding to the grid included.

    Args:
        sensitivity: above 0.
        epsilon: above 0.
        delta: above 0 and below 1.
        discrete: noise on a grid from the operating system's entropy, for release mode.
        share: above 0 and up to 1.

    Raises:
        SfumatoError: if an argument is outside of what is allowed.
    """
    multiplier = calibrate_gaussian(epsilon, delta, "zcdp" if discrete else "exact") / math.sqrt(share)
    if not discrete:
        return Gaussian(sensitivity, multiplier, "replace_one")
    step = 1.0 / _GRID_STEPS
    return DiscreteGaussian(sensitivity, multiplier * (1.0 + step) * (1.0 + 1e-9), step * sensitivity, 1)


def add_noise(
    value: float, mechanism: Gaussian | DiscreteGaussian, stream: RandomStream, count: int = 1
) -> Vector:
    """(count,) independent noisy copies of one number; a release takes one of them, an audit many.

    Args:
        value: the number.
        mechanism: its noise.
        stream: where continuous noise comes from; discrete noise is the operating system's.
        count: how many.
    """
    if isinstance(mechanism, Gaussian):
        return value + mechanism.sigma * stream.standard_normal(count)
    return np.concatenate([mechanism.sample(np.array([value])) for _ in range(count)])
