"""From a cell's name and the parameters to the objects of the radio map library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato import artifacts
from sfumato.errors import SfumatoError
from sfumato.radiomap.allocator import AllocatorSettings
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.encoding import CITY, RADIO_MAP_SEER, Encoding
from sfumato.radiomap.federated import FederationPlan
from sfumato.radiomap.fits import Federation
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.preparation import NOISELESS, Public, PublicSettings, make_defence
from sfumato.radiomap.propagation import Link
from sfumato.radiomap.tracing import layer_partition
from sfumato.radiomap.unet import Architecture, RadioUNet, build
from sfumato.rng import Streams
from tasks.command import Call, required

if TYPE_CHECKING:
    from sfumato.radiomap.defences import Defence
    from sfumato.radiomap.partition import Partition

SPLITS = {"clients": "train", "shadow": "test", "validation": "validation"}
"""Where there are no cities, who has which of RadioMapSeer's splits."""
FIELDS = ("heights", "transmitters", "radio", "city", "corner")


def prepared_path(call: Call) -> Path:
    """The prepared maps of the cell's source."""
    return call.root / "data" / "prepared" / f"{required(call.options, 'dataset')}.npz"


def save_maps(path: Path, maps: MapSet) -> None:
    """Write maps as one file."""
    arrays: dict[str, Any] = {name: getattr(maps, name) for name in FIELDS}
    artifacts.write_npz(path, {**arrays, "cities": np.array(maps.cities), "cell": np.array(maps.cell)})


def maps_of(call: Call) -> MapSet:
    """The prepared maps of the cell's source.

    Raises:
        SfumatoError: if the file is damaged, or was made with other parameters as far as it shows.
    """
    path = prepared_path(call)
    found, asked = load_maps(path), call.params.radiomap.maps
    seen = {"cell": found.cell, "window": found.size * found.cell, "transmitters": found.per_map}
    if call.options["dataset"] == "radiomapseer":
        seen = {"transmitters": found.per_map}
    for name, value in seen.items():
        if value != getattr(asked, name):
            raise SfumatoError(
                f"{path.name} was made with radiomap.maps.{name} {value:g}; allowed is {getattr(asked, name):g}, as params.yaml "
                "says now: run tasks.prepare again."
            )
    return found


def load_maps(path: Path) -> MapSet:
    """What `save_maps` wrote.

    Raises:
        SfumatoError: if the file is damaged.
    """
    arrays = artifacts.read_npz(path)
    missing = [name for name in (*FIELDS, "cities", "cell") if name not in arrays]
    if missing:
        raise SfumatoError(f"{path.name} lacks {missing[0]!r}; allowed are files of tasks.prepare.")
    fields: dict[str, Any] = {name: arrays[name] for name in FIELDS}
    cities = tuple(str(name) for name in arrays["cities"])
    return MapSet(**fields, cities=cities, cell=float(arrays["cell"]))


def part_of(call: Call, maps: MapSet, part: str) -> MapSet:
    """The maps of the clients, of the attacker (``shadow``) or of the validation: each has cities of its own.

    Raises:
        SfumatoError: if there is none.
    """
    own = getattr(call.params.radiomap.maps, part)
    names = (SPLITS[part],) if call.options["dataset"] == "radiomapseer" else own
    if not any(maps.cities[number] in names for number in np.unique(maps.city)):
        raise SfumatoError(
            f"radiomap.maps.{part} is {list(names)}, of which the prepared maps hold no window; allowed are cities with at least one window "
            "of radiomap.maps.window metres that is built as radiomap.maps.built says."
        )
    return maps.of_cities(names)


def encoding_of(call: Call) -> Encoding:
    """What one unit of the maps' path gain is."""
    return RADIO_MAP_SEER if call.options["dataset"] == "radiomapseer" else CITY


def streams_of(call: Call) -> dict[str, Streams]:
    """Seed's text -> its randomness."""
    return {str(seed): Streams(seed) for seed in call.params.radiomap.grid.seeds}


def model_of(call: Call, streams: Streams) -> RadioUNet:
    """A freshly initialised network."""
    network = call.params.radiomap.network
    return build(Architecture(network.width, network.levels, network.padding), streams.stream("init"))


def partition_of(model: RadioUNet) -> Partition:
    """The groups of weights that noise is allocated to: layer by layer, the transmitter's apart."""
    return layer_partition(model)


def local_of(call: Call) -> LocalTraining:
    """How clients train."""
    train = call.params.radiomap.train
    return LocalTraining(
        optimizer=train.optimizer,
        learning_rate=train.learning_rate,
        epochs=train.epochs,
        batch_size=train.maps_per_upload,
        margin=train.loss_margin,
    )


def warm_of(call: Call) -> LocalTraining:
    """How the public warm start trains."""
    warmup, train = call.params.radiomap.warmup, call.params.radiomap.train
    return LocalTraining(
        learning_rate=warmup.learning_rate, batch_size=warmup.batch_size, margin=train.loss_margin
    )


def public_settings(call: Call) -> PublicSettings:
    """How the public part is made."""
    radiomap = call.params.radiomap
    warmup = radiomap.warmup
    allocator = AllocatorSettings(
        steps=warmup.allocator_steps,
        task_weight=warmup.task_weight,
        privacy_weight=warmup.privacy_weight,
        entropy_weight=warmup.entropy_weight,
    )
    return PublicSettings(
        steps=warmup.steps,
        uploads=warmup.uploads,
        maps_per_upload=radiomap.train.maps_per_upload,
        components=warmup.components,
        floor=warmup.floor_share,
        allocator=allocator,
        per_round=radiomap.train.active,
    )


def plan_of(call: Call) -> FederationPlan:
    """Clients, active ones and rounds."""
    train = call.params.radiomap.train
    return FederationPlan(train.clients, train.active, train.rounds)


def federation_of(call: Call, maps: MapSet) -> Federation:
    """What is the same for all defences."""
    radiomap = call.params.radiomap
    return Federation(
        plan_of(call),
        local_of(call),
        radiomap.train.maps_per_upload,
        part_of(call, maps, "clients"),
        part_of(call, maps, "validation"),
    )


def public_of(call: Call, seed: str) -> Public:
    """What the warm-up made for a seed."""
    path = call.root / "data/models/radiomap/warmup" / f"{call.options['dataset']}.npz"
    prefix = f"seed{seed}/"
    found: Mapping[str, Any] = artifacts.read_npz(path)
    return Public.from_arrays(
        {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
    )


def multipliers_of(call: Call, method: str) -> tuple[float, ...]:
    """The noise multipliers of a defence; 0 alone for those without noise."""
    return (0.0,) if method in NOISELESS else call.params.radiomap.grid.multipliers


def defence_of(call: Call, method: str, nu: float, public: Public, partition: Partition) -> Defence:
    """A defence at its first state."""
    radiomap = call.params.radiomap
    floor = radiomap.warmup.floor_share
    return make_defence(method, nu, public, partition, radiomap.train.rounds, floor, radiomap.grid.matching)


def link_of(call: Call) -> Link:
    """The propagation model's parameters."""
    maps = call.params.radiomap.maps
    return Link(maps.frequency, maps.transmitter_height, maps.receiver_height)
