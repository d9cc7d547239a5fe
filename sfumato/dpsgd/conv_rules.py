"""Rules for Conv2d weights: sampled dot products, tiles of them or products with patches; or plain torch.

>>> shape = ConvShape((1, 4, 4), (2, 4, 4), (3, 3), padding=(1, 1, 1, 1))
>>> choose(shape, np.arange(18), np.arange(2))[0]
'sampled'
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

from sfumato.dpsgd.kernel_layout import ConvShape, rows_of
from sfumato.dpsgd.layer_rules import Compute, Inputs
from sfumato.dpsgd.rows import conv2d_gradients

SMALL_PLANE: Final = 200
"""Below so many numbers of an output plane (8 x 8 against 16 x 16), sampled dot products are too short to be fast."""
LARGE_PLANE: Final = 600
"""From so many on (32 x 32 against 16 x 16), copying patches for a product costs more than tiles of dot products."""
SMALL_DENSITY: Final = 0.3
"""On small planes, all gradients of the rows by one product cost about as much as this part of them, one by one."""
MIDDLE_DENSITY: Final = 0.35
"""The same on planes between the two."""
TILED_DENSITY: Final = 0.4
"""The same for tiles of four rows by four columns."""
FEWEST_ROWS: Final = 16
"""With fewer output channels, a product is not worth its patches."""
SHORTEST_RUN: Final = 32
"""Patches are copied in runs of a filter's row with its channels; shorter ones are slow."""
HELD: Final = 400_000
"""Numbers of patches and gradients in work at once: what the second cache holds."""


def choose(shape: ConvShape, local: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[str, str]:
    """The kernel for a layer and its active coordinates, and why.

    Args:
        shape: the convolution.
        local: active coordinates of the flat weight.
        rows: the output channels that they lie in.
    """
    density = len(local) / max(1, len(rows) * shape.columns)
    what = f"{density:.0%} of {len(rows)} rows, planes of {shape.span}"
    if shape.groups > 1:
        return "sampled", f"{shape.groups} groups: {what}"
    run = shape.inputs[0] * (shape.kernel[1] if shape.dilation[1] == 1 else 1)
    if run >= SHORTEST_RUN and len(rows) >= FEWEST_ROWS and shape.span < LARGE_PLANE:
        if density > (SMALL_DENSITY if shape.span < SMALL_PLANE else MIDDLE_DENSITY):
            return "gemm", f"dense: {what}"
    elif density > TILED_DENSITY and len(rows) >= 4 and shape.columns >= 4:
        return "tiled", f"dense: {what}"
    return "sampled", f"sparse: {what}"


@dataclass(frozen=True, eq=False)
class ConvLayout:
    """What the kernels need to know of one layer and its active coordinates; it can be used for many sums.

    Attributes:
        shape: the convolution.
        local: the active coordinates of the flat weight, sorted.
        kind: ``sampled``, ``tiled`` or ``gemm``.
    """

    shape: ConvShape
    local: NDArray[np.int64]
    kind: str

    @cached_property
    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The chosen output channels, and where among the coordinates each begins."""
        return rows_of(self.local, self.shape.columns)

    @cached_property
    def reads(self) -> NDArray[np.int64]:
        """Where in the packed image the kernel reads."""
        return self.shape.offsets(self.local if self.kind == "sampled" else np.arange(self.shape.columns))

    @cached_property
    def columns(self) -> int:
        """How many numbers the kernel writes for each example."""
        return len(self.local) if self.kind == "sampled" else len(self.rows[0]) * self.shape.columns

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Where among the kernel's numbers each active coordinate stands."""
        if self.kind == "sampled":
            return np.arange(len(self.local))
        row, column = self.local // self.shape.columns, self.local % self.shape.columns
        row = np.searchsorted(self.rows[0], row)
        if self.kind == "gemm":  # the order of its patches is row, a, b, channel
            (high, wide), channels = self.shape.kernel, self.shape.inputs[0]
            column = column % (high * wide) * channels + column // (high * wide)
        return row * self.shape.columns + column

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Which of the kernel's numbers are active; empty if all are."""
        if len(self.local) == self.columns:
            return np.zeros(0, np.bool_)
        mask = np.zeros(self.columns, np.bool_)
        mask[self.places] = True
        return mask


class ConvPart:
    """The active coordinates of a Conv2d weight, by a compiled kernel or by a product with patches."""

    def __init__(self, layout: ConvLayout, kernels: Any) -> None:
        """Prepare scratch for one sum."""
        self._layout, self._kernels = layout, kernels
        shape, rows = layout.shape, len(layout.rows[0])
        sizes = () if layout.kind == "gemm" else ((shape.packed,), (rows, shape.span))
        self._scratch = tuple(torch.zeros(size).numpy() for size in sizes)  # torch aligns it
        self._buffer = torch.empty(0, layout.columns)
        self._values: torch.Tensor | None = None
        self._sum: torch.Tensor | None = None

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """Compute the gradients of a micro-batch and add their squares."""
        layout, (rows, begin) = self._layout, self._layout.rows
        if len(self._buffer) < len(gradient):  # kept, since fresh pages cost more than the kernel's writes
            self._buffer = torch.empty(len(gradient), layout.columns)
        self._values = self._buffer[: len(gradient)]
        out = (self._values.numpy(), squares.numpy())
        if layout.kind == "gemm":
            self._multiply(inputs[0].detach(), gradient.detach(), self._values, squares)
            return
        x, g, numbers = inputs[0].detach().numpy(), gradient.detach().numpy(), layout.shape.numbers
        if layout.kind == "sampled":
            self._kernels.conv_sampled(x, g, rows, begin, layout.reads, numbers, *self._scratch, *out)
        else:
            self._kernels.conv_tiled(x, g, rows, layout.reads, numbers, *self._scratch, layout.mask, *out)

    def _multiply(
        self, x: torch.Tensor, g: torch.Tensor, values: torch.Tensor, squares: torch.Tensor
    ) -> None:
        """All gradients of the chosen rows: a product of output gradients and patches, a few examples at a time."""
        shape, chosen = self._layout.shape, self._layout.rows[0]
        top, left, bottom, right = shape.padding
        images = functional.pad(x.permute(0, 2, 3, 1), (0, 0, left, right, top, bottom)).contiguous()
        planes = g.permute(0, 2, 3, 1).flatten(1, 2)
        if len(chosen) < shape.outputs[0]:
            planes = planes.index_select(2, torch.from_numpy(chosen))
        count, positions = len(x), shape.outputs[1] * shape.outputs[2]
        step = max(1, HELD // (shape.columns * (positions + len(chosen))))
        out = values.view(count, len(chosen), shape.columns)
        for start in range(0, count, step):
            patches = _patches(images[start : start + step], shape).reshape(-1, positions, shape.columns)
            part = slice(start, start + step)
            torch.bmm(planes[part].transpose(1, 2), patches, out=out[part])
            self._kernels.rows_squares(values[part].numpy(), self._layout.mask, squares[part].numpy())

    def add(self, weights: torch.Tensor, broken: torch.Tensor) -> None:
        """One product of the weights and the gradients."""
        if self._values is None:
            return
        values, self._values = self._values, None
        values.index_fill_(0, torch.nonzero(broken).flatten(), 0.0)
        if self._sum is None:
            self._sum = torch.zeros(values.shape[1])
        self._sum.addmv_(values.t(), weights.float())

    def result(self) -> torch.Tensor:
        """The sum at the active coordinates; of length 0 if nothing was added."""
        if self._sum is None:
            return torch.zeros(0, dtype=torch.float64)
        values = self._sum
        return values if self._layout.kind == "sampled" else values[torch.from_numpy(self._layout.places)]


def _patches(images: torch.Tensor, shape: ConvShape) -> torch.Tensor:
    """A view (n, Ho, Wo, kh, kw, C) of padded images (n, H, W, C): what each output position reads."""
    example, row, column, channel = images.stride()
    sizes = (len(images), *shape.outputs[1:], *shape.kernel, shape.inputs[0])
    steps = (
        row * shape.stride[0],
        column * shape.stride[1],
        row * shape.dilation[0],
        column * shape.dilation[1],
    )
    return images.as_strided(sizes, (example, *steps, channel), images.storage_offset())


class ShiftPart:
    """The active coordinates of a Conv2d bias, by a compiled kernel."""

    def __init__(self, channels: NDArray[np.int64], kernels: Any) -> None:
        """Prepare one sum over the active output channels."""
        self._channels, self._kernels = channels, kernels
        self._values: torch.Tensor | None = None
        self._sum = torch.zeros(0)

    def observe(self, inputs: Inputs, gradient: torch.Tensor, squares: torch.Tensor) -> None:
        """Run the kernel on a micro-batch."""
        self._values = torch.empty(len(gradient), len(self._channels))
        arrays = gradient.detach().numpy(), self._channels, self._values.numpy(), squares.numpy()
        self._kernels.plane_sums(*arrays)

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
