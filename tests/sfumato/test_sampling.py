"""Poisson batches depend on public numbers and on each row's own coin, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.sampling import PoissonSampler


@settings(deadline=None)
@given(st.integers(1, 200), st.data(), st.integers(0, 2**31), st.integers(0, 200))
def test_a_row_more_changes_no_other_rows_coin(
    n: int, data: st.DataObject, seed: int, available: int
) -> None:
    sampler = PoissonSampler(n, data.draw(st.integers(1, n)))
    stream = lambda: Streams(seed).stream("sampling", 3)  # noqa: E731
    longer, shorter = sampler.draw(stream(), available + 1), sampler.draw(stream(), available)
    assert np.array_equal(longer[longer < available], shorter)


@settings(deadline=None)
@given(st.integers(1, 10**9), st.data())
def test_rate_is_expected_batch_size_over_declared_size(n: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, n))
    assert PoissonSampler(n, size).rate == size / n


def test_rate_does_not_follow_the_realised_size() -> None:
    sampler = PoissonSampler(n=100, expected_batch_size=50)
    sizes = [sampler.draw(Streams(0).stream("sampling", t), available=10_000).size for t in range(20)]
    # 200,000 coins of rate 0.5: the mean lies within 6 standard deviations (false alarm below 1e-8)
    assert abs(np.mean(sizes) / 10_000 - 0.5) < 6 * 0.5 / 200_000**0.5


def test_rows_are_sorted_unique_and_drawn_independently() -> None:
    sampler = PoissonSampler(n=40, expected_batch_size=10)
    counts, pairs, draws = np.zeros(40), 0, 4_000
    for t in range(draws):
        rows = sampler.draw(Streams(1).stream("sampling", t), available=40)
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()
        counts[rows] += 1
        pairs += {3, 17} <= set(rows.tolist())
    # binomials: each of the 41 counts within 5.5 standard deviations (false alarm below 2e-6)
    assert (abs(counts / draws - 0.25) < 5.5 * (0.25 * 0.75 / draws) ** 0.5).all()
    assert abs(pairs / draws - 1 / 16) < 5.5 * (1 / 16 * 15 / 16 / draws) ** 0.5


def test_empty_batches_and_full_batches_are_batches() -> None:
    few = PoissonSampler(n=1000, expected_batch_size=1)
    assert any(few.draw(Streams(0).stream("sampling", t), available=20).size == 0 for t in range(20))
    assert few.draw(Streams(0).stream("sampling", 0), available=0).tolist() == []
    every = PoissonSampler(n=5, expected_batch_size=5)
    assert every.draw(Streams(0).stream("sampling", 0), available=5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("n", "size", "message"),
    [
        (
            10,
            11,
            "expected_batch_size is 11; allowed is an integer between 1 and the declared public size n=10.",
        ),
        (10, 0, "expected_batch_size is 0"),
        (10, -1, "expected_batch_size is -1"),
        (10, 1.0, "expected_batch_size is 1.0"),
        (10, True, "expected_batch_size is True"),
        (0, 1, "n is 0"),
        (2.5, 1, "n is 2.5"),
        (None, 1, "n is None"),
    ],
)
def test_impossible_sizes_are_refused(n: int, size: int, message: str) -> None:
    with pytest.raises(SfumatoError) as caught:
        PoissonSampler(n, size)
    assert message in str(caught.value)


@pytest.mark.parametrize("available", [-1, 1.5, None, True])
def test_impossible_number_of_rows_is_refused(available: int) -> None:
    with pytest.raises(SfumatoError, match="available is"):
        PoissonSampler(10, 1).draw(Streams(0).stream("sampling", 0), available)
