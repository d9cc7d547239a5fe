"""The paper's iterative estimator: a fresh release per round, a projected gradient step at the server.

>>> list(group_slices(10, 3))
[slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.errors import SfumatoError
from sfumato.ledger import EventLedger
from sfumato.modulated.client import messages, orthonormal_directions
from sfumato.modulated.plan import CalibratedModulation
from sfumato.modulated.server import Moments, NormalEquations, Vector, collect, estimate, project
from sfumato.rng import Streams


@dataclass(frozen=True)
class Steps:
    """The server's step sizes.

    Attributes:
        size: eta_0.
        decay: eta_t = eta_0 / (1 + decay t).
        coefficient_bound: radius of the ball that each step is projected to.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    size: float
    decay: float = 0.0
    coefficient_bound: float = 3.0

    def __post_init__(self) -> None:
        """Check the fields."""
        limits = {
            "size": (self.size, False),
            "decay": (self.decay, True),
            "coefficient_bound": (self.coefficient_bound, False),
        }
        for name, (value, zero) in limits.items():
            if not is_number(value) or not 0.0 <= value < math.inf or (value == 0.0 and not zero):
                raise SfumatoError(
                    f"{name} is {value!r}; allowed is a finite number {'of at least' if zero else 'above'} 0."
                )

    def at(self, step: int) -> float:
        """eta_t of step t = 0, 1, ..."""
        return self.size / (1.0 + self.decay * step)


@dataclass(eq=False)
class Fit:
    """An estimate and what it spent.

    Attributes:
        coefficients: (p,), the intercept first where there is one.
        ledger: the releases of one client, recorded as they happened.
        rounds: how many rounds the server asked for.
        faulty: samples that were not finite, counted once per message; for simulations.
        path: the coefficients after each round.
    """

    coefficients: Vector
    ledger: EventLedger
    rounds: int
    faulty: int
    path: list[Vector] = field(default_factory=list[Vector])


Release = Callable[[slice, Vector, int], Moments]
"""(which clients, directions, round) -> the moments of their messages."""


def release_of(
    features: NDArray[Any], labels: NDArray[Any], calibrated: CalibratedModulation, streams: Streams
) -> Release:
    """The release by real messages: every client runs the client's code, the server adds up what arrives."""

    def release(clients: slice, directions: Vector, round_number: int) -> Moments:
        sent = messages(features[clients], labels[clients], calibrated, directions, streams, round_number)
        return collect(sent)

    return release


def group_slices(clients: int, groups: int) -> Iterator[slice]:
    """Disjoint groups of consecutive clients that differ in size by at most one.

    Raises:
        SfumatoError: if there are more groups than clients.
    """
    if groups > clients:
        raise SfumatoError(
            f"rounds is {groups} with disjoint groups of {clients} clients; allowed is at most one round per client."
        )
    ends = [clients * number // groups for number in range(groups + 1)]
    yield from (slice(first, last) for first, last in pairwise(ends))


def one_release(
    clients: int, calibrated: CalibratedModulation, streams: Streams, release: Release
) -> tuple[NormalEquations, Vector, Fit]:
    """The normal equations of a single release, its directions, and a fit without coefficients yet.

    Args:
        clients: K.
        calibrated: a plan of one release.
        streams: for the directions.
        release: makes the moments.
    """
    plan = calibrated.plan
    size = plan.domain.features
    stream = streams.stream("directions", 0)
    directions = orthonormal_directions(np.zeros(size), _count(calibrated), stream)
    fit = Fit(np.zeros(size + int(plan.intercept)), EventLedger(), 1, 0)
    fit.ledger.record(calibrated.release_event)
    moments = release(slice(0, clients), directions, 0)
    fit.faulty = moments.faulty
    return estimate(moments, calibrated, directions), directions, fit


def iterate(
    clients: int, calibrated: CalibratedModulation, steps: Steps, streams: Streams, release: Release
) -> Fit:
    """Projected stochastic gradient descent with a fresh release per round (Section 1.2).

    Each round's directions are orthogonal to the current coefficients, so that the modulation drops out of the
    gradient's quadratic term. With the same clients every round their releases compose; with disjoint groups each
    client is asked once, and the ledger, which is one client's, holds one event.

    Args:
        clients: K.
        calibrated: the plan, with its rounds and regime.
        steps: the server's step sizes and ball.
        streams: for the directions; public randomness.
        release: makes the moments of a round.
    """
    plan = calibrated.plan
    first = int(plan.intercept)
    fit = Fit(np.zeros(plan.domain.features + first), EventLedger(), plan.rounds, 0)
    disjoint = plan.regime == "disjoint_groups"
    groups = list(group_slices(clients, plan.rounds)) if disjoint else [slice(0, clients)] * plan.rounds
    for number, group in enumerate(groups):
        directions = orthonormal_directions(
            fit.coefficients[first:], _count(calibrated), streams.stream("directions", number)
        )
        if number == 0 or not disjoint:
            fit.ledger.record(calibrated.release_event)
        moments = release(group, directions, number)
        equations = estimate(moments, calibrated, directions)
        step = steps.at(number) * equations.gradient(fit.coefficients)
        fit.coefficients = project(fit.coefficients - step, steps.coefficient_bound)
        fit.faulty += moments.faulty
        fit.path.append(fit.coefficients)
    return fit


def _count(calibrated: CalibratedModulation) -> int:
    """Directions that are drawn; none where the amplitude is zero, since nothing would be added along them."""
    modulation = calibrated.plan.modulation
    return modulation.directions if modulation.amplitude > 0 else 0
