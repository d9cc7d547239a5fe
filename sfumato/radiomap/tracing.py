"""Which weights meet the transmitter channel, found by watching a model work (Section 3.1 of docs/papers.md).

>>> from sfumato.radiomap.unet import SMALL, build
>>> from sfumato.rng import Streams
>>> partition = paper_partition(build(SMALL, Streams(0).stream("init")), size=32)
>>> [(group.name, group.index.size, group.sensitive) for group in partition.groups]
[('transmitter_first', 118, True), ('transmitter_second', 127, True), ('rest', 28224, False)]

A number inside the network is the transmitter's if changing the transmitter changes it and changing all
weights does not: nothing has been mixed into it yet. A weight meets the transmitter if it multiplies such a
number. No layer is known by name, so a network of one's own is traced as well, if its layers are linear in
what they are given.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.radiomap.partition import Partition, partition_of
from sfumato.radiomap.unet import INPUTS, TRANSMITTER, RadioUNet, check_averageable, dimension, named_layers

_PROBE_SEED: Final = 20_251  # any number serves: the probes only have to be in general position
Marks = dict[str, NDArray[np.bool_]]


def paper_partition(model: nn.Module, size: int | None = None) -> Partition:
    """The paper's groups: the weights that meet the transmitter channel in each stage, and all others.

    Args:
        model: a RadioUNet, or a module from (b, 2, s, s) to a pair of (b, 1, s, s) whose direct children are
            the stages.
        size: cells along one side of the map to trace with; None is the smallest that a RadioUNet takes without loss.

    Returns:
        Sensitive groups ``transmitter_<child>``, such as ``transmitter_first``, and ``rest``; d of the
        module's parameters.

    Raises:
        SfumatoError: if the module is not one that can be averaged, or no weight meets the transmitter.
    """
    places: dict[str, list[NDArray[np.int64]]] = {}
    for name, start, marked in _traced(model, size):
        places.setdefault(f"transmitter_{name.split('.', 1)[0]}", []).append(start + np.flatnonzero(marked))
    found = {name: np.concatenate(parts) for name, parts in places.items()}
    return partition_of(dimension(model), found, [name for name, index in found.items() if index.size])


def layer_partition(model: nn.Module, size: int | None = None) -> Partition:
    """One group for each layer, and one more for its weights that meet the transmitter channel, if there are any.

    Args:
        model: as in `paper_partition`.
        size: likewise.

    Returns:
        Groups named as the module names its layers, such as ``first.down.layer0``, and sensitive ones with
        ``.transmitter`` behind, in the order of the parameters.

    Raises:
        SfumatoError: as `paper_partition`.
    """
    places: dict[str, list[NDArray[np.int64]]] = {}
    sensitive: set[str] = set()
    for name, start, marked in _traced(model, size):
        layer = name.rpartition(".")[0] or name
        places.setdefault(layer, []).append(start + np.flatnonzero(~marked))
        if marked.any():
            sensitive.add(f"{layer}.transmitter")
            places.setdefault(f"{layer}.transmitter", []).append(start + np.flatnonzero(marked))
    found = {name: np.concatenate(parts) for name, parts in places.items()}
    return partition_of(dimension(model), found, sensitive)


def transmitter_weights(model: nn.Module, size: int | None = None) -> Marks:
    """For every parameter, which of its entries multiply the transmitter channel.

    Args:
        model: as in `paper_partition`; it is not changed.
        size: likewise.

    Returns:
        Parameter name -> bool array of the parameter's shape.

    Raises:
        SfumatoError: if the module is not one that can be averaged, or no weight meets the transmitter.
    """
    check_averageable(model)
    generator = torch.Generator().manual_seed(_PROBE_SEED)
    probed = copy.deepcopy(model).double()
    cells = size if size is not None else _smallest(model)
    inputs = torch.rand((1, INPUTS, cells, cells), generator=generator, dtype=torch.float64)
    moved = inputs.clone()
    moved[:, TRANSMITTER] = torch.rand((cells, cells), generator=generator, dtype=torch.float64)
    seen, seen_moved = _layer_inputs(probed, inputs), _layer_inputs(probed, moved)
    with torch.no_grad():
        for parameter in probed.parameters():
            parameter.add_(torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    seen_reweighted = _layer_inputs(probed, inputs)
    marks = {name: np.zeros(tuple(parameter.shape), bool) for name, parameter in model.named_parameters()}
    for name, layer in named_layers(probed):
        if name not in seen:
            continue
        pure = (seen[name] != seen_moved[name]) & (seen[name] == seen_reweighted[name])
        if bool(pure.any()):
            for entry, found in _multiplying(layer, seen[name], pure, generator):
                marks[f"{name}.{entry}" if name else entry] |= found
    if not any(found.any() for found in marks.values()):
        raise SfumatoError(
            "no weight of the model meets the transmitter channel; allowed is a model that reads it."
        )
    return marks


def _smallest(model: nn.Module) -> int:
    """A map on which every weight of a kernel of five cells sees more than padding, at every depth."""
    return 4 * model.architecture.stride if isinstance(model, RadioUNet) else 64


def _own(layer: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return layer.named_parameters(recurse=False)


def _layer_inputs(model: nn.Module, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """What each layer with parameters of its own is given, by the layer's name."""
    seen: dict[str, torch.Tensor] = {}
    names = {layer: name for name, layer in named_layers(model) if next(_own(layer), None) is not None}

    def keep(layer: nn.Module, given: tuple[Any, ...]) -> None:
        seen[names[layer]] = cast(torch.Tensor, given[0]).detach().clone()

    hooks = [layer.register_forward_pre_hook(keep) for layer in names]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _multiplying(
    layer: nn.Module, given: torch.Tensor, pure: torch.Tensor, generator: torch.Generator
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Which entries of a layer's own parameters multiply the marked numbers of its input.

    The layer's output is linear in its parameters, and an entry's coefficient is the sum of the numbers that
    it multiplies. So the entry's gradient changes, when all numbers but the marked ones are zero, exactly if
    the marked ones become zero too.
    """
    empty = torch.zeros_like(given)
    weights = _gradients(layer, torch.where(pure, given, empty), generator)
    without = _gradients(layer, empty, generator)
    for name, gradient in weights.items():
        yield name, (gradient != without[name]).numpy()


def _gradients(layer: nn.Module, given: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """The gradient of a fixed generic combination of a layer's outputs by its own parameters."""
    state = generator.get_state()
    with torch.enable_grad():
        # Before any ReLU that the layer may end with: a dead output would hide its weights.
        found = cast(torch.Tensor, _linear_part(layer, given))
        combined = (found * torch.rand(found.shape, generator=generator, dtype=found.dtype)).sum()
        named = list(_own(layer))
        gradients = torch.autograd.grad(
            combined, [entry for _, entry in named], allow_unused=True, materialize_grads=True
        )
    generator.set_state(state)
    return {name: gradient for (name, _), gradient in zip(named, gradients, strict=True)}


def _linear_part(layer: nn.Module, given: torch.Tensor) -> Any:
    """The layer's output, of the library's own layer where the model's is one with something after it."""
    if isinstance(layer, nn.Conv2d):
        return nn.Conv2d.forward(layer, given)
    if isinstance(layer, nn.ConvTranspose2d):
        return nn.ConvTranspose2d.forward(layer, given)
    return nn.Linear.forward(layer, given) if isinstance(layer, nn.Linear) else layer(given)


def _traced(model: nn.Module, size: int | None) -> Iterator[tuple[str, int, NDArray[np.bool_]]]:
    """(name, place in the flat vector, flat marks) of each parameter in order."""
    start = 0
    for name, marked in transmitter_weights(model, size).items():
        yield name, start, marked.reshape(-1)
        start += marked.size
