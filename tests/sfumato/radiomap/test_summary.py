"""What an allocator sees, and that known noise can be taken out of it again."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.radiomap.summary import describe, describe_each, moments, without_noise
from sfumato.rng import Streams
from tests.sfumato.radiomap.defended import three_groups


def test_the_moments_are_those_of_each_group_averaged_over_uploads() -> None:
    partition = three_groups()
    uploads = np.random.default_rng(0).normal(size=(3, 12))
    found = moments(partition, uploads)
    for number, group in enumerate(partition.groups):
        values = uploads[:, group.index]
        assert found[0, number] == pytest.approx(np.mean(values**2))
        assert found[1, number] == pytest.approx(np.mean(np.abs(values).mean(1) ** 2))
        assert found[2, number] == pytest.approx(np.mean(values.std(1) ** 2))


def test_taking_known_noise_out_recovers_the_moments_of_the_clean_uploads() -> None:
    """Noise as large as the signal. The smallest group has 40,000 values, so its moments deviate by 2 sqrt(2 / 40000) =
    1.4 % of the clean ones: 8 % is more than five deviations, and nine numbers alarm falsely with probability 1e-6."""
    partition = three_groups(12_000)
    scale = partition.spread(np.array([2.0, 1.0, 0.5]))
    clean = scale * np.random.default_rng(1).normal(size=(40, 12_000))
    sigmas = np.array([2.0, 1.0, 0.5])
    noisy = clean + partition.spread(sigmas) * Streams(0).stream("noise").standard_normal((40, 12_000))
    found = without_noise(moments(partition, noisy), sigmas)
    assert np.allclose(found, moments(partition, clean), rtol=0.08)
    assert np.all(moments(partition, noisy) > 1.8 * moments(partition, clean))


def test_the_input_tells_norms_over_the_clip_norm_sizes_progress_and_phase() -> None:
    partition = three_groups()
    upload = np.random.default_rng(0).normal(size=12)
    row = describe(moments(partition, upload[None, :]), partition, 2.0, 0.25)
    assert np.allclose(np.exp(row[:3]), partition.norms(upload) / 2.0)
    assert np.allclose(row[9:12], partition.sizes / 12)
    assert row[12:].tolist() == [0.25, 0.0]
    assert describe(moments(partition, upload[None, :]), partition, 2.0, 0.5)[12:].tolist() == [0.5, 1.0]


def test_an_upload_of_zeros_has_a_finite_input() -> None:
    partition = three_groups()
    rows = describe_each(partition, np.zeros((2, 12)), 1.0, np.array([0.0, 1.0]))
    assert np.isfinite(rows).all()
    assert rows.shape == (2, 14)


def test_wrong_shapes_infinities_and_progress_out_of_range_are_refused() -> None:
    partition = three_groups()
    with pytest.raises(SfumatoError, match="b of at least 1"):
        moments(partition, np.zeros((0, 12)))
    with pytest.raises(SfumatoError, match="b of at least 1"):
        moments(partition, np.zeros(12))
    with pytest.raises(SfumatoError, match="not finite"):
        moments(partition, np.full((1, 12), np.nan))
    with pytest.raises(SfumatoError, match="progress is -1"):
        describe(np.ones((3, 3)), partition, 1.0, -1.0)
