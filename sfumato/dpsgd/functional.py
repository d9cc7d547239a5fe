"""Per-example gradients by torch.func in micro-batches; memory does not depend on the batch size.

>>> FunctionalEngine().micro_batch_for(26_010), FunctionalEngine(7).micro_batch_for(26_010)
(128, 7)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import grad, vmap

from sfumato.clipping import clip_factors
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
from sfumato.dpsgd.rows import DenseRows, Rows, bias_rows, conv2d_rows, linear_rows
from sfumato.dpsgd.stateless import call, places
from sfumato.dpsgd.support import Support
from sfumato.dpsgd.taps import Site, TapFinder, Tapping
from sfumato.errors import SfumatoError

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class FunctionalEngine:
    """The engine on ``vmap(grad(...))``: any model whose operations torch.func can vectorise.

    Every example is computed by itself, so that one example's gradient cannot depend on another example,
    whatever the model does. Gradients are taken only for parameters with an active coordinate. Weights and
    biases that are used once, in a Linear or Conv2d operation, are not differentiated at all: their gradients
    follow from those of ``taps``. All other parameters go through ``vmap(grad(...))`` as they are.

    Attributes:
        micro_batch: how many examples are held at once; None chooses by the size of the active parameters.
    """

    micro_batch: int | None = None

    def micro_batch_for(self, active_size: int) -> int:
        """How many examples are held at once for parameters of ``active_size`` coordinates in all."""
        if self.micro_batch is not None:
            return self.micro_batch
        return max(1, min(128, 16_000_000 // max(1, active_size)))

    def clipped_sum(
        self, model: nn.Module, loss: Loss, batch: Batch, support: Support, clip_norm: float
    ) -> ClippedSum:
        """As ``Engine.clipped_sum`` says; an operation that torch.func cannot vectorise is refused."""
        inputs, targets, bound = checked_batch(batch, clip_norm)
        active = active_parameters(model, support)
        if not len(inputs) or not active:
            return ClippedSum(torch.zeros(support.k).float(), torch.zeros(len(inputs)).float(), bound)
        step = self.micro_batch_for(sum(part.size for part in active))
        total = torch.zeros(support.k, dtype=torch.float64)
        norms = list[torch.Tensor]()
        chunk = slice(0, step)
        try:
            gradients = _PerExample.prepare(model, loss, active, inputs, targets)
            for start in range(0, len(inputs), step):
                chunk = slice(start, start + step)
                rows = gradients.rows(inputs[chunk].clone(), targets[chunk])  # a model may work in place
                norms.append(add_clipped(total, rows, active, bound))
        except SfumatoError:
            raise
        except FAULTS as error:
            otherwise = f"cannot be differentiated example by example on inputs of shape {tuple(inputs.shape)}: {{reason}}"
            raise diagnose(model, loss, (inputs[chunk], targets[chunk]), error, otherwise) from error
        return ClippedSum(total.float(), torch.cat(norms).float(), bound)


@dataclass(frozen=True)
class _PerExample:
    """How to compute the per-example gradients of one model on one kind of input.

    Attributes:
        variable: the active parameters that go through ``vmap(grad(...))``.
        constant: all other parameters and the buffers.
        sites: the operations that are tapped.
        where: the model's places of parameters and buffers.
    """

    model: nn.Module
    loss: Loss
    active: Sequence[ActiveParameter]
    variable: Tensors
    constant: Tensors
    sites: dict[str, Site]
    where: dict[str, str]

    @classmethod
    def prepare(
        cls,
        model: nn.Module,
        loss: Loss,
        active: Sequence[ActiveParameter],
        inputs: torch.Tensor,
        targets: torch.Tensor,
    ) -> _PerExample:
        """Find out, on an example of zeros, which parameters can be tapped and what shapes the taps have."""
        constant = {name: tensor.detach() for name, tensor in model.named_parameters()}
        candidates = {part.name: constant[part.name] for part in active}
        constant |= {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        finder, where = TapFinder(candidates), places(model)

        def probe(example: torch.Tensor) -> torch.Tensor:
            with finder:
                return call(model, constant, where, example.unsqueeze(0))

        with torch.no_grad():
            vmap(probe)(torch.zeros_like(inputs[:1]))
        sites = finder.sites()
        tapped = {name for site in sites.values() for name in (site.weight, site.bias)}
        variable = {name: constant.pop(name) for name in candidates if name not in tapped}
        return cls(model, loss, active, variable, constant, sites, where)

    def rows(self, inputs: torch.Tensor, targets: torch.Tensor) -> list[Rows]:
        """The gradients of each active parameter, in the order of ``active``, over its active coordinates."""
        taps = {
            key: torch.zeros((), dtype=self.constant[key].dtype).expand(len(inputs), *site.shape)
            for key, site in self.sites.items()
        }
        per_example = vmap(grad(self._example_loss, argnums=(0, 1), has_aux=True), in_dims=(None, 0, 0, 0))
        (direct, tapped), kept = per_example(self.variable, taps, inputs, targets)
        homes = {name: site for site in self.sites.values() for name in (site.weight, site.bias) if name}
        found = list[Rows]()
        for part in self.active:
            site = homes.get(part.name)
            if site is None:
                found.append(DenseRows(direct[part.name].reshape(len(inputs), -1), part.local))
            elif part.name == site.bias:
                found.append(bias_rows(tapped[site.key], site.kind, part.local))
            elif site.kind == "linear":
                found.append(linear_rows(tapped[site.key], kept[site.key], part.local))
            else:
                found.append(conv2d_rows(tapped[site.key], kept[site.key], site.options, part.local))
        return found

    def _example_loss(
        self, variable: Tensors, taps: Tensors, example: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, Tensors]:
        """One example's loss, and the inputs of the tapped operations."""
        with Tapping(self.sites, self.constant, taps) as tapping:
            outputs = call(self.model, self.constant | variable, self.where, example.unsqueeze(0))
        return checked_losses(self.loss(outputs, target.unsqueeze(0)), 1).sum(), tapping.inputs


def add_clipped(
    total: torch.Tensor, rows: Sequence[Rows], active: Sequence[ActiveParameter], clip_norm: float
) -> torch.Tensor:
    """Add a micro-batch's masked, then clipped gradients to ``total`` in place.

    Args:
        total: Tensor[k], float64, in support order.
        rows: the per-example gradients of each active parameter.
        active: the active parameters.
        clip_norm: the bound, checked.

    Returns:
        Tensor[b], float64: the norms over active coordinates, not finite where a gradient is not.
    """
    exact = clip_norm < 1e-12  # below, squares of float32 numbers could vanish and a norm be taken for less
    norms = torch.stack([part.squares(exact) for part in rows]).sum(dim=0).sqrt()
    unit = min(clip_norm, 1.0)  # factors in units of it are no denormal float32 numbers
    weights, broken = clip_factors(norms, clip_norm) / unit, ~torch.isfinite(norms)
    for part, place in zip(rows, (piece.place for piece in active), strict=True):
        total[place] += unit * part.weighted_sum(weights, broken).double()
    return norms
