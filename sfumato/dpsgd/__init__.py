"""Private gradients of torch modules: layout, support, clipped sums, noise and optimisers.

>>> import torch
>>> from sfumato.rng import Streams
>>> model = torch.nn.Linear(2, 2)
>>> validate(model)
>>> support = Support.of([0, 5], ParameterLayout.of(model).size)
>>> loss = lambda outputs, targets: torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
>>> empty = (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
>>> clipped = get_engine().clipped_sum(model, loss, empty, support, clip_norm=1.0)
>>> privatize(clipped, 1.0, noise_multiplier=1.0, expected_batch_size=10, stream=Streams(0).stream("noise", 0)).shape
torch.Size([2])
"""

from __future__ import annotations

from sfumato.dpsgd.engine import Batch, ClippedSum, Engine, Loss, get_engine
from sfumato.dpsgd.layout import ParameterLayout
from sfumato.dpsgd.mixing import check_examples_do_not_mix, check_mixing
from sfumato.dpsgd.optimizers import Adam, Optimizer, Sgd, State, restrict_state
from sfumato.dpsgd.private_optimizer import PrivateOptimizer
from sfumato.dpsgd.privatize import privatize
from sfumato.dpsgd.support import Support
from sfumato.dpsgd.taps import FastPooling
from sfumato.dpsgd.validation import validate

__all__ = [
    "Adam",
    "Batch",
    "ClippedSum",
    "Engine",
    "FastPooling",
    "Loss",
    "Optimizer",
    "ParameterLayout",
    "PrivateOptimizer",
    "Sgd",
    "State",
    "Support",
    "check_examples_do_not_mix",
    "check_mixing",
    "get_engine",
    "privatize",
    "restrict_state",
    "validate",
]
