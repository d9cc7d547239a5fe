"""The rule for Embedding: an example's gradient has only the rows of the ids that it reads.

>>> part = EmbeddingPart((5, 2), None, padding=None)
>>> squares = torch.zeros(1, dtype=torch.float64)
>>> part.observe((torch.tensor([[3, 3]]),), torch.ones(1, 2, 2), squares)
>>> squares.round()
tensor([8.], dtype=torch.float64)
"""

from __future__ import annotations

from typing import Any, cast

import torch

from sfumato.clipping import vector_norm
from sfumato.dpsgd.layer_rules import Inputs, safe, working


class EmbeddingPart:
    """The table of an Embedding; ids that occur more than once in an example are summed first."""

    def __init__(self, shape: tuple[int, int], local: torch.Tensor | None, padding: int | None) -> None:
        """Prepare one sum.

        Args:
            shape: rows and width of the table.
            local: its active coordinates, None for all.
            padding: the id whose row has no gradient, or None.
        """
        self._shape, self._local, self._padding = shape, local, padding
        self._mask: torch.Tensor | None = None
        if local is not None:
            self._mask = torch.zeros(shape, dtype=torch.bool)
            self._mask.view(-1)[local] = True
        self._held: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        self._sum: torch.Tensor | None = None

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """Sum the output gradients of equal ids of an example, mask them and add their squares."""
        ids = inputs[0].reshape(len(gradient), -1).long()
        flat = working(gradient).reshape(-1, self._shape[1])
        example = torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids)
        found = cast(
            "tuple[torch.Tensor, torch.Tensor]",
            cast(Any, torch.unique)(example * self._shape[0] + ids, return_inverse=True),
        )
        keys, place = found
        values = flat.new_zeros(len(keys), self._shape[1]).index_add_(0, place.reshape(-1), flat)
        owner = torch.div(keys, self._shape[0], rounding_mode="floor")
        row = keys % self._shape[0]
        if self._padding is not None:
            values = values.masked_fill((row == self._padding % self._shape[0])[:, None], 0.0)
        if self._mask is not None:
            self._mask = self._mask.to(row.device)
            values = values.masked_fill(~self._mask.index_select(0, row), 0.0)
        squares.index_add_(0, owner, vector_norm(values, torch.float64).square())
        self._held = (values, owner, row)

    def add(self, weights: torch.Tensor, broken: torch.Tensor) -> None:
        """Add the weighted rows to the table of sums."""
        if self._held is None:
            return
        (values, owner, row), self._held = self._held, None
        if self._sum is None:
            self._sum = values.new_zeros(self._shape, dtype=torch.float64)
        scaled = safe(values, broken[owner]).double() * weights[owner][:, None]
        self._sum.index_add_(0, row, scaled)

    def result(self) -> torch.Tensor:
        """The sum at the active coordinates; of length 0 if nothing was added."""
        if self._sum is None:
            return torch.zeros(0, dtype=torch.float64)
        flat = self._sum.view(-1)
        return flat if self._local is None else flat.index_select(0, self._local.to(flat.device))
