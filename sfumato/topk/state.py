"""The state of a fit between two steps: all that a resumed run needs, and nothing random.

>>> sorted(Curve((CurvePoint(0, "warmup", 1.5),)).to_rows()[0])
['gradient_norm', 'held_out_accuracy', 'held_out_loss', 'phase', 'retained_energy', 'step']
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.dpsgd import Support
from sfumato.errors import SfumatoError
from sfumato.ledger import EventLedger
from sfumato.topk.scores import ScoreStatistics


@dataclass(frozen=True)
class CurvePoint:
    """What is logged at a step: released quantities, and held-out measurements where taken.

    Attributes:
        step: steps taken before this one.
        phase: ``warmup``, ``train`` or ``dense``.
        gradient_norm: norm of the privatised gradient.
        held_out_loss, held_out_accuracy: on the probe rows; outside the guarantee.
        retained_energy: share of the probe gradient's energy on the support; outside the guarantee.
    """

    step: int
    phase: str
    gradient_norm: float
    held_out_loss: float | None = None
    held_out_accuracy: float | None = None
    retained_energy: float | None = None


@dataclass(frozen=True)
class Curve:
    """The curve points of a fit, in order."""

    points: tuple[CurvePoint, ...] = ()

    def with_point(self, point: CurvePoint) -> Curve:
        """The curve and one more point."""
        return Curve((*self.points, point))

    def to_rows(self) -> list[dict[str, Any]]:
        """One mapping per point."""
        return [asdict(point) for point in self.points]


CURVE_COLUMNS = tuple(field.name for field in fields(CurvePoint))


@dataclass(frozen=True)
class State:
    """A fit between two steps.

    Attributes:
        step: steps taken.
        parameters: Tensor[d] float32, the flat parameters.
        optimizer: the optimiser's tensors.
        support: the active coordinates.
        scores: what the full-dimensional steps have shown.
        ledger: the events recorded so far.
        curve: what was logged.
    """

    step: int
    parameters: Tensor
    optimizer: Mapping[str, Tensor]
    support: Support
    scores: ScoreStatistics
    ledger: EventLedger
    curve: Curve = Curve()

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Tensors and text for a checkpoint; inverse of ``from_tensors``."""
        tensors = {f"optimizer/{name}": value for name, value in self.optimizer.items()}
        tensors |= {f"scores/{name}": value for name, value in self.scores.to_tensors().items()}
        tensors |= {"parameters": self.parameters, "support": self.support.indices}
        text = {
            "step": str(self.step),
            "ledger": json.dumps(self.ledger.to_json(), sort_keys=True),
            "empty_batches": str(self.ledger.empty_batches),
            "curve": json.dumps(self.curve.to_rows(), sort_keys=True),
        }
        return tensors, text

    @classmethod
    def from_tensors(cls, arrays: Mapping[str, NDArray[Any]], text: Mapping[str, str]) -> State:
        """Read back what ``to_tensors`` gave.

        Raises:
            SfumatoError: if a part is missing.
        """
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
        try:
            return cls(
                int(text["step"]),
                tensors["parameters"],
                _within(tensors, "optimizer/"),
                Support(tensors["support"], len(tensors["parameters"])),
                ScoreStatistics.from_tensors(_within(tensors, "scores/")),
                EventLedger.from_json(json.loads(text["ledger"]), int(text["empty_batches"])),
                Curve(tuple(CurvePoint(**row) for row in json.loads(text["curve"]))),
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise SfumatoError(
                f"the saved state lacks {error}; allowed is a state that this version wrote."
            ) from None


def _within(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
