"""The release: noise of exactly sigma*C/B, on the support only, whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sfumato.dpsgd import ClippedSum, Support, privatize
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


def release(clipped: ClippedSum, step: int = 0, **changes: float) -> torch.Tensor:
    arguments = {"clip_norm": 0.5, "noise_multiplier": 1.1, "expected_batch_size": 64} | changes
    return privatize(clipped, stream=Streams(0).stream("noise", step), **arguments)  # type: ignore[arg-type]


def zeros(k: int) -> ClippedSum:
    return ClippedSum(torch.zeros(k), torch.zeros(0))


@pytest.mark.parametrize(("clip_norm", "sigma", "batch"), [(0.5, 1.1, 64), (1e-20, 3.0, 7), (1e20, 0.01, 1)])
def test_noise_has_standard_deviation_sigma_c_over_b_within_one_percent(
    clip_norm: float, sigma: float, batch: int
) -> None:
    draws = torch.cat(
        [
            release(zeros(500), t, clip_norm=clip_norm, noise_multiplier=sigma, expected_batch_size=batch)
            for t in range(200)
        ]
    ).double()
    wanted = sigma * clip_norm / batch
    # 100,000 draws: the relative standard error of the deviation is 1/sqrt(2*100,000) = 0.224 %, so 1 % is
    # 4.47 of them and the mean's bound 4.5 of its own: false alarm below 1.5e-5, with fixed seeds none
    assert abs(float(draws.std()) / wanted - 1) < 0.01
    assert abs(float(draws.mean())) < 4.5 * wanted / 100_000**0.5


def test_coordinates_of_noise_are_uncorrelated_and_each_has_the_full_deviation() -> None:
    draws = torch.stack([release(zeros(10), t) for t in range(20_000)]).double() / (1.1 * 0.5 / 64)
    covariance = draws.t() @ draws / 20_000
    # 55 entries, each within 6 standard errors, 1/sqrt(n) off and sqrt(2/n) on the diagonal: false alarm 1e-7
    assert float((covariance - torch.eye(10)).abs().max()) < 6 * (2 / 20_000) ** 0.5


def test_noise_off_the_support_is_exactly_zero() -> None:
    support = Support.of([2, 5, 6], 9)
    vector = support.scatter(release(zeros(3)))
    assert torch.equal(vector != 0, support.mask())


def test_noise_is_added_to_the_sum_before_the_division() -> None:
    values = torch.tensor([3.0, -1.0])
    found = release(ClippedSum(values, torch.ones(2)))
    noise = torch.from_numpy(Streams(0).stream("noise", 0).standard_normal(2))
    assert torch.equal(found, ((values.double() + 1.1 * 0.5 * noise) / 64).float())


def test_empty_batch_and_empty_support_are_released_alike() -> None:
    assert bool((release(zeros(4)) != 0).all())
    assert release(zeros(0)).shape == (0,)


def test_no_noise_is_possible_for_tests_and_steps_differ_otherwise() -> None:
    assert release(ClippedSum(torch.tensor([64.0]), torch.ones(1)), noise_multiplier=0.0).tolist() == [1.0]
    assert not torch.equal(release(zeros(4), 0), release(zeros(4), 1))


@pytest.mark.parametrize("clip_norm", [1e-30, 1e30])
def test_extreme_clip_norms_give_finite_noise(clip_norm: float) -> None:
    noise = release(zeros(1000), clip_norm=clip_norm)
    assert bool(torch.isfinite(noise).all())
    assert bool((noise != 0).all())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": -0.1}, "noise_multiplier is -0.1; allowed is a finite number of at least 0."),
        ({"noise_multiplier": float("nan")}, "noise_multiplier is nan"),
        ({"noise_multiplier": float("inf")}, "noise_multiplier is inf"),
        ({"noise_multiplier": True}, "noise_multiplier is True"),
        ({"clip_norm": 0.0}, "clip_norm is 0.0"),
        ({"expected_batch_size": 0}, "expected_batch_size is 0"),
        ({"expected_batch_size": 63.5}, "expected_batch_size is 63.5"),
        ({"clip_norm": 1e30, "noise_multiplier": 1e10}, "which float32 can hold"),
        ({"clip_norm": 1e-30, "noise_multiplier": 1e-10}, "which float32 can hold"),
    ],
)
def test_impossible_numbers_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(SfumatoError) as caught:
        release(zeros(2), **changes)
    assert message in str(caught.value)


def test_a_sum_clipped_to_another_norm_is_refused() -> None:
    clipped = ClippedSum(torch.zeros(2), torch.zeros(0), clip_norm=1.0)
    with pytest.raises(
        SfumatoError, match=r"clip_norm is 0\.5; allowed is 1\.0, which the sum was clipped to"
    ):
        release(clipped)


def test_printing_a_clipped_sum_shows_no_raw_value() -> None:
    assert repr(ClippedSum(torch.tensor([3.25]), torch.tensor([4.5]), 1.0)) == "ClippedSum(clip_norm=1.0)"


def test_noise_is_drawn_from_the_given_stream_alone() -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    assert torch.equal(release(zeros(5)), release(zeros(5)))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
