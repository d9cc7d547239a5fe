"""The privacy loss of one Gaussian release over a Poisson sample, continuous and on a grid.

With one record's contribution scaled to 1, the pair (P, Q) of output distributions along the worst
direction is, q being the sampling rate and s the noise multiplier,

* remove: P = (1-q) N(0, s^2) + q N(1, s^2),  Q = N(0, s^2)
* add:    P = N(0, s^2),                      Q = (1-q) N(0, s^2) + q N(-1, s^2)
* replace: P = (1-q) N(0, s^2) + q N(1, s^2), Q = (1-q) N(0, s^2) + q N(-1, s^2)

so that the loss log(P/Q) increases with the output in all three (Zhu, Dong and Wang 2022;
Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022).

>>> pmf = discretize(PoissonGaussian(0.5, 1.0, "remove"), step=0.01, log_tail=-50.0)
>>> bool(abs(pmf.probabilities.sum() + pmf.infinity_mass - 1.0) < 1e-12)
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.accounting.numeric import Array, normal_cdf, normal_quantile

Direction = Literal["remove", "add", "replace"]

MAX_LOSS = 600.0
MAX_POINTS = 2**21


class TooFineError(Exception):
    """The grid would hold more than ``MAX_POINTS`` points."""


@dataclass(frozen=True)
class PoissonGaussian:
    """One release: rate in (0, 1], noise multiplier above 0, and which of the three pairs."""

    rate: float
    multiplier: float
    direction: Direction

    @property
    def upper_mixed(self) -> bool:
        """Whether P is the mixture that holds the record."""
        return self.direction != "add"

    @property
    def lower_mixed(self) -> bool:
        """Whether Q is the mixture that holds the (other) record."""
        return self.direction != "remove"

    def _log_factor(self, y: Array, sign: float) -> Array:
        if self.rate == 1.0:
            return (sign * y - 0.5) / self.multiplier**2
        exponent = (sign * y - 0.5) / self.multiplier**2 + math.log(self.rate)
        return np.logaddexp(math.log1p(-self.rate), exponent)

    def loss(self, y: Array) -> Array:
        """Log P(y)/Q(y)."""
        total = np.zeros_like(y)
        if self.upper_mixed:
            total += self._log_factor(y, 1.0)
        if self.lower_mixed:
            total -= self._log_factor(y, -1.0)
        return total

    def _inverse_remove(self, loss: Array) -> Array:
        """Y at which log(1 - q + q exp((y - 1/2)/s^2)) is the loss; -inf below its range."""
        q = self.rate
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = np.log1p(np.maximum(np.expm1(np.minimum(loss, 1.0)) / q, -1.0))
            far = loss + np.log1p(-(1.0 - q) * np.exp(-np.maximum(loss, 1.0))) - math.log(q)
        return 0.5 + self.multiplier**2 * np.where(loss <= 1.0, near, far)

    def inverse(self, loss: Array) -> Array:
        """The output at which the loss has the given value; -inf or inf outside of its range."""
        if self.direction == "remove":
            return self._inverse_remove(loss)
        if self.direction == "add":
            return -self._inverse_remove(-loss)
        half = 0.5 * loss
        variance = self.multiplier**2
        if self.rate == 1.0:
            return variance * half
        # asinh((1-q)/q sinh(l/2) exp(1/(2 s^2))), through logarithms since the argument can overflow.
        with np.errstate(divide="ignore"):
            log_sinh = np.abs(half) + np.log(-np.expm1(-2.0 * np.abs(half))) - math.log(2.0)
        log_argument = log_sinh + math.log1p(-self.rate) - math.log(self.rate) + 0.5 / variance
        size = np.where(
            log_argument > 30.0,
            log_argument + math.log(2.0),
            np.arcsinh(np.exp(np.minimum(log_argument, 30.0))),
        )
        result: Array = variance * (half + np.sign(half) * size)
        return result

    def range(self, log_tail: float) -> tuple[float, float]:
        """Outputs outside of which P has less than exp(log_tail) on either side."""
        reach = -normal_quantile(log_tail) * self.multiplier
        return -reach, reach + (1.0 if self.upper_mixed else 0.0)

    def _masses(self, edges: Array, mixed: bool, center: float) -> Array:
        plain = _interval_masses(edges / self.multiplier)
        if not mixed:
            return plain
        shifted = _interval_masses((edges - center) / self.multiplier)
        return (1.0 - self.rate) * plain + self.rate * shifted

    def upper_masses(self, edges: Array) -> Array:
        """P of the intervals between consecutive edges."""
        return self._masses(edges, self.upper_mixed, 1.0)

    def lower_masses(self, edges: Array) -> Array:
        """Q of the intervals between consecutive edges."""
        return self._masses(edges, self.lower_mixed, -1.0)


def _interval_masses(edges: Array) -> Array:
    """Standard normal mass of consecutive intervals, to full relative precision in both tails."""
    low, high = edges[:-1], edges[1:]
    flip = low > 0.0
    return normal_cdf(np.where(flip, -low, high)) - normal_cdf(np.where(flip, -high, low))


@dataclass(frozen=True)
class LossPmf:
    """A pessimistic discrete loss: probability[i] at (first + i) * step, the rest at infinity."""

    first: int
    probabilities: Array
    infinity_mass: float
    step: float

    def indices(self) -> NDArray[np.int64]:
        """The grid index of every probability."""
        return self.first + np.arange(self.probabilities.size, dtype=np.int64)

    def losses(self) -> Array:
        """The loss of every probability."""
        return self.indices().astype(np.float64) * self.step


def discretize(release: PoissonGaussian, step: float, log_tail: float) -> LossPmf:
    """A loss on the grid ``step * integers`` that dominates the release's.

    The mass P and Q of every cell is moved to the cell's two ends such that both are preserved, which
    is the connect-the-dots discretisation (Doroshenko et al. 2022); taken from interval masses instead of
    differences of delta(epsilon) it keeps its relative precision in the tails. The tail below the grid
    is rounded up to it and the tail above counts as infinite, so every hockey-stick divergence, also of
    compositions, is an upper bound.

    Raises:
        TooFineError: if the grid would be larger than ``MAX_POINTS``.
    """
    low, high = release.loss(np.asarray(release.range(log_tail), dtype=np.float64))
    first = math.floor(float(low) / step)
    last = max(first + 1, math.ceil(min(float(high), MAX_LOSS) / step))
    if last - first > MAX_POINTS:
        raise TooFineError
    grid = np.arange(first, last + 1, dtype=np.float64) * step
    edges = release.inverse(grid)
    bounds = np.concatenate([[-math.inf], edges, [math.inf]])
    upper = release.upper_masses(bounds)
    cells, lower = upper[1:-1], release.lower_masses(edges)
    with np.errstate(over="ignore", invalid="ignore"):
        raised = (cells - lower * np.exp(np.minimum(grid[:-1], 700.0))) / -math.expm1(-step)
    raised = np.clip(np.nan_to_num(raised, nan=np.inf, posinf=np.inf), 0.0, cells)
    probabilities = np.zeros(grid.size)
    probabilities[0] = upper[0]
    probabilities[:-1] += cells - raised
    probabilities[1:] += raised
    probabilities[probabilities < 1e-300] = 0.0
    return LossPmf(first, probabilities, float(upper[-1]), step)


def loss_nodes(release: PoissonGaussian, log_tail: float, nodes: int = 800) -> tuple[Array, Array]:
    """(losses, log weights) of a quadrature of P, for the cumulants that choose grid and tilt."""
    low, high = release.range(log_tail)
    y = np.linspace(low, high, nodes)
    log_p = -0.5 * (y / release.multiplier) ** 2
    if release.upper_mixed:
        log_p = log_p + release._log_factor(y, 1.0)  # pyright: ignore[reportPrivateUsage]
    weights = np.exp(log_p - log_p.max())
    return release.loss(y), np.log(np.maximum(weights / weights.sum(), 1e-300))
