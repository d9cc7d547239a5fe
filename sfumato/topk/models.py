"""The architectures of the topk experiments; none mixes examples, none draws from a global generator.

>>> from sfumato.rng import Streams
>>> model = build("cnn28", (1, 28, 28), 10, Streams(0).stream("init"))
>>> sum(parameter.numel() for parameter in model.parameters())
26010
"""

from __future__ import annotations

import math

import torch
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream


def _cnn28(channels: int, classes: int) -> nn.Sequential:
    """Two strided convolutions for 28 x 28 images (Section 2.3 of docs/papers.md), tanh."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    )


def _cnn32(channels: int, classes: int) -> nn.Sequential:
    """Three pairs of 3 x 3 convolutions for 32 x 32 images (Section 2.3 of docs/papers.md), tanh."""
    layers: list[nn.Module] = []
    width = channels
    for out in (32, 64, 128):
        layers += [
            nn.Conv2d(width, out, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(out, out, 3, padding=1),
            nn.Tanh(),
        ]
        layers += [nn.MaxPool2d(2)]
        width = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, classes))


def _mlp(features: int, classes: int) -> nn.Sequential:
    """Two hidden layers for tables and small images, tanh."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, classes)
    )


def initialize(model: nn.Module, stream: RandomStream) -> None:
    """Redraw every weight and bias uniformly on +-1/sqrt(fan in), torch's own rule, from a named stream."""
    with torch.no_grad():
        bound = 1.0
        for _name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                bound = 1.0 / math.sqrt(math.prod(parameter.shape[1:]))
            values = (2.0 * stream.random(tuple(parameter.shape)) - 1.0) * bound
            parameter.copy_(torch.from_numpy(values).to(parameter.dtype))


def build(name: str, example_shape: tuple[int, ...], classes: int, stream: RandomStream) -> nn.Sequential:
    """A freshly initialised architecture.

    Args:
        name: ``cnn28``, ``cnn32`` or ``mlp``.
        example_shape: shape of one example, without the batch axis.
        classes: number of outputs.
        stream: draws the initial weights.

    Raises:
        SfumatoError: if the architecture does not fit the example shape.
    """
    sizes = {"cnn28": (28, 28), "cnn32": (32, 32)}
    if name in sizes and (len(example_shape) != 3 or example_shape[1:] != sizes[name]):
        raise SfumatoError(
            f"model is {name!r} for examples of shape {example_shape}; allowed are images of {sizes[name]} pixels."
        )
    with torch.random.fork_rng(devices=[]):
        if name == "cnn28":
            model = _cnn28(example_shape[0], classes)
        elif name == "cnn32":
            model = _cnn32(example_shape[0], classes)
        elif name == "mlp":
            model = _mlp(math.prod(example_shape), classes)
        else:
            raise SfumatoError(f"model is {name!r}; allowed is 'cnn28', 'cnn32' or 'mlp'.")
    initialize(model, stream)
    return model
