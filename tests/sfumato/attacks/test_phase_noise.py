from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from sfumato.attacks.phase_noise import arcsine_gaussian_information, noise_moments, noise_shape
from sfumato.errors import SfumatoError
from tests.sfumato.attacks.modulated_messages import deviations, stream

RATIOS = [0.0, 1e-6, 0.1, 0.5, 1.0, 2.0, 5.0, 30.0, 100.0, 1e4]


def by_phases(u: float, ratio: float, nodes: int = 400_000):
    """Log f, -E[z] and Var[z] - 1 by the midpoint rule over the phase, far finer than any peak for r <= 1e4."""
    z = u - ratio * np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
    least = np.min(z**2)
    mass = np.exp(-0.5 * (z**2 - least))
    mean = np.average(z, weights=mass)
    log_density = math.log(mass.mean()) - 0.5 * least - 0.5 * math.log(2 * math.pi)
    return log_density, -mean, np.average((z - mean) ** 2, weights=mass) - 1.0


@pytest.mark.parametrize("ratio", RATIOS)
def test_density_and_derivatives_are_those_of_the_mixture_over_phases(ratio):
    # The middle, both sides of the edge, the far tail, and where table and quadrature meet (r - 64, r + 16).
    places = [0.0, 0.37 * ratio, ratio - 64.01, ratio - 63.98, ratio - 1.3, ratio, ratio + 2.2, ratio + 15.98]
    places = np.array([u for u in [*places, ratio + 16.03, ratio + 90.0] if u >= 0.0])
    found = noise_moments(places, ratio, 1.0)
    wanted = np.array([by_phases(u, ratio) for u in places])
    np.testing.assert_allclose(found.log_density, wanted[:, 0], rtol=1e-12, atol=2e-9)
    np.testing.assert_allclose(found.score, wanted[:, 1], rtol=1e-10, atol=1e-7)
    np.testing.assert_allclose(found.curvature, wanted[:, 2], atol=3e-6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.floats(-40.0, 40.0), st.floats(0.0, 20.0), st.floats(0.01, 50.0))
def test_density_is_even_and_scales_with_its_units(value, amplitude, sigma):
    here = noise_moments(np.array([value, -value]), amplitude, sigma)
    unit = noise_moments(value / sigma, amplitude / sigma, 1.0)
    assert (
        here.log_density[0] == here.log_density[1] == pytest.approx(float(unit.log_density) - math.log(sigma))
    )
    assert here.score[0] == -here.score[1] == pytest.approx(float(unit.score) / sigma)
    assert here.curvature[0] == here.curvature[1] == pytest.approx(float(unit.curvature) / sigma**2)


@pytest.mark.parametrize("ratio", [0.3, 2.0, 12.0])
def test_density_has_mass_one_and_the_variance_of_cosine_plus_gaussian(ratio):
    grid = np.linspace(-ratio - 15, ratio + 15, 40_001)
    density = np.exp(noise_moments(grid, ratio, 1.0).log_density)
    step = grid[1] - grid[0]
    assert density.sum() * step == pytest.approx(1.0, abs=1e-9)
    assert (density * grid**2).sum() * step == pytest.approx(1.0 + ratio**2 / 2, rel=1e-9)


def test_information_is_that_of_the_papers_table():
    for ratio, wanted in ((0.0, 1.0), (0.5, 0.889), (1.0, 0.671), (2.0, 0.403), (5.0, 0.252)):
        assert arcsine_gaussian_information(3.0 * ratio, 3.0) * 9.0 == pytest.approx(wanted, abs=5e-4)


@pytest.mark.parametrize("ratio", [0.2, 1.0, 3.0, 17.0])
def test_information_is_the_mean_squared_score_by_adaptive_quadrature(ratio):
    def integrand(u):
        log_density, score, _ = by_phases(u, ratio, 4000)
        return math.exp(log_density) * score**2

    wanted, _ = integrate.quad(integrand, 0.0, ratio + 12.0, points=[ratio], limit=200, epsabs=1e-9)
    assert arcsine_gaussian_information(ratio, 1.0) == pytest.approx(2 * wanted, abs=1e-8)


@pytest.mark.parametrize("ratio", [0.5, 4.0, 40.0])
def test_information_is_the_mean_squared_score_of_drawn_noise_and_the_mean_score_is_zero(ratio):
    # Two z-tests each, false-alarm rate below 1e-5 by the normal law at 4.5 standard errors.
    random = stream(3, f"noise {ratio}")
    noise = ratio * np.cos(2 * np.pi * random.random(100_000)) + random.standard_normal(100_000)
    score = noise_moments(noise, ratio, 1.0).score
    assert abs(deviations(score**2, arcsine_gaussian_information(ratio, 1.0))) < 4.5
    assert abs(deviations(score, 0.0)) < 4.5


def test_information_is_stable_at_the_extremes():
    for ratio in (1e-6, 1e-4, 1e-2):
        assert 1 - arcsine_gaussian_information(ratio, 1.0) == pytest.approx(
            ratio**2 / 2, rel=1e-3, abs=2e-15
        )
    # Far out the edges hold all of the information, in a share of the mass that falls as 1 / sqrt(r).
    edge = [arcsine_gaussian_information(ratio, 1.0) * math.sqrt(ratio) for ratio in (1e3, 1e4, 1e6)]
    assert edge == pytest.approx([edge[2]] * 3, rel=2e-4)
    assert arcsine_gaussian_information(1e4 * 1e-7, 1e-7) == pytest.approx(edge[1] / 1e2 * 1e14, rel=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(0.0, 1e4), st.floats(1e-3, 1e3))
def test_information_lies_between_that_of_all_variance_as_gaussian_and_of_the_gaussian_alone(ratio, sigma):
    information = arcsine_gaussian_information(ratio * sigma, sigma) * sigma**2
    assert 1 / (1 + ratio**2 / 2) - 1e-12 <= information <= 1.0 + 1e-12


def test_information_falls_with_the_amplitude():
    values = [arcsine_gaussian_information(ratio, 1.0) for ratio in np.geomspace(1e-3, 1e4, 60)]
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("ratio", RATIOS)
def test_shape_bounds_the_curvature_and_gives_the_likeliest_noise(ratio):
    mode, excess = noise_shape(2.0 * ratio, 2.0)
    values = stream(0).random(20_000) * (ratio + 5.0)
    found = noise_moments(values, ratio, 1.0)
    assert float(found.curvature.max()) <= excess
    assert float(noise_moments(mode / 2.0, ratio, 1.0).log_density) >= found.log_density.max() - 1e-3
    assert (excess > 0) == (ratio >= 2.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: noise_moments(0.0, -1.0, 1.0), "amplitude"),
        (lambda: noise_moments(0.0, 1.0, 0.0), "sigma"),
        (lambda: noise_moments(np.nan, 1.0, 1.0), "finite"),
        (lambda: arcsine_gaussian_information(math.inf, 1.0), "amplitude"),
        (lambda: arcsine_gaussian_information(1.0, math.nan), "sigma"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        call()
    assert str(caught.value).count("\n") == 0
