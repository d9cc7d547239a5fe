"""Running a module with other tensors in the place of its own, so that the module stays as it was.

>>> import torch
>>> from torch import nn
>>> shared = nn.Linear(2, 2, bias=False)
>>> model = nn.Sequential(shared, shared)
>>> places(model)
{'0.weight': '0.weight'}
>>> call(model, {"0.weight": torch.eye(2)}, places(model), torch.tensor([[1.0, 2.0]]))
tensor([[1., 2.]])
>>> type(model[0].weight).__name__
'Parameter'
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

import torch
from torch import nn
from torch.func import functional_call


def layers(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """All submodules with their dotted names, the module itself first (name ''); a shared one stands once."""
    return list(cast("Iterator[tuple[str, nn.Module]]", cast(Any, module).named_modules()))


def places(module: nn.Module) -> dict[str, str]:
    """Each place that holds a parameter or buffer, with the name that ``named_parameters`` gives its tensor.

    A submodule that is reachable under several names counts once, under the first. A tensor that several
    submodules hold has one place in each of them and one name in all.
    """
    names, found = dict[int, str](), dict[str, str]()
    for path, layer in layers(module):
        for name, tensor in chain(
            layer.named_parameters(recurse=False, remove_duplicate=False),
            layer.named_buffers(recurse=False, remove_duplicate=False),
        ):
            place = f"{path}.{name}" if path else name
            found[place] = names.setdefault(id(tensor), place)
    return found


@contextmanager
def attributes_restored(module: nn.Module) -> Generator[None]:
    """Within this context a module may set attributes of itself and its submodules; afterwards they are as before."""
    before = [(vars(layer), dict(vars(layer))) for _, layer in layers(module)]
    try:
        yield
    finally:
        for attributes, saved in before:
            for name in attributes.keys() - saved.keys():
                del attributes[name]
            attributes.update(saved)


def call(
    module: nn.Module, tensors: Mapping[str, torch.Tensor], where: Mapping[str, str], inputs: torch.Tensor
) -> Any:
    """What the module returns for the inputs with the given tensors as its parameters and buffers.

    torch's own tying of weights is not used: it swaps a submodule with two names twice, and its second
    restoration writes the replacement back into the module.

    Args:
        module: left as it was.
        tensors: by the names that ``named_parameters`` and ``named_buffers`` give.
        where: ``places(module)``.
        inputs: the module's one argument.
    """
    swapped = {place: tensors[name] for place, name in where.items()}
    with attributes_restored(module):
        return functional_call(module, swapped, (inputs,), tie_weights=False)
