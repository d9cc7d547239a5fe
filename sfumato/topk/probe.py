"""Measurements on held-out rows: what theory predicts about a fit, seen without noise.

Nothing here is private and nothing of it feeds back into training; statements say so.

>>> Measurement(loss=0.5, accuracy=0.9).retained_energy is None
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.dpsgd import Engine, FastPooling, ParameterLayout, Support
from sfumato.errors import SfumatoError


@dataclass(frozen=True)
class Probe:
    """Held-out rows.

    Attributes:
        inputs: Tensor[rows, ...].
        targets: Tensor[rows].
    """

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        """Refuse an empty probe and rows that do not match."""
        if len(self.inputs) != len(self.targets) or len(self.inputs) == 0:
            raise SfumatoError(
                f"the probe has {len(self.inputs)} inputs and {len(self.targets)} targets; allowed are equal "
                "numbers of at least 1."
            )


@dataclass(frozen=True)
class Measurement:
    """What the probe showed.

    Attributes:
        loss: mean over the probe rows.
        accuracy: share of rows whose largest output is the target class; None without classes.
        retained_energy: ||P_A G||^2 / ||G||^2 of the mean clipped gradient G, or None when not asked for.
    """

    loss: float
    accuracy: float | None
    retained_energy: float | None = None


def mean_clipped_gradient(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    engine: Engine,
    probe: Probe,
    layout: ParameterLayout,
    clip_norm: float,
) -> Tensor:
    """Tensor[d]: the mean over the probe of full-dimensional gradients clipped to ``clip_norm``, no noise."""
    everything = Support.full(layout.size)
    clipped = engine.clipped_sum(module, loss, (probe.inputs, probe.targets), everything, clip_norm)
    return clipped.sum / len(probe.inputs)


def measure(
    module: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    engine: Engine,
    probe: Probe,
    layout: ParameterLayout,
    support: Support,
    clip_norm: float | None,
) -> Measurement:
    """Loss and accuracy on the probe, and the gradient energy that the support retains.

    Args:
        module: with the parameters to be measured.
        loss: per-example losses.
        engine: computes the clipped gradients.
        probe: held-out rows.
        layout: of the module's parameters.
        support: the active coordinates.
        clip_norm: C for the gradient; None leaves the energy out.
    """
    with torch.no_grad(), FastPooling():
        outputs = module(probe.inputs)
        mean_loss = float(loss(outputs, probe.targets).mean())
        classes = outputs.dim() > 1 and not probe.targets.is_floating_point()
        accuracy = float((outputs.argmax(dim=-1) == probe.targets).float().mean()) if classes else None
    if clip_norm is None:
        return Measurement(mean_loss, accuracy)
    gradient = mean_clipped_gradient(module, loss, engine, probe, layout, clip_norm).double()
    total = float((gradient**2).sum())
    kept = float((gradient[support.indices] ** 2).sum())
    return Measurement(mean_loss, accuracy, kept / total if total > 0 else None)
