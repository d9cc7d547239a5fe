"""What is made on public maps before any client is asked: first weights, clip norms, the noise's shape, the allocators.

>>> PublicSettings(uploads=40).uploads
40

All of it is public by construction: it reads the shadow maps alone, of cities in which no client lives (Section 3.1 of
docs/papers.md leaves clip norm, budget and the allocator's training open).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.radiomap.adaptive import AdaptiveDefence
from sfumato.radiomap.allocation import FloatArray, energy_budget, utility_costs
from sfumato.radiomap.allocator import Allocator, AllocatorSettings, Trained, train_allocator
from sfumato.radiomap.certified import CertifiedDefence, public_inputs
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.clips import WholeClip
from sfumato.radiomap.defences import (
    Defence,
    Matching,
    clip_only,
    none,
    static_optimal,
    targeted_uniform,
    uniform,
)
from sfumato.radiomap.federated import all_pairs, draw_sessions, session_groups
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.partition import Partition
from sfumato.radiomap.proxy import FOLDS, proxy_attacker
from sfumato.radiomap.references import validation_mse
from sfumato.radiomap.shaped import Shape, ShapedDefence, principal_shape
from sfumato.radiomap.summary import describe_each
from sfumato.radiomap.training import session_updates, warm_start
from sfumato.radiomap.unet import RadioUNet, flat, load_flat
from sfumato.rng import RandomStream, Streams

NOISELESS: Final = ("none", "clip_only")
DEFENCES: Final = (
    *NOISELESS,
    "uniform",
    "targeted_uniform",
    "static_optimal",
    "adaptive",
    "adaptive_certified",
    "shaped",
)
_LEAST_CLIP: Final = 1e-3
"""Of C: the clip of a group whose weights public maps do not move, as behind a unit that is always off."""
_COST_PAIRS: Final = 24
_COST_DRAWS: Final = 2


@dataclass(frozen=True)
class PublicSettings:
    """How the public part is made.

    Attributes:
        steps: of the central warm start.
        uploads: shadow uploads that clip norms, shape and allocator are made from.
        maps_per_upload: of each, with one transmitter.
        components: directions of the shaped noise.
        floor: share of the noise that is spread evenly, for the certified and the shaped defence.
        allocator: how allocators are trained.
        per_round: uploads in a round, for what the certified allocator sees.
    """

    steps: int = 60
    uploads: int = 150
    maps_per_upload: int = 1
    components: int = 32
    floor: float = 0.25
    allocator: AllocatorSettings = field(default_factory=AllocatorSettings)
    per_round: int = 6


@dataclass(frozen=True, eq=False)
class Public:
    """The public numbers that clients and server share.

    Attributes:
        weights: (d,) float32, where the training begins.
        clip_norm: C, the median norm of shadow updates.
        group_clips: (G,) their median norm group by group, at least a thousandth of C.
        shape: of the shaped noise.
        mahalanobis_clip: the median of ``shape.norm`` over shadow updates.
        costs: (G,) what a unit of noise energy on each group costs the public validation loss.
        adaptive: multiplier's text -> the paper's allocator.
        certified: multiplier's text -> the certified one's.
    """

    weights: NDArray[np.float32]
    clip_norm: float
    group_clips: FloatArray
    shape: Shape
    mahalanobis_clip: float
    costs: FloatArray
    adaptive: Mapping[str, Allocator]
    certified: Mapping[str, Allocator]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays, to be kept in a file."""
        kept: dict[str, NDArray[Any]] = {
            "weights": self.weights,
            "clips": np.array([self.clip_norm, self.mahalanobis_clip]),
            "group_clips": self.group_clips,
            "costs": self.costs,
            "shape/directions": self.shape.directions,
            "shape/shares": self.shape.shares,
            "shape/floor": np.array(self.shape.floor),
        }
        for kind, found in (("adaptive", self.adaptive), ("certified", self.certified)):
            for text, allocator in found.items():
                kept |= {f"{kind}/{text}/{name}": value for name, value in allocator.arrays().items()}
        return kept

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Public:
        """What `arrays` gave.

        Raises:
            SfumatoError: if an array is missing.
        """
        needed = (
            "weights",
            "clips",
            "group_clips",
            "costs",
            "shape/directions",
            "shape/shares",
            "shape/floor",
        )
        for name in needed:
            if name not in arrays:
                raise SfumatoError(f"the public array {name!r} is missing; allowed are files of the warm-up.")
        shape = Shape(arrays["shape/directions"], arrays["shape/shares"], float(arrays["shape/floor"]))
        found = {kind: _allocators(arrays, kind) for kind in ("adaptive", "certified")}
        clip_norm, mahalanobis = (float(value) for value in arrays["clips"])
        parts = arrays["group_clips"], shape, mahalanobis, arrays["costs"]
        return cls(arrays["weights"], clip_norm, *parts, found["adaptive"], found["certified"])


def _allocators(arrays: Mapping[str, NDArray[Any]], kind: str) -> dict[str, Allocator]:
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, value in arrays.items():
        if name.startswith(f"{kind}/"):
            _kind, text, entry = name.split("/")
            parts.setdefault(text, {})[entry] = value
    return {text: Allocator.from_arrays(own) for text, own in parts.items()}


def multiplier_text(nu: float) -> str:
    """How a noise multiplier is written in names.

    >>> multiplier_text(3.0), multiplier_text(0.3)
    ('3', '0.3')
    """
    return f"{nu:g}"


@dataclass(frozen=True, eq=False)
class Prepared:
    """The public part and how its training went.

    Attributes:
        public: what clients and server share.
        trained: kind (``adaptive`` or ``certified``) and multiplier's text -> the allocator's training.
        shares: likewise -> (G,) mean shares of the energy over the shadow uploads.
    """

    public: Public
    trained: Mapping[tuple[str, str], Trained]
    shares: Mapping[tuple[str, str], FloatArray]


def prepare_public(
    model: RadioUNet,
    partition: Partition,
    shadow: MapSet,
    local: LocalTraining,
    warm: LocalTraining,
    settings: PublicSettings,
    multipliers: Sequence[float],
    streams: Streams,
) -> Prepared:
    """Make the public part from public maps.

    Guarantee: it reads ``shadow`` alone, so that what is made of it may enter a privacy statement as a public number.

    Args:
        model: freshly initialised; its weights are overwritten.
        partition: the groups of its weights.
        shadow: public maps.
        local: how clients will train.
        warm: how the warm start trains.
        settings: how.
        multipliers: the nu for which allocators are trained.
        streams: the seed's randomness.

    Raises:
        SfumatoError: if a number is outside of what is allowed or a training is not finite.
    """
    pairs = all_pairs(shadow)
    weights = warm_start(
        flat(model), model, shadow, pairs, warm, settings.steps, streams.stream("warm_start")
    )
    sessions = _sessions(shadow, pairs, settings, streams)
    updates = session_updates(weights, model, shadow, sessions, local, streams).astype(np.float64)
    clip_norm = float(np.median(np.linalg.norm(updates, axis=1)))
    clipped = np.stack([WholeClip(clip_norm).apply(row) for row in updates])
    shape = principal_shape(clipped, settings.components, settings.floor)
    costs = _costs(model, shadow, weights, partition, clip_norm, streams)
    trained, shares = _train_allocators(
        partition, clipped, shadow, sessions, clip_norm, costs, settings, multipliers, streams
    )
    public = Public(
        weights,
        clip_norm,
        np.maximum(np.median([partition.norms(row) for row in updates], axis=0), _LEAST_CLIP * clip_norm),
        shape,
        float(np.median([shape.norm(row) for row in updates])),
        costs,
        {text: found.allocator for (kind, text), found in trained.items() if kind == "adaptive"},
        {text: found.allocator for (kind, text), found in trained.items() if kind == "certified"},
    )
    return Prepared(public, trained, shares)


def _sessions(
    shadow: MapSet, pairs: NDArray[np.int64], settings: PublicSettings, streams: Streams
) -> NDArray[np.int64]:
    per_upload = settings.maps_per_upload
    return draw_sessions(
        shadow, pairs, settings.uploads, per_upload, streams.stream("shadow", "sessions"), per_upload > 1
    )


def _held_out(sessions: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) the group of maps of each session, which is held out whole.

    Raises:
        SfumatoError: if sessions that share maps leave too few groups.
    """
    groups = session_groups(sessions)
    count = len(np.unique(groups))
    if count < FOLDS:
        raise SfumatoError(
            f"{len(sessions)} uploads of {sessions.shape[1]} shadow maps each leave {count} group{'s' if count > 1 else ''} of maps "
            f"that share none; allowed are at least {FOLDS}: fewer maps per upload, fewer uploads or more shadow maps."
        )
    return groups


def _costs(
    model: RadioUNet,
    shadow: MapSet,
    weights: NDArray[np.float32],
    partition: Partition,
    clip_norm: float,
    streams: Streams,
) -> FloatArray:
    pairs = all_pairs(shadow)
    chosen = pairs[streams.stream("costs", "maps").permutation(len(pairs))[:_COST_PAIRS]]

    def loss(vector: FloatArray) -> float:
        load_flat(model, vector)
        return validation_mse(model, shadow, chosen)

    noise = streams.stream("costs", "noise")
    return utility_costs(loss, weights.astype(np.float64), partition, clip_norm**2, _COST_DRAWS, noise)


def _train_allocators(
    partition: Partition,
    clipped: FloatArray,
    shadow: MapSet,
    sessions: NDArray[np.int64],
    clip_norm: float,
    costs: FloatArray,
    settings: PublicSettings,
    multipliers: Sequence[float],
    streams: Streams,
) -> tuple[dict[tuple[str, str], Trained], dict[tuple[str, str], FloatArray]]:
    """Both kinds for every multiplier, against one proxy."""
    positions = shadow.positions(sessions[:, 0])
    proxy = proxy_attacker(clipped, positions, _held_out(sessions), partition)
    progress = np.linspace(0.0, 1.0, len(clipped))
    progress = progress[streams.stream("allocator", "progress").permutation(len(clipped))]
    own = describe_each(partition, clipped, clip_norm, progress)
    # No curvature can be below zero; what is measured there is noise of the measurement.
    kept = np.maximum(costs, 0.0)
    trained: dict[tuple[str, str], Trained] = {}
    shares: dict[tuple[str, str], FloatArray] = {}
    for nu in multipliers:
        text, budget = multiplier_text(nu), energy_budget(nu, clip_norm)
        seen = public_inputs(
            partition,
            clipped,
            progress,
            nu,
            clip_norm,
            settings.per_round,
            streams.stream("allocator", "noise", text),
        )
        for kind, inputs in (("adaptive", own), ("certified", seen)):
            first: RandomStream = streams.stream("allocator", kind, text)
            made = train_allocator(inputs, proxy, kept, budget, settings.allocator, first)
            trained[kind, text] = made
            shares[kind, text] = made.allocator.shares(inputs).mean(axis=0)
    return trained, shares


def make_defence(
    name: str,
    nu: float,
    public: Public,
    partition: Partition,
    rounds: int,
    floor: float,
    matching: Matching = "energy",
) -> Defence:
    """A defence by name, from public numbers.

    Args:
        name: of `DEFENCES`.
        nu: the noise multiplier; not used where there is no noise.
        public: clip norms, shape and allocators.
        partition: the groups.
        rounds: of the whole training.
        floor: of the certified allocator.
        matching: ``energy`` or ``multiplier``.

    Raises:
        SfumatoError: if the name is unknown, or no allocator was trained for that multiplier.
    """
    clip_norm = public.clip_norm
    if name in ("adaptive", "adaptive_certified"):
        found = (public.adaptive if name == "adaptive" else public.certified).get(multiplier_text(nu))
        if found is None:
            raise SfumatoError(
                f"no allocator was trained for the multiplier {nu:g}; allowed are {', '.join(public.adaptive)}."
            )
        if name == "adaptive":
            return AdaptiveDefence(partition, nu, clip_norm, found, rounds)
        return CertifiedDefence(partition, nu, clip_norm, found, rounds, floor)
    made: dict[str, Defence] = {"none": none(partition), "clip_only": clip_only(partition, clip_norm)}
    if name not in made and nu > 0:
        made |= {
            "uniform": uniform(partition, nu, clip_norm, matching),
            "targeted_uniform": targeted_uniform(partition, nu, clip_norm, matching),
            "static_optimal": static_optimal(partition, nu, clip_norm, public.group_clips),
            "shaped": ShapedDefence(partition, nu, clip_norm, public.shape, public.mahalanobis_clip),
        }
    if name not in made:
        raise SfumatoError(
            f"defence {name!r} with multiplier {nu:g} is unknown; allowed are {', '.join(DEFENCES)}."
        )
    return made[name]
