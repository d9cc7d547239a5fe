"""When restriction pays, and how often a noisy warm-up ranks two coordinates wrongly.

All formulas are those of Section 2.2 of docs/papers.md, where they were derived and checked.

>>> restriction_benefit(dropped_energy=1.0, dimension=100, active=10, noise_std=0.2).beneficial
True
>>> round(misranking_clt([0.9] * 40, [0.3] * 40, noise_std=1.0), 3)
0.049
>>> round(misranking_chernoff([0.9] * 40, [0.3] * 40, noise_std=1.0), 3)
0.238
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sfumato.errors import SfumatoError

Means = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class RestrictionBenefit:
    """The two sides of the one-step criterion.

    Attributes:
        dropped_energy: squared norm of the gradient on the frozen coordinates.
        saved_noise: expected noise energy that restriction saves per step.
        beneficial: whether the dropped energy is the smaller one.
    """

    dropped_energy: float
    saved_noise: float

    @property
    def beneficial(self) -> bool:
        """True where restriction lowers the expected squared error of the gradient."""
        return self.dropped_energy < self.saved_noise


def noise_energy(coordinates: int, noise_std: float) -> float:
    """Expected squared norm of the noise on that many coordinates, k nu^2.

    >>> noise_energy(100, 0.5)
    25.0
    """
    return coordinates * noise_std**2


def restriction_benefit(
    dropped_energy: float,
    dimension: int,
    active: int,
    noise_std: float,
    dense_noise_std: float | None = None,
    step_smoothness: float | None = None,
) -> RestrictionBenefit:
    """The one-step criterion: restrict iff the dropped gradient energy is below the noise energy saved.

    Args:
        dropped_energy: squared norm of the mean gradient on the frozen coordinates.
        dimension: d.
        active: k, the size of the support.
        noise_std: nu = sigma C / B of the restricted step, per coordinate.
        dense_noise_std: nu of the dense method at the same whole budget, which it spends evenly on all
            steps. None compares at equal noise.
        step_smoothness: learning rate times smoothness constant (eta L). None compares mean squared errors,
            which is the paper's form and the descent criterion at eta L = 1.

    Raises:
        SfumatoError: if active exceeds dimension, or eta L is outside (0, 2).
    """
    if not 0 <= active <= dimension:
        raise SfumatoError(f"active is {active}; allowed is 0 to the dimension ({dimension}).")
    dense = noise_std if dense_noise_std is None else dense_noise_std
    saved = dimension * dense**2 - active * noise_std**2
    if step_smoothness is None:
        return RestrictionBenefit(dropped_energy, saved)
    if not 0 < step_smoothness < 2:
        raise SfumatoError(f"step_smoothness is {step_smoothness}; allowed is a number between 0 and 2.")
    return RestrictionBenefit(dropped_energy, saved * step_smoothness / (2 - step_smoothness))


def misranking_clt(stronger: Means, weaker: Means, noise_std: float) -> float:
    """Normal approximation of P(score of the weaker coordinate >= score of the stronger).

    Args:
        stronger: the T1 mean gradients of coordinate p.
        weaker: the T1 mean gradients of coordinate q, with the smaller mean square.
        noise_std: nu, per coordinate and step, above 0.

    Returns:
        Phi(-Delta / sqrt(V)), V = (4 nu^4 + 4 nu^2 (mean p^2 + mean q^2)) / T1; for ``mean_square`` scores.
    """
    steps, mean_p, mean_q = _mean_squares(stronger, weaker, noise_std)
    variance = (4 * noise_std**4 + 4 * noise_std**2 * (mean_p + mean_q)) / steps
    return float(ndtr(-(mean_p - mean_q) / np.sqrt(variance)))


def misranking_chernoff(stronger: Means, weaker: Means, noise_std: float) -> float:
    """Chernoff bound of P(score of the weaker coordinate >= score of the stronger); arguments as in ``misranking_clt``.

    Minimises (1 - 4 s^2 nu^4)^(-T1/2) exp(-s T1 [p^2/(1+2 s nu^2) - q^2/(1-2 s nu^2)]) over 0 < s < 1/(2 nu^2).
    """
    steps, mean_p, mean_q = _mean_squares(stronger, weaker, noise_std)
    scale = 2 * noise_std**2

    u = np.linspace(0.0, 1.0, 20_001)[1:-1]
    gain = mean_p / (1 + u) - mean_q / (1 - u)
    log_bound = -0.5 * steps * np.log1p(-(u**2)) - u / scale * steps * gain
    return float(np.exp(min(0.0, float(log_bound.min()))))


def misranking_cantelli(stronger: Means, weaker: Means, noise_std: float) -> float:
    """Cantelli bound V / (V + Delta^2) of the same probability; arguments as in ``misranking_clt``."""
    steps, mean_p, mean_q = _mean_squares(stronger, weaker, noise_std)
    variance = (4 * noise_std**4 + 4 * noise_std**2 * (mean_p + mean_q)) / steps
    return float(variance / (variance + (mean_p - mean_q) ** 2))


def _mean_squares(stronger: Means, weaker: Means, noise_std: float) -> tuple[int, float, float]:
    if not noise_std > 0:
        raise SfumatoError(
            f"noise_std is {noise_std}; allowed is a number above 0, since scores without noise rank exactly."
        )
    p, q = np.asarray(stronger, dtype=np.float64), np.asarray(weaker, dtype=np.float64)
    if p.shape != q.shape or p.ndim != 1 or len(p) == 0:
        raise SfumatoError(
            f"means have shapes {p.shape} and {q.shape}; allowed are two equal lengths of at least 1."
        )
    mean_p, mean_q = float(np.mean(p**2)), float(np.mean(q**2))
    if mean_p < mean_q:
        raise SfumatoError(
            f"mean squares are {mean_p:.4g} and {mean_q:.4g}; allowed is that the stronger coordinate comes first."
        )
    return len(p), mean_p, mean_q


@dataclass(frozen=True)
class RankingQuality:
    """How well noisy scores rank coordinates, beside what theory predicts.

    Attributes:
        misranked: share of pairs (one strong, one weak by the probe gradient) that the scores order wrongly.
        predicted: mean of the normal approximation over the same pairs.
        overlap: share of the probe gradient's own top k that the support holds.
        chance_overlap: the overlap of a random support, k / d.
    """

    misranked: float
    predicted: float
    overlap: float
    chance_overlap: float


def ranking_quality(
    scores: NDArray[np.float64],
    probe_gradient: NDArray[np.float64],
    support: NDArray[np.int64],
    noise_std: float,
    steps: int,
    pairs: NDArray[np.int64],
) -> RankingQuality:
    """Compare scores with a probe gradient taken from held-out rows.

    Args:
        scores: float64[d], ``mean_square`` scores.
        probe_gradient: float64[d], a mean clipped gradient without noise; standing in for all T1 steps.
        support: int64[k], the chosen coordinates.
        noise_std: nu of the warm-up.
        steps: T1.
        pairs: int64[m, 2] of uniform draws below k and below d - k: ranks of the pair's two coordinates.

    Raises:
        SfumatoError: if the support is empty or holds every coordinate.
    """
    dimension, active = len(scores), len(support)
    if not 0 < active < dimension:
        raise SfumatoError(
            f"the support holds {active} of {dimension} coordinates; allowed is a proper part."
        )
    energy = probe_gradient**2
    order = np.argsort(-energy, kind="stable")
    strong, weak = order[:active][pairs[:, 0]], order[active:][pairs[:, 1]]
    gap = energy[strong] - energy[weak]
    variance = (4 * noise_std**4 + 4 * noise_std**2 * (energy[strong] + energy[weak])) / steps
    predicted = ndtr(-gap / np.sqrt(variance)) if noise_std > 0 else np.zeros_like(gap)
    return RankingQuality(
        misranked=float(np.mean(scores[weak] >= scores[strong])),
        predicted=float(np.mean(predicted)),
        overlap=float(np.isin(order[:active], support).mean()),
        chance_overlap=active / dimension,
    )
