"""Maps of cities, or RadioMapSeer's: ``python -m tasks.prepare --dataset city_maps``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tasks import command

if TYPE_CHECKING:
    from sfumato.radiomap.maps import MapSet

PUBLIC_SEED = 4_000_000
"""Of where transmitters stand: the maps are the data, and the same for every seed."""


def run(call: command.Call) -> None:
    """Write ``data/prepared/<dataset>.npz``."""
    from tasks.radiomap import cells

    name = command.required(call.options, "dataset")
    maps = _city_maps(call) if name == "city_maps" else _radiomapseer(call)
    for part in cells.SPLITS:
        cells.part_of(call, maps, part)
    cells.save_maps(cells.prepared_path(call), maps)


def _city_maps(call: command.Call) -> MapSet:
    """Windows of the four cities, with the dominant-path model's radio maps."""
    from sfumato.datasets.city_heights import load_city_heights
    from sfumato.datasets.radio_windows import cut_windows, draw_transmitters
    from sfumato.radiomap.maps import simulate
    from sfumato.rng import Streams
    from tasks.radiomap import cells

    maps = call.params.radiomap.maps
    windows = cut_windows(
        load_city_heights((*maps.clients, *maps.shadow, *maps.validation)),
        maps.window,
        maps.stride,
        maps.cell,
        maps.built,
    )
    stream = Streams(PUBLIC_SEED).stream("transmitters")
    places = draw_transmitters(windows, maps.transmitters, maps.margin, stream)
    return simulate(windows, places, cells.link_of(call))


def _radiomapseer(call: command.Call) -> MapSet:
    """The files that the user placed; its three splits stand for the cities of clients, attacker and validation."""
    from dataclasses import replace

    import numpy as np

    from sfumato.datasets.radiomapseer import read_samples, split_maps
    from sfumato.errors import SfumatoError
    from sfumato.radiomap.maps import of_radiomapseer
    from tasks import data_cells

    folders = [call.root / "data/raw", *data_cells.search_dirs(call)]
    found = [folder / "RadioMapSeer" for folder in folders if (folder / "RadioMapSeer").is_dir()]
    if not found:
        raise SfumatoError(
            "RadioMapSeer is not there; place its folder RadioMapSeer, with gain/ and png/, in data/raw, it is not fetched."
        )
    splits = ("train", "test", "validation")
    parts = [split_maps(name) for name in splits]
    transmitters = range(call.params.radiomap.maps.transmitters)
    whole = of_radiomapseer(read_samples(Path(found[0]), np.concatenate(parts), transmitters))
    city = np.repeat(np.arange(len(splits)), [len(part) for part in parts]).astype(np.int16)
    return replace(whole, city=city, cities=splits)
