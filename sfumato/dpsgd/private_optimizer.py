"""Any optimiser of torch.optim made private: clip, sum, noise, record, then its own step on ``.grad``.

>>> from sfumato.rng import Streams
>>> model = nn.Linear(2, 2)
>>> private = PrivateOptimizer(
...     model, torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss(reduction="none"),
...     clip_norm=1.0, noise_multiplier=1.0, expected_batch_size=10, sampling_rate=0.01, streams=Streams(0))
>>> private.step(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
>>> private.steps, round(private.epsilon(1e-5), 2)
(1, 0.2)
"""

from __future__ import annotations

import inspect
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from sfumato.checks import is_number
from sfumato.dpsgd.engine import ActiveParameter, ClippedSum, Engine, Loss, active_parameters, get_engine
from sfumato.dpsgd.layout import ParameterLayout, trainable
from sfumato.dpsgd.privatize import privatize
from sfumato.dpsgd.support import Support
from sfumato.dpsgd.validation import validate
from sfumato.errors import SfumatoError
from sfumato.rng import Streams

if (
    TYPE_CHECKING
):  # accounting takes longer to load and more memory than this room: it is imported where it is used
    from sfumato.ledger import EventLedger


def _empty_ledger() -> EventLedger:
    from sfumato.ledger import EventLedger

    return EventLedger()


@dataclass(frozen=True, eq=False, repr=False)
class PrivateOptimizer:
    """A model, an optimiser of torch.optim and a loss, whose only step is a private one.

    ``step(inputs, targets)`` stands for zero_grad, forward, backward and step of a usual loop: the engine's clipped
    sum, noise from a stream of its own for each step, the private mean gradient in ``.grad``, and the wrapped
    optimiser's own step. That optimiser sees private gradients and public settings only, so that whatever it
    computes is post-processing; a scheduler is attached to it as usual.

    What moves: parameters with an active coordinate have zeros in ``.grad`` at their inactive ones, all others that
    the optimiser holds have ``.grad`` None and are skipped. Plain SGD and Adam from a fresh state leave
    inactive coordinates as they are. Momentum that was gathered on a larger support goes on moving them, weight
    decay shrinks them, and an optimiser that mixes the coordinates of a matrix (Muon) may move any of them; all
    this costs no privacy.

    Guarantee: for the relation "add or remove one example", each step is the Poisson-subsampled Gaussian mechanism
    that its event in ``ledger`` says, and everything that the steps leave behind in the model, in ``.grad`` and in
    the optimiser satisfies (``epsilon(delta)``, delta). Conditions: every batch is a Poisson sample of rate
    ``sampling_rate`` (``sfumato.sampling.PoissonSampler``), given to ``step`` also when it is empty;
    ``expected_batch_size``, ``sampling_rate``, the support, the model's and the optimiser's start and all their
    settings do not depend on the examples other than through what the ledger holds; the model is trained by
    nothing else; ``streams`` are in release mode and serve no other noise of that name and step;
    ``noise_multiplier`` is above 0. Noise is Gaussian in floating point: the guarantee is that of the real-valued
    mechanism.

    Source: Section 2.1 of docs/papers.md; Abadi et al. 2016 for the full support.

    Attributes:
        model: a module that ``validate`` accepts.
        optimizer: any optimiser of torch.optim whose step needs no closure, over parameters of the model alone.
        loss: per-example losses Tensor[B] from outputs and targets: a function, or a criterion with
            ``reduction="none"``.
        clip_norm: the bound on one example's gradient, between 1e-30 and 1e30.
        noise_multiplier: the noise's standard deviation in units of ``clip_norm``, of at least 0.
        expected_batch_size: the public divisor, at least 1.
        sampling_rate: with which each example joins a batch, above 0 and at most 1.
        streams: randomness; the noise of a step is the stream ``noise`` of the number of steps before it.
        support: the coordinates to train over ``ParameterLayout.of(model)``; None takes all of the trainable
            parameters that the optimiser holds, and no others count in the norm.
        engine: computes clipped sums; the planned engine by default.
        ledger: where steps are recorded. That of an earlier phase, or of the run that is resumed
            (``EventLedger.from_json``), counts on: its price is part of ``epsilon``, and no stream is drawn
            from twice.
        active: the support that is used.

    Printing one shows settings and the number of steps, no values of model, data or gradients.

    Raises:
        UnsupportedLayerError: if a layer of the model cannot be trained privately.
        SfumatoError: if a number is outside of its range, or model, optimiser, loss and support do not fit one
            another.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    _: KW_ONLY
    clip_norm: float
    noise_multiplier: float
    expected_batch_size: int
    sampling_rate: float
    streams: Streams
    support: Support | None = None
    engine: Engine = field(default_factory=get_engine)
    ledger: EventLedger = field(default_factory=_empty_ledger)
    active: Support = field(init=False)
    _layout: ParameterLayout = field(init=False)
    _parts: tuple[ActiveParameter, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Refuse what could not be trained, or not privately, before the first batch is read."""
        validate(self.model)
        _check_optimizer(self.optimizer)
        _check_loss(self.loss)
        self._check_numbers()
        held, layout = self._held(), ParameterLayout.of(self.model)
        chosen = _all_held(self.model, layout, held) if self.support is None else self.support
        object.__setattr__(self, "active", chosen)
        object.__setattr__(self, "_layout", layout)
        object.__setattr__(self, "_parts", tuple(active_parameters(self.model, chosen)))
        self._check_held(held)

    @property
    def steps(self) -> int:
        """How many steps the ledger holds; the next step's noise is the stream of this number."""
        return self.ledger.steps

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """One private step on one batch; see the class for its guarantee.

        The event is recorded before the noise is drawn: a step that is broken off afterwards stays charged, and
        its stream is not drawn from again. The loss is raw data and is not returned.

        Args:
            inputs: Tensor[B, ...], a Poisson sample; B may be 0, and noise alone is then released.
            targets: Tensor[B, ...].

        Raises:
            SfumatoError: if batch, loss and model do not fit one another, or the parameters of model or
                optimiser are no longer those that they were.
            UnsupportedLayerError: if the engine cannot handle a layer of the model.
        """
        held = self._held()
        self._layout.check(self.model)
        self._check_held(held)
        batch = inputs, targets
        clipped = self.engine.clipped_sum(self.model, self.loss, batch, self.active, self.clip_norm)
        stream = self.streams.stream("noise", self.steps)
        self._record(len(inputs))
        released = privatize(clipped, self.clip_norm, self.noise_multiplier, self.expected_batch_size, stream)
        self._write(released)
        self.optimizer.step()

    def epsilon(self, delta: float) -> float:
        """Epsilon at delta of all that the ledger holds, by PLD; infinite without noise.

        Args:
            delta: in (0, 1).

        Raises:
            AccountingError: if delta is outside of its range or the events cannot be priced.
        """
        from sfumato import accounting

        return accounting.epsilon(self.ledger.events, delta)

    def __repr__(self) -> str:
        """Settings and the number of steps; no values of model, data or gradients."""
        names = ("clip_norm", "noise_multiplier", "expected_batch_size", "sampling_rate")
        said = [f"{name}={getattr(self, name)!r}" for name in names]
        said += [
            f"active={self.active.k}/{self.active.d}",
            f"steps={self.steps}",
            f"mode={self.streams.mode!r}",
        ]
        return f"PrivateOptimizer({type(self.model).__name__}, {type(self.optimizer).__name__}, {', '.join(said)})"

    def _record(self, batch_size: int) -> None:
        """Record a step; whether its batch was empty is private and is counted in simulation only."""
        from sfumato import mechanisms

        event = mechanisms.subsampled_gaussian_step(self.sampling_rate, self.noise_multiplier)
        self.ledger.record(event, batch_size if self.streams.mode == "simulation" else None)

    def _write(self, released: torch.Tensor) -> None:
        """Put the private gradient into ``.grad``, and None where it has nothing: what else stood there is raw data."""
        found = {part.name: part for part in self._parts}
        for group in self.optimizer.param_groups:
            for parameter in cast("list[nn.Parameter]", group["params"]):
                parameter.grad = None
        for name, parameter in trainable(self.model):
            part = found.get(name)
            if part is None:
                continue
            values = released[part.place]
            if part.local is not None:
                values = torch.zeros(part.size).index_copy_(0, part.local, values)
            parameter.grad = torch.empty_like(parameter).copy_(values.view(parameter.shape))

    def _held(self) -> set[int]:
        """The identities of the optimiser's parameters.

        Raises:
            SfumatoError: if one is none of the model's.
        """
        own, held = {id(parameter) for parameter in self.model.parameters()}, set[int]()
        for number, group in enumerate(self.optimizer.param_groups):
            for parameter in cast("list[nn.Parameter]", group["params"]):
                if id(parameter) not in own:
                    raise SfumatoError(
                        f"optimizer holds a parameter of shape {tuple(parameter.shape)} in group {number} that is "
                        f"none of the model's; allowed are parameters of {type(self.model).__name__} alone."
                    )
                held.add(id(parameter))
        return held

    def _check_held(self, held: set[int]) -> None:
        """See that each active coordinate can be moved.

        Raises:
            SfumatoError: if the support is no part of the parameters that the optimiser holds.
        """
        parameters = dict(trainable(self.model))
        for part in self._parts:
            if id(parameters[part.name]) not in held:
                raise SfumatoError(
                    f"support has active coordinates in parameter {part.name!r}, which the optimizer does not hold; "
                    "allowed are those of parameters in its groups."
                )

    def _check_numbers(self) -> None:
        """Refuse numbers outside of their ranges; the release of no coordinate at all has the same checks.

        Raises:
            SfumatoError: naming the number.
        """
        nothing = ClippedSum(torch.zeros(0), torch.zeros(0))
        stream = self.streams.stream("noise", "check")
        privatize(nothing, self.clip_norm, self.noise_multiplier, self.expected_batch_size, stream)
        rate = cast(object, self.sampling_rate)
        if not is_number(rate) or not 0 < cast(float, rate) <= 1:
            raise SfumatoError(f"sampling_rate is {rate!r}; allowed is a number above 0 and at most 1.")


def _all_held(model: nn.Module, layout: ParameterLayout, held: set[int]) -> Support:
    """The support of all trainable parameters that the optimiser holds.

    Raises:
        SfumatoError: if there are none.
    """
    slices = layout.slices
    places = [slices[name] for name, parameter in trainable(model) if id(parameter) in held]
    if not places:
        raise SfumatoError(
            f"optimizer holds no trainable parameter of {type(model).__name__}; allowed is one or more."
        )
    return Support(torch.cat([torch.arange(place.start, place.stop) for place in places]), layout.size)


def _check_optimizer(optimizer: object) -> None:
    """Refuse what is no optimiser, and one that wants a closure or sparse gradients.

    Raises:
        SfumatoError: saying which.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SfumatoError(
            f"optimizer is a {type(optimizer).__name__}; allowed is an optimiser of torch.optim."
        )
    kind = type(optimizer)
    closure = inspect.signature(kind.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise SfumatoError(
            f"optimizer is {kind.__name__}, whose step evaluates the loss itself by a closure, without noise; allowed "
            "is one that steps from .grad alone, such as SGD or Adam."
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise SfumatoError(
            "optimizer is SparseAdam, which takes sparse gradients only; allowed is one for dense ones, such as Adam."
        )


def _check_loss(loss: object) -> None:
    """Refuse a criterion that reduces over the batch.

    Raises:
        SfumatoError: naming its reduction.
    """
    if not callable(loss):
        raise SfumatoError(f"loss is a {type(loss).__name__}; allowed is a function of outputs and targets.")
    reduction = cast(object, getattr(loss, "reduction", "none"))
    if reduction != "none":
        raise SfumatoError(
            f"loss {type(loss).__name__} has reduction {reduction!r}; allowed is reduction='none', one loss for each "
            "example."
        )
