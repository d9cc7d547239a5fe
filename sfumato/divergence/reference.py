"""The public reference distribution, its cells, and the points that are drawn from it.

>>> from sfumato.rng import Streams
>>> reference = Reference.from_counts(np.array([50, 30, 19, 1, 0]), minimum_probability=0.1)
>>> reference.probabilities.tolist(), reference.cell_of.tolist(), reference.merged
([0.5, 0.3, 0.2], [0, 1, 2, 2, 2], 3)
>>> points = draw_points(reference, 4, Streams(0).stream("points"))
>>> float(points.weights.sum()), points.draws
(1.0, 4)

Codes that the reference shows too rarely share one cell, "other". The divergence between the merged distributions is at
most that of the codes (data processing), so merging under-estimates; in return every population lies within the support
of the reference, without which the mean of the ratio is not 1 (Section 4.2 e of docs/papers.md), and one example moves
no ratio by more than 1 / (N pi_min).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.checks import is_number
from sfumato.divergence.plan import MAX_EXAMPLES, Vector, array_of, require_count, require_stream
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

MAX_DOMAIN = 2**24
MAX_DRAWS = 10_000_000
_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Reference:
    """Pi over cells, a public partition of the domain of raw codes.

    Attributes:
        probabilities: Pi, (cells,) float64, all above 0, with sum 1.
        cell_of: (domain,) int32, the cell of each raw code.
        merged: how many codes share the cell "other", which then is the last one; 0 if there is none.

    Raises:
        SfumatoError: if the probabilities are none, or a code or a cell is left out.
    """

    probabilities: Vector
    cell_of: NDArray[np.int32]
    merged: int = 0

    def __post_init__(self) -> None:
        """Check that both arrays agree, and make them read-only."""
        own = _checked_probabilities(self.probabilities)
        if not bool(np.all(own > 0.0)):
            raise SfumatoError("a cell of the reference has probability 0; allowed are numbers above 0.")
        cell_of = array_of("cell_of", self.cell_of)
        if cell_of.ndim != 1 or cell_of.dtype.kind not in "iu" or not 2 <= len(own) <= len(cell_of):
            raise SfumatoError(
                f"cell_of is {cell_of.dtype} of shape {cell_of.shape} for {len(own)} cells; allowed is one integer per "
                "code, with at least two cells and no more cells than codes."
            )
        if int(cell_of.min()) < 0 or not np.array_equal(np.unique(cell_of), np.arange(len(own))):
            raise SfumatoError(
                f"cell_of leaves out or exceeds one of {len(own)} cells; allowed is each from 0."
            )
        require_count("merged", self.merged, 0, len(cell_of))
        object.__setattr__(self, "probabilities", _frozen(own / own.sum()))
        object.__setattr__(self, "cell_of", _frozen(cell_of.astype(np.int32)))

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.probabilities)

    @property
    def domain(self) -> int:
        """How many raw codes there are; a sample is an integer from 0 to below that."""
        return len(self.cell_of)

    @property
    def smallest(self) -> float:
        """Pi_min, the smallest probability of a cell."""
        return float(self.probabilities.min())

    @classmethod
    def from_counts(cls, counts: ArrayLike, minimum_probability: float = 0.0) -> Reference:
        """The reference of a public sample.

        Args:
            counts: how often the sample shows each code, (domain,) integers of at least 0.
            minimum_probability: as for ``from_probabilities``.

        Raises:
            SfumatoError: if a count is negative or no integer, all are 0, they sum to more than 2^52, or fewer than two
                cells remain.
        """
        shown = array_of("counts of the reference", counts)
        if shown.ndim != 1 or shown.dtype.kind not in "iu" or not shown.size or int(shown.min()) < 0:
            raise SfumatoError(
                f"counts of the reference are {shown.dtype} of shape {shown.shape}; allowed is a vector of integers of at "
                "least 0."
            )
        # Summed as floats first, since an integer sum could wrap around.
        if float(shown.sum(dtype=np.float64)) > MAX_EXAMPLES:
            raise SfumatoError(
                f"counts of the reference sum to more than {MAX_EXAMPLES}; allowed is a sum of at most that."
            )
        total = int(shown.sum(dtype=np.int64))
        if total <= 0:
            raise SfumatoError("counts of the reference sum to 0; allowed is at least one public sample.")
        return cls.from_probabilities(shown / total, minimum_probability)

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike, minimum_probability: float = 0.0) -> Reference:
        """The reference of a known distribution.

        Args:
            probabilities: (domain,) numbers of at least 0 with sum 1, to 1e-9.
            minimum_probability: pi_min, from 0 to below 1. Codes below it, and codes of probability 0, share the cell
                "other"; where that cell would itself be below, the next rarest codes join it until it is not.

        Raises:
            SfumatoError: if these are no probabilities, or fewer than two cells remain.
        """
        own = _checked_probabilities(probabilities)
        if not is_number(minimum_probability) or not 0.0 <= minimum_probability < 1.0:
            raise SfumatoError(
                f"minimum_probability is {minimum_probability!r}; allowed is a number from 0 to below 1."
            )
        rare = (own < minimum_probability) | (own == 0.0)
        if bool(rare.any()):
            order = np.argsort(own, kind="stable")
            reached = np.cumsum(own[order])
            enough = (reached >= minimum_probability) & (reached > 0.0)
            needed = max(int(rare.sum()), int(np.argmax(enough)) + 1)
            rare[order[:needed]] = True
        kept = np.flatnonzero(~rare)
        if len(kept) + int(rare.any()) < 2:
            raise SfumatoError(
                f"minimum_probability is {minimum_probability:g}, which leaves a single cell; allowed is one that leaves "
                "at least two."
            )
        cell_of = np.full(len(own), len(kept), np.int32)
        cell_of[kept] = np.arange(len(kept), dtype=np.int32)
        masses = own[kept] if not rare.any() else np.append(own[kept], own[rare].sum())
        return cls(masses, cell_of, int(rare.sum()))

    def merge(self, probabilities: ArrayLike) -> Vector:
        """The distribution over cells of a distribution over codes.

        Args:
            probabilities: (domain,).

        Returns:
            (cells,) float64.

        Raises:
            SfumatoError: if these are no probabilities of this domain.
        """
        own = _checked_probabilities(probabilities)
        if len(own) != self.domain:
            raise SfumatoError(f"probabilities has {len(own)} codes; allowed are {self.domain}.")
        return np.bincount(self.cell_of, weights=own, minlength=self.cells).astype(np.float64)


@dataclass(frozen=True, eq=False)
class PublicPoints:
    """The cells at which the population is asked for its counts.

    Attributes:
        cells: (k,) int32, distinct and ascending.
        weights: (k,) float64 that sum to 1: the share of the draws that each cell had.
        draws: m, how many points were drawn; 0 where every cell is asked with its own probability as weight.

    Raises:
        SfumatoError: if the arrays do not agree.
    """

    cells: NDArray[np.int32]
    weights: Vector
    draws: int

    def __post_init__(self) -> None:
        """Check that the arrays agree, and make them read-only."""
        cells, weights = array_of("cells", self.cells), array_of("weights", self.weights)
        if cells.ndim != 1 or not cells.size or cells.shape != weights.shape:
            raise SfumatoError(
                f"points have cells of shape {cells.shape} and weights of shape {weights.shape}; allowed is one weight per "
                "cell and at least one cell."
            )
        if cells.dtype.kind not in "iu" or weights.dtype.kind not in "fiu":
            raise SfumatoError(
                f"points have cells of {cells.dtype} and weights of {weights.dtype}; allowed are integers and numbers."
            )
        if int(cells.max()) >= MAX_DOMAIN:
            raise SfumatoError(
                f"a cell of the points is {int(cells.max())}; allowed are the cells from 0 to {MAX_DOMAIN - 1}."
            )
        if int(cells.min()) < 0 or not bool(np.all(cells[1:] > cells[:-1])):
            raise SfumatoError(
                "the cells of the points are not distinct and ascending from 0; allowed are such."
            )
        if not bool(np.all(weights > 0.0)) or abs(float(weights.sum()) - 1.0) > _SUM_TOLERANCE:
            raise SfumatoError("the weights of the points are not positive with sum 1; allowed are such.")
        require_count("draws", self.draws, 0, MAX_DRAWS)
        object.__setattr__(self, "cells", _frozen(cells.astype(np.int32)))
        object.__setattr__(self, "weights", _frozen(weights.astype(np.float64)))

    @property
    def count(self) -> int:
        """How many distinct cells there are, k."""
        return len(self.cells)

    def check_within(self, reference: Reference) -> None:
        """Refuse a reference that has fewer cells, or that these points are not all of although none was drawn.

        Raises:
            SfumatoError: if a point is no cell of it, or ``draws`` is 0 and a cell is left out or has another weight than
                its probability: the estimate would then have a sampling error that no interval allows for.
        """
        if int(self.cells[-1]) >= reference.cells:
            raise SfumatoError(
                f"a point is the cell {int(self.cells[-1])}; allowed are the reference's, 0 to {reference.cells - 1}."
            )
        if self.draws:
            return
        if self.count != reference.cells or not np.allclose(
            self.weights, reference.probabilities, rtol=1e-9, atol=0.0
        ):
            raise SfumatoError(
                f"draws is 0 with points that are not the {reference.cells} cells by their probabilities; allowed are all of "
                "these, or the number of draws."
            )


def draw_points(reference: Reference, count: int, stream: RandomStream) -> PublicPoints:
    """Points x_1..x_m, independent draws from Pi; repeated ones share a weight (Algorithm 2, Section 4.1).

    Guarantee:
        The draws are public and depend on no private data, so whatever is computed from them costs nothing.

    Args:
        reference: Pi.
        count: m, at least 1.
        stream: public randomness.

    Raises:
        SfumatoError: if the count is outside of what is allowed.
    """
    require_count("count of the points", count, 1, MAX_DRAWS)
    require_stream(stream)
    steps = np.cumsum(reference.probabilities)
    drawn = np.searchsorted(steps[:-1] / steps[-1], stream.random(count), side="right")
    cells, times = np.unique(drawn, return_counts=True)
    return PublicPoints(cells.astype(np.int32), times / count, count)


def all_points(reference: Reference) -> PublicPoints:
    """Every cell, weighted by its probability: the estimate then has no sampling variance (beyond the paper).

    The message of a client grows with the number of cells, and lambda no longer matters with a mixed ratio.
    """
    return PublicPoints(np.arange(reference.cells, dtype=np.int32), reference.probabilities.copy(), 0)


def _frozen(array: NDArray[np.generic]) -> NDArray[np.generic]:
    own = np.array(array)
    own.setflags(write=False)
    return own


def _checked_probabilities(probabilities: ArrayLike) -> Vector:
    own = array_of("probabilities", probabilities)
    if own.ndim != 1 or own.dtype.kind not in "fiu" or not 2 <= own.size <= MAX_DOMAIN:
        raise SfumatoError(
            f"probabilities is {own.dtype} of shape {own.shape}; allowed is a vector of 2 to {MAX_DOMAIN} numbers."
        )
    own = own.astype(np.float64)
    if not bool(np.all(np.isfinite(own))) or float(own.min()) < 0.0:
        raise SfumatoError(
            "probabilities hold a number that is negative or not finite; allowed are numbers from 0 to 1."
        )
    total = float(own.sum())
    if abs(total - 1.0) > _SUM_TOLERANCE:
        raise SfumatoError(f"probabilities sum to {total:.12g}; allowed is 1, to {_SUM_TOLERANCE:g}.")
    return own
