"""Where the entries of a convolution's filter read a packed image: sizes and offsets for the kernels.

A padded image is split into one plane for each phase of the stride, so that every filter entry reads one
contiguous piece of it, whatever stride and dilation are. Nothing is unfolded.

>>> shape = ConvShape(inputs=(1, 4, 4), outputs=(2, 2, 2), kernel=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0))
>>> shape.planes, shape.offsets(np.arange(8))
((2, 2), array([ 0,  4,  8, 12,  0,  4,  8, 12]))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LANES = 16
"""Lengths are rounded up to so many numbers, the width of the widest vector registers in float32."""


@dataclass(frozen=True)
class ConvShape:
    """The sizes of one two-dimensional convolution.

    Attributes:
        inputs: channels, height and width of an image.
        outputs: channels, height and width of the result.
        kernel: height and width of the filter.
        stride: down and across.
        padding: zeros at the top, the left, the bottom and the right.
        dilation: down and across.
        groups: how many groups the channels form.
    """

    inputs: tuple[int, int, int]
    outputs: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def columns(self) -> int:
        """How many entries the filter of one output channel has."""
        return self.inputs[0] // self.groups * self.kernel[0] * self.kernel[1]

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width of a padded image."""
        top, left, bottom, right = self.padding
        return self.inputs[1] + top + bottom, self.inputs[2] + left + right

    @property
    def planes(self) -> tuple[int, int]:
        """Height and width of the plane of one phase."""
        height, width = self.padded
        return -(-height // self.stride[0]), -(-width // self.stride[1])

    @property
    def span(self) -> int:
        """The length of an output plane in rows as wide as a phase plane, rounded up."""
        _, height, width = self.outputs
        return _rounded((height - 1) * self.planes[1] + width)

    @property
    def packed(self) -> int:
        """The length of a packed image, with zeros at the end for the longest reach of a filter entry."""
        channels, (height, width) = self.inputs[0], self.planes
        down, across = (
            (k - 1) * d // s for k, d, s in zip(self.kernel, self.dilation, self.stride, strict=True)
        )
        plane = height * width
        return _rounded(
            channels * self.stride[0] * self.stride[1] * plane + down * width + across + self.span
        )

    @property
    def numbers(self) -> NDArray[np.int64]:
        """What the kernels need to pack an image: top, left, stride down and across, plane height and width."""
        return np.array([*self.padding[:2], *self.stride, *self.planes], np.int64)

    def offsets(self, local: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in the packed image each filter entry starts to read.

        Args:
            local: indices into the flat weight (outputs, inputs / groups, height, width).
        """
        (high, wide), (down, across) = self.kernel, self.stride
        row, column = local // self.columns, local % self.columns
        per_group = self.inputs[0] // self.groups
        channel = row // (self.outputs[0] // self.groups) * per_group + column // (high * wide)
        a, b = column // wide % high * self.dilation[0], column % wide * self.dilation[1]
        height, width = self.planes
        phase = (channel * down + a % down) * across + b % across
        return (phase * height + a // down) * width + b // across


def _rounded(length: int) -> int:
    return -(-length // _LANES) * _LANES


def same_padding(kernel: tuple[int, int], dilation: tuple[int, int]) -> tuple[int, int, int, int]:
    """The zeros that ``padding='same'`` stands for: the odd one goes to the bottom or the right."""
    totals = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    before = [total // 2 for total in totals]
    return before[0], before[1], totals[0] - before[0], totals[1] - before[1]


def rows_of(local: NDArray[np.int64], columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that sorted flat indices lie in, and where among the indices each row begins (one more at the end)."""
    rows, counts = np.unique(local // columns, return_counts=True)
    return rows.astype(np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
