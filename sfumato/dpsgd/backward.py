"""One backward pass with frozen parameters, in which layers see their inputs and output gradients.

>>> seen = []
>>> x = torch.ones(1, 2)
>>> y = anchored(x * 2.0, anchor := torch.zeros((), requires_grad=True))
>>> handle = y.register_hook(lambda gradient: seen.append(gradient))
>>> _ = torch.autograd.grad(y.sum(), anchor, allow_unused=True)
>>> seen
[tensor([[1., 1.]])]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from sfumato.dpsgd.layer_rules import Part
from sfumato.dpsgd.planner import Plan
from sfumato.dpsgd.sites import Call, Site, UnplannedError


class _Anchor(torch.autograd.Function):
    """Starts the graph at a tensor, which may be changed in place afterwards; passes gradients through."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] if ctx.needs_input_grad[0] else None, None


def anchored(output: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
    """The same output, as a function of the anchor too, so that gradients are computed down to here."""
    return cast(torch.Tensor, cast(Any, _Anchor).apply(output, anchor))


class Sightings:
    """Hands inputs and output gradients of a model's sites to the parts of a plan, for one micro-batch."""

    def __init__(self, plan: Plan, parts: Mapping[str, Part], count: int, device: torch.device) -> None:
        """Expect each of the plan's sites once.

        Args:
            plan: the plan.
            parts: by parameter.
            count: how many examples the micro-batch has.
            device: where the model is.
        """
        self._plan, self._count = plan, count
        self._sites = {site.key: site for site in plan.trial.sites}
        self._at: dict[str, list[tuple[str, str, Part]]] = {}
        for choice in plan.choices:
            if choice.rule is not None:
                key, role = choice.site
                self._at.setdefault(key, []).append((choice.part.name, role, parts[choice.part.name]))
        self._names = {name: key for key, found in self._at.items() for name, _, _ in found}
        self._met = set[str]()
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        self.squares = torch.zeros(count, dtype=torch.float64, device=device)

    def report(self, call: Call, output: torch.Tensor) -> torch.Tensor:
        """See one call of a site; the output is to be used in the place of the given one.

        Raises:
            UnplannedError: if the site is not as it was in the trial.
        """
        key = call.site.key if call.site.kind == "module" else self._names[call.site.key]
        if key not in self._at:  # a layer without an active parameter
            return output
        site = self._sites[key]
        shapes = tuple(tuple(part.shape[1:]) for part in (*call.inputs, output))
        rows = {len(part) if part.ndim else 0 for part in (*call.inputs, output)}
        if key in self._met or shapes != self._plan.trial.shapes[key] or rows != {self._count}:
            raise UnplannedError(f"{key!r} is not used as in the trial")
        if not _alike(call.site, site):
            raise UnplannedError(f"{key!r} is not used as in the trial")
        self._met.add(key)
        if not output.requires_grad:
            output = anchored(output, self.anchor)
        output.register_hook(self._hook(call, [part for _, _, part in self._at[key]]))
        return output

    def _hook(self, call: Call, parts: Sequence[Part]) -> Callable[[torch.Tensor], None]:
        held = [call]

        def hook(gradient: torch.Tensor) -> None:
            inputs = held.pop().unchanged()  # let go of at once: its memory serves the layers below
            for part in parts:
                part.observe(inputs, gradient, self.squares)

        return hook

    def check(self, uses: Mapping[str, int]) -> None:
        """See that every active parameter was used as planned.

        Raises:
            UnplannedError: if one was used more often, elsewhere or not at all.
        """
        for choice in self._plan.choices:
            name, (key, role) = choice.part.name, choice.site
            wanted = 0 if choice.rule is None else 1
            if (role != "module" and uses[name] != wanted) or (key and key not in self._met):
                raise UnplannedError(f"{name!r} is not used as in the trial")


def _alike(call: Site, site: Site) -> bool:
    """Whether a call is that of the site; of inactive parameters it knows no names."""
    names = call.weight in (None, site.weight) and call.bias in (None, site.bias)
    return names and call.kind == site.kind and call.options == site.options
