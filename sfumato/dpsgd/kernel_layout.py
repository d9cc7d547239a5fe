"""Where the entries of a convolution's filter read a packed band of images: sizes and offsets for the kernels.

A band is some rows of output positions, and the rows of the padded image that they read. Sixteen examples lie side by
side in it, so that an offset counts vectors of them.

>>> shape = ConvShape(inputs=(1, 4, 4), outputs=(2, 2, 2), kernel=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0))
>>> shape.read_rows(2), shape.read_columns, shape.windows(np.arange(8), band=2)
(4, 4, array([0, 1, 4, 5, 0, 1, 4, 5]))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

LANES: Final = 16
"""Examples that a kernel computes side by side."""


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
    def read_columns(self) -> int:
        """How many columns of a padded image the output positions of one row read."""
        return (self.outputs[2] - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1

    def read_rows(self, band: int) -> int:
        """How many rows of a padded image so many rows of output positions read."""
        return (band - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1

    def band(self, planes: int, vectors: int) -> int:
        """The most rows of output positions that are packed at once, at least 1.

        Args:
            planes: how many planes of output gradients are packed.
            vectors: how many vectors x and the output gradients may take together.
        """
        (channels, _, _), (_, high, wide) = self.inputs, self.outputs
        fitting = [
            rows
            for rows in range(1, high + 1)
            if channels * self.read_rows(rows) * self.read_columns + planes * rows * wide <= vectors
        ]
        most = max(fitting, default=1)
        return -(-high // -(-high // most))  # as even as they can be

    def windows(self, local: NDArray[np.int64], band: int) -> NDArray[np.int64]:
        """Where in the packed x each filter entry starts to read, in vectors.

        Args:
            local: indices into the flat weight (outputs, inputs / groups, height, width).
            band: rows of output positions.
        """
        high, wide = self.kernel
        row, column = local // self.columns, local % self.columns
        per_group = self.inputs[0] // self.groups
        channel = row // (self.outputs[0] // self.groups) * per_group + column // (high * wide)
        a, b = column // wide % high * self.dilation[0], column % wide * self.dilation[1]
        return (channel * self.read_rows(band) + a) * self.read_columns + b


def same_padding(kernel: tuple[int, int], dilation: tuple[int, int]) -> tuple[int, int, int, int]:
    """The zeros that ``padding='same'`` stands for: the odd one goes to the bottom or the right."""
    totals = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    before = [total // 2 for total in totals]
    return before[0], before[1], totals[0] - before[0], totals[1] - before[1]


def rows_of(local: NDArray[np.int64], columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that sorted flat indices lie in, and where among the indices each row begins (one more at the end)."""
    rows, counts = np.unique(local // columns, return_counts=True)
    return rows.astype(np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
