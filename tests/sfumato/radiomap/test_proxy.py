"""The proxy's closed form is the error that sampling gives, and it holds out whole maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sfumato.errors import SfumatoError
from sfumato.radiomap.partition import partition_of
from sfumato.radiomap.proxy import proxy_attacker
from tests.sfumato.radiomap.shadows import world

WORLD = world()


def test_the_expected_error_is_the_mean_over_sampled_noise_on_shadow_and_on_held_out_uploads() -> None:
    """The attacker that the formula describes, run on 400 draws of all noise at one ridge. The mean's own deviation
    over draws is below 0.5 % of it, so 2 % is more than four: the false-alarm rate is below 1e-4."""
    proxy = proxy_attacker(WORLD.uploads, WORLD.positions, WORLD.maps, WORLD.partition, ridges=(0.05,))
    random = np.random.default_rng(5)
    variances = random.uniform(0.2, 2.0, (60, 4)) * WORLD.variances(1.0, WORLD.even)
    values = WORLD.uploads - WORLD.uploads.mean(0)
    spread = np.stack([WORLD.partition.spread(row) for row in variances])
    squares: list[float] = []
    for fold in proxy.folds:
        train, test = fold.train.numpy(), fold.test.numpy()
        signal = np.array([np.mean(values[train][:, g.index] ** 2) for g in WORLD.partition.groups])
        weights = WORLD.partition.spread(1.0 / (signal + variances[train].mean(0)))
        kernel = (values[train] * weights) @ values[train].T
        kernel += np.diag(spread[train] @ weights)
        kernel += (0.05 * np.trace(kernel) / len(train) + 1e-12) * np.eye(len(train))
        center = WORLD.positions[train].mean(0)
        alpha = np.linalg.solve(kernel, WORLD.positions[train] - center)
        for _draw in range(400):
            noisy = values + np.sqrt(spread) * random.normal(size=values.shape)
            guess = center + noisy[test] @ (weights[:, None] * (noisy[train].T @ alpha))
            squares.append(float(np.mean(np.sum((WORLD.positions[test] - guess) ** 2, axis=1))))
    found = float(proxy.error(torch.as_tensor(variances)))
    assert found == pytest.approx(np.mean(squares), rel=0.02)


def test_noise_where_the_position_leaks_misleads_more_than_the_same_energy_elsewhere() -> None:
    proxy = WORLD.proxy
    on_leak = proxy.rmse(WORLD.variances(1.0, np.array([0.5, 0.5, 0.0, 0.0])))
    elsewhere = proxy.rmse(WORLD.variances(1.0, np.array([0.0, 0.0, 0.5, 0.5])))
    assert elsewhere < proxy.rmse(WORLD.variances(1.0, WORLD.even)) < on_leak


def test_endless_noise_leaves_the_constant_predictor() -> None:
    proxy = WORLD.proxy
    assert proxy.rmse(np.full(4, 1e6)) == pytest.approx(proxy.constant_rmse, rel=0.01)
    assert proxy.rmse(np.zeros(4)) < 0.6 * proxy.constant_rmse


def test_the_gradient_is_that_of_finite_differences() -> None:
    proxy = WORLD.proxy
    at = torch.as_tensor(np.tile(WORLD.variances(1.0, WORLD.even), (60, 1)), dtype=torch.float64)
    at.requires_grad_(True)
    proxy.error(at).backward()
    for row, group in ((0, 0), (7, 1), (33, 3)):
        step = torch.zeros_like(at)
        step[row, group] = 1e-4 * at[row, group].detach()
        with torch.no_grad():
            slope = (proxy.error(at + step) - proxy.error(at - step)) / (2.0 * step[row, group])
        assert float(at.grad[row, group]) == pytest.approx(float(slope), rel=1e-3)  # type: ignore[index]


def test_no_map_is_on_both_sides_of_a_fold_and_every_upload_is_held_out_once() -> None:
    proxy = WORLD.proxy
    held_out = np.sort(np.concatenate([fold.test.numpy() for fold in proxy.folds]))
    assert held_out.tolist() == list(range(60))
    for fold in proxy.folds:
        assert not set(WORLD.maps[fold.train.numpy()]) & set(WORLD.maps[fold.test.numpy()])


def test_too_few_maps_wrong_shapes_and_infinities_are_refused() -> None:
    partition = partition_of(3, {})
    uploads, positions, maps = np.ones((4, 3)), np.ones((4, 2)), np.arange(4)
    with pytest.raises(SfumatoError, match="folds is 5 with 4 maps"):
        proxy_attacker(uploads, positions, maps, partition, folds=5)
    with pytest.raises(SfumatoError, match="have shapes"):
        proxy_attacker(uploads[:, :2], positions, maps, partition)
    with pytest.raises(SfumatoError, match="ridges is"):
        proxy_attacker(uploads, positions, maps, partition, ridges=(0.0,))
    with pytest.raises(SfumatoError, match="not finite"):
        proxy_attacker(uploads, np.full((4, 2), np.nan), maps, partition)
