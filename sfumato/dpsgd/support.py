"""A support: the coordinates of the flat parameter vector that training may change.

>>> support = Support.of([4, 1], d=8)
>>> support.indices, support.k, support.ratio
(tensor([1, 4]), 2, 0.25)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError


class Layout(Protocol):
    """What a support needs to know of a parameter layout."""

    @property
    def size(self) -> int:
        """The number of coordinates, d."""
        ...

    @property
    def slices(self) -> dict[str, slice]:
        """The place of each parameter in the flat vector."""
        ...


@dataclass(frozen=True, eq=False)
class Support:
    """Sorted, unique flat indices of the active coordinates; make one with ``of`` or ``full``.

    Attributes:
        indices: Tensor[k], int64, strictly increasing, in 0..d-1; k may be 0. Not to be written to.
        d: the length of the flat vector.

    Raises:
        SfumatoError: if the indices are not strictly increasing int64 numbers in 0..d-1.
    """

    indices: torch.Tensor
    d: int
    _pieces: dict[tuple[int, ...], list[torch.Tensor]] = field(
        default_factory=dict[tuple[int, ...], list[torch.Tensor]], init=False, repr=False
    )

    def __post_init__(self) -> None:
        """Refuse indices that are no sorted set of places in the flat vector."""
        indices, d = self.indices, self.d
        if not is_integer(d) or d < 0:
            raise SfumatoError(f"d is {d!r}; allowed is an integer of at least 0.")
        if indices.dtype != torch.int64 or indices.ndim != 1:
            raise SfumatoError(
                f"support indices have dtype {indices.dtype} and {indices.ndim} dimensions; allowed is one of int64."
            )
        if indices.numel() and (int(indices[0]) < 0 or int(indices[-1]) >= d):
            raise SfumatoError(
                f"support indices lie in {int(indices[0])}..{int(indices[-1])}; allowed is 0..{d - 1} for d={d}."
            )
        if bool((indices[1:] <= indices[:-1]).any()):
            raise SfumatoError(
                "support indices are not strictly increasing; allowed is a sorted set without repeats."
            )

    @classmethod
    def full(cls, d: int) -> Support:
        """The support of all d coordinates."""
        return cls(torch.arange(d), d)

    @classmethod
    def of(cls, indices: Sequence[int] | NDArray[Any] | torch.Tensor, d: int) -> Support:
        """The support of the given indices, in any order; a repeated or foreign index is refused.

        Args:
            indices: integers, k of them; k = 0 is allowed.
            d: the length of the flat vector.

        Raises:
            SfumatoError: if an index is no integer, lies outside of 0..d-1 or stands twice.
        """
        array: NDArray[Any] = indices.numpy() if isinstance(indices, torch.Tensor) else np.asarray(indices)
        if array.size == 0:
            array = array.astype(np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise SfumatoError(
                f"support indices have dtype {array.dtype} and {array.ndim} dimensions; allowed is one of integers."
            )
        return cls(torch.as_tensor(np.sort(array.astype(np.int64))), d)

    @classmethod
    def of_mask(cls, mask: NDArray[np.bool_] | torch.Tensor) -> Support:
        """The support of a boolean mask of length d."""
        flags = torch.as_tensor(mask)
        if flags.dtype != torch.bool or flags.ndim != 1:
            raise SfumatoError(
                f"mask has dtype {flags.dtype} and {flags.ndim} dimensions; allowed is one of bool."
            )
        return cls(torch.nonzero(flags).flatten(), flags.numel())

    @property
    def k(self) -> int:
        """How many coordinates are active."""
        return self.indices.numel()

    @property
    def ratio(self) -> float:
        """K / d, the active ratio (0 for d = 0)."""
        return self.k / self.d if self.d else 0.0

    def mask(self) -> torch.Tensor:
        """Tensor[d] of bool, true at the active coordinates."""
        mask = torch.zeros(self.d, dtype=torch.bool)
        mask[self.indices] = True
        return mask

    def gather(self, vector: torch.Tensor) -> torch.Tensor:
        """Tensor[k]: the active coordinates of Tensor[d], in support order."""
        self._expect(vector, self.d, "vector")
        return vector[self.indices]

    def scatter(self, values: torch.Tensor) -> torch.Tensor:
        """Tensor[d]: the given Tensor[k] at the active coordinates, exact zeros elsewhere."""
        self._expect(values, self.k, "values")
        vector = torch.zeros(self.d, dtype=values.dtype)
        vector[self.indices] = values
        return vector

    def by_layer(self, layout: Layout) -> dict[str, torch.Tensor]:
        """The active coordinates of each parameter, as indices into that parameter's flat values.

        Returns:
            For each name of the layout, in its order, Tensor[k of that parameter], int64, sorted; joined
            with the parameters' offsets they are ``indices``. Not to be written to: they are kept for the next call.

        Raises:
            SfumatoError: if the layout's size is not ``d``.
        """
        if layout.size != self.d:
            raise SfumatoError(
                f"support is over d={self.d} coordinates, the layout has {layout.size}; they must agree."
            )
        edges = (*(place.start for place in layout.slices.values()), self.d)
        if edges not in self._pieces:
            cuts = np.searchsorted(self.indices.numpy(), edges).tolist()
            starts = zip(edges, cuts[:-1], cuts[1:], strict=False)
            self._pieces[edges] = [self.indices[low:high] - start for start, low, high in starts]
        return dict(zip(layout.slices, self._pieces[edges], strict=True))

    def density(self, layout: Layout) -> dict[str, float]:
        """The fraction of each parameter's coordinates that is active, by the parameter's name."""
        slices, pieces = layout.slices, self.by_layer(layout)
        return {
            name: pieces[name].numel() / max(1, place.stop - place.start) for name, place in slices.items()
        }

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same coordinates of vectors of the same length."""
        return isinstance(other, Support) and self.d == other.d and torch.equal(self.indices, other.indices)

    def __hash__(self) -> int:
        """A hash of the coordinates."""
        return hash((self.d, self.indices.numpy().tobytes()))

    def _expect(self, tensor: torch.Tensor, length: int, name: str) -> None:
        if tuple(tensor.shape) != (length,):
            raise SfumatoError(
                f"{name} has shape {tuple(tensor.shape)}; allowed is ({length},) for this support."
            )
