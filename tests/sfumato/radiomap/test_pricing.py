"""Exact prices of promises; what makes none is refused; large numbers stay numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from dp_accounting import dp_event

from sfumato import accounting
from sfumato.errors import SfumatoError
from sfumato.radiomap.clips import WholeClip
from sfumato.radiomap.defences import StaticDefence, static_optimal, uniform
from sfumato.radiomap.partition import partition_of
from sfumato.radiomap.pricing import (
    nu_for_epsilon,
    price,
    price_of_mu,
    promise_of,
    upload_event,
    why_no_epsilon,
)
from tests.sfumato.radiomap.defended import group_clips, guaranteed, three_groups, without_promise

PARTITION = three_groups(48)
NU, CLIP = 0.7, 1.5
MU = {
    "uniform": 2.0 * math.sqrt(48) / NU,
    "static_optimal": 2.0 * float(group_clips(PARTITION) @ np.sqrt(PARTITION.sizes)) / (NU * CLIP),
    "frozen": 2.0 * math.sqrt(max(4 / 0.5, 8 / 0.2, 36 / 0.3)) / NU,
    "adaptive_certified": 2.0 * math.sqrt(48) / NU / math.sqrt(0.25),
    "shaped": 2.0 * math.sqrt(48) / NU,
}


@pytest.mark.parametrize("name", list(MU))
@pytest.mark.parametrize("uploads", [1, 9])
def test_the_price_is_that_of_the_formula(name: str, uploads: int) -> None:
    defence = guaranteed(PARTITION, NU, CLIP)[name]
    found = price(defence, uploads, 1e-5)
    assert found.mu == pytest.approx(MU[name] * math.sqrt(uploads), rel=1e-12)
    assert found.epsilon == pytest.approx(accounting.gaussian_epsilon(found.mu, 1e-5))
    assert found.epsilon < found.zcdp


@pytest.mark.parametrize("name", list(MU))
def test_recorded_events_cost_what_the_promise_says(name: str) -> None:
    defence = guaranteed(PARTITION, 5.0 * NU, CLIP)[name]
    events = [upload_event(defence)] * 3
    found = accounting.epsilon(events, 1e-5, "gaussian", "replace_one")
    assert found == pytest.approx(price(defence, 3, 1e-5).epsilon, rel=1e-9)


@pytest.mark.parametrize("name", list(without_promise(PARTITION, NU)))
def test_what_makes_no_promise_has_no_price_and_records_an_event_of_no_privacy(name: str) -> None:
    defence = without_promise(PARTITION, NU, CLIP)[name]
    with pytest.raises(SfumatoError, match="so no epsilon holds"):
        promise_of(defence)
    with pytest.raises(SfumatoError, match="so no epsilon holds"):
        price(defence, 1, 1e-5)  # type: ignore[arg-type]
    assert why_no_epsilon(defence).endswith(".")
    assert isinstance(upload_event(defence), dp_event.NonPrivateDpEvent)
    assert accounting.epsilon([upload_event(defence)], 1e-5) == math.inf


def test_what_makes_a_promise_is_given_no_reason() -> None:
    assert [why_no_epsilon(defence) for defence in guaranteed(PARTITION, NU, CLIP).values()] == [""] * 5


def test_noise_that_spares_one_single_weight_has_no_price() -> None:
    partition = partition_of(48, {"bare": np.array([7])})
    sparing = StaticDefence("sparing", partition, WholeClip(1.0), np.array([0.0, 1.0]))
    with pytest.raises(SfumatoError, match="adds no noise to the group 'bare'"):
        price(sparing, 1, 1e-5)


@pytest.mark.parametrize("name", list(MU))
@pytest.mark.parametrize("uploads", [1, 20])
def test_the_nu_of_an_epsilon_gives_that_epsilon(name: str, uploads: int) -> None:
    wanted = nu_for_epsilon(guaranteed(PARTITION, NU, CLIP)[name], NU, 10.0, 1e-5, uploads)
    assert wanted > NU
    found = price(guaranteed(PARTITION, wanted, CLIP)[name], uploads, 1e-5)
    assert found.epsilon == pytest.approx(10.0, rel=1e-6)


def test_concentrating_the_same_energy_costs_more_and_the_closed_form_least() -> None:
    even = uniform(PARTITION, NU, CLIP)
    assert promise_of(guaranteed(PARTITION, NU, CLIP)["frozen"]).mu > promise_of(even).mu
    optimal = static_optimal(PARTITION, NU, CLIP, group_clips(PARTITION))
    level = replace(optimal, sigmas=np.full(3, NU * CLIP / math.sqrt(48)))
    assert level.energy == pytest.approx(optimal.energy)
    assert promise_of(optimal).mu < promise_of(level).mu


def test_noise_as_small_as_the_full_networks_costs_millions_and_endless_numbers_are_infinite_instead_of_an_error() -> (
    None
):
    # mu = 2 sqrt(d) / nu, as at nu = 3 over the 13,274,031 weights of the full network.
    nu = 3.0 * math.sqrt(1000 / 13_274_031)
    defence = uniform(partition_of(1000, {}), nu, 1.0)
    found = price(defence, 21, 1e-5)
    assert 6e7 < found.epsilon < 7e7
    assert math.isfinite(found.zcdp)
    assert price_of_mu(2e6, 1, 1e-5).epsilon == math.inf
    tiny = replace(defence, sigmas=np.array([1e-20]))
    assert price(tiny, 1, 1e-5).epsilon == math.inf


@dataclass(frozen=True)
class _Foreign:
    """Any object with the two attributes that a refusal needs."""

    name: str = "foreign"


def test_a_defence_of_somebody_else_without_a_promise_is_refused_too() -> None:
    with pytest.raises(SfumatoError, match="foreign computes its noise levels"):
        promise_of(_Foreign())  # type: ignore[arg-type]


def test_numbers_out_of_range_are_refused() -> None:
    defence = uniform(PARTITION, NU, CLIP)
    with pytest.raises(SfumatoError, match="uploads is 0"):
        price(defence, 0, 1e-5)
    with pytest.raises(SfumatoError, match=r"delta is 2\.0"):
        price(defence, 1, 2.0)
    with pytest.raises(SfumatoError, match=r"nu is 0\.0"):
        nu_for_epsilon(defence, 0.0, 10.0, 1e-5, 1)
