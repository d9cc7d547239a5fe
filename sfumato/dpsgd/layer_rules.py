"""What a rule for per-example gradients does: norms during the backward pass, the weighted sum afterwards.

>>> import torch
>>> part = ValuesPart(lambda inputs, gradient: gradient, torch.tensor([1]))
>>> squares = torch.zeros(2, dtype=torch.float64)
>>> part.observe((), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), squares)
>>> part.add(torch.tensor([1.0, 0.5]).double(), torch.tensor([False, False]))
>>> squares, part.result()
(tensor([ 4., 16.], dtype=torch.float64), tensor([4.], dtype=torch.float64))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from sfumato.dpsgd.rows import DenseRows, Rows

Inputs = tuple[torch.Tensor, ...]
Compute = Callable[[Inputs, torch.Tensor], torch.Tensor]


class Part(Protocol):
    """The active coordinates of one parameter, during one clipped sum."""

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """See a layer's inputs and the loss gradient at its output, both Tensor[N, ...], of one micro-batch.

        Args:
            inputs: the layer's arguments; not to be written to.
            gradient: the loss's gradient at the layer's output; not to be written to.
            squares: Tensor[N], float64; each example's squared norm is added in place.
        """
        ...

    def add(self, weights: torch.Tensor, broken: torch.Tensor) -> None:
        """Add what was observed, times weights Tensor[N], float64; examples where ``broken`` count as zero."""
        ...

    def result(self) -> torch.Tensor:
        """Tensor[k]: the sum of all that was added, in the order of the parameter's coordinates."""
        ...


def working(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the precision that gradients are computed in: float32 for half precision, else its own."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


class ValuesPart:
    """Per-example gradients that are held as a matrix; what computes them is given."""

    def __init__(self, compute: Compute, local: torch.Tensor | None) -> None:
        """Take gradients (N, ...) from ``compute`` and keep the coordinates ``local``, or all."""
        self._compute, self._local = compute, local
        self._rows: Rows | None = None
        self._sum: torch.Tensor | None = None

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """Compute the gradients and add their squares."""
        values = self._compute(tuple(working(part) for part in inputs), working(gradient)).flatten(1)
        self._rows = DenseRows(values, self._local)
        squares += self._rows.squares(exact=False)

    def add(self, weights: torch.Tensor, broken: torch.Tensor) -> None:
        """Add the weights times the matrix, and let go of it."""
        if self._rows is None:
            return
        part = self._rows.weighted_sum(weights, broken)
        self._rows = None
        self._sum = part.double() if self._sum is None else self._sum.add_(part)

    def result(self) -> torch.Tensor:
        """The sum; of length 0 if nothing was added."""
        return torch.zeros(0, dtype=torch.float64) if self._sum is None else self._sum


def safe(tensor: torch.Tensor, broken: torch.Tensor) -> torch.Tensor:
    """The tensor, with zeros in the place of examples whose gradient is not finite."""
    return tensor.masked_fill(broken.view(-1, *[1] * (tensor.ndim - 1)), 0.0)
