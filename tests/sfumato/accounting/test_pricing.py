"""What every accountant prices, and the sentence where it cannot."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest
from dp_accounting import dp_event

from sfumato.accounting import (
    delta_at,
    epsilon,
    gaussian_epsilon,
    price,
    spent,
    zcdp_epsilon,
)
from sfumato.accounting.events import Release
from sfumato.accounting.pld import pld_epsilon
from sfumato.errors import AccountingError
from sfumato.mechanisms import gaussian_event, subsampled_gaussian


def test_tiny_privacy_loss_is_tiny_and_not_negative() -> None:
    priced = price([subsampled_gaussian(1e-3, 50.0, 10)], 1e-5)
    assert priced.pld is not None
    assert priced.rdp is not None
    assert 0.0 <= priced.pld <= 1.4e-4
    assert priced.pld <= priced.rdp < 3.5e-3
    assert not priced.rdp_order_at_grid_edge
    assert priced.prv is None or priced.prv >= 0.0


def test_an_order_at_the_edge_of_the_grid_is_reported() -> None:
    priced = price([subsampled_gaussian(1e-4, 1e5, 1)], 1e-12, cross_check=False)
    assert priced.rdp_order_at_grid_edge
    assert priced.rdp_order == 65536.0


@pytest.mark.parametrize("accountant", ["pld", "rdp", "prv", "zcdp", "gaussian"])
def test_nothing_released_costs_nothing(accountant: str) -> None:
    assert epsilon([], 1e-5, accountant) == 0.0  # type: ignore[arg-type]
    assert epsilon([subsampled_gaussian(0.0, 1.0, 10)], 1e-5, accountant) == 0.0  # type: ignore[arg-type]


def test_full_batch_is_priced_exactly_by_pld() -> None:
    priced = price([subsampled_gaussian(1.0, 1.0, 3)], 1e-5)
    assert priced.pld == priced.gaussian == gaussian_epsilon(math.sqrt(3.0), 1e-5)
    assert priced.gaussian_mu == pytest.approx(math.sqrt(3.0))
    assert priced.zcdp is not None
    assert priced.rdp is not None
    assert priced.pld <= priced.zcdp <= priced.rdp * (1 + 1e-9)
    assert priced.prv is None
    assert "sampling rate" in str(priced.reason("prv"))


def test_no_noise_is_infinite_and_none_with_a_reason_in_a_price() -> None:
    events = [subsampled_gaussian(0.1, 1.0, 5), subsampled_gaussian(0.1, 0.0, 1)]
    assert epsilon(events, 1e-5) == math.inf
    assert delta_at(events, 3.0) == 1.0
    document = price(events, 1e-5).to_json()
    assert document["pld"] is None
    assert "no noise" in str(document["pld_reason"])


@pytest.mark.parametrize(
    ("events", "match"),
    [
        ([dp_event.LaplaceDpEvent(1.0)], "cannot be priced"),
        ([dp_event.GaussianDpEvent(-1.0)], "noise_multiplier is"),
        ([dp_event.GaussianDpEvent(math.nan)], "noise_multiplier is"),
        ([dp_event.PoissonSampledDpEvent(1.5, dp_event.GaussianDpEvent(1.0))], "sampling_rate is"),
        ([subsampled_gaussian(0.1, 1.0, 10**9)], "number of steps"),
        ([subsampled_gaussian(0.5, 0.01, 10)], "privacy loss exceeds"),
        ([subsampled_gaussian(0.5, 0.3, 10**6)], "epsilon is above"),
        ([gaussian_event(0.01), subsampled_gaussian(0.1, 1.0, 10)], "privacy loss exceeds"),
        ([gaussian_event(1e-5)], "epsilon is above"),
    ],
)
def test_what_cannot_be_priced_is_one_sentence_and_quick(
    events: Sequence[dp_event.DpEvent], match: str
) -> None:
    start = time.process_time()
    with pytest.raises(AccountingError, match=match) as caught:
        epsilon(events, 1e-5)
    assert str(caught.value).count("\n") == 0
    assert time.process_time() - start < 20.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, True, 1e-290])
def test_delta_outside_of_what_can_be_priced_is_refused(delta: float) -> None:
    with pytest.raises(AccountingError, match="delta is"):
        epsilon([gaussian_event(1.0)], delta)


def test_wrong_accountants_relations_and_epsilons_are_named() -> None:
    sampled = [subsampled_gaussian(0.1, 1.0, 5)]
    with pytest.raises(AccountingError, match="accountant is 'gdp'"):
        epsilon(sampled, 1e-5, "gdp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="neighboring_relation is 'swap'"):
        epsilon(sampled, 1e-5, neighboring_relation="swap")  # type: ignore[arg-type]
    with pytest.raises(AccountingError, match="no bound for sampled"):
        epsilon(sampled, 1e-5, "rdp", "replace_one")
    with pytest.raises(AccountingError, match="epsilon is"):
        delta_at(sampled, -0.1)
    with pytest.raises(AccountingError, match="releases of all records"):
        epsilon(sampled, 1e-5, "gaussian")


def test_zcdp_events_are_priced_by_rdp_and_zcdp_only() -> None:
    events = [dp_event.ZCDpEvent(rho=0.1), gaussian_event(2.0)]
    assert epsilon(events, 1e-5, "zcdp") == pytest.approx(zcdp_epsilon(0.1 + 0.125, 1e-5))
    assert epsilon(events, 1e-5, "rdp") >= epsilon(events, 1e-5, "zcdp") * (1 - 1e-9)
    priced = price(events, 1e-5)
    assert priced.pld is None
    assert priced.gaussian is None
    assert priced.zcdp is not None
    with pytest.raises(AccountingError, match="no privacy loss distribution"):
        delta_at(events, 1.0)


def test_equal_events_are_merged_and_counted() -> None:
    total = spent([subsampled_gaussian(0.1, 1.0, 5), gaussian_event(3.0), subsampled_gaussian(0.1, 1.0, 7)])
    assert total.releases == (Release(0.1, 1.0, 12), Release(1.0, 3.0, 1))
    assert total.steps == 13


def test_many_steps_stay_bounded_in_time() -> None:
    start = time.process_time()
    assert 0.03 < pld_epsilon((Release(1e-6, 1.0, 10**8),), 1e-5, "add_or_remove_one") < 0.04
    assert time.process_time() - start < 20.0
