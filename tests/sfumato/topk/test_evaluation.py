from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.evaluation import evaluate, logits_of
from sfumato.topk.models import build


def test_fast_pooling_changes_no_value() -> None:
    model = build("cnn28", (1, 28, 28), 10, Streams(0).stream("init"))
    images = torch.from_numpy(Streams(0).stream("x").standard_normal((30, 1, 28, 28))).float()
    with torch.no_grad():
        plain = model(images)
    assert torch.allclose(logits_of(model, images, chunk=7), plain, atol=1e-6)


def test_auc_is_scikit_learns_with_ties() -> None:
    logits = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 2.0], [0.0, -1.0], [0.0, 0.5]])
    targets = torch.tensor([1, 0, 1, 0, 1])
    found = evaluate(logits, targets)
    assert found.positive_auc == pytest.approx(roc_auc_score(targets.numpy(), logits[:, 1].numpy()))


def test_collapse_to_the_majority_shows_in_recall() -> None:
    targets = torch.tensor([0] * 95 + [1] * 5)
    found = evaluate(torch.tensor([[1.0, 0.0]] * 100), targets)
    assert found.accuracy == 0.95
    assert found.positive_recall == 0.0
    assert found.balanced_accuracy == 0.5


def test_more_than_two_classes_have_no_positive_class() -> None:
    found = evaluate(torch.eye(3), torch.tensor([0, 1, 1]))
    assert found.positive_auc is None
    assert found.accuracy == pytest.approx(2 / 3)
    assert set(found.to_values("test_")) == {"test_accuracy", "test_balanced_accuracy", "test_loss"}


def test_no_rows_are_refused() -> None:
    model = build("mlp", (4,), 2, Streams(0).stream("init"))
    with pytest.raises(SfumatoError, match="0 rows"):
        logits_of(model, torch.zeros(0, 4))
    with pytest.raises(SfumatoError, match="equal numbers"):
        evaluate(torch.zeros(2, 2), torch.tensor(np.zeros(3, dtype=np.int64)))
