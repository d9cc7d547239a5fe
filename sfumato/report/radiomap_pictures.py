"""Pictures of radio maps as inline SVG: buildings, true path gain, predictions, the transmitter and the attacker's guess.

>>> import numpy as np
>>> gain = np.array([[-90.0, 0.0], [-70.0, -80.0]], np.float32)
>>> free = np.array([[True, False], [True, True]])
>>> arrays = {"heights": np.where(free, 0, 12.0), "truth": gain, "free": free, "transmitter": np.array([1, 0]),
...           "names": np.array(["uniform/3"]), "predictions": gain[None], "guesses": np.array([[1.0, 1.0]]), "cell": np.array(8.0)}
>>> found = pictures_of("city_maps", arrays)
>>> found.scale, found.error_db(0), found.distance(0), found.title(0)
((-90.0, -70.0), 0.0, 8.0, 'Uniform noise, ν = 3')
>>> prediction_picture(found, 0, "example").startswith("<svg")
True

Maps are drawn in ten levels of equal width; their colours are variables of the page, light or dark. Horizontal runs of one
level are one rectangle.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.report.figure import wrap
from sfumato.report.vocabulary import GAIN_COLOURS, method, number

LEVELS = len(GAIN_COLOURS)
HEIGHT_LEVELS = 5
STEP = 5.0
"""Decibels; both ends of the scale are multiples of it."""
NAMES = ("heights", "truth", "free", "transmitter", "names", "predictions", "guesses", "cell")
BUILDING = 'fill="var(--muted)" fill-opacity=".38"'


@dataclass(frozen=True, eq=False)
class RadiomapPictures:
    """One map that a client may train on, what the network makes of it under each defence, and what an attacker guesses.

    Attributes:
        dataset: where the map comes from.
        heights: float64 (s, s), metres above ground, 0 where nothing is built.
        truth: float64 (s, s), path gain in dB, at most 0; only free cells count.
        free: bool (s, s), cells outdoors.
        transmitter: row and column of its cell.
        names: defence and noise multiplier, as in records, with a slash between.
        predictions: float64 (k, s, s), path gain in dB.
        guesses: float64 (k, 2), row and column in cells; whole numbers are the centres of cells, as of the transmitter.
        cell: metres.
    """

    dataset: str
    heights: NDArray[np.float64]
    truth: NDArray[np.float64]
    free: NDArray[np.bool_]
    transmitter: tuple[int, int]
    names: tuple[str, ...]
    predictions: NDArray[np.float64]
    guesses: NDArray[np.float64]
    cell: float

    @property
    def size(self) -> int:
        """Cells along an edge."""
        return len(self.free)

    @property
    def scale(self) -> tuple[float, float]:
        """Ends of the colour scale in dB: the true map's 1 % and 99 % quantiles, outwards to multiples of `STEP`.

        A few cells beside the transmitter would otherwise take half of the colours.
        """
        ends = np.quantile(self.truth[self.free], [0.01, 0.99])
        low = STEP * math.floor(float(ends[0]) / STEP)
        return low, max(STEP * math.ceil(float(ends[1]) / STEP), low + STEP)

    @property
    def heights_top(self) -> float:
        """Metres; the height of the tallest building, at least 1."""
        return max(float(self.heights.max()), 1.0)

    def name(self, place: int) -> tuple[str, str]:
        """A defence, and its noise multiplier; the latter empty where it has no noise."""
        defence, _slash, noise = self.names[place].partition("/")
        return defence, "" if noise == "0" else noise

    def title(self, place: int) -> str:
        """A defence with its noise multiplier, for readers."""
        defence, noise = self.name(place)
        return method(defence).label + (f", ν = {noise}" if noise else "")

    def error_db(self, place: int) -> float:
        """Root mean squared error in dB of a prediction over free cells."""
        gap: NDArray[np.float64] = (self.predictions[place] - self.truth)[self.free]
        return math.sqrt(float(np.mean(np.square(gap))))

    def distance(self, place: int) -> float:
        """Metres between a guess and the transmitter."""
        row, column = (float(at) for at in self.guesses[place])
        return self.cell * math.hypot(row - self.transmitter[0], column - self.transmitter[1])


def pictures_of(dataset: str, arrays: Mapping[str, NDArray[Any]]) -> RadiomapPictures:
    """The pictures of a file's arrays, checked.

    Args:
        dataset: whose.
        arrays: `NAMES` with the shapes of `RadiomapPictures`.

    Raises:
        SfumatoError: if an array is missing, has another shape, is not finite, or gains are above 0 dB.
    """
    where = f"the pictures of {dataset}"
    missing = [name for name in NAMES if name not in arrays]
    if missing:
        raise SfumatoError(f"{where} lack the array {missing[0]!r}; needed are {', '.join(NAMES)}.")
    size, count = arrays["free"].shape[-1:], arrays["names"].shape[:1]
    square = (*size, *size)
    shapes: dict[str, tuple[int, ...]] = {
        **{name: square for name in ("heights", "truth", "free")},
        **{"transmitter": (2,), "names": count, "cell": ()},
        **{"predictions": (*count, *square), "guesses": (*count, 2)},
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise SfumatoError(f"{where} have {name} of shape {arrays[name].shape}; needed is {shape}.")
        if name != "names" and not np.isfinite(arrays[name]).all():
            raise SfumatoError(f"{where} have {name} that are not finite; allowed are finite numbers.")
    free = arrays["free"].astype(np.bool_)
    truth = np.asarray(arrays["truth"], np.float64)
    if not free.any():
        raise SfumatoError(f"{where} have no free cell; needed is at least one.")
    if float(truth[free].max()) > 0:
        raise SfumatoError(
            f"{where} have a true path gain of {float(truth[free].max()):g}; allowed are decibels of at most 0."
        )
    row, column = (int(number) for number in arrays["transmitter"])
    return RadiomapPictures(
        dataset,
        np.asarray(arrays["heights"], np.float64),
        truth,
        free,
        (row, column),
        tuple(str(name) for name in arrays["names"]),
        np.asarray(arrays["predictions"], np.float64),
        np.asarray(arrays["guesses"], np.float64),
        float(arrays["cell"]),
    )


# ------------------------------------------------------------------------------------------------- drawing
def _runs(levels: NDArray[np.int64]) -> dict[int, str]:
    """Level -> the path of its cells, a rectangle per horizontal run; negative levels are left out."""
    paths: dict[int, list[str]] = {}
    for row, line in enumerate(levels):
        starts = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), len(line)]
        for start, end in pairwise(starts):
            if line[start] >= 0:
                paths.setdefault(int(line[start]), []).append(
                    f"M{start} {row}h{end - start}v1h-{end - start}z"
                )
    return {level: "".join(parts) for level, parts in sorted(paths.items())}


def levels_of(
    values: NDArray[np.float64], mask: NDArray[np.bool_], low: float, high: float, count: int
) -> NDArray[np.int64]:
    """The level of every cell, 0 to ``count - 1``; values beyond the ends get the end's, cells outside the mask -1.

    >>> levels_of(np.array([[0.0, 4.9, 9.9, 99.0]]), np.array([[True, True, True, False]]), 0.0, 10.0, 2).tolist()
    [[0, 0, 1, -1]]
    """
    raw = np.floor((values - low) / (high - low) * count)
    return np.where(mask, np.clip(raw, 0, count - 1), -1).astype(np.int64)


def _cells(levels: NDArray[np.int64], style: str) -> str:
    """Paths of all levels; ``style`` has the level's number in the place of ``{level}``."""
    return "".join(f'<path {style.format(level=level)} d="{path}"/>' for level, path in _runs(levels).items())


def _gain_cells(pictures: RadiomapPictures, values: NDArray[np.float64]) -> str:
    levels = levels_of(values, pictures.free, *pictures.scale, LEVELS)
    buildings = np.where(pictures.free, -1, 0)
    return _cells(buildings, BUILDING) + _cells(levels, 'fill="var(--gain-{level})"')


def _stroked(shape: str, colour: str, width: float) -> str:
    """A line drawing with a halo in the colour of the paper, so that it shows on every level."""
    halo = f'fill="none" stroke="var(--paper)" stroke-width="{2.6 * width:g}"'
    line = f'fill="none" stroke="var({colour})" stroke-width="{width:g}"'
    return shape.format(style=halo) + shape.format(style=line)


def _ring(pictures: RadiomapPictures) -> str:
    """The true transmitter: a ring with a dot."""
    unit, (row, column) = pictures.size / 32, pictures.transmitter
    x, y = column + 0.5, row + 0.5
    ring = f'<circle {{style}} cx="{x:g}" cy="{y:g}" r="{1.1 * unit:g}"/>'
    dot = f'<circle fill="var(--ink)" cx="{x:g}" cy="{y:g}" r="{0.35 * unit:g}"/>'
    return _stroked(ring, "--ink", 0.32 * unit) + dot


def _cross(pictures: RadiomapPictures, place: int) -> str:
    """The attacker's guess: a cross, joined to the transmitter by a line."""
    unit, edge = pictures.size / 32, float(pictures.size)
    y, x = (min(max(float(at) + 0.5, 0.0), edge) for at in pictures.guesses[place])
    row, column = pictures.transmitter
    arm = 0.9 * unit
    cross = f"M{x - arm:.2f} {y - arm:.2f}l{2 * arm:.2f} {2 * arm:.2f}m0 {-2 * arm:.2f}l{-2 * arm:.2f} {2 * arm:.2f}"
    joint = f'<path {{style}} stroke-dasharray="{0.8 * unit:g} {0.6 * unit:g}" d="M{x:.2f} {y:.2f}L{column + 0.5:g} {row + 0.5:g}"/>'
    return _stroked(joint, "--ink", 0.16 * unit) + _stroked(
        f'<path {{style}} d="{cross}"/>', "--alert", 0.42 * unit
    )


def _framed(pictures: RadiomapPictures, inner: str, name: str, title: str, text: str) -> str:
    size = pictures.size
    frame = f'<rect fill="none" stroke="var(--rule)" stroke-width="{size / 160:g}" x="0" y="0" width="{size}" height="{size}"/>'
    box, drawn = f"0 0 {size} {size}", f'<g shape-rendering="crispEdges">{inner}</g>'
    return wrap(drawn + frame + _ring(pictures), box, name, title, text)


def building_picture(pictures: RadiomapPictures, name: str) -> str:
    """Heights of the buildings in shades, and the transmitter."""
    levels = levels_of(pictures.heights, ~pictures.free, 0.0, pictures.heights_top, HEIGHT_LEVELS)
    shades = "".join(
        f'<path fill="var(--ink)" fill-opacity="{_shade(level):g}" d="{path}"/>'
        for level, path in _runs(levels).items()
    )
    built = 1 - float(pictures.free.mean())
    text = f"{100 * built:.0f} % of the cells are built, up to {pictures.heights_top:.0f} metres high"
    return _framed(pictures, shades, name, "Map of the buildings", text)


def _shade(level: int) -> float:
    return round(0.18 + 0.72 * level / (HEIGHT_LEVELS - 1), 2)


def truth_picture(pictures: RadiomapPictures, name: str) -> str:
    """The true path gain, and the transmitter."""
    outdoors = pictures.truth[pictures.free]
    text = f"path gain from {float(outdoors.min()):.0f} to {float(outdoors.max()):.0f} dB".replace("-", "−")
    return _framed(pictures, _gain_cells(pictures, pictures.truth), name, "True radio map", text)


def prediction_picture(pictures: RadiomapPictures, place: int, name: str) -> str:
    """The predicted path gain under one defence, the transmitter, and the attacker's guess.

    Args:
        pictures: of one map.
        place: of the defence among the names.
        name: prefix of the ids.
    """
    text = (
        f"root mean squared error {number(pictures.error_db(place))} dB; the attacker's guess is "
        f"{pictures.distance(place):.0f} metres from the transmitter"
    )
    title = f"Predicted radio map, {pictures.title(place)}"
    cells = _gain_cells(pictures, pictures.predictions[place])
    picture = _framed(pictures, cells, name, title, text)
    return picture.removesuffix("</svg>") + _cross(pictures, place) + "</svg>"


def legend_picture(pictures: RadiomapPictures, name: str) -> str:
    """The colour scale, in dB from weak to strong."""
    low, high = pictures.scale
    width = 30
    bars = "".join(
        f'<rect fill="var(--gain-{level})" x="{width * level}" y="0" width="{width}" height="10"/>'
        for level in range(LEVELS)
    )
    ends = [low + (high - low) * level / LEVELS for level in (0, LEVELS // 2, LEVELS)]
    anchors = ("start", "middle", "end")
    labels = "".join(
        f'<text x="{width * LEVELS * place / 2:g}" y="22" font-size="10" fill="var(--muted)" text-anchor="{anchor}">'
        f"{html.escape(f'{end:g} dB'.replace('-', '−'))}</text>"
        for place, (end, anchor) in enumerate(zip(ends, anchors, strict=True))
    )
    text = f"{LEVELS} levels from {low:g} to {high:g} dB".replace("-", "−")
    return wrap(
        f'<g shape-rendering="crispEdges">{bars}</g>{labels}',
        f"0 0 {width * LEVELS} 26",
        name,
        "Colour scale of the path gain",
        text,
    )
