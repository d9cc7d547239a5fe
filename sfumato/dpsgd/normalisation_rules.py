"""Rules for scale and shift of GroupNorm and LayerNorm: sums of output gradient times normalised input.

>>> shift(2)((), torch.ones(1, 2, 3, 3))
tensor([[9., 9.]])
"""

from __future__ import annotations

import torch
from torch.nn import functional

from sfumato.dpsgd.layer_rules import Compute, Inputs


def group_scale(groups: int, eps: float) -> Compute:
    """Gradients Tensor[N, C] of the scale of a GroupNorm over (N, C, ...)."""

    def compute(inputs: Inputs, gradient: torch.Tensor) -> torch.Tensor:
        return _over_positions(gradient * functional.group_norm(inputs[0], groups, eps=eps))

    return compute


def shift(channels: int) -> Compute:
    """Gradients Tensor[N, C] of what is added to each channel of (N, C, ...): a GroupNorm's or Conv2d's bias."""

    def compute(inputs: Inputs, gradient: torch.Tensor) -> torch.Tensor:
        return _over_positions(gradient).view(len(gradient), channels)

    return compute


def shift_of(local: torch.Tensor) -> Compute:
    """Gradients Tensor[N, k] of what is added to the chosen channels of (N, C, ...)."""
    return lambda inputs, gradient: _over_positions(gradient.index_select(1, local.to(gradient.device)))


def _over_positions(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.sum(dim=tuple(range(2, tensor.ndim))) if tensor.ndim > 2 else tensor.clone()


def layer_scale(shape: tuple[int, ...], eps: float) -> Compute:
    """Gradients Tensor[N, size] of the scale of a LayerNorm over the last dimensions ``shape``."""

    def compute(inputs: Inputs, gradient: torch.Tensor) -> torch.Tensor:
        return _over_leading(gradient * functional.layer_norm(inputs[0], shape, eps=eps), shape)

    return compute


def layer_shift(shape: tuple[int, ...]) -> Compute:
    """Gradients Tensor[N, size] of the shift of a LayerNorm."""
    return lambda inputs, gradient: _over_leading(gradient, shape)


def _over_leading(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    size = torch.Size(shape).numel()
    return tensor.reshape(len(tensor), -1, size).sum(dim=1)
