"""The planned engine: exact per-example clipping inside one backward pass, with a rule for each layer.

>>> from torch import nn
>>> model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2, bias=False))
>>> support = Support.of([1, 15, 16, 17], 21)
>>> print(PlannedEngine(kernels="torch").plan(model, support, torch.zeros(1, 4)).explain())
layer  parameter  active  rule      why
0      weight     1/12    masked    8% of the weight: one product with the mask
2      weight     3/6     rank_one  whole rows
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Hashable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from types import ModuleType, NoneType
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sfumato.clipping import clip_factors
from sfumato.dpsgd.backward import Sightings
from sfumato.dpsgd.diagnosis import FAULTS, first_sentence
from sfumato.dpsgd.engine import (
    Batch,
    ClippedSum,
    Loss,
    active_parameters,
    checked_batch,
    checked_losses,
)
from sfumato.dpsgd.functional import FunctionalEngine
from sfumato.dpsgd.kernel_loading import kernels_or_none
from sfumato.dpsgd.layer_choices import Materials
from sfumato.dpsgd.layer_rules import Part
from sfumato.dpsgd.layout import trainable
from sfumato.dpsgd.module_rules import ModuleWatch
from sfumato.dpsgd.plain import each, why_not_plain
from sfumato.dpsgd.planner import Choice, Plan, make_plan
from sfumato.dpsgd.scratch import Scratch
from sfumato.dpsgd.sites import UnplannedError, Watch
from sfumato.dpsgd.stateless import call, layers, places
from sfumato.dpsgd.support import Support
from sfumato.dpsgd.trial import Trial, in_channels_last, tried
from sfumato.dpsgd.validation import refuse_layers
from sfumato.errors import SfumatoError

_TINY = 1e-12  # below such clip norms, squares of float32 gradients could vanish and a norm be taken for less
_OWN = ("_parameters", "_buffers", "_modules")
_SIMPLE = (bool, int, float, str, tuple, NoneType)
_PLANS = 4  # plans kept for each model


@dataclass
class _Known:
    """What an engine remembers of a model: what serves its present state, the latest plans, and the kernels' memory."""

    state: Hashable
    kernels: ModuleType | None
    trials: dict[Hashable, Trial] = field(default_factory=dict[Hashable, Trial])
    plans: list[tuple[Support, Hashable, Plan]] = field(default_factory=list[tuple[Support, Hashable, Plan]])
    said: bool = False
    spare: list[Scratch] = field(default_factory=list[Scratch])  # one for each thread that had one at once


@dataclass(frozen=True)
class PlannedEngine:
    """The engine on one backward pass over each micro-batch, with frozen parameters and a plan.

    Parameters are not differentiated. Each layer with an active parameter keeps its input, and a hook at its output
    computes its per-example gradients at the active coordinates, or for Linear only their norms, in the place of a
    weight gradient; below the lowest such layer nothing is differentiated. The batch runs as one, so that a model
    must not mix examples. Models made of torch's own layers in a row (``plain.PLAIN``) cannot; of others, one that is
    ``trusted`` is tried on random inputs, once for each model, whether every layer's rows belong to one example each.
    A model that is neither, that does not pass, that asks for values of the data or that uses a parameter in ways
    without a rule, and a clip norm below 1e-12, is left to the functional engine, which computes every example by
    itself; ``plan(...).explain()`` says so. The loss is computed for every example by itself, unless it is
    one of torch's own that cannot mix them (``plain.LOSSES``).

    Guarantee: that of ``Engine.clipped_sum``; for a ``trusted`` model on the condition that the trust is justified:
    that neither its values nor its gradients for one example ever depend on another, on no data at all.

    Attributes:
        micro_batch: how many examples are held at once; None chooses by shapes (32 for images, 16 where large gradients are held).
        kernels: ``numba``, or ``torch`` for plain torch operations, which also serve other dtypes than float32 and
            other devices than the CPU.
        trusted: whether models with code of their own may run as one batch: the caller's word that they keep
            examples apart. A trial finds many that do not, not all.
    """

    micro_batch: int | None = None
    kernels: str = "numba"
    trusted: bool = False
    _known: WeakKeyDictionary[nn.Module, _Known] = field(
        default_factory=WeakKeyDictionary[nn.Module, _Known], repr=False, compare=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        """Without what is remembered."""
        return PlannedEngine, (self.micro_batch, self.kernels, self.trusted)

    def plan(self, model: nn.Module, support: Support, inputs: torch.Tensor) -> Plan:
        """The plan for inputs like these; ``explain()`` on it gives a table.

        Args:
            model: left as it was.
            support: the active coordinates.
            inputs: Tensor[B, ...]; only shape, dtype and device count.

        Raises:
            SfumatoError: if the support is not over the model's trainable parameters.
            UnsupportedLayerError: if a layer mixes examples or cannot be handled.
        """
        reason = None if self.trusted else why_not_plain(model)
        state = (reason, _state(model))
        shape = (tuple(inputs.shape[1:]), inputs.dtype, inputs.device)
        known = self._known.get(model)
        if known is None or known.state != state:
            refuse_layers(model)
            known = self._known[model] = _Known(state, self._usable_kernels(model))
        for kept, key, plan in known.plans:
            if key == shape and (kept is support or kept == support):
                return plan
        active = active_parameters(model, support)
        if shape not in known.trials:
            known.trials[shape] = tried(model, inputs) if reason is None else Trial(_untrusted(reason))
        plan = make_plan(known.trials[shape], model, active, known.kernels)
        known.plans = [(support, shape, plan), *known.plans[: _PLANS - 1]]
        known.spare.clear()  # its pieces have other sizes
        return plan

    def _usable_kernels(self, model: nn.Module) -> ModuleType | None:
        plain = all(p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters())
        return kernels_or_none(self.kernels) if plain else None

    def clipped_sum(
        self, model: nn.Module, loss: Loss, batch: Batch, support: Support, clip_norm: float
    ) -> ClippedSum:
        """As ``Engine.clipped_sum`` says, for models whose examples do not mix; the result is on the CPU."""
        inputs, targets, bound = checked_batch(batch, clip_norm)
        total, norms = self.exact_sum(model, loss, (inputs, targets), support, bound)
        return ClippedSum(total.float().cpu(), norms.float().cpu(), bound)

    def exact_sum(
        self, model: nn.Module, loss: Loss, batch: Batch, support: Support, clip_norm: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The clipped sum Tensor[k] in the parameters' precision, norms Tensor[B] in float64; else as ``clipped_sum``."""
        inputs, targets = batch
        if not len(inputs) or not support.k:
            active_parameters(model, support)  # refuses a support of another model
            return torch.zeros(support.k, dtype=torch.float64), torch.zeros(len(inputs), dtype=torch.float64)
        plan = self.plan(model, support, inputs)
        if plan.whole is None and clip_norm >= _TINY:
            kernels, micro_batch = self._known[model].kernels, self.micro_batch or plan.micro_batch
            try:
                with self._scratch(model) as scratch:
                    run = _Run(model, loss, plan, kernels, micro_batch, clip_norm, scratch)
                    return run.clipped(inputs, targets)
            except SfumatoError:
                raise
            except (UnplannedError, *FAULTS) as error:  # functional can do it, or says what is at fault
                reason = first_sentence(error)
        else:
            reason = plan.whole or f"the clip norm {clip_norm:g} is below {_TINY:g}"
        other = FunctionalEngine(self.micro_batch).clipped_sum(model, loss, batch, support, clip_norm)
        self._warn_once(model, reason)
        return other.sum.double(), other.norms.double()

    @contextmanager
    def _scratch(self, model: nn.Module) -> Generator[Scratch]:
        """The kernels' memory, which is kept until the model or its plan goes."""
        spare = self._known[model].spare
        scratch = spare.pop() if spare else Scratch()
        try:
            yield scratch
        finally:
            scratch.forget()
            spare.append(scratch)

    def _warn_once(self, model: nn.Module, reason: str) -> None:
        """Say once for each model that it takes the slow path, and why the first time."""
        known = self._known.get(model)
        if known is not None and not known.said:
            known.said = True
            warnings.warn(
                f"model {type(model).__name__} is left to the slower functional engine: {reason}.",
                stacklevel=4,
            )


class _Run:
    """One clipped sum."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        plan: Plan,
        kernels: ModuleType | None,
        micro_batch: int,
        clip_norm: float,
        scratch: Scratch,
    ) -> None:
        self.model, self.loss, self.plan = model, loss, plan
        self.micro_batch, self.clip_norm = micro_batch, clip_norm
        last = plan.trial.channels_last
        self.where = places(model)
        self.tensors = {
            name: in_channels_last(p.detach()) if last else p.detach() for name, p in model.named_parameters()
        }
        self.copied: Callable[[torch.Tensor], torch.Tensor] = in_channels_last if last else torch.clone
        if not last and not plan.trial.writes_inputs:
            self.copied = torch.detach
        self.buffers = {name: buffer.detach() for name, buffer in model.named_buffers()}
        self.device = next(iter(self.tensors.values())).device
        tensors = self.tensors | self.buffers
        materials = Materials(model, tensors, self.where, kernels, {}, clip_norm, scratch)
        self.parts: dict[str, Part] = {
            choice.part.name: choice.rule.start(materials) for choice in plan.choices if choice.rule
        }
        names = {choice.part.name for choice in plan.choices}
        self.watched = {id(self.tensors[name]): name for name, _ in trainable(model) if name in names}

    def clipped(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The clipped sum, in the precision of the parts, and the norms, float64."""
        norms, unit = list[torch.Tensor](), min(self.clip_norm, 1.0)
        for start in range(0, len(inputs), self.micro_batch):
            chunk = slice(start, start + self.micro_batch)
            squares = self._squares(inputs[chunk], targets[chunk])
            norms.append(squares.sqrt())
            weights = (
                clip_factors(norms[-1], self.clip_norm) / unit
            )  # so that none is a denormal float32 number
            broken = ~torch.isfinite(norms[-1])
            for part in self.parts.values():
                part.add(weights, broken)
        pieces = [self._piece(choice) for choice in self.plan.choices]
        return torch.cat(pieces).mul_(unit), torch.cat(norms)

    def _piece(self, choice: Choice) -> torch.Tensor:
        """The sum over one parameter's active coordinates; zeros if no gradient reached it."""
        part, rule = choice.part, choice.rule
        found = self.parts[part.name].result() if rule is not None else torch.zeros(0)
        active = part.size if part.local is None else part.local.numel()
        return found if len(found) else self.tensors[part.name].new_zeros(active)

    def _squares(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Tensor[b], float64: the squared norms of one micro-batch, whose gradients the parts now hold."""
        sightings = Sightings(self.plan, self.parts, len(inputs), self.device)
        watch = Watch(self.watched, sightings.report, self.plan.trial.strays)
        modules = ModuleWatch(self._modules(), watch, sightings.report)
        tensors = self.tensors | {name: buffer.clone() for name, buffer in self.buffers.items()}
        given = self.copied(inputs)
        version = given._version
        with torch.enable_grad():
            with modules.within(self.model), watch:
                outputs = call(self.model, tensors, self.where, given)
            if given._version != version and self.copied is torch.detach:
                raise SfumatoError(
                    f"model {type(self.model).__name__} wrote to its inputs, which it did not when it was tried on random ones; "
                    "allowed is a model that does so always or never."
                )
            sightings.check(watch.uses)
            losses = checked_losses(each(self.loss)(outputs, targets), len(inputs))
            if losses.requires_grad:
                torch.autograd.grad(losses.sum(), sightings.anchor, allow_unused=True)
        return sightings.squares

    def _modules(self) -> dict[str, tuple[str, ...]]:
        """The modules that are sites of active parameters, with those."""
        found = dict[str, tuple[str, ...]]()
        for choice in self.plan.choices:
            key, role = choice.site
            if role == "module":
                found[key] = (*found.get(key, ()), choice.part.name)
        return found


def _untrusted(reason: str) -> str:
    return (
        f"{reason}, and only torch's own layers in nn.Sequential are known to keep examples apart; "
        "get_engine(trusted=True) takes your word for it"
    )


def _parts(value: Iterable[object]) -> Iterable[object]:
    return (
        chain.from_iterable(cast("dict[object, object]", value).items()) if isinstance(value, dict) else value
    )


def _told(part: object) -> object:
    """A setting by its value, anything else by its identity."""
    return cast(object, part) if isinstance(part, _SIMPLE) else id(part)


def _state(model: nn.Module) -> Hashable:
    """What a trial of the model depends on, apart from the values of its parameters."""
    found = list[Hashable]()
    for path, layer in layers(model):
        attributes, kept, callables = vars(layer), list[object](), list[object]()
        for name, value in cast("dict[str, object]", attributes).items():
            if isinstance(value, _SIMPLE):
                kept.append((name, cast(object, value)))
            elif isinstance(value, dict) and "_hooks" in name:
                callables += [(name, id(hook)) for hook in cast("dict[int, object]", value).values()]
            elif isinstance(value, (dict, list, set)) and name not in _OWN:
                kept.append((name, [_told(part) for part in _parts(cast("Iterable[object]", value))]))
            elif callable(cast(object, value)):
                callables.append((name, id(cast(object, value))))
        own = [
            (name, id(p), p.shape, p.dtype, p.device, p.requires_grad)
            for name, p in cast("dict[str, nn.Parameter | None]", attributes["_parameters"]).items()
            if p is not None
        ]
        found.append((path, id(layer), type(layer), repr(kept), tuple(callables), tuple(own)))
    return tuple(found)
