"""Optimisers on flat private gradients: frozen settings, explicit state, no closures.

They see private gradients only, so whatever they compute is post-processing and costs no privacy.

>>> import torch
>>> from sfumato.dpsgd.support import Support
>>> sgd = Sgd(learning_rate=0.5, momentum=0.9)
>>> state = sgd.init(3)
>>> delta, state = sgd.update(state, torch.tensor([2.0]), Support.of([1], 3))
>>> delta, state["momentum"], int(state["step"])
(tensor([-1.]), tensor([0., 2., 0.]), 1)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from sfumato.checks import is_number
from sfumato.dpsgd.support import Support
from sfumato.errors import SfumatoError

State = dict[str, torch.Tensor]


class Optimizer(Protocol):
    """Turns private gradients into updates."""

    def init(self, d: int) -> State:
        """The state before the first step, over d coordinates: float32 tensors, and the int64 ``step``."""
        ...

    def update(self, state: State, gradient: torch.Tensor, support: Support) -> tuple[torch.Tensor, State]:
        """One step: Tensor[k] to be added to the active parameters, and the next state.

        The given state is not changed; the next one differs from it on the support and in ``step`` only.
        """
        ...

    def advance(self, state: State, gradient: torch.Tensor, support: Support) -> torch.Tensor:
        """The same step, written into the given state: spares copies of d numbers."""
        ...


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum: m <- momentum*m + g, delta = -learning_rate*m.

    With ``nesterov`` the update is -learning_rate*(g + momentum*m). These are the equations of torch.optim.SGD
    without dampening and weight decay.

    Attributes:
        learning_rate: finite and above 0.
        momentum: in [0, 1).
        nesterov: whether to look ahead; needs momentum above 0.

    Raises:
        SfumatoError: if a setting is outside of its range.
    """

    learning_rate: float
    momentum: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        """Refuse settings outside of their ranges."""
        _check_positive("learning_rate", self.learning_rate)
        _check_fraction("momentum", self.momentum)
        if self.nesterov and not self.momentum:
            raise SfumatoError(
                f"nesterov is {self.nesterov!r} with momentum 0; allowed is false, or momentum above 0."
            )

    def init(self, d: int) -> State:
        """Zero momentum over d coordinates, and step 0."""
        return {"momentum": torch.zeros(d, dtype=torch.float32), "step": torch.zeros((), dtype=torch.int64)}

    def update(self, state: State, gradient: torch.Tensor, support: Support) -> tuple[torch.Tensor, State]:
        """One step; see ``Optimizer.update``.

        Raises:
            SfumatoError: if state, gradient and support do not fit one another.
        """
        following = _copied(state)
        return self.advance(following, gradient, support), following

    def advance(self, state: State, gradient: torch.Tensor, support: Support) -> torch.Tensor:
        """One step; see ``Optimizer.advance``.

        Raises:
            SfumatoError: if state, gradient and support do not fit one another; the state is as it was then.
        """
        _check_fit(state, ("momentum",), gradient, support)
        momentum = self.momentum * state["momentum"].index_select(0, support.indices) + gradient
        direction = gradient + self.momentum * momentum if self.nesterov else momentum
        _write(state, support, momentum=momentum)
        return -self.learning_rate * direction


@dataclass(frozen=True)
class Adam:
    """Adam with bias correction (Kingma and Ba 2015), the equations of torch.optim.Adam without weight decay.

    The step count is common to all coordinates. One that joins the support late starts from zero moments but
    with the common bias correction, so that its first steps are up to sqrt(1-beta2)/(1-beta1) off in scale.

    Attributes:
        learning_rate: finite and above 0.
        beta1: decay of the first moment, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        epsilon: added to the root of the second moment; finite and above 0.

    Raises:
        SfumatoError: if a setting is outside of its range.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        """Refuse settings outside of their ranges."""
        _check_positive("learning_rate", self.learning_rate)
        _check_fraction("beta1", self.beta1)
        _check_fraction("beta2", self.beta2)
        _check_positive("epsilon", self.epsilon)

    def init(self, d: int) -> State:
        """Zero moments over d coordinates, and step 0."""
        return {
            "first_moment": torch.zeros(d, dtype=torch.float32),
            "second_moment": torch.zeros(d, dtype=torch.float32),
            "step": torch.zeros((), dtype=torch.int64),
        }

    def update(self, state: State, gradient: torch.Tensor, support: Support) -> tuple[torch.Tensor, State]:
        """One step; see ``Optimizer.update``.

        Raises:
            SfumatoError: if state, gradient and support do not fit one another.
        """
        following = _copied(state)
        return self.advance(following, gradient, support), following

    def advance(self, state: State, gradient: torch.Tensor, support: Support) -> torch.Tensor:
        """One step; see ``Optimizer.advance``.

        Raises:
            SfumatoError: if state, gradient and support do not fit one another; the state is as it was then.
        """
        _check_fit(state, ("first_moment", "second_moment"), gradient, support)
        step = int(state["step"]) + 1
        first = (
            self.beta1 * state["first_moment"].index_select(0, support.indices) + (1 - self.beta1) * gradient
        )
        second = (
            self.beta2 * state["second_moment"].index_select(0, support.indices)
            + (1 - self.beta2) * gradient * gradient
        )
        scale = (second / (1 - self.beta2**step)).sqrt() + self.epsilon
        delta = -self.learning_rate / (1 - self.beta1**step) * first / scale
        _write(state, support, first_moment=first, second_moment=second)
        return delta


def restrict_state(state: State, support: Support) -> State:
    """A copy of an optimiser state that is zero outside of the support; the step count is kept.

    Raises:
        SfumatoError: if the state is not over the support's d coordinates.
    """
    restricted = dict(state)
    for name, tensor in state.items():
        if name != "step":
            restricted[name] = support.scatter(support.gather(tensor))
    return restricted


def _copied(state: State) -> State:
    return {name: tensor.clone() for name, tensor in state.items()}


def _write(state: State, support: Support, **values: torch.Tensor) -> None:
    indices = support.indices.numpy()
    for name, active in values.items():
        state[name].numpy()[indices] = active.detach().numpy()  # three times as fast as torch's index_copy_
    state["step"].add_(1)


def _check_fit(state: State, names: tuple[str, ...], gradient: torch.Tensor, support: Support) -> None:
    if sorted(state) != sorted((*names, "step")):
        raise SfumatoError(f"optimiser state holds {sorted(state)}; allowed are {sorted((*names, 'step'))}.")
    for name in names:
        if tuple(state[name].shape) != (support.d,):
            raise SfumatoError(
                f"optimiser state {name!r} has shape {tuple(state[name].shape)}; allowed is ({support.d},)."
            )
    if tuple(gradient.shape) != (support.k,):
        raise SfumatoError(
            f"gradient has shape {tuple(gradient.shape)}; allowed is ({support.k},), the support's size."
        )


def _check_positive(name: str, value: float) -> None:
    if not is_number(value) or not (math.isfinite(value) and value > 0):
        raise SfumatoError(f"{name} is {value!r}; allowed is a finite number above 0.")


def _check_fraction(name: str, value: float) -> None:
    if not is_number(value) or not 0 <= value < 1:
        raise SfumatoError(f"{name} is {value!r}; allowed is a number of at least 0 and below 1.")
