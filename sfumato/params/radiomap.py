"""The part of params.yaml that describes the radio map system.

>>> sorted(Radiomap.model_fields)
['attack', 'grid', 'maps', 'network', 'train', 'warmup']
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sfumato.params.fields import (
    Confidence,
    Count,
    OpenUnit,
    Positive,
    Section,
    Seeds,
    Steps,
    distinct,
    filled,
)

MapSource = Literal["city_maps", "radiomapseer"]
City = Literal["munich", "florence", "etoile", "san_francisco"]
DefenceName = Literal[
    "none",
    "clip_only",
    "uniform",
    "targeted_uniform",
    "static_optimal",
    "adaptive",
    "adaptive_certified",
    "shaped",
]
CERTIFIED: tuple[DefenceName, ...] = ("uniform", "static_optimal", "adaptive_certified", "shaped")
"""Defences whose every upload is a mechanism with an (epsilon, delta); the others have none."""
Matching = Literal["energy", "multiplier"]


def told_apart(values: tuple[float, ...]) -> tuple[float, ...]:
    """The values, or ValueError where two are written alike in the names of cells.

    >>> told_apart((1.0, 3.0))
    (1.0, 3.0)
    """
    if len({f"{value:g}" for value in values}) != len(values):
        raise ValueError("a list of numbers that differ in their first six digits")
    return values


Multiplier = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Cities = Annotated[tuple[City, ...], AfterValidator(filled)]
Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class RadiomapGrid(Section):
    """The cells: every defence at every noise multiplier. No data set: left out."""

    datasets: Annotated[tuple[MapSource, ...], AfterValidator(distinct)]
    defences: Annotated[tuple[DefenceName, ...], AfterValidator(filled)]
    multipliers: Annotated[tuple[Multiplier, ...], AfterValidator(filled), AfterValidator(told_apart)]
    matching: Matching
    seeds: Seeds


class RadiomapMaps(Section):
    """How city heights become maps, in metres, hertz and decibels; and who has which city."""

    window: Annotated[int, Field(ge=16, le=4096)]
    stride: Annotated[int, Field(ge=1, le=4096)]
    cell: Annotated[float, Field(ge=1, le=64, allow_inf_nan=False)]
    built: tuple[OpenUnit, OpenUnit]
    transmitters: Annotated[int, Field(ge=1, le=80)]
    margin: Annotated[int, Field(ge=0, le=64)]
    frequency: Annotated[float, Field(ge=1e8, le=1e11, allow_inf_nan=False)]
    transmitter_height: Positive
    receiver_height: Positive
    clients: Cities
    shadow: Cities
    validation: Cities

    @model_validator(mode="after")
    def _cities_are_apart(self) -> Self:
        seen: set[str] = set()
        for part in ("clients", "shadow", "validation"):
            for city in getattr(self, part):
                if city in seen:
                    raise ValueError(
                        f"radiomap.maps.{part} holds {city!r}, which another part has; allowed is each city in one part, since "
                        "windows of one city overlap"
                    )
                seen.add(city)
        return self

    @model_validator(mode="after")
    def _shares_are_in_order(self) -> Self:
        if self.built[0] >= self.built[1]:
            raise ValueError(
                f"radiomap.maps.built is {list(self.built)}; allowed is a smaller share before a larger one"
            )
        return self


class RadiomapNetwork(Section):
    """The two-stage network."""

    width: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    levels: Annotated[int, Field(ge=1, le=6)]
    padding: Literal["zeros", "circular", "reflect"]


class RadiomapWarmup(Section):
    """What is made on public maps beforehand: weights, clips, and the learned allocator."""

    steps: Annotated[int, Field(ge=0, le=10**6)]
    batch_size: Count
    learning_rate: Positive
    uploads: Annotated[int, Field(ge=40, le=10**5)]
    components: Annotated[int, Field(ge=1, le=4096)]
    allocator_steps: Steps
    privacy_weight: Weight
    task_weight: Weight
    entropy_weight: Weight
    floor_share: OpenUnit


class RadiomapTrain(Section):
    """Federated averaging."""

    clients: Annotated[int, Field(ge=1, le=10**5)]
    active: Annotated[int, Field(ge=1, le=10**5)]
    rounds: Annotated[int, Field(ge=1, le=10**5)]
    maps_per_upload: Annotated[int, Field(ge=1, le=1000)]
    epochs: Annotated[int, Field(ge=1, le=1000)]
    optimizer: Literal["sgd", "adam"]
    learning_rate: Positive
    loss_margin: Annotated[int, Field(ge=0, le=64)]

    @model_validator(mode="after")
    def _no_more_are_active_than_there_are(self) -> Self:
        if self.active > self.clients:
            raise ValueError(
                f"radiomap.train.active is {self.active}; allowed is at most the {self.clients} clients"
            )
        return self


class RadiomapAttack(Section):
    """The attackers' means: shadow uploads of their own, which rounds they read, how many seeds are attacked at once."""

    shadow_uploads: Annotated[int, Field(ge=40, le=10**5)]
    client_uploads: Annotated[int, Field(ge=20, le=10**5)]
    rounds: Annotated[tuple[Annotated[int, Field(ge=0, le=10**5)], ...], AfterValidator(filled)]
    trajectory: Literal["shared", "own"]
    known_map_uploads: Annotated[int, Field(ge=0, le=10**4)]
    seeds_at_once: Annotated[int, Field(ge=1, le=256)]
    audit_runs: Annotated[int, Field(ge=100, le=10**8)]
    confidence: Confidence


class Radiomap(Section):
    """Everything of the radio map system."""

    grid: RadiomapGrid
    maps: RadiomapMaps
    network: RadiomapNetwork
    warmup: RadiomapWarmup
    train: RadiomapTrain
    attack: RadiomapAttack

    @model_validator(mode="after")
    def _the_attack_has_what_it_needs(self) -> Self:
        if "clip_only" not in self.grid.defences:
            raise ValueError(
                f"radiomap.grid.defences is {list(self.grid.defences)}; allowed are lists with clip_only, at whose weights all "
                "defences are attacked"
            )
        if self.attack.known_map_uploads and self.attack.trajectory == "own":
            raise ValueError(
                f"radiomap.attack.known_map_uploads is {self.attack.known_map_uploads} with trajectory own; allowed is 0, "
                "since that attacker works at the weights that all defences share"
            )
        if self.attack.known_map_uploads and self.train.maps_per_upload > 1:
            raise ValueError(
                f"radiomap.attack.known_map_uploads is {self.attack.known_map_uploads} with {self.train.maps_per_upload} "
                "maps_per_upload; allowed is 0, since that attacker simulates one map"
            )
        return self

    @model_validator(mode="after")
    def _the_network_fits_the_maps(self) -> Self:
        maps = self.maps
        if "city_maps" not in self.grid.datasets:
            return self
        if maps.cell != int(maps.cell) or maps.window % maps.cell or maps.window < 2 * maps.cell:
            raise ValueError(
                f"radiomap.maps.cell is {maps.cell:g}; allowed is a whole number of metres that divides the window of {maps.window} m "
                "into 2 or more"
            )
        size, stride = maps.window // int(maps.cell), 2**self.network.levels
        least = 2 * stride if self.network.padding == "reflect" else stride
        if size % stride or size < least:
            raise ValueError(
                f"radiomap.network.levels is {self.network.levels} for maps of {size} cells a side with padding {self.network.padding}; "
                f"allowed are maps of a multiple of {stride} cells, {least} at least"
            )
        for key, margin in (("maps.margin", maps.margin), ("train.loss_margin", self.train.loss_margin)):
            if 2 * margin >= size:
                raise ValueError(
                    f"radiomap.{key} is {margin} for maps of {size} cells a side; allowed is at most {(size - 1) // 2}"
                )
        return self

    @model_validator(mode="after")
    def _attacked_rounds_are_trained(self) -> Self:
        late = [number for number in self.attack.rounds if number > self.train.rounds]
        if late:
            raise ValueError(
                f"radiomap.attack.rounds holds {late[0]}; allowed are 0 to the {self.train.rounds} rounds of training"
            )
        return self
