"""Canaries for the one-run audit: which are in, what they put into a gradient sum, and how they are scored.

>>> from sfumato.rng import Streams
>>> directions = block_directions(canaries=50, k=200, stream=Streams(0).stream("attack", "directions"))
>>> included = choose_included(50, Streams(0).stream("attack", "included"))
>>> scores = CanaryScores(directions)
>>> scores.observe(canary_contribution(directions, included, clip_norm=1.0))
>>> bool(np.allclose(scores.values, included))
True

Gradient-space canaries are the strongest that the guarantee allows: their per-example gradient is replaced by
clip_norm times a unit vector on the support, and they are sampled as every example is. Input-space
canaries are mislabelled examples, trained as they are. Canaries and their scores: Steinke et al. (2023),
Section 6, and Nasr et al. (2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.roc import FloatArray, IntArray, check_scores
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

BoolArray = NDArray[np.bool_]
Rule = Literal["sum", "likelihood_ratio", "difference"]


def choose_included(canaries: int, stream: RandomStream) -> BoolArray:
    """Which canaries are put into the training data: independent fair coins, bool, shape (canaries,).

    Raises:
        SfumatoError: if there is no canary.
    """
    if canaries < 1:
        raise SfumatoError(f"canaries is {canaries}; allowed is at least 1.")
    return stream.random(canaries) < 0.5


@dataclass(frozen=True, eq=False)
class Directions:
    """Unit vectors on the support, each with ``width`` entries that are not zero.

    Attributes:
        indices: positions in support order (0..k-1), int64, shape (canaries, width), distinct in a row.
        values: entries at these positions, float64, shape (canaries, width), of norm 1 in a row.
        k: size of the support.
    """

    indices: IntArray
    values: FloatArray
    k: int

    @property
    def canaries(self) -> int:
        """Number of directions."""
        return int(self.indices.shape[0])

    def project(self, vector: ArrayLike) -> FloatArray:
        """The inner product of a vector of shape (k,) with each direction, shape (canaries,).

        Raises:
            SfumatoError: if the vector has another shape or a number that is not finite.
        """
        dense = check_scores("vector", vector)
        if dense.size != self.k:
            raise SfumatoError(f"vector has {dense.size} entries; allowed are {self.k}, one a coordinate.")
        return np.sum(dense[self.indices] * self.values, axis=1)


def block_directions(canaries: int, k: int, stream: RandomStream, width: int | None = None) -> Directions:
    """Orthogonal directions: disjoint random blocks of the support with random signs.

    Args:
        canaries: number of directions, at most k.
        k: size of the support.
        stream: chooses blocks and signs.
        width: coordinates per block; 1 gives Dirac canaries, None the widest possible, k // canaries.
            Wide blocks average the gradients of the other examples, which move single coordinates strongly.

    Raises:
        SfumatoError: if the blocks do not fit.
    """
    wide = (k // canaries if canaries > 0 else 0) if width is None else width
    if canaries < 1 or wide < 1 or canaries * wide > k:
        raise SfumatoError(
            f"{canaries} canaries of width {wide} ask for {canaries * wide} coordinates of {k};"
            " allowed are at least 1 of width 1 and disjoint blocks."
        )
    indices = stream.permutation(k)[: canaries * wide].reshape(canaries, wide)
    return Directions(indices, _signs(canaries, wide, stream), k)


def sparse_directions(canaries: int, k: int, nonzeros: int, stream: RandomStream) -> Directions:
    """Random sparse directions, which overlap: any number of canaries on any support.

    Args:
        canaries: number of directions.
        k: size of the support.
        nonzeros: coordinates of each direction, 1..k, drawn anew for each.
        stream: chooses coordinates and signs.

    Raises:
        SfumatoError: if a number is out of its range.
    """
    if canaries < 1 or not 1 <= nonzeros <= k:
        raise SfumatoError(f"{canaries} canaries of {nonzeros} coordinates; allowed are >= 1, and 1..{k}.")
    indices = np.stack([stream.permutation(k)[:nonzeros] for _ in range(canaries)])
    return Directions(indices, _signs(canaries, nonzeros, stream), k)


def _signs(canaries: int, width: int, stream: RandomStream) -> FloatArray:
    coins = stream.integers(0, 2, (canaries, width)).astype(np.float64)
    return (2.0 * coins - 1.0) / math.sqrt(width)


def canary_contribution(directions: Directions, selected: ArrayLike, clip_norm: float) -> FloatArray:
    """What the canaries of one step add to the clipped sum: clip_norm times the selected directions, summed.

    Each canary adds a vector of norm clip_norm, as much as clipping allows any example, so the sensitivity
    of the sum is unchanged. The caller draws ``selected`` = included and Poisson-sampled in this step.

    Args:
        directions: of the canaries.
        selected: bool, shape (canaries,).
        clip_norm: positive.

    Returns:
        float64, shape (k,), in support order; add it before the noise.

    Raises:
        SfumatoError: on another type or shape, or a clip norm that is not positive and finite.
    """
    chosen = np.asarray(selected)
    if chosen.dtype != np.bool_ or chosen.shape != (directions.canaries,):
        raise SfumatoError(
            f"selected is {chosen.dtype} {chosen.shape}; allowed is bool of shape ({directions.canaries},)."
        )
    if not 0.0 < clip_norm < math.inf:
        raise SfumatoError(f"clip_norm is {clip_norm}; allowed is a positive finite number.")
    weights = (clip_norm * directions.values[chosen]).ravel()
    total = np.zeros(directions.k)
    np.add.at(total, directions.indices[chosen].ravel(), weights)
    return total


class CanaryScores:
    """Adds up each canary's score over the released gradients; larger = likelier in.

    With x_t = <released sum, direction> / clip_norm the rules are

    - ``sum``: the sum of x_t, which needs no knowledge of the mechanism;
    - ``likelihood_ratio``: the sum of log(1 - q + q exp((x_t - 1/2) / sigma^2)), the most powerful one for
      a Poisson-sampled Gaussian mechanism on orthogonal directions (Neyman and Pearson);
    - ``difference``: the sum of (x_t - x_{t-1})^2, which finds noise that is used again from step to step,
      where a canary is sampled in some steps and not in others.

    Each is a function of what was released, so the audit's guarantee holds for each; the rule must be fixed
    beforehand. ``known`` takes the other examples' exact sum out: the guarantee is against an attacker who
    knows all of them, and Poisson sampling keeps it when their sampling is known too.
    """

    def __init__(
        self,
        directions: Directions,
        *,
        rule: Rule = "sum",
        clip_norm: float = 1.0,
        expected_batch_size: float = 1.0,
        sampling_rate: float | None = None,
        noise_multiplier: float | None = None,
    ) -> None:
        """Start at score 0.

        Args:
            directions: of the canaries on the current support.
            rule: ``sum``, ``likelihood_ratio`` or ``difference``.
            clip_norm: norm of a canary's gradient.
            expected_batch_size: what the released gradients were divided by; 1 for released sums.
            sampling_rate: in (0, 1], for ``likelihood_ratio``.
            noise_multiplier: claimed, positive, for ``likelihood_ratio``.

        Raises:
            SfumatoError: if a number is missing or out of its range or the rule unknown.
        """
        if rule not in ("sum", "likelihood_ratio", "difference"):
            raise SfumatoError(f"rule is {rule!r}; allowed are 'sum', 'likelihood_ratio' and 'difference'.")
        if not (0.0 < clip_norm < math.inf and 0.0 < expected_batch_size < math.inf):
            raise SfumatoError(
                f"clip_norm is {clip_norm}, expected_batch_size {expected_batch_size}; both must be > 0."
            )
        rate, noise = sampling_rate or 0.0, noise_multiplier or 0.0
        if rule == "likelihood_ratio" and not (0.0 < rate <= 1.0 and 0.0 < noise < math.inf):
            raise SfumatoError(
                f"sampling_rate is {sampling_rate} and noise_multiplier {noise_multiplier};"
                " allowed are 0 < rate <= 1 and a positive multiplier for the rule 'likelihood_ratio'."
            )
        self._directions = directions
        self._rule: Rule = rule
        self._clip_norm, self._divisor = clip_norm, expected_batch_size
        self._rate, self._variance = rate, noise**2
        self._values = np.zeros(directions.canaries)
        self._previous: FloatArray | None = None

    @property
    def values(self) -> FloatArray:
        """The scores so far, float64, shape (canaries,)."""
        return self._values.copy()

    def switch(self, directions: Directions) -> None:
        """Go on with other directions of the same canaries, for a support that is chosen anew.

        Raises:
            SfumatoError: if the number of canaries differs.
        """
        if directions.canaries != self._values.size:
            raise SfumatoError(
                f"directions are {directions.canaries}; allowed are {self._values.size}, one a canary."
            )
        self._directions, self._previous = directions, None

    def observe(self, released: ArrayLike, known: ArrayLike | None = None) -> None:
        """Take one released gradient in.

        Args:
            released: (sum + noise) / expected_batch_size, shape (k,), in support order.
            known: clipped sum of the sampled examples that are not canaries, shape (k,); None leaves it in.

        Raises:
            SfumatoError: on another shape or a number that is not finite.
        """
        total = self._directions.project(released) * self._divisor
        if known is not None:
            total = total - self._directions.project(known)
        step = total / self._clip_norm
        if self._rule == "sum":
            self._values += step
        elif self._rule == "likelihood_ratio":
            exponent = math.log(self._rate) + (step - 0.5) / self._variance
            rest = math.log1p(-self._rate) if self._rate < 1.0 else -math.inf
            self._values += np.logaddexp(rest, exponent)
        else:
            if self._previous is not None:
                self._values += (step - self._previous) ** 2
            self._previous = step

    def state(self) -> dict[str, FloatArray]:
        """What a checkpoint must hold to go on; ``previous`` is absent before the first step."""
        return {"values": self.values} | (
            {} if self._previous is None else {"previous": self._previous.copy()}
        )

    def restore(self, state: Mapping[str, ArrayLike]) -> None:
        """Go on from a checkpoint's state.

        Raises:
            SfumatoError: if it is of another number of canaries.
        """
        loaded = {name: check_scores(name, values).copy() for name, values in state.items()}
        if "values" not in loaded or any(values.size != self._values.size for values in loaded.values()):
            raise SfumatoError(
                f"the state has no scores of {self._values.size} canaries; restore one of this run."
            )
        self._values, self._previous = loaded["values"], loaded.get("previous")


def mislabel(
    x: ArrayLike, y: ArrayLike, classes: int, stream: RandomStream
) -> tuple[NDArray[np.generic], IntArray]:
    """Input-space canaries: the same inputs, each with a wrong label, uniform over the other classes.

    Args:
        x: inputs, shape (canaries, ...).
        y: true labels, integers in 0..classes-1, shape (canaries,).
        classes: at least 2.
        stream: chooses the wrong labels.

    Returns:
        The inputs, unchanged, and int64 labels that differ from ``y`` everywhere.

    Raises:
        SfumatoError: if lengths differ, a label is out of range or there is only one class.
    """
    inputs, labels = np.asarray(x), np.asarray(y)
    if classes < 2:
        raise SfumatoError(f"classes is {classes}; allowed is at least 2.")
    if labels.ndim != 1 or inputs.ndim < 1 or inputs.shape[0] != labels.size or labels.size == 0:
        raise SfumatoError(
            f"x has shape {inputs.shape}, y {labels.shape}; allowed are (canaries, ...), (canaries,)."
        )
    if not np.issubdtype(labels.dtype, np.integer) or int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise SfumatoError(f"y is of type {labels.dtype}; allowed are integers in 0..{classes - 1}.")
    shift = stream.integers(1, classes, labels.size)
    return inputs, (labels.astype(np.int64) + shift) % classes


def loss_scores(final_losses: ArrayLike, initial_losses: ArrayLike | None = None) -> FloatArray:
    """Scores of input-space canaries: minus the final loss, or the initial minus the final one.

    The initial loss, under the starting parameters, takes the canary's own hardness out; it
    does not depend on the coins, so the guarantee holds with it.

    Args:
        final_losses: per-canary losses (nats) after training, shape (canaries,).
        initial_losses: before training, same shape.

    Raises:
        SfumatoError: if a loss is not finite or shapes differ.
    """
    final = check_scores("final_losses", final_losses)
    if initial_losses is None:
        return np.negative(final)
    initial = check_scores("initial_losses", initial_losses)
    if initial.shape != final.shape:
        raise SfumatoError(f"initial_losses has shape {initial.shape}; allowed is {final.shape}.")
    return initial - final
