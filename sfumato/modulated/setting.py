"""What a comparison of estimators is about: its public numbers, its data, and what a grid chose.

>>> x, y = np.array([[0.5], [-0.5], [0.1]]), np.array([0.4, -0.2, 0.1])
>>> problem = Problem.of(Domain(1, 1.0), (x, y), (x, y), (x, y))
>>> round(problem.relative_error(problem.mean, (x, y)), 6)
1.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.accounting import GaussianRule
from sfumato.errors import SfumatoError
from sfumato.modulated.baselines import CalibratedLocalSgd, ordinary_least_squares, predict_the_mean
from sfumato.modulated.client import clip_samples
from sfumato.modulated.plan import CalibratedModulation, Domain, Labels, Modulation
from sfumato.modulated.server import Vector
from sfumato.modulated.sufficient_statistics import CalibratedSufficientStatistics

Values = dict[str, float | bool | str | None]
Calibrated = CalibratedModulation | CalibratedLocalSgd | CalibratedSufficientStatistics
Pair = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Setting:
    """The public numbers of a comparison.

    Attributes:
        modulation: alpha, lambda, omega, m; in the units of the domain.
        delta: of every guarantee.
        rule: how (epsilon, delta) becomes noise.
        labels: whether labels are sent in the clear.
        label_weight: of private labels.
        rounds: T of the iterative methods.
        server_steps: gradient steps after one release.
        step_sizes: eta_0 that are tried, in units of 1 / (1 + R^2), the inverse of the largest possible curvature.
        step_decay: eta_t = eta_0 / (1 + decay t).
        clip_norms: C that DP-SGD tries, in units of sqrt(1 + R^2) times the label bound, the largest gradient at zero.
        coefficient_bound: radius of the ball of all estimates.
        strength: of ridge and floor.
        confidence: of the intervals.
    """

    modulation: Modulation
    delta: float = 1e-5
    rule: GaussianRule = "exact"
    labels: Labels = "public"
    label_weight: float = 1.0
    rounds: int = 20
    server_steps: int = 100
    step_sizes: tuple[float, ...] = (1.0,)
    step_decay: float = 0.0
    clip_norms: tuple[float, ...] = (0.5,)
    coefficient_bound: float = 2.0
    strength: float = 1.0
    confidence: float = 0.95


@dataclass(frozen=True, eq=False)
class Problem:
    """A data set with its public domain; features in float64, clipped copies where an estimator needs them.

    Attributes:
        domain: the public bounds.
        train: features (K, n) and labels (K,) of the clients.
        validation: rows for choosing step sizes.
        test: rows for the reported error.
        reference: (p,) least squares without privacy on the clipped training rows.
        mean: (p,) coefficients that predict the mean.
    """

    domain: Domain
    train: Pair
    validation: Pair
    test: Pair
    reference: Vector
    mean: Vector

    @classmethod
    def of(cls, domain: Domain, train: Pair, validation: Pair, test: Pair) -> Problem:
        """The problem, with its two lines that need no privacy."""
        rows = np.asarray(train[0], np.float64)
        features, labels, _faulty = clip_samples(rows, train[1], domain)
        reference = ordinary_least_squares(features, labels)
        return cls(domain, train, validation, test, reference, predict_the_mean(train[1], domain))

    @property
    def clients(self) -> int:
        """K; declared sizes are public, and a prepared data set is held against them."""
        return len(self.train[1])

    def error(self, coefficients: Vector, rows: Pair) -> float:
        """Mean squared error of predictions kept within the label bound."""
        bound = self.domain.label_bound
        features, labels = rows
        predicted = (coefficients[0] + features @ coefficients[1:]).clip(-bound, bound)
        residual: Vector = predicted - labels
        return float(residual @ residual) / len(residual)

    def relative_error(self, coefficients: Vector, rows: Pair) -> float:
        """``error`` over that of predicting the training mean.

        Raises:
            SfumatoError: if the mean predicts every label exactly, so that there is nothing to compare with.
        """
        least = self.error(self.mean, rows)
        if not 0.0 < least < math.inf:
            raise SfumatoError(
                f"predicting the mean has error {least} on held-out rows; allowed are labels that vary and are finite."
            )
        return self.error(coefficients, rows) / least


@dataclass(frozen=True)
class Tuned:
    """What a grid chose for one method at one epsilon.

    Attributes:
        step_size: in the setting's units.
        clip_norm: likewise; None where the method clips no gradient.
        trials: how many fits chose them, 0 where there was no choice.
        table: (step size, clip norm, relative validation error, mean over repeats) of each choice.
    """

    step_size: float
    clip_norm: float | None
    trials: int
    table: tuple[tuple[float, float | None, float], ...] = ()
