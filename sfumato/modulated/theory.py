"""What theory says about the estimators: variance of the gradient, covariance of the one-shot solution, intervals.

>>> import numpy as np
>>> noise = MessageNoise(omega=4.0 * np.eye(2), directions=np.zeros((2, 0)), amplitude=0.0, scale=1.0)
>>> data = DataMoments(np.eye(2) / 4, residual_square=0.01, residual_cross=np.zeros(2), intercept=False)
>>> gradient_covariance(np.array([0.5, 0.0]), data, noise).round(3).tolist()
[[8.29, 0.0], [0.0, 4.29]]

A message is g = s x + eta with s = 1 - alpha and eta = a sum_k cos(U_k) v_k + sigma z, E[eta eta^T] = Omega. With
r = <x, beta> - y and eta_b = <eta, beta> the gradient estimate of Section 1.2 of docs/papers.md has the error

    mean over clients of  r eta / s + x eta_b / s + (eta eta_b - Omega beta) / s^2,

with the intercept's coordinate of eta being 0. All formulas follow from its covariance; the arcsine law of the cosine
enters by its fourth cumulant, -3/8 a^4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.errors import SfumatoError
from sfumato.modulated.plan import CalibratedModulation
from sfumato.modulated.server import NormalEquations, Vector, singular_below

_ARCSINE_FOURTH_CUMULANT = -3.0 / 8.0


@dataclass(frozen=True, eq=False)
class MessageNoise:
    """The law of a message's noise, as far as second and fourth moments tell it.

    Attributes:
        omega: (p, p) covariance; rows and columns of a public intercept are zeros.
        directions: V, (p, m), with a zero row for the intercept.
        amplitude: a, per direction.
        scale: s = 1 - alpha.
        label_variance: variance of a received label around the client's; 0 with public labels.
    """

    omega: Vector
    directions: Vector
    amplitude: float
    scale: float
    label_variance: float = 0.0

    @classmethod
    def of(cls, calibrated: CalibratedModulation, directions: Vector) -> MessageNoise:
        """The noise of a calibrated plan with these directions, (n, m)."""
        first = int(calibrated.plan.intercept)
        size = calibrated.plan.domain.features + first
        omega = np.zeros((size, size))
        omega[first:, first:] = calibrated.noise_covariance(directions)
        wide = np.zeros((size, directions.shape[1]))
        wide[first:] = directions
        modulation = calibrated.plan.modulation
        return cls(
            omega, wide, modulation.direction_amplitude, modulation.scale, calibrated.label_noise_std**2
        )


@dataclass(frozen=True, eq=False)
class DataMoments:
    """What the covariance needs to know about the samples, at some coefficients beta.

    Attributes:
        second: (p, p) mean of x x^T.
        residual_square: mean of r^2.
        residual_cross: (p,) mean of r x.
        intercept: whether the first coordinate of x is the public 1.
    """

    second: Vector
    residual_square: float
    residual_cross: Vector
    intercept: bool

    @classmethod
    def of_samples(
        cls, features: Vector, labels: Vector, coefficients: Vector, intercept: bool
    ) -> DataMoments:
        """Of known samples; for tests and for planning on public data.

        Args:
            features: (K, n), clipped.
            labels: (K,), clipped.
            coefficients: (p,) beta.
            intercept: whether a 1 goes before the features.
        """
        x = np.column_stack([np.ones(len(labels)), features]) if intercept else features
        residual = x @ coefficients - labels
        return cls(x.T @ x / len(x), float(np.mean(residual**2)), residual @ x / len(x), intercept)

    @classmethod
    def of_equations(cls, equations: NormalEquations, coefficients: Vector) -> DataMoments:
        """As the messages tell them: post-processing, which costs no privacy.

        Noise can make the matrix indefinite or the mean of r^2 negative; what is returned is the nearest that a
        sample could have.
        """
        values, vectors = np.linalg.eigh(equations.matrix)
        second = (vectors * np.maximum(values, 0.0)) @ vectors.T
        cross = equations.gradient(coefficients)
        square = equations.label_square + float(
            coefficients @ (equations.matrix @ coefficients - 2.0 * equations.vector)
        )
        return cls(second, max(0.0, square), cross, equations.intercept)


def gradient_covariance(coefficients: Vector, data: DataMoments, noise: MessageNoise) -> Vector:
    """K Cov(G) given the samples, (p, p), for any directions (Section 1.3).

    Args:
        coefficients: (p,) where the gradient is taken.
        data: the samples' moments there.
        noise: of the messages.
    """
    omega, scale = noise.omega, noise.scale
    along = omega @ coefficients
    energy = float(coefficients @ along)
    mixed = np.outer(along, data.residual_cross)
    linear = data.residual_square * omega + energy * data.second + mixed + mixed.T
    quartic = _ARCSINE_FOURTH_CUMULANT * noise.amplitude**4 * (noise.directions.T @ coefficients) ** 2
    quadratic = energy * omega + np.outer(along, along) + (noise.directions * quartic) @ noise.directions.T
    labels = noise.label_variance * (data.second + omega / scale**2)
    return linear / scale**2 + quadratic / scale**4 + labels


def gradient_variance(coefficients: Vector, data: DataMoments, calibrated: CalibratedModulation) -> float:
    """K tr Cov(G) over the features, for directions orthogonal to them, as Section 1.3 writes it out.

    [mean r^2 (n sigma^2 + lambda^2/2) + sigma^2 |beta|^2 mean|x|^2 + 2 sigma^2 mean(r <x, beta>)] / s^2
    + sigma^2 |beta|^2 [(n + 1) sigma^2 + lambda^2 / 2] / s^4, without intercept and with public labels.

    Args:
        coefficients: (n,) where the gradient is taken.
        data: the samples' moments there, without an intercept.
        calibrated: the protocol.
    """
    size, modulation = len(coefficients), calibrated.plan.modulation
    sigma2, energy = calibrated.noise_std**2, modulation.amplitude**2 / 2.0
    norm2 = float(coefficients @ coefficients)
    first = data.residual_square * (size * sigma2 + energy) + sigma2 * norm2 * float(np.trace(data.second))
    first += 2.0 * sigma2 * float(data.residual_cross @ coefficients)
    second = sigma2 * norm2 * ((size + 1) * sigma2 + energy)
    return first / modulation.scale**2 + second / modulation.scale**4


@dataclass(frozen=True, eq=False)
class Interval:
    """Coefficients with their intervals.

    Attributes:
        coefficients: (p,) the closed-form solution.
        standard_errors: (p,) of the privacy noise, and of sampling where the population is the target.
        half_widths: (p,) of the two-sided interval; infinite where the noise leaves no information.
        confidence: per coefficient.
    """

    coefficients: Vector
    standard_errors: Vector
    half_widths: Vector
    confidence: float


def one_shot_covariance(
    second: Vector, coefficients: Vector, data: DataMoments, noise: MessageNoise, population: bool = False
) -> Vector:
    """K Cov of the one-shot solution to first order, S^-1 C S^-1 (Section 1.3 c).

    Args:
        second: S, (p, p), the matrix that is inverted.
        coefficients: (p,) beta*.
        data: the samples' moments at beta*.
        noise: of the messages.
        population: whether the target is the population's beta instead of these clients' least-squares solution;
            the sampling term then is mean(r^2) S, which assumes residuals of equal variance, since fourth moments
            of the data cannot be read off the messages.
    """
    inverse = np.linalg.pinv(second, hermitian=True)
    middle = gradient_covariance(coefficients, data, noise)
    if population:
        middle = middle + data.residual_square * data.second
    return inverse @ middle @ inverse


def confidence_interval(
    equations: NormalEquations,
    calibrated: CalibratedModulation,
    directions: Vector,
    confidence: float = 0.95,
    population: bool = False,
) -> Interval:
    """Intervals for the coefficients that account for the privacy noise, from the messages alone.

    Post-processing of the release: costs no privacy. Asymptotic: they cover what they say when the noise of the
    matrix is small beside its smallest eigenvalue; where the estimated matrix is not positive definite the release
    holds no information about some direction and the half-widths are infinite.

    Args:
        equations: of one release.
        calibrated: the protocol.
        directions: V of the release, (n, m).
        confidence: per coefficient, between 0 and 1.
        population: as for ``one_shot_covariance``.

    Raises:
        SfumatoError: if the confidence is out of its range.
    """
    from scipy.special import ndtri

    if not 0.0 < confidence < 1.0:
        raise SfumatoError(f"confidence is {confidence!r}; allowed is a number above 0 and below 1.")
    size = len(equations.vector)
    values: Vector = np.linalg.eigvalsh(equations.matrix).astype(np.float64)
    if float(values[0]) <= singular_below(values):
        unknown = np.full(size, np.inf)
        return Interval(np.zeros(size), unknown, unknown, confidence)
    solution: Vector = np.linalg.solve(equations.matrix, equations.vector).astype(np.float64)
    data = DataMoments.of_equations(equations, solution)
    noise = MessageNoise.of(calibrated, directions)
    covariance = one_shot_covariance(equations.matrix, solution, data, noise, population)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0) / equations.clients)
    return Interval(solution, errors, float(ndtri(0.5 + confidence / 2.0)) * errors, confidence)
