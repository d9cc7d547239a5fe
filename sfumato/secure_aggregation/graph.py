"""Who is whose neighbour: a random order on a circle, each client joined to the nearest on either side.

>>> import os
>>> neighbours = draw_graph(tuple(range(9)), degree=4, entropy=os.urandom)
>>> {len(others) for others in neighbours.values()}
{4}

Survivors of whom each has more than half of its neighbours left are in one piece: a circle falls apart only at two runs
of ``degree / 2`` empty places, and whoever is next to one of them has lost half of its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sfumato.secure_aggregation.shamir import Entropy, draw

Neighbours = Mapping[int, tuple[int, ...]]


def draw_graph(members: tuple[int, ...], degree: int, entropy: Entropy) -> dict[int, tuple[int, ...]]:
    """Each member's neighbours in ascending order (Bell et al. 2020, Section 3).

    Args:
        members: distinct identities.
        degree: even; with ``degree + 1`` members or fewer, everybody is everybody's neighbour.
        entropy: the coins, tossed after the keys were advertised.
    """
    count = len(members)
    if degree >= count - 1:
        ordered = sorted(members)
        return {one: tuple(other for other in ordered if other != one) for one in ordered}
    order = np.argsort(np.frombuffer(draw(entropy, 8 * count), "<u8"), kind="stable")
    circle = np.asarray(members)[order]
    steps = np.concatenate([np.arange(1, degree // 2 + 1), -np.arange(1, degree // 2 + 1)])
    near = np.sort(circle[(np.arange(count)[:, None] + steps) % count], axis=1)
    return {one: tuple(others) for one, others in zip(circle.tolist(), near.tolist(), strict=True)}
