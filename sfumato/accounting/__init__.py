"""Events to (epsilon, delta): PLD reported, RDP and PRV beside, zCDP and the exact Gaussian, calibration.

``pld`` is an upper bound by composed privacy loss distributions; events are composed, epsilons never added.

>>> from sfumato.mechanisms import subsampled_gaussian
>>> round(epsilon([subsampled_gaussian(0.125, 1.0, 24)], delta=1e-5), 2)
4.68
"""

from sfumato.accounting.calibration import calibrate, calibrate_subsampled, calibrate_two_phases
from sfumato.accounting.events import Release, Spent, spent
from sfumato.accounting.gaussian import (
    GaussianRule,
    calibrate_gaussian,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    zcdp_epsilon,
)
from sfumato.accounting.pricing import (
    ACCOUNTANTS,
    Accountant,
    Events,
    Price,
    delta_at,
    epsilon,
    price,
    privacy_curve,
)
from sfumato.accounting.shuffling import (
    ShuffleBound,
    ShuffledGaussian,
    calibrate_shuffled_gaussian,
    shuffled_epsilon,
)

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Events",
    "GaussianRule",
    "Price",
    "Release",
    "ShuffleBound",
    "ShuffledGaussian",
    "Spent",
    "calibrate",
    "calibrate_gaussian",
    "calibrate_shuffled_gaussian",
    "calibrate_subsampled",
    "calibrate_two_phases",
    "delta_at",
    "epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "gaussian_mu",
    "price",
    "privacy_curve",
    "shuffled_epsilon",
    "spent",
    "zcdp_epsilon",
]
