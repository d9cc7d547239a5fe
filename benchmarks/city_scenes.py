"""Make the committed building heights again: python -m benchmarks.city_scenes --out FILE [--wheel FILE] [--json].

The heights are those of the scenes of sionna-rt 2.2.0. Its meshes are read from the installed package (extra ``rt``) or, with
--wheel, from the wheel's file alone; they are rasterised with numpy. A city's array covers the bounding box of its ground in
whole metres. The value of a square metre is the highest point of a building above its centre, less the ground's height there,
rounded; 0 where no building stands. Prints how many values differ from the committed ones.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import show
from sfumato.artifacts import write_npz
from sfumato.datasets.city_heights import CITIES, load_city_heights

GROUND = ("ground.ply", "Plane.ply", "Terrain.ply")
SCENES = "sionna/rt/scenes"
TOUCH = 1e-9
"""Barycentric slack with which a centre on a triangle's side still counts as covered."""


def meshes(wheel: Path | None, city: str) -> Iterator[tuple[str, bytes]]:
    """File name and content of each mesh of a city, by name."""
    folder = f"{SCENES}/{city}/meshes/"
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                if name.startswith(folder) and name.endswith(".ply"):
                    yield name.removeprefix(folder), archive.read(name)
        return
    found = importlib.util.find_spec("sionna")
    places = list(found.submodule_search_locations or []) if found else []
    files = [file for place in places for file in sorted((Path(place).parent / folder).glob("*.ply"))]
    if not files:
        sys.exit("sionna-rt is not installed; install the extra rt or name its wheel's file with --wheel.")
    for file in files:
        yield file.name, file.read_bytes()


def triangles(content: bytes) -> NDArray[np.float64]:
    """(t, 3, 3) corners of the triangles of a binary little-endian PLY file."""
    header, _, body = content.partition(b"end_header\n")
    counts: dict[str, int] = {}
    columns = 0
    for line in header.decode("ascii").splitlines():
        words = line.split()
        if words[0] == "element":
            counts[words[1]] = int(words[2])
        columns += words[0] == "property" and "face" not in counts
    vertices = np.frombuffer(body, "<f4", counts["vertex"] * columns).reshape(-1, columns)[:, :3]
    faces = np.frombuffer(
        body,
        np.dtype([("corners", "u1"), ("index", "<i4", 3)]),
        counts["face"],
        vertices.size // 3 * columns * 4,
    )
    if (faces["corners"] != 3).any():
        sys.exit("a mesh holds faces that are no triangles; allowed are those of sionna-rt 2.2.0.")
    return vertices[faces["index"]].astype(np.float64)


def highest(mesh: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.float64]:
    """The highest point of the triangles above each square's centre, -inf where there is none.

    Args:
        mesh: (t, 3, 3), metres from the array's corner: east, north, up.
        shape: rows (north) and columns (east).
    """
    result = np.full(shape, -np.inf)
    x, y, z = np.moveaxis(mesh, 2, 0)
    x, y = x - 0.5, y - 0.5
    area = (x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 0]) - (x[:, 2] - x[:, 0]) * (y[:, 1] - y[:, 0])
    left, right = np.ceil(x.min(1)).astype(int).clip(0), np.floor(x.max(1)).astype(int).clip(max=shape[1] - 1)
    low, high = np.ceil(y.min(1)).astype(int).clip(0), np.floor(y.max(1)).astype(int).clip(max=shape[0] - 1)
    # A wall seen from above is no area.
    for t in np.flatnonzero((left <= right) & (low <= high) & (np.abs(area) > 1e-9)):
        column, row = np.arange(left[t], right[t] + 1), np.arange(low[t], high[t] + 1)[:, None]
        (x0, x1, x2), (y0, y1, y2) = x[t], y[t]
        second = ((column - x0) * (y2 - y0) - (x2 - x0) * (row - y0)) / area[t]
        third = ((x1 - x0) * (row - y0) - (column - x0) * (y1 - y0)) / area[t]
        first = 1.0 - second - third
        covered = np.minimum(np.minimum(first, second), third) >= -TOUCH
        height = np.where(covered, first * z[t, 0] + second * z[t, 1] + third * z[t, 2], -np.inf)
        part = result[low[t] : high[t] + 1, left[t] : right[t] + 1]
        np.maximum(part, height, out=part)
    return result


def rasterise(wheel: Path | None, city: str) -> NDArray[np.uint8]:
    """The heights of a city."""
    ground: list[NDArray[np.float64]] = []
    buildings: list[NDArray[np.float64]] = []
    for name, content in meshes(wheel, city):
        (ground if name in GROUND else buildings).append(triangles(content))
    terrain = np.concatenate(ground)
    corner = np.array([terrain[..., 0].min(), terrain[..., 1].min(), 0.0])
    extent = (terrain - corner).max(axis=(0, 1))
    shape = int(extent[1]), int(extent[0])
    roofs = highest(np.concatenate(buildings) - corner, shape)
    above = np.where(np.isfinite(roofs), roofs - highest(terrain - corner, shape), 0.0)
    return np.rint(np.maximum(above, 0.0)).astype(np.uint8)


def main(arguments: list[str] | None = None) -> None:
    """Rasterise, compare and write."""
    parser = argparse.ArgumentParser(description="Make the committed building heights again.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    made = {city: rasterise(options.wheel, city) for city in CITIES}
    if options.out:
        write_npz(options.out, made)
    committed = load_city_heights()
    rows: list[dict[str, Any]] = []
    for city, heights in made.items():
        same = heights.shape == committed[city].shape
        rows.append(
            {
                "city": city,
                "rows": heights.shape[0],
                "columns": heights.shape[1],
                "built_share": float((heights > 0).mean()),
                "differing_squares": int((heights != committed[city]).sum()) if same else -1,
            }
        )
    show(rows)


if __name__ == "__main__":
    main()
