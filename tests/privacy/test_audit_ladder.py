"""The sanity ladder of the audit: what it must catch, what it must not, and what it cannot.

A simulator of a noisy-sum mechanism with planted faults, in plain arrays. The audit claims to refute the
epsilon of the *intended* mechanism at 95 % confidence: a correct mechanism is refuted in at most 5 % of runs,
and each planted fault must be. A divisor or a rate taken from the realised batch is no matter of noise and
shows in the replay of neighbouring data sets, as does noise that is used again under full participation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

from sfumato.attacks import (
    AuditResult,
    CanaryScores,
    audit_one_run,
    block_directions,
    canary_contribution,
    choose_included,
)
from sfumato.rng import Streams

CANARIES, SUPPORT, OUTSIDE, STEPS = 1000, 3000, 1000, 40
RATE, NOISE_MULTIPLIER, CLIP_NORM, BATCH, DELTA = 0.25, 4.0, 0.5, 64.0, 1e-5
RULES = ("sum", "likelihood_ratio", "difference")


def clip(norm: float) -> float:
    """The norm of a gradient after clipping."""
    return min(norm, CLIP_NORM)


@dataclass(frozen=True)
class Mechanism:
    """One noisy-sum mechanism, correct unless a field is changed."""

    clip: Callable[[float], float] = clip
    gradient_norm: float = 50.0 * CLIP_NORM
    noise_std: float = NOISE_MULTIPLIER * CLIP_NORM
    fresh_noise: bool = True
    noise_on_support: bool = True


def audit(mechanism: Mechanism, seed: int, rule: str = "sum") -> AuditResult:
    """Run the mechanism with canaries in it and audit what it released."""
    streams = Streams(seed)
    directions = block_directions(CANARIES, SUPPORT, streams.stream("attack", "directions"))
    included = choose_included(CANARIES, streams.stream("attack", "included"))
    scores = CanaryScores(
        directions,
        rule=rule,
        clip_norm=CLIP_NORM,
        expected_batch_size=BATCH,
        sampling_rate=RATE,
        noise_multiplier=NOISE_MULTIPLIER,
    )
    for step in range(STEPS):
        selected = included & (streams.stream("sampling", step).random(CANARIES) < RATE)
        total = np.zeros(SUPPORT + OUTSIDE)
        total[:SUPPORT] = canary_contribution(directions, selected, mechanism.clip(mechanism.gradient_norm))
        noise = streams.stream("noise", step if mechanism.fresh_noise else 0).standard_normal(
            SUPPORT + OUTSIDE
        )
        if not mechanism.noise_on_support:
            noise[:SUPPORT] = 0.0
        scores.observe(((total + mechanism.noise_std * noise) / BATCH)[:SUPPORT])
    return audit_one_run(scores.values, included, delta=DELTA, guess_fractions=0.4)


@cache
def claimed_epsilon() -> float:
    """The epsilon of the intended mechanism, priced by its privacy-loss distribution."""
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    step = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(NOISE_MULTIPLIER))
    accountant.compose(step, STEPS)
    return accountant.get_epsilon(DELTA)


def test_the_audit_could_refute_the_claim():
    assert audit(Mechanism(), 0).ceiling > 2 * claimed_epsilon()


@pytest.mark.parametrize("rule", RULES)
def test_correct_mechanism_is_not_refuted(rule):
    # Each of 20 runs is a false alarm with probability at most 5 %; more than 4 have at most 0.3 %.
    bounds = [audit(Mechanism(), seed, rule).epsilon_lower for seed in range(20)]
    assert sum(bound > claimed_epsilon() for bound in bounds) <= 4


def test_correct_mechanism_leaks_some_and_the_audit_sees_it():
    assert np.mean([audit(Mechanism(), seed, "likelihood_ratio").epsilon_lower for seed in range(10)]) > 0.2


FAULTS = {
    "no noise": replace(Mechanism(), noise_std=0.0),
    "no clip": replace(Mechanism(), clip=lambda norm: norm),
    "noise of std sigma C / B on the sum": replace(
        Mechanism(), noise_std=NOISE_MULTIPLIER * CLIP_NORM / BATCH
    ),
    "noise outside the support only": replace(Mechanism(), noise_on_support=False),
    "noise without the clip norm's multiple": replace(Mechanism(), noise_std=CLIP_NORM),
}


@pytest.mark.parametrize("rule", ["sum", "likelihood_ratio"])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_refuted(fault, rule):
    for seed in range(3):
        assert audit(FAULTS[fault], seed, rule).epsilon_lower > claimed_epsilon()


def test_noise_used_again_is_refuted_by_differences_between_steps_only():
    again = replace(Mechanism(), fresh_noise=False)
    for seed in range(3):
        assert audit(again, seed, "difference").epsilon_lower > claimed_epsilon()
        assert audit(again, seed, "sum").epsilon_lower < claimed_epsilon()


def test_a_gradient_below_the_clip_norm_is_a_weaker_canary():
    weak = replace(Mechanism(), gradient_norm=0.1 * CLIP_NORM)
    strong = np.mean([audit(Mechanism(), seed).epsilon_lower for seed in range(10)])
    assert np.mean([audit(weak, seed).epsilon_lower for seed in range(10)]) < strong
