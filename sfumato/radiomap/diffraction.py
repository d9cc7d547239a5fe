"""Free space and knife edges: the textbook losses that a path is made of.

>>> float(knife_edge_loss(0.0).round(2)), float(knife_edge_loss(1.0).round(2)), float(knife_edge_loss(-1.0))
(6.03, 13.93, 0.0)
>>> float(free_space_gain(100.0, wavelength(5.9e9)).round(1))
-87.9

Sources: free space, Recommendation ITU-R P.525; the knife edge's parameter and loss, Recommendation ITU-R P.526-15,
Section 4.1, Eqs. (26) and (31); several edges, Bullington's equivalent one, Section 4.5.1 there, without the term of irregular
terrain that is added to its loss there: that one was fitted to paths of many kilometres.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

SPEED_OF_LIGHT: Final = 299_792_458.0
"""Metres per second."""

NO_LOSS: Final = -0.78
"""The parameter below which Eq. (31) would give a gain."""


def wavelength(frequency: float) -> float:
    """Metres, of a frequency in Hz."""
    return SPEED_OF_LIGHT / frequency


def free_space_gain(distance: Any, wave: float) -> Values:
    """Path gain between isotropic antennas in free space, at most 0 dB (ITU-R P.525).

    Args:
        distance: metres, positive, of any shape.
        wave: the wavelength in metres.
    """
    ratio = 4.0 * np.pi / wave * np.asarray(distance, np.float64)
    return np.minimum(-20.0 * np.log10(ratio), 0.0)


def knife_edge_parameter(height: Any, first: Any, second: Any, wave: float) -> Values:
    """The parameter nu of an edge (ITU-R P.526, Eq. 26), without unit.

    Args:
        height: metres by which the edge stands above the straight line between the antennas; negative below it.
        first: metres from one antenna to the edge.
        second: metres from the edge to the other antenna.
        wave: the wavelength in metres.
    """
    near, far = np.asarray(first, np.float64), np.asarray(second, np.float64)
    return np.asarray(height, np.float64) * np.sqrt(2.0 * (near + far) / (wave * near * far))


def knife_edge_loss(parameter: Any) -> Values:
    """J(nu), the loss in dB that an edge adds to free space (ITU-R P.526, Eq. 31); 0 up to nu = -.78.

    Args:
        parameter: nu, of any shape.
    """
    nu = np.asarray(parameter, np.float64)
    above = np.maximum(nu, NO_LOSS) - 0.1
    return np.where(nu > NO_LOSS, 6.9 + 20.0 * np.log10(np.sqrt(above**2 + 1.0) + above), 0.0)


def equivalent_edge(
    from_start: Values, from_end: Values, direct: Values, length: Values
) -> tuple[Values, Values]:
    """Bullington's edge: where the steepest rays from both antennas over all obstacles meet (ITU-R P.526, 4.5.1).

    The steepest slopes are all that it needs of the obstacles, so it is the same seen from both ends.

    Args:
        from_start: (r,) the steepest rise from the first antenna to an obstacle, metres per step.
        from_end: (r,) the steepest rise from the second antenna to an obstacle, metres per step.
        direct: (r,) the rise from the first to the second antenna, metres per step, at most ``from_start``.
        length: (r,) steps between the antennas.

    Returns:
        the edge's place in steps from the first antenna, and its height above the straight line in metres.
    """
    opening = from_start + from_end
    with np.errstate(divide="ignore", invalid="ignore"):
        place = length * (direct + from_end) / opening
    # Rays that coincide meet everywhere: the obstacle touches the straight line.
    place = np.where(opening > 0.0, place, 0.5 * length)
    return place, place * (from_start - direct)
