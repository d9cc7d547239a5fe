"""Small maps with a synthetic field, and small parties, for the tests of what learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.defences import Protected
from sfumato.radiomap.federated import all_pairs, draw_sessions
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.participants import RadioClient
from sfumato.radiomap.partition import Group, Partition
from sfumato.radiomap.unet import Architecture, RadioUNet, build, dimension
from sfumato.rng import RandomStream, Streams

TINY = Architecture(width=0.05, levels=1)


def some_maps(count: int = 4, size: int = 16, per_map: int = 2, seed: int = 0, blocks: int = 3) -> MapSet:
    """Rectangular buildings, and a field that falls with the logarithm of distance, 0 on buildings."""
    rng = np.random.default_rng(seed)
    heights = np.zeros((count, size, size), np.float32)
    for plan in heights:
        for row, column in rng.integers(0, size - 3, (blocks, 2)):
            plan[row : row + 3, column : column + 3] = 12.0
    places = np.zeros((count, per_map, 2), np.int16)
    for plan, chosen in zip(heights, places, strict=True):
        chosen[:] = rng.permutation(np.argwhere(plan == 0))[:per_map]
    rows, columns = np.indices((size, size))
    distance = np.hypot(rows - places[..., 0, None, None], columns - places[..., 1, None, None])
    radio = np.clip(0.9 - 0.4 * np.log10(np.maximum(distance, 0.5) + 0.5), 0, 1).astype(np.float32)
    radio *= (heights == 0)[:, None]
    return MapSet(
        heights, places, radio, np.zeros(count, np.int16), ("here",), np.zeros((count, 2), np.float32), 8.0
    )


def rolled(maps: MapSet, rows: int, columns: int) -> MapSet:
    """The same maps on a torus, shifted: buildings, transmitters and field together."""
    shift = (rows, columns)
    moved = (maps.transmitters.astype(np.int64) + shift) % maps.size
    return MapSet(
        np.roll(maps.heights, shift, (1, 2)),
        moved.astype(np.int16),
        np.roll(maps.radio, shift, (2, 3)),
        maps.city,
        maps.cities,
        maps.corner,
        maps.cell,
    )


@dataclass(frozen=True, eq=False)
class Halving:
    """A stand-in for a defence: sends half of the update plus a little noise, and counts what it has seen."""

    partition: Partition
    seen: int = 0
    name: str = "halving"

    def protect(self, delta: NDArray[np.float64], round: int, stream: RandomStream) -> Protected:
        noise = 1e-6 * stream.standard_normal(len(delta))
        return Protected(delta / 2 + noise, np.array([1e-6]), True, float(np.linalg.norm(delta)))

    def observe(self, released: Sequence[NDArray[Any]]) -> Halving:
        return Halving(self.partition, self.seen + len(released))


def one_group(size: int) -> Partition:
    return Partition((Group("all", np.arange(size), False),), size)


def some_clients(
    count: int, rounds: int, seed: int = 0, training: LocalTraining | None = None
) -> tuple[RadioUNet, list[RadioClient]]:
    """A tiny model, and clients that share it as their place of work."""
    streams = Streams(seed)
    model = build(TINY, streams.stream("init"))
    defence = Halving(one_group(dimension(model)))
    clients: list[RadioClient] = []
    for number in range(count):
        maps = some_maps(count=2, size=8, seed=100 + number, blocks=1)
        sessions = draw_sessions(maps, all_pairs(maps), rounds, 2, streams.stream("sessions", number))
        work = training if training is not None else LocalTraining(batch_size=1)
        clients.append(RadioClient(number, maps, sessions, work, model, defence, streams))
    return model, clients
