"""Scores that rank coordinates, computed from privatised gradients alone (post-processing).

>>> import torch
>>> statistics = ScoreStatistics.zeros(3).observed(torch.tensor([1.0, -1.0, 0.5]), noise_variance=0.25)
>>> statistics = statistics.observed(torch.tensor([1.0, 1.0, 0.5]), noise_variance=0.25)
>>> statistics.mean_square().tolist()
[0.75, 0.75, 0.0]
>>> statistics.square_of_mean().tolist()
[0.875, -0.125, 0.125]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sfumato.errors import SfumatoError

Score = Literal["mean_square", "square_of_mean"]


@dataclass(frozen=True)
class ScoreStatistics:
    """Weighted running sums of privatised gradients and of their squares.

    Guarantee:
        Post-processing: everything here is a function of privatised gradients and public noise levels.

    Attributes:
        weighted_sum: Tensor[d] float64, sum over steps of weight x gradient.
        weighted_squares: Tensor[d] float64, sum over steps of weight x gradient squared.
        weight: the sum of the weights.
        squared_weight: the sum of the squared weights.
        weighted_noise: sum over steps of weight x noise variance per coordinate.
        squared_weighted_noise: sum over steps of weight squared x noise variance per coordinate.
    """

    weighted_sum: Tensor
    weighted_squares: Tensor
    weight: float = 0.0
    squared_weight: float = 0.0
    weighted_noise: float = 0.0
    squared_weighted_noise: float = 0.0

    @classmethod
    def zeros(cls, dimension: int) -> ScoreStatistics:
        """Statistics of no step at all, over d = ``dimension`` coordinates."""
        return cls(torch.zeros(dimension, dtype=torch.float64), torch.zeros(dimension, dtype=torch.float64))

    def observed(self, gradient: Tensor, noise_variance: float, memory: float = 1.0) -> ScoreStatistics:
        """The statistics after one more privatised gradient.

        Args:
            gradient: Tensor[d], a privatised mean gradient.
            noise_variance: its noise variance per coordinate, (sigma x C / B) squared.
            memory: factor on everything seen before; 1 gives plain sums, less forgets.
        """
        gradient = gradient.to(torch.float64)
        return ScoreStatistics(
            memory * self.weighted_sum + gradient,
            memory * self.weighted_squares + gradient**2,
            memory * self.weight + 1.0,
            memory**2 * self.squared_weight + 1.0,
            memory * self.weighted_noise + noise_variance,
            memory**2 * self.squared_weighted_noise + noise_variance,
        )

    def mean_square(self) -> Tensor:
        """Tensor[d]: mean of squares less the noise variance; the paper's score (Section 2.1 of docs/papers.md).

        Its expectation is the mean squared clipped gradient plus the minibatch variance. Subtracting the
        noise variance, equal for all coordinates, does not change a global ranking; scores may be negative.
        """
        self._require_steps()
        return (self.weighted_squares - self.weighted_noise) / self.weight

    def square_of_mean(self) -> Tensor:
        """Tensor[d]: squared mean gradient less the noise variance of that mean, nu squared / T1 at equal weights.

        Its noise is smaller by sqrt(T1) than that of ``mean_square`` where noise dominates and minibatch
        variance counts 1/T1; it misses gradients that change sign during the warm-up.
        """
        self._require_steps()
        return (self.weighted_sum / self.weight) ** 2 - self.squared_weighted_noise / self.weight**2

    def of_kind(self, score: Score) -> Tensor:
        """Tensor[d]: the scores of that kind."""
        return self.mean_square() if score == "mean_square" else self.square_of_mean()

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors for a file; inverse of ``from_tensors``."""
        numbers = [
            self.weight,
            self.squared_weight,
            self.weighted_noise,
            self.squared_weighted_noise,
        ]
        return {
            "score_sum": self.weighted_sum,
            "score_squares": self.weighted_squares,
            "score_numbers": torch.tensor(numbers, dtype=torch.float64),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> ScoreStatistics:
        """Read back what ``to_tensors`` gave."""
        numbers = [float(value) for value in tensors["score_numbers"]]
        return cls(tensors["score_sum"], tensors["score_squares"], *numbers)

    def _require_steps(self) -> None:
        if self.weight == 0.0:
            raise SfumatoError("scores were asked for after 0 warm-up steps; allowed is at least 1 step.")
