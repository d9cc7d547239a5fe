"""Opacus's privacy-random-variable accountant as an independent cross-check, with its own error bound.

>>> prv_epsilon((Release(1.0, 2.0, 3),), 1e-5, guess=4.7).reason
'PRV as in Opacus needs a sampling rate below 1.'
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from sfumato.accounting.events import Release

MAX_POINTS = 2**23


@dataclass(frozen=True)
class PrvCost:
    """epsilon by PRV with its error bound, or None and the reason why there is none."""

    epsilon: float | None
    error: float | None
    reason: str | None


def _missing(reason: str) -> PrvCost:
    return PrvCost(None, None, reason)


def prv_epsilon(releases: tuple[Release, ...], delta: float, guess: float) -> PrvCost:
    """Epsilon at delta by numerical composition of privacy random variables (Gopi, Lee and Wutschitz 2021).

    Opacus's implementation covers one direction, removal, which is the larger one for these mechanisms.

    Args:
        releases: canonical releases, priced for add-or-remove-one.
        delta: target delta.
        guess: about epsilon; the requested error is 1 % of it, at most 0.01.

    Returns:
        the estimate, and half the distance between PRV's own lower and upper bound.
    """
    if not releases:
        return PrvCost(0.0, 0.0, None)
    if any(release.sampling_rate == 1.0 for release in releases):
        return _missing("PRV as in Opacus needs a sampling rate below 1.")
    if delta < 1e-10:
        return _missing(f"PRV's rounding errors dominate at delta = {delta:g}; allowed is at least 1e-10.")
    from opacus.accountants.analysis import prv as untyped_prv

    prv = cast(Any, untyped_prv)
    eps_error, delta_error = min(0.01, max(0.01 * guess, 1e-6)), delta / 1000.0
    counts = [release.count for release in releases]
    variables = [
        prv.PoissonSubsampledGaussianPRV(release.sampling_rate, release.noise_multiplier)
        for release in releases
    ]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            reach = float(
                prv.compute_safe_domain_size(
                    prvs=variables, max_self_compositions=counts, eps_error=eps_error, delta_error=delta_error
                )
            )
            mesh = eps_error / math.sqrt(sum(counts) * math.log(12.0 / delta_error) / 2.0)
            if not 2.0 * reach / mesh < MAX_POINTS:
                return _missing(f"PRV needs more than {MAX_POINTS} grid points here.")
            domain = prv.Domain.create_aligned(-reach, reach, mesh)
            grids = [
                prv.discretize(
                    prv.TruncatedPrivacyRandomVariable(variable, domain.t_min, domain.t_max), domain
                )
                for variable in variables
            ]
            composed = prv.compose_heterogeneous(dprvs=grids, num_self_compositions=counts)
            low, middle, high = (float(v) for v in composed.compute_epsilon(delta, delta_error, eps_error))
    except (ValueError, RuntimeError, ArithmeticError, IndexError) as error:
        return _missing(f"PRV failed: {str(error).rstrip('.') or type(error).__name__}.")
    if not all(math.isfinite(value) for value in (low, middle, high)):
        return _missing("PRV gave no finite epsilon.")
    return PrvCost(max(0.0, middle), (high - low) / 2.0, None)
