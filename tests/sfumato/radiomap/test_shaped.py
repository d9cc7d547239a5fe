"""Noise along principal components: its covariance, its norm, its optimum, without a matrix of d x d."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import energies
from sfumato.radiomap.partition import partition_of
from sfumato.radiomap.shaped import Shape, ShapedDefence, principal_shape
from sfumato.rng import Streams
from tests.sfumato.radiomap.defended import three_groups


def _matrix(shape: Shape) -> np.ndarray:
    """S written out."""
    above = shape.directions @ np.diag(shape.shares) @ shape.directions.T
    return shape.floor * np.eye(shape.dimension) + shape.dimension * (1.0 - shape.floor) * above


@given(st.integers(2, 12), st.integers(1, 12), st.floats(0.01, 1.0), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_powers_norm_and_diagonal_are_those_of_the_matrix(
    dimension: int, components: int, floor: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    shape = principal_shape(random.normal(size=(15, dimension)), min(components, dimension), floor)
    matrix, vector = _matrix(shape), random.normal(size=dimension)
    values, vectors = np.linalg.eigh(matrix)
    for exponent in (-1.0, -0.5, 0.5, 1.0):
        expected = vectors @ (values**exponent * (vectors.T @ vector))
        assert np.allclose(shape.power(vector, exponent), expected, rtol=1e-7, atol=1e-9)
    assert shape.norm(vector) ** 2 == pytest.approx(vector @ np.linalg.solve(matrix, vector), rel=1e-7)
    assert np.allclose(shape.diagonal(), np.diag(matrix))
    assert shape.diagonal().sum() == pytest.approx(dimension)
    assert values.min() >= floor * (1 - 1e-9)


def test_the_directions_are_the_principal_components_and_the_shares_follow_their_variances() -> None:
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.normal(size=(8, 8)))[0]
    shadows = 5.0 + (random.normal(size=(4000, 8)) * np.array([4.0, 2.0] + [0.1] * 6)) @ basis.T
    shape = principal_shape(shadows, 2, 0.2)
    assert np.allclose(np.abs(np.sum(shape.directions * basis[:, :2], axis=0)), 1.0, atol=0.01)
    assert shape.shares[0] / shape.shares[1] == pytest.approx(4.0, rel=0.15)
    assert principal_shape(shadows, 2, 0.2, exponent=0.5).shares[0] == pytest.approx(2 / 3, rel=0.05)
    around_zero = principal_shape(shadows, 1, 0.2, centered=False).directions[:, 0]
    assert abs(around_zero.sum()) / np.sqrt(8) > 0.9


def test_uploads_of_few_directions_give_no_more_than_those() -> None:
    shadows = np.outer(np.arange(5.0), np.ones(6))
    assert principal_shape(shadows, 4, 0.5).shares.tolist() == [1.0]


def test_the_levels_of_the_groups_carry_the_whole_energy() -> None:
    partition = three_groups(60)
    shape = principal_shape(np.random.default_rng(0).normal(size=(9, 60)), 5, 0.3)
    defence = ShapedDefence(partition, 2.0, 1.5, shape, 1.0)
    assert energies(defence.sigmas, partition.sizes).sum() == pytest.approx(9.0, rel=1e-12)
    assert defence.sigmas.min() >= np.sqrt(0.3 * 9.0 / 60)


def test_a_hundred_thousand_weights_take_no_matrix_and_no_second() -> None:
    dimension = 100_000
    partition = partition_of(dimension, {"transmitter": np.arange(50)}, {"transmitter"})
    shape = principal_shape(np.random.default_rng(0).normal(size=(30, dimension)), 10, 0.5)
    defence = ShapedDefence(partition, 1.0, 1.0, shape, 1.0)
    update = np.ones(dimension)
    begun = time.process_time()
    sent = defence.protect(update, 0, Streams(0).stream("noise"))
    assert time.process_time() - begun < 1.0
    assert sent.clipped
    assert np.sum(sent.upload**2) == pytest.approx(1.0 + shape.norm(update) ** 0, rel=0.6)


def test_bad_shapes_and_numbers_are_refused() -> None:
    shadows, partition = np.random.default_rng(0).normal(size=(5, 6)), partition_of(6, {})
    shape = principal_shape(shadows, 2, 0.5)
    for call, message in (
        (lambda: principal_shape(shadows[:1], 2, 0.5), "n of at least 2"),
        (lambda: principal_shape(shadows, 0, 0.5), "components is 0"),
        (lambda: principal_shape(shadows, 2, 0.0), r"floor is 0\.0"),
        (lambda: principal_shape(shadows, 2, 0.5, exponent=-1.0), r"exponent is -1\.0"),
        (lambda: principal_shape(np.ones((5, 6)), 2, 0.5), "do not differ"),
        (lambda: principal_shape(np.full((5, 6), np.nan), 2, 0.5), "not finite"),
        (lambda: Shape(2.0 * shape.directions, shape.shares, 0.5), "not orthonormal"),
        (lambda: Shape(shape.directions, np.array([0.5, 0.6]), 0.5), "with sum 1"),
        (lambda: Shape(shape.directions, np.ones(1), 0.5), "have shapes"),
        (lambda: ShapedDefence(partition_of(7, {}), 1.0, 1.0, shape, 1.0), "the shape has 6 coordinates"),
        (lambda: ShapedDefence(partition, 0.0, 1.0, shape, 1.0), "without noise nothing is certified"),
        (lambda: ShapedDefence(partition, 1.0, 1.0, shape, 0.0), r"clip_norm is 0\.0"),
    ):
        with pytest.raises(SfumatoError, match=message):
            call()
