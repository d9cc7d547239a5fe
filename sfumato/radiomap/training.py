"""Training outside of the rounds: the public warm start, and the updates that an attacker makes for itself.

>>> from sfumato.radiomap.client import LocalTraining
>>> LocalTraining(optimizer="adam").learning_rate
0.001
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.radiomap.client import LocalTraining, checked_pairs, local_update, optimise, shuffled
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.unet import flat, load_flat
from sfumato.rng import RandomStream, Streams


def warm_start(
    weights: NDArray[np.floating],
    model: nn.Module,
    maps: MapSet,
    pairs: NDArray[np.integer],
    training: LocalTraining,
    steps: int,
    stream: RandomStream,
) -> NDArray[np.float32]:
    """The weights after some central steps on public maps, which is also how a central model is trained.

    Guarantee: none for the maps that it is given; they have to be public.

    Args:
        weights: (d,), where it begins.
        model: where the training takes place; its weights are overwritten.
        maps: public ones.
        pairs: (b, 2), which of them.
        training: how; its number of epochs is not used.
        steps: how many batches, through as many epochs as it takes; 0 returns the weights as they are.
        stream: draws the order of the examples in each epoch.

    Returns:
        (d,) float32.

    Raises:
        SfumatoError: if the shapes do not fit, or the training diverged.
    """
    if not is_integer(steps) or steps < 0:
        raise SfumatoError(f"steps is {steps!r}; allowed is an integer of at least 0.")
    load_flat(model, weights)
    optimise(model, maps, _endless(checked_pairs(maps, pairs), training.batch_size, stream, steps), training)
    found = flat(model)
    if not np.isfinite(found).all():
        raise SfumatoError(
            f"the weights are not finite after {steps} steps with learning rate {training.learning_rate}; allowed is a rate "
            "at which the training stays finite."
        )
    return found


def _endless(
    pairs: NDArray[np.int64], batch_size: int, stream: RandomStream, count: int
) -> Iterator[NDArray[np.int64]]:
    """That many batches, through as many epochs as it takes."""
    left = count
    while left > 0:
        for batch in shuffled(pairs, batch_size, stream):
            if left == 0:
                return
            left -= 1
            yield batch


def session_updates(
    weights: NDArray[np.floating],
    model: nn.Module,
    maps: MapSet,
    sessions: NDArray[np.int64],
    training: LocalTraining,
    streams: Streams,
) -> NDArray[np.float32]:
    """The undefended updates of many sessions from the same weights, as clients would make them.

    Who knows the global weights can do this on maps of its own: it is what the attackers learn from.

    Args:
        weights: (d,), the global ones of one round.
        model: where the training takes place; its weights are overwritten.
        maps: the attacker's.
        sessions: (n, b, 2), the pairs of each.
        training: the clients'.
        streams: ``order`` of each session by its place; what the sessions have in common with other calls is
            up to the caller.

    Returns:
        (n, d) float32.

    Raises:
        SfumatoError: if the shapes do not fit, or an update is not finite.
    """
    found = np.empty((len(sessions), np.size(weights)), np.float32)
    for place, pairs in enumerate(sessions):
        order = streams.stream("order", place)
        found[place] = local_update(weights, model, maps, pairs, training, order)
    if not np.isfinite(found).all():
        raise SfumatoError("a session's update is not finite; allowed is a training that stays finite.")
    return found
