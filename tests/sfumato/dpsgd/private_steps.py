"""Models, batches and private optimisers that tests share."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from sfumato.dpsgd import ParameterLayout, PrivateOptimizer, Support
from sfumato.rng import Streams
from sfumato.sampling import PoissonSampler
from tests.sfumato.dpsgd.reference import generator, initialise

ROWS, EXPECTED, RATE = 60, 12, 0.2
INPUTS = torch.randn(ROWS, 1, 6, 6, generator=generator(5))
TARGETS = torch.randint(0, 3, (ROWS,), generator=generator(6))
CRITERION = nn.CrossEntropyLoss(reduction="none")
sgd = partial(torch.optim.SGD, lr=0.5)


def image_model() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.Tanh(),
        nn.Linear(8, 3),
    )
    return initialise(model)


def linear(features: int = 4, outputs: int = 3) -> nn.Module:
    return initialise(nn.Linear(features, outputs))


def private(
    model: nn.Module, optimizer: torch.optim.Optimizer | None = None, **changes: Any
) -> PrivateOptimizer:
    settings = {
        "clip_norm": 0.7,
        "noise_multiplier": 1.0,
        "expected_batch_size": EXPECTED,
        "sampling_rate": RATE,
        "streams": Streams(0),
    }
    loss = changes.pop("loss", CRITERION)
    return PrivateOptimizer(model, optimizer or sgd(model.parameters()), loss, **(settings | changes))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Poisson batches, one of them empty."""
    sampler = PoissonSampler(ROWS, EXPECTED)
    rows = [sampler.draw(Streams(1).stream("sampling", step), ROWS) for step in range(count)]
    rows[1] = rows[1][:0]
    assert len({len(one) for one in rows}) > 2
    return [(INPUTS[one], TARGETS[one]) for one in rows]


def weights(model: nn.Module) -> torch.Tensor:
    return ParameterLayout.of(model).flatten(model, torch.float64)


def random_support(model: nn.Module, part: int) -> Support:
    d = ParameterLayout.of(model).size
    return Support.of(torch.randperm(d, generator=generator(3))[: d // part], d)
