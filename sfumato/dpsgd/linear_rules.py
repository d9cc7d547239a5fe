"""Rules for Linear layers: norms without per-example gradients where the layer reads one row per example.

The gradient of one example is the outer product of output gradient g and input x, so that its masked squared norm
is sum over (o, i) of M[o, i] g[o]^2 x[i]^2, and that of whole rows is |g_rows|^2 |x|^2. The clipped sum is one
product over the batch. Squares are float32 only where none that matters to the clip norm can vanish there.

>>> part = OuterPart(OuterLayout("rank_one", (2, 3), None), None, False, Scratch())
>>> squares = torch.zeros(1, dtype=torch.float64)
>>> part.observe((torch.tensor([[1.0, 2.0, 2.0]]),), torch.tensor([[3.0, 4.0]]), squares)
>>> squares.sqrt()
tensor([15.], dtype=torch.float64)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from sfumato.clipping import vector_norm
from sfumato.dpsgd.kernel_layout import LANES, rows_of
from sfumato.dpsgd.layer_rules import Inputs, safe, working
from sfumato.dpsgd.scratch import Scratch

_LARGE = 1e6
"""Numbers up to this are squared in float32: what vanishes there is below 1e-13, and no clip norm here is so small."""
LONG = 4096
"""Longer rows are squared in float64: sums of so many float32 numbers lose digits."""
_LARGE_BITS = int(np.float32(_LARGE).view(np.int32))
"""The bits of that number: numbers without sign are ordered as their bits are."""
WIDE_BELOW = 1e-4
"""Below such clip norms, squares are float64 in any case."""
_CANCELLED = 1e-8
"""Ghost norms whose square is a smaller part than this of what it could be have lost digits; they are formed anew."""


@dataclass(frozen=True, eq=False)
class OuterLayout:
    """The active coordinates of a Linear weight; it can be used for many sums.

    Attributes:
        kind: ``rank_one`` (whole rows), ``masked`` or ``sampled`` (needs kernels).
        shape: the weight's.
        local: its active coordinates, None for all.
    """

    kind: str
    shape: tuple[int, int]
    local: torch.Tensor | None

    @cached_property
    def coordinates(self) -> torch.Tensor:
        """The active coordinates."""
        return torch.arange(self.shape[0] * self.shape[1]) if self.local is None else self.local

    @cached_property
    def _rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return rows_of(self.coordinates.numpy(), self.shape[1])

    @cached_property
    def rows(self) -> torch.Tensor:
        """The rows that the active coordinates lie in."""
        return torch.from_numpy(self._rows[0])

    @property
    def begin(self) -> NDArray[np.int64]:
        """Where among the coordinates each row begins."""
        return self._rows[1]

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """The column of each active coordinate."""
        return self.coordinates.numpy() % self.shape[1]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where the column of each active coordinate lies among vectors of 16 numbers, in bytes."""
        return self.columns * (4 * LANES)

    @cached_property
    def mask(self) -> torch.Tensor:
        """Tensor[R, I], float32: ones at the active coordinates of the rows."""
        mask = torch.zeros(self.shape[0] * self.shape[1]).index_fill_(0, self.coordinates, 1.0)
        return mask.view(self.shape).index_select(0, self.rows)

    @cached_property
    def places(self) -> torch.Tensor:
        """Where in the product over the rows each active coordinate stands."""
        row = torch.searchsorted(self.rows, torch.div(self.coordinates, self.shape[1], rounding_mode="floor"))
        return row * self.shape[1] + self.coordinates % self.shape[1]


class OuterPart:
    """A weight of a layer that reads one row per example."""

    def __init__(self, layout: OuterLayout, kernels: Any, wide: bool, scratch: Scratch) -> None:
        """Prepare one sum.

        Args:
            layout: the active coordinates and the kind of rule.
            kernels: the module of compiled kernels, or None.
            wide: whether to square in float64 in any case.
            scratch: memory of the kernels.
        """
        self._layout, self._kernels, self._wide, self._scratch = layout, kernels, wide, scratch
        self._taken = list[torch.Tensor]()
        self._held: Inputs = ()
        self._sum: torch.Tensor | None = None

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """Keep output gradients and inputs, and add the squared norms."""
        x, g, layout = working(inputs[0].detach()), working(gradient), self._layout
        if layout.kind == "sampled":
            self._sample(x, g, squares)
            return
        narrow = not self._wide and x.dtype == torch.float32 and _moderate(x) and _moderate(g)
        if len(layout.rows) < layout.shape[0]:
            g = g.index_select(1, layout.rows.to(g.device))
        self._held = (x, g)
        if not narrow:
            x, g = x.double(), g.double()
        if layout.kind == "rank_one":
            squares += _squared_norms(g) * _squared_norms(x)
        else:
            squares += _masked(x, g, layout.mask.to(g.device))

    def _sample(self, x: torch.Tensor, g: torch.Tensor, squares: torch.Tensor) -> None:
        """Keep both with the examples innermost, and add the squared norms."""
        layout, held, moderate = self._layout, list[torch.Tensor](), not self._wide
        for rows in (x, g):
            lanes = -(-len(rows) // LANES) * LANES
            self._taken.append(self._scratch.take(rows.shape[1] * lanes))
            out = self._taken[-1][: rows.shape[1] * lanes].view(-1, lanes)
            bits = self._kernels.transposed(rows.contiguous().numpy(), out.numpy())
            moderate = moderate and bits <= _LARGE_BITS
            held.append(out)
        self._held = tuple(held)
        if moderate:
            scratch = torch.empty(x.shape[1] * LANES, dtype=torch.float32).numpy()
            arrays = (*(part.numpy() for part in held), layout.rows.numpy(), layout.begin, layout.offsets)
            self._kernels.linear_squares(*arrays, scratch, squares.numpy())
        else:
            squares += _masked(x.double(), g.double().index_select(1, layout.rows), layout.mask)

    def add(self, weights: torch.Tensor, broken: torch.Tensor) -> None:
        """Add one product over the examples."""
        if not self._held:
            return
        (x, g), self._held = self._held, ()
        layout, any_broken = self._layout, bool(broken.any())
        weights = weights.to(g.dtype)
        if layout.kind == "sampled":
            if len(layout.rows) < layout.shape[0]:
                g = g.index_select(0, layout.rows)
            beyond = (0, x.shape[1] - len(weights))
            g.mul_(functional.pad(weights, beyond))
            if any_broken:
                lost = functional.pad(broken, beyond)
                g, x = g.masked_fill(lost, 0.0), x.masked_fill(lost, 0.0)
            part = torch.empty(len(layout.coordinates), dtype=torch.float32)
            offsets = layout.columns * x.shape[1]
            self._kernels.sampled_dots(g.numpy(), x.view(-1).numpy(), layout.begin, offsets, part.numpy())
            self._sum = part if self._sum is None else self._sum.add_(part)
            self._scratch.give(*self._taken)
            self._taken.clear()
            return
        g = g * weights[:, None]
        if any_broken:
            g, x = safe(g, broken), safe(x, broken)
        self._sum = g.t() @ x if self._sum is None else self._sum.addmm_(g.t(), x)

    def result(self) -> torch.Tensor:
        """The sum at the active coordinates; of length 0 if nothing was added."""
        if self._sum is None:
            return torch.zeros(0, dtype=torch.float64)
        flat = self._sum.reshape(-1)
        if self._layout.kind == "masked":
            flat = flat.index_select(0, self._layout.places.to(flat.device))
        return flat


def _moderate(values: torch.Tensor) -> bool:
    """Whether no number is so large that what it multiplies may not vanish when it is squared in float32."""
    if not values.numel():
        return True
    least, largest = torch.aminmax(values)
    return bool(least >= -_LARGE) and bool(largest <= _LARGE)


def _squared_norms(values: torch.Tensor) -> torch.Tensor:
    """Tensor[N], float64: the squared norms of rows, in the values' precision."""
    return vector_norm(values.double() if values.shape[1] > LONG else values).double().square()


def _masked(x: torch.Tensor, g: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Tensor[N], float64: sum over (o, i) of mask g^2 x^2."""
    return ((g.square() @ mask.to(g.dtype)) * x.square()).sum(dim=1).double()


class GhostPart:
    """Whole rows of a weight whose layer reads T rows per example: norms from two Gram matrices.

    The squared norm is the sum over t and u of (g_t g_u)(x_t x_u), in float64. Where almost all of it cancels, the
    gradient of that example is formed instead.
    """

    def __init__(self, shape: tuple[int, int], local: torch.Tensor | None) -> None:
        """Prepare one sum over the whole rows that ``local`` lists, None for all."""
        local = torch.arange(shape[0] * shape[1]) if local is None else local
        self._rows, self._all = (
            cast(torch.Tensor, cast(Any, torch.unique)(torch.div(local, shape[1], rounding_mode="floor"))),
            shape[0],
        )
        self._held: Inputs = ()
        self._sum: torch.Tensor | None = None

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """Keep output gradients and inputs, and add the squared norms."""
        x, g = positions(working(inputs[0].detach())), positions(working(gradient))
        if len(self._rows) < self._all:
            g = g.index_select(2, self._rows.to(g.device))
        self._held = (x, g)
        wide_x, wide_g = x.double(), g.double()
        products = (wide_x @ wide_x.transpose(1, 2)) * (wide_g @ wide_g.transpose(1, 2))
        found = products.sum(dim=(1, 2))
        largest = (vector_norm(wide_x) * vector_norm(wide_g)).sum(dim=1).square()
        lost = torch.nonzero(found < _CANCELLED * largest).flatten()
        if len(lost):
            formed = wide_g[lost].transpose(1, 2) @ wide_x[lost]
            found[lost] = vector_norm(formed.flatten(1)).square()
        squares += found

    def add(self, weights: torch.Tensor, broken: torch.Tensor) -> None:
        """Add one product over the examples and positions."""
        if not self._held:
            return
        (x, g), self._held = self._held, ()
        g = (safe(g, broken) * weights.to(g.dtype)[:, None, None]).flatten(0, 1)
        x = safe(x, broken).flatten(0, 1)
        self._sum = g.t() @ x if self._sum is None else self._sum.addmm_(g.t(), x)

    def result(self) -> torch.Tensor:
        """The sum at the active rows; of length 0 if nothing was added."""
        return torch.zeros(0, dtype=torch.float64) if self._sum is None else self._sum.reshape(-1)


def positions(tensor: torch.Tensor) -> torch.Tensor:
    """(N, ..., F) as (N, T, F)."""
    return tensor.reshape(len(tensor), -1, tensor.shape[-1])


def formed(inputs: Inputs, gradient: torch.Tensor) -> torch.Tensor:
    """Tensor[N, O, I]: the gradients of a weight whose layer reads T rows per example."""
    return torch.bmm(positions(gradient).transpose(1, 2), positions(inputs[0]))


def bias(inputs: Inputs, gradient: torch.Tensor) -> torch.Tensor:
    """Tensor[N, O]: the gradients of a bias."""
    return gradient if gradient.ndim == 2 else positions(gradient).sum(dim=1)
