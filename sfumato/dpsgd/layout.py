"""The order in which a module's trainable parameters form one flat vector.

>>> import torch
>>> layout = ParameterLayout.of(torch.nn.Linear(3, 2))
>>> layout.size, layout.slices
(8, {'weight': slice(0, 6, None), 'bias': slice(6, 8, None)})
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from sfumato.dpsgd.support import Support
from sfumato.errors import SfumatoError


@dataclass(frozen=True)
class ParameterLayout:
    """Names, shapes and places of the parameters that require a gradient, in ``named_parameters`` order.

    A parameter shared by two layers stands once, under its first name. Coordinates of one parameter are
    in row-major order of its shape, whatever its memory format.

    Attributes:
        names: dotted parameter names.
        shapes: the parameters' shapes.
        offsets: the flat index at which each parameter starts.
        size: d, the number of coordinates.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, module: nn.Module) -> ParameterLayout:
        """The layout of a module's trainable parameters (none at all is a layout of size 0)."""
        names, shapes, offsets, size = list[str](), list[tuple[int, ...]](), list[int](), 0
        for name, parameter in trainable(module):
            names.append(name)
            shapes.append(tuple(parameter.shape))
            offsets.append(size)
            size += parameter.numel()
        return cls(tuple(names), tuple(shapes), tuple(offsets), size)

    @property
    def slices(self) -> dict[str, slice]:
        """The place of each parameter in the flat vector, by its name."""
        counts = [math.prod(shape) for shape in self.shapes]
        return {
            name: slice(offset, offset + count)
            for name, offset, count in zip(self.names, self.offsets, counts, strict=True)
        }

    def flatten(self, module: nn.Module, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A copy of the module's trainable parameters as Tensor[d].

        Raises:
            SfumatoError: if the module's trainable parameters are not those of this layout.
        """
        self.check(module)
        flat = torch.empty(self.size, dtype=dtype)
        for (_, parameter), place in zip(trainable(module), self.slices.values(), strict=True):
            flat[place] = parameter.detach().reshape(-1)
        return flat

    def load(self, module: nn.Module, vector: torch.Tensor) -> None:
        """Write Tensor[d] into the module's trainable parameters, in place; parameters keep their dtype.

        Raises:
            SfumatoError: if the vector's shape is not (d,) or the module's parameters are not this layout's.
        """
        self.check(module)
        if tuple(vector.shape) != (self.size,):
            raise SfumatoError(
                f"vector has shape {tuple(vector.shape)}; allowed is ({self.size},), the layout's size."
            )
        with torch.no_grad():
            for (_, parameter), place in zip(trainable(module), self.slices.values(), strict=True):
                parameter.copy_(vector.detach()[place].view(parameter.shape))

    def add(self, module: nn.Module, support: Support, delta: torch.Tensor) -> None:
        """Add Tensor[k], in support order, to the module's parameters in place; others stay bitwise as they are.

        Raises:
            SfumatoError: if support, delta or module do not fit this layout.
        """
        self.check(module)
        pieces = support.by_layer(self)
        if tuple(delta.shape) != (support.k,):
            raise SfumatoError(
                f"delta has shape {tuple(delta.shape)}; allowed is ({support.k},), the support's size."
            )
        start = 0
        with torch.no_grad():
            for name, parameter in trainable(module):
                local = pieces[name]
                values = delta[start : start + local.numel()].to(parameter.dtype)
                start += local.numel()
                if local.numel() == parameter.numel():
                    parameter.add_(values.view(parameter.shape))
                elif local.numel() and parameter.is_contiguous():
                    parameter.view(-1).index_add_(0, local, values)
                elif local.numel():
                    parameter.copy_(parameter.reshape(-1).index_add(0, local, values).view(parameter.shape))

    def check(self, module: nn.Module) -> None:
        """Raise a sentence that names the first trainable parameter of the module that is not as in this layout."""
        found = [(name, tuple(parameter.shape)) for name, parameter in trainable(module)]
        wanted = list(zip(self.names, self.shapes, strict=True))
        for (name, shape), (other_name, other_shape) in zip(found, wanted, strict=False):
            if (name, shape) != (other_name, other_shape):
                raise SfumatoError(
                    f"the module's parameter {name!r} has shape {shape} where the layout has {other_name!r} of "
                    f"shape {other_shape}; make the layout anew with ParameterLayout.of(module)."
                )
        if len(found) != len(wanted):
            raise SfumatoError(
                f"the module has {len(found)} trainable parameters where the layout has {len(wanted)}; "
                "make the layout anew with ParameterLayout.of(module)."
            )


def trainable(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The named parameters of a module that require a gradient, shared ones once."""
    return ((name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad)
