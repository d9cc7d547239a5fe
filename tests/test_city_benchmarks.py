"""The scripts around the city heights: meshes are rasterised exactly, and a missing extra is one sentence."""

from __future__ import annotations

import importlib.util
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks import city_scenes, radiomap_raytracing


def ply(triangles: np.ndarray) -> bytes:
    """A binary PLY file of (t, 3, 3) corners, as the scenes have them."""
    corners = triangles.reshape(-1, 3).astype("<f4")
    header = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(corners)}\nproperty float x\nproperty float y\n"
        f"property float z\nelement face {len(triangles)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    faces = b"".join(struct.pack("<Biii", 3, *range(3 * t, 3 * t + 3)) for t in range(len(triangles)))
    return header.encode() + corners.tobytes() + faces


def plane(west: float, south: float, east: float, north: float, up: float) -> np.ndarray:
    corners = np.array([[west, south, up], [east, south, up], [east, north, up], [west, north, up]])
    return corners[[[0, 1, 2], [0, 2, 3]]]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A town on ground 2 m high, 6 m wide and 5 m deep, with a flat roof and one that rises to the east."""
    slope = plane(3.0, 0.0, 6.0, 2.0, 0.0)
    slope[..., 2] = 6.0 + 2.0 * slope[..., 0]
    path = tmp_path / "scenes.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, mesh in (
            ("ground", plane(-1, -1, 5, 4, 2.0)),
            ("a", plane(0, 1, 2, 3, 12.0)),
            ("b", slope - [1, 1, 0]),
        ):
            archive.writestr(f"{city_scenes.SCENES}/town/meshes/{name}.ply", ply(mesh))
    return path


def test_roofs_are_rasterised_at_the_centres_of_square_metres_above_the_ground(wheel: Path) -> None:
    heights = city_scenes.rasterise(wheel, "town")
    expected = np.zeros((5, 6), np.uint8)
    expected[2:4, 1:3] = 10
    expected[:2, 3:] = [11, 13, 15]
    np.testing.assert_array_equal(heights, expected)


def test_without_the_extra_both_scripts_say_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SystemExit, match="sionna-rt is not installed; install the extra rt"):
        city_scenes.main([])
    with pytest.raises(SystemExit, match="sionna-rt is not installed; the comparison needs the extra rt"):
        radiomap_raytracing.main([])
