"""The rule for layers without one of their own: torch.func on that layer alone, at its saved inputs.

>>> layer = nn.Conv1d(1, 1, 2, bias=False)
>>> compute = ModuleGradients(layer, ("weight",), {"weight": layer.weight.detach()}).of("weight")
>>> compute((torch.tensor([[[1.0, 2.0, 4.0]]]),), torch.ones(1, 1, 2))
tensor([[3., 6.]])
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.func import functional_call, vjp, vmap

from sfumato.dpsgd.layer_rules import Compute, Inputs
from sfumato.dpsgd.sites import Call, Site, UnplannedError, Watch
from sfumato.dpsgd.stateless import attributes_restored, places


class ModuleGradients:
    """Per-example gradients of several parameters of one module by ``vmap(vjp(...))``, computed once for all."""

    def __init__(self, layer: nn.Module, names: tuple[str, ...], tensors: Mapping[str, torch.Tensor]) -> None:
        """Differentiate the parameters ``names`` of a module.

        Args:
            layer: the module.
            names: parameters, as the module names them.
            tensors: all of the module's parameters and buffers, as it names them.
        """
        self._layer, self._places = layer, places(layer)
        self._variable = {name: tensors[name] for name in names}
        self._constant = {name: tensor for name, tensor in tensors.items() if name not in names}
        self._last: tuple[torch.Tensor, dict[str, torch.Tensor]] | None = None

    def of(self, name: str) -> Compute:
        """Gradients Tensor[N, size] of one of the parameters."""

        def compute(inputs: Inputs, gradient: torch.Tensor) -> torch.Tensor:
            if self._last is None or self._last[0] is not gradient:
                self._last = (gradient, self._all(inputs, gradient))
            found = self._last[1].pop(name).flatten(1)
            if not self._last[1]:
                self._last = None
            return found

        return compute

    def _all(self, inputs: Inputs, gradient: torch.Tensor) -> dict[str, torch.Tensor]:
        def of_one(example: Inputs, pull: torch.Tensor) -> dict[str, torch.Tensor]:
            def run(variable: dict[str, torch.Tensor]) -> torch.Tensor:
                tensors = self._constant | variable
                swapped = {place: tensors[name] for place, name in self._places.items()}
                arguments = tuple(part.unsqueeze(0).clone() for part in example)
                return functional_call(self._layer, swapped, arguments, tie_weights=False)

            back = cast(Any, vjp(run, self._variable)[1])
            return back(pull.unsqueeze(0))[0]

        with attributes_restored(self._layer):
            return vmap(of_one)(tuple(part.detach() for part in inputs), gradient.detach())


class ModuleWatch:
    """Sees the calls of given modules while a model runs, and which uses of parameters lie within them."""

    def __init__(
        self,
        modules: Mapping[str, tuple[str, ...]],
        watch: Watch,
        report: Callable[[Call, torch.Tensor], torch.Tensor],
    ) -> None:
        """Watch modules, by their paths, for the uses of the parameters that they own."""
        self._modules, self._watch, self._report = modules, watch, report
        self._inside = dict[str, int]()

    @contextmanager
    def within(self, model: nn.Module) -> Generator[None]:
        """Within this context calls are seen; afterwards it is checked that no use lay outside of one call.

        Raises:
            UnplannedError: if a module is called twice, or one of its parameters is used outside of it.
        """
        if not self._modules:
            yield
            return
        with attributes_restored(model):
            for path, names in self._modules.items():
                layer = model.get_submodule(path)
                layer.forward = self._reporting(path, names, layer.forward)
            yield
        for path, names in self._modules.items():
            if any(self._watch.uses[name] != self._inside.get(name, 0) for name in names):
                raise UnplannedError(f"parameters of layer {path!r} are used outside of it")

    def _reporting(self, path: str, names: tuple[str, ...], forward: Any) -> Any:
        def reporting(*args: Any, **kwargs: Any) -> Any:
            if kwargs or not all(isinstance(part, torch.Tensor) for part in args):
                raise UnplannedError(f"layer {path!r} takes other arguments than tensors")
            if any(name in self._inside for name in names):
                raise UnplannedError(f"layer {path!r} is called more than once")
            call, before = Call.of(Site("module", path, None), args), dict(self._watch.uses)
            output = forward(*args)
            if not isinstance(output, torch.Tensor):
                raise UnplannedError(f"layer {path!r} returns a {type(output).__name__}")
            self._inside |= {name: self._watch.uses[name] - before[name] for name in names}
            return self._report(call, output)

        return reporting
