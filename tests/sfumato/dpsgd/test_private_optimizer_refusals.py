"""What the private optimiser refuses, and when."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato.dpsgd import Support
from sfumato.errors import SfumatoError, UnsupportedLayerError
from tests.sfumato.dpsgd.private_steps import linear, private, sgd


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clip_norm": 0.0}, "clip_norm is 0.0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier is -1.0"),
        ({"expected_batch_size": 0}, "expected_batch_size is 0"),
        ({"sampling_rate": 0.0}, "sampling_rate is 0.0; allowed is a number above 0 and at most 1."),
        ({"sampling_rate": 1.5}, "sampling_rate is 1.5"),
        ({"sampling_rate": "all"}, "sampling_rate is 'all'"),
        (
            {"loss": nn.CrossEntropyLoss()},
            "loss CrossEntropyLoss has reduction 'mean'; allowed is reduction='none'",
        ),
        ({"loss": nn.MSELoss(reduction="sum")}, "loss MSELoss has reduction 'sum'"),
        ({"loss": "mse"}, "loss is a str"),
        ({"support": Support.full(14)}, "d=14"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused_when_it_is_made(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SfumatoError) as caught:
        private(linear(), **changes)
    assert message in str(caught.value)


def test_models_that_mix_examples_are_refused_when_it_is_made() -> None:
    with pytest.raises(UnsupportedLayerError, match=r"layer '0' \(BatchNorm1d\) mixes the examples"):
        private(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)))


def test_optimizers_that_read_the_loss_or_hold_other_parameters_are_refused() -> None:
    model, other = linear(), linear(5)
    refused: list[tuple[Any, str]] = [
        (torch.optim.LBFGS(model.parameters()), "optimizer is LBFGS, whose step evaluates the loss itself"),
        (torch.optim.SparseAdam(list(model.parameters())), "optimizer is SparseAdam"),
        (model, "optimizer is a Linear; allowed is an optimiser of torch.optim"),
        (sgd([{"params": model.parameters()}, {"params": other.parameters()}]), r"shape \(3, 5\) in group 1"),
    ]
    for optimizer, message in refused:
        with pytest.raises(SfumatoError, match=message):
            private(model, optimizer)
    with pytest.raises(
        SfumatoError, match="coordinates in parameter 'weight', which the optimizer does not hold"
    ):
        private(model, sgd([model.bias]), support=Support.full(15))
    frozen = nn.Sequential(linear(), linear(3)).requires_grad_(False)
    frozen[1].requires_grad_(True)
    with pytest.raises(SfumatoError, match="holds no trainable parameter of Sequential"):
        private(frozen, sgd(frozen[0].parameters()))


def test_parameters_that_change_afterwards_are_noticed_before_anything_is_drawn() -> None:
    batch = torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)
    model = linear()
    one = private(model)
    one.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    with pytest.raises(SfumatoError, match="none of the model's"):
        one.step(*batch)
    model = linear()
    one = private(model)
    model.bias.requires_grad_(False)
    with pytest.raises(SfumatoError, match="trainable parameters"):
        one.step(*batch)
    model = linear()
    one = private(model, loss=lambda outputs, targets: functional.cross_entropy(outputs, targets))
    with pytest.raises(SfumatoError, match="one loss for each example"):
        one.step(*batch)
    assert one.steps == 0
