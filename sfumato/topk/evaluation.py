"""What a model does on held-out rows, and what it gives away about its own.

>>> import torch
>>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
>>> evaluate(logits, torch.tensor([0, 1, 0])).accuracy
0.6666666666666666
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.dpsgd import FastPooling
from sfumato.errors import SfumatoError


@dataclass(frozen=True)
class Evaluation:
    """Held-out figures; outside of any guarantee.

    Attributes:
        accuracy: share of right predictions.
        balanced_accuracy: mean recall over the classes that occur.
        loss: mean cross entropy in nats.
        positive_recall: recall of class 1; None unless there are two classes.
        positive_auc: area under the ROC curve of class 1; None unless there are two classes and both occur.
    """

    accuracy: float
    balanced_accuracy: float
    loss: float
    positive_recall: float | None = None
    positive_auc: float | None = None

    def to_values(self, prefix: str) -> dict[str, float | int | bool | str | None]:
        """The figures that exist, by name."""
        values: dict[str, float | int | bool | str | None] = {
            f"{prefix}accuracy": self.accuracy,
            f"{prefix}balanced_accuracy": self.balanced_accuracy,
            f"{prefix}loss": self.loss,
        }
        if self.positive_recall is not None:
            values[f"{prefix}positive_recall"] = self.positive_recall
        if self.positive_auc is not None:
            values[f"{prefix}positive_auc"] = self.positive_auc
        return values


def logits_of(module: nn.Module, inputs: Tensor, chunk: int = 1000) -> Tensor:
    """float32 Tensor[rows, classes]: the module's outputs, without gradients, in chunks."""
    if len(inputs) == 0:
        raise SfumatoError("there are 0 rows to evaluate; allowed is at least 1.")
    with torch.no_grad(), FastPooling():
        return torch.cat([module(inputs[start : start + chunk]) for start in range(0, len(inputs), chunk)])


def losses_of(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, targets: Tensor
) -> Tensor:
    """float32 Tensor[rows]: per-example losses."""
    return loss(logits_of(module, inputs), targets)


def evaluate(logits: Tensor, targets: Tensor) -> Evaluation:
    """Figures from logits Tensor[rows, classes] and int64 targets Tensor[rows].

    Raises:
        SfumatoError: if the numbers of rows differ or there is none.
    """
    if len(logits) != len(targets) or len(logits) == 0:
        raise SfumatoError(
            f"there are {len(logits)} logits and {len(targets)} targets; allowed are equal numbers."
        )
    predictions = logits.argmax(dim=1)
    right = (predictions == targets).double().numpy()
    labels = targets.numpy()
    recalls = [float(right[labels == label].mean()) for label in np.unique(labels)]
    loss = float(nn.functional.cross_entropy(logits.double(), targets))
    recall, area = None, None
    if logits.shape[1] == 2:
        positives = labels == 1
        if positives.any():
            recall = float(right[positives].mean())
        if positives.any() and not positives.all():
            area = _area_under_curve((logits[:, 1] - logits[:, 0]).double().numpy(), positives)
    return Evaluation(float(right.mean()), float(np.mean(recalls)), loss, recall, area)


def _area_under_curve(scores: np.ndarray, positives: np.ndarray) -> float:
    count = int(positives.sum())
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # ties share their mean rank
    return float((ranks[positives].sum() - count * (count + 1) / 2) / (count * (len(scores) - count)))
