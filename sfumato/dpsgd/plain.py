"""Which models keep examples apart by what they are made of: layers of torch whose first axis is the batch, in a row.

A trial can find that a model mixes examples, not that it never does: what code of one's own does may depend on the data.
Models made of these layers alone need no trust.

>>> why_not_plain(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())) is None
True
>>> why_not_plain(torch.nn.Sequential(torch.nn.Softmax(dim=0)))
"layer '0' is a Softmax"
"""

from __future__ import annotations

from typing import Any, Final, cast

import torch
from torch import nn
from torch.nn.modules import module as modules

from sfumato.dpsgd.engine import Loss, checked_losses
from sfumato.dpsgd.stateless import layers

PLAIN: Final = frozenset({
    nn.Sequential, nn.Identity, nn.Linear, nn.Bilinear, nn.Embedding,
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.LocalResponseNorm,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.LPPool1d, nn.LPPool2d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    nn.Tanh, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid,
    nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Tanhshrink, nn.Softshrink,
    nn.Hardshrink, nn.Threshold, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
    nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReplicationPad1d, nn.ReplicationPad2d, nn.CircularPad1d, nn.CircularPad2d,
    nn.Upsample, nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle,
})  # fmt: skip
"""Layers that read the first axis as the batch, whatever their settings are. Padding with constants is not one of them:
given inputs of too few axes, it pads the batch."""
LOSSES: Final = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MSELoss)
"""Losses of torch that, with ``reduction="none"``, give every example's loss from that example alone. The weights of binary
cross entropy may go by the place in the batch, which depends on who else is in it: it is not one of these."""
_HOOKS: Final = tuple(name for name in vars(nn.Identity()) if name.endswith("_hooks"))


def why_not_plain(model: nn.Module) -> str | None:
    """What in a model is no layer of ``PLAIN``, or has been changed: hooks, a forward of its own; None if nothing is.

    Flatten and Unflatten are plain where they leave the first axis alone.
    """
    if _hooks_on_all():
        return "hooks are set on all modules"
    for path, layer in layers(model):
        name = f"layer {path!r}" if path else "it"
        if type(layer) not in PLAIN and not _keeps_the_first_axis(layer):
            return f"{name} is a {type(layer).__name__}"
        changed = _changed(layer)
        if changed is not None:
            return f"{name} has {changed}"
    return None


def _keeps_the_first_axis(layer: nn.Module) -> bool:
    if type(layer) is nn.Flatten:
        return layer.start_dim >= 1
    return type(layer) is nn.Unflatten and layer.dim >= 1


def each(loss: Loss) -> Loss:
    """The loss of every example by itself: what it does with one example can depend on no other.

    One of ``LOSSES`` as torch made it, with ``reduction="none"``, needs nothing for that and is called on all at once.

    Args:
        loss: maps outputs (B, ...) and targets (B, ...) to Tensor[B].

    Raises:
        SfumatoError: when it is called, if the loss gives anything else.
    """
    if _keeps_apart(loss):

        def whole(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            classes = targets if targets.is_floating_point() else targets.long()
            return checked_losses(loss(outputs, classes), len(outputs))

        return whole

    def one(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return checked_losses(loss(output.unsqueeze(0), target.unsqueeze(0)), 1).squeeze(0)

    return torch.func.vmap(one)


def _keeps_apart(loss: Loss) -> bool:
    """Whether it is one of ``LOSSES``, as torch made it, for every example."""
    if type(loss) not in LOSSES or _hooks_on_all():
        return False
    module = cast("nn.Module", loss)
    return module.reduction == "none" and _changed(module) is None


def _hooks_on_all() -> bool:
    return bool(cast("Any", modules)._has_any_global_hook())


def _changed(layer: nn.Module) -> str | None:
    """What an instance has that its class does not give it."""
    attributes = vars(layer)
    if "forward" in attributes or "__call__" in attributes:
        return "a forward of its own"
    hooks = any(cast("Any", attributes.get(name)) for name in _HOOKS if "state_dict" not in name)
    return "hooks" if hooks else None
