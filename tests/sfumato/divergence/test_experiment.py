"""Every method of the comparison: what it spends, what it aims at, and that it uses fresh points and noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato import accounting
from sfumato.divergence.evaluation import target_divergence
from sfumato.divergence.experiment import RELEASED, estimate, planned_events, studied
from sfumato.divergence.methods import METHODS, get_method
from sfumato.divergence.plan import EstimatorPlan
from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from tests.sfumato.divergence.examples import SETTING, pair

PRIVATE = [name for name, method in METHODS.items() if method.private]
GAUSSIAN = [name for name in PRIVATE if name != "distributed"]


@pytest.mark.parametrize("name", GAUSSIAN)
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_recorded_events_cost_what_was_asked_for(name: str, epsilon: float) -> None:
    found = estimate(name, pair(), SETTING, epsilon, Streams(0))
    mu = accounting.spent(found.events).mu(2.0)
    assert accounting.gaussian_epsilon(mu, SETTING.delta) == pytest.approx(epsilon, rel=1e-6)


def test_the_shared_noise_costs_what_was_asked_for() -> None:
    found = estimate("distributed", pair(), SETTING, 1.0, Streams(0))
    rho = accounting.spent(found.events).zcdp_rho
    assert 0.99 < accounting.zcdp_epsilon(rho, SETTING.delta) <= 1.0


@pytest.mark.parametrize("name", ["trusted_aggregator", "all_cells", "per_batch"])
def test_an_interval_changes_neither_the_estimate_nor_its_cost(name: str) -> None:
    plain = estimate(name, pair(), SETTING, 1.0, Streams(3))
    full = estimate(name, pair(), SETTING, 1.0, Streams(3), interval=True)
    assert full.interval is not None
    assert full.raw == pytest.approx(plain.raw, rel=1e-9)
    assert full.noise_std == pytest.approx(plain.noise_std, rel=1e-9)
    assert full.events == plain.events


def test_the_pooled_estimate_is_unbiased_for_its_target() -> None:
    """4,000 seeds; a fresh set fails once in 1,700,000 (5 standard errors)."""
    own = pair()
    raws = np.array(
        [estimate("trusted_aggregator", own, SETTING, 1.0, Streams(seed)).raw for seed in range(4000)]
    )
    target = target_divergence(own.reference, own.probabilities, EstimatorPlan(SETTING.floor, 0.0))
    assert abs(raws.mean() - target) < 5 * raws.std() / np.sqrt(len(raws))


def test_without_noise_and_with_every_cell_the_target_itself_is_found() -> None:
    own = pair()
    found = estimate("all_cells", own, SETTING, 1e5, Streams(0))
    assert found.raw == pytest.approx(found.target, abs=1e-3)


def test_methods_of_a_seed_share_their_points() -> None:
    own, free = pair(), replace(SETTING, points=3)
    bare = [estimate("non_private", own, free, None, Streams(seed)).raw for seed in range(20)]
    huge = [estimate("trusted_aggregator", own, free, 1e5, Streams(seed)).raw for seed in range(20)]
    assert np.allclose(bare, huge, atol=5e-3)
    assert len(set(bare)) > 5


@pytest.mark.parametrize("name", RELEASED)
def test_a_release_spends_what_was_planned_for_it(name: str) -> None:
    own = pair()
    found = estimate(name, own, SETTING, 1.0, Streams(None, "release"), interval=True)
    planned = planned_events(get_method(name), own, SETTING, 1.0)
    priced = [
        accounting.spent(events).zcdp_rho + accounting.spent(events).mu(2.0) ** 2 / 2
        for events in (found.events, planned)
    ]
    assert priced[0] == pytest.approx(priced[1], rel=1e-9)


def test_baselines_have_no_release_mode() -> None:
    with pytest.raises(SfumatoError, match="method is 'histogram' in release mode; allowed are trusted"):
        planned_events(get_method("histogram"), pair(), SETTING, 1.0)


def test_a_chosen_coefficient_is_a_function_of_public_numbers() -> None:
    chosen = replace(SETTING, coefficient=None)
    first, second = pair(), pair((100, 200, 300, 400))
    plans = [
        estimate("trusted_aggregator", own, chosen, 1.0, Streams(0)).noise_std for own in (first, second)
    ]
    assert plans[0] == plans[1]


def test_a_study_changes_one_number() -> None:
    assert studied(SETTING, "floor", 0.3).floor.level == 0.3
    assert studied(SETTING, "points", 7.0) == replace(SETTING, points=7)
    assert studied(SETTING, "coefficient", 2) == replace(SETTING, coefficient=2.0)


def test_an_unknown_method_is_one_sentence() -> None:
    with pytest.raises(SfumatoError, match="method is 'magic'; allowed are non_private"):
        estimate("magic", pair(), SETTING, 1.0, Streams(0))


def test_an_interval_is_for_the_target_but_over_batches_for_the_mean_of_their_own() -> None:
    own, streams = pair((10, 20, 30, 40), clients=20), Streams(3)
    few = replace(SETTING, batches=5)
    plan = EstimatorPlan(SETTING.floor, 0.0)
    pooled = estimate("trusted_aggregator", own, few, 1.0, streams, interval=True)
    assert pooled.interval_target == pooled.target
    assert estimate("trusted_aggregator", own, few, 1.0, streams).interval_target is None
    order, groups = streams.stream("batches", own.name).permutation(20), np.empty(20, np.int64)
    groups[order] = np.arange(20) % 5
    each = [
        target_divergence(own.reference, counts / counts.sum(), plan)
        for counts in own.group_counts(groups, 5)
    ]
    batched = estimate("per_batch", own, few, 1.0, streams, interval=True)
    assert batched.interval_target == pytest.approx(np.mean(each), rel=1e-12)
    assert batched.interval_target is not None
    assert batched.interval_target > batched.target + 0.01
