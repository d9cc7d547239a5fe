"""Kernels for per-example gradients of Linear layers on a CPU, compiled by Numba when this module is imported.

Arrays are float32 views of torch tensors, examples innermost and sixteen in a vector, one in each lane.

>>> out = np.empty((2, 16), np.float32)
>>> _ = transposed(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), out)
>>> out[:, :3]
array([[1., 3., 0.],
       [2., 4., 0.]], dtype=float32)
"""

# Numba gives its functions no types, and its kernels index tuples of them.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false
# pyright: reportCallIssue=false

from __future__ import annotations

import numpy as np

from sfumato.dpsgd.kernel_compiling import compiled
from sfumato.dpsgd.kernel_layout import LANES
from sfumato.dpsgd.lanes import listed_squares, square, transpose

LANES_DIGEST = "4f02e8d2bf58b0ba"
"""Of lanes.py, whose text is compiled into these kernels: a change of it changes this line, and Numba compiles anew."""
_compiled = compiled(LANES_DIGEST)

_ZERO = np.float32(0)
_CHUNK = 1024  # rows whose squares are added in one go


@_compiled("int64(float32[:,::1], float32[:,::1])")
def transposed(rows, out):
    """Rows (N, I) as out (I, lanes): examples innermost, zeros beyond the last; gives the bits of the largest number.

    The bits of numbers without sign are ordered as the numbers are, infinity and NaN above all others.
    """
    count, width = rows.shape
    largest = 0
    for n in range(count):
        bits = rows[n].view(np.int32)
        row = np.int32(0)
        for i in range(width):
            row = max(row, bits[i] & np.int32(0x7FFFFFFF))
        largest = max(largest, row)
    source, target, step = rows.ctypes.data, out.ctypes.data, 4 * out.shape[1]
    for i in range(0, width - LANES + 1, LANES):
        for n in range(0, count, LANES):
            valid = min(LANES, count - n)
            transpose(source + 4 * (n * width + i), 4 * width, valid, target + i * step + 4 * n, step)
    for i in range(width // LANES * LANES, width):
        out[i, count:] = _ZERO
        for n in range(count):
            out[i, n] = rows[n, i]
    return largest


@_compiled("void(float32[:,::1], float32[::1], int64[::1], int64[::1], float32[::1])")
def sampled_dots(b, x, begin, offsets, out):
    """out[t] = the dot product of b[r] and x[offsets[t]:] for begin[r] <= t < begin[r + 1]; b (R, span)."""
    span = b.shape[1]
    for r in range(b.shape[0]):
        br = b[r]
        t, end = begin[r], begin[r + 1]
        while t + 4 <= end:  # four at a time: br is loaded once
            x0, x1, x2, x3 = x[offsets[t] :], x[offsets[t + 1] :], x[offsets[t + 2] :], x[offsets[t + 3] :]
            s0 = s1 = s2 = s3 = _ZERO
            for i in range(span):
                v = br[i]
                s0 += v * x0[i]
                s1 += v * x1[i]
                s2 += v * x2[i]
                s3 += v * x3[i]
            out[t], out[t + 1], out[t + 2], out[t + 3] = s0, s1, s2, s3
            t += 4
        while t < end:
            x0 = x[offsets[t] :]
            s0 = _ZERO
            for i in range(span):
                s0 += br[i] * x0[i]
            out[t] = s0
            t += 1


@_compiled(
    "void(float32[:,::1], float32[:,::1], int64[::1], int64[::1], int64[::1], float32[::1], float64[::1])"
)
def linear_squares(x, g, rows, begin, offsets, squared, norms):
    """Adds to norms (N,) the squares of a Linear layer's chosen coordinates; x (I, lanes), g (O, lanes).

    Args:
        x: inputs.
        g: output gradients.
        rows: the output features that hold a coordinate.
        begin: where among the coordinates each of these begins, and their number.
        offsets: of each coordinate, its input feature in ``squared``, in bytes.
        squared: scratch for the squares of 16 examples' inputs, 16 I numbers.
        norms: (N,).
    """
    totals = np.empty(LANES)
    squares_at, total, listed, step = (
        squared.ctypes.data,
        totals.ctypes.data,
        offsets.ctypes.data,
        4 * g.shape[1],
    )
    for first in range(0, x.shape[1], LANES):
        for i in range(x.shape[0]):
            source = x.ctypes.data + 4 * (i * x.shape[1] + first)
            square(source, squares_at + 4 * LANES * i)
        totals[:] = 0.0
        at = g.ctypes.data + 4 * first
        for r in range(0, rows.shape[0], _CHUNK):
            count = min(_CHUNK, rows.shape[0] - r)
            begins, numbers = begin.ctypes.data + 8 * r, rows.ctypes.data + 8 * r
            listed_squares(squares_at, listed, begins, numbers, count, at, step, total)
        for n in range(min(LANES, norms.shape[0] - first)):
            norms[first + n] += totals[n]
