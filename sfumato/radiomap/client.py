"""One client's local training: from the global weights to its update (Section 3.1 of docs/papers.md).

>>> import numpy as np
>>> from sfumato.radiomap.maps import MapSet
>>> from sfumato.radiomap.unet import Architecture, build, flat
>>> from sfumato.rng import Streams
>>> maps = MapSet(
...     heights=np.zeros((1, 8, 8), np.float32), transmitters=np.array([[[2, 5]]], np.int16),
...     radio=np.full((1, 1, 8, 8), 0.5, np.float32), city=np.zeros(1, np.int16), cities=("plain",),
...     corner=np.zeros((1, 2), np.float32), cell=8.0)
>>> model = build(Architecture(width=0.05, levels=1), Streams(0).stream("init"))
>>> update = local_update(flat(model), model, maps, np.array([[0, 0]]), LocalTraining(), Streams(0).stream("order"))
>>> update.shape == flat(model).shape, update.dtype
(True, dtype('float64'))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.optimizers import OptimizerKind, stepper
from sfumato.radiomap.unet import flat, load_flat
from sfumato.rng import RandomStream

Phase = Literal["first", "second", "joint"]


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains.

    Attributes:
        optimizer: ``sgd`` or ``adam`` (coefficients 0.9 and 0.999), fresh in every round.
        learning_rate: its step size.
        epochs: passes over the round's maps.
        batch_size: maps in one step, at most; a last smaller batch is used as well.
        margin: how many cells along the map's edge the loss ignores. A field that is cut off at the edge tells
            where in the map its transmitter is.
        momentum: of ``sgd``.
        phase: which stage learns; ``joint`` adds up both losses, of which each reaches its own stage only.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    optimizer: OptimizerKind = "adam"
    learning_rate: float = 1e-3
    epochs: int = 1
    batch_size: int = 8
    margin: int = 0
    momentum: float = 0.0
    phase: Phase = "joint"

    def __post_init__(self) -> None:
        """Check the fields."""
        for name, value, allowed in (
            ("optimizer", self.optimizer, get_args(OptimizerKind)),
            ("phase", self.phase, get_args(Phase)),
        ):
            if value not in allowed:
                raise SfumatoError(f"{name} is {value!r}; allowed is {' or '.join(allowed)}.")
        rate, momentum = self.learning_rate, self.momentum
        if not is_number(rate) or not 0 < rate < math.inf:
            raise SfumatoError(f"learning_rate is {rate!r}; allowed is a finite number above 0.")
        if not is_number(momentum) or not 0 <= momentum < 1:
            raise SfumatoError(f"momentum is {momentum!r}; allowed is a number from 0 to below 1.")
        if self.optimizer == "adam" and momentum:
            raise SfumatoError(f"momentum is {momentum!r} with the optimizer 'adam'; allowed is 0 there.")
        for name, least in (("epochs", 1), ("batch_size", 1), ("margin", 0)):
            value = getattr(self, name)
            if not is_integer(value) or value < least:
                raise SfumatoError(f"{name} is {value!r}; allowed is an integer of at least {least}.")


def local_update(
    weights: NDArray[np.floating],
    model: nn.Module,
    maps: MapSet,
    pairs: NDArray[np.integer],
    training: LocalTraining,
    stream: RandomStream,
) -> NDArray[np.float64]:
    """The change of the weights by training on some maps: what a client would upload undefended.

    Args:
        weights: (d,), the global ones.
        model: where the training takes place; its weights are overwritten.
        maps: the client's.
        pairs: (b, 2), the map and the transmitter of each of the round's examples.
        training: how.
        stream: draws the order of the examples in each epoch.

    Returns:
        (d,) float64. It is not finite where the training was not.

    Raises:
        SfumatoError: if the shapes do not fit, there is no pair, or the margin leaves no cell.
    """
    chosen = checked_pairs(maps, pairs)
    load_flat(model, weights)
    start = flat(model).astype(np.float64)
    batches = (
        batch for _ in range(training.epochs) for batch in shuffled(chosen, training.batch_size, stream)
    )
    optimise(model, maps, batches, training)
    return flat(model).astype(np.float64) - start


def checked_pairs(maps: MapSet, pairs: NDArray[np.integer]) -> NDArray[np.int64]:
    """The pairs as (b, 2) int64.

    Raises:
        SfumatoError: if they are of another shape, none, or name a map or a transmitter that is not there.
    """
    given = np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 2 or not len(given) or given.dtype.kind not in "iu":
        raise SfumatoError(
            f"the pairs are of shape {given.shape} and {given.dtype}; allowed are integers of shape (b, 2) with b >= 1."
        )
    bad = np.flatnonzero(((given < 0) | (given >= (maps.count, maps.per_map))).any(axis=1))
    if len(bad):
        raise SfumatoError(
            f"the pair {given[bad[0]].tolist()} is not there; allowed are maps below {maps.count} and transmitters below "
            f"{maps.per_map}."
        )
    return given.astype(np.int64)


def shuffled(pairs: NDArray[np.int64], batch_size: int, stream: RandomStream) -> Iterator[NDArray[np.int64]]:
    """The pairs in a fresh order, batch by batch."""
    order = stream.permutation(len(pairs))
    for start in range(0, len(pairs), batch_size):
        yield pairs[order[start : start + batch_size]]


def optimise(
    model: nn.Module, maps: MapSet, batches: Iterable[NDArray[np.int64]], training: LocalTraining
) -> None:
    """Take one step of a fresh optimizer on each batch, in place.

    Args:
        model: gives a pair of maps for a batch of inputs.
        maps: whose examples the batches name.
        batches: each (b, 2), with b >= 1.
        training: optimizer, margin and phase.

    Raises:
        SfumatoError: if the margin leaves no cell of the maps.
    """
    inner = inner_cells(maps.size, training.margin)
    step = stepper(list(model.parameters()), training.optimizer, training.learning_rate, training.momentum)
    for batch in batches:
        inputs = torch.from_numpy(maps.inputs(batch))
        targets = torch.from_numpy(maps.targets(batch))
        masks = torch.from_numpy(maps.masks(batch) & inner)
        model.zero_grad(set_to_none=True)
        outputs = model(inputs)
        chosen = {"first": outputs[:1], "second": outputs[1:], "joint": outputs}[training.phase]
        loss = sum((masked_error(output, targets, masks) for output in chosen), torch.zeros(()))
        loss.backward()
        step()


def inner_cells(size: int, margin: int) -> NDArray[np.bool_]:
    """(s, s) bool, the cells that are at least ``margin`` away from the edge.

    Raises:
        SfumatoError: if there are none.
    """
    if 2 * margin >= size:
        raise SfumatoError(
            f"margin is {margin} for maps of {size} cells along a side; allowed is at most {(size - 1) // 2}."
        )
    inner = np.zeros((size, size), bool)
    inner[margin : size - margin, margin : size - margin] = True
    return inner


def masked_error(predicted: torch.Tensor, targets: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """The mean squared error over the marked cells of a batch, 0 if there is none.

    Args:
        predicted: (b, 1, s, s) encoded path gain.
        targets: likewise.
        masks: (b, 1, s, s) bool.

    Returns:
        A scalar, in squared encoded units.
    """
    squares = torch.where(masks, (predicted - targets) ** 2, torch.zeros_like(predicted))
    return squares.sum() / masks.sum().clamp(min=1)
