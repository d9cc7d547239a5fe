"""The attacker who knows the building maps, on several victims and defences: every candidate cell is simulated once.

>>> Candidates.__name__
'Candidates'

It draws the radio map of each candidate with the propagation model, makes the update that a client with that map would
make, and takes the cell of the largest likelihood (`known_map`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.radiomap.attacked import Updates, observed_state, victims_noise
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.clips import Clip, WholeClip
from sfumato.radiomap.defences import Defence
from sfumato.radiomap.encoding import CITY, Encoding
from sfumato.radiomap.known_map import Release, Scene, Search, locate, simulator
from sfumato.radiomap.localisation import Localisation, evaluate
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.propagation import Link
from sfumato.radiomap.shaped import ShapedDefence
from sfumato.radiomap.unet import RadioUNet
from sfumato.rng import Streams

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What the attacker needs to simulate a client.

    Attributes:
        model: where updates are computed; its weights are overwritten.
        weights: (d,) of the round.
        maps: the victims', whose buildings it knows.
        local: how clients train.
        link: the propagation model's parameters.
        streams: the order of a client's examples.
        encoding: of the path gain, as the victims' maps have it.
    """

    model: RadioUNet
    weights: NDArray[np.float32]
    maps: MapSet
    local: LocalTraining
    link: Link
    streams: Streams
    encoding: Encoding = CITY

    def scene(self, place: int) -> Scene:
        """One victim's map; every candidate cell is simulated once, however many defences are attacked."""
        maps = self.maps
        training = self.weights, self.model, self.local, self.streams
        fresh = simulator(maps.heights[place], maps.cell, *training, self.link, self.encoding)
        known: dict[tuple[int, int], NDArray[np.floating[Any]]] = {}

        def simulate(cells: NDArray[np.int64]) -> NDArray[Any]:
            names = [(int(row), int(column)) for row, column in cells]
            missing = [name for name in dict.fromkeys(names) if name not in known]
            if missing:
                known.update(zip(missing, fresh(np.array(missing, np.int64)), strict=True))
            return np.stack([known[name] for name in names])

        return Scene(maps.free[place], maps.cell, simulate)


def attack_known_maps(
    candidates: Candidates,
    victims: Updates,
    defences: Mapping[Key, Defence],
    count: int,
    round: int,
    streams: Streams,
) -> dict[Key, Localisation]:
    """The errors of the likeliest cells of the first victims, under each defence.

    Args:
        candidates: the simulation.
        victims: whose uploads are attacked; one map each.
        defences: at their first states.
        count: how many victims.
        round: of the weights.
        streams: of the noise, as in `attacked.defend`, and of the intervals.

    Returns:
        Key of the defence -> errors in metres.
    """
    states = {key: observed_state(defence, victims, round, streams) for key, defence in defences.items()}
    guesses: dict[Key, list[NDArray[np.float64]]] = {key: [] for key in defences}
    number = min(count, len(victims.updates))
    for victim in range(number):
        scene = candidates.scene(int(victims.sessions[victim, 0, 0]))
        for key, state in states.items():
            noise = victims_noise(streams, round, victim)
            sent = state.protect(victims.updates[victim].astype(np.float64), round, noise)
            found = locate(sent.upload, scene, release_of(state, sent.sigmas), Search())
            guesses[key].append(found.position)
    truth, maps = victims.positions[:number], victims.maps[:number]
    return {
        key: evaluate(np.stack(own), truth, maps, streams.stream("attack/intervals"))
        for key, own in guesses.items()
    }


def release_of(state: Defence, sigmas: NDArray[np.float64]) -> Release:
    """What everybody knows of the noise; of an adaptive defence the attacker is given the very levels.

    Args:
        state: the defence.
        sigmas: (G,) of the upload.
    """
    clip: Clip | None = getattr(state, "clip", None)
    if isinstance(state, ShapedDefence):
        shape, limit = state.shape, state
        deviation = np.full(shape.dimension, state.sigma)
        return Release(
            deviation,
            clip=lambda update: shape.power(limit.clipped(update), 0.5),
            transform=lambda update: shape.power(update, -0.5),
        )
    if clip is None and hasattr(state, "clip_norm"):
        clip = WholeClip(float(state.clip_norm))  # pyright: ignore[reportUnknownArgumentType, reportAttributeAccessIssue, reportUnknownMemberType]
    return Release(state.partition.spread(sigmas), clip=None if clip is None else clip.apply)
