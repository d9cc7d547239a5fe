"""The learned allocator: a small network from statistics of uploads to shares of the noise energy.

>>> import numpy as np
>>> sizes = np.array([100, 900])
>>> network = untrained(inputs=10, sizes=sizes, hidden=8, random=np.random.default_rng(0).standard_normal((8, 10)))
>>> network.shares(np.linspace(-1, 1, 10)).round(12).tolist()
[0.1, 0.9]

It starts at the shares d_g / d of uniform noise, whatever the input, and is trained to lower

    task weight * cost of the energy - privacy weight * log(proxy's error / constant predictor's)
        + entropy weight * KL(shares || d_g / d).

The divergence from that start stands in for the paper's entropy bonus over groups, which would pull towards equal
shares of groups of unequal size; without it all of the energy ends on one group (Section 3.1 of docs/papers.md leaves
the weights, the network and the schedule open).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import FloatArray, size_shares, softmax
from sfumato.radiomap.proxy import ProxyAttacker
from sfumato.rng import RandomStream

_WINSOR: Final = 5.0


@dataclass(frozen=True)
class AllocatorSettings:
    """How an allocator is trained.

    Attributes:
        hidden: units of its one hidden layer.
        steps: full-batch steps of Adam.
        learning_rate: of Adam.
        task_weight: on the cost of the shares, over that of uniform noise.
        privacy_weight: on the logarithm of the proxy's error.
        entropy_weight: on the divergence from the start, in nats.

    Raises:
        SfumatoError: if a number is outside of what is allowed.
    """

    hidden: int = 16
    steps: int = 100
    learning_rate: float = 0.03
    task_weight: float = 0.1
    privacy_weight: float = 1.0
    entropy_weight: float = 0.3

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("hidden", "steps"):
            value = getattr(self, name)
            if not is_integer(value) or value < 1:
                raise SfumatoError(f"{name} is {value!r}; allowed is an integer of at least 1.")
        if not is_number(self.learning_rate) or not 0.0 < self.learning_rate < math.inf:
            raise SfumatoError(
                f"learning_rate is {self.learning_rate!r}; allowed is a finite number above 0."
            )
        for name in ("task_weight", "privacy_weight", "entropy_weight"):
            value = getattr(self, name)
            if not is_number(value) or not 0.0 <= value < math.inf:
                raise SfumatoError(f"{name} is {value!r}; allowed is a finite number of at least 0.")


@dataclass(frozen=True, eq=False)
class Allocator:
    """A network of one hidden layer, evaluated in float64.

    Attributes:
        center: (k,) subtracted from the inputs.
        scale: (k,) that they are divided by; standardised inputs are cut at 5 standard deviations.
        hidden_weight: (h, k).
        hidden_bias: (h,).
        output_weight: (G, h).
        output_bias: (G,).
    """

    center: FloatArray
    scale: FloatArray
    hidden_weight: FloatArray
    hidden_bias: FloatArray
    output_weight: FloatArray
    output_bias: FloatArray

    def shares(self, inputs: FloatArray) -> FloatArray:
        """(..., G) shares of the energy, of sum 1, for inputs (..., k) of `summary.describe`.

        Raises:
            SfumatoError: if the inputs have another number of entries.
        """
        if inputs.shape[-1:] != self.center.shape:
            raise SfumatoError(
                f"the allocator's input has shape {inputs.shape}; allowed is (..., {len(self.center)})."
            )
        hidden = np.tanh(self.standardised(inputs) @ self.hidden_weight.T + self.hidden_bias)
        return softmax(hidden @ self.output_weight.T + self.output_bias)

    def standardised(self, inputs: FloatArray) -> FloatArray:
        """The inputs in standard deviations, cut at 5."""
        return np.clip((inputs - self.center) / self.scale, -_WINSOR, _WINSOR)

    def arrays(self) -> dict[str, FloatArray]:
        """The arrays by name, to be kept in a file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Allocator:
        """The allocator of `arrays`.

        Raises:
            SfumatoError: if an array is missing or not finite.
        """
        kept: dict[str, FloatArray] = {}
        for field in fields(cls):
            if field.name not in arrays:
                raise SfumatoError(
                    f"the allocator's {field.name} is missing; allowed is one array per field."
                )
            kept[field.name] = np.asarray(arrays[field.name], np.float64)
            if not bool(np.isfinite(kept[field.name]).all()):
                raise SfumatoError(f"the allocator's {field.name} is not finite; allowed are finite numbers.")
        return cls(**kept)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained allocator and how it got there.

    Attributes:
        allocator: the network.
        objective: its objective before each step and after the last.
        proxy_rmse: the proxy's expected error in metres, likewise.
    """

    allocator: Allocator
    objective: tuple[float, ...]
    proxy_rmse: tuple[float, ...]


def untrained(inputs: int, sizes: NDArray[np.int64], hidden: int, random: FloatArray) -> Allocator:
    """The network whose shares are d_g / d at every input.

    Args:
        inputs: k.
        sizes: (G,) d_g.
        hidden: h.
        random: (h, k) standard normal draws for the first layer.
    """
    return Allocator(
        np.zeros(inputs),
        np.ones(inputs),
        random / math.sqrt(inputs),
        np.zeros(hidden),
        np.zeros((len(sizes), hidden)),
        np.log(size_shares(sizes)),
    )


def train_allocator(
    inputs: FloatArray,
    proxy: ProxyAttacker,
    costs: FloatArray,
    budget: float,
    settings: AllocatorSettings,
    stream: RandomStream,
) -> Trained:
    """Train on shadow uploads of public maps, disjoint from those that are evaluated.

    Args:
        inputs: (n, k) of the proxy's n uploads; `summary.describe_each` for the paper's allocator,
            `certified.public_inputs` for the certified one.
        proxy: the attacker to be misled.
        costs: (G,) loss per unit of energy on each group, from `allocation.utility_costs`.
        budget: (nu C)^2, above 0.
        settings: how.
        stream: of the first layer's weights.

    Raises:
        SfumatoError: if a shape does not fit or the objective ceases to be finite.
    """
    if inputs.ndim != 2 or len(inputs) != proxy.count:
        raise SfumatoError(f"inputs has shape {inputs.shape}; allowed is ({proxy.count}, k).")
    sizes = proxy.sizes.numpy().astype(np.int64)
    spread = inputs.std(axis=0)
    random = stream.standard_normal((settings.hidden, inputs.shape[1]))
    start = untrained(inputs.shape[1], sizes, settings.hidden, random).arrays()
    start |= {"center": inputs.mean(axis=0), "scale": np.where(spread > 1e-9, spread, 1.0)}
    standardised = torch.as_tensor(Allocator(**start).standardised(inputs))
    names = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
    weights = [torch.tensor(start[name], requires_grad=True) for name in names]

    def logits() -> Tensor:
        hidden = torch.tanh(standardised @ weights[0].T + weights[1])
        return hidden @ weights[2].T + weights[3]

    objective, rmse = _descend(logits, weights, proxy, costs, budget, settings)
    start |= {name: weight.detach().numpy().copy() for name, weight in zip(names, weights, strict=True)}
    return Trained(Allocator(**start), objective, rmse)


def learn_shares(
    proxy: ProxyAttacker, costs: FloatArray, budget: float, settings: AllocatorSettings
) -> FloatArray:
    """(G,) shares that lower the same objective without any input, to be frozen and so certified.

    Args:
        proxy: the attacker to be misled, on public maps.
        costs: (G,) loss per unit of energy on each group.
        budget: (nu C)^2, above 0.
        settings: how; ``hidden`` is not used.

    Raises:
        SfumatoError: if a shape does not fit or the objective ceases to be finite.
    """
    sizes = proxy.sizes.numpy().astype(np.int64)
    bias = torch.tensor(np.log(size_shares(sizes)), requires_grad=True)
    _descend(lambda: bias.expand(proxy.count, -1), [bias], proxy, costs, budget, settings)
    return softmax(bias.detach().numpy())


def _descend(
    logits: Callable[[], Tensor],
    weights: list[Tensor],
    proxy: ProxyAttacker,
    costs: FloatArray,
    budget: float,
    settings: AllocatorSettings,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Adam on the objective; its values and the proxy's errors before each step and after the last."""
    if costs.shape != proxy.sizes.shape or not bool(np.isfinite(costs).all()):
        raise SfumatoError(
            f"costs is {costs.tolist()}; allowed are {len(proxy.sizes)} finite numbers, one per group."
        )
    if not is_number(budget) or not 0.0 < budget < math.inf:
        raise SfumatoError(f"budget is {budget!r}; allowed is a finite number above 0.")
    start = proxy.sizes / proxy.sizes.sum()
    relative = torch.as_tensor(costs) / max(float(np.abs(costs) @ start.numpy()), 1e-300)
    log_constant = 2.0 * math.log(proxy.constant_rmse)
    adam = torch.optim.Adam(weights, lr=settings.learning_rate)
    objectives: list[float] = []
    errors: list[float] = []
    for step in range(settings.steps + 1):
        log_shares = torch.log_softmax(logits(), dim=1)
        shares = log_shares.exp()
        error = proxy.error(shares * budget / proxy.sizes)
        divergence = (shares * (log_shares - start.log())).sum(1).mean()
        loss = (
            settings.task_weight * (shares @ relative).mean()
            - settings.privacy_weight * (error.log() - log_constant)
            + settings.entropy_weight * divergence
        )
        if not bool(torch.isfinite(loss)):
            raise SfumatoError(
                f"the allocator's objective is not finite at step {step}; take a lower learning rate."
            )
        objectives.append(float(loss.detach()))
        errors.append(math.sqrt(float(error.detach())))
        if step < settings.steps:
            adam.zero_grad()
            loss.backward()
            adam.step()
    return tuple(objectives), tuple(errors)
