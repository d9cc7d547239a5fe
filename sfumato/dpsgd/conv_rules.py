"""Rules for Conv2d weights: sampled sums of products, tiles of them, or plain torch.

>>> shape = ConvShape((1, 4, 4), (2, 4, 4), (3, 3), padding=(1, 1, 1, 1))
>>> choose(shape, np.arange(0, 18, 3), np.arange(2))
('sampled', '33% of 2 rows')
>>> choose(shape, np.arange(18), np.arange(2))
('tiled', '100% of 2 rows')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from sfumato.dpsgd.kernel_layout import LANES, ConvShape, rows_of
from sfumato.dpsgd.layer_rules import Compute, Inputs
from sfumato.dpsgd.rows import conv2d_gradients
from sfumato.dpsgd.scratch import Scratch

TILED_DENSITY: Final = 0.6
"""From this part of the chosen rows on, all their gradients by tiles cost less than the active ones, one by one."""
BAND: Final = 22_000
"""Vectors of 16 numbers that a band of inputs and output gradients takes: 1.4 MB, which the second cache holds."""


def choose(shape: ConvShape, local: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[str, str]:
    """The kernel for a layer and its active coordinates, and why.

    Args:
        shape: the convolution.
        local: active coordinates of the flat weight.
        rows: the output channels that they lie in.
    """
    density = len(local) / max(1, len(rows) * shape.columns)
    what = f"{density:.0%} of {len(rows)} rows"
    if shape.groups > 1:
        return "sampled", f"{shape.groups} groups, {what}"
    return ("tiled" if density > TILED_DENSITY else "sampled"), what


@dataclass(frozen=True, eq=False)
class ConvLayout:
    """What the kernels need to know of one layer and its active coordinates; it can be used for many sums.

    Attributes:
        shape: the convolution.
        local: the active coordinates of the flat weight, sorted.
        kind: ``sampled`` or ``tiled``.
    """

    shape: ConvShape
    local: NDArray[np.int64]
    kind: str

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The chosen output channels."""
        return rows_of(self.local, self.shape.columns)[0]

    @cached_property
    def g_blocks(self) -> NDArray[np.int64]:
        """Where the blocks of output channels begin that hold a chosen one."""
        return np.unique(self.rows // LANES) * LANES

    @cached_property
    def x_blocks(self) -> NDArray[np.int64]:
        """Where the blocks of input channels begin."""
        return np.arange(0, self.shape.inputs[0], LANES)

    @cached_property
    def band(self) -> int:
        """Rows of output positions that are packed at once."""
        return self.shape.band(len(self.g_blocks) * LANES, BAND)

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Numbers in the packed x and g."""
        (channels, _, _), (_, _, wide) = self.shape.inputs, self.shape.outputs
        x = channels * self.shape.read_rows(self.band) * self.shape.read_columns
        return x * LANES, len(self.g_blocks) * LANES * self.band * wide * LANES

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """How to pack x: zeros at the top and the left, rows and columns."""
        top, left = self.shape.padding[:2]
        return np.array([top, left, self.shape.read_rows(self.band), self.shape.read_columns], np.int64)

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """The band, a window's steps to the right and down in bytes, and the stride down."""
        down, across = self.shape.stride
        vector = 4 * LANES
        return np.array([self.band, vector * across, vector * down * self.shape.read_columns, down], np.int64)

    @cached_property
    def segments(self) -> NDArray[np.int64]:
        """Where the sampled coordinates of each chosen output channel begin, and their number."""
        return rows_of(self.local, self.shape.columns)[1]

    @cached_property
    def planes(self) -> NDArray[np.int64]:
        """Where the plane of each chosen output channel begins in the packed g, in bytes."""
        slots = np.searchsorted(self.g_blocks, self.rows // LANES * LANES) * LANES + self.rows % LANES
        return slots * (self.band * self.shape.outputs[2] * 4 * LANES)

    @cached_property
    def windows(self) -> NDArray[np.int64]:
        """Where the window of each sampled coordinate, or of each entry of a filter, begins in the packed x, in bytes."""
        every = np.arange(self.shape.columns, dtype=np.int64)
        local = self.local if self.kind == "sampled" else every
        return self.shape.windows(local, self.band) * (4 * LANES)

    @cached_property
    def columns(self) -> int:
        """How many numbers the kernel writes for each example."""
        return len(self.local) if self.kind == "sampled" else len(self.rows) * self.shape.columns

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Where among the kernel's numbers each active coordinate stands."""
        if self.kind == "sampled":
            return np.arange(len(self.local), dtype=np.int64)
        row, column = self.local // self.shape.columns, self.local % self.shape.columns
        return np.searchsorted(self.rows, row) * self.shape.columns + column

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Which of the kernel's numbers are active; one for all if all are."""
        if len(self.local) == self.columns:
            return np.ones(1, np.bool_)
        mask = np.zeros(self.columns, np.bool_)
        mask[self.places] = True
        return mask


def slots_of(channels: NDArray[np.int64], blocks: NDArray[np.int64]) -> torch.Tensor | None:
    """Tensor[R], int64: where channels stand among blocks of 16; None if they are not all there.

    >>> slots_of(np.array([1, 33]), np.array([0, 32]))
    tensor([ 1, 17])
    """
    begins = channels // LANES * LANES
    found = np.minimum(np.searchsorted(blocks, begins), len(blocks) - 1)
    if not (blocks[found] == begins).all():
        return None
    return torch.from_numpy(found * LANES + channels % LANES)


class ConvPart:
    """The active coordinates of a Conv2d weight, by a compiled kernel."""

    def __init__(self, layout: ConvLayout, kernels: Any, scratch: Scratch) -> None:
        """Prepare one sum."""
        self._layout, self._kernels, self._scratch = layout, kernels, scratch
        self._held = torch.empty(0)
        self._values: torch.Tensor | None = None
        self._sum = torch.zeros(0)

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """Compute the gradients of a micro-batch and add their squares."""
        layout, scratch = self._layout, self._scratch
        lanes = -(-len(gradient) // LANES) * LANES
        self._held = scratch.take(lanes * layout.columns)
        self._values = self._held[: lanes * layout.columns].view(layout.columns, lanes)
        images = [part.detach().permute(0, 2, 3, 1).contiguous().numpy() for part in (inputs[0], gradient)]
        bands = [scratch.take(size) for size in layout.sizes]
        sums = torch.empty(len(layout.g_blocks) * LANES, lanes, dtype=torch.float32)
        packed = layout.numbers, layout.steps, *(band.numpy() for band in bands)
        found = self._values.numpy(), sums.numpy()
        if layout.kind == "sampled":
            reads = layout.x_blocks, layout.g_blocks, layout.planes, layout.segments, layout.windows
            self._kernels.conv_sampled(*images, *reads, *packed, *found, squares.numpy())
        else:
            reads = layout.x_blocks, layout.g_blocks, layout.planes, layout.windows
            self._kernels.conv_tiled(*images, *reads, *packed, *found, layout.mask, squares.numpy())
        scratch.give(*bands)
        scratch.note(gradient, layout.g_blocks, sums)

    def add(self, weights: torch.Tensor, broken: torch.Tensor) -> None:
        """One product of the gradients and the weights."""
        if self._values is None:
            return
        values, self._values = self._values, None
        if broken.any():
            values.index_fill_(1, torch.nonzero(broken).flatten(), 0.0)
        if not len(self._sum):
            self._sum = torch.zeros(len(self._layout.local), dtype=torch.float32)
        lanes = torch.zeros(values.shape[1], dtype=torch.float32)
        lanes[: len(weights)] = weights
        self._kernels.weighted_rows(values.numpy(), self._layout.places, lanes.numpy(), self._sum.numpy())
        self._scratch.give(self._held)

    def result(self) -> torch.Tensor:
        """The sum at the active coordinates; of length 0 if nothing was added."""
        return self._sum


class ShiftPart:
    """The active coordinates of a Conv2d bias: from the sums that the weight's kernel made by the way, or by a kernel."""

    def __init__(self, channels: NDArray[np.int64], kernels: Any, scratch: Scratch) -> None:
        """Prepare one sum over the active output channels."""
        self._channels, self._kernels, self._scratch = channels, kernels, scratch
        self._blocks: NDArray[np.int64] | None = None
        self._slots: torch.Tensor | None = None
        self._values: torch.Tensor | None = None
        self._sum = torch.zeros(0)

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """See a micro-batch."""
        noted = self._scratch.noted(gradient)
        if noted is not None and self._blocks is not noted[0]:
            self._blocks, self._slots = noted[0], slots_of(self._channels, noted[0])
        if noted is not None and self._slots is not None:
            self._values = noted[1].index_select(0, self._slots)[:, : len(gradient)].t().contiguous()
            squares += self._values.square().sum(dim=1, dtype=torch.float64)
            return
        self._values = torch.empty(len(gradient), len(self._channels), dtype=torch.float32)
        positions = gradient.detach().permute(0, 2, 3, 1).flatten(1, 2).contiguous().numpy()
        self._kernels.plane_sums(positions, self._channels, self._values.numpy(), squares.numpy())

    def add(self, weights: torch.Tensor, broken: torch.Tensor) -> None:
        """One product of the weights and the gradients."""
        if self._values is None:
            return
        values, self._values = self._values, None
        values.index_fill_(0, torch.nonzero(broken).flatten(), 0.0)
        part = torch.mv(values.t(), weights.float())
        self._sum = self._sum.add_(part) if len(self._sum) else part

    def result(self) -> torch.Tensor:
        """The sum at the active coordinates; of length 0 if nothing was added."""
        return self._sum


def by_torch(options: Mapping[str, Any], rows: torch.Tensor | None) -> Compute:
    """Gradients Tensor[N, R, C/groups, kernel] of the output channels ``rows`` (groups of 1), or of all, in torch.

    Args:
        options: stride, padding (top, left, bottom, right), dilation, groups and kernel.
        rows: the chosen output channels, None for all.
    """
    top, left, bottom, right = options["padding"]
    even = (top, left) == (bottom, right)
    inner = {**options, "padding": (top, left) if even else (0, 0)}

    def compute(inputs: Inputs, gradient: torch.Tensor) -> torch.Tensor:
        images = inputs[0] if even else functional.pad(inputs[0], (left, right, top, bottom))
        chosen = gradient if rows is None else gradient.index_select(1, rows.to(gradient.device))
        return conv2d_gradients(chosen[:, None], images[:, None], inner)

    return compute
