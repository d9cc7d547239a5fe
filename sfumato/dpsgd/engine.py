"""The one interface behind which per-example gradients are computed, clipped and summed.

>>> import torch
>>> from sfumato.dpsgd.support import Support
>>> model = torch.nn.Linear(2, 2, bias=False)
>>> batch = (torch.ones(3, 2), torch.tensor([0, 1, 1]))
>>> cross_entropy = lambda outputs, targets: torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
>>> clipped = get_engine("functional").clipped_sum(model, cross_entropy, batch, Support.full(4), clip_norm=0.1)
>>> clipped.sum.shape, clipped.norms.shape, bool(clipped.sum.norm() <= 0.3)
(torch.Size([4]), torch.Size([3]), True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import nn

from sfumato.checks import is_integer
from sfumato.clipping import checked_clip_norm
from sfumato.dpsgd.kernel_loading import checked_kernels
from sfumato.dpsgd.layout import ParameterLayout
from sfumato.dpsgd.support import Support
from sfumato.errors import SfumatoError

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class ClippedSum:
    """The sum of clipped per-example gradients over a support; private until noise is added.

    Attributes:
        sum: Tensor[k], float32, in support order.
        norms: Tensor[B], float32, the norm of each example's gradient over the active coordinates before
            clipping; infinity or NaN where an example's gradient is not finite. They are raw data: neither
            they nor a statistic of them may be released or steer the training.
        clip_norm: the norm that each example was clipped to, or None if it is not known.

    Printing one shows none of its raw values.
    """

    sum: torch.Tensor = field(repr=False)
    norms: torch.Tensor = field(repr=False)
    clip_norm: float | None = None


class Engine(Protocol):
    """Computes clipped sums of per-example gradients on a support."""

    def clipped_sum(
        self, model: nn.Module, loss: Loss, batch: Batch, support: Support, clip_norm: float
    ) -> ClippedSum:
        """The sum over the batch of each example's gradient, masked to the support and then clipped.

        The mask comes before the norm: an example's norm is that of its active coordinates alone.

        Guarantee: adding or removing one example changes ``sum`` by a vector of Euclidean norm at most
        ``clip_norm`` (up to float32 rounding), for every support, every model and every example, a
        non-finite one included: its gradient counts as zero. Conditions: the model, the support and
        ``clip_norm`` do not depend on the batch, and ``loss`` maps each example's output to its own loss.

        Args:
            model: a module that ``validate`` accepts; left as it was (values, ``.grad``, hooks, mode,
                ``requires_grad``).
            loss: maps outputs (B, ...) and targets (B, ...) to per-example losses Tensor[B].
            batch: inputs Tensor[B, ...] and targets Tensor[B, ...]; B may be 0.
            support: the active coordinates over ``ParameterLayout.of(model)``; may be empty.
            clip_norm: the bound, between 1e-30 and 1e30.

        Returns:
            The clipped sum, float32; zeros for an empty batch.

        Raises:
            SfumatoError: if clip norm, batch, loss, support and model do not fit one another.
            UnsupportedLayerError: if the engine cannot handle a layer of the model.
        """
        ...


def get_engine(
    name: str = "planned", micro_batch: int | None = None, kernels: str = "numba", trusted: bool = False
) -> Engine:
    """An engine by its name.

    Args:
        name: ``planned`` (one backward pass with a rule for each layer, the one to use), or one of the references:
            ``functional`` (torch.func) and ``opacus`` (Opacus's GradSampleModule).
        micro_batch: how many examples are held at once, a public number; None chooses it by the model's
            size. It changes memory and speed, and the sum by float32 rounding.
        kernels: of the planned engine: ``numba``, or ``torch`` for plain torch operations.
        trusted: of the planned engine: whether models with code of their own may run as one batch, on the caller's
            word that they keep examples apart; without it they are left to torch.func.

    Raises:
        SfumatoError: if the name is unknown, ``micro_batch`` is not an integer of at least 1 or there are no such
            kernels.
    """
    if micro_batch is not None and (not is_integer(micro_batch) or micro_batch < 1):
        raise SfumatoError(f"micro_batch is {micro_batch!r}; allowed is an integer of at least 1, or none.")
    checked_kernels(kernels)
    if name == "planned":
        from sfumato.dpsgd.planned import PlannedEngine

        return PlannedEngine(micro_batch, kernels, trusted)
    if name == "functional":
        from sfumato.dpsgd.functional import FunctionalEngine

        return FunctionalEngine(micro_batch)
    if name == "opacus":
        from sfumato.dpsgd.opacus_engine import OpacusEngine

        return OpacusEngine(micro_batch)
    raise SfumatoError(f"engine is {name!r}; allowed are 'planned', 'functional' and 'opacus'.")


@dataclass(frozen=True)
class ActiveParameter:
    """One parameter with at least one active coordinate.

    Attributes:
        name: its dotted name.
        size: how many coordinates it has.
        local: Tensor, int64, its active coordinates, or None if all are active.
        place: where its active coordinates stand in support order.
    """

    name: str
    size: int
    local: torch.Tensor | None
    place: slice


def active_parameters(model: nn.Module, support: Support) -> list[ActiveParameter]:
    """The parameters of a model that the support touches, in layout order.

    Raises:
        SfumatoError: if the support is not over the model's trainable parameters.
    """
    layout = ParameterLayout.of(model)
    found, start = list[ActiveParameter](), 0
    slices = layout.slices
    for name, local in support.by_layer(layout).items():
        size, count = slices[name].stop - slices[name].start, local.numel()
        if count:
            found.append(
                ActiveParameter(name, size, None if count == size else local, slice(start, start + count))
            )
        start += count
    return found


def checked_batch(batch: Batch, clip_norm: float) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Inputs, targets and clip norm, if they are of a kind that an engine can work on.

    Raises:
        SfumatoError: if inputs and targets are no tensors or differ in length, or the clip norm is outside of
            its range.
    """
    bound = checked_clip_norm(clip_norm)
    inputs, targets = batch
    for name, part in (("inputs", cast(object, inputs)), ("targets", cast(object, targets))):
        if not isinstance(part, torch.Tensor):
            raise SfumatoError(f"batch has {name} of type {type(part).__name__}; allowed is a tensor.")
    if inputs.ndim < 1 or targets.ndim < 1 or len(inputs) != len(targets):
        raise SfumatoError(
            f"batch has inputs of shape {tuple(inputs.shape)} and targets of shape {tuple(targets.shape)}; "
            "their first dimensions must agree."
        )
    return inputs.detach(), targets.detach(), bound


def checked_losses(losses: torch.Tensor, count: int) -> torch.Tensor:
    """The losses, if there is one for each example.

    Raises:
        SfumatoError: if the loss does not return Tensor[B].
    """
    if tuple(losses.shape) != (count,):
        raise SfumatoError(
            f"loss returned shape {tuple(losses.shape)} for {count} examples; allowed is ({count},), one loss "
            "for each example (reduction='none')."
        )
    return losses
