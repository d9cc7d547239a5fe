"""Per-example gradients of one parameter's active coordinates: their norms first, their weighted sum afterwards.

>>> import torch
>>> outer = OuterRows(torch.tensor([[3.0]]), torch.tensor([[1.0, 2.0]]), local=None)
>>> outer.squares(exact=False), outer.weighted_sum(torch.tensor([0.5]), torch.tensor([False]))
(tensor([45.], dtype=torch.float64), tensor([1.5000, 3.0000]))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch.nn import functional
from torch.nn.grad import conv2d_weight  # pyright: ignore[reportUnknownVariableType]

from sfumato.clipping import vector_norm

_CHUNK = 256  # float32 sums of so many squares are exact to 4e-7


class Rows(Protocol):
    """B per-example gradients over the k active coordinates of one parameter."""

    def squares(self, exact: bool) -> torch.Tensor:
        """Tensor[B], float64: the squared norms; ``exact`` squares in float64 too, for the tiniest of clip norms."""
        ...

    def weighted_sum(self, weights: torch.Tensor, broken: torch.Tensor) -> torch.Tensor:
        """Tensor[k]: the sum of the rows times their weights, Tensor[B]; rows where ``broken`` count as zero."""
        ...


class DenseRows:
    """Gradients that are held as a matrix (B, k)."""

    def __init__(self, gradients: torch.Tensor, local: torch.Tensor | None) -> None:
        """Keep the active columns of (B, size) gradients; the tensor may be overwritten if all are active."""
        self._values = gradients.contiguous() if local is None else gradients.index_select(1, local)

    def squares(self, exact: bool) -> torch.Tensor:
        """Squared norms: pieces of 256 coordinates in the gradients' dtype, their sum in float64."""
        values = self._values
        if exact or values.dtype == torch.float64:
            return vector_norm(values, dtype=torch.float64).square()
        if values.shape[1] <= _CHUNK:
            return vector_norm(values).double().square()
        whole = values.shape[1] // _CHUNK * _CHUNK
        pieces = values[:, :whole].view(len(values), whole // _CHUNK, _CHUNK)
        body = vector_norm(pieces).double()
        rest = vector_norm(values[:, whole:]).double()
        return body.square().sum(dim=1) + rest.square()

    def weighted_sum(self, weights: torch.Tensor, broken: torch.Tensor) -> torch.Tensor:
        """The weights times the matrix."""
        safe = self._values.index_fill_(0, torch.nonzero(broken).flatten(), 0.0)
        return torch.mv(safe.t(), weights.to(safe.dtype))


class OuterRows:
    """Gradients of a Linear weight, each the outer product of output gradient and input; never formed."""

    def __init__(self, outputs: torch.Tensor, inputs: torch.Tensor, local: torch.Tensor | None) -> None:
        """Keep output gradients (B, O) and inputs (B, I) of a weight (O, I)."""
        self._outputs, self._inputs, self._local = outputs, inputs, local

    def squares(self, exact: bool) -> torch.Tensor:
        """Squared norms in float64: sum over active (o, i) of g_o^2 x_i^2."""
        outputs, inputs = self._outputs.double().square(), self._inputs.double().square()
        if self._local is None:
            return outputs.sum(dim=1) * inputs.sum(dim=1)
        mask = torch.zeros(outputs.shape[1] * inputs.shape[1], dtype=torch.float64)
        mask[self._local] = 1.0
        return (outputs @ mask.view(outputs.shape[1], -1) * inputs).sum(dim=1)

    def weighted_sum(self, weights: torch.Tensor, broken: torch.Tensor) -> torch.Tensor:
        """One matrix product of weighted output gradients and inputs."""
        zero = torch.zeros((), dtype=self._outputs.dtype)
        outputs = torch.where(broken[:, None], zero, self._outputs * weights.to(zero.dtype)[:, None])
        dense = (outputs.t() @ torch.where(broken[:, None], zero, self._inputs)).flatten()
        return dense if self._local is None else dense[self._local]


def linear_rows(gradient: torch.Tensor, inputs: torch.Tensor, local: torch.Tensor | None) -> Rows:
    """Rows of a Linear weight from output gradient (B, ..., O) and inputs (B, ..., I)."""
    outputs, features = _positions(gradient), _positions(inputs)
    if outputs.shape[1] == 1:
        return OuterRows(outputs[:, 0], features[:, 0], local)
    return DenseRows(torch.bmm(outputs.transpose(1, 2), features).flatten(1), local)


def conv2d_rows(
    gradient: torch.Tensor, inputs: torch.Tensor, options: Mapping[str, Any], local: torch.Tensor | None
) -> Rows:
    """Rows of a Conv2d weight from output gradient (B, 1, O, H', W') and inputs (B, 1, C, H, W)."""
    return DenseRows(conv2d_gradients(gradient, inputs, options).flatten(1), local)


def conv2d_gradients(
    gradient: torch.Tensor, inputs: torch.Tensor, options: Mapping[str, Any]
) -> torch.Tensor:
    """Gradients (B, O, ...) of a Conv2d weight from output gradient (B, 1, O, H', W') and inputs (B, 1, C, H, W).

    Patches of the input are multiplied with the output gradient; where they would be large, the same gradients
    come from one convolution in which every example is a group of its own. Shapes alone decide.
    """
    positions = gradient.shape[3] * gradient.shape[4]
    patch = inputs.shape[2] * options["kernel"][0] * options["kernel"][1]
    if positions >= 128 and patch * positions > 65_536:
        return _by_groups(gradient, inputs, options)
    return _by_patches(gradient, inputs, options)


def _by_groups(gradient: torch.Tensor, inputs: torch.Tensor, options: Mapping[str, Any]) -> torch.Tensor:
    """Gradients (B, O, C/groups, kernel) by a convolution with one group for each example and group."""
    count, channels, outputs = len(gradient), inputs.shape[2], gradient.shape[2]
    shape = (count * outputs, channels // options["groups"], *options["kernel"])
    weight = conv2d_weight(
        inputs.reshape(1, count * channels, *inputs.shape[3:]),
        shape,
        gradient.reshape(1, count * outputs, *gradient.shape[3:]),
        options["stride"],
        options["padding"],
        options["dilation"],
        count * options["groups"],
    )
    return weight.view(count, outputs, *shape[1:])


def _by_patches(gradient: torch.Tensor, inputs: torch.Tensor, options: Mapping[str, Any]) -> torch.Tensor:
    """Gradients (B, groups, O/groups, C/groups * kernel) by one matrix product for each example and group."""
    (vertical, horizontal), (down, across) = options["padding"], options["dilation"]
    (step_down, step_across), (height, width) = options["stride"], options["kernel"]
    count, groups = len(gradient), options["groups"]
    outputs = gradient.reshape(count, groups, gradient.shape[2] // groups, -1)
    images = functional.pad(inputs[:, 0], (horizontal, horizontal, vertical, vertical)).contiguous()
    example, channel, row, column = images.stride()
    patches = images.as_strided(
        (count, images.shape[1], height, width, *gradient.shape[3:]),
        (example, channel, row * down, column * across, row * step_down, column * step_across),
    )
    columns = patches.reshape(count, groups, images.shape[1] // groups * height * width, -1)
    return torch.matmul(outputs, columns.transpose(2, 3))


def bias_rows(gradient: torch.Tensor, kind: str, local: torch.Tensor | None) -> Rows:
    """Rows of a bias: the output gradient summed over positions."""
    if kind == "conv2d":
        return DenseRows(gradient.sum(dim=(1, 3, 4)), local)
    return DenseRows(_positions(gradient).sum(dim=1), local)


def _positions(tensor: torch.Tensor) -> torch.Tensor:
    """(B, ..., F) as (B, positions, F)."""
    return tensor.reshape(len(tensor), -1, tensor.shape[-1])
