"""A small neural regressor on principal components, its penalty and stopping time chosen by held-out maps.

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> x = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
>>> y, stream = 16.0 + 4.0 * np.tanh(x[:, :2]), Streams(0).stream("attack")
>>> folds = deal(np.arange(60) % 6, stream)
>>> inputs = np.repeat(x[None], FOLDS + 1, axis=0)
>>> fitted = fit(Inputs(inputs, inputs), y, folds, limit=32.0, stream=stream)
>>> fitted.error < 0.5 * float(np.sqrt(np.sum(y.var(axis=0))))
True

All networks that the choice needs (every penalty, with every third of the maps left out and with none) start from the same
weights and are trained at once by batched products with Adam on the whole data: a dozen small networks cost about what one
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.radiomap.kernel_ridge import clamp
from sfumato.radiomap.localisation import Vector, root_mean_square
from sfumato.rng import RandomStream

FOLDS: Final = 3
HIDDEN: Final = 32
PENALTIES: Final = (3e-4, 3e-3, 3e-2)
STEPS: Final = 120
_CHECK_EVERY: Final = 20
_RATE: Final = 0.02

Weights = list[torch.Tensor]
Scores = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Principal components of the shadow uploads, once per left-out third and once with none left out.

    Attributes:
        train: (4, n, p) what networks are trained on.
        check: (4, n, p) what held-out guesses are made from; differs from ``train`` if that is free of noise.
        noise: (4, p, p) roots R of the noise's covariance R'R, of which a fresh draw is added to ``train`` at every step;
            None for none.
    """

    train: Scores
    check: Scores
    noise: Scores | None = None


@dataclass(frozen=True, eq=False)
class Perceptron:
    """One fitted network with a hidden layer of tanh units.

    Attributes:
        weights: first weights, first biases, second weights, second biases; with a leading axis of 1.
        centre: (2,) mean of the positions in metres.
        scale: metres per unit of output.
        held_out: (n, 2) guesses for the training rows, each of a network that did not see its third of the maps.
        error: the root mean square distance of those from the truth, in metres.
        limit: guesses are clamped to 0..limit metres.
    """

    weights: Weights
    centre: Vector
    scale: float
    held_out: Vector
    error: float
    limit: float

    def predict(self, scores: NDArray[Any]) -> Vector:
        """(m, 2) guesses from (m, p) principal components, of the scale of the training's."""
        with torch.no_grad():
            out = _forward(torch.from_numpy(scores.astype(np.float32))[None], self.weights)[0]
        return clamp(out.double().numpy() * self.scale + self.centre, self.limit)


def deal(groups: NDArray[np.int64], stream: RandomStream) -> NDArray[np.int64]:
    """(n,) the third, 0 to 2, that each row is left out with: whole maps, dealt out at random.

    Args:
        groups: (n,) the map of each row; at least three different ones.
        stream: the order of the maps.
    """
    names, numbers = np.unique(groups, return_inverse=True)
    return (stream.permutation(len(names)) % FOLDS)[numbers]


def fit(
    inputs: Inputs, positions: Vector, folds: NDArray[np.int64], limit: float, stream: RandomStream
) -> Perceptron:
    """Train, and choose penalty and stopping time by the error on held-out maps.

    Args:
        inputs: principal components of n uploads.
        positions: (n, 2) metres.
        folds: (n,) of `deal`.
        limit: side of the window in metres.
        stream: draws the first weights and the added noise.
    """
    centre: Vector = positions.mean(axis=0)
    scale = root_mean_square(positions, np.broadcast_to(centre, positions.shape)) or 1.0
    targets = torch.from_numpy(((positions - centre) / scale).astype(np.float32))
    best = (np.inf, np.empty((0, 2)), list[torch.Tensor]())
    for weights, outputs in _train(inputs, targets, folds, stream):
        metres = clamp(outputs.double().numpy() * scale + centre, limit)
        for number in range(len(PENALTIES)):
            first = number * (FOLDS + 1)
            guesses = metres[first + folds, np.arange(len(folds))]
            error = root_mean_square(guesses, positions)
            if error < best[0]:
                last = first + FOLDS
                best = (error, guesses, [part[last : last + 1].clone() for part in weights])
    error, held_out, kept = best
    return Perceptron(kept, centre, scale, held_out, error, limit)


def _start(inputs: int, stream: RandomStream) -> Weights:
    """First weights of one network, of variance 1 / fan-in."""
    shapes, fans = ((inputs, HIDDEN), (1, HIDDEN), (HIDDEN, 2), (1, 2)), (inputs, 0, HIDDEN, 0)
    return [
        torch.from_numpy((stream.standard_normal(shape) * (fan**-0.5 if fan else 0.0)).astype(np.float32))
        for shape, fan in zip(shapes, fans, strict=True)
    ]


def _forward(inputs: torch.Tensor, weights: Weights) -> torch.Tensor:
    """(e, n, 2) outputs of e networks on (e, n, p) inputs."""
    first, first_bias, second, second_bias = weights
    hidden = torch.tanh(torch.matmul(inputs, first) + first_bias)
    return torch.matmul(hidden, second) + second_bias


def _train(
    inputs: Inputs, targets: torch.Tensor, folds: NDArray[np.int64], stream: RandomStream
) -> Iterator[tuple[Weights, torch.Tensor]]:
    """Every twenty steps of Adam: the weights of all e networks and their (e, n, 2) outputs on the rows to check."""
    penalties = torch.tensor(np.repeat(PENALTIES, FOLDS + 1), dtype=torch.float32)
    # The last network of each penalty leaves nothing out.
    seen = torch.from_numpy((folds[None] != np.arange(FOLDS + 1)[:, None]).astype(np.float32))
    share = (seen / seen.sum(dim=1, keepdim=True)).repeat(len(PENALTIES), 1)
    train, check = torch.from_numpy(inputs.train), torch.from_numpy(inputs.check)
    roots = None if inputs.noise is None else torch.from_numpy(inputs.noise)
    weights = [part.repeat(len(penalties), 1, 1).requires_grad_() for part in _start(train.shape[2], stream)]
    generator = torch.Generator().manual_seed(int(stream.integers(0, 2**31, 1)[0]))
    optimizer = torch.optim.Adam(weights, lr=_RATE)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad(set_to_none=True)
        rows = train
        if roots is not None:
            rows = train + torch.randn(train.shape, generator=generator) @ roots
        outputs = _forward(rows.repeat(len(PENALTIES), 1, 1), weights)
        fit_error = (((outputs - targets) ** 2).sum(dim=2) * share).sum(dim=1)
        size = (weights[0] ** 2).sum(dim=(1, 2)) + (weights[2] ** 2).sum(dim=(1, 2))
        (fit_error + penalties * size).sum().backward()
        optimizer.step()
        if step % _CHECK_EVERY == 0:
            with torch.no_grad():
                outputs = _forward(check.repeat(len(PENALTIES), 1, 1), weights)
                yield [part.detach() for part in weights], outputs
