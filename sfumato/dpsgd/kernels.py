"""All compiled kernels: importing this module compiles them, or reads them from Numba's cache.

>>> pack is not transposed
True
"""

from __future__ import annotations

from sfumato.dpsgd.conv_kernels import conv_sampled, conv_tiled, pack, plane_sums, squares, weighted_rows
from sfumato.dpsgd.linear_kernels import linear_squares, sampled_dots, transposed

__all__ = [
    "conv_sampled",
    "conv_tiled",
    "linear_squares",
    "pack",
    "plane_sums",
    "sampled_dots",
    "squares",
    "transposed",
    "weighted_rows",
]
