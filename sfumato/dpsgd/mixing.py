"""Whether a module treats the examples of a batch one by one, tried by running it.

>>> from torch import nn
>>> from sfumato.rng import Streams
>>> class Centre(nn.Module):
...     def forward(self, x): return x - x.mean(dim=0)
>>> model = nn.Sequential(nn.Embedding(9, 4), Centre(), nn.Linear(4, 2))
>>> check_mixing(model, (3,), torch.int64, Streams(0).stream("mix_check"))
Traceback (most recent call last):
    ...
sfumato.errors.UnsupportedLayerError: module Sequential mixes the examples of a batch: ...
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.func import functional_call

from sfumato.checks import is_integer
from sfumato.dpsgd.diagnosis import FAULTS, first_sentence, not_a_tensor
from sfumato.dpsgd.stateless import attributes_restored, layers, places
from sfumato.errors import SfumatoError, UnsupportedLayerError
from sfumato.rng import RandomStream

_EXAMPLES = 4
_TOLERANCE = 1e-4
_MOVE = 0.1  # of the size of torch's own initial weights
_Tensors = dict[str, torch.Tensor]


def check_mixing(
    module: nn.Module,
    example_shape: tuple[int, ...],
    dtype: torch.dtype,
    stream: RandomStream,
    ids: int | None = None,
) -> None:
    """Refuse a module that mixes the examples of a batch, tried on random inputs; no data is read.

    The module is run as it is, in the mode it is in, and a second time with its trainable parameters moved at
    random, since a last layer of zeros would hide what the layers before it do. Floating inputs are normal
    and, where a module gives outputs that are not finite on those, between 0 and 1. Integer inputs are ids below ``ids``; if the
    module cannot be run on those, ids 0 and 1. The check can only find mixing, not prove its absence; the
    functional engine's gradients are per example in any case.

    Args:
        module: the model; left as it was.
        example_shape: the shape of one example, without the batch axis.
        dtype: of the inputs.
        stream: draws the inputs and the moves.
        ids: an exclusive upper bound on integer inputs, a public number; None takes the number of rows of the
            module's smallest nn.Embedding, or 256 if it has none.

    Raises:
        UnsupportedLayerError: if examples mix, two runs on one batch differ, the outputs are not finite, or the
            module cannot be run on inputs of that shape and dtype.
        SfumatoError: if ``ids`` is not an integer of at least 2.
    """
    if ids is not None and (not is_integer(ids) or ids < 2):
        raise SfumatoError(f"ids is {ids!r}; allowed is an integer of at least 2, or none.")
    shape = (_EXAMPLES, *example_shape)
    if dtype.is_floating_point or dtype.is_complex:
        batches = _numbers(shape, dtype, stream)
    else:
        batches = _ids(module, shape, dtype, stream, ids)
    _check(module, batches, stream, _TOLERANCE)


def check_examples_do_not_mix(
    module: nn.Module, example_inputs: torch.Tensor, tolerance: float = _TOLERANCE
) -> None:
    """Refuse a module whose output for one example changes when the other examples of the batch are others.

    As ``check_mixing``, on inputs of the caller's and with the module's present parameters only.

    Args:
        module: the model; left as it was.
        example_inputs: Tensor[B, ...], B at least 2, of public or random inputs, not all alike.
        tolerance: the largest change, relative to the largest output, that counts as rounding.

    Raises:
        UnsupportedLayerError: if examples mix, two runs on the inputs differ, the outputs are not finite, or the
            module cannot be run on the inputs.
        SfumatoError: if fewer than two inputs are given.
    """
    if example_inputs.ndim < 1 or len(example_inputs) < 2:
        count = len(example_inputs) if example_inputs.ndim else 0
        raise SfumatoError(f"example_inputs holds {count} examples; allowed are at least 2.")
    _check(module, [example_inputs], None, tolerance)


def _numbers(shape: tuple[int, ...], dtype: torch.dtype, stream: RandomStream) -> list[torch.Tensor]:
    """Normal inputs, and some between 0 and 1 for modules that take a logarithm or a root."""
    normal = torch.from_numpy(stream.standard_normal(shape))
    fraction = torch.from_numpy(stream.random(shape))
    return [batch.to(dtype) for batch in (normal, 0.05 + 0.9 * fraction)]


def _ids(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, stream: RandomStream, bound: int | None
) -> list[torch.Tensor]:
    """Batches of ids below the bound, then of ids 0 and 1; neighbouring examples differ everywhere."""
    if bound is None:
        rows = [layer.num_embeddings for _, layer in layers(module) if isinstance(layer, nn.Embedding)]
        bound = min((count for count in rows if count >= 2), default=256)
    largest = 1 if dtype == torch.bool else torch.iinfo(dtype).max
    found = list[torch.Tensor]()
    for below in sorted({min(bound, largest + 1), 2}, reverse=True):
        first = torch.from_numpy(stream.integers(0, below, (1, *shape[1:])))
        steps = torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1))
        found.append(((first + steps) % below).to(dtype))
    return found


def _check(
    module: nn.Module, batches: list[torch.Tensor], stream: RandomStream | None, tolerance: float
) -> None:
    """Judge the module on the first of the batches that it gives finite outputs for, and on those before it."""
    name, failures, finite = type(module).__name__, list[Exception](), False
    for batch in batches:
        try:
            outputs = _outputs(module, _copies(module, None), batch, tolerance)
        except FAULTS as error:
            if isinstance(error, SfumatoError):
                raise
            failures.append(error)
            continue
        finite = finite or bool(torch.isfinite(outputs).any()) or not outputs.numel()
        if stream is not None:
            _check_moved(module, batch, stream, tolerance)
        if bool(torch.isfinite(outputs).all()):
            return
    if len(failures) == len(batches):
        raise UnsupportedLayerError(
            f"module {name} cannot be run on inputs of shape {tuple(batches[0].shape)} and dtype "
            f"{batches[0].dtype}: {first_sentence(failures[0])}."
        ) from failures[0]
    if not finite:
        kinds = ("the given", "inputs that it is defined for")
        if stream is not None:
            kinds = ("random", "one that is defined for normal inputs or for those between 0 and 1")
        raise UnsupportedLayerError(
            f"module {name} cannot be checked for mixing examples, since its outputs are not finite on {kinds[0]} "
            f"inputs; use {kinds[1]} instead."
        )


def _check_moved(module: nn.Module, batch: torch.Tensor, stream: RandomStream, tolerance: float) -> None:
    """Judge the module at other parameters; that it cannot be run there, say on a negative scale, is no fault."""
    try:
        _outputs(module, _copies(module, stream), batch, tolerance)
    except FAULTS as error:
        if isinstance(error, SfumatoError):
            raise


def _copies(module: nn.Module, stream: RandomStream | None) -> _Tensors:
    """Copies of parameters and buffers by place; with a stream, trainable parameters moved at random."""
    tensors = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    for name, parameter in module.named_parameters():
        tensors[name] = parameter.detach().clone()
        if stream is not None and parameter.requires_grad and parameter.numel():
            scale = _MOVE / (parameter[0].numel() if parameter.ndim > 1 else 1) ** 0.5
            move = torch.from_numpy(stream.standard_normal(tuple(parameter.shape) or (1,)))
            tensors[name] += (scale * move).view(parameter.shape).to(parameter.dtype)
    return {place: tensors[name] for place, name in places(module).items()}


def _outputs(module: nn.Module, tensors: _Tensors, batch: torch.Tensor, tolerance: float) -> torch.Tensor:
    """The module's outputs on a batch, if nothing about them speaks of mixing examples."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]), attributes_restored(module):
        random_state = torch.get_rng_state()
        outputs = _run(module, tensors, batch)
        _refuse_randomness(module, drawn=not torch.equal(random_state, torch.get_rng_state()))
        _refuse_state(module, _change(_run(module, tensors, batch), outputs), _limit(outputs, tolerance))
        for row, other in enumerate(_other_batches(batch)):
            change = _change(_run(module, tensors, other)[row], outputs[row])
            if not change <= _limit(outputs, tolerance):
                raise UnsupportedLayerError(
                    f"module {type(module).__name__} mixes the examples of a batch: one example's output changes by "
                    f"{change:.3g} with the others; use layers that treat examples one by one, such as nn.GroupNorm, "
                    "instead."
                )
    return outputs


def _run(module: nn.Module, tensors: _Tensors, batch: torch.Tensor) -> torch.Tensor:
    """One run; what it changes of the tensors, the next run sees, as it would in training."""
    outputs = functional_call(module, tensors, (batch.clone(),), tie_weights=False)
    if not isinstance(outputs, torch.Tensor):
        raise not_a_tensor(module, outputs)
    if outputs.ndim < 1 or len(outputs) != len(batch):
        raise UnsupportedLayerError(
            f"module {type(module).__name__} gives outputs of shape {tuple(outputs.shape)} for {len(batch)} examples; "
            "use one whose outputs have an example each along the first dimension instead."
        )
    return outputs.clone()


def _refuse_randomness(module: nn.Module, drawn: bool) -> None:
    if drawn:
        raise UnsupportedLayerError(
            f"module {type(module).__name__} draws from the global random generator as it runs, so that two runs on "
            "one batch differ; use it without random operations, such as functional.dropout, instead."
        )


def _refuse_state(module: nn.Module, change: float, limit: float) -> None:
    if not change <= limit:
        raise UnsupportedLayerError(
            f"module {type(module).__name__} changes its own state as it runs, so that two runs on one batch differ "
            f"(by {change:.3g}); use it without layers that keep state, or in eval mode, instead."
        )


def _limit(outputs: torch.Tensor, tolerance: float) -> float:
    """The largest change that counts as rounding, by the largest of the finite outputs."""
    finite = outputs[torch.isfinite(outputs)]
    return tolerance * max(float(finite.abs().max()) if finite.numel() else 0.0, 1e-12)


def _change(first: torch.Tensor, second: torch.Tensor) -> float:
    """The largest change; none where both are NaN or the same infinity, infinite where one alone is."""
    if not first.numel():
        return 0.0
    same = (first == second) | (first.isnan() & second.isnan())
    wide = torch.complex128 if first.is_complex() else torch.float64
    change = torch.where(same, 0.0, (first.to(wide) - second.to(wide)).abs())
    return float(change.nan_to_num(nan=float("inf")).max())


def _other_batches(inputs: torch.Tensor) -> Iterator[torch.Tensor]:
    """For each example a batch in which only it stays in place."""
    for row in range(len(inputs)):
        moved = inputs.roll(1, dims=0)
        moved[row] = inputs[row]
        yield moved
