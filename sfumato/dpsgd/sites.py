"""Sites: the operations of a model in which its parameters are used, seen while the model runs.

Operations are watched, not modules: a parameter is used where a torch function receives it, whoever calls that
function. A parameter that is used once, as weight or bias of an operation with a rule, has a site there. One that
is used otherwise has its module as a site, if all of its uses lie within one call of that module.

>>> weight = torch.ones(2, 3)
>>> seen = []
>>> with Watch({id(weight): "weight"}, lambda call, output: (seen.append(call), output)[1]) as watch:
...     output = functional.linear(torch.ones(1, 3), weight)
>>> seen[0].site, watch.uses["weight"]
(Site(kind='linear', weight='weight', bias=None, options={'rows': True}), 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from sfumato.dpsgd.kernel_layout import same_padding


class UnplannedError(Exception):
    """A model does something that the planned engine has no rule for; the functional engine is to take over."""


@dataclass(frozen=True)
class Site:
    """Where parameters are used.

    Attributes:
        kind: ``linear``, ``conv2d``, ``group_norm``, ``layer_norm``, ``embedding`` or ``module``.
        weight: the name of the weight, if it is watched; for a module, its dotted name.
        bias: the name of the bias, if it is watched.
        options: what else the rule needs to know.
    """

    kind: str
    weight: str | None
    bias: str | None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def key(self) -> str:
        """What a site is known by: its weight, or else its bias."""
        return self.weight or self.bias or ""


@dataclass(frozen=True)
class Call:
    """One run of a site.

    Attributes:
        site: the site.
        inputs: the activations that it reads.
        versions: torch's count of changes in place for each of them, when they were read.
    """

    site: Site
    inputs: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]

    @classmethod
    def of(cls, site: Site, inputs: tuple[torch.Tensor, ...]) -> Call:
        """A call that reads the inputs now."""
        return cls(site, inputs, tuple(part._version for part in inputs))

    def unchanged(self) -> tuple[torch.Tensor, ...]:
        """The inputs, if no later operation has changed them in place.

        Raises:
            UnplannedError: if one has.
        """
        if any(part._version != version for part, version in zip(self.inputs, self.versions, strict=True)):
            raise UnplannedError(f"the input of {self.site.key!r} is changed in place after it is used")
        return self.inputs


_Parsed = tuple[str, torch.Tensor, Any, Any, dict[str, Any]]


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> _Parsed | None:
    if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        return None  # a bias of another shape is broadcast, and its gradient is another sum
    return "linear", input, weight, bias, {"rows": input.ndim == 2}


def _pair(value: int | Iterable[int]) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values[0], values[-1]


def _conv2d(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> _Parsed | None:
    if input.ndim != 4 or weight.ndim != 4:
        return None
    kernel, spread = (weight.shape[2], weight.shape[3]), _pair(dilation)
    if padding == "same":
        zeros = same_padding(kernel, spread)
    else:
        zeros = (0, 0, 0, 0) if padding == "valid" else _pair(padding) * 2
    options = {
        "stride": _pair(stride),
        "padding": zeros,
        "dilation": spread,
        "groups": groups,
        "kernel": kernel,
    }
    return "conv2d", input, weight, bias, options


def _group_norm(
    input: torch.Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> _Parsed:
    return "group_norm", input, weight, bias, {"groups": num_groups, "eps": eps}


def _layer_norm(
    input: torch.Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> _Parsed:
    return "layer_norm", input, weight, bias, {"shape": tuple(normalized_shape), "eps": eps}


def _embedding(
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> _Parsed | None:
    if max_norm is not None or scale_grad_by_freq or sparse:
        return None
    return "embedding", input, weight, None, {"padding": padding_idx}


_PARSERS: dict[Any, Callable[..., _Parsed | None]] = {
    functional.linear: _linear,
    torch.conv2d: _conv2d,
    functional.group_norm: _group_norm,
    functional.layer_norm: _layer_norm,
    functional.embedding: _embedding,
}
_QUESTIONS = {
    getattr(torch.Tensor, name)
    for name in ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__")
} | {torch.equal, torch.allclose, torch.nonzero, torch.Tensor.nonzero}
_DESCRIPTIONS = {
    getattr(torch.Tensor, name).__get__
    for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad")
} | {torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.__len__}


class Watch(TorchFunctionMode):
    """Counts every use of the named tensors while a model runs, and reports the operations that have a rule."""

    def __init__(
        self,
        names: Mapping[int, str],
        report: Callable[[Call, torch.Tensor], torch.Tensor],
        only_counted: frozenset[str] = frozenset(),
    ) -> None:
        """Watch the tensors of the given identities.

        Args:
            names: the tensors' names by ``id``.
            report: called with each operation that has a rule and its output; what it returns is the output.
            only_counted: names whose uses are counted but not reported.
        """
        super().__init__()
        self._names, self._report = names, report
        self._reported = {key: name for key, name in names.items() if name not in only_counted}
        self.uses = dict.fromkeys(names.values(), 0)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function as it is, or report it.

        Raises:
            UnplannedError: if it asks for a value of a tensor, on which what the model does could depend.
        """
        kwargs = kwargs or {}
        if func in _QUESTIONS:
            raise UnplannedError(f"it asks for values of a tensor ({func.__name__})")
        used = [self._names[key] for key in _identities((*args, *kwargs.values())) if key in self._names]
        if not used or func in _DESCRIPTIONS:
            return func(*args, **kwargs)
        for name in used:
            self.uses[name] += 1
        parser = _PARSERS.get(func)
        parsed = None if parser is None else parser(*args, **kwargs)
        if parsed is None:
            return func(*args, **kwargs)
        kind, inputs, weight, bias, options = parsed
        site = Site(kind, self._reported.get(id(weight)), self._reported.get(id(bias)), options)
        call = Call.of(site, (inputs,))
        output = func(*args, **kwargs)
        return self._report(call, output) if site.key else output


def _identities(values: Iterable[Any]) -> Iterable[int]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield id(value)
        elif isinstance(value, (list, tuple)):
            yield from _identities(cast("Iterable[Any]", value))
        elif isinstance(value, dict):
            yield from _identities(cast("dict[Any, Any]", value).values())
