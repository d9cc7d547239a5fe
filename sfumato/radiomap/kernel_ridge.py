"""Kernel ridge regression whose penalty is chosen by leaving whole maps out, in closed form.

>>> import numpy as np
>>> x = np.arange(8.0)[:, None]
>>> fitted = fit(x @ x.T, np.hstack([x, 2 * x]), np.repeat(np.arange(4), 2), limit=14.0)
>>> fitted.predict(np.array([[3.5]]) @ x.T).round(2).tolist()
[[3.5, 7.0]]

With an intercept that is not penalised, the coefficients solve [[K + lambda I, 1], [1', 0]] [a; b] = [y; 0]. Let B be the
inverse of that matrix. The solution without the rows of a group g is [a; b] - B[:, g] (B[g, g])^-1 a[g], which is exactly 0
on g: one eigendecomposition of K gives every penalty and every left-out map. No number here depends on d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.radiomap.localisation import Vector

# Times the mean eigenvalue of K; the largest leaves the mean of the positions, the smallest nearly interpolates.
RELATIVE_PENALTIES: Final = tuple(float(value) for value in np.logspace(-4.0, 4.0, 17))


@dataclass(frozen=True, eq=False)
class Checks:
    """Rows whose guesses choose the penalty, where these are not the training rows themselves.

    Attributes:
        cross: (k, n) kernel between them and the training rows.
        positions: (k, 2) their true positions in metres.
        groups: (k,) the group of each, which is left out of the training for it.
    """

    cross: Vector
    positions: Vector
    groups: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """A fitted regression.

    Attributes:
        coefficients: (n, 2) float64.
        intercept: (2,) float64.
        penalty: lambda, of the kernel's own scale.
        held_out: (k, 2) guesses for the checked rows, each without the training rows of its group.
        error: the root mean square distance of those from the truth, in metres.
        limit: guesses are clamped to 0..limit metres.
    """

    coefficients: Vector
    intercept: Vector
    penalty: float
    held_out: Vector
    error: float
    limit: float

    def predict(self, cross: NDArray[Any]) -> Vector:
        """(m, 2) guesses from the (m, n) kernel between new rows and the training rows."""
        return clamp(cross @ self.coefficients + self.intercept, self.limit)


def clamp(guesses: Vector, limit: float) -> Vector:
    """The nearest position in the window, 0 to ``limit`` metres on both axes."""
    return np.clip(guesses, 0.0, limit)


def penalties_of(gram: Vector) -> Vector:
    """(p,) penalties to choose from, spread around the mean eigenvalue of an (n, n) kernel."""
    scale = float(np.trace(gram)) / len(gram)
    return np.array(RELATIVE_PENALTIES) * (scale if scale > 0.0 else 1.0)


def fit(
    gram: Vector,
    positions: Vector,
    groups: NDArray[np.int64],
    limit: float,
    penalties: Vector | None = None,
    checks: Checks | None = None,
) -> KernelRidge:
    """The regression with the penalty of the smallest held-out error.

    Args:
        gram: (n, n) float64 kernel, symmetric and positive semidefinite.
        positions: (n, 2) metres.
        groups: (n,) what is left out together: the map; at least two different ones.
        limit: side of the window in metres.
        penalties: (p,) positive numbers to choose from; `penalties_of` the kernel by default.
        checks: rows that choose the penalty; the training rows by default.

    Returns:
        The fit on all training rows at the chosen penalty.
    """
    choices = penalties_of(gram) if penalties is None else penalties
    own = Checks(gram, positions, groups) if checks is None else checks
    values, basis = np.linalg.eigh(gram)
    shrink = 1.0 / (np.maximum(values, 0.0) + choices[:, None])  # (p, n)
    ones, targets = basis.T @ np.ones(len(gram)), basis.T @ positions
    inverse_ones = (shrink * ones) @ basis.T  # (p, n): (K + lambda I)^-1 1
    total = inverse_ones.sum(axis=1)
    intercept = (inverse_ones @ positions) / total[:, None]
    coefficients = basis @ (shrink[:, :, None] * targets) - inverse_ones[:, :, None] * intercept[:, None]
    guesses = _held_out(own, groups, basis, shrink, coefficients, intercept, inverse_ones)
    guesses = clamp(guesses, limit)
    errors = np.mean(np.sum((guesses - own.positions) ** 2, axis=2), axis=1)
    best = int(np.argmin(errors))
    return KernelRidge(
        coefficients[best],
        intercept[best],
        float(choices[best]),
        guesses[best],
        float(np.sqrt(errors[best])),
        limit,
    )


def _held_out(
    checks: Checks,
    groups: NDArray[np.int64],
    basis: Vector,
    shrink: Vector,
    coefficients: Vector,
    intercept: Vector,
    inverse_ones: Vector,
) -> Vector:
    """(p, k, 2) guesses for the checked rows at every penalty, without the training rows of their group."""
    guesses = checks.cross @ coefficients + intercept[:, None]
    rotated = checks.cross @ basis
    total = inverse_ones.sum(axis=1)
    reached = inverse_ones @ checks.cross.T  # (p, k)
    for group in np.unique(checks.groups):
        inside, rows = np.flatnonzero(groups == group), np.flatnonzero(checks.groups == group)
        if not inside.size:
            continue
        weighted = shrink[:, :, None] * basis[inside].T  # (p, n, g)
        ours = inverse_ones[:, inside]
        block = basis[inside] @ weighted - ours[:, :, None] * (ours / total[:, None])[:, None]
        correction = np.asarray(
            np.linalg.solve(np.asarray(block, np.float64), coefficients[:, inside]), np.float64
        )  # (p, g, 2)
        # [cross, 1] B[:, g]: what the group's correction does to the guess of a row.
        effect = rotated[rows] @ weighted
        effect += ((1.0 - reached[:, rows]) / total[:, None])[:, :, None] * ours[:, None]
        guesses[:, rows] -= effect @ correction
    return guesses
