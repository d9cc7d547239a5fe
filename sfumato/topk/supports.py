"""Choice of the support: which coordinates stay active, from scores or at random.

>>> import torch
>>> from sfumato.dpsgd import ParameterLayout
>>> from sfumato.rng import Streams
>>> layout = ParameterLayout.of(torch.nn.Linear(3, 2, bias=False))
>>> scores = torch.tensor([0.1, 0.9, 0.2, 0.8, 0.0, 0.3])
>>> choose_support(scores, 0.34, "global", layout, Streams(0).stream("ties")).indices.tolist()
[1, 3]
>>> choose_support(scores, 0.5, "rows", layout, Streams(0).stream("ties")).indices.tolist()
[0, 1, 2]
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.dpsgd import ParameterLayout, Support
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

SupportShape = Literal["global", "per_layer", "rows"]


def support_size(active_ratio: float, dimension: int) -> int:
    """K = floor(rho x d), at least 1 (Section 2.1 of docs/papers.md), with rho as it is written in decimals.

    >>> support_size(0.29, 100)  # in binary, 0.29 x 100 is below 29
    29
    """
    if not 0 < active_ratio <= 1:
        raise SfumatoError(f"active_ratio is {active_ratio}; allowed is a number above 0 and at most 1.")
    return max(1, math.floor(Decimal(str(float(active_ratio))) * dimension))


def _ranked(scores: NDArray[np.float64], stream: RandomStream) -> NDArray[np.int64]:
    """Indices from the largest score to the smallest."""
    order = stream.permutation(len(scores))
    return order[np.argsort(-scores[order], kind="stable")]


def _top(scores: NDArray[np.float64], count: int, stream: RandomStream) -> NDArray[np.int64]:
    """Indices of the ``count`` largest scores, ascending; ties are broken by a data-independent permutation."""
    return np.sort(_ranked(scores, stream)[:count])


def _rows(layout: ParameterLayout) -> list[NDArray[np.int64]]:
    """Flat indices of every row (first axis) of every parameter; a vector's entries go one by one."""
    rows: list[NDArray[np.int64]] = []
    for offset, shape in zip(layout.offsets, layout.shapes, strict=True):
        width = math.prod(shape[1:])
        rows += [
            offset + np.arange(row * width, (row + 1) * width) for row in range(shape[0] if shape else 1)
        ]
    return rows


def choose_support(
    scores: Tensor, active_ratio: float, shape: SupportShape, layout: ParameterLayout, stream: RandomStream
) -> Support:
    """The support of the highest scores.

    Guarantee:
        A function of the scores and of data-independent randomness; private when the scores are.

    Args:
        scores: Tensor[d], from privatised gradients.
        active_ratio: rho; the support holds floor(rho x d) coordinates (``rows``: whole rows up to that many).
        shape: ``global`` ranks all coordinates together, ``per_layer`` keeps the ratio and at least one
            coordinate in every parameter, ``rows`` keeps whole rows (output channels or neurons) by their mean score.
        layout: where each parameter lies in the flat vector.
        stream: breaks ties.

    Raises:
        SfumatoError: if scores do not match the layout or are not finite.
    """
    values = scores.detach().cpu().double().numpy()
    if values.shape != (layout.size,):
        raise SfumatoError(
            f"scores have shape {values.shape}; allowed is ({layout.size},), one per coordinate."
        )
    if not np.isfinite(values).all():
        raise SfumatoError("scores hold a value that is not finite; allowed are finite scores only.")
    budget = support_size(active_ratio, layout.size)
    if shape == "global":
        return Support.of(_top(values, budget, stream), layout.size)
    if shape == "per_layer":
        chosen = [
            offset
            + _top(
                values[offset : offset + math.prod(size)], support_size(active_ratio, math.prod(size)), stream
            )
            for offset, size in zip(layout.offsets, layout.shapes, strict=True)
        ]
        return Support.of(np.concatenate(chosen), layout.size)
    rows = _rows(layout)
    means = np.array([values[row].mean() for row in rows])
    whole: list[NDArray[np.int64]] = []
    used = 0
    for index in _ranked(means, stream):
        row = rows[int(index)]
        if len(row) > budget:
            continue
        if used + len(row) > budget:
            break  # going on with shorter rows would favour them over better ones
        whole.append(row)
        used += len(row)
    if not whole:
        raise SfumatoError(
            f"active_ratio is {active_ratio}, {budget} of {layout.size} coordinates; allowed with whole rows is "
            f"a ratio that holds at least one row ({min(len(row) for row in rows)} coordinates)."
        )
    return Support.of(np.concatenate(whole), layout.size)


def random_support(
    active_ratio: float, shape: SupportShape, layout: ParameterLayout, stream: RandomStream
) -> Support:
    """A support of the same shape chosen uniformly at random, without looking at any gradient.

    It holds as many coordinates as a chosen one; with ``rows``, whole rows up to the same number, so that the
    two sizes may differ by less than a row.
    """
    values = stream.random(layout.size)
    if shape == "rows":
        for row in _rows(layout):
            values[row] = values[row[0]]
    return choose_support(torch.from_numpy(values), active_ratio, shape, layout, stream)
