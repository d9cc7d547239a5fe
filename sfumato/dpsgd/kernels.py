"""Kernels for per-example gradients on a CPU, compiled by Numba when this module is imported.

Arrays are float32 views of torch tensors; images may have any strides. Kernels run on one thread and release
the GIL. N examples, C input and O output channels, R chosen output channels. The gradient of one example is

    G[o, c, a, b] = sum over h, w of g[o, h, w] * xpad[c, h*down + a*dilation, w*across + b*dilation]

What makes them fast: slices outside of the loops (``x[start:]`` and then ``x[i]``; ``x[start + i]`` is 12 times
slower), four sums at once, aligned scratch that torch allocates, and sums that may be reassociated; unlike with
``fastmath=True``, NaN and infinity keep their meaning, which clipping relies on.

>>> squares(np.array([3.0, 4.0], np.float32))
25.0
"""

# Numba gives its functions no types, and its kernels index tuples of them.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding
from numba import config, njit

_ZERO = np.float32(0)
_CHUNK = 1024  # float32 sums of so many squares in 16 lanes are exact to 1e-6
_OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz"},
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
}


def _ask_for_wide_vectors() -> None:
    """Let LLVM use all of AVX-512, where it would keep to half: tiles on large planes ran 1.3 to 1.6 times as fast.

    The setting is that of ``NUMBA_CPU_FEATURES``, holds for the process and gives way to the user's own.
    """
    features = binding.get_host_cpu_features()
    settings: Any = config
    if settings.CPU_FEATURES is None and settings.CPU_NAME is None and features.get("avx512f"):
        settings.CPU_FEATURES = features.flatten() + ",-prefer-256-bit"


_ask_for_wide_vectors()


def _compiled(signature: str) -> Callable[[Any], Any]:
    """Compile at once for one signature, so that one compilation serves every shape and layout; cached on disk."""

    def decorate(function: Any) -> Any:
        try:
            return njit(signature, cache=True, **_OPTIONS)(function)
        except (RuntimeError, OSError):  # no folder for the cache can be written to
            return njit(signature, **_OPTIONS)(function)

    return decorate


@_compiled("float64(float32[::1])")
def squares(values):
    """The sum of squares: pieces in float32, their sum in float64."""
    total = 0.0
    for start in range(0, values.shape[0], _CHUNK):
        piece = values[start : min(start + _CHUNK, values.shape[0])]
        s = _ZERO
        for i in range(piece.shape[0]):
            s += piece[i] * piece[i]
        total += s
    return total


@_compiled("float64(float32[::1], boolean[::1])")
def masked_squares(values, mask):
    """Zero in place where the mask is false, and the sum of the squares of the rest; no mask at all masks nothing."""
    for i in range(mask.shape[0]):
        values[i] = values[i] if mask[i] else _ZERO
    return squares(values)


@_compiled("void(float32[:,:,:], int64[::1], float32[::1])")
def pack_image(x, numbers, out):
    """Image x (C, H, W) into the phase planes (C, down, across, height, width) of a flat, zeroed array."""
    channels, high, wide = x.shape
    top, left, down, across = numbers[0], numbers[1], numbers[2], numbers[3]
    height, width = numbers[4], numbers[5]
    plane = down * across * height * width
    for h in range(high):
        hp = h + top
        for phase in range(across):
            w0 = (phase - left) % across
            n = (wide - w0 + across - 1) // across
            start = ((hp % down * across + phase) * height + hp // down) * width + (w0 + left) // across
            for c in range(channels):
                source, target = x[c, h, w0:], out[c * plane + start :]
                if across == 1:
                    for i in range(n):
                        target[i] = source[i]
                else:
                    for i in range(n):
                        target[i] = source[i * across]


@_compiled("void(float32[:,:,:], int64[::1], int64, float32[:,::1])")
def pack_planes(g, rows, width, out):
    """Planes g (O, Ho, Wo) of the chosen channels, in rows of ``width`` numbers: out (R, span), zeroed."""
    for h in range(g.shape[1]):
        for r in range(rows.shape[0]):
            source, target = g[rows[r], h], out[r, h * width :]
            for w in range(g.shape[2]):
                target[w] = source[w]


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
    "void(float32[:,:,:,:], float32[:,:,:,:], int64[::1], int64[::1], int64[::1], int64[::1],"
    "float32[::1], float32[:,::1], float32[:,::1], float64[::1])"
)
def conv_sampled(x, g, rows, begin, offsets, numbers, image, planes, out, norms):
    """Gradients at chosen coordinates, one dot product each: out (N, k); their squares are added to norms (N,).

    ``image`` (packed,) and ``planes`` (R, span) are zeroed scratch.
    """
    for n in range(x.shape[0]):
        pack_image(x[n], numbers, image)
        pack_planes(g[n], rows, numbers[5], planes)
        sampled_dots(planes, image, begin, offsets, out[n])
        norms[n] += squares(out[n])


@_compiled("void(float32[:,::1], float32[::1], int64[::1], float32[:,::1])")
def tiled_dots(b, x, offsets, out):
    """out[r, j] = the dot product of b[r] and x[offsets[j]:] for all r and j, at least 4 each; last tiles overlap."""
    count, span = b.shape
    columns = offsets.shape[0]
    for j0 in range(0, columns, 4):
        j = min(j0, columns - 4)
        x0, x1, x2, x3 = x[offsets[j] :], x[offsets[j + 1] :], x[offsets[j + 2] :], x[offsets[j + 3] :]
        for r0 in range(0, count, 4):
            r = min(r0, count - 4)
            b0, b1, b2, b3 = b[r], b[r + 1], b[r + 2], b[r + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = _ZERO
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = _ZERO
            for i in range(span):
                y0, y1, y2, y3 = x0[i], x1[i], x2[i], x3[i]
                v0, v1, v2, v3 = b0[i], b1[i], b2[i], b3[i]
                s00, s01, s02, s03 = s00 + v0 * y0, s01 + v0 * y1, s02 + v0 * y2, s03 + v0 * y3
                s10, s11, s12, s13 = s10 + v1 * y0, s11 + v1 * y1, s12 + v1 * y2, s13 + v1 * y3
                s20, s21, s22, s23 = s20 + v2 * y0, s21 + v2 * y1, s22 + v2 * y2, s23 + v2 * y3
                s30, s31, s32, s33 = s30 + v3 * y0, s31 + v3 * y1, s32 + v3 * y2, s33 + v3 * y3
            out[r, j], out[r, j + 1], out[r, j + 2], out[r, j + 3] = s00, s01, s02, s03
            out[r + 1, j], out[r + 1, j + 1], out[r + 1, j + 2], out[r + 1, j + 3] = s10, s11, s12, s13
            out[r + 2, j], out[r + 2, j + 1], out[r + 2, j + 2], out[r + 2, j + 3] = s20, s21, s22, s23
            out[r + 3, j], out[r + 3, j + 1], out[r + 3, j + 2], out[r + 3, j + 3] = s30, s31, s32, s33


@_compiled(
    "void(float32[:,:,:,:], float32[:,:,:,:], int64[::1], int64[::1], int64[::1],"
    "float32[::1], float32[:,::1], boolean[::1], float32[:,::1], float64[::1])"
)
def conv_tiled(x, g, rows, offsets, numbers, image, planes, mask, out, norms):
    """All gradients of the chosen output channels by dot products, for large planes: out (N, R*J), masked."""
    for n in range(x.shape[0]):
        pack_image(x[n], numbers, image)
        pack_planes(g[n], rows, numbers[5], planes)
        tiled_dots(planes, image, offsets, out[n].reshape((rows.shape[0], offsets.shape[0])))
        norms[n] += masked_squares(out[n], mask)


@_compiled("void(float32[:,::1], boolean[::1], float64[::1])")
def rows_squares(values, mask, norms):
    """Zero in place where the mask is false, and add the squares of each row to norms (N,)."""
    for n in range(values.shape[0]):
        norms[n] += masked_squares(values[n], mask)


@_compiled("void(float32[:,:,:,:], int64[::1], float32[:,::1], float64[::1])")
def plane_sums(g, rows, out, norms):
    """Sums of the planes of the chosen channels, out (N, R); their squares are added to norms (N,)."""
    few = 4 * rows.shape[0] < g.shape[1]
    acc = np.empty(g.shape[1], np.float32)
    for n in range(g.shape[0]):
        if few:
            for r in range(rows.shape[0]):
                total = _ZERO
                for h in range(g.shape[2]):
                    row = g[n, rows[r], h]
                    for w in range(row.shape[0]):
                        total += row[w]
                out[n, r] = total
        else:
            acc[:] = _ZERO
            for h in range(g.shape[2]):
                for w in range(g.shape[3]):
                    point = g[n, :, h, w]
                    for c in range(point.shape[0]):
                        acc[c] += point[c]
            for r in range(rows.shape[0]):
                out[n, r] = acc[rows[r]]
        norms[n] += squares(out[n])


@_compiled("void(float32[:,::1], float32[:,::1], int64[::1], int64[::1], int64[::1], float64[::1])")
def linear_squares(x, g, rows, begin, columns, norms):
    """Adds to norms (N,) the squares of a Linear layer's chosen coordinates; x (I, N), g (O, N)."""
    count = x.shape[1]
    acc = np.empty(count, np.float32)
    for r in range(rows.shape[0]):
        acc[:] = _ZERO
        t, end = begin[r], begin[r + 1]
        while t + 4 <= end:
            x0, x1, x2, x3 = x[columns[t]], x[columns[t + 1]], x[columns[t + 2]], x[columns[t + 3]]
            for n in range(count):
                acc[n] += (x0[n] * x0[n] + x1[n] * x1[n]) + (x2[n] * x2[n] + x3[n] * x3[n])
            t += 4
        while t < end:
            x0 = x[columns[t]]
            for n in range(count):
                acc[n] += x0[n] * x0[n]
            t += 1
        row = g[rows[r]]
        for n in range(count):
            norms[n] += row[n] * row[n] * acc[n]
