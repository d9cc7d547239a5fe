from __future__ import annotations

import pytest
import torch

from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.scores import ScoreStatistics


def _noisy(means: torch.Tensor, std: float, steps: int, seed: int) -> ScoreStatistics:
    statistics = ScoreStatistics.zeros(len(means))
    for step in range(steps):
        noise = torch.from_numpy(Streams(seed).stream("noise", step).standard_normal(len(means)))
        statistics = statistics.observed(means + std * noise, std**2)
    return statistics


def test_both_scores_are_unbiased_for_the_squared_mean() -> None:
    means, std, steps = torch.linspace(0, 0.5, 20_000, dtype=torch.float64), 0.7, 9
    statistics = _noisy(means, std, steps, seed=1)
    # Mean error over 20,000 coordinates; z-tests at 4.5 standard errors: false alarm below 1e-5 each.
    for score, variance in (
        (statistics.mean_square(), (2 * std**4 + 4 * std**2 * means**2) / steps),
        (statistics.square_of_mean(), 2 * std**4 / steps**2 + 4 * std**2 * means**2 / steps),
    ):
        error = (score - means**2).mean()
        assert abs(float(error)) < 4.5 * float(variance.mean() / len(means)) ** 0.5


def test_square_of_mean_has_sqrt_t1_less_noise_where_noise_dominates() -> None:
    statistics = _noisy(torch.zeros(50_000, dtype=torch.float64), 1.0, 16, seed=2)
    ratio = float(statistics.mean_square().std() / statistics.square_of_mean().std())
    # The ratio is sqrt(16) = 4; its relative standard error is about 1 %, so +-5 % alarms falsely below 1e-5.
    assert ratio == pytest.approx(4.0, rel=0.05)


def test_square_of_mean_misses_a_gradient_that_changes_sign() -> None:
    statistics = ScoreStatistics.zeros(1)
    for sign in (1.0, -1.0, 1.0, -1.0):
        statistics = statistics.observed(torch.tensor([sign]), 0.0)
    assert float(statistics.mean_square()) == 1.0
    assert float(statistics.square_of_mean()) == 0.0


def test_denoising_does_not_change_the_ranking() -> None:
    statistics = _noisy(torch.linspace(0, 1, 200, dtype=torch.float64), 0.3, 5, seed=3)
    raw = statistics.weighted_squares / statistics.weight
    assert torch.equal(raw.argsort(), statistics.mean_square().argsort())


def test_forgetting_weights_are_those_of_an_exponential_average() -> None:
    statistics = ScoreStatistics.zeros(1)
    for value in (1.0, 2.0, 3.0):
        statistics = statistics.observed(torch.tensor([value]), 0.1, memory=0.5)
    weights = [0.25, 0.5, 1.0]
    mean = sum(w * v for w, v in zip(weights, (1.0, 2.0, 3.0), strict=True)) / sum(weights)
    noise = 0.1 * sum(w**2 for w in weights) / sum(weights) ** 2
    assert float(statistics.square_of_mean()) == pytest.approx(mean**2 - noise)


def test_scores_survive_a_round_trip() -> None:
    statistics = _noisy(torch.ones(7, dtype=torch.float64), 0.2, 3, seed=4)
    again = ScoreStatistics.from_tensors(statistics.to_tensors())
    assert torch.equal(again.mean_square(), statistics.mean_square())
    assert torch.equal(again.square_of_mean(), statistics.square_of_mean())


def test_scores_of_no_step_are_refused() -> None:
    with pytest.raises(SfumatoError, match="0 warm-up steps"):
        ScoreStatistics.zeros(3).mean_square()
