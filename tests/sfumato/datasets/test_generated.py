"""Generated data: known coefficients, known bounds, the same clients every time.

The statistical tests fix their seeds; each states how often it would fail for another seed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato import datasets
from sfumato.datasets import REGRESSION_SPECS, SPLITS, RegressionData
from sfumato.datasets.generated import (
    BLOCK,
    COEFFICIENT_NORM,
    INTERCEPT,
    NOISE_CLIP,
    NOISE_STD,
    generate,
    generate_arrays,
    generate_blocks,
    true_coefficients,
)
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


@pytest.fixture(scope="module")
def prepared() -> RegressionData:
    data = datasets.prepare("generated", "unused")
    assert isinstance(data, RegressionData)
    return data


# ----------------------------------------------------------------------------------------------- coefficients
@pytest.mark.parametrize("features", [1, 2, 8, 50])
def test_true_coefficients_are_public_constants_of_a_known_norm(features: int) -> None:
    coefficients = true_coefficients(features)
    assert coefficients.shape == (features + 1,)
    assert coefficients[0] == INTERCEPT
    assert np.linalg.norm(coefficients[1:]) == pytest.approx(COEFFICIENT_NORM)
    ratios = coefficients[1:] / coefficients[1]
    np.testing.assert_allclose(ratios, [(-1.0) ** place / (place + 1) for place in range(features)])
    largest_label = INTERCEPT + COEFFICIENT_NORM + NOISE_CLIP * NOISE_STD
    assert largest_label == pytest.approx(1.0)


# ------------------------------------------------------------------------------------------------------ bounds
@settings(max_examples=40)
@given(
    clients=st.integers(1, 300),
    features=st.integers(1, 12),
    noise=st.floats(0.0, NOISE_STD),
    seed=st.integers(0, 99),
)
def test_samples_are_in_the_ball_and_labels_in_the_interval(
    clients: int, features: int, noise: float, seed: int
) -> None:
    samples = generate(clients, features, Streams(seed).stream("clients"), noise)
    assert samples.x.shape == (clients, features)
    assert samples.y.shape == (clients,)
    assert np.linalg.norm(samples.x, axis=1).max() <= 1.0 + 1e-12
    assert np.abs(samples.x).max() <= 1.0
    assert np.abs(samples.y).max() <= 1.0


def test_noise_is_clipped_before_it_is_added_so_no_label_has_to_be() -> None:
    samples = generate(100_000, 2, Streams(3).stream("clients"))
    coefficients = true_coefficients(2)
    noise = samples.y - coefficients[0] - samples.x @ coefficients[1:]
    assert np.abs(noise).max() <= NOISE_CLIP * NOISE_STD + 1e-12
    beyond = np.mean(np.abs(noise) > NOISE_CLIP * NOISE_STD - 1e-12)
    # P(|N| > 3) = .0027; a share outside of .0019 and .0035 has a chance of 1e-6
    assert 0.0019 < beyond < 0.0035


def test_without_noise_labels_are_the_linear_function() -> None:
    samples = generate(500, 5, Streams(4).stream("clients"), 0.0)
    coefficients = true_coefficients(5)
    np.testing.assert_allclose(samples.y, coefficients[0] + samples.x @ coefficients[1:], atol=1e-14)


# --------------------------------------------------------------------------------------------------------- law
@pytest.mark.parametrize("features", [1, 3, 8])
def test_features_are_uniform_in_the_unit_ball(features: int) -> None:
    """Norms have the distribution r^n and directions no preference.

    The Kolmogorov-Smirnov bound 2.5 / sqrt(K) fails for one seed in 130,000, in each of the three cases; the second moments are tested at 5.5
    standard deviations, at most 72 of them, so for one seed in 300,000.
    """
    clients = 40_000
    x = generate(clients, features, Streams(5).stream("clients")).x
    levels = np.sort(np.linalg.norm(x, axis=1)) ** features
    gap = np.abs(levels - np.arange(1, clients + 1) / clients).max()
    assert gap < 2.5 / math.sqrt(clients)
    moment = x.T @ x / clients
    # E x_j^4 = 3 / ((n + 2)(n + 4)) bounds the variance of every entry's terms
    spread = math.sqrt(3.0 / ((features + 2) * (features + 4)) / clients)
    assert np.abs(moment - np.eye(features) / (features + 2)).max() < 5.5 * spread
    assert np.abs(x.mean(axis=0)).max() < 5.5 / math.sqrt((features + 2) * clients)


@pytest.mark.parametrize(("features", "noise"), [(8, NOISE_STD), (3, 0.05)])
def test_least_squares_finds_the_true_coefficients(features: int, noise: float) -> None:
    """Each estimate within 5 of its standard errors: fails for one seed in 190,000 (at most 9 coefficients)."""
    clients = 50_000
    samples = generate(clients, features, Streams(6).stream("clients"), noise)
    design = np.column_stack([np.ones(clients), samples.x])
    estimate = np.linalg.lstsq(design, samples.y, rcond=None)[0]
    errors = noise * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    assert (np.abs(estimate - true_coefficients(features)) < 5.0 * errors).all()
    assert np.abs(estimate - true_coefficients(features)).max() < 0.01


# ---------------------------------------------------------------------------------------------- reproducibility
def test_the_same_stream_gives_the_same_clients_and_another_gives_others() -> None:
    one = generate(100, 4, Streams(7).stream("clients"))
    again = generate(100, 4, Streams(7).stream("clients"))
    other = generate(100, 4, Streams(8).stream("clients"))
    np.testing.assert_array_equal(one.x, again.x)
    np.testing.assert_array_equal(one.y, again.y)
    assert not (one.x == other.x).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_blocks_are_the_parts_of_the_array(dtype: str) -> None:
    clients = BLOCK + 1_000
    x, y = generate_arrays(clients, 3, Streams(9), dtype=dtype)  # type: ignore[arg-type]
    blocks = list(generate_blocks(clients, 3, Streams(9), dtype=dtype))  # type: ignore[arg-type]
    assert [len(block[1]) for block in blocks] == [BLOCK, 1_000]
    np.testing.assert_array_equal(np.concatenate([block[0] for block in blocks]), x)
    np.testing.assert_array_equal(np.concatenate([block[1] for block in blocks]), y)
    assert (x.dtype, y.dtype) == (np.dtype(dtype), np.dtype(dtype))
    assert np.linalg.norm(x, axis=1).max() <= 1.0 + 1e-6
    assert np.abs(y).max() <= 1.0
    assert not (x[:1_000] == x[BLOCK:]).any()


def test_single_precision_clients_have_the_same_law() -> None:
    """Each estimate within 5 of its standard errors: fails for one seed in 190,000 (9 coefficients)."""
    x, y = generate_arrays(100_000, 8, Streams(10))
    design = np.column_stack([np.ones(len(y)), x.astype(np.float64)])
    estimate = np.linalg.lstsq(design, y.astype(np.float64), rcond=None)[0]
    errors = NOISE_STD * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    assert (np.abs(estimate - true_coefficients(8)) < 5.0 * errors).all()


@pytest.mark.slow
def test_a_million_clients_with_fifty_features_fit_into_memory() -> None:
    """At 5 standard errors of 51 coefficients: fails for one seed in 34,000."""
    x, y = generate_arrays(1_000_000, 50, Streams(11))
    assert (x.shape, x.dtype) == ((1_000_000, 50), np.float32)
    moment = (x.T @ x).astype(np.float64) / len(y)
    assert np.abs(np.diag(moment) * 52.0 - 1.0).max() < 0.02
    centred = np.linalg.solve(moment, x.T @ (y - np.float32(INTERCEPT)) / len(y))
    assert (
        np.abs(centred - true_coefficients(50)[1:]).max() < 5.0 * NOISE_STD * math.sqrt(52.0 / len(y)) + 1e-3
    )


# ------------------------------------------------------------------------------------------------- the data set
def test_prepared_set_is_the_declared_one_and_the_same_every_time(prepared: RegressionData) -> None:
    assert {split: len(prepared.split(split)) for split in SPLITS} == REGRESSION_SPECS["generated"].sizes()
    again = datasets.prepare("generated", "elsewhere")
    for split in SPLITS:
        np.testing.assert_array_equal(again.split(split).x, prepared.split(split).x)
        np.testing.assert_array_equal(again.split(split).y, prepared.split(split).y)
    assert prepared.label_scale == 1.0


def test_prepared_set_is_pinned(prepared: RegressionData) -> None:
    """The first rows as they were first published; results elsewhere are for these clients."""
    np.testing.assert_allclose(prepared.train.x[0, :3], [-0.03462321, 0.63682986, 0.37184607], atol=1e-8)
    np.testing.assert_allclose(prepared.train.y[:3], [-0.261427, 0.03584963, 0.04741902], atol=1e-6)
    assert prepared.test.y[-1] == pytest.approx(0.0143115963, abs=1e-9)


def test_prepared_set_has_the_variance_share_of_its_population(prepared: RegressionData) -> None:
    """R squared is .036 / (.036 + .00995) = .7835 in the population; .02 is 5 standard errors of the test split."""
    coefficients = true_coefficients(8)
    test = prepared.test
    residuals = test.y - coefficients[0] - test.x @ coefficients[1:]
    assert 1.0 - np.var(residuals) / np.var(test.y) == pytest.approx(0.7835, abs=0.02)


# ------------------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"clients": 0}, "clients is 0; allowed is an integer of at least 1"),
        ({"clients": 2.5}, "clients is 2.5"),
        ({"features": 0}, "features is 0"),
        ({"features": True}, "features is True"),
        ({"noise_std": -0.1}, "noise_std is -0.1; allowed is a number from 0 to 0.1"),
        ({"noise_std": 0.11}, "noise_std is 0.11"),
        ({"noise_std": math.nan}, "noise_std is nan"),
    ],
)
def test_impossible_arguments_are_one_sentence(changes: dict[str, object], named: str) -> None:
    arguments = {"clients": 10, "features": 3, **changes}
    with pytest.raises(SfumatoError, match=named):
        generate(stream=Streams(0).stream("clients"), **arguments)  # type: ignore[arg-type]
    for call in (generate_arrays, generate_blocks):
        with pytest.raises(SfumatoError, match=named):
            call(streams=Streams(0), **arguments)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_unknown_precision_is_refused_before_anything_is_drawn(dtype: str) -> None:
    for call in (generate_arrays, generate_blocks):
        with pytest.raises(SfumatoError, match=f"dtype is '{dtype}'; allowed are float32, float64"):
            call(10, 3, Streams(0), dtype=dtype)  # type: ignore[arg-type]
