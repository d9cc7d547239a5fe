"""The rule for one parameter at its site, by shapes and active coordinates alone; thresholds are measured.

They were set from processor times of clipped sums with one rule or the other, on one core with AVX-512 that other work
shared. The rules change speed, and results by rounding only.

>>> site = Site("linear", "weight", None, {"rows": True})
>>> choose_rule(site, "weight", ((3,), (2,)), (2, 3), torch.tensor([0, 4]), None).rule
'masked'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import numpy as np
import torch
from torch import nn

from sfumato.dpsgd import linear_rules, normalisation_rules
from sfumato.dpsgd.conv_rules import ConvLayout, ConvPart, ShiftPart, by_torch, choose
from sfumato.dpsgd.embedding_rules import EmbeddingPart
from sfumato.dpsgd.kernel_layout import ConvShape, rows_of
from sfumato.dpsgd.layer_rules import Compute, Part, ValuesPart
from sfumato.dpsgd.linear_rules import WIDE_BELOW, GhostPart, OuterLayout, OuterPart
from sfumato.dpsgd.module_rules import ModuleGradients
from sfumato.dpsgd.scratch import Scratch
from sfumato.dpsgd.sites import Site

SAMPLED_DENSITY: Final = 0.25
"""Up to this part of a Linear weight, coordinates are sampled: with 512 examples at once that is faster than products with
the mask up to 0.7 (784-512-256-10), with 32 up to about 0.2 (the last layers of the CIFAR network)."""
GHOST_GAIN: Final = 2
"""Ghost norms are in float64: taken where they need so many times fewer products than the gradients (by count)."""

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Materials:
    """What the parts of one clipped sum are made of.

    Attributes:
        model: the model.
        tensors: its parameters and buffers, by the names that ``places`` gives them.
        where: ``places(model)``.
        kernels: the compiled kernels, or None.
        modules: gradients of layers without a rule, by path; filled as they are needed.
        clip_norm: the bound.
        scratch: memory of the kernels.
    """

    model: nn.Module
    tensors: Mapping[str, torch.Tensor]
    where: Mapping[str, str]
    kernels: ModuleType | None
    modules: dict[str, ModuleGradients]
    clip_norm: float
    scratch: Scratch


@dataclass(frozen=True)
class Rule:
    """A rule for one parameter.

    Attributes:
        rule: its name.
        why: what decided.
        numbers: how many numbers are held for each example.
        start: makes a fresh part.
    """

    rule: str
    why: str
    numbers: int
    start: Callable[[Materials], Part]


def choose_rule(
    site: Site,
    role: str,
    shapes: Shapes,
    parameter: tuple[int, ...],
    local: torch.Tensor | None,
    kernels: ModuleType | None,
) -> Rule:
    """The rule for a weight or bias of an operation.

    Args:
        site: the operation.
        role: ``weight`` or ``bias``.
        shapes: of its input and output for one example.
        parameter: the parameter's shape.
        local: its active coordinates, None for all.
        kernels: the compiled kernels, or None.
    """
    if role == "weight":
        if site.kind == "linear":
            return _linear(site, shapes, (parameter[0], parameter[1]), local, kernels)
        if site.kind == "conv2d":
            return _conv(site, shapes, parameter, local, kernels)
        if site.kind == "embedding":
            table, padding = (parameter[0], parameter[1]), site.options["padding"]
            why, numbers = "sums over equal ids of an example", math.prod(shapes[0]) * table[1]
            return Rule("embedding", why, numbers, lambda _: EmbeddingPart(table, local, padding))
    if site.kind == "conv2d" and kernels is not None:
        channels = np.arange(parameter[0]) if local is None else local.numpy()
        why = "sums of output gradients"
        return Rule(
            "values",
            why,
            len(channels),
            lambda materials: ShiftPart(channels, materials.kernels, materials.scratch),
        )
    if site.kind == "conv2d" and local is not None:
        few = normalisation_rules.shift_of(local)
        return Rule("values", "sums of output gradients", len(local), lambda _: ValuesPart(few, None))
    compute, why = _values(site, role, shapes)
    return Rule("values", why, math.prod(parameter), lambda _: ValuesPart(compute, local))


def module_rule(path: str, names: tuple[str, ...], name: str, size: int, local: torch.Tensor | None) -> Rule:
    """The rule for a parameter of a layer that has no rule of its own.

    Args:
        path: the layer's dotted name.
        names: all parameters that are differentiated there, by their names in the model.
        name: the parameter.
        size: how many coordinates it has.
        local: its active coordinates, None for all.
    """

    def start(materials: Materials) -> Part:
        prefix = path + "."
        if path not in materials.modules:
            own = {
                place.removeprefix(prefix): materials.tensors[key]
                for place, key in materials.where.items()
                if place.startswith(prefix)
            }
            short = tuple(_place(materials, prefix, key) for key in names)
            materials.modules[path] = ModuleGradients(materials.model.get_submodule(path), short, own)
        return ValuesPart(materials.modules[path].of(_place(materials, prefix, name)), local)

    return Rule("torch.func", f"no rule for this use: vmap of layer {path!r} alone", size, start)


def _place(materials: Materials, prefix: str, key: str) -> str:
    """A parameter's name within the layer that holds it."""
    found = next(place for place, name in materials.where.items() if name == key and place.startswith(prefix))
    return found.removeprefix(prefix)


def _linear(
    site: Site,
    shapes: Shapes,
    parameter: tuple[int, int],
    local: torch.Tensor | None,
    kernels: ModuleType | None,
) -> Rule:
    """Rank-one rows, sampled or masked for one row per example; ghost norms or formed gradients for several."""
    size = parameter[0] * parameter[1]
    rows, whole, active = parameter[0], True, size
    if local is not None:
        found, begin = rows_of(local.numpy(), parameter[1])
        rows, whole, active = len(found), bool((np.diff(begin) == parameter[1]).all()), len(local)
    if site.options["rows"]:
        if whole:
            kind, why = "rank_one", "whole rows"
        elif kernels is not None and active <= SAMPLED_DENSITY * size and parameter[1] <= linear_rules.LONG:
            kind, why = "sampled", f"{active / size:.0%} of the weight"
        else:
            kind, why = "masked", f"{active / size:.0%} of the weight: one product with the mask"
        held = parameter[0] + parameter[1]
        layout = OuterLayout(kind, parameter, local)
        return Rule(
            kind, why, held, lambda m: OuterPart(layout, m.kernels, m.clip_norm < WIDE_BELOW, m.scratch)
        )
    count = math.prod(shapes[0][:-1])
    if whole and GHOST_GAIN * count * (rows + parameter[1]) < rows * parameter[1]:
        held, why = count * (rows + parameter[1] + count), f"whole rows, {count} positions"
        return Rule("ghost", why, held, lambda _: GhostPart(parameter, local))
    why = f"{count} positions: gradients are formed"
    return Rule("values", why, size, lambda _: ValuesPart(linear_rules.formed, local))


def _conv(
    site: Site,
    shapes: Shapes,
    parameter: tuple[int, ...],
    local: torch.Tensor | None,
    kernels: ModuleType | None,
) -> Rule:
    """A compiled kernel where there is one, else plain torch."""
    options, size = site.options, math.prod(parameter)
    flat = np.arange(size) if local is None else local.numpy()
    (channels, height, width), (outputs, down, across) = shapes
    shape = ConvShape(
        (channels, height, width),
        (outputs, down, across),
        options["kernel"],
        options["stride"],
        options["padding"],
        options["dilation"],
        options["groups"],
    )
    rows, _ = rows_of(flat, shape.columns)
    if kernels is None:
        restrict = options["groups"] == 1 and len(rows) < outputs
        chosen = torch.from_numpy(rows) if restrict else None
        place = np.searchsorted(rows, flat // shape.columns) * shape.columns + flat % shape.columns
        kept = torch.from_numpy(place) if restrict else local
        if restrict and len(flat) == len(rows) * shape.columns:
            kept = None
        why = f"plain torch: patches of {len(rows) if restrict else outputs} rows"
        return Rule("torch", why, size, lambda _: ValuesPart(by_torch(options, chosen), kept))
    kind, why = choose(shape, flat, rows)
    layout = ConvLayout(shape, flat, kind)
    return Rule(
        kind, why, layout.columns, lambda materials: ConvPart(layout, materials.kernels, materials.scratch)
    )


def _values(site: Site, role: str, shapes: Shapes) -> tuple[Compute, str]:
    """What computes the gradients of a small parameter, and a word on it."""
    options = site.options
    if site.kind == "linear":
        return linear_rules.bias, "sums of output gradients"
    if site.kind == "layer_norm":
        if role == "weight":
            return normalisation_rules.layer_scale(
                options["shape"], options["eps"]
            ), "sums of normalised inputs"
        return normalisation_rules.layer_shift(options["shape"]), "sums of output gradients"
    if role == "weight":
        return normalisation_rules.group_scale(options["groups"], options["eps"]), "sums of normalised inputs"
    return normalisation_rules.shift(shapes[1][0]), "sums of output gradients"
