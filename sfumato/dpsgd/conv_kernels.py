"""Kernels for per-example gradients of convolutions on a CPU, compiled by Numba when this module is imported.

Arrays are float32 views of torch tensors. Kernels run on one thread and release the GIL. The gradient of one example is

    G[o, c, a, b] = sum over h, w of g[o, h, w] * xpad[c, h*down + a*dilation, w*across + b*dilation]

Sixteen examples are computed side by side, one in each lane of a vector: images are packed with the examples innermost,
a band of rows at a time that the second cache holds, and then every coordinate is a plain sum of products over the
positions, whatever stride, dilation and size the layer has. NaN and infinity keep their meaning, which clipping relies
on.

>>> squares(np.array([3.0, 4.0], np.float32))
25.0
"""

# Numba gives its functions no types, and its kernels index tuples of them.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false
# pyright: reportCallIssue=false

from __future__ import annotations

import numpy as np

from sfumato.dpsgd.kernel_compiling import compiled
from sfumato.dpsgd.kernel_layout import LANES
from sfumato.dpsgd.lanes import WIDE, dots, plane_sum, transpose

LANES_DIGEST = "4f02e8d2bf58b0ba"
"""Of lanes.py, whose text is compiled into these kernels: a change of it changes this line, and Numba compiles anew."""
_compiled = compiled(LANES_DIGEST)

_ZERO = np.float32(0)
_CHUNK = 1024  # float32 sums of so many squares in 16 lanes are exact to 1e-6
_TALL = 4 if WIDE else 2
_FEW = 4 if WIDE else 2
_MANY = 8 if WIDE else 4
_dots_tile, _dots_tall = dots(_TALL, _TALL), dots(_TALL, 1)
_dots_many, _dots_few, _dots_one = dots(1, _MANY), dots(1, _FEW), dots(1, 1)


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


@_compiled("void(float32[:,:,:,::1], int64[::1], int64[::1], int64[::1], float32[::1])")
def pack(images, blocks, begin, numbers, out):
    """A band of rows of up to 16 examples, with the examples innermost: out (channel, row, column, 16).

    Args:
        images: (N, H, W, C).
        blocks: where the blocks of up to 16 channels begin that are packed.
        begin: first example, how many, first row of the padded image.
        numbers: zeros at the top and at the left, rows and columns of the band.
        out: flat.
    """
    _, high, wide, channels = images.shape
    first, count, start = begin[0], begin[1], begin[2]
    top, left, rows, columns = numbers[0], numbers[1], numbers[2], numbers[3]
    plane = rows * columns * LANES
    source, target = images.ctypes.data, out.ctypes.data
    inside = min(wide, columns - left)
    for block in range(blocks.shape[0]):
        c0 = blocks[block]
        size = min(LANES, channels - c0)
        base = block * LANES * plane
        for row in range(rows):
            h = start + row - top
            if h < 0 or h >= high:
                for c in range(size):
                    at = base + c * plane + row * columns * LANES
                    out[at : at + columns * LANES] = _ZERO
                continue
            for c in range(size):
                at = base + c * plane + row * columns * LANES
                out[at : at + min(left, columns) * LANES] = _ZERO
                out[at + (left + max(inside, 0)) * LANES : at + columns * LANES] = _ZERO
            for w in range(inside):
                at = base + (row * columns + left + w) * LANES
                if size == LANES:
                    begins = source + 4 * (((first * high + h) * wide + w) * channels + c0)
                    step = 4 * high * wide * channels
                    transpose(begins, step, count, target + 4 * at, 4 * plane)
                else:
                    for c in range(size):
                        for n in range(count):
                            out[at + c * plane + n] = images[first + n, h, w, c0 + c]
                        for n in range(count, LANES):
                            out[at + c * plane + n] = _ZERO


@_compiled(
    "int64(float32[:,:,:,::1], float32[:,:,:,::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, int64,"
    "float32[::1], float32[::1], float32[:,::1])"
)
def packed_band(x, g, x_blocks, g_blocks, x_numbers, steps, first, start, xs, gs, sums):
    """Pack a band of up to 16 examples and add up the planes of g over it: sums (planes, lanes), new for the first band.

    Args:
        x: images (N, H, W, C).
        g: output gradients (N, Ho, Wo, O).
        x_blocks: see ``pack``.
        g_blocks: see ``pack``.
        x_numbers: see ``pack``.
        steps: see ``conv_sampled``.
        first: the first example.
        start: the first row of output positions.
        xs: for the packed x.
        gs: for the packed g.
        sums: of the packed planes.

    Returns:
        How many rows of output positions the band has.
    """
    band, wide = steps[0], g.shape[2]
    rows = min(band, g.shape[1] - start)
    begin = np.array([first, min(LANES, x.shape[0] - first), start * steps[3]])
    pack(x, x_blocks, begin, x_numbers, xs)
    begin[2] = start
    pack(g, g_blocks, begin, np.array([0, 0, band, wide]), gs)
    for slot in range(sums.shape[0]):
        source, target = gs.ctypes.data + 4 * slot * band * wide * LANES, sums.ctypes.data
        plane_sum(source, rows * wide, target + 4 * (slot * sums.shape[1] + first), start == 0)
    return rows


@_compiled(
    "void(float32[:,:,:,::1], float32[:,:,:,::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    "int64[::1], float32[::1], float32[::1], float32[:,::1], float32[:,::1], float64[::1])"
)
def conv_sampled(
    x, g, x_blocks, g_blocks, planes, segments, windows, x_numbers, steps, xs, gs, out, sums, norms
):
    """Gradients at chosen coordinates: out (K, lanes); their squares are added to norms (N,).

    Args:
        x: images (N, H, W, C).
        g: output gradients (N, Ho, Wo, O).
        x_blocks: see ``pack``.
        g_blocks: see ``pack``.
        planes: of each segment of coordinates, where its plane begins in the packed g, in bytes.
        segments: where each segment begins among the coordinates, and their number.
        windows: of each coordinate, where its window begins in the packed x, in bytes.
        x_numbers: see ``pack``.
        steps: rows of output positions in a band, the windows' steps to the right and down in bytes, and the stride down.
        xs: scratch for the packed x.
        gs: scratch for the packed g.
        out: one row for each coordinate, one lane for each example.
        sums: see ``packed_band``.
        norms: (N,).
    """
    high, wide = g.shape[1], g.shape[2]
    band, right, down = steps[0], steps[1], steps[2]
    totals = np.zeros(LANES)
    ones = np.ones(1, np.bool_)
    step, total, yes = 4 * out.shape[1], totals.ctypes.data, ones.ctypes.data
    for first in range(0, x.shape[0], LANES):
        count = min(LANES, x.shape[0] - first)
        for h in range(0, high, band):
            rows = packed_band(x, g, x_blocks, g_blocks, x_numbers, steps, first, h, xs, gs, sums)
            xa, ga, at = xs.ctypes.data, gs.ctypes.data, out.ctypes.data + 4 * first
            walk, done = (rows, wide, right, down), (total, h == 0, h + band >= high)
            for s in range(planes.shape[0]):
                plane, t, end = planes.ctypes.data + 8 * s, segments[s], segments[s + 1]
                while t < end:
                    at_x, to = windows.ctypes.data + 8 * t, at + t * step
                    if t + _MANY <= end:
                        _dots_many(ga, plane, xa, at_x, *walk, to, 0, step, yes, 0, 0, *done)
                        t += _MANY
                    elif t + _FEW <= end:
                        _dots_few(ga, plane, xa, at_x, *walk, to, 0, step, yes, 0, 0, *done)
                        t += _FEW
                    else:
                        _dots_one(ga, plane, xa, at_x, *walk, to, 0, step, yes, 0, 0, *done)
                        t += 1
        for n in range(count):
            norms[first + n] += totals[n]
        totals[:] = 0.0


@_compiled(
    "void(float32[:,:,:,::1], float32[:,:,:,::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    "int64[::1], float32[::1], float32[::1], float32[:,::1], float32[:,::1], boolean[::1], float64[::1])"
)
def conv_tiled(x, g, x_blocks, g_blocks, planes, windows, x_numbers, steps, xs, gs, out, sums, mask, norms):
    """All gradients of the chosen output channels, by tiles of them: out (R*J, lanes); see ``conv_sampled``.

    Args:
        x: images.
        g: output gradients.
        x_blocks: see ``pack``.
        g_blocks: see ``pack``.
        planes: where the chosen output channels begin in the packed g, in bytes.
        windows: where each of the J entries of a filter begins in the packed x, in bytes.
        x_numbers: see ``pack``.
        steps: see ``conv_sampled``.
        xs: scratch.
        gs: scratch.
        out: rows by entries, one lane for each example.
        sums: see ``packed_band``.
        mask: which of them count for the norms; (True,) for all.
        norms: (N,).
    """
    high, wide = g.shape[1], g.shape[2]
    band, right, down = steps[0], steps[1], steps[2]
    totals = np.zeros(LANES)
    step, columns, total = 4 * out.shape[1], windows.shape[0], totals.ctypes.data
    line, masked = columns * step, mask.shape[0] > 1
    down_mask, next_mask = (columns, 1) if masked else (0, 0)
    for first in range(0, x.shape[0], LANES):
        count = min(LANES, x.shape[0] - first)
        for h in range(0, high, band):
            rows = packed_band(x, g, x_blocks, g_blocks, x_numbers, steps, first, h, xs, gs, sums)
            xa, ga, r = xs.ctypes.data, gs.ctypes.data, 0
            walk, done = (rows, wide, right, down), (total, h == 0, h + band >= high)
            while r < planes.shape[0]:
                height = _TALL if r + _TALL <= planes.shape[0] else 1
                plane, t = planes.ctypes.data + 8 * r, 0
                while t < columns:
                    at_x, kept = windows.ctypes.data + 8 * t, mask.ctypes.data
                    if masked:
                        kept += r * columns + t
                    to = out.ctypes.data + 4 * first + r * line + t * step
                    if height > 1 and t + _TALL <= columns:
                        _dots_tile(
                            ga, plane, xa, at_x, *walk, to, line, step, kept, down_mask, next_mask, *done
                        )
                        t += _TALL
                    elif height > 1:
                        _dots_tall(
                            ga, plane, xa, at_x, *walk, to, line, step, kept, down_mask, next_mask, *done
                        )
                        t += 1
                    elif t + _FEW <= columns:
                        _dots_few(ga, plane, xa, at_x, *walk, to, 0, step, kept, down_mask, next_mask, *done)
                        t += _FEW
                    else:
                        _dots_one(ga, plane, xa, at_x, *walk, to, 0, step, kept, down_mask, next_mask, *done)
                        t += 1
                r += height
        for n in range(count):
            norms[first + n] += totals[n]
        totals[:] = 0.0


@_compiled("void(float32[:,::1], int64[::1], float32[::1], float32[::1])")
def weighted_rows(values, places, weights, out):
    """out[i] += the dot product of values[places[i]] (lanes,) and weights (lanes,)."""
    for i in range(places.shape[0]):
        row = values[places[i]]
        s = _ZERO
        for n in range(weights.shape[0]):
            s += row[n] * weights[n]
        out[i] += s


@_compiled("void(float32[:,:,::1], int64[::1], float32[:,::1], float64[::1])")
def plane_sums(g, channels, out, norms):
    """Sums over the positions of g (N, positions, O) at the chosen channels, out (N, R); squares are added to norms (N,)."""
    acc = np.empty(g.shape[2], np.float32)
    for n in range(g.shape[0]):
        acc[:] = _ZERO
        for position in range(g.shape[1]):
            point = g[n, position]
            for c in range(point.shape[0]):
                acc[c] += point[c]
        for r in range(channels.shape[0]):
            out[n, r] = acc[channels[r]]
        norms[n] += squares(out[n])
