"""Models, supports and the slow, obvious reference that the engines are compared with."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sfumato.dpsgd import ClippedSum, Loss, ParameterLayout, Support


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def initialise(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter values of its own from a generator that is not the global one."""
    source = generator(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            fan = max(1, parameter[0].numel() if parameter.ndim > 1 else 4)
            values = torch.randn(parameter.shape, generator=source, dtype=torch.float64) / fan**0.5
            parameter.copy_(values + (1.0 if "norm" in name else 0.0))
    return module


class Tokens(nn.Module):
    """Embedding, LayerNorm and a Linear layer over positions."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6, padding_idx=padding_idx)
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Linear(6, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mix(self.norm(self.embedding(tokens)))).mean(dim=1))


class Tied(nn.Module):
    """One Linear layer used twice, and one weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.head = nn.Linear(6, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.first(torch.tanh(self.second(torch.tanh(self.first(x)))))))


class OwnParameters(nn.Module):
    """A layer of the user's own that holds parameters, and a weight that is used outside of its layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.linear = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.scale) + self.linear.weight.square().sum() * x.sum(dim=1, keepdim=True)


def image_model(**conv: object) -> nn.Module:
    groups = conv.get("groups", 1)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 6, (3, 2), **conv),  # type: ignore[arg-type]
        nn.GroupNorm(3 if groups != 2 else 2, 6),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.LazyLinear(5),
        nn.Tanh(),
        nn.Linear(5, 3),
    )


MODELS = {
    "linear": lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    "linear_without_bias": lambda: nn.Linear(6, 3, bias=False),
    "convolution": lambda: image_model(),
    "convolution_stride": lambda: image_model(stride=(2, 1)),
    "convolution_padding": lambda: image_model(padding=(2, 1), bias=False),
    "convolution_dilation": lambda: image_model(dilation=(1, 2), padding=1),
    "convolution_groups": lambda: image_model(groups=2, stride=2, padding=1),
    "convolution_same": lambda: image_model(padding="same"),
    "tokens": Tokens,
    "tokens_with_padding": lambda: Tokens(0),
    "tied": Tied,
    "own_parameters": OwnParameters,
}
OPACUS_MODELS = [
    name for name in MODELS if name not in ("own_parameters", "convolution_same", "tokens_with_padding")
]


def make(
    name: str, dtype: torch.dtype, examples: int = 7
) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """A model of that name and a batch for it."""
    source = generator(1)
    if name.startswith("tokens"):
        inputs = torch.randint(0, 11, (examples, 4), generator=source)
    elif name.startswith("convolution"):
        inputs = torch.randn(examples, 2, 8, 7, generator=source, dtype=torch.float64).to(dtype)
    else:
        inputs = torch.randn(examples, 6, generator=source, dtype=torch.float64).to(dtype)
    targets = torch.randint(0, 3, (examples,), generator=source)
    model = MODELS[name]()
    with torch.no_grad():
        model(inputs.float() if inputs.is_floating_point() else inputs)  # sizes the lazy layer
    return initialise(model).to(dtype), (inputs, targets)


def supports(layout: ParameterLayout) -> dict[str, Support]:
    """Masks from none to all, structured and not."""
    d, random = layout.size, np.random.Generator(np.random.Philox(3))
    last = list(layout.slices.values())[-1]
    rows = max(range(len(layout.names)), key=lambda i: len(layout.shapes[i]))
    width = int(np.prod(layout.shapes[rows][1:]))
    biases = [np.arange(s.start, s.stop) for n, s in layout.slices.items() if n.endswith("bias")]
    return {
        "none": Support.of([], d),
        "first": Support.of([0], d),
        "last": Support.of([d - 1], d),
        "biases": Support.of(np.concatenate(biases) if biases else [], d),
        "one_row": Support.of(layout.offsets[rows] + width + np.arange(width), d),
        "last_parameter": Support.of(np.arange(last.start, last.stop), d),
        "random_5": Support.of(random.permutation(d)[: max(1, d // 20)], d),
        "random_50": Support.of(random.permutation(d)[: d // 2], d),
        "all": Support.full(d),
    }


def reference_gradients(
    model: nn.Module, loss: Loss, batch: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Tensor[B, d], float64: each example's gradient by an autograd call of its own."""
    exact = copy.deepcopy(model).double()
    parameters = [parameter for parameter in exact.parameters() if parameter.requires_grad]
    rows = []
    for x, y in zip(*batch, strict=True):
        one = x[None].double() if x.is_floating_point() else x[None]
        value = loss(exact(one), y[None]).sum()
        pieces = torch.autograd.grad(value, parameters, allow_unused=True)
        rows.append(
            torch.cat(
                [
                    torch.zeros(p.numel(), dtype=torch.float64) if g is None else g.reshape(-1)
                    for g, p in zip(pieces, parameters, strict=True)
                ]
            )
        )
    return torch.stack(rows)


def reference_sum(gradients: torch.Tensor, support: Support, clip_norm: float) -> ClippedSum:
    """The mask, then the norm, then the clip, then the sum, in float64."""
    rows = gradients[:, support.indices]
    norms = rows.norm(dim=1)
    factors = (clip_norm / norms.clamp(min=1e-300)).clamp(max=1.0)
    return ClippedSum((rows * factors[:, None]).sum(dim=0), norms)
