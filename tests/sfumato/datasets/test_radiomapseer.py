"""RadioMapSeer's pictures: read as published, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfumato.datasets.radiomapseer import BUILDING_HEIGHT, SPLITS, read_samples, split_maps
from sfumato.errors import DataUnavailableError, SfumatoError

SIZE = 8


def save(folder: Path, name: str, levels: np.ndarray) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(levels).save(path)


def lit(row: int, column: int) -> np.ndarray:
    picture = np.zeros((SIZE, SIZE), np.uint8)
    picture[row, column] = 255
    return picture


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two maps with three transmitters each; map m has its building in rows m..m+1."""
    for number in (1, 4):
        walls = np.zeros((SIZE, SIZE), np.uint8)
        walls[number : number + 2, 2:5] = 255
        save(tmp_path, f"png/buildings_complete/{number}.png", walls)
        for transmitter in range(3):
            save(tmp_path, f"png/antennas/{number}_{transmitter}.png", lit(7, transmitter))
            for method, level in (("DPM", 100), ("IRT2", 200)):
                save(
                    tmp_path,
                    f"gain/{method}/{number}_{transmitter}.png",
                    np.full((SIZE, SIZE), level + number + transmitter, np.uint8),
                )
    return tmp_path


def test_pictures_are_read_in_the_order_asked_for(folder: Path) -> None:
    samples = read_samples(folder, [4, 1], transmitters=[2, 0], size=SIZE)
    assert samples.maps.tolist() == [4, 1]
    assert samples.gain[:, :, 0, 0].tolist() == [[106, 104], [103, 101]]
    assert samples.transmitters.tolist() == [[[7, 2], [7, 0]]] * 2
    assert (samples.heights[0, 4:6, 2:5] == BUILDING_HEIGHT).all()
    assert (samples.heights > 0).sum() == 12
    assert samples.moved == 0
    other = read_samples(folder, [4], transmitters=[1], method="IRT2", size=SIZE)
    assert other.gain[0, 0, 0, 0] == 205


def test_the_splits_are_those_of_the_published_code() -> None:
    """numpy's legacy generator with seed 42 shuffles 0..699; its first numbers are known from its documentation's stability."""
    parts = [split_maps(name) for name in SPLITS]
    assert [len(part) for part in parts] == [501, 100, 99]
    together = np.concatenate(parts)
    assert sorted(together.tolist()) == list(range(1, 701))
    expected = np.arange(700, dtype=np.int16)
    np.random.RandomState(42).shuffle(expected)
    assert together.tolist() == (expected + 1).tolist()
    with pytest.raises(SfumatoError, match="the split is 'all'"):
        split_maps("all")


def test_the_global_generator_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[union-attr,index]
    split_maps("test")
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # type: ignore[index]


def test_an_antenna_under_a_buildings_outline_is_put_beside_it_and_counted(folder: Path) -> None:
    save(folder, "png/antennas/4_0.png", lit(5, 3))
    samples = read_samples(folder, [4], transmitters=[0, 1], size=SIZE)
    assert samples.transmitters[0].tolist() == [[6, 3], [7, 1]]
    assert samples.moved == 1


def test_an_antenna_deep_inside_of_a_building_is_refused(folder: Path) -> None:
    save(
        folder,
        "png/buildings_complete/4.png",
        np.where(np.arange(SIZE)[:, None] < 6, 255, 0).astype(np.uint8).repeat(SIZE, 1),
    )
    save(folder, "png/antennas/4_0.png", lit(3, 3))
    with pytest.raises(SfumatoError, match=r"antenna of 4_0\.png stands inside of a building"):
        read_samples(folder, [4], transmitters=[0], size=SIZE)


@pytest.mark.parametrize(
    ("name", "levels", "words"),
    [
        (
            "gain/DPM/4_0.png",
            np.zeros((SIZE, SIZE + 1), np.uint8),
            r"has \(8, 9\) pixels; allowed are \(8, 8\)",
        ),
        ("gain/DPM/4_0.png", np.zeros((SIZE, SIZE), np.uint16), "has the mode I;16"),
        ("gain/DPM/4_0.png", np.zeros((SIZE, SIZE, 3), np.uint8), "has the mode RGB"),
        ("png/antennas/4_0.png", np.zeros((SIZE, SIZE), np.uint8), "has 0 lit pixels"),
        ("png/antennas/4_0.png", np.full((SIZE, SIZE), 255, np.uint8), "has 64 lit pixels"),
        ("png/buildings_complete/4.png", np.full((SIZE, SIZE), 25, np.uint8), "grey levels between"),
        ("png/buildings_complete/4.png", np.full((SIZE, SIZE), 255, np.uint8), "no free pixel"),
    ],
)
def test_a_picture_of_another_size_or_scale_is_one_sentence(
    folder: Path, name: str, levels: np.ndarray, words: str
) -> None:
    save(folder, name, levels)
    with pytest.raises(SfumatoError, match=words):
        read_samples(folder, [4], transmitters=[0], size=SIZE)


@pytest.mark.parametrize("name", ["gain/DPM/4_0.png", "png/antennas/4_0.png", "png/buildings_complete/4.png"])
def test_a_missing_or_damaged_picture_is_one_sentence(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"no picture")
    with pytest.raises(DataUnavailableError, match="no readable picture"):
        read_samples(folder, [4], transmitters=[0], size=SIZE)
    (folder / name).unlink()
    with pytest.raises(DataUnavailableError, match="is missing in"):
        read_samples(folder, [4], transmitters=[0], size=SIZE)


def test_a_method_or_a_number_of_maps_that_cannot_be_is_refused(folder: Path) -> None:
    with pytest.raises(SfumatoError, match="method is 'DPM2'"):
        read_samples(folder, [4], method="DPM2", size=SIZE)
    with pytest.raises(SfumatoError, match="0 maps with 80 transmitters"):
        read_samples(folder, [], size=SIZE)
