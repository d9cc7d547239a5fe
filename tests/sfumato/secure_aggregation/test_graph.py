"""The neighbour graph."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.secure_aggregation.graph import draw_graph
from tests.sfumato.secure_aggregation.exchange import connected, seeded


@given(st.sets(st.integers(0, 10**6), min_size=2, max_size=40), st.integers(1, 12), st.integers(0, 9))
@settings(max_examples=80, deadline=None)
def test_everybody_has_the_same_number_of_neighbours_and_is_theirs(
    members: set[int], half: int, seed: int
) -> None:
    neighbours = draw_graph(tuple(members), 2 * half, seeded(seed))
    assert set(neighbours) == members
    for one, others in neighbours.items():
        assert len(others) == min(2 * half, len(members) - 1)
        assert list(others) == sorted(set(others) - {one})
        assert all(one in neighbours[other] for other in others)
    assert connected(members, neighbours)


@pytest.mark.parametrize("degree", [2, 4, 6])
def test_survivors_with_more_than_half_of_their_neighbours_are_in_one_piece(degree: int) -> None:
    """All sets of survivors of a graph of 10; without the condition some of them fall apart."""
    neighbours = draw_graph(tuple(range(10)), degree, seeded(1))
    apart = 0
    for size in range(1, 11):
        for survivors in combinations(range(10), size):
            enough = all(len(set(neighbours[one]).intersection(survivors)) > degree // 2 for one in survivors)
            whole = connected(survivors, neighbours)
            assert whole or not enough
            apart += not whole
    assert apart > 0


@pytest.mark.parametrize("degree", [2, 4])
def test_every_pair_is_joined_equally_often(degree: int) -> None:
    """4000 graphs of 8 clients: each pair is joined with probability degree / 7; all 28 shares within 4.5 standard
    deviations, false-alarm rate below 28 * 7e-6 = 2e-4."""
    runs, clients = 4000, 8
    entropy = seeded(3)
    joined: Counter[tuple[int, int]] = Counter()
    for _ in range(runs):
        for one, others in draw_graph(tuple(range(clients)), degree, entropy).items():
            joined.update((one, other) for other in others if one < other)
    share = degree / (clients - 1)
    slack = 4.5 * np.sqrt(share * (1 - share) / runs)
    assert len(joined) == 28
    assert all(abs(count / runs - share) < slack for count in joined.values())


def test_other_coins_give_another_graph() -> None:
    members = tuple(range(30))
    assert draw_graph(members, 4, seeded(0)) != draw_graph(members, 4, seeded(1))
    assert draw_graph(members, 4, seeded(0)) == draw_graph(members, 4, seeded(0))
