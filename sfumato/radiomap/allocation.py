"""A budget of noise energy, parted among groups of weights: shares, energies, deviations, closed forms.

>>> import numpy as np
>>> sizes = np.array([100, 900])
>>> shares = size_shares(sizes)
>>> sigmas = deviations(shares, energy_budget(nu=3.0, clip_norm=0.5), sizes)
>>> sigmas.round(4).tolist(), round(float(energies(sigmas, sizes).sum()), 12)
([0.0474, 0.0474], 2.25)
>>> optimal_shares(np.array([0.4, 0.3]), sizes).round(3).tolist()
[0.308, 0.692]

The budget is E||noise||^2 = (nu C)^2 with a public clip norm C (Section 3.4 of docs/papers.md): group g of d_g
coordinates with share p_g gets the energy p_g (nu C)^2, that is sigma_g^2 = p_g (nu C)^2 / d_g per coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer, is_number
from sfumato.clipping import checked_clip_norm
from sfumato.errors import SfumatoError
from sfumato.radiomap.partition import Partition
from sfumato.rng import RandomStream

FloatArray = NDArray[np.float64]

LARGEST_NU: Final = 1e12
_SUM_TOLERANCE: Final = 1e-9


def energy_budget(nu: float, clip_norm: float) -> float:
    """(nu C)^2, the expected squared norm of the noise, in squared units of the upload.

    Args:
        nu: the noise multiplier of the paper, from 0 to 1e12.
        clip_norm: C, a public number.

    Raises:
        SfumatoError: if a number is outside of its range.
    """
    if not is_number(nu) or not 0.0 <= nu <= LARGEST_NU:
        raise SfumatoError(f"nu is {nu!r}; allowed is a number from 0 to {LARGEST_NU:g}.")
    return (float(nu) * checked_clip_norm(clip_norm)) ** 2


def size_shares(sizes: NDArray[np.int64]) -> FloatArray:
    """(G,) float64, d_g / d: the shares with which every coordinate gets the same noise."""
    return sizes.astype(np.float64) / float(sizes.sum())


def checked_shares(shares: NDArray[Any], groups: int) -> FloatArray:
    """The shares as float64.

    Raises:
        SfumatoError: if they are not (G,) numbers of at least 0 with sum 1.
    """
    values = np.asarray(shares, np.float64)
    if values.shape != (groups,):
        raise SfumatoError(f"shares has shape {values.shape}; allowed is ({groups},), one per group.")
    if not bool(np.all(values >= 0.0)) or not abs(float(values.sum()) - 1.0) <= _SUM_TOLERANCE:
        raise SfumatoError(f"shares are {values.tolist()}; allowed are numbers of at least 0 with sum 1.")
    return values


def softmax(logits: NDArray[Any]) -> FloatArray:
    """exp(l_g) / sum exp(l), of shape (..., G), float64."""
    shifted = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), np.float64)


def with_floor(shares: FloatArray, floor: float, sizes: NDArray[np.int64]) -> FloatArray:
    """The shares floor d_g / d + (1 - floor) p_g: no coordinate's sigma falls under sqrt(floor) times the uniform one.

    Args:
        shares: (G,), of sum 1.
        floor: the share of the energy that is spread evenly over all coordinates, in (0, 1].
        sizes: (G,) d_g.

    Raises:
        SfumatoError: if the floor is out of its range.
    """
    return check_floor(floor) * size_shares(sizes) + (1.0 - floor) * shares


def check_floor(floor: float) -> float:
    """The floor as a float.

    Raises:
        SfumatoError: if it is not in (0, 1].
    """
    if not is_number(floor) or not 0.0 < floor <= 1.0:
        raise SfumatoError(f"floor is {floor!r}; allowed is a number above 0 and up to 1.")
    return float(floor)


def deviations(shares: FloatArray, budget: float, sizes: NDArray[np.int64]) -> FloatArray:
    """(G,) sigma_g = sqrt(p_g B / d_g) per coordinate; the sum of d_g sigma_g^2 is the budget B."""
    return np.sqrt(shares * budget / sizes)


def energies(sigmas: FloatArray, sizes: NDArray[np.int64]) -> FloatArray:
    """(G,) d_g sigma_g^2, the expected squared norm of each group's noise."""
    return sizes.astype(np.float64) * np.square(sigmas)


def optimal_shares(group_clips: NDArray[Any], sizes: NDArray[np.int64]) -> FloatArray:
    """(G,) shares C_g sqrt(d_g) / sum, that is sigma_g^2 proportional to C_g / sqrt(d_g).

    Among all data-free allocations under group clips C_g they spend the least energy at a given mu (Section 3.5 of
    docs/papers.md): minimise sum d_g sigma_g^2 subject to sum C_g^2 / sigma_g^2 = mu^2.

    Args:
        group_clips: (G,) C_g above 0, public numbers.
        sizes: (G,) d_g.

    Raises:
        SfumatoError: if the clips are not (G,) numbers above 0.
    """
    weights = checked_group_clips(group_clips, sizes.size) * np.sqrt(sizes)
    return weights / weights.sum()


def checked_group_clips(group_clips: NDArray[Any], groups: int) -> FloatArray:
    """The clips as float64.

    Raises:
        SfumatoError: if they are not (G,) clip norms.
    """
    values = np.asarray(group_clips, np.float64)
    if values.shape != (groups,):
        raise SfumatoError(f"group_clips has shape {values.shape}; allowed is ({groups},), one per group.")
    return np.array([checked_clip_norm(float(value)) for value in values], np.float64)


def energy_ratio(group_clips: NDArray[Any], sizes: NDArray[np.int64]) -> float:
    """Energy of the optimal shares over that of one common sigma, at the same group clips and mu; at most 1.

    (sum C_g sqrt(d_g))^2 / (d sum C_g^2), 1 where C_g is proportional to sqrt(d_g).

    Raises:
        SfumatoError: if the clips are not (G,) numbers above 0.
    """
    clips = checked_group_clips(group_clips, sizes.size)
    return float((clips @ np.sqrt(sizes)) ** 2 / (float(sizes.sum()) * (clips @ clips)))


def utility_costs(
    loss: Callable[[FloatArray], float],
    weights: FloatArray,
    partition: Partition,
    energy: float,
    draws: int,
    stream: RandomStream,
) -> FloatArray:
    """What a unit of noise energy on each group costs the model: (L(w + n) + L(w - n)) / 2 - L(w), over ||n||^2.

    Antithetic, so that the loss's slope cancels and the curvature, which is what noise costs, remains.

    Args:
        loss: mean loss of a flat weight vector (d,) on public data.
        weights: (d,) where it is measured.
        partition: the groups.
        energy: E||n||^2 on one group, in squared units of the weights, above 0.
        draws: pairs of noise vectors per group, at least 1.
        stream: of the noise.

    Returns:
        (G,) float64, the mean over draws in units of the loss per unit of energy; may be negative where the noise
        helped by chance.

    Raises:
        SfumatoError: if a number is out of its range or a loss is not finite.
    """
    if not is_number(energy) or not 0.0 < energy < math.inf:
        raise SfumatoError(f"energy is {energy!r}; allowed is a finite number above 0.")
    if not is_integer(draws) or draws < 1:
        raise SfumatoError(f"draws is {draws!r}; allowed is an integer of at least 1.")
    at = partition.check(weights)
    base, found = loss(at), np.zeros(partition.count)
    for number, group in enumerate(partition.groups):
        sigma = math.sqrt(energy / group.size)
        for _draw in range(draws):
            noise = sigma * stream.standard_normal(group.size)
            above, below = at.copy(), at.copy()
            above[group.index] += noise
            below[group.index] -= noise
            found[number] += ((loss(above) + loss(below)) / 2.0 - base) / float(noise @ noise)
    if not bool(np.isfinite(found).all()):
        raise SfumatoError(
            "a loss under noise is not finite; allowed are finite losses, so take less energy."
        )
    return found / draws
