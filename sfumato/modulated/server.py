"""The server: unbiased moments from noisy messages, and the estimators that need one release.

>>> import numpy as np
>>> equations = NormalEquations(np.eye(2), np.array([0.5, 0.2]), clients=100, intercept=True)
>>> solve(equations, Stabilization(coefficient_bound=3.0)).round(3)
array([0.5, 0.2])

All moments are sums over clients of O(n^2) numbers, whatever the number of clients. Where the model has an
intercept, the sample is (1, x); the 1 is public, so its row and column hold only the means of the messages.
Every constant that steadies an estimate is a function of public values: K, n, sigma, alpha and declared bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.errors import SfumatoError
from sfumato.modulated.client import Block
from sfumato.modulated.plan import CalibratedModulation

Vector = NDArray[np.float64]
_LARGEST = 1e15
"""A coordinate beyond is taken for no number: its square would drown all others in float32."""

Stabilizer = Literal["none", "ridge", "eigenvalue_floor"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Averages over the messages of one round.

    Attributes:
        clients: K, how many messages were averaged.
        features: (n,) mean of g.
        outer: (n, n) mean of g g^T.
        cross: (n,) mean of y g.
        label: mean of y.
        label_square: mean of y^2.
        faulty: how many samples were not finite; a fact about the private data, for simulations.
        rejected: how many messages were not finite and are in no average; nobody has to be trusted for that.
    """

    clients: int
    features: Vector
    outer: Vector
    cross: Vector
    label: float
    label_square: float
    faulty: int = 0
    rejected: int = 0


def collect(blocks: Iterable[Block]) -> Moments:
    """The moments of a stream of messages, one block in memory at a time.

    Products within a block are taken in the messages' dtype, sums over blocks in float64.

    Raises:
        SfumatoError: if there is no message at all.
    """
    clients = faulty = rejected = 0
    features = outer = cross = np.zeros(0)
    label = label_square = 0.0
    for block in blocks:
        sent, own = block.features, block.labels
        with np.errstate(over="ignore", invalid="ignore"):
            square = sent.T @ sent
        if not (np.all(np.isfinite(square)) and math.isfinite(float(np.sum(own)))):
            kept = np.all(np.abs(sent) < _LARGEST, axis=1) & np.isfinite(own)
            rejected += int(np.sum(~kept))
            sent, own = sent[kept], own[kept]
            square = sent.T @ sent
        if not features.size:
            size = sent.shape[1]
            features, outer, cross = np.zeros(size), np.zeros((size, size)), np.zeros(size)
        clients += len(sent)
        faulty += block.faulty
        outer += square
        weights = np.ones((2, len(sent)), sent.dtype)
        weights[1] = own
        both = weights @ sent
        features += both[0]
        cross += both[1]
        exact = own.astype(np.float64, copy=False)
        label += float(exact.sum())
        label_square += float(exact @ exact)
    if not clients:
        raise SfumatoError("there are no messages of finite numbers; allowed is at least one client.")
    return Moments(
        clients,
        features / clients,
        outer / clients,
        cross / clients,
        label / clients,
        label_square / clients,
        faulty,
        rejected,
    )


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """Unbiased estimates of E[x x^T] and E[y x], of x = (1, features) where there is an intercept.

    Attributes:
        matrix: (p, p) symmetric; noise can make it indefinite.
        vector: (p,).
        clients: K.
        intercept: whether the first coordinate is the public 1.
        label_square: unbiased estimate of E[y^2].
    """

    matrix: Vector
    vector: Vector
    clients: int
    intercept: bool
    label_square: float = 0.0

    def gradient(self, coefficients: Vector) -> Vector:
        """(p,) unbiased estimate of the gradient of (1/2) E[(<x, beta> - y)^2]."""
        return self.matrix @ coefficients - self.vector


def estimate(moments: Moments, calibrated: CalibratedModulation, directions: Vector) -> NormalEquations:
    """Remove the noise's known second moment (Theorem 3.1 and Corollary 3.2 of the paper, Section 1.2).

    Unbiased if every client drew fresh uniform phases: all cross terms with the sample then have mean zero, and
    the noise contributes Omega = (lambda^2 / 2m) V V^T + sigma^2 I.

    Args:
        moments: of one round's messages.
        calibrated: the public protocol.
        directions: V of that round.

    Raises:
        SfumatoError: if the directions do not fit the moments.
    """
    scale, size = calibrated.plan.modulation.scale, len(moments.features)
    if directions.ndim != 2 or len(directions) != size:
        raise SfumatoError(f"directions has shape {directions.shape}; allowed is ({size}, directions).")
    outer = (moments.outer - calibrated.noise_covariance(directions)) / scale**2
    features, cross = moments.features / scale, moments.cross / scale
    square = moments.label_square - calibrated.label_noise_std**2
    if not calibrated.plan.intercept:
        return NormalEquations(_symmetric(outer), cross, moments.clients, False, square)
    matrix = np.empty((size + 1, size + 1))
    matrix[0, 0] = 1.0
    matrix[0, 1:] = matrix[1:, 0] = features
    matrix[1:, 1:] = _symmetric(outer)
    vector = np.concatenate([[moments.label], cross])
    return NormalEquations(matrix, vector, moments.clients, True, square)


def _symmetric(matrix: Vector) -> Vector:
    return (matrix + matrix.T) / 2.0


@dataclass(frozen=True)
class Stabilization:
    """What keeps an estimate finite, from public values alone.

    Attributes:
        coefficient_bound: the radius of the ball that coefficients are projected to.
        kind: ``none``; ``ridge`` adds gamma I; ``eigenvalue_floor`` raises eigenvalues below gamma to gamma.
        strength: multiplies gamma = 2 sigma^2 sqrt(n / K) / (1 - alpha)^2, the size of the noise of the matrix.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    coefficient_bound: float
    kind: Stabilizer = "none"
    strength: float = 1.0

    def __post_init__(self) -> None:
        """Check the fields."""
        if not is_number(self.coefficient_bound) or not 0 < self.coefficient_bound < math.inf:
            raise SfumatoError(
                f"coefficient_bound is {self.coefficient_bound!r}; allowed is a positive number."
            )
        if self.kind not in get_args(Stabilizer):
            raise SfumatoError(f"kind is {self.kind!r}; allowed are {', '.join(get_args(Stabilizer))}.")
        if not is_number(self.strength) or not 0 <= self.strength < math.inf:
            raise SfumatoError(f"strength is {self.strength!r}; allowed is a number of at least 0.")


def matrix_noise(calibrated: CalibratedModulation, clients: int) -> float:
    """Gamma = 2 sigma^2 sqrt(n / K) / (1 - alpha)^2, the size in operator norm of the matrix's noise, data-free."""
    size = calibrated.plan.domain.features
    return 2.0 * calibrated.noise_std**2 * math.sqrt(size / clients) / calibrated.plan.modulation.scale**2


def singular_below(eigenvalues: Vector) -> float:
    """What an eigenvalue must exceed for rounding not to have made it."""
    return float(np.max(np.abs(eigenvalues))) * len(eigenvalues) * 8.0 * float(np.finfo(np.float64).eps)


def project(coefficients: Vector, bound: float) -> Vector:
    """The nearest point of the ball of that radius; coefficients that are not finite become zeros.

    Raises:
        SfumatoError: if the radius is not a number above 0.
    """
    if not (is_number(bound) and bound > 0.0):
        raise SfumatoError(f"coefficient_bound is {bound!r}; allowed is a number above 0.")
    if not np.all(np.isfinite(coefficients)):
        return np.zeros_like(coefficients)
    norm = float(np.linalg.norm(coefficients))
    return coefficients if norm <= bound else coefficients * (bound / norm)


def solve(equations: NormalEquations, stabilization: Stabilization, gamma: float | None = None) -> Vector:
    """The one-shot closed form: the solution of the (steadied) normal equations, in the ball (Section 1.3 c).

    Directions in which the matrix is exactly singular get no coefficient.

    Args:
        equations: from one release.
        stabilization: what is added; the intercept's 1 is public and gets no ridge.
        gamma: the noise's size, as ``matrix_noise`` gives; needed for a ridge or a floor.

    Raises:
        SfumatoError: if gamma is missing where it is needed, or is no number of at least 0.
    """
    if gamma is None and stabilization.kind != "none":
        raise SfumatoError(
            f"gamma is missing; allowed with {stabilization.kind!r} is a number of at least 0."
        )
    if gamma is not None and not (is_number(gamma) and 0.0 <= gamma < math.inf):
        raise SfumatoError(f"gamma is {gamma!r}; allowed is a number of at least 0.")
    matrix, amount = equations.matrix, stabilization.strength * (gamma or 0.0)
    if stabilization.kind == "ridge":
        ridge = np.full(len(matrix), amount)
        ridge[0] = 0.0 if equations.intercept else amount
        matrix = matrix + np.diag(ridge)
    values, vectors = np.linalg.eigh(matrix)
    if stabilization.kind == "eigenvalue_floor":
        values = np.maximum(values, amount)
    usable = np.abs(values) > singular_below(values)
    inverse = np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)
    return project(vectors @ (inverse * (vectors.T @ equations.vector)), stabilization.coefficient_bound)


def descend(
    equations: NormalEquations, steps: int, step_size: float, bound: float, start: Vector | None = None
) -> Vector:
    """One-shot, then gradient descent at the server: free of charge, and steadier than an inverse.

    Args:
        equations: from one release.
        steps: how many.
        step_size: constant, a public number.
        bound: radius of the ball that each step is projected to.
        start: where to begin; zeros by default.
    """
    coefficients = np.zeros(len(equations.vector)) if start is None else start
    for _ in range(steps):
        coefficients = project(coefficients - step_size * equations.gradient(coefficients), bound)
    return coefficients
