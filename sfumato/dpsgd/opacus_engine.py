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
import math
import warnings
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from sfumato.clipping import vector_norm
from sfumato.dpsgd.diagnosis import FAULTS, diagnose
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
from sfumato.dpsgd.stateless import layers
from sfumato.dpsgd.support import Support
from sfumato.dpsgd.validation import LAYERS_OF_OPACUS, validate
from sfumato.errors import SfumatoError, UnsupportedLayerError


@dataclass(frozen=True)
class OpacusEngine:
    """The engine on Opacus's hooks; it works on a copy of the model, made anew at each call.

    It runs the batch as one, so that its guarantee holds on one more condition: that the model does not mix
    examples, which ``validate`` and ``check_mixing`` look for and the functional engine rules out.

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
        step = self.micro_batch or 32
        chunk = slice(0, step)
        try:
            wrapped = _wrap(model, active)
            for start in range(0, len(inputs) if active else 0, step):
                chunk = slice(start, start + step)
                gradients = _gradients(wrapped, loss, inputs[chunk], targets[chunk], compare=start == 0)
                rows = [DenseRows(gradients[part.name], part.local) for part in active]
                norms.append(add_clipped(total, rows, active, bound))
        except SfumatoError:
            raise
        except FAULTS as error:
            raise diagnose(model, loss, (inputs[chunk], targets[chunk]), error, _otherwise(model)) from error
        return ClippedSum(total.float(), torch.cat(norms).float(), bound)


def _otherwise(model: nn.Module) -> str:
    """What to say of a model that runs by itself, but not in this engine."""
    in_place = [repr(name) for name, layer in layers(model) if getattr(layer, "inplace", False) is True]
    if in_place:
        return (
            f"has layers that work in place ({', '.join(in_place)}), where the opacus engine fails ({{reason}}); use "
            "inplace=False or the functional engine instead"
        )
    return "cannot be run by the opacus engine ({reason}); use the functional engine instead"


def _wrap(model: nn.Module, active: list[ActiveParameter]) -> Any:
    """A copy of the model that records per-example gradients of the active parameters."""
    from opacus import GradSampleModule  # pyright: ignore[reportMissingTypeStubs]

    duplicate = copy.deepcopy(model)
    names = {part.name for part in active}
    for name, parameter in duplicate.named_parameters():
        parameter.grad = None
        parameter.data = parameter.data.contiguous()
        parameter.requires_grad_(name in names)
    for _, layer in layers(duplicate):
        if type(layer) in LAYERS_OF_OPACUS:
            layer.training = True  # these act alike in both modes, and Opacus records in train mode only
    return cast(Any, GradSampleModule)(duplicate, batch_first=True, loss_reduction="sum", strict=True)


def _gradients(
    wrapped: Any, loss: Loss, inputs: torch.Tensor, targets: torch.Tensor, compare: bool
) -> dict[str, torch.Tensor]:
    """The per-example gradients (B, size) of the active parameters on one micro-batch.

    Args:
        wrapped: what ``_wrap`` gave.
        loss: the per-example loss.
        inputs: Tensor[B, ...].
        targets: Tensor[B, ...].
        compare: whether to compare the rows' sums with the gradients of autograd.
    """
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        losses = loss(wrapped(inputs.clone().contiguous()), targets)  # a model may work in place
        total_loss = checked_losses(losses, len(inputs)).sum()
        total_loss.backward()  # pyright: ignore[reportUnknownMemberType]
    rows, sums = _take_gradients(wrapped, len(inputs))
    if compare:
        _check_sums(rows, sums)
    return rows


def _take_gradients(wrapped: Any, count: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The recorded per-example gradients (B, size) and autograd's sums (size,), by parameter name; both are emptied.

    Raises:
        UnsupportedLayerError: if a parameter's record is not one row for each example.
    """
    rows, sums = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    module = cast(nn.Module, wrapped._module)
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        recorded = cast("torch.Tensor | None", getattr(parameter, "grad_sample", None))
        if recorded is None:  # no layer used it, and unless something else did, its gradient is zero
            recorded = parameter.detach().new_zeros(count, *parameter.shape)
        if len(recorded) != count:
            raise UnsupportedLayerError(
                f"parameter {name!r} has {len(recorded)} gradients for {count} examples in the opacus engine, since "
                "its layer reads another number of rows; use the functional engine instead."
            )
        rows[name] = recorded.reshape(count, -1)
        sums[name] = (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(-1)
        cast(Any, parameter).grad_sample = None
        parameter.grad = None
    return rows, sums


def _check_sums(rows: dict[str, torch.Tensor], sums: dict[str, torch.Tensor]) -> None:
    """Refuse gradients that do not add up to those of autograd.

    What counts as rounding is measured by a parameter's gradients, by those of all parameters and by one: the
    gradients of a parameter may be nothing but the rounding of the others, as those of a bias before an
    nn.InstanceNorm2d are. Gradients that are not finite prove nothing.

    Raises:
        UnsupportedLayerError: naming the parameter: a layer uses it in a way that Opacus has no rule for.
    """
    scales = {name: float(vector_norm(values).double().sum()) for name, values in rows.items()}
    of_all = 1e-5 * sum(scales.values())
    for name, values in rows.items():
        allowed = 1e-3 * scales[name] + of_all + 1e-6 * len(values)
        difference = float(vector_norm((values.sum(dim=0) - sums[name])[None]))
        if math.isfinite(allowed) and math.isfinite(difference) and difference > allowed:
            raise UnsupportedLayerError(
                f"parameter {name!r} has gradients in the opacus engine that do not add up to that of autograd, as "
                "where it is used outside of its layer too; use the functional engine instead."
            )
