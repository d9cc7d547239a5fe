"""A trial of a model on public inputs: where its parameters are used, and that every site keeps examples apart.

>>> found = tried(torch.nn.Linear(2, 2), torch.zeros(1, 2))
>>> found.reason, [site.kind for site in found.sites]
(None, ['linear'])
>>> tried(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Softmax(dim=0)), torch.zeros(1, 2)).reason
'its outputs for one example change with the other examples'
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from sfumato.dpsgd.diagnosis import FAULTS, first_sentence
from sfumato.dpsgd.layout import trainable
from sfumato.dpsgd.module_rules import ModuleWatch
from sfumato.dpsgd.sites import Call, Site, UnplannedError, Watch
from sfumato.dpsgd.stateless import attributes_restored, call, places

_EXAMPLES = 3
_TOLERANCE = 1e-4
_MOVE = 0.1  # of the size of torch's own initial weights: a branch that starts at zero is to be seen
_Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Seen:
    """One run of a site in a trial.

    Attributes:
        site: the site.
        inputs: what it read.
        output: what it gave.
    """

    site: Site
    inputs: tuple[torch.Tensor, ...]
    output: torch.Tensor


@dataclass(frozen=True)
class Trial:
    """What a trial found.

    Attributes:
        reason: why the whole model is left to the functional engine; None if it is not.
        sites: in the order in which the model runs them.
        shapes: for each site's key, the shapes of its inputs and its output for one example.
        uncovered: parameters without a site, and why.
        unused: parameters that the model does not use.
        channels_last: whether the model gives the same values with images and filters in that memory format.
        modules: for each module that is a site, the parameters that it is the site of.
        strays: parameters that have no operation as their site.
        writes_inputs: whether the model works in place on what it is given.
    """

    reason: str | None = None
    sites: tuple[Site, ...] = ()
    shapes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict[str, Any])
    uncovered: Mapping[str, str] = field(default_factory=dict[str, str])
    unused: frozenset[str] = frozenset()
    channels_last: bool = False
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    strays: frozenset[str] = frozenset()
    writes_inputs: bool = True


class _Runs:
    """Runs a model on trial inputs and notes its sites."""

    def __init__(self, model: nn.Module, tensors: _Tensors) -> None:
        self.model, self.tensors, self.where = model, tensors, places(model)
        self.modules: Mapping[str, tuple[str, ...]] = {}
        self.strays: frozenset[str] = frozenset()
        self.writes_inputs = False

    def run(self, inputs: torch.Tensor) -> tuple[list[Seen], torch.Tensor, dict[str, int]]:
        """The sites, the outputs and the number of uses of each parameter."""
        seen = list[Seen]()
        tensors = self.tensors | {name: b.detach().clone() for name, b in self.model.named_buffers()}

        def report(found: Call, output: torch.Tensor) -> torch.Tensor:
            seen.append(Seen(found.site, tuple(part.clone() for part in found.inputs), output.clone()))
            return output

        watched = {id(tensors[name]): name for name, _ in trainable(self.model)}
        watch = Watch(watched, report, self.strays)
        given = inputs.clone()
        version = given._version
        with ModuleWatch(self.modules, watch, report).within(self.model), watch:
            outputs = call(self.model, tensors, self.where, given)
        self.writes_inputs = self.writes_inputs or given._version != version
        if not isinstance(outputs, torch.Tensor) or not outputs.ndim or len(outputs) != len(inputs):
            raise UnplannedError("its outputs are not one tensor with a row for each example")
        return seen, outputs.clone(), watch.uses


def tried(model: nn.Module, example: torch.Tensor) -> Trial:
    """Run a model on random inputs and find its sites; no data is read.

    Every site must read and give rows that belong to one example each: the rows of an example may not change
    when the other examples of the batch do, nor with their number. The model's parameters are moved at random
    for the trial. A trial can only find mixing, not prove its absence.

    Args:
        model: left as it was.
        example: Tensor[B, ...] of the inputs' shape, dtype and device; its values are not read.
    """
    reason = "its values are not finite on trial inputs"
    for uniform in (False, True):
        inputs = _trial_inputs(example, uniform)
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad(), attributes_restored(model):
                state = torch.get_rng_state()
                found = _try(model, inputs)
                if not torch.equal(state, torch.get_rng_state()):
                    return Trial("it draws from the global random generator")
            if found is not None:
                return found
        except UnplannedError as error:
            return Trial(str(error))
        except FAULTS as error:
            reason = f"it cannot be run on a trial ({first_sentence(error)})"
    return Trial(reason)


def _try(model: nn.Module, inputs: torch.Tensor) -> Trial | None:
    """What is found on the inputs; None if the values are not finite."""
    runs = _Runs(model, _moved(model))
    first = _covering(runs, inputs)
    seen, outputs, uses = first
    if not all(bool(torch.isfinite(part).all()) for part in (outputs, *(found.output for found in seen))):
        return None
    alone = [
        (_changed_at(inputs, row), [n for n in range(_EXAMPLES) if n != row]) for row in range(_EXAMPLES)
    ]
    for others, kept in (*alone, (inputs[:2], [0, 1])):
        other_seen, other_outputs, other_uses = runs.run(others)
        if other_uses != uses or [s.site for s in other_seen] != [s.site for s in seen]:
            return Trial("what it does depends on values or number of its inputs")
        if not _same(outputs[kept], other_outputs[kept]):
            return Trial("its outputs for one example change with the other examples")
        for one, other in zip(seen, other_seen, strict=True):
            for a, b in zip((*one.inputs, one.output), (*other.inputs, other.output), strict=True):
                if not _rows(a, len(inputs)) or not _rows(b, len(others)) or not _same(a[kept], b[kept]):
                    return Trial(f"{one.site.key!r} reads or gives no rows that belong to one example each")
    sites = tuple(found.site for found in seen)
    shapes = {
        found.site.key: tuple(tuple(part.shape[1:]) for part in (*found.inputs, found.output))
        for found in seen
    }
    covered = {site.weight for site in sites} | {site.bias for site in sites}
    covered |= {name for names in runs.modules.values() for name in names}
    why = "used {} time(s), and not within one call of one layer that holds it"
    return Trial(
        sites=sites,
        shapes=shapes,
        uncovered={n: why.format(count) for n, count in uses.items() if count and n not in covered},
        unused=frozenset(name for name, count in uses.items() if not count),
        channels_last=_channels_last(runs, inputs, outputs, sites),
        modules=runs.modules,
        strays=runs.strays,
        writes_inputs=runs.writes_inputs,
    )


def _changed_at(inputs: torch.Tensor, row: int) -> torch.Tensor:
    """The inputs with other numbers, or the other one of two ids, in one row."""
    changed = inputs.clone()
    changed[row] = ~inputs[row] if inputs.dtype == torch.bool else 1 - inputs[row]
    return changed


def _covering(runs: _Runs, inputs: torch.Tensor) -> tuple[list[Seen], torch.Tensor, dict[str, int]]:
    """A run in which parameters that no operation's rule covers are left to their modules, where that is possible."""
    seen, outputs, uses = runs.run(inputs)
    names = {name for found in seen for name in (found.site.weight, found.site.bias)}
    runs.strays = frozenset(
        name for name, count in uses.items() if count > 1 or (count and name not in names)
    )
    if not runs.strays:
        return seen, outputs, uses
    modules = dict[str, tuple[str, ...]]()
    for name in sorted(runs.strays):
        owners = [place.rpartition(".")[0] for place, owned in runs.where.items() if owned == name]
        if len(owners) == 1 and owners[0]:
            modules[owners[0]] = (*modules.get(owners[0], ()), name)
    for path, owned in modules.items():
        runs.modules = {path: owned}
        with suppress(UnplannedError):
            runs.run(inputs)
            continue
        modules = {other: names for other, names in modules.items() if other != path}
    runs.modules = modules
    return runs.run(inputs)


def _rows(tensor: torch.Tensor, count: int) -> bool:
    return tensor.ndim > 0 and len(tensor) == count


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    largest = max(float(one.abs().max()) if one.numel() else 0.0, 1e-12)
    return one.numel() == 0 or float((one - other).abs().max()) <= _TOLERANCE * largest


def _trial_inputs(example: torch.Tensor, uniform: bool) -> torch.Tensor:
    """Three examples: normal or uniform numbers, or ids 0 and 1, from a generator of their own."""
    source = torch.Generator().manual_seed(0)
    shape = (_EXAMPLES, *example.shape[1:])
    if not example.is_floating_point():
        values = torch.randint(0, 2, shape, generator=source)
        values[1:] = torch.stack([1 - values[0], values[0]])
        return values.to(example.dtype).to(example.device)
    values = (
        torch.rand(shape, generator=source) * 0.9 + 0.05 if uniform else torch.randn(shape, generator=source)
    )
    return values.to(example.dtype).to(example.device)


def _moved(model: nn.Module) -> _Tensors:
    """The parameters by name, those that are trained moved at random."""
    source, found = torch.Generator().manual_seed(1), _Tensors()
    for name, parameter in model.named_parameters():
        found[name] = parameter.detach().clone()
        if parameter.requires_grad and parameter.numel():
            scale = _MOVE / (parameter[0].numel() if parameter.ndim > 1 else 1) ** 0.5
            move = torch.randn(parameter.shape, generator=source) * scale
            found[name] += move.to(parameter.dtype).to(parameter.device)
    return found


def _channels_last(runs: _Runs, inputs: torch.Tensor, outputs: torch.Tensor, sites: tuple[Site, ...]) -> bool:
    """Whether the model gives the same values with images and filters in channels last, where that is faster."""
    convolutions = [site for site in sites if site.kind == "conv2d"]
    if inputs.dtype != torch.float32 or not convolutions:
        return False
    if any(site.options["dilation"] != (1, 1) for site in convolutions):
        return False  # torch 2.13 can end the process on dilated convolutions of small images in this format
    runs.tensors = {name: in_channels_last(tensor) for name, tensor in runs.tensors.items()}
    try:
        return _same(outputs, runs.run(in_channels_last(inputs))[1])
    except (UnplannedError, *FAULTS):
        return False


def in_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor of four dimensions with its second one last in memory; others as they are."""
    if tensor.ndim != 4:
        return tensor
    copy = torch.empty(
        tensor.shape, dtype=tensor.dtype, device=tensor.device, memory_format=torch.channels_last
    )
    return copy.copy_(tensor)
