"""AdaSSP, linear regression with a trusted curator: the line that local privacy is paid for with.

Algorithm 2 of Wang, "Revisiting differentially private linear regression: optimal and adaptive prediction & estimation
in unbounded domain" (2018): release the smallest eigenvalue of X^T X, X^T X and X^T y, each with Gaussian noise, and
solve with a ridge that is as large as the noise makes it necessary and no larger.

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> plan = SufficientStatisticsPlan(Domain(features=2, radius=1.0))
>>> round(plan.eigenvalue_sensitivity, 3), round(plan.matrix_sensitivity, 3), round(plan.vector_sensitivity, 3)
(2.0, 2.121, 2.828)
>>> features = Streams(0).stream("data").random((20_000, 2)) - 0.5
>>> labels = 0.2 + features @ np.array([0.5, -0.3])
>>> fit = ada_ssp(features, labels, plan.calibrate(epsilon=1.0, delta=1e-5), Streams(0).stream("noise"))
>>> fit.coefficients.round(2), fit.ledger.steps
(array([ 0.2 ,  0.5 , -0.29]), 3)

The curator sees all samples in the clear. So this is not comparable with the local protocols in what it asks people to
trust, only in relation and accountant: the same (epsilon, delta) is bought with less noise by a factor of about sqrt(K).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from sfumato.accounting import GaussianRule, calibrate_gaussian
from sfumato.checks import is_number
from sfumato.errors import SfumatoError
from sfumato.ledger import EventLedger
from sfumato.mechanisms import Gaussian
from sfumato.modulated.aggregate import AggregateData
from sfumato.modulated.iterative import Fit
from sfumato.modulated.plan import Domain, check_target, require_choice
from sfumato.modulated.server import NormalEquations, Stabilization, Vector, solve
from sfumato.rng import RandomStream

RELEASES = 3


@dataclass(frozen=True)
class SufficientStatisticsPlan:
    """AdaSSP before its noise is known.

    The sensitivities are for replacing one sample, features and label, by any other of the domain, while K is public.
    A row of X is a = (1, x) with |x| <= R, or x without an intercept; R is the domain's radius, B its label bound.

    Attributes:
        domain: the public bounds.
        rule: how (epsilon, delta) becomes noise.
        intercept: whether the model has one; its 1 is public, and so is K, the corner of X^T X.
        failure_probability: rho, with which the noise of X^T X may be larger than the ridge allows for.
        coefficient_bound: radius of the ball that coefficients are projected to.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    domain: Domain
    rule: GaussianRule = "exact"
    intercept: bool = True
    failure_probability: float = 0.05
    coefficient_bound: float = 3.0

    def __post_init__(self) -> None:
        """Check the fields."""
        require_choice("rule", self.rule, get_args(GaussianRule))
        if not is_number(self.failure_probability) or not 0.0 < self.failure_probability < 1.0:
            raise SfumatoError(
                f"failure_probability is {self.failure_probability!r}; allowed is a number above 0 and below 1."
            )
        Stabilization(self.coefficient_bound)  # the solver's own check

    @property
    def size(self) -> int:
        """p, the number of coefficients."""
        return self.domain.features + int(self.intercept)

    @property
    def eigenvalue_sensitivity(self) -> float:
        """Of the smallest eigenvalue of X^T X: R^2, or with an intercept 1 + R^2 from R = 1 on and 2 R below.

        By Weyl it moves by at most the larger eigenvalue of b b^T - a a^T, which is at most |b|^2. With an intercept
        it is (|b|^2 - |a|^2) / 2 + sqrt((|a|^2 + |b|^2)^2 / 4 - <a, b>^2); only from R = 1 on can a and b be
        orthogonal, and below it is largest for opposite x of norm R.
        """
        radius = self.domain.radius
        if not self.intercept:
            return radius**2
        return 1.0 + radius**2 if radius >= 1.0 else 2.0 * radius

    @property
    def matrix_sensitivity(self) -> float:
        """Of the upper triangle of X^T X as a vector, without the public corner: sqrt(2) R^2, or with an intercept more.

        |b b^T - a a^T|_F^2 = |a|^4 + |b|^4 - 2 <a, b>^2 is at most 2 R^4, and the upper triangle counts each entry
        off the diagonal once, so it is no longer. With an intercept the triangle is that of x x^T and x itself once,
        |x - z|^2 + |x x^T - z z^T|_F^2 at most, which for norms R is largest at <x, z> = -1/2, or at -R^2 where that
        is not reached: sqrt(2) (R^2 + 1/2), or 2 R below R^2 = 1/2.
        """
        radius = self.domain.radius
        if not self.intercept:
            return math.sqrt(2.0) * radius**2
        return math.sqrt(2.0) * (radius**2 + 0.5) if radius**2 >= 0.5 else 2.0 * radius

    @property
    def vector_sensitivity(self) -> float:
        """Of X^T y: 2 B sqrt(1 + R^2), or 2 B R, attained by a label that changes its sign."""
        return 2.0 * self.domain.label_bound * math.hypot(float(self.intercept), self.domain.radius)

    def calibrate(self, epsilon: float | None, delta: float) -> CalibratedSufficientStatistics:
        """The plan with the noise that makes the three releases together (epsilon, delta)-differentially private.

        Guarantee:
            Central differential privacy: whatever anybody who sees the coefficients, or the three noisy statistics,
            concludes about one client, replacing its whole sample changes its odds by at most e^epsilon, up to delta.
            It needs a curator who is trusted with all samples, and whose noise stays unknown. The three releases have
            the same noise multiplier, so equal shares of the budget, and compose exactly.

        Args:
            epsilon: the budget; None for no noise and no guarantee.
            delta: above 0 and below 1.

        Raises:
            AccountingError: if epsilon or delta is outside of what can be priced.
        """
        check_target(epsilon, delta)
        if epsilon is None:
            return CalibratedSufficientStatistics(self, None, delta, 0.0)
        multiplier = calibrate_gaussian(epsilon, delta, self.rule, RELEASES)
        return CalibratedSufficientStatistics(self, float(epsilon), delta, multiplier)


@dataclass(frozen=True)
class CalibratedSufficientStatistics:
    """A plan and the noise that meets its budget.

    Attributes:
        plan: what was calibrated.
        epsilon: the target; None without privacy.
        delta: of the target.
        noise_multiplier: sigma of each release over its sensitivity.
    """

    plan: SufficientStatisticsPlan
    epsilon: float | None
    delta: float
    noise_multiplier: float

    @property
    def mechanisms(self) -> tuple[Gaussian, Gaussian, Gaussian]:
        """Of the smallest eigenvalue, X^T X and X^T y, in the order in which they are released."""
        plan = self.plan
        return (
            Gaussian(plan.eigenvalue_sensitivity, self.noise_multiplier, "replace_one"),
            Gaussian(plan.matrix_sensitivity, self.noise_multiplier, "replace_one"),
            Gaussian(plan.vector_sensitivity, self.noise_multiplier, "replace_one"),
        )

    @property
    def events(self) -> list[DpEvent]:
        """The intended releases; accounting prices the recorded ones."""
        return [mechanism.event for mechanism in self.mechanisms]


@dataclass(frozen=True, eq=False)
class NoisyStatistics:
    """All that the curator lets out.

    Attributes:
        clients: K, public.
        smallest_eigenvalue: of X^T X, noisy.
        matrix: (p, p), noisy X^T X, symmetric; can be indefinite.
        vector: (p,), noisy X^T y.
    """

    clients: int
    smallest_eigenvalue: float
    matrix: Vector
    vector: Vector


def release(
    gram: Vector,
    clients: int,
    calibrated: CalibratedSufficientStatistics,
    stream: RandomStream,
    ledger: EventLedger,
) -> NoisyStatistics:
    """The three Gaussian releases, each recorded before its noise is drawn.

    The noise of X^T X is independent on and above the diagonal and mirrored below, and none is on the public corner:
    what is released is the upper triangle, and the rest is post-processing.

    Guarantee: as ``SufficientStatisticsPlan.calibrate`` promises, for clipped samples and a fresh stream.

    Args:
        gram: (2 + n, 2 + n), W^T W of W = [1, y, X] of the clipped samples, as ``AggregateData`` has it.
        clients: K.
        calibrated: the public plan.
        stream: the curator's noise.
        ledger: where the events go.
    """
    kept = np.array([*([0] if calibrated.plan.intercept else []), *range(2, len(gram))])
    matrix, vector = gram[np.ix_(kept, kept)], gram[kept, 1]
    of_eigenvalue, of_matrix, of_vector = calibrated.mechanisms
    ledger.record(of_eigenvalue.event)
    smallest = float(np.linalg.eigvalsh(matrix)[0]) + of_eigenvalue.sigma * float(
        stream.standard_normal(1)[0]
    )
    ledger.record(of_matrix.event)
    upper = np.triu(stream.standard_normal(matrix.shape))
    if calibrated.plan.intercept:
        upper[0, 0] = 0.0
    noise = upper + np.triu(upper, 1).T
    ledger.record(of_vector.event)
    noisy = vector + of_vector.sigma * stream.standard_normal(len(vector))
    return NoisyStatistics(clients, smallest, matrix + of_matrix.sigma * noise, noisy)


def ridge(released: NoisyStatistics, calibrated: CalibratedSufficientStatistics) -> float:
    """max(0, sigma_2 sqrt(p log(2 p^2 / rho)) - lower), from public numbers and the released eigenvalue alone.

    lower = max(0, eigenvalue - sqrt(log(6 / delta)) sigma_1) is likely below the true smallest eigenvalue, and the first
    term is likely above the operator norm of the noise of X^T X (steps 2 and 3 of Algorithm 2, with sigma_1 and sigma_2
    in place of the paper's simpler calibration).

    Args:
        released: the noisy statistics.
        calibrated: the public plan.
    """
    of_eigenvalue, of_matrix, _ = calibrated.mechanisms
    margin = math.sqrt(math.log(6.0 / calibrated.delta)) * of_eigenvalue.sigma
    lower = max(0.0, released.smallest_eigenvalue - margin)
    size, failure = calibrated.plan.size, calibrated.plan.failure_probability
    return max(0.0, of_matrix.sigma * math.sqrt(size * math.log(2.0 * size**2 / failure)) - lower)


def ada_ssp(
    features: NDArray[Any],
    labels: NDArray[Any],
    calibrated: CalibratedSufficientStatistics,
    stream: RandomStream,
) -> Fit:
    """(X^T X + ridge I)^-1 X^T y of the noisy statistics, in the ball (Algorithm 2 of Wang 2018).

    Guarantee: as ``SufficientStatisticsPlan.calibrate`` promises. The ball, the ridge and the solution are functions of
    public numbers and of what was released.

    Args:
        features: (K, n) float32 or float64; clipped here. Not changed.
        labels: (K,).
        calibrated: the public plan.
        stream: the curator's noise.

    Returns:
        the fit; its ledger holds the three releases, which every client takes part in.

    Raises:
        SfumatoError: if the shapes do not fit the domain or there is no client.
    """
    plan = calibrated.plan
    data = AggregateData.of(features, labels, plan.domain)
    clients = len(labels)
    if not clients:
        raise SfumatoError("there are no clients; allowed is at least one.")
    fit = Fit(np.zeros(plan.size), EventLedger(), 1, data.faulty)
    released = release(data.gram, clients, calibrated, stream, fit.ledger)
    matrix = released.matrix + ridge(released, calibrated) * np.eye(plan.size)
    equations = NormalEquations(matrix / clients, released.vector / clients, clients, plan.intercept)
    fit.coefficients = solve(equations, Stabilization(plan.coefficient_bound))
    fit.path.append(fit.coefficients)
    return fit
