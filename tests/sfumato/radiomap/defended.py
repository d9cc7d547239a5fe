"""Small partitions, networks and defences that the tests of the defences share."""

from __future__ import annotations

import numpy as np

from sfumato.radiomap.adaptive import AdaptiveDefence
from sfumato.radiomap.allocator import Allocator
from sfumato.radiomap.certified import CertifiedDefence
from sfumato.radiomap.defences import (
    Defence,
    GuaranteedDefence,
    clip_only,
    frozen,
    none,
    static_optimal,
    targeted_uniform,
    uniform,
)
from sfumato.radiomap.partition import Partition, partition_of
from sfumato.radiomap.shaped import Shape, ShapedDefence, principal_shape

SENSITIVE = {"transmitter_first", "transmitter_second"}


def three_groups(dimension: int = 12) -> Partition:
    """A twelfth and a sixth of the weights meet the transmitter channel, in positions that are scattered."""
    first = np.arange(0, dimension, 12)
    second = np.arange(1, dimension, 6)
    return partition_of(dimension, {"transmitter_first": first, "transmitter_second": second}, SENSITIVE)


def lively(partition: Partition, seed: int = 0, size: float = 1.0) -> Allocator:
    """A network that nobody trained, whose shares move with its input."""
    random = np.random.default_rng(seed)
    inputs, hidden, groups = 4 * partition.count + 2, 6, partition.count
    return Allocator(
        random.normal(size=inputs),
        np.ones(inputs),
        random.normal(size=(hidden, inputs)),
        random.normal(size=hidden),
        size * random.normal(size=(groups, hidden)),
        np.log(partition.sizes / partition.dimension),
    )


def round_shape(dimension: int, components: int = 40, floor: float = 0.9) -> Shape:
    """Many directions of the same weight, so that few draws tell the energy."""
    random = np.random.default_rng(3)
    return principal_shape(random.normal(size=(components + 5, dimension)), components, floor, exponent=0.0)


def group_clips(partition: Partition) -> np.ndarray:
    """C_g of different sizes."""
    return 0.5 * np.arange(1, partition.count + 1)


def guaranteed(partition: Partition, nu: float, clip_norm: float = 1.5) -> dict[str, GuaranteedDefence]:
    """Every defence with a promise."""
    shape = round_shape(partition.dimension, min(40, partition.dimension // 3))
    return {
        "uniform": uniform(partition, nu, clip_norm),
        "static_optimal": static_optimal(partition, nu, clip_norm, group_clips(partition)),
        "frozen": frozen(partition, nu, clip_norm, np.array([0.5, 0.2, 0.3])),
        "adaptive_certified": CertifiedDefence(partition, nu, clip_norm, lively(partition), rounds=4),
        "shaped": ShapedDefence(partition, nu, clip_norm, shape, mahalanobis_clip=clip_norm),
    }


def without_promise(partition: Partition, nu: float, clip_norm: float = 1.5) -> dict[str, Defence]:
    """Every defence without one."""
    return {
        "none": none(partition),
        "clip_only": clip_only(partition, clip_norm),
        "targeted_uniform": targeted_uniform(partition, nu, clip_norm),
        "targeted_uniform, multiplier": targeted_uniform(partition, nu, clip_norm, "multiplier"),
        "adaptive": AdaptiveDefence(partition, nu, clip_norm, lively(partition), rounds=4),
    }
