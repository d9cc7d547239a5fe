"""Clipping of plain vectors to a Euclidean norm, which is what bounds one person's contribution.

>>> import numpy as np
>>> clip_to_norm(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0]]), clip_norm=1.0).round(3)
array([[0.6, 0.8],
       [0.3, 0.4],
       [0. , 0. ]])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.checks import is_number
from sfumato.errors import SfumatoError

SMALLEST_CLIP_NORM: Final = 1e-30
LARGEST_CLIP_NORM: Final = 1e30

Vectors = TypeVar("Vectors", torch.Tensor, NDArray[np.float32], NDArray[np.float64])


def checked_clip_norm(clip_norm: float) -> float:
    """The clip norm as a float, if it is one that a float32 gradient can be clipped to.

    Args:
        clip_norm: the bound on one example's Euclidean norm, a public number.

    Raises:
        SfumatoError: if it is not a number between 1e-30 and 1e30.
    """
    allowed = f"allowed is a number between {SMALLEST_CLIP_NORM:g} and {LARGEST_CLIP_NORM:g}"
    if not is_number(clip_norm):
        raise SfumatoError(f"clip_norm is {clip_norm!r}; {allowed}.")
    if not SMALLEST_CLIP_NORM <= clip_norm <= LARGEST_CLIP_NORM:
        raise SfumatoError(f"clip_norm is {float(clip_norm)!r}; {allowed}.")
    return float(clip_norm)


def clip_factors(norms: torch.Tensor, clip_norm: float) -> torch.Tensor:
    """What each vector is to be multiplied by: min(1, clip_norm / norm), and 0 where the norm is not finite.

    Args:
        norms: Tensor[B], Euclidean norms, float64.
        clip_norm: the bound, between 1e-30 and 1e30.

    Returns:
        Tensor[B] in [0, 1], float64. A vector of norm zero has factor 1.
    """
    factors = (checked_clip_norm(clip_norm) / norms).clamp(max=1.0)
    return torch.where(torch.isfinite(norms), factors, torch.zeros_like(factors))


def clip_to_norm(vectors: Vectors, clip_norm: float) -> Vectors:
    """Scale each row down to at most the given Euclidean norm; a row with a NaN or infinity becomes zeros.

    Norms are measured in float64. A row that is scaled is scaled by four units of rounding too much, so
    that its norm after rounding to the row's own dtype is still at most ``clip_norm``. Every row goes
    through the same operations, whatever it holds.

    Guarantee: each returned row has Euclidean norm at most ``clip_norm``, so that the sum of the rows
    changes by at most ``clip_norm`` (up to rounding of the sum) when one row is added or removed.

    Args:
        vectors: (B, d) tensor or array of float32 or float64; B and d may be 0.
        clip_norm: the bound, between 1e-30 and 1e30.

    Returns:
        A new (B, d) tensor or array of the same type and dtype.

    Raises:
        SfumatoError: if ``clip_norm`` is outside of its range or ``vectors`` is not a float matrix.
    """
    if isinstance(vectors, np.ndarray):
        array = cast("NDArray[Any]", vectors)
        if str(array.dtype) not in ("float32", "float64"):
            raise SfumatoError(f"vectors have dtype {array.dtype}; allowed are float32 and float64.")
        return cast("Vectors", _clip_rows(torch.as_tensor(np.array(array)), clip_norm).numpy())
    return _clip_rows(vectors, clip_norm)


def _clip_rows(vectors: torch.Tensor, clip_norm: float) -> torch.Tensor:
    if vectors.dtype not in (torch.float32, torch.float64):
        raise SfumatoError(f"vectors have dtype {vectors.dtype}; allowed are float32 and float64.")
    if vectors.ndim != 2:
        raise SfumatoError(f"vectors have shape {tuple(vectors.shape)}; allowed is (rows, coordinates).")
    norms = row_norms(vectors)
    factors = clip_factors(norms, clip_norm)
    slack = 1.0 - 4.0 * torch.finfo(vectors.dtype).eps
    factors = torch.where(factors < 1.0, factors * slack, factors)
    safe = torch.where(torch.isfinite(norms)[:, None], vectors, torch.zeros_like(vectors))
    return (safe.double() * factors[:, None]).to(vectors.dtype)


def row_norms(vectors: torch.Tensor) -> torch.Tensor:
    """Tensor[B] of Euclidean norms of a (B, d) tensor, accumulated and returned in float64."""
    return vector_norm(vectors, dtype=torch.float64)


def vector_norm(values: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Euclidean norms over the last dimension, accumulated and returned in ``dtype`` (the values' own if None)."""
    norm = cast("Callable[..., torch.Tensor]", torch.linalg.vector_norm)  # pyright: ignore[reportUnknownMemberType]
    return norm(values, dim=-1, dtype=dtype)
