from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.theory import (
    misranking_cantelli,
    misranking_chernoff,
    misranking_clt,
    noise_energy,
    ranking_quality,
    restriction_benefit,
)


def test_criterion_is_the_comparison_of_mean_squared_errors() -> None:
    d, k, nu, draws = 60, 12, 0.15, 40_000
    gradient = Streams(1).stream("gradient").standard_normal(d) * np.linspace(0.5, 0.01, d)
    noise = nu * Streams(1).stream("noise").standard_normal((draws, d))
    dense = ((gradient + noise - gradient) ** 2).sum(1).mean()
    restricted = (noise[:, :k] ** 2).sum(1).mean() + (gradient[k:] ** 2).sum()
    benefit = restriction_benefit(float((gradient[k:] ** 2).sum()), d, k, nu)
    # The simulated gap has a standard error below 0.1 %.
    assert benefit.saved_noise - benefit.dropped_energy == pytest.approx(dense - restricted, rel=0.02)
    assert benefit.beneficial == (restricted < dense)


def test_criterion_at_small_steps_is_stricter() -> None:
    full = restriction_benefit(1.0, 100, 10, 0.2)
    small = restriction_benefit(1.0, 100, 10, 0.2, step_smoothness=0.1)
    assert small.saved_noise == pytest.approx(full.saved_noise * 0.1 / 1.9)
    assert restriction_benefit(1.0, 100, 10, 0.2, step_smoothness=1.0) == full


def test_budget_lost_to_the_warmup_counts_against_restriction() -> None:
    equal = restriction_benefit(1.0, 100, 10, 0.2)
    lost = restriction_benefit(1.0, 100, 10, 0.2, dense_noise_std=0.15)
    assert lost.saved_noise == pytest.approx(100 * 0.15**2 - 10 * 0.2**2)
    assert lost.saved_noise < equal.saved_noise


def test_noise_energy_is_proportional_to_the_coordinates() -> None:
    assert noise_energy(50, 0.3) == pytest.approx(50 * 0.09)


@pytest.mark.parametrize(("strong", "weak", "simulated"), [(0.9, 0.3, 0.046), (0.6, 0.2, 0.195)])
def test_misranking_figures_are_those_of_the_simulation(strong: float, weak: float, simulated: float) -> None:
    steps, draws = 40, 40_000
    p = (strong + Streams(2).stream("p").standard_normal((draws, steps))) ** 2
    q = (weak + Streams(2).stream("q").standard_normal((draws, steps))) ** 2
    rate = float((q.mean(1) >= p.mean(1)).mean())
    # Standard error below 0.002.
    assert rate == pytest.approx(simulated, abs=0.008)
    arguments = ([strong] * steps, [weak] * steps, 1.0)
    assert misranking_clt(*arguments) == pytest.approx(rate, abs=0.01)
    assert misranking_chernoff(*arguments) >= rate
    assert misranking_cantelli(*arguments) >= rate


def test_misranking_falls_with_the_length_of_the_warmup() -> None:
    rates = [misranking_clt([0.5] * t, [0.2] * t, 1.0) for t in (10, 40, 160)]
    assert rates == sorted(rates, reverse=True)


def test_ranking_quality_of_exact_scores_is_perfect() -> None:
    gradient = np.linspace(1, 0.01, 50)
    pairs = Streams(0).stream("pairs").integers(0, 10, (500, 2))
    quality = ranking_quality(gradient**2, gradient, np.arange(10), 1e-6, 10, pairs)
    assert quality.misranked == 0.0
    assert quality.overlap == 1.0
    assert quality.chance_overlap == 0.2


def test_measured_misranking_agrees_with_the_prediction() -> None:
    d, k, steps, nu = 2000, 200, 30, 0.5
    gradient = np.linspace(1.0, 0.0, d)
    scores = ((gradient + nu * Streams(3).stream("n").standard_normal((steps, d))) ** 2).mean(0) - nu**2
    pairs = np.stack(
        [Streams(3).stream("a").integers(0, k, 8000), Streams(3).stream("b").integers(0, d - k, 8000)], 1
    )
    quality = ranking_quality(scores, gradient, np.argsort(-scores)[:k], nu, steps, pairs)
    # Pairs share coordinates, so the spread is that of some hundred independent scores: about 0.01.
    assert quality.misranked == pytest.approx(quality.predicted, abs=0.04)


def test_wrong_order_and_sizes_are_refused() -> None:
    with pytest.raises(SfumatoError, match="comes first"):
        misranking_clt([0.1], [0.2], 1.0)
    with pytest.raises(SfumatoError, match="equal lengths"):
        misranking_clt([0.1, 0.2], [0.2], 1.0)
    with pytest.raises(SfumatoError, match="active"):
        restriction_benefit(1.0, 10, 11, 0.1)


def test_small_noise_energies_keep_their_digits() -> None:
    assert noise_energy(1000, 1e-9) == pytest.approx(1e-15, rel=1e-12)


@pytest.mark.parametrize("figure", [misranking_clt, misranking_chernoff, misranking_cantelli])
def test_misranking_without_noise_is_refused(figure: Callable[..., float]) -> None:
    with pytest.raises(SfumatoError, match=r"noise_std is 0.0; allowed is a number above 0"):
        figure([0.9] * 3, [0.3] * 3, 0.0)
