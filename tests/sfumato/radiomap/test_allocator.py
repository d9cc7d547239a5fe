"""The allocator starts at uniform noise, lowers its objective, misleads its proxy and does not collapse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.allocator import (
    Allocator,
    AllocatorSettings,
    Trained,
    learn_shares,
    train_allocator,
    untrained,
)
from sfumato.radiomap.summary import describe_each
from sfumato.rng import Streams
from tests.sfumato.radiomap.shadows import World, world

WORLD = world(48)
INPUTS = describe_each(WORLD.partition, WORLD.uploads, WORLD.clip_norm, np.linspace(0, 1, 48))
SETTINGS = AllocatorSettings(steps=25, learning_rate=0.08)


def _budget(nu: float, of: World = WORLD) -> float:
    return (nu * of.clip_norm) ** 2


def _train(settings: AllocatorSettings = SETTINGS, nu: float = 1.0) -> Trained:
    return train_allocator(
        INPUTS, WORLD.proxy, WORLD.costs, _budget(nu), settings, Streams(0).stream("init", 0)
    )


@pytest.fixture(scope="module")
def trained() -> Trained:
    return _train()


def test_an_untrained_network_answers_the_shares_of_uniform_noise_at_any_input() -> None:
    network = untrained(14, WORLD.partition.sizes, 5, np.random.default_rng(0).normal(size=(5, 14)))
    inputs = np.random.default_rng(1).normal(scale=100.0, size=(7, 14))
    assert np.allclose(network.shares(inputs), WORLD.even, rtol=1e-12)


def test_training_starts_at_uniform_noise_lowers_its_objective_and_misleads_the_proxy(
    trained: Trained,
) -> None:
    uniform = WORLD.proxy.rmse(WORLD.variances(1.0, WORLD.even))
    assert trained.proxy_rmse[0] == pytest.approx(uniform)
    assert trained.objective[-1] < trained.objective[0] - 0.1
    assert trained.proxy_rmse[-1] > 1.1 * uniform


def test_it_does_not_collapse_on_one_group_and_spares_the_costly_one(trained: Trained) -> None:
    shares = trained.allocator.shares(INPUTS)
    assert shares.max() < 0.95
    assert shares.mean(0)[WORLD.partition.names.index("task")] < WORLD.even[2]
    assert shares.mean(0)[:2].sum() > WORLD.even[:2].sum()


def test_without_the_divergence_from_the_start_it_does_collapse() -> None:
    """So the weight on it is what holds the shares together, not the short training."""
    greedy = _train(replace(SETTINGS, entropy_weight=0.0, steps=40, learning_rate=0.2))
    assert greedy.allocator.shares(INPUTS).max() > 0.95


def test_its_shares_depend_on_the_input_and_add_up_to_one(trained: Trained) -> None:
    shares = trained.allocator.shares(INPUTS)
    assert np.allclose(shares.sum(1), 1.0, rtol=1e-12)
    assert np.ptp(shares, axis=0).max() > 1e-3


def test_the_same_stream_gives_the_same_network_and_its_arrays_bring_it_back() -> None:
    few = replace(SETTINGS, steps=3)
    first, second = _train(few).allocator, _train(few).allocator
    assert all(np.array_equal(first.arrays()[name], second.arrays()[name]) for name in first.arrays())
    again = Allocator.from_arrays(first.arrays())
    assert np.array_equal(again.shares(INPUTS), first.shares(INPUTS))


def test_shares_learned_without_any_input_mislead_the_proxy_as_well() -> None:
    shares = learn_shares(WORLD.proxy, WORLD.costs, _budget(1.0), SETTINGS)
    assert shares.sum() == pytest.approx(1.0)
    assert shares.max() < 0.95
    found = [WORLD.proxy.rmse(WORLD.variances(1.0, which)) for which in (WORLD.even, shares)]
    assert found[1] > 1.1 * found[0]


def test_a_heavy_task_weight_moves_noise_away_from_the_costly_group() -> None:
    light, heavy = (
        learn_shares(WORLD.proxy, WORLD.costs, _budget(1.0), replace(SETTINGS, task_weight=weight))
        for weight in (0.0, 3.0)
    )
    assert heavy[2] < light[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 0}, "hidden is 0"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"entropy_weight": -1.0}, "entropy_weight is -1.0"),
        ({"task_weight": np.nan}, "task_weight is nan"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(SfumatoError, match=message):
        replace(SETTINGS, **change)  # type: ignore[arg-type]


def test_wrong_shapes_missing_arrays_and_a_budget_of_zero_are_refused() -> None:
    stream, proxy = Streams(0).stream("init"), WORLD.proxy
    with pytest.raises(SfumatoError, match=r"inputs has shape \(47, 18\)"):
        train_allocator(INPUTS[1:], proxy, WORLD.costs, 1.0, SETTINGS, stream)
    with pytest.raises(SfumatoError, match="costs is"):
        train_allocator(INPUTS, proxy, WORLD.costs[1:], 1.0, SETTINGS, stream)
    with pytest.raises(SfumatoError, match="budget is 0"):
        train_allocator(INPUTS, proxy, WORLD.costs, 0.0, SETTINGS, stream)
    network = untrained(14, WORLD.partition.sizes, 5, np.ones((5, 14)))
    with pytest.raises(SfumatoError, match=r"allowed is \(..., 14\)"):
        network.shares(np.zeros(13))
    with pytest.raises(SfumatoError, match="output_bias is missing"):
        Allocator.from_arrays(
            {name: array for name, array in network.arrays().items() if name != "output_bias"}
        )
    with pytest.raises(SfumatoError, match="center is not finite"):
        Allocator.from_arrays(network.arrays() | {"center": np.full(14, np.inf)})
