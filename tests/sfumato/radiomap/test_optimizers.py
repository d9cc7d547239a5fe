"""A client's optimizer: torch's own, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from sfumato.radiomap.optimizers import OptimizerKind, stepper


def _parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((5, 3, 3, 3), (7,), (4, 4))
    found = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    found[0].data = found[0].data.to(memory_format=torch.channels_last)
    return found


def _walked(parameters: list[torch.nn.Parameter], step: Callable[[], object]) -> list[torch.Tensor]:
    """The parameters after five steps; the last one never has a gradient."""
    generator = torch.Generator().manual_seed(2)
    for _number in range(5):
        for entry in parameters[:-1]:
            entry.grad = torch.randn(entry.shape, generator=generator)
        step()
    return [entry.detach() for entry in parameters]


@pytest.mark.parametrize(("kind", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0)])
def test_steps_are_those_of_torchs_optimizer_bit_for_bit(kind: OptimizerKind, momentum: float) -> None:
    ours, theirs = _parameters(), _parameters()
    reference: torch.optim.Optimizer = (
        torch.optim.Adam(theirs, lr=0.01, fused=True)
        if kind == "adam"
        else torch.optim.SGD(theirs, lr=0.01, momentum=momentum, fused=True)
    )
    walked = _walked(ours, stepper(ours, kind, 0.01, momentum))
    expected = _walked(theirs, lambda: reference.step())  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
    for one, two in zip(walked, expected, strict=True):
        assert torch.equal(one, two)
    assert torch.equal(walked[-1], _parameters()[-1])
    assert not torch.equal(walked[0], _parameters()[0])
