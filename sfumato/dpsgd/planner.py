"""A plan: which rule computes the per-example gradients of each active parameter of a model, and why.

>>> import torch
>>> from sfumato.dpsgd.engine import active_parameters
>>> from sfumato.dpsgd.support import Support
>>> from sfumato.dpsgd.trial import tried
>>> model = torch.nn.Sequential(torch.nn.Linear(3, 2))
>>> plan = make_plan(tried(model, torch.zeros(1, 3)), model, active_parameters(model, Support.full(8)), None)
>>> print(plan.explain())
layer  parameter  active  rule      why
0      weight     6/6     rank_one  whole rows
0      bias       2/2     values    sums of output gradients
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from torch import nn

from sfumato.dpsgd.engine import ActiveParameter
from sfumato.dpsgd.kernel_layout import LANES
from sfumato.dpsgd.layer_choices import Rule, choose_rule, module_rule
from sfumato.dpsgd.sites import Site
from sfumato.dpsgd.trial import Trial

FEWEST: Final = 32
"""Examples held at once where they are large, unless ``HELD`` asks for fewer."""
MOST: Final = 512
"""Never more examples than this at once."""
ACTIVATIONS: Final = 2_000_000
"""Layers' inputs and outputs held at once, in numbers: lets small examples run by the hundreds, which saves calls."""
HELD: Final = 6_000_000
"""Per-example gradients held at once, in numbers (24 MB of float32), as long as sixteen examples fit, which the kernels
compute side by side: more are slower to read again, and take memory."""
LARGEST: Final = 64_000_000
"""Per-example gradients held at once in any case, in numbers (256 MB of float32)."""


@dataclass(frozen=True)
class Choice:
    """The rule for one active parameter.

    Attributes:
        part: the parameter.
        rule: the rule, or None if the model does not use the parameter.
        site: the key of the site that it is used at, and its role there.
    """

    part: ActiveParameter
    rule: Rule | None
    site: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Plan:
    """How the clipped sums of one model, support and shape of inputs are computed.

    Attributes:
        choices: one for each active parameter, in layout order; empty if ``whole`` is given.
        active: the active parameters.
        trial: what was found about the model.
        whole: why everything is left to the functional engine, or None.
        micro_batch: how many examples are held at once unless the caller says otherwise.
    """

    choices: tuple[Choice, ...]
    active: tuple[ActiveParameter, ...]
    trial: Trial
    whole: str | None
    micro_batch: int

    def explain(self) -> str:
        """A table with one line for each active parameter: layer, name, active coordinates, rule and why."""
        lines = [("layer", "parameter", "active", "rule", "why")]
        rules = {choice.part.name: choice.rule for choice in self.choices}
        for part in self.active:
            layer, _, name = part.name.rpartition(".")
            rule = rules.get(part.name)
            said = ("none", "the model does not use it: its gradient is zero")
            if self.whole is not None:
                said = ("functional", f"the whole model: {self.whole}")
            elif rule is not None:
                said = (rule.rule, rule.why)
            active = part.size if part.local is None else part.local.numel()
            lines.append((layer or "(itself)", name, f"{active}/{part.size}", said[0], said[1]))
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        return "\n".join(
            "  ".join([*(line[i].ljust(widths[i]) for i in range(4)), line[4]]).rstrip() for line in lines
        )


def make_plan(
    trial: Trial, model: nn.Module, active: Sequence[ActiveParameter], kernels: ModuleType | None
) -> Plan:
    """Choose a rule for each active parameter.

    Args:
        trial: what was found about the model.
        model: the model.
        active: its active parameters.
        kernels: the compiled kernels, or None where they cannot serve (another dtype or device, or no Numba).
    """
    whole = trial.reason
    for part in active:
        if whole is None and part.name in trial.uncovered:
            whole = f"parameter {part.name!r} is {trial.uncovered[part.name]}"
    if whole is not None:
        return Plan((), tuple(active), trial, whole, 1)
    homes, shapes = _homes(trial), {name: tuple(p.shape) for name, p in model.named_parameters()}
    choices = list[Choice]()
    for part in active:
        if part.name not in homes:
            choices.append(Choice(part, None))
            continue
        site, role = homes[part.name]
        if role == "module":
            rule = module_rule(site.key, trial.modules[site.key], part.name, part.size, part.local)
        else:
            rule = choose_rule(site, role, trial.shapes[site.key], shapes[part.name], part.local, kernels)
        choices.append(Choice(part, rule, (site.key, role)))
    numbers = sum(math.prod(shape) for group in trial.shapes.values() for shape in group)
    held = sum(choice.rule.numbers for choice in choices if choice.rule)
    fitting = max(FEWEST, min(MOST, ACTIVATIONS // max(1, numbers)))
    if held * fitting > HELD:
        fitting = max(LANES, HELD // held // LANES * LANES)
    micro_batch = max(1, min(fitting, LARGEST // max(1, held)))
    return Plan(tuple(choices), tuple(active), trial, None, micro_batch)


def _homes(trial: Trial) -> dict[str, tuple[Site, str]]:
    """Where each parameter is used, and in which role."""
    homes = dict[str, tuple[Site, str]]()
    for site in trial.sites:
        if site.kind == "module":
            homes |= {name: (site, "module") for name in trial.modules[site.key]}
            continue
        if site.weight:
            homes[site.weight] = (site, "weight")
        if site.bias:
            homes[site.bias] = (site, "bias")
    return homes
