"""Which modules can be trained privately: no layer may mix examples, draw unnamed randomness or keep statistics.

>>> from torch import nn
>>> validate(nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.Tanh()))
>>> validate(nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)))
Traceback (most recent call last):
    ...
sfumato.errors.UnsupportedLayerError: layer '1' (BatchNorm2d) mixes the examples of a batch; use nn.GroupNorm instead.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.instancenorm import _InstanceNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from sfumato.dpsgd.stateless import layers
from sfumato.errors import SfumatoError, UnsupportedLayerError

_TRANSFORMERS = (
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
LAYERS_OF_OPACUS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.Embedding,
)


def validate(module: nn.Module, engine: str = "functional") -> None:
    """Refuse a module that holds a layer which mixes examples or which the engine cannot handle.

    Layers of torch are judged by their type. A layer of the user's own that holds parameters is accepted by the
    ``functional`` engine, which computes every example by itself, and refused by ``opacus``, which has no rule
    for it; whether it mixes examples, ``check_mixing`` tries on
    inputs.

    Args:
        module: the model as it will be trained (its train or eval mode counts).
        engine: ``functional`` or ``opacus``.

    Raises:
        UnsupportedLayerError: naming the layer (dotted name and class) and what to use instead.
        SfumatoError: if the module has nothing to train or the engine is unknown.
    """
    if engine not in ("functional", "opacus"):
        raise SfumatoError(f"engine is {engine!r}; allowed are 'functional' and 'opacus'.")
    refuse_layers(module)
    _check_parameters(module)
    for name, layer in layers(module):
        _refuse(name, layer, _opacus_refusal(layer) if engine == "opacus" else None)


def refuse_layers(module: nn.Module) -> None:
    """Refuse a module that holds a layer of torch which no engine takes.

    Raises:
        UnsupportedLayerError: naming the layer (dotted name and class) and what to use instead.
    """
    for name, layer in layers(module):
        _refuse(name, layer, _refusal(layer))


def _refuse(name: str, layer: nn.Module, reason: str | None) -> None:
    if reason:
        raise UnsupportedLayerError(
            f"layer {name or '(the module itself)'!r} ({type(layer).__name__}) {reason}."
        )


def _refusal(layer: nn.Module) -> str | None:
    """Why no engine takes this layer, and what to use instead; None if one does."""
    if isinstance(layer, _InstanceNorm):
        if layer.track_running_stats:
            return "keeps statistics of the data; use it with track_running_stats=False, or nn.GroupNorm, instead"
        return None
    if isinstance(layer, (_BatchNorm, nn.SyncBatchNorm)):
        return "mixes the examples of a batch; use nn.GroupNorm instead"
    if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
        return "cannot be differentiated example by example; use nn.Conv1d or nn.Linear layers instead"
    if isinstance(layer, (nn.MultiheadAttention, *_TRANSFORMERS)):
        return (
            "cannot be differentiated example by example; use attention written with nn.Linear layers instead"
        )
    if isinstance(layer, nn.EmbeddingBag):
        return "cannot be differentiated example by example; use nn.Embedding and a mean over its outputs instead"
    if isinstance(layer, nn.Embedding):
        return _embedding_refusal(layer)
    if isinstance(layer, (_DropoutNd, nn.RReLU)) and layer.training:
        return "draws from the global random generator; remove it (the noise of the training regularises) instead"
    if is_parametrized(layer):
        return "has parametrised weights; use it without torch.nn.utils.parametrize instead"
    return _old_norm_refusal(layer)


def _old_norm_refusal(layer: nn.Module) -> str | None:
    """Why a layer under a parametrisation of the older kind, which is a hook, is refused."""
    for hook in vars(layer)["_forward_pre_hooks"].values():
        if isinstance(hook, WeightNorm):
            return "has parametrised weights; use it without torch.nn.utils.weight_norm instead"
        if isinstance(hook, SpectralNorm):
            return "has parametrised weights; use it without torch.nn.utils.spectral_norm instead"
    return None


def _embedding_refusal(layer: nn.Embedding) -> str | None:
    if layer.max_norm is not None:
        return "rescales its rows by the data it reads; use it with max_norm=None instead"
    if layer.scale_grad_by_freq:
        return "divides gradients by counts over the batch; use it with scale_grad_by_freq=False instead"
    if layer.sparse:
        return "has sparse gradients; use it with sparse=False instead"
    return None


def _opacus_refusal(layer: nn.Module) -> str | None:
    if isinstance(layer, nn.Embedding) and layer.padding_idx is not None:
        return "trains its padding row in the opacus engine; use padding_idx=None or the functional engine instead"
    padding_mode = getattr(layer, "padding_mode", "zeros")
    if type(layer) in LAYERS_OF_OPACUS and padding_mode != "zeros":
        return (
            f"pads with {padding_mode!r}, and the opacus engine takes every padding for zeros; use "
            "padding_mode='zeros' or the functional engine instead"
        )
    if isinstance(layer, nn.LayerNorm) and layer.elementwise_affine and cast(object, layer.bias) is None:
        return "has no bias, and the opacus engine needs one; use bias=True or the functional engine instead"
    own = [name for name, parameter in layer.named_parameters(recurse=False) if parameter.requires_grad]
    if own and type(layer) not in LAYERS_OF_OPACUS:
        return f"holds parameters ({', '.join(own)}) that the opacus engine has no rule for; use the functional engine instead"
    return None


def _check_parameters(module: nn.Module) -> None:
    dtypes = set[torch.dtype]()
    for name, parameter in module.named_parameters():
        owner = _owner(module, name)
        if is_lazy(parameter):
            raise UnsupportedLayerError(
                f"layer {owner} has an uninitialised parameter {name!r}; run the module once on an input instead."
            )
        if parameter.requires_grad:
            if parameter.dtype not in (torch.float32, torch.float64) or parameter.layout != torch.strided:
                raise UnsupportedLayerError(
                    f"layer {owner} has parameter {name!r} of dtype {parameter.dtype} and layout {parameter.layout}; "
                    "use dense float32 or float64 instead."
                )
            if parameter.device.type != "cpu":
                raise UnsupportedLayerError(
                    f"layer {owner} has parameter {name!r} on device {parameter.device}; use the cpu instead."
                )
            dtypes.add(parameter.dtype)
    if not dtypes:
        raise SfumatoError(
            f"module {type(module).__name__} has no trainable parameter; allowed is one or more."
        )
    if len(dtypes) > 1:
        raise SfumatoError(
            f"trainable parameters have dtypes {sorted(map(str, dtypes))}; allowed is one for all."
        )


def _owner(module: nn.Module, name: str) -> str:
    layer_name = name.rpartition(".")[0]
    return f"{layer_name or '(the module itself)'!r} ({type(module.get_submodule(layer_name)).__name__})"
