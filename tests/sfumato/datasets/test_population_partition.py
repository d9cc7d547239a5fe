from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.datasets.population_partition import dirichlet_clients, dirichlet_rows, draw_categories
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 9), min_size=1, max_size=120),
    share=st.floats(0, 1),
    concentration=st.floats(0.1, 20),
    seed=st.integers(0, 10**6),
)
def test_sizes_of_pseudo_clients_differ_by_at_most_one_and_each_example_has_a_holder(
    labels: list[int], share: float, concentration: float, seed: int
) -> None:
    clients = max(1, round(share * len(labels)))
    holders = dirichlet_clients(np.array(labels), clients, concentration, Streams(seed).stream("clients"))
    sizes = np.bincount(holders, minlength=clients)
    assert holders.dtype == np.int32
    assert len(sizes) == clients
    assert sizes.sum() == len(labels)
    assert sizes.max() - sizes.min() <= 1


def test_a_smaller_concentration_gives_clients_of_fewer_classes() -> None:
    labels = np.tile(np.arange(10), 600)

    def largest_share(concentration: float) -> float:
        holders = dirichlet_clients(labels, 60, concentration, Streams(1).stream("clients"))
        table = np.zeros((60, 10))
        np.add.at(table, (holders, labels), 1)
        return float((table.max(1) / table.sum(1)).mean())

    assert largest_share(0.1) > largest_share(0.5) + 0.1 > largest_share(20.0) + 0.2


def test_dirichlet_rows_have_the_mean_and_variance_of_their_law() -> None:
    """4,000 draws of Dirichlet(a, a, a), mean 1/3, variance (2/9)/(3a+1); z beyond 5 six times: chance below 4e-6."""
    for concentration in (0.3, 0.5, 2.0):
        rows = dirichlet_rows(4000, 3, concentration, Streams(2).stream("rows"))
        np.testing.assert_allclose(rows.sum(1), 1.0, rtol=1e-12)
        assert rows.min() > 0
        variance = (2 / 9) / (3 * concentration + 1)
        z = (rows.mean(0) - 1 / 3) / np.sqrt(variance / 4000)
        assert np.abs(z).max() < 5
        squares = (rows - 1 / 3) ** 2
        z = (squares.mean(0) - variance) / (squares.std(0) / np.sqrt(4000))
        assert np.abs(z).max() < 5


def test_categories_are_drawn_as_often_as_their_probability_says_and_never_at_zero() -> None:
    """Chi-square over 4 cells at 1e-6, so one false alarm in a million."""
    from scipy.stats import chisquare

    probabilities = np.array([0.0, 0.5, 0.125, 0.0, 0.25, 0.125, 0.0])
    counts = np.bincount(draw_categories(probabilities, 40_000, Streams(4).stream("draws")), minlength=7)
    assert counts[probabilities == 0].sum() == 0
    kept = probabilities > 0
    assert chisquare(counts[kept], 40_000 * probabilities[kept]).pvalue > 1e-6


def test_numbers_outside_of_what_is_allowed_are_refused() -> None:
    stream = Streams(0).stream("clients")
    with pytest.raises(SfumatoError, match="clients is 4; allowed is an integer from 1 to 3"):
        dirichlet_clients(np.zeros(3, np.int64), 4, 0.5, stream)
    for concentration in (0.05, float("nan"), float("inf"), True):
        with pytest.raises(SfumatoError, match=r"concentration is .*; allowed is a number of at least 0.1"):
            dirichlet_rows(1, 2, concentration, stream)
