"""How many neighbours and shares are enough: held to brute force on small graphs and to draws on large ones."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.secure_aggregation import Setting, modulus_bits_for
from sfumato.secure_aggregation.graph import draw_graph
from sfumato.secure_aggregation.setting import (
    _least_threshold,
    _log2_at_least,
    _log2_disconnected,
    _log2_too_few_left,
)
from tests.sfumato.secure_aggregation.exchange import connected, seeded

GOOD: dict[str, Any] = {"clients": 5, "length": 3, "degree": 4, "threshold": 3}


@pytest.mark.parametrize(
    "wrong",
    [
        {"clients": 1},
        {"clients": 0},
        {"clients": 5.0},
        {"clients": True},
        {"clients": (1 << 20) + 1},
        {"length": 0},
        {"length": -2},
        {"degree": 5},
        {"degree": 0},
        {"degree": 3},
        {"threshold": 2},
        {"threshold": 5},
        {"modulus_bits": 0},
        {"modulus_bits": 65},
        {"survivors": 1},
        {"survivors": 6},
    ],
)
def test_a_setting_outside_of_what_is_allowed_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(SfumatoError, match=f"^{next(iter(wrong))} is .* allowed is .*\\.$"):
        Setting(**{**GOOD, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"clients": 1},
        {"corrupted_share": -0.1},
        {"corrupted_share": 1.0},
        {"drop_out_share": math.nan},
        {"security_bits": 0},
        {"correctness_bits": 2.5},
        {"corrupted_share": 0.9},
        {"corrupted_share": 0.5, "drop_out_share": 0.5},
    ],
)
def test_what_no_graph_can_meet_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SfumatoError, match=r"allowed (is|are) .*\.$"):
        Setting.recommended(**{"clients": 40, "length": 2, **wrong})


@given(st.integers(2, 12), st.data())
def test_the_hypergeometric_tail_is_the_share_of_the_subsets(others: int, data: st.DataObject) -> None:
    marked = data.draw(st.integers(0, others))
    degree = data.draw(st.integers(1, others))
    least = data.draw(st.integers(0, degree))
    subsets = list(combinations(range(others), degree))
    share = np.mean([sum(one < marked for one in subset) >= least for subset in subsets])
    assert 2.0 ** _log2_at_least(marked, others, degree, least) == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize("degree", [2, 4])
def test_the_bound_on_falling_apart_holds_for_every_set_of_empty_places(degree: int) -> None:
    places = 9
    circle = {
        one: tuple((one + step) % places for step in range(-degree // 2, degree // 2 + 1) if step)
        for one in range(places)
    }
    for empty in range(places - 1):
        subsets = list(combinations(range(places), empty))
        apart = np.mean([not connected(set(range(places)) - set(gone), circle) for gone in subsets])
        assert apart <= 2.0 ** _log2_disconnected(places, empty, degree)
        assert (apart > 0) == (empty >= degree)


@pytest.mark.parametrize("clients", [4, 20, 100, 500, 10_000, 1_000_000])
@pytest.mark.parametrize(("corrupted_share", "drop_out_share"), [(0.1, 0.2), (0.2, 0.1), (0.25, 0.05)])
def test_a_recommended_setting_meets_its_conditions(
    clients: int, corrupted_share: float, drop_out_share: float
) -> None:
    setting = Setting.recommended(clients, 10, 32, corrupted_share, drop_out_share)
    corrupted, dropped = math.ceil(corrupted_share * clients), math.ceil(drop_out_share * clients)
    degree, threshold, others = setting.degree, setting.threshold, clients - 1
    unsafe = clients * 2.0 ** _log2_at_least(corrupted, others, degree, threshold)
    if degree < others:
        unsafe += 2.0 ** _log2_disconnected(clients, corrupted + dropped, degree)
    failing = clients * 2.0 ** _log2_at_least(dropped, others, degree, degree - threshold + 1)
    assert unsafe <= 2.0**-40
    assert failing <= 2.0**-30
    assert 2 * threshold > degree
    assert setting.survivors == clients - dropped


@pytest.mark.parametrize("clients", [100, 500])
def test_no_sparser_graph_would_do(clients: int) -> None:
    setting = Setting.recommended(clients, 10)
    degree, corrupted, dropped = setting.degree - 2, clients // 10, clients * 3 // 20
    threshold = _least_threshold(clients, corrupted, degree, 41)
    unsafe = math.log2(clients) + _log2_at_least(corrupted, clients - 1, degree, threshold) > -41
    apart = _log2_disconnected(clients, corrupted + dropped, degree) > -41
    assert unsafe or apart or _log2_too_few_left(clients, dropped, degree, threshold) > -30


def test_the_degree_grows_like_the_logarithm_of_the_clients() -> None:
    degrees = [Setting.recommended(10**power, 1).degree for power in (3, 4, 5, 6)]
    assert degrees == sorted(degrees)
    assert degrees[-1] < 1.5 * degrees[0]


@pytest.mark.slow
def test_drawn_graphs_fail_no_more_often_than_the_bounds_say() -> None:
    """Weak targets, so that failures happen: 2^-3 each, on 2000 graphs. The counts are below 2000 / 8 plus four
    standard deviations (59), false-alarm rate below 1e-4."""
    clients, runs = 60, 2000
    setting = Setting.recommended(clients, 1, 32, 0.2, 0.2, security_bits=3, correctness_bits=3)
    unsafe = failing = 0
    entropy = seeded(5)
    assert setting.degree < clients - 1
    for _ in range(runs):
        neighbours = draw_graph(tuple(range(clients)), setting.degree, entropy)
        corrupted, dropped = set(range(12)), set(range(12, 24))
        honest = set(range(clients)) - corrupted
        many = any(len(corrupted.intersection(neighbours[one])) >= setting.threshold for one in honest)
        unsafe += many or not connected(honest - dropped, neighbours)
        failing += any(
            len(set(neighbours[one]) - dropped) < setting.threshold for one in set(range(clients)) - dropped
        )
    assert unsafe <= runs / 8 + 59
    assert 0 < failing <= runs / 8 + 59


@given(st.integers(1, 10**6), st.integers(1, 10**9))
def test_the_modulus_holds_every_sum_and_no_smaller_one_does(clients: int, bound: int) -> None:
    bits = modulus_bits_for(clients, bound)
    assert clients * bound < 1 << (bits - 1)
    assert clients * bound >= 1 << (bits - 2)


@pytest.mark.parametrize(("clients", "bound"), [(0, 1), (1, 0), (2, 1.5), (1, 1 << 63), (True, 1)])
def test_a_bound_that_no_modulus_holds_is_refused(clients: Any, bound: Any) -> None:
    with pytest.raises(SfumatoError, match=r"allowed (is|are) .*\.$"):
        modulus_bits_for(clients, bound)


@pytest.mark.parametrize(
    ("clients", "corrupted_share", "drop_out_share"), [(200, 0.4, 0.3), (500, 0.33, 0.2), (3000, 0.3, 0.2)]
)
def test_corrupted_neighbours_stay_below_the_threshold_among_those_who_sent_keys(
    clients: int, corrupted_share: float, drop_out_share: float
) -> None:
    """The graph is drawn among whoever is left then, so the bound has to hold for the smallest such group."""
    from scipy.stats import hypergeom

    setting = Setting.recommended(clients, 10, corrupted_share=corrupted_share, drop_out_share=drop_out_share)
    corrupted, left = math.ceil(corrupted_share * clients - 1e-9), setting.survivors
    tail = hypergeom.sf(setting.threshold - 1, left - 1, corrupted, min(setting.degree, left - 1))
    assert clients * tail <= 2.0**-40
