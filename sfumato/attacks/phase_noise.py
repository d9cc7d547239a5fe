"""The noise along a modulated direction, a cos(U) + N(0, sigma^2) with a uniform angle U: density and information.

>>> moments = noise_moments(np.array([0.0, 2.0]), amplitude=1.0, sigma=1.0)
>>> moments.log_density.round(4).tolist(), moments.score.round(4).tolist()
([-1.1534, -2.4069], [0.0, -1.3512])
>>> [round(arcsine_gaussian_information(ratio, 1.0), 3) for ratio in (0.0, 0.5, 1.0, 2.0, 5.0)]
[1.0, 0.889, 0.671, 0.403, 0.252]

What a client adds along v has this law whatever its sample is, as its phase is fresh and uniform (Section 1.3 a' of
docs/papers.md). All is computed in units of sigma, u = y / sigma and r = a / sigma:
f(u) = (1 / pi) int_0^pi phi(u - r cos(theta)) d theta. With z = u - r cos(theta), the Gaussian part of the noise,
(log f)' = -E[z | u] and (log f)'' = Var[z | u] - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from sfumato.attacks.roc import FloatArray
from sfumato.checks import is_number
from sfumato.errors import SfumatoError

# Gauss-Legendre in theta / 2, where the integrand is more than e^-36 of its peak: about 1e-10 for r up to 1e8.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_LOG_RANGE: Final = 36.0
_CHUNK: Final = 2048
_SPACING: Final = 1.0 / 32.0
_INSIDE: Final = 64.0
_MAX_RATIO: Final = 1e8
_OUTSIDE: Final = 16.0


@dataclass(frozen=True, eq=False)
class NoiseMoments:
    """The log density of the noise and its derivatives, each in the shape of the values.

    Attributes:
        log_density: log f, natural logarithm, in 1 / units of the values.
        score: (log f)'.
        curvature: (log f)'', above 0 where the density is not log-concave.
    """

    log_density: FloatArray
    score: FloatArray
    curvature: FloatArray


def check_noise(amplitude: float, sigma: float) -> None:
    """Refuse a noise that has no density.

    Raises:
        SfumatoError: unless the amplitude is a finite number of at least 0 and sigma one above 0.
    """
    if not is_number(amplitude) or not 0.0 <= amplitude < math.inf:
        raise SfumatoError(f"amplitude is {amplitude!r}; allowed is a finite number of at least 0.")
    if not is_number(sigma) or not 0.0 < sigma < math.inf:
        raise SfumatoError(f"sigma is {sigma!r}; allowed is a finite number above 0.")
    if not 1e-100 < sigma < 1e100 or amplitude > _MAX_RATIO * sigma:
        raise SfumatoError(
            f"amplitude is {amplitude!r} and sigma {sigma!r}; allowed is a sigma between 1e-100 and 1e+100 and an amplitude of "
            f"at most {_MAX_RATIO:g} sigma, up to which the density is exact."
        )


def _integrate(distances: FloatArray, ratio: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log f, E[z | u] and Var[z | u] for u >= 0, by quadrature.

    The argument is u - r and not u, as near the edge of a wide arcsine law a difference would lose digits.
    """
    parts = [
        _integrate_chunk(distances[start : start + _CHUNK], max(ratio, 1e-100))
        for start in range(0, len(distances), _CHUNK)
    ]
    log_density, mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
    return log_density, mean, variance


def _integrate_chunk(distance: FloatArray, ratio: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    # z = (u - r) + 2 r sin^2(theta / 2); the smallest |z| is max(u - r, 0).
    least = np.maximum(distance, 0.0)
    reach = np.sqrt(least**2 + 2.0 * _LOG_RANGE)
    above = np.where(distance > 0.0, 2.0 * _LOG_RANGE / (reach + least), reach - distance)
    low = np.arcsin(np.sqrt(np.clip((-reach - distance) / (2.0 * ratio), 0.0, 1.0)))
    high = np.arcsin(np.sqrt(np.clip(above / (2.0 * ratio), 0.0, 1.0)))
    half = (high - low) / 2.0
    z = np.sin(((low + high) / 2.0)[:, None] + half[:, None] * _NODES)
    z *= z
    z *= 2.0 * ratio
    z += distance[:, None]
    mass = np.exp(0.5 * ((least**2)[:, None] - z * z))
    mass *= _WEIGHTS
    total = mass.sum(axis=1)
    mean = np.einsum("ij,ij->i", mass, z) / total
    z -= mean[:, None]
    variance = np.einsum("ij,ij,ij->i", mass, z, z) / total
    log_density = np.log(half * total * (2.0 / math.pi)) - 0.5 * (least**2 + math.log(2.0 * math.pi))
    return log_density, mean, variance


@lru_cache(maxsize=32)
def _table(ratio: float) -> tuple[float, FloatArray]:
    """Where the table begins, u = max(0, r - 64), and (cells, 6) coefficients of log f, quintic in each cell."""
    first = max(0.0, ratio - _INSIDE)
    nodes = first + _SPACING * np.arange(
        math.ceil((ratio + _OUTSIDE - first) / _SPACING) + 1, dtype=np.float64
    )
    value, mean, variance = _integrate(nodes - ratio, ratio)
    # Hermite: value, first and second derivative agree at both ends of a cell.
    slope, bend = -_SPACING * mean, _SPACING**2 * (variance - 1.0)
    rise, start, end, left, right = np.diff(value), slope[:-1], slope[1:], bend[:-1], bend[1:]
    cubic = 10.0 * rise - 6.0 * start - 4.0 * end - 1.5 * left + 0.5 * right
    quartic = -15.0 * rise + 8.0 * start + 7.0 * end + 1.5 * left - right
    quintic = 6.0 * rise - 3.0 * (start + end) + 0.5 * (right - left)
    return first, np.column_stack([value[:-1], start, left / 2.0, cubic, quartic, quintic])


def noise_moments(values: ArrayLike, amplitude: float, sigma: float) -> NoiseMoments:
    """The log density of a cos(U) + N(0, sigma^2), its score and its curvature.

    Quintic interpolation of a table, exact to about 1e-9; beyond the table by quadrature.

    Args:
        values: finite numbers, any shape, in the units of ``sigma``.
        amplitude: a, at least 0.
        sigma: above 0.

    Raises:
        SfumatoError: if the amplitude or sigma is outside of what is allowed, or a value is not finite.
    """
    check_noise(amplitude, sigma)
    scaled = np.asarray(values, dtype=np.float64) / sigma
    if not np.all(np.isfinite(scaled)):
        raise SfumatoError("values hold a number that is not finite; allowed are finite numbers.")
    ratio = amplitude / sigma
    first, coefficients = _table(ratio)
    position = (np.abs(scaled).ravel() - first) / _SPACING
    outside = (position < 0.0) | (position >= len(coefficients))
    position[outside] = 0.0
    cell = position.astype(np.int64)
    t = position - cell
    c0, c1, c2, c3, c4, c5 = (coefficients[:, degree][cell] for degree in range(6))
    value = c0 + t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * c5))))
    slope = (c1 + t * (2.0 * c2 + t * (3.0 * c3 + t * (4.0 * c4 + t * (5.0 * c5))))) / _SPACING
    bend = (2.0 * c2 + t * (6.0 * c3 + t * (12.0 * c4 + t * (20.0 * c5)))) / _SPACING**2
    if outside.any():
        value[outside], mean, variance = _integrate(np.abs(scaled).ravel()[outside] - ratio, ratio)
        slope[outside], bend[outside] = -mean, variance - 1.0
    shape = scaled.shape
    return NoiseMoments(
        log_density=value.reshape(shape) - math.log(sigma),
        score=np.copysign(1.0, scaled) * slope.reshape(shape) / sigma,
        curvature=bend.reshape(shape) / sigma**2,
    )


@lru_cache(maxsize=256)
def arcsine_gaussian_information(amplitude: float, sigma: float) -> float:
    """Fisher information J of a location in the noise a cos(U) + N(0, sigma^2) (Section 1.3 d).

    Composite Gauss-Legendre quadrature of E[score^2], in unit panels around the edge of the arcsine law and
    geometrically wider ones towards its middle, where the score falls off.

    Args:
        amplitude: a, at least 0.
        sigma: above 0.

    Returns:
        J, in 1 / units of ``sigma`` squared: 1 / sigma^2 at a = 0, about 0.578 / (sigma^2 sqrt(a / sigma)) for large a.

    Raises:
        SfumatoError: if the amplitude or sigma is outside of what is allowed.
    """
    check_noise(amplitude, sigma)
    ratio = amplitude / sigma
    ends = [10.0]
    while ends[-1] > -ratio:
        ends.append(max(-ratio, ends[-1] - max(1.0, -0.25 * ends[-1])))
    edges = np.array(ends[::-1])
    half = np.diff(edges) / 2.0
    distances = (edges[:-1] + half)[:, None] + half[:, None] * _NODES
    log_density, mean, _variance = _integrate(distances.ravel(), ratio)
    weights = (half[:, None] * _WEIGHTS).ravel()
    return float(2.0 * np.sum(weights * np.exp(log_density) * mean**2)) / sigma**2


@lru_cache(maxsize=256)
def noise_shape(amplitude: float, sigma: float) -> tuple[float, float]:
    """Where the density is largest, and how far it is from log-concave.

    Returns:
        The mode that is not negative (the density is even), in units of ``sigma``'s, to sigma / 32; and an upper bound
        of sigma^2 (log f)'', which is above 0 where the density is not log-concave.

    Raises:
        SfumatoError: if the amplitude or sigma is outside of what is allowed.
    """
    check_noise(amplitude, sigma)
    ratio = amplitude / sigma
    # Deep inside of a wide law the density is flat and its curvature below that near the edge.
    grid = np.arange(max(0.0, ratio - _INSIDE), ratio + _OUTSIDE, _SPACING)
    log_density, _mean, variance = _integrate(grid - ratio, ratio)
    return float(grid[np.argmax(log_density)]) * sigma, float(variance.max()) - 1.0 + 1e-3
