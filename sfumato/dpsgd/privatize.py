"""Noise on a clipped sum: the only step that turns raw data into something that may be released.

>>> import torch
>>> from sfumato.dpsgd.engine import ClippedSum
>>> from sfumato.rng import Streams
>>> clipped = ClippedSum(sum=torch.tensor([2.0, 4.0]), norms=torch.tensor([1.0, 1.0]))
>>> stream = Streams(0).stream("noise", 0)
>>> privatize(clipped, clip_norm=1.0, noise_multiplier=0.0, expected_batch_size=4, stream=stream)
tensor([0.5000, 1.0000])
"""

from __future__ import annotations

import math

import torch

from sfumato.checks import is_integer, is_number
from sfumato.clipping import checked_clip_norm
from sfumato.dpsgd.engine import ClippedSum
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream


def privatize(
    clipped: ClippedSum,
    clip_norm: float,
    noise_multiplier: float,
    expected_batch_size: int,
    stream: RandomStream,
) -> torch.Tensor:
    """The private mean gradient on the support: (sum + noise_multiplier * clip_norm * N(0, I_k)) / expected_batch_size.

    Noise is drawn for the k active coordinates only and added in float64; the result is rounded to float32.
    The same is done for an empty batch, whose release is noise alone. Source: Section 2.1 of docs/papers.md
    (both phases; phase 1 is the full support).

    Guarantee: on a Poisson batch of rate q, the release is the Gaussian mechanism with noise multiplier
    ``noise_multiplier`` on a sum of sensitivity ``clip_norm``, subsampled at rate q, for the relation "add or
    remove one example". Conditions: ``clipped`` comes from an engine with this same ``clip_norm``;
    ``expected_batch_size`` is a public number and not the size of the realised batch; the stream is fresh,
    used for this release alone; ``noise_multiplier`` is above 0 (with 0, which is allowed for tests, nothing
    is private).

    Args:
        clipped: the clipped sum.
        clip_norm: the bound it was clipped to, between 1e-30 and 1e30.
        noise_multiplier: the noise's standard deviation in units of ``clip_norm``; finite and at least 0.
        expected_batch_size: the public divisor, at least 1.
        stream: the noise stream of this step.

    Returns:
        Tensor[k], float32, in support order.

    Raises:
        SfumatoError: if a number is outside of its range, the sum was clipped to another norm, or the noise
            would not fit float32.
    """
    bound = checked_clip_norm(clip_norm)
    if clipped.clip_norm is not None and clipped.clip_norm != bound:
        raise SfumatoError(
            f"clip_norm is {bound!r}; allowed is {clipped.clip_norm!r}, which the sum was clipped to."
        )
    sigma = _checked_noise_multiplier(noise_multiplier)
    divisor = _checked_divisor(expected_batch_size)
    scale = sigma * bound
    if scale and not 1e-35 <= scale / divisor <= 1e35:
        raise SfumatoError(
            f"noise_multiplier * clip_norm / expected_batch_size is {scale / divisor!r}; allowed is 0 or a number "
            "between 1e-35 and 1e35, which float32 can hold."
        )
    noise = torch.as_tensor(stream.standard_normal(clipped.sum.numel()))
    return (scale * noise).add_(clipped.sum).div_(divisor).float()


def _checked_noise_multiplier(value: float) -> float:
    if not is_number(value) or not (math.isfinite(value) and value >= 0):
        raise SfumatoError(f"noise_multiplier is {value!r}; allowed is a finite number of at least 0.")
    return float(value)


def _checked_divisor(value: int) -> int:
    if not is_integer(value) or value < 1:
        raise SfumatoError(f"expected_batch_size is {value!r}; allowed is an integer of at least 1.")
    return int(value)
