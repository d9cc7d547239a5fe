"""Every estimator that is compared, by name, as a description of what it is made of.

>>> METHODS["iterative_lipschitz"].calibration, METHODS["no_modulation"].modulated
('lipschitz', False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from sfumato.errors import SfumatoError
from sfumato.modulated.plan import Calibration, Regime

Kind = Literal[
    "solve", "ridge", "floor", "descend", "iterate", "local_sgd", "ada_ssp", "least_squares", "mean"
]
Trust = Literal["local", "central", "none"]


@dataclass(frozen=True)
class Method:
    """One line of the comparison.

    Attributes:
        name: as in parameters and records.
        kind: the estimator: one release solved in closed form (as it is, with a ridge, with an eigenvalue floor) or
            by gradient descent at the server, a release per round, or a baseline.
        calibration: how the sensitivity is bounded; None where nothing is modulated by design.
        regime: who answers in a round.
        modulated: whether the amplitude is the parameters' or 0.
        frequency_factor: multiplies the frequency omega.
        trust: ``local`` noise at the client, ``central`` noise at a trusted server, ``none``.
    """

    name: str
    kind: Kind
    calibration: Calibration = "phase_marginal"
    regime: Regime = "same_clients"
    modulated: bool = True
    frequency_factor: float = 1.0
    trust: Trust = "local"

    @property
    def one_release(self) -> bool:
        """Whether a client sends one message of its modulated sample."""
        return self.kind in ("solve", "ridge", "floor", "descend")

    @property
    def tunable(self) -> bool:
        """Whether step sizes, and clip norms, are chosen from a grid."""
        return self.kind in ("iterate", "local_sgd")

    @property
    def private(self) -> bool:
        """Whether it has an epsilon."""
        return self.trust != "none"


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method("one_shot", "solve"),
            Method("one_shot_ridge", "ridge"),
            Method("one_shot_floor", "floor"),
            Method("one_shot_descent", "descend"),
            Method("iterative", "iterate"),
            Method("iterative_disjoint", "iterate", regime="disjoint_groups"),
            Method("one_shot_lipschitz", "solve", "lipschitz"),
            Method("one_shot_descent_lipschitz", "descend", "lipschitz"),
            Method("iterative_lipschitz", "iterate", "lipschitz"),
            Method("no_modulation", "descend", modulated=False),
            Method("other_frequency", "descend", frequency_factor=8.0),
            Method("dp_sgd", "local_sgd", modulated=False),
            Method("dp_sgd_disjoint", "local_sgd", regime="disjoint_groups", modulated=False),
            Method("ada_ssp", "ada_ssp", modulated=False, trust="central"),
            Method("least_squares", "least_squares", modulated=False, trust="none"),
            Method("mean", "mean", modulated=False, trust="none"),
        )
    }
)


def get_method(name: str) -> Method:
    """The method of that name.

    Raises:
        SfumatoError: if there is none.
    """
    if name not in METHODS:
        raise SfumatoError(f"method is {name!r}; allowed are {', '.join(METHODS)}.")
    return METHODS[name]
