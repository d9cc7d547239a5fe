"""Taps: where a weight or bias is used once, in a Linear or Conv2d operation, its gradient follows from a small one.

A tap is a zero that is added to the operation's output. The loss's gradient with respect to the tap, together
with the operation's input, gives each example's gradient of weight and bias, without a dense gradient of either
by autograd, and for Linear its norm without the gradient itself.

>>> import torch
>>> weight = torch.ones(2, 3)
>>> finder = TapFinder({"weight": weight})
>>> with finder:
...     output = torch.nn.functional.linear(torch.ones(1, 3), weight)
>>> finder.sites()
{'weight': Site(kind='linear', weight='weight', bias=None, shape=(1, 2), options={})}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

_POOLS = (functional.max_pool2d, torch.max_pool2d)
_VECTOR_WIDTH = 8


@dataclass(frozen=True)
class Site:
    """One Linear or Conv2d operation whose weight or bias can be tapped.

    Attributes:
        kind: ``linear`` or ``conv2d``.
        weight: the name of its weight, if it can be tapped.
        bias: the name of its bias, if it can be tapped.
        shape: the shape of the output for one example, batch dimension of 1 included.
        options: stride, padding, dilation (pairs), groups and kernel of a convolution.
    """

    kind: str
    weight: str | None
    bias: str | None
    shape: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def key(self) -> str:
        """The name under which the site is kept: its weight's or else its bias's."""
        return self.weight or self.bias or ""


@dataclass(frozen=True)
class _Call:
    kind: str
    inputs: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    options: Mapping[str, Any]


def _linear_call(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> _Call | None:
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        return None  # a bias of another shape is broadcast, and its gradient is another sum
    return _Call("linear", inputs, weight, bias, {})


def _conv2d_call(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: str | int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> _Call | None:
    if isinstance(padding, str) or input.ndim != 4 or weight.ndim != 4 or len(input) != 1:
        return None  # several images in one example would have to be summed over
    options = {
        "stride": _pair(stride),
        "padding": _pair(padding),
        "dilation": _pair(dilation),
        "groups": groups,
        "kernel": tuple(weight.shape[2:]),
    }
    return _Call("conv2d", input, weight, bias, options)


def _pair(value: int | Iterable[int]) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return (values[0], values[-1])


_CALLS: dict[Any, Callable[..., _Call | None]] = {functional.linear: _linear_call, torch.conv2d: _conv2d_call}


def _call_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    """The operation as a Linear or Conv2d call, or None if it is something else."""
    parse = _CALLS.get(func)
    if parse is None:
        return None
    names = {"input": "inputs"} if parse is _linear_call else {}
    return parse(*args, **{names.get(name, name): value for name, value in kwargs.items()})


class TapFinder(TorchFunctionMode):
    """Finds, while a model runs, the tensors whose only use is as weight or bias of a Linear or Conv2d operation."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Look for the given tensors, by identity."""
        super().__init__()
        self._names = {id(tensor): name for name, tensor in tensors.items()}
        self._uses = dict.fromkeys(tensors, 0)
        self._found = list[Site]()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count every use of a tensor, and note Linear and Conv2d operations."""
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs)):
            if id(leaf) in self._names:
                self._uses[self._names[id(leaf)]] += 1
        call = _call_of(func, args, kwargs or {})
        if call is not None:
            weight, bias = self._names.get(id(call.weight)), self._names.get(id(call.bias))
            if weight or bias:
                self._found.append(Site(call.kind, weight, bias, tuple(output.shape), call.options))
        return output

    def sites(self) -> dict[str, Site]:
        """The sites by their key; tensors with any other or second use are left out."""
        found = dict[str, Site]()
        for site in self._found:
            weight = site.weight if site.weight and self._uses[site.weight] == 1 else None
            bias = site.bias if site.bias and self._uses[site.bias] == 1 else None
            kept = Site(site.kind, weight, bias, site.shape, site.options)
            if kept.key:
                found[kept.key] = kept
        return found


class Tapping(TorchFunctionMode):
    """Adds the taps while a model runs, and keeps the inputs of the tapped operations."""

    def __init__(
        self, sites: Mapping[str, Site], tensors: Mapping[str, torch.Tensor], taps: Mapping[str, torch.Tensor]
    ) -> None:
        """Tap the given sites; ``tensors`` are the parameters, by identity."""
        super().__init__()
        self._sites = {
            id(tensors[name]): key for key, s in sites.items() for name in (s.weight, s.bias) if name
        }
        self._keep = {key for key, site in sites.items() if site.weight}
        self._taps = taps
        self.inputs = dict[str, torch.Tensor]()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Add a tap to the output of a tapped operation; let max-pooling work with channels last."""
        if func in _POOLS and len(args) and isinstance(args[0], torch.Tensor):
            return _pool(func, args[0], args[1:], kwargs or {})
        output = func(*args, **(kwargs or {}))
        call = _call_of(func, args, kwargs or {})
        key = None if call is None else self._sites.get(id(call.weight), self._sites.get(id(call.bias)))
        if call is None or key is None:
            return output
        if key in self._keep:
            self.inputs[key] = call.inputs.clone()  # a later operation may change its input in place
        return output + self._taps[key]


class FastPooling(TorchFunctionMode):
    """Within this context max-pooling works with channels last: the same values, ten times faster on a CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Change the memory layout around max-pooling, and nothing else."""
        if func in _POOLS and len(args) and isinstance(args[0], torch.Tensor):
            return _pool(func, args[0], args[1:], kwargs or {})
        return func(*args, **(kwargs or {}))


def _pool(func: Any, images: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same pooling on the same values, with channels last in memory: ten times faster on a CPU."""
    if images.ndim != 4 or images.shape[1] < _VECTOR_WIDTH:
        return func(images, *args, **kwargs)
    output = func(images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), *args, **kwargs)
    return output.contiguous() if isinstance(output, torch.Tensor) else output
