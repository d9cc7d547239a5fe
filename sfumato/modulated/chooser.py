"""One-shot or iterative? A choice from public numbers alone, before any client is asked.

>>> from sfumato.modulated.plan import Domain
>>> choice = choose(ModulatedPlan(Domain(8, 1.0), rounds=20), epsilon=10.0, delta=1e-5, clients=50_000)
>>> choice.estimator, choice.informative
('one_shot', True)
>>> choose(ModulatedPlan(Domain(8, 1.0), rounds=20), epsilon=0.5, delta=1e-5, clients=500).informative
False

The prediction stands on a public guess of the data: features spread evenly (E[x x^T] = R^2 / (3 n) I, as of a uniform
law on a box in the ball) and coefficients of a given length. With it the covariances of Section 1.3 are numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.modulated.iterative import Steps
from sfumato.modulated.plan import CalibratedModulation, ModulatedPlan
from sfumato.modulated.server import matrix_noise
from sfumato.modulated.theory import DataMoments, gradient_variance

Estimator = Literal["one_shot", "iterative", "iterative_disjoint"]


@dataclass(frozen=True)
class Choice:
    """What to run and what to expect of it.

    Attributes:
        estimator: the one with the smallest predicted error.
        predicted: estimator -> predicted mean squared distance of the coefficients from the least-squares ones.
        informative: whether that is below the error of sending nothing at all (coefficients zero).
        reason: one sentence.
    """

    estimator: Estimator
    predicted: Mapping[Estimator, float]
    informative: bool
    reason: str


def choose(
    plan: ModulatedPlan,
    epsilon: float,
    delta: float,
    clients: int,
    coefficient_norm: float = 0.5,
    residual: float = 0.2,
    curvature: float | None = None,
    steps: Steps | None = None,
) -> Choice:
    """Predict the error of each estimator at the same budget and take the smallest.

    Args:
        plan: domain, modulation, calibration and the rounds that the iterative estimator would have.
        epsilon: the budget of one client over all rounds.
        delta: likewise.
        clients: K, declared.
        coefficient_norm: public guess of the length of the coefficients.
        residual: public guess of the standard deviation of the residuals.
        curvature: public guess of the eigenvalues of E[x x^T]; R^2 / (3 n) by default.
        steps: of the iterative estimator; by default the step that suits the guessed curvature, kept constant.

    Raises:
        SfumatoError: if there are fewer clients than rounds or features, or the curvature is not positive.
    """
    size = plan.domain.features
    if not is_integer(clients) or clients < max(size, plan.rounds):
        raise SfumatoError(
            f"clients is {clients!r}; allowed is an integer of at least {max(size, plan.rounds)}, the larger of features and rounds."
        )
    for name, value in (("coefficient_norm", coefficient_norm), ("residual", residual)):
        if not is_number(value) or not 0.0 <= value < math.inf:
            raise SfumatoError(f"{name} is {value!r}; allowed is a finite number of at least 0.")
    if curvature is not None and not (is_number(curvature) and 1e-100 < curvature < 1e100):
        raise SfumatoError(f"curvature is {curvature!r}; allowed is a number above 0.")
    guessed = plan.domain.radius**2 / (3.0 * size) if curvature is None else curvature
    taken = steps or Steps(1.0 / guessed)
    guess = _Guess(guessed, coefficient_norm, residual)
    once = replace(plan, rounds=1).calibrate(epsilon, delta)
    predicted: dict[Estimator, float] = {
        "one_shot": guess.one_shot(once, clients),
        "iterative": guess.iterative(
            replace(plan, regime="same_clients").calibrate(epsilon, delta), clients, plan.rounds, taken
        ),
        "iterative_disjoint": guess.iterative(once, clients // plan.rounds, plan.rounds, taken),
    }
    best = min(predicted, key=lambda name: predicted[name])
    nothing = coefficient_norm**2
    informative = predicted[best] < nothing and matrix_noise(once, clients) < guessed
    words = "below" if informative else "not below"
    reason = (
        f"{best} has the smallest predicted squared error, {predicted[best]:.3g}, which is {words} that of coefficients "
        f"zero, {nothing:.3g}; the matrix's noise is {matrix_noise(once, clients):.3g} against a curvature of {guessed:.3g}"
    )
    return Choice(best, predicted, informative, reason)


@dataclass(frozen=True)
class _Guess:
    """The public guess of the data: E[x x^T] = curvature I, |beta| and the residuals' deviation."""

    curvature: float
    coefficient_norm: float
    residual: float

    def _variance(self, calibrated: CalibratedModulation) -> float:
        """K tr Cov of the gradient at coefficients of the guessed length."""
        size = calibrated.plan.domain.features
        coefficients = np.full(size, self.coefficient_norm / math.sqrt(size))
        data = DataMoments(self.curvature * np.eye(size), self.residual**2, np.zeros(size), intercept=False)
        labels = calibrated.label_noise_std**2
        noise = (
            self.curvature * size
            + float(np.trace(calibrated.noise_covariance(np.zeros((size, 0)))))
            / calibrated.plan.modulation.scale**2
        )
        return gradient_variance(coefficients, data, calibrated) + labels * noise

    def one_shot(self, calibrated: CalibratedModulation, clients: int) -> float:
        """tr(S^-1 C S^-1) / K, at most what the ball leaves."""
        error = self._variance(calibrated) / (clients * self.curvature**2)
        if matrix_noise(calibrated, clients) >= self.curvature:
            error = max(error, self.coefficient_norm**2)
        return error

    def iterative(self, calibrated: CalibratedModulation, clients: int, rounds: int, steps: Steps) -> float:
        """The recursion of the mean squared error under projected gradient steps."""
        variance = self._variance(calibrated) / clients
        error = self.coefficient_norm**2
        for number in range(rounds):
            size = steps.at(number)
            error = (1.0 - size * self.curvature) ** 2 * error + size**2 * variance
            error = min(error, (2.0 * steps.coefficient_bound) ** 2)
        return error
