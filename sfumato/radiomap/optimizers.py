"""A client's optimizer, fresh for every upload: the functions behind torch's own, in bits the same.

>>> weights = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
>>> weights.grad = torch.tensor([0.5, 0.0])
>>> stepper([weights], "sgd", learning_rate=0.1)()
>>> weights.tolist()
[0.949999988079071, 2.0]

torch's optimizer objects load its compiler when the first of them is made, which takes longer than all of a client's
training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

import torch
from torch import nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

OptimizerKind = Literal["sgd", "adam"]


def stepper(
    parameters: Sequence[nn.Parameter], kind: OptimizerKind, learning_rate: float, momentum: float = 0.0
) -> Callable[[], None]:
    """A function that takes one step at the parameters' gradients, in place, each time it is called.

    Parameters without a gradient are left as they are; which ones have one must stay the same from call to call.

    Args:
        parameters: float32, on the processor.
        kind: ``sgd`` or ``adam`` (coefficients 0.9 and 0.999).
        learning_rate: the step size.
        momentum: of ``sgd``.
    """
    return _adam(parameters, learning_rate) if kind == "adam" else _sgd(parameters, learning_rate, momentum)


def _moved(parameters: Sequence[nn.Parameter]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The parameters that have gradients, and these."""
    chosen: list[torch.Tensor] = [entry for entry in parameters if entry.grad is not None]
    return chosen, [cast(torch.Tensor, entry.grad) for entry in chosen]


def _adam(parameters: Sequence[nn.Parameter], learning_rate: float) -> Callable[[], None]:
    means, squares, counts = list[torch.Tensor](), list[torch.Tensor](), list[torch.Tensor]()

    @torch.no_grad()
    def step() -> None:
        chosen, gradients = _moved(parameters)
        if not counts:
            for state in (means, squares):
                state.extend(torch.zeros_like(entry) for entry in chosen)
            counts.extend(torch.zeros(()) for _entry in chosen)
        adam(
            chosen, gradients, means, squares, [], counts, fused=True, amsgrad=False, beta1=0.9, beta2=0.999,
            lr=learning_rate, weight_decay=0.0, eps=1e-8, maximize=False,
        )  # fmt: skip

    return step


def _sgd(parameters: Sequence[nn.Parameter], learning_rate: float, momentum: float) -> Callable[[], None]:
    buffers = list[torch.Tensor | None]()

    @torch.no_grad()
    def step() -> None:
        chosen, gradients = _moved(parameters)
        if not buffers:
            buffers.extend([None] * len(chosen))
        sgd(
            chosen, gradients, buffers, fused=True, weight_decay=0.0, momentum=momentum, lr=learning_rate,
            dampening=0.0, nesterov=False, maximize=False,
        )  # fmt: skip

    return step
