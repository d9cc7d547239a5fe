"""The front door for notebooks: fit your own module on your own rows, privately.

>>> import torch
>>> from sfumato.rng import Streams
>>> plan = TwoPhasePlan(expected_batch_size=20, warmup_steps=3, train_steps=3).calibrate(3.0, 1e-5, n=1000)
>>> result = fit(plan, torch.nn.Linear(4, 2), torch.zeros(900, 4), torch.zeros(900, dtype=torch.int64), Streams(0))
>>> result.epsilon <= 3.0, result.support.k
(True, 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from dp_accounting import DpEvent
from torch import Tensor, nn

from sfumato import accounting
from sfumato.dpsgd import Engine, Support, check_mixing, get_engine
from sfumato.errors import SfumatoError
from sfumato.guarantee import PrivacyStatement, TuningCost
from sfumato.rng import Streams
from sfumato.topk.plan import CalibratedPlan, TwoPhasePlan
from sfumato.topk.probe import Probe
from sfumato.topk.state import State
from sfumato.topk.statement import UNTUNED, privacy_statement
from sfumato.topk.training import Loss, Observer, Problem, begin, cross_entropy, run

__all__ = ["Fit", "TwoPhasePlan", "fit"]


@dataclass(frozen=True)
class Fit:
    """A finished fit.

    Attributes:
        module: the trained module.
        calibrated: its plan.
        state: the last state: parameters, support, ledger and curve.
        mode: ``simulation`` or ``release``.
    """

    module: nn.Module
    calibrated: CalibratedPlan
    state: State
    mode: str

    @property
    def support(self) -> Support:
        """The coordinates that were active last."""
        return self.state.support

    @property
    def events(self) -> list[DpEvent]:
        """What really happened, as recorded step by step."""
        return self.state.ledger.events

    @property
    def epsilon(self) -> float:
        """Epsilon of the recorded events at the plan's delta, by PLD; infinite without privacy."""
        return accounting.epsilon(self.events, self.calibrated.delta)

    def statement(self, tuning: TuningCost = UNTUNED) -> PrivacyStatement:
        """The privacy statement of this fit.

        Args:
            tuning: what choosing the hyper-parameters cost; the default says that none was chosen on data.
        """
        return privacy_statement(self.calibrated, self.state.ledger, self.mode, tuning)


def fit(
    calibrated: CalibratedPlan,
    module: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    streams: Streams,
    *,
    loss: Loss = cross_entropy,
    engine: Engine | None = None,
    held_out: tuple[Tensor, Tensor] | None = None,
    observer: Observer | None = None,
) -> Fit:
    """Train a module in place under the plan's guarantee.

    Guarantee:
        (epsilon, delta) of the plan for adding or removing one row, if n was declared without looking at the
        rows, the module maps each row by itself and ``streams`` are in release mode. Measurements on
        ``held_out`` rows are outside of it.

    Args:
        calibrated: a calibrated plan.
        module: any module without layers that mix examples; its present weights are the start.
        inputs: Tensor[rows, ...].
        targets: Tensor[rows].
        streams: randomness, seeded for simulation or the system's for release.
        loss: per-example losses from outputs and targets.
        engine: how per-example gradients are clipped and summed; the planned engine by default.
        held_out: rows for measurements during the fit.
        observer: called with the state after each step.

    Raises:
        UnsupportedLayerError: if a layer mixes examples or the engine cannot handle it.
        SfumatoError: if the plan is not calibrated, or on rows that do not fit.
    """
    probe = Probe(*held_out) if held_out is not None else None
    given = cast("object", calibrated)
    if not isinstance(given, CalibratedPlan):
        raise SfumatoError(
            f"the plan is a {type(given).__name__}; allowed is one with its noise, as plan.calibrate gives."
        )
    model = cast("object", module)
    if not isinstance(model, nn.Module):
        raise SfumatoError(f"module is a {type(model).__name__}; allowed is a torch.nn.Module.")
    problem = Problem(module, inputs, targets, loss, engine or get_engine(), probe)
    check_mixing(module, tuple(inputs.shape[1:]), inputs.dtype, streams.stream("mix_check"))
    if loss is cross_entropy:
        _check_classes(module, inputs, targets)
    state = run(problem, calibrated, streams, begin(problem, calibrated), observer=observer)
    return Fit(module, calibrated, state, streams.mode)


def _check_classes(module: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """Refuse targets that cross entropy cannot take before a step is taken, and not when a row is drawn.

    Raises:
        SfumatoError: if a target is no class of the module's outputs.
    """
    if targets.dtype != torch.int64 or targets.ndim != 1:
        raise SfumatoError(
            f"targets have dtype {targets.dtype} and {targets.ndim} dimensions; allowed for cross entropy is a "
            "vector of torch.int64 classes, or another loss."
        )
    with torch.no_grad():
        outputs = module(torch.zeros((1, *inputs.shape[1:]), dtype=inputs.dtype))
    classes = outputs.shape[1] if outputs.ndim == 2 else 0
    if classes and len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < classes:
        raise SfumatoError(
            f"targets range from {int(targets.min())} to {int(targets.max())}; allowed are classes from 0 to "
            f"{classes - 1}, one for each of the module's outputs."
        )
