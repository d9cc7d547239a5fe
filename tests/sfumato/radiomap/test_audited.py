"""Audits of the defences themselves: below every honest claim, above one whose noise is too small. Seeds are fixed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.audited import audit_defence
from sfumato.radiomap.certified import CertifiedDefence
from sfumato.radiomap.clips import WholeClip
from sfumato.radiomap.defences import GuaranteedDefence, StaticDefence, clip_only
from sfumato.radiomap.pricing import nu_for_epsilon
from sfumato.rng import Streams
from tests.cases import quick_ones
from tests.sfumato.radiomap.defended import guaranteed, lively, three_groups

PARTITION = three_groups()
NAMES = list(guaranteed(PARTITION, 1.0))


def _at(name: str, epsilon: float, delta: float = 1e-3) -> GuaranteedDefence:
    """The defence with as much noise as that epsilon takes."""
    nu = nu_for_epsilon(guaranteed(PARTITION, 1.0)[name], 1.0, epsilon, delta, 1)
    return guaranteed(PARTITION, nu)[name]


@pytest.mark.parametrize("name", quick_ones(NAMES, ["uniform", "adaptive_certified", "shaped"]))
def test_an_audit_of_few_runs_stays_below_the_claim_and_shows_a_part_of_it(name: str) -> None:
    """At 99.9 % confidence each bound exceeds the claim with probability 1e-3 at most. The certified one is priced at
    its floor, and its first round has more noise than that."""
    found = audit_defence(
        _at(name, 6.0), runs=600, delta=1e-3, stream=Streams(0).stream("attack"), confidence=0.999
    )
    assert found.epsilon == pytest.approx(6.0)
    assert found.holds
    assert found.bound.epsilon_lower > (0.1 if name == "adaptive_certified" else 0.7)
    assert found.ceiling > found.bound.epsilon_lower


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_audit_of_many_runs_comes_close(name: str) -> None:
    """As above, at 8,000 runs: a third of the claim and more where the noise is what is priced."""
    found = audit_defence(
        _at(name, 3.0), runs=8000, delta=1e-3, stream=Streams(1).stream("attack"), confidence=0.999
    )
    assert found.holds
    assert found.bound.epsilon_lower > (0.3 if name == "adaptive_certified" else 1.0)


@pytest.mark.parametrize("name", quick_ones([name for name in NAMES if name != "shaped"], ["uniform"]))
def test_noise_of_half_the_size_is_caught(name: str) -> None:
    """At half of the noise the true epsilon is 5.1 for a claim of 2; the certified one is halved at its floor."""
    claimed = _at(name, 2.0, 1e-2)
    if isinstance(claimed, CertifiedDefence):
        at_floor = StaticDefence(
            "bug", PARTITION, WholeClip(claimed.clip_norm), np.full(3, claimed.promise.sigmas[0] / 2.0)
        )
        bug: GuaranteedDefence = at_floor
    else:
        assert isinstance(claimed, StaticDefence)
        bug = replace(claimed, sigmas=claimed.sigmas / 2.0)
    found = audit_defence(
        claimed, runs=2000, delta=1e-2, stream=Streams(2).stream("attack"), confidence=0.99, actual=bug
    )
    assert not found.holds
    assert found.bound.epsilon_lower > 2.1


def test_a_clip_that_is_left_out_is_caught() -> None:
    """The farthest pair of a clip ten times as wide as the claimed one."""
    claimed = _at("uniform", 1.0)
    assert isinstance(claimed, StaticDefence)
    found = audit_defence(
        claimed,
        runs=400,
        delta=1e-3,
        stream=Streams(3).stream("attack"),
        actual=replace(claimed, clip=WholeClip(15.0)),
    )
    assert not found.holds


@pytest.mark.parametrize("rounds", quick_ones([2, 4], [2]))
def test_adaptive_composition_over_rounds_stays_below_the_price_of_the_floor(rounds: int) -> None:
    """The levels of each round follow from the uploads before; at 99.9 % confidence it fails with probability 1e-3."""
    base = CertifiedDefence(PARTITION, 1.0, 1.5, lively(PARTITION, size=3.0), rounds=rounds, floor=0.5)
    defence = replace(base, nu=nu_for_epsilon(base, 1.0, 6.0, 1e-3, rounds))
    found = audit_defence(
        defence, runs=400, delta=1e-3, stream=Streams(4).stream("attack"), rounds=rounds, confidence=0.999
    )
    assert found.epsilon == pytest.approx(6.0)
    assert found.mu == pytest.approx(defence.promise.mu * math.sqrt(rounds))
    assert found.holds
    assert found.bound.epsilon_lower > 0.2


def test_a_claim_in_the_thousands_is_beyond_what_an_audit_can_show() -> None:
    found = audit_defence(
        guaranteed(PARTITION, 0.05)["uniform"], runs=200, delta=1e-5, stream=Streams(0).stream("attack")
    )
    assert found.epsilon > 5000
    assert found.bound.epsilon_lower == pytest.approx(found.ceiling, rel=0.05)
    assert found.ceiling < 10


def test_the_farthest_updates_are_kept_by_clipping_and_mu_apart() -> None:
    for name, defence in guaranteed(PARTITION, 0.8).items():
        update = defence.farthest()
        sent = [defence.protect(sign * update, 0, Streams(0).stream("noise")) for sign in (1.0, -1.0)]
        apart = sent[0].upload - sent[1].upload
        assert np.allclose(apart, 2.0 * update, rtol=1e-9, atol=1e-12)
        reached = math.sqrt(float(apart @ defence.precise(apart)))
        share = (
            0.5 if name == "adaptive_certified" else 1.0
        )  # its first round is uniform, four times the floor
        assert reached == pytest.approx(share * defence.promise.mu)


def test_nothing_without_a_promise_is_audited_and_no_rounds_are_refused() -> None:
    stream = Streams(0).stream("attack")
    with pytest.raises(SfumatoError, match="no epsilon holds"):
        audit_defence(clip_only(PARTITION, 1.0), runs=10, delta=1e-5, stream=stream)
    with pytest.raises(SfumatoError, match="rounds is 0"):
        audit_defence(_at("uniform", 1.0), runs=10, delta=1e-5, stream=stream, rounds=0)
