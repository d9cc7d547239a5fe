"""The support as a picture: the first layer's weights, active ones in colour, frozen ones in grey.

>>> import numpy as np
>>> weight, active = np.ones((1, 1, 1, 2)), np.array([[[[True, False]]]])
>>> tiles(weight, active)[0][1].tolist()
[[True, False]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.report.figure import wrap
from sfumato.report.study import Support
from sfumato.report.vocabulary import epsilon_label, method

LEVELS = 4
CELL = 6
MAX_TILES = 32
MAX_COLUMNS = 128


def tiles(weight: NDArray[Any], active: NDArray[Any]) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """One (weights, active) pair of matrices per filter of a convolution; one in all for a dense layer.

    Args:
        weight: (out, in, height, width) or (out, in).
        active: bool, the same shape.
    """
    if weight.ndim == 2:
        return [(weight[:64, :MAX_COLUMNS].astype(np.float64), active[:64, :MAX_COLUMNS].astype(np.bool_))]
    out = weight.shape[0]
    flat = weight.reshape(out, -1, weight.shape[-2], weight.shape[-1])
    mask = active.reshape(flat.shape)
    return [
        (
            np.concatenate(list(flat[i]), axis=1).astype(np.float64),
            np.concatenate(list(mask[i]), axis=1).astype(np.bool_),
        )
        for i in range(min(out, MAX_TILES))
    ]


def support_picture(support: Support, name: str, columns: int = 8) -> str:
    """Every filter as a tile: orange and blue for active negative and positive weights, grey for frozen ones."""
    found = tiles(support.first_weight, support.first_active)
    columns = min(columns, len(found))
    height, width = found[0][0].shape
    limit = float(np.quantile(np.abs(support.first_weight), 0.98)) or 1.0
    step_x, step_y = CELL * width + 8, CELL * height + 8
    paths: dict[str, list[str]] = {}
    for index, (values, active) in enumerate(found):
        left, top = (index % columns) * step_x, (index // columns) * step_y
        for row, column in np.ndindex(values.shape):
            level = min(int(abs(values[row, column]) / limit * LEVELS), LEVELS - 1)
            kind = ("p" if values[row, column] >= 0 else "n") if active[row, column] else "z"
            paths.setdefault(f"{kind}{level}", []).append(
                f"M{left + CELL * column} {top + CELL * row}h{CELL}v{CELL}h-{CELL}z"
            )
    inner = "".join(f'<path class="w {key}" d="{"".join(paths[key])}"/>' for key in sorted(paths))
    frames = "".join(
        f'<rect class="tile" x="{(i % columns) * step_x}" y="{(i // columns) * step_y}" '
        f'width="{CELL * width}" height="{CELL * height}"/>'
        for i in range(len(found))
    )
    rows = math.ceil(len(found) / columns)
    share = float(support.first_active.mean())
    title = f"First layer of {method(support.method).label}, {epsilon_label(support.epsilon)}"
    text = f"{support.first_name}: {100 * share:.1f} % of {support.first_weight.size} weights are active"
    return wrap(inner + frames, f"-1 -1 {columns * step_x - 6} {rows * step_y - 6}", name, title, text)


def pictured(supports: Sequence[Support], dataset: str, methods: Sequence[str]) -> list[Support]:
    """For each method the support at the largest epsilon, first seed."""
    chosen: list[Support] = []
    for entry in methods:
        mine = [s for s in supports if s.dataset == dataset and s.method == entry]
        mine.sort(key=lambda s: (-float(s.epsilon), len(s.seed), s.seed))
        chosen += mine[:1]
    return chosen
