"""One federated training with one defence, and what it measured.

>>> deal(7, 3, np.arange(7)[::-1])
[array([6, 3, 0]), array([5, 2]), array([4, 1])]
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import energy_budget
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.defences import Defence
from sfumato.radiomap.federated import (
    FederationPlan,
    History,
    Validation,
    all_pairs,
    draw_sessions,
    federate,
)
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.participants import RadioClient
from sfumato.radiomap.preparation import Public
from sfumato.radiomap.unet import RadioUNet
from sfumato.records import Value
from sfumato.rng import Streams


@dataclass(frozen=True, eq=False)
class Federation:
    """What is the same for all defences of one seed.

    Attributes:
        plan: the counts.
        local: how clients train.
        maps_per_upload: how many maps, with one transmitter, a client trains on in a round.
        maps: of the clients' cities.
        validation: of other cities.
    """

    plan: FederationPlan
    local: LocalTraining
    maps_per_upload: int
    maps: MapSet
    validation: MapSet


def deal(count: int, hands: int, order: NDArray[np.integer]) -> list[NDArray[np.int64]]:
    """Maps dealt out in turn, in the given order.

    Args:
        count: how many maps.
        hands: how many clients.
        order: (count,) a permutation.

    Raises:
        SfumatoError: if there are fewer maps than clients.
    """
    if hands > count:
        raise SfumatoError(
            f"there are {count} maps for {hands} clients; allowed is at least one map for each client."
        )
    return [np.asarray(order[hand::hands], np.int64) for hand in range(hands)]


def fit(
    model: RadioUNet,
    federation: Federation,
    public: Public,
    defence: Defence,
    streams: Streams,
    keep_weights: Collection[int] = (),
) -> History:
    """Train from the public weights with that defence at every client.

    Guarantee: of the defence, towards everybody but the client itself, over the rounds in which a client takes part. Maps, who
    has which, order of the examples and the schedule are the same for every defence of a seed, so that results are paired.

    Args:
        model: where everybody computes; its weights are overwritten.
        federation: what is common to all defences.
        public: where it begins.
        defence: at its first state.
        streams: the seed's randomness.
        keep_weights: rounds whose first weights are kept.

    Raises:
        SfumatoError: if the training stops being finite.
    """
    plan, maps = federation.plan, federation.maps
    hands = deal(maps.count, plan.clients, streams.stream("clients", "maps").permutation(maps.count))
    clients = [
        RadioClient(
            number,
            maps,
            _sessions(federation, hand, streams, number),
            federation.local,
            model,
            defence,
            streams,
        )
        for number, hand in enumerate(hands)
    ]
    every = all_pairs(federation.validation)
    # One transmitter of each map draws the curve; all of them judge the released model.
    validation = Validation(model, federation.validation, every[every[:, 1] == 0], every)
    return federate(public.weights, clients, plan, streams, validation, keep_weights=keep_weights)


def _sessions(
    federation: Federation, hand: NDArray[np.int64], streams: Streams, number: int
) -> NDArray[np.int64]:
    pairs = all_pairs(federation.maps)
    own = pairs[np.isin(pairs[:, 0], hand)]
    stream = streams.stream("clients", "sessions", number)
    per_round = federation.maps_per_upload
    return draw_sessions(federation.maps, own, federation.plan.rounds, per_round, stream, per_round > 1)


def uploads_of(history: History) -> dict[int, int]:
    """Client -> how often it was asked for an upload; one that withdrew is counted, since that it did is seen."""
    counts: dict[int, int] = {}
    for record in history.rounds:
        for client in record.clients:
            counts[client] = counts.get(client, 0) + 1
    return counts


def decibels_of(mse: float | None) -> float | None:
    """10 log10 of a mean squared error in squared encoded units; None stays None.

    >>> decibels_of(0.01), decibels_of(None)
    (-20.0, None)
    """
    return None if mse is None or mse <= 0 else 10.0 * math.log10(mse)


def fit_values(history: History, defence: Defence, public: Public, nu: float) -> dict[str, Value]:
    """Leaves of a metrics document for one training."""
    last = history.validation_mse
    clipped = [record.clipped_share for record in history.rounds]
    values: dict[str, Value] = {
        "validation_mse": last,
        "validation_db": decibels_of(last),
        "clipped_share": math.fsum(clipped) / len(clipped),
        "dropped": history.dropped,
    }
    if last is None:
        reason = "the trained model's maps are not finite"
        values |= {"validation_mse_reason": reason, "validation_db_reason": reason}
    energy = getattr(defence, "energy", 0.0)
    values["energy_ratio"] = energy / energy_budget(nu, public.clip_norm) if nu > 0 else None
    if nu <= 0:
        values["energy_ratio_reason"] = "no noise is added"
    return values


def curve_rows(history: History, leading: Sequence[str]) -> list[list[object]]:
    """Rows of the curve: round, the leading cells, validation in dB, mean norm before clipping, clipped share."""
    return [
        [
            record.number + 1,
            *leading,
            "" if record.validation_mse is None else decibels_of(record.validation_mse),
            math.fsum(record.norms) / max(1, len(record.norms)),
            record.clipped_share,
        ]
        for record in history.rounds
    ]
