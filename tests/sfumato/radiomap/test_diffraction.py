"""Free space and knife edges against textbook values, Fresnel integrals and geometry."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import fresnel

from sfumato.radiomap.diffraction import (
    NO_LOSS,
    equivalent_edge,
    free_space_gain,
    knife_edge_loss,
    knife_edge_parameter,
    wavelength,
)


@pytest.mark.parametrize(("distance", "frequency"), [(1.0, 1e9), (1000.0, 5.9e9), (25.0, 28e9)])
def test_free_space_has_the_textbook_loss(distance: float, frequency: float) -> None:
    textbook = 32.45 + 20 * np.log10(frequency / 1e6) + 20 * np.log10(distance / 1000.0)
    assert float(free_space_gain(distance, wavelength(frequency))) == pytest.approx(-textbook, abs=0.01)


def test_free_space_never_amplifies() -> None:
    assert float(free_space_gain(1e-6, 0.05)) == 0.0


@pytest.mark.parametrize(
    ("parameter", "loss"), [(-0.78, 0.0), (0.0, 6.02), (1.0, 13.5), (2.4, 20.6), (10.0, 32.95)]
)
def test_a_knife_edge_has_the_textbook_loss(parameter: float, loss: float) -> None:
    assert float(knife_edge_loss(parameter)) == pytest.approx(loss, abs=0.5)


def test_the_approximation_is_within_half_a_decibel_of_fresnels_integral() -> None:
    parameter = np.linspace(NO_LOSS, 30.0, 2000)
    sine, cosine = fresnel(parameter)
    exact = -20 * np.log10(np.hypot(1 - cosine - sine, cosine - sine) / 2)
    assert np.abs(knife_edge_loss(parameter) - exact).max() < 0.5


def test_the_loss_rises_with_the_edge_and_is_never_negative() -> None:
    loss = knife_edge_loss(np.linspace(-5.0, 50.0, 5000))
    assert loss.min() == 0.0
    assert (np.diff(loss) >= 0).all()


def test_the_parameter_counts_fresnel_zones() -> None:
    """An edge on the rim of the first Fresnel zone, sqrt(wave d1 d2 / (d1 + d2)) off the line, has nu = sqrt 2."""
    radius = np.sqrt(0.05 * 40.0 * 60.0 / 100.0)
    assert float(knife_edge_parameter(radius, 40.0, 60.0, 0.05)) == pytest.approx(np.sqrt(2.0))
    assert float(knife_edge_parameter(-radius, 60.0, 40.0, 0.05)) == pytest.approx(-np.sqrt(2.0))


def test_one_obstacle_is_its_own_equivalent_edge() -> None:
    """Antennas at 2 and 6 m, 10 steps apart, an obstacle of 9 m at step 4: 9 - (2 + 4 * .4) = 5.4 m above the line."""
    place, height = equivalent_edge(np.array([7 / 4]), np.array([3 / 6]), np.array([0.4]), np.array([10.0]))
    assert place[0] == pytest.approx(4.0)
    assert height[0] == pytest.approx(5.4)


def test_two_obstacles_meet_above_both() -> None:
    """Equal walls of 10 m at steps 2 and 8 of 10, antennas on the ground: the rays of slope 5 meet at 25 m in the middle."""
    place, height = equivalent_edge(np.array([5.0]), np.array([5.0]), np.array([0.0]), np.array([10.0]))
    assert (place[0], height[0]) == (5.0, 25.0)


def test_an_obstacle_that_touches_the_line_is_an_edge_of_no_height() -> None:
    place, height = equivalent_edge(np.array([0.4]), np.array([-0.4]), np.array([0.4]), np.array([10.0]))
    assert (place[0], height[0]) == (5.0, 0.0)
