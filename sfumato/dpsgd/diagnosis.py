"""What is to blame when a model cannot be run or differentiated: the data, the loss or the model, in one sentence.

>>> from torch import nn
>>> loss = lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")
>>> batch = torch.zeros(2, 3), torch.tensor([0, 7])
>>> fault = diagnose(nn.Linear(3, 2), loss, batch, IndexError("index 7 is out of bounds"), "cannot be trained: {reason}")
>>> type(fault).__name__, str(fault).partition(";")[0]
('SfumatoError', 'targets of dtype torch.int64 with values from 0 to 7 do not fit the loss (Target 7 is out of bounds)')
"""

from __future__ import annotations

import torch
from torch import nn

from sfumato.dpsgd.engine import Batch, Loss
from sfumato.dpsgd.stateless import attributes_restored, layers
from sfumato.errors import SfumatoError, UnsupportedLayerError

FAULTS = (RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError)
"""What torch and a user's own forward or loss raise when model, loss and data do not fit one another."""


def first_sentence(error: Exception) -> str:
    """The first sentence of an error's message without its full stop, or the error's class if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].partition(". ")[0].rstrip(". ") if lines else type(error).__name__


def values(tensor: torch.Tensor) -> str:
    """The range of a tensor's values, in words."""
    if not tensor.numel() or tensor.is_complex():
        return "no values" if not tensor.numel() else "complex values"
    return f"values from {tensor.min().item():g} to {tensor.max().item():g}"


def not_a_tensor(module: nn.Module, outputs: object) -> UnsupportedLayerError:
    """The error of a module that does not return one tensor."""
    return UnsupportedLayerError(
        f"model {type(module).__name__} returns a {type(outputs).__name__}; use one that returns a single tensor "
        "with an example each along the first dimension instead."
    )


def diagnose(model: nn.Module, loss: Loss, batch: Batch, error: Exception, otherwise: str) -> SfumatoError:
    """The error to raise in the place of one that an engine met.

    The examples are run one by one, without any engine, until one fails. The sentence is for the one who owns
    the data: it may tell values of theirs, and is no part of a private release.

    Args:
        model: left as it was.
        loss: the per-example loss.
        batch: inputs and targets that the engine failed on.
        error: what it failed with.
        otherwise: what to say of the model, after its name, if each example by itself runs; ``{reason}`` in it
            stands for the error's message.
    """
    inputs, _ = batch
    with torch.random.fork_rng(devices=[]), attributes_restored(model), torch.no_grad():
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        try:
            for row in range(len(inputs)):
                fault = _fault_of_one(model, loss, batch, slice(row, row + 1))
                if fault is not None:
                    return fault
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
    return UnsupportedLayerError(
        f"model {type(model).__name__} {otherwise.replace('{reason}', first_sentence(error))}."
    )


def _fault_of_one(model: nn.Module, loss: Loss, batch: Batch, row: slice) -> SfumatoError | None:
    """What is wrong with one example of a batch, or None if it runs."""
    inputs, targets = batch
    try:
        outputs = model(inputs[row].clone())
    except FAULTS as error:
        return _fault_of_inputs(model, inputs, error)
    try:
        loss(outputs, targets[row])
    except FAULTS as error:
        if not isinstance(outputs, torch.Tensor):
            return not_a_tensor(model, outputs)
        given = f"of shape {tuple(targets.shape)} and dtype {targets.dtype}"
        if targets.ndim == 1 and not targets.is_floating_point():
            given = f"of dtype {targets.dtype} with {values(targets)}"
        return SfumatoError(
            f"targets {given} do not fit the loss ({first_sentence(error)}); allowed are those that it takes for "
            f"outputs of shape {tuple(outputs.shape)}{_classes(outputs)}."
        )
    return None


def _classes(outputs: torch.Tensor) -> str:
    if outputs.ndim != 2:
        return ""
    return f", which for a cross entropy are int64 numbers of shape (B,) from 0 to {outputs.shape[1] - 1}"


def _fault_of_inputs(model: nn.Module, inputs: torch.Tensor, error: Exception) -> SfumatoError:
    """The inputs' values are to blame if the model runs on zeros in their place, and their shape and dtype if not."""
    name, reason = type(model).__name__, first_sentence(error)
    try:
        model(torch.zeros_like(inputs[:1]))
    except FAULTS:
        return UnsupportedLayerError(
            f"model {name} cannot be run on inputs of shape {tuple(inputs.shape)} and dtype {inputs.dtype}: {reason}."
        )
    tables = [
        f"{path or '(the module itself)'!r} has {layer.num_embeddings} rows"
        for path, layer in layers(model)
        if isinstance(layer, nn.Embedding)
    ]
    allowed = "values that it takes, as it does zeros"
    if tables and not inputs.is_floating_point():
        allowed = f"ids from 0 to below the number of rows of the nn.Embedding that reads them ({', '.join(tables)})"
    return SfumatoError(
        f"inputs with {values(inputs)} hold some that model {name} cannot take ({reason}); allowed are {allowed}."
    )
