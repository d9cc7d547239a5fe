from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.errors import SfumatoError
from sfumato.rng import BulkStream, Streams


@given(seed=st.integers(0, 2**31 - 1), step=st.integers(0, 10**6))
def test_a_stream_is_a_function_of_seed_name_and_keys(seed: int, step: int) -> None:
    first = Streams(seed).stream("noise", step).standard_normal(5)
    assert np.array_equal(first, Streams(seed).stream("noise", step).standard_normal(5))
    for other in (
        Streams(seed + 1).stream("noise", step),
        Streams(seed).stream("sampling", step),
        Streams(seed).stream("noise", step + 1),
        Streams(seed).stream("noise", str(step)),
        Streams(seed).stream("noise"),
    ):
        assert not np.array_equal(first, other.standard_normal(5))


def test_keys_that_join_to_the_same_text_are_different_streams() -> None:
    first = Streams(0).stream("a", "b", "c").random(4)
    assert not np.array_equal(first, Streams(0).stream("a", "bc").random(4))
    assert not np.array_equal(first, Streams(0).stream("ab", "c").random(4))


@pytest.mark.parametrize("streams", [Streams(5), Streams(None, "release")], ids=["simulation", "release"])
def test_draws_have_their_distributions(streams: Streams) -> None:
    stream = streams.stream("test")
    # Kolmogorov-Smirnov and chi-square tests at 1e-6: the release stream alarms falsely once in some 300,000 runs.
    assert stats.kstest(stream.standard_normal(20_000), "norm").pvalue > 1e-6
    assert stats.kstest(stream.random(20_000), "uniform").pvalue > 1e-6
    counts = np.bincount(stream.integers(0, 10, 20_000), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert sorted(stream.permutation(100).tolist()) == list(range(100))


def test_release_cannot_be_replayed() -> None:
    streams = Streams(None, "release")
    assert not np.array_equal(streams.stream("noise", 0).random(8), streams.stream("noise", 0).random(8))


def test_the_order_of_consumers_shifts_no_stream() -> None:
    streams = Streams(3)
    alone = streams.stream("noise", 0).standard_normal(3)
    streams.stream("sampling", 0).random(100)
    assert np.array_equal(alone, streams.stream("noise", 0).standard_normal(3))


@pytest.mark.parametrize(
    ("seed", "mode"),
    [
        (None, "simulation"),
        (3, "release"),
        (-1, "simulation"),
        (True, "simulation"),
        (0, "secure"),
        ("a", "simulation"),
        (1.5, "simulation"),
    ],
)
def test_a_seed_that_does_not_fit_the_mode_is_refused(seed: int | None, mode: str) -> None:
    with pytest.raises(SfumatoError):
        Streams(seed, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["stream", "bulk"])
def test_filled_normals_have_the_normal_law(kind: str, dtype: type) -> None:
    """200,001 draws against the normal law by Kolmogorov and Smirnov; false alarms 1e-4 each."""
    out = np.empty(200_001, dtype)
    getattr(Streams(5), kind)("noise").fill_normal(out, 3.0)
    from scipy.stats import kstest

    assert kstest(out / 3.0, "norm").pvalue > 1e-4
    assert np.isfinite(out).all()
    tail = np.mean(np.abs(out) > 9.0)
    assert tail == pytest.approx(0.0027, abs=0.0005)  # over four standard errors of 1.2e-4
    assert abs(np.corrcoef(out[:100_000], out[100_000:200_000])[0, 1]) < 4.5 / 100_000**0.5


def test_bulk_normals_do_not_repeat_and_fill_every_shape() -> None:
    stream = Streams(5).bulk("noise")
    first, second = np.empty((7, 3), np.float32), np.empty((7, 3), np.float32)
    stream.fill_normal(first)
    stream.fill_normal(second)
    assert not np.any(first == second)
    again = np.empty((7, 3), np.float32)
    Streams(5).bulk("noise").fill_normal(again)
    assert np.array_equal(first, again)
    assert not np.array_equal(Streams(6).bulk("noise").random(5), Streams(5).bulk("noise").random(5))


def test_release_mode_fills_from_the_systems_entropy() -> None:
    out = np.empty((2, 50_000), np.float32)
    Streams(None, "release").bulk("noise").fill_normal(out, 2.0)
    assert np.std(out) == pytest.approx(2.0, rel=0.02)
    assert not np.any(out[0] == out[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((4, 3), np.float32, order="F"),
        lambda: np.zeros((4, 6), np.float32)[:, ::2],
        lambda: np.zeros(4, np.int64),
        lambda: np.zeros(4, np.float16),
    ],
)
def test_noise_is_never_written_into_a_copy_or_a_type_that_cannot_hold_it(
    make: Callable[[], np.ndarray],
) -> None:
    for streams in (
        Streams(5).stream("noise"),
        Streams(5).bulk("noise"),
        Streams(None, "release").stream("noise"),
    ):
        with pytest.raises(SfumatoError, match="the array to fill has dtype"):
            streams.fill_normal(make())


def test_integers_of_numpy_name_the_streams_of_equal_integers() -> None:
    one, two = Streams(7).stream("noise", 3), Streams(np.int64(7)).stream("noise", np.int32(3))  # type: ignore[arg-type]
    assert np.array_equal(one.random(5), two.random(5))


def test_bits_of_bulk_normals_are_those_of_the_standard_cipher() -> None:
    stream = BulkStream(bytes(32))
    blocks = [stream._words(8).tobytes().hex() for _ in range(2)]
    # AES-128 of the counters 0 to 3 under the zero key, as NIST's vectors for the zero block begin.
    assert blocks[0].startswith("66e94bd4ef8a2c3b884cfa59ca342b2e58e2fccefa7e3061367f1d57a4e7455a")
    assert blocks[1] != blocks[0]
