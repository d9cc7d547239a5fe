"""The dominant-path model beside a ray tracer: python -m benchmarks.radiomap_raytracing [--json] [--maps N] [--samples N].

Needs the extra ``rt`` (sionna-rt 2.2.0) and LLVM, whose library's path is in the environment variable DRJIT_LIBLLVM_PATH. The
ray tracer follows line of sight, specular reflections and one diffraction, on the scenes that the committed heights come from;
both see receivers at 1.5 m in the same windows of 256 m with cells of 8 m. Transmitters stand 5 m above a roof, or at 1.5 m in
a street. Compared are free cells that rays reached at all: their share, and bias, root mean square and correlation of the
difference in dB, apart for cells with and without line of sight by our model. The ray tracer adds powers over a whole cell
and has walls that reflect, which the dominant path has not, so it is expected to be the stronger one in shadows.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.common import show

import numpy as np  # isort: skip  # after the one thread that benchmarks.common sets
from numpy.typing import NDArray

from sfumato.datasets.city_heights import load_city_heights
from sfumato.datasets.radio_windows import Windows, cut_windows
from sfumato.radiomap.diffraction import free_space_gain
from sfumato.radiomap.propagation import Link, path_gain
from sfumato.rng import Streams

FLAT = ("munich", "florence", "etoile")
"""Cities whose ground is flat, so that heights above ground are heights of the scene."""
CELL, SIDE, MAST = 8.0, 256.0, 5.0


@dataclass(frozen=True, eq=False)
class Tracer:
    """One city's scene."""

    rt: Any
    mitsuba: Any
    scene: Any
    samples: int

    @classmethod
    def load(cls, city: str, frequency: float, samples: int) -> Tracer:
        """The scene of a city, with isotropic antennas."""
        rt, mitsuba = importlib.import_module("sionna.rt"), importlib.import_module("mitsuba")
        scene = rt.load_scene(getattr(rt.scene, city))
        scene.frequency = frequency
        array = rt.PlanarArray(num_rows=1, num_cols=1, pattern="iso", polarization="V")
        scene.tx_array = scene.rx_array = array
        return cls(rt, mitsuba, scene, samples)

    def gain(self, corner: NDArray[Any], place: NDArray[Any], height: float) -> NDArray[np.float64]:
        """(s, s) dB, -inf where no ray came, of an antenna in a cell of the window at a corner (rows first)."""
        origin = np.array(self.scene.mi_scene.bbox().min)[:2] + corner[::-1]
        east, north = origin + (place[::-1] + 0.5) * CELL
        self.scene.add(self.rt.Transmitter("t", position=[float(east), float(north), height]))
        middle = origin + SIDE / 2.0
        found = self.rt.RadioMapSolver()(
            self.scene,
            center=self.mitsuba.Point3f(float(middle[0]), float(middle[1]), 1.5),
            orientation=self.mitsuba.Point3f(0, 0, 0),
            size=self.mitsuba.Point2f(SIDE, SIDE),
            cell_size=self.mitsuba.Point2f(CELL, CELL),
            max_depth=4,
            refraction=False,
            diffraction=True,
            samples_per_tx=self.samples,
        )
        self.scene.remove("t")
        with np.errstate(divide="ignore"):
            return 10.0 * np.log10(found.path_gain.numpy()[0].astype(np.float64))


def places_of(windows: Windows, maps: int, roof: bool) -> list[tuple[int, NDArray[Any], float]]:
    """(window, cell, antenna height) of the transmitters, by a public seed."""
    stream = Streams(0).stream("raytracing", int(roof))
    result: list[tuple[int, NDArray[Any], float]] = []
    for window in stream.permutation(len(windows))[:maps].tolist():
        heights = windows.heights[window]
        cells = np.argwhere(heights > 0 if roof else heights == 0)
        cells = cells[((cells > 4) & (cells < len(heights) - 5)).all(axis=1)]
        cell = cells[int(stream.integers(0, len(cells), 1)[0])]
        result.append((window, cell, float(heights[tuple(cell)]) + MAST if roof else 1.5))
    return result


def compared(city: str, tracer: Tracer, windows: Windows, maps: int, roof: bool) -> list[Mapping[str, Any]]:
    """The rows of one city and kind of transmitter."""
    ours: list[NDArray[Any]] = []
    theirs: list[NDArray[Any]] = []
    sight: list[NDArray[np.bool_]] = []
    seconds = 0.0
    for window, cell, height in places_of(windows, maps, roof):
        link = Link(transmitter_height=height)
        gain = path_gain(windows.heights[window], cell, link, CELL)
        start = time.perf_counter()
        traced = tracer.gain(windows.corner[window], cell, height)
        seconds += time.perf_counter() - start
        free = np.isfinite(gain)
        rows, columns = np.nonzero(free)
        distance = np.hypot(CELL * np.hypot(rows - cell[0], columns - cell[1]), height - 1.5)
        ours.append(gain[free].astype(np.float64))
        theirs.append(traced[free])
        sight.append(ours[-1] >= free_space_gain(np.maximum(distance, CELL / 2), link.wave) - 1e-3)
    a, b, seen = np.concatenate(ours), np.concatenate(theirs), np.concatenate(sight)
    result: list[Mapping[str, Any]] = []
    for name, part in (("line of sight", seen), ("shadow", ~seen), ("all", np.ones_like(seen))):
        reached = part & np.isfinite(b)
        difference = a[reached] - b[reached]
        result.append(
            {
                "city": city,
                "transmitter": "roof" if roof else "street",
                "cells": name,
                "count": int(part.sum()),
                "reached": float(reached.sum() / max(part.sum(), 1)),
                "bias_db": float(difference.mean()),
                "median_db": float(np.median(difference)),
                "rms_db": float(np.sqrt((difference**2).mean())),
                "correlation": float(np.corrcoef(a[reached], b[reached])[0, 1]),
                "tracer_s_per_map": seconds / maps,
            }
        )
    return result


def main(arguments: list[str] | None = None) -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description="The dominant-path model beside a ray tracer.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--maps", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2_000_000)
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("sionna") is None:
        sys.exit("sionna-rt is not installed; the comparison needs the extra rt and is left out without it.")
    rows: list[Mapping[str, Any]] = []
    for city in FLAT:
        tracer = Tracer.load(city, Link().frequency, options.samples)
        windows = cut_windows(load_city_heights([city]), stride=256, cell=CELL)
        for roof in (True, False):
            rows += compared(city, tracer, windows, options.maps, roof)
    show(rows)


if __name__ == "__main__":
    main()
