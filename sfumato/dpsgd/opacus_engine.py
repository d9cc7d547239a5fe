"""The reference engine, on Opacus's GradSampleModule, behind the same interface.

>>> import torch
>>> from sfumato.dpsgd.support import Support
>>> squared = lambda outputs, targets: ((outputs - targets) ** 2).sum(dim=1)
>>> batch = (torch.ones(2, 1), torch.zeros(2, 1))
>>> model = torch.nn.Linear(1, 1, bias=False)
>>> OpacusEngine().clipped_sum(model, squared, batch, Support.full(1), clip_norm=1e-3).sum.abs()
tensor([0.0020])
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from sfumato.dpsgd.engine import (
    ActiveParameter,
    Batch,
    ClippedSum,
    Loss,
    active_parameters,
    checked_batch,
    checked_losses,
)
from sfumato.dpsgd.functional import add_clipped
from sfumato.dpsgd.rows import DenseRows
from sfumato.dpsgd.support import Support
from sfumato.dpsgd.validation import LAYERS_OF_OPACUS, validate


@dataclass(frozen=True)
class OpacusEngine:
    """The engine on Opacus's hooks; it works on a copy of the model, made anew at each call.

    It runs the batch as one, so that its guarantee holds on one more condition: that the model does not mix
    examples, which ``validate`` and ``check_examples_do_not_mix`` look for and the functional engine rules out.

    Attributes:
        micro_batch: how many examples are held at once; None means 32.
    """

    micro_batch: int | None = None

    def clipped_sum(
        self, model: nn.Module, loss: Loss, batch: Batch, support: Support, clip_norm: float
    ) -> ClippedSum:
        """As ``Engine.clipped_sum`` says; a layer that Opacus has no rule for is refused."""
        inputs, targets, bound = checked_batch(batch, clip_norm)
        active = active_parameters(model, support)
        validate(model, engine="opacus")
        total = torch.zeros(support.k, dtype=torch.float64)
        norms = [torch.zeros(0 if active else len(inputs), dtype=torch.float64)]
        wrapped = _wrap(model, active)
        for start in range(0, len(inputs) if active else 0, self.micro_batch or 32):
            chunk = slice(start, start + (self.micro_batch or 32))
            with warnings.catch_warnings(), torch.enable_grad():
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                losses = loss(wrapped(inputs[chunk].contiguous()), targets[chunk])
                total_loss = checked_losses(losses, len(inputs[chunk])).sum()
                total_loss.backward()  # pyright: ignore[reportUnknownMemberType]
            gradients = _take_gradients(wrapped)
            rows = [DenseRows(gradients[part.name].flatten(1), part.local) for part in active]
            norms.append(add_clipped(total, rows, active, bound))
        return ClippedSum(total.float(), torch.cat(norms).float(), bound)


def _wrap(model: nn.Module, active: list[ActiveParameter]) -> Any:
    """A copy of the model that records per-example gradients of the active parameters."""
    from opacus import GradSampleModule  # pyright: ignore[reportMissingTypeStubs]

    duplicate = copy.deepcopy(model)
    names = {part.name for part in active}
    for name, parameter in duplicate.named_parameters():
        parameter.grad = None
        parameter.data = parameter.data.contiguous()
        parameter.requires_grad_(name in names)
    for layer in duplicate.modules():
        if type(layer) in LAYERS_OF_OPACUS:
            layer.training = True  # these act alike in both modes, and Opacus records in train mode only
    return cast(Any, GradSampleModule)(duplicate, batch_first=True, loss_reduction="sum", strict=True)


def _take_gradients(wrapped: Any) -> dict[str, torch.Tensor]:
    """The recorded per-example gradients by parameter name; the record is emptied."""
    gradients = dict[str, torch.Tensor]()
    module = cast(nn.Module, wrapped._module)
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            gradients[name] = cast(torch.Tensor, cast(Any, parameter).grad_sample)
            cast(Any, parameter).grad_sample = None
            parameter.grad = None
    return gradients
