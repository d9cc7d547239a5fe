"""Local training: deterministic, masked, one stage at a time, and the textbook's steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.radiomap.client import (
    LocalTraining,
    checked_pairs,
    inner_cells,
    local_update,
    masked_error,
    shuffled,
)
from sfumato.radiomap.federated import all_pairs
from sfumato.radiomap.unet import build, flat, load_flat
from sfumato.rng import Streams
from tests.sfumato.radiomap.learning import TINY, some_maps

MAPS = some_maps(count=3, size=8, blocks=1)
PAIRS = all_pairs(MAPS)


def _update(training: LocalTraining, maps: object = MAPS, seed: int = 0) -> np.ndarray:
    model = build(TINY, Streams(0).stream("init"))
    return local_update(flat(model), model, maps, PAIRS, training, Streams(seed).stream("order"))  # type: ignore[arg-type]


def _stages() -> tuple[np.ndarray, np.ndarray]:
    model = build(TINY, Streams(0).stream("init"))
    first = sum(parameter.numel() for parameter in model.first.parameters())
    places = np.arange(len(flat(model)))
    return places < first, places >= first


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_update_is_a_function_of_weights_maps_and_stream(optimizer: str) -> None:
    training = LocalTraining(optimizer=optimizer, batch_size=2, epochs=2)  # type: ignore[arg-type]
    one, again, other = _update(training), _update(training), _update(training, seed=1)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_what_the_model_held_before_does_not_matter() -> None:
    model = build(TINY, Streams(0).stream("init"))
    weights = flat(model)
    clean = local_update(weights, model, MAPS, PAIRS, LocalTraining(), Streams(0).stream("order"))
    load_flat(model, np.full_like(weights, 7.0))
    after = local_update(weights, model, MAPS, PAIRS, LocalTraining(), Streams(0).stream("order"))
    assert np.array_equal(clean, after)


def test_one_step_of_sgd_is_minus_the_rate_times_the_gradient() -> None:
    model = build(TINY, Streams(0).stream("init"))
    inputs, targets = torch.from_numpy(MAPS.inputs(PAIRS)), torch.from_numpy(MAPS.targets(PAIRS))
    masks = torch.from_numpy(MAPS.masks(PAIRS))
    first, second = model(inputs)
    (((first - targets) ** 2)[masks].mean() + ((second - targets) ** 2)[masks].mean()).backward()
    gradient = np.concatenate([p.grad.reshape(-1).numpy() for p in model.parameters() if p.grad is not None])
    found = _update(LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=len(PAIRS)))
    assert np.allclose(found, -0.1 * gradient, rtol=1e-4, atol=1e-7)


def test_a_joint_step_is_both_phases_in_one() -> None:
    in_first, in_second = _stages()
    for optimizer in ("sgd", "adam"):
        joint, first, second = (
            _update(LocalTraining(optimizer=optimizer, batch_size=len(PAIRS), phase=phase))  # type: ignore[arg-type]
            for phase in ("joint", "first", "second")
        )
        assert not first[in_second].any()
        assert not second[in_first].any()
        assert np.array_equal(joint, first + second)


def test_what_stands_on_buildings_does_not_matter() -> None:
    predicted = torch.rand(2, 1, 4, 4)
    masks = torch.rand(2, 1, 4, 4) < 0.6
    targets = torch.rand(2, 1, 4, 4)
    painted = torch.where(masks, targets, torch.full_like(targets, 9.0))
    found = masked_error(predicted, targets, masks)
    assert found.item() == masked_error(predicted, painted, masks).item()
    assert found.item() == pytest.approx(((predicted - targets) ** 2)[masks].mean().item(), rel=1e-6)


def test_the_loss_ignores_the_margin() -> None:
    inner = inner_cells(MAPS.size, 2)
    changed = replace(
        MAPS, radio=np.where(inner | (MAPS.heights > 0)[:, None], MAPS.radio, 0.123).astype(np.float32)
    )
    with_margin, without = LocalTraining(margin=2), LocalTraining()
    assert np.array_equal(_update(with_margin), _update(with_margin, changed))
    assert not np.array_equal(_update(without), _update(without, changed))


def test_a_batch_without_any_cell_teaches_nothing() -> None:
    predicted = torch.randn(2, 1, 4, 4, requires_grad=True)
    loss = masked_error(predicted, torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 4, 4, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0.0
    assert predicted.grad is not None
    assert not predicted.grad.any()


def test_a_rate_that_is_far_too_large_gives_an_update_that_is_not_finite() -> None:
    assert not np.isfinite(
        _update(LocalTraining(optimizer="sgd", learning_rate=1e30, epochs=4, batch_size=1))
    ).all()


@given(count=st.integers(1, 20), batch_size=st.integers(1, 7), seed=st.integers(0, 99))
def test_an_epoch_has_every_pair_once_in_batches_that_are_full_but_the_last(
    count: int, batch_size: int, seed: int
) -> None:
    pairs = np.arange(2 * count, dtype=np.int64).reshape(count, 2)
    batches = list(shuffled(pairs, batch_size, Streams(seed).stream("order")))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    together = np.concatenate(batches)
    assert np.array_equal(together[np.argsort(together[:, 0])], pairs)


@settings(max_examples=30)
@given(size=st.integers(1, 40), margin=st.integers(0, 40))
def test_the_inner_cells_are_a_square_or_refused(size: int, margin: int) -> None:
    if 2 * margin >= size:
        with pytest.raises(SfumatoError, match="margin"):
            inner_cells(size, margin)
    else:
        assert inner_cells(size, margin).sum() == (size - 2 * margin) ** 2


@pytest.mark.parametrize(
    "pairs",
    [
        np.zeros((0, 2), int),
        np.zeros(2, int),
        np.zeros((1, 3), int),
        np.zeros((1, 2)),
        np.array([[3, 0]]),
        np.array([[0, 2]]),
        np.array([[-1, 0]]),
    ],
)
def test_pairs_that_are_not_there_are_refused(pairs: np.ndarray) -> None:
    with pytest.raises(SfumatoError, match="allowed"):
        checked_pairs(MAPS, pairs)


@pytest.mark.parametrize(
    "fields",
    [
        {"optimizer": "lion"},
        {"phase": "third"},
        {"learning_rate": 0.0},
        {"learning_rate": float("inf")},
        {"epochs": 0},
        {"batch_size": 1.5},
        {"margin": -1},
        {"momentum": 1.0, "optimizer": "sgd"},
        {"momentum": 0.5},
    ],
)
def test_a_training_that_does_not_exist_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(SfumatoError, match="allowed"):
        LocalTraining(**fields)  # type: ignore[arg-type]
