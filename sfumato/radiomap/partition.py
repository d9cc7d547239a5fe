"""Groups of a model's weights: which coordinates of an upload get the same noise.

>>> import numpy as np
>>> partition = partition_of(5, {"first": np.array([0, 3])}, sensitive={"first"})
>>> partition.names, partition.sizes.tolist()
(('first', 'rest'), [2, 3])
>>> partition.norms(np.array([3.0, 0.0, 0.0, 4.0, 2.0])).tolist()
[5.0, 2.0]
>>> partition.spread(np.array([0.1, 7.0])).tolist()
[0.1, 7.0, 7.0, 0.1, 7.0]

A partition is a function of the architecture alone, so it is public (Section 3.1 of docs/papers.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError

REST: Final = "rest"


@dataclass(frozen=True, eq=False)
class Group:
    """Coordinates of the flat parameter vector that share one noise level.

    Attributes:
        name: such as ``transmitter_first``.
        index: (d_g,) int64, ascending positions in the flat vector; at least one, read-only.
        sensitive: whether its weights meet the transmitter channel.

    Raises:
        SfumatoError: if the name is empty, or the positions are not ascending integers of at least 0.
    """

    name: str
    index: NDArray[np.int64]
    sensitive: bool = False

    def __post_init__(self) -> None:
        """Check the fields and freeze the positions."""
        if not self.name:
            raise SfumatoError("the name of a group is empty; allowed is a text.")
        given = np.asarray(self.index)
        if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
            raise SfumatoError(
                f"group {self.name!r} has an index of dtype {given.dtype} and shape {given.shape}; allowed are integers "
                "of shape (d_g,) with d_g >= 1."
            )
        index = given.astype(np.int64)
        if index[0] < 0 or bool(np.any(np.diff(index) <= 0)):
            raise SfumatoError(
                f"the positions of group {self.name!r} are not ascending from 0 on, each once."
            )
        index.flags.writeable = False
        object.__setattr__(self, "index", index)

    @property
    def size(self) -> int:
        """d_g, how many coordinates it has."""
        return int(self.index.size)


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint groups that cover all coordinates.

    Attributes:
        groups: at least one, of different names.
        dimension: d, the number of coordinates.

    Raises:
        SfumatoError: if two groups share a name or a coordinate, or a coordinate is in none.
    """

    groups: tuple[Group, ...]
    dimension: int

    def __post_init__(self) -> None:
        """Check that the groups are disjoint and cover everything."""
        if not is_integer(self.dimension) or self.dimension < 1:
            raise SfumatoError(f"dimension is {self.dimension!r}; allowed is an integer of at least 1.")
        if not self.groups:
            raise SfumatoError("groups is empty; allowed is at least one group.")
        for name in self.names:
            if self.names.count(name) > 1:
                raise SfumatoError(f"{name!r} names two groups; allowed are different names.")
        times = np.zeros(self.dimension, np.int64)
        for group in self.groups:
            if group.index[-1] >= self.dimension:
                raise SfumatoError(
                    f"group {group.name!r} has position {group.index[-1]}; allowed is below {self.dimension}."
                )
            times[group.index] += 1
        wrong = np.flatnonzero(times != 1)
        if wrong.size:
            raise SfumatoError(
                f"coordinate {wrong[0]} is in {times[wrong[0]]} groups; allowed is exactly one."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The groups' names, in order."""
        return tuple(group.name for group in self.groups)

    @property
    def count(self) -> int:
        """G, the number of groups."""
        return len(self.groups)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(G,) int64, d_g of every group."""
        return np.array([group.size for group in self.groups], np.int64)

    @cached_property
    def sensitive(self) -> NDArray[np.bool_]:
        """(G,) bool, which groups meet the transmitter channel."""
        return np.array([group.sensitive for group in self.groups], bool)

    @cached_property
    def labels(self) -> NDArray[np.int32]:
        """(d,) int32, the number of each coordinate's group."""
        found = np.empty(self.dimension, np.int32)
        for number, group in enumerate(self.groups):
            found[group.index] = number
        return found

    def check(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """The vector as float64.

        Raises:
            SfumatoError: if it is not of shape (d,).
        """
        if vector.shape != (self.dimension,):
            raise SfumatoError(f"the upload has shape {vector.shape}; allowed is ({self.dimension},).")
        return vector.astype(np.float64)

    def norms(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """(G,) float64, the Euclidean norm of each group of a (d,) vector.

        Raises:
            SfumatoError: if the vector is not of shape (d,).
        """
        values = self.check(vector)
        return np.array([np.linalg.norm(values[group.index]) for group in self.groups], np.float64)

    def spread(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """(d,) float64: each coordinate gets the value of its group.

        Raises:
            SfumatoError: if the values are not of shape (G,).
        """
        if np.shape(values) != (self.count,):
            raise SfumatoError(
                f"values has shape {np.shape(values)}; allowed is ({self.count},), one per group."
            )
        return np.asarray(values, np.float64)[self.labels]


def partition_of(
    dimension: int, positions: Mapping[str, NDArray[Any]], sensitive: Collection[str] = ()
) -> Partition:
    """The partition of the named positions, with all others together in a last group ``rest``.

    Args:
        dimension: d.
        positions: name -> positions in the flat vector, in any order; a name without positions is left out.
        sensitive: the names of groups that meet the transmitter channel.

    Raises:
        SfumatoError: if a name is unknown, a position is out of range or given twice, or ``rest`` is a given name and
            positions are left over.
    """
    unknown = sorted(set(sensitive) - set(positions))
    if unknown:
        raise SfumatoError(
            f"the sensitive group {unknown[0]!r} has no positions; allowed are {sorted(positions)}."
        )
    kept = {name: np.sort(np.asarray(index)) for name, index in positions.items() if np.size(index)}
    groups = [Group(name, index, name in sensitive) for name, index in kept.items()]
    free = np.ones(dimension, bool)
    for group in groups:
        free[group.index[group.index < dimension]] = False
    if free.any():
        groups.append(Group(REST, np.flatnonzero(free)))
    return Partition(tuple(groups), dimension)
