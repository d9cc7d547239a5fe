"""The whole protocol: the sum of the survivors exactly, or an abort; and what it weighs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.secure_aggregation import (
    AggregationAbortedError,
    Setting,
    aggregate,
    estimate_traffic,
)
from tests.sfumato.secure_aggregation.exchange import SMALL, seeded


def _recoverable(last: dict[int, int], setting: Setting) -> bool:
    """Whether the sum is to be had on a complete graph; ``last`` is each client's last round."""
    after = [[one for one in range(setting.clients) if last.get(one, 4) >= number] for number in range(5)]
    keys, shares, masked, opened = after[1:]
    if min(len(keys), len(shares), len(masked)) - 1 < setting.threshold:
        return False
    if len(masked) < setting.survivors:
        return False
    owners = shares if masked else []
    return all(len([one for one in opened if one != owner]) >= setting.threshold for owner in owners)


@given(
    st.dictionaries(st.integers(0, 6), st.integers(0, 3), max_size=5),
    st.integers(4, 6),
    st.integers(2, 7),
    st.integers(0, 99),
)
@example({}, 4, 2, 0)
@example({0: 3, 1: 3, 2: 2}, 4, 2, 0)
@settings(max_examples=40, deadline=None)
def test_any_drop_outs_within_the_threshold_are_recovered_exactly_and_others_abort(
    drop_outs: dict[int, int], threshold: int, survivors: int, seed: int
) -> None:
    setting = Setting(7, 2, 6, threshold, survivors=survivors)
    vectors = np.random.default_rng(seed).integers(-(1 << 20), 1 << 20, (7, 2))
    if not _recoverable(drop_outs, setting):
        with pytest.raises(AggregationAbortedError, match=r"left where .* needed; the aggregation stops"):
            aggregate(vectors, setting, seeded(seed), drop_outs)
        return
    kept = tuple(one for one in range(7) if drop_outs.get(one, 4) >= 3)
    done = aggregate(vectors, setting, seeded(seed), drop_outs)
    assert done.survivors == kept
    assert np.array_equal(done.total, vectors[list(kept)].sum(axis=0))


@given(st.integers(1, 64), st.integers(1, 9), st.integers(2, 6), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_sums_wrap_around_at_the_modulus_and_nowhere_else(
    bits: int, length: int, clients: int, seed: int
) -> None:
    setting = Setting(clients, length, clients - 1, (clients - 1) // 2 + 1, bits)
    half = 1 << (bits - 1)
    vectors = np.random.default_rng(seed).integers(-half, half, (clients, length), np.int64)
    exact = [sum(int(row[place]) for row in vectors) for place in range(length)]
    done = aggregate(vectors, setting, seeded(seed))
    assert done.total.dtype == np.int64
    assert done.total.tolist() == [(value + half) % (1 << bits) - half for value in exact]


@pytest.mark.parametrize("seed", range(3))
def test_a_sparse_aggregation_with_drop_outs_in_every_round_is_exact(seed: int) -> None:
    """Thresholds for 15 % drop-outs; a failure at these has a chance below 2^-10 a seed."""
    setting = Setting.recommended(60, 4, drop_out_share=0.15, security_bits=10, correctness_bits=10)
    assert setting.degree < 59
    rng = np.random.default_rng(seed)
    gone = rng.permutation(60)[:9]
    drop_outs = {int(one): int(rng.integers(0, 4)) for one in gone}
    vectors = rng.integers(0, 1000, (60, 4))
    done = aggregate(vectors, setting, os.urandom, drop_outs)
    kept = [one for one in range(60) if drop_outs.get(one, 4) >= 3]
    assert done.survivors == tuple(kept)
    assert np.array_equal(done.total, vectors[kept].sum(axis=0))


def test_two_clients_are_enough() -> None:
    done = aggregate(np.array([[5], [-7]]), Setting(2, 1, 1, 1), os.urandom)
    assert done.total.tolist() == [-2]


@pytest.mark.parametrize(
    ("vectors", "drop_outs"),
    [
        (np.zeros((4, 3), int), {}),
        (np.zeros((5, 2), int), {}),
        (np.zeros(5, int), {}),
        (np.zeros((5, 3)), {}),
        (np.full((5, 3), 1 << 31), {}),
        (np.zeros((5, 3), int), {5: 1}),
        (np.zeros((5, 3), int), {-1: 1}),
        (np.zeros((5, 3), int), {"0": 1}),
        (np.zeros((5, 3), int), {0: 4}),
        (np.zeros((5, 3), int), {0: -1}),
        (np.zeros((5, 3), int), {0: 1.0}),
    ],
)
def test_bad_input_is_refused_before_anybody_sends_anything(vectors: np.ndarray, drop_outs: Any) -> None:
    def no_entropy(count: int) -> bytes:
        raise AssertionError("somebody began")

    with pytest.raises(SfumatoError, match=r"allowed (is|are) .*\.$"):
        aggregate(vectors, SMALL, no_entropy, drop_outs)


@pytest.mark.parametrize(
    "setting", [SMALL, Setting(30, 10, 12, 8), Setting(9, 7, 8, 6, 20), Setting(4, 5, 3, 2, 64)]
)
def test_the_estimated_traffic_is_the_measured_one(setting: Setting) -> None:
    measured = aggregate(np.ones((setting.clients, setting.length), int), setting, seeded()).traffic
    estimated = estimate_traffic(setting)
    for ours, theirs in (
        (measured.uploaded, estimated.uploaded),
        (measured.downloaded, estimated.downloaded),
    ):
        assert list(ours) == list(theirs)
        assert all(np.array_equal(ours[kind], theirs[kind]) for kind in ours)
    assert measured.masked_input == 22 + setting.length * setting.word_bytes
    each = [*measured.uploaded.values(), *measured.downloaded.values()]
    assert measured.largest_client == sum(int(sizes[0]) for sizes in each)
    assert measured.server == setting.clients * measured.largest_client


def test_the_message_of_ten_counts_is_below_a_kilobyte_whatever_the_number_of_clients() -> None:
    for clients in (10, 500, 1_000_000):
        traffic = estimate_traffic(Setting.recommended(clients, 10))
        assert traffic.masked_input == 62
        assert traffic.largest_client < 35_000


def test_traffic_counts_what_was_sent_until_a_client_fell_silent() -> None:
    done = aggregate(np.ones((7, 2), int), Setting(7, 2, 6, 4), seeded(), {0: 0, 1: 2})
    sent = {kind: sizes[:3] > 0 for kind, sizes in done.traffic.uploaded.items()}
    assert sent["keys"].tolist() == [False, True, True]
    assert sent["shares"].tolist() == [False, True, True]
    assert sent["masked input"].tolist() == [False, False, True]
    assert sent["opened shares"].tolist() == [False, False, True]
    assert done.traffic.downloaded["relayed shares"][0] == 0


def test_time_is_told_by_the_given_clock_alone() -> None:
    ticks = iter(range(10**6))
    done = aggregate(np.ones((5, 3), int), SMALL, seeded(), clock=lambda: float(next(ticks)))
    assert done.seconds is not None
    assert done.seconds.clients.tolist() == [4.0] * 5
    assert done.seconds.server == 1 + 4 + 20
    assert done.seconds.total == 45
    assert aggregate(np.ones((5, 3), int), SMALL, seeded()).seconds is None


def test_a_run_on_the_same_entropy_is_the_same_run() -> None:
    views = [aggregate(np.ones((5, 3), int), SMALL, seeded(4), {2: 2}, record=True).view for _ in range(2)]
    assert views[0] == views[1]
    assert views[0] != aggregate(np.ones((5, 3), int), SMALL, seeded(5), {2: 2}, record=True).view


@pytest.mark.slow
def test_five_hundred_clients_with_a_tenth_silent_are_summed_exactly() -> None:
    setting = Setting.recommended(500, 10)
    vectors = np.random.default_rng(0).integers(0, 100, (500, 10))
    silent = dict.fromkeys(range(0, 500, 10), 2)
    done = aggregate(vectors, setting, os.urandom, silent)
    kept = [one for one in range(500) if one not in silent]
    assert np.array_equal(done.total, vectors[kept].sum(axis=0))
    assert len(done.survivors) == 450
    assert done.traffic.masked_input < 1000
