"""The privacy statement of a modulated estimate, from its plan and from what one client's ledger recorded.

>>> NOT_AUDITED.epsilon_lower is None
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sfumato import accounting
from sfumato.errors import SfumatoError
from sfumato.guarantee import AuditBound, Figure, Phase, PrivacyStatement, TuningCost
from sfumato.ledger import EventLedger
from sfumato.modulated.baselines import CalibratedLocalSgd
from sfumato.modulated.plan import CalibratedModulation, Calibration
from sfumato.modulated.setting import Calibrated
from sfumato.modulated.sufficient_statistics import CalibratedSufficientStatistics

NOT_AUDITED = AuditBound(None, None, "no audit was run for this method and epsilon")
NOT_COVERED = (
    "test figures, which are measured without noise on held-out rows",
    "attack and audit figures, which are simulations by the holder of the data",
    "the declared number of clients and the bounds of features and label: public by assumption",
)


@dataclass(frozen=True)
class LocalPrice:
    """What one client's recorded releases cost.

    Attributes:
        gaussian: exact epsilon.
        zcdp: by zCDP with the optimal conversion.
        bun_steinke: by zCDP with Bun and Steinke's conversion.
        rho: the zCDP parameter.
        releases: how many.
    """

    gaussian: float
    zcdp: float
    bun_steinke: float
    rho: float
    releases: int


def price_of(ledger: EventLedger, delta: float) -> LocalPrice:
    """Price Gaussian releases under replace-one, exactly and by zCDP."""
    mu = accounting.spent(ledger.events).mu(2.0)
    rho = mu * mu / 2.0
    return LocalPrice(
        accounting.gaussian_epsilon(mu, delta),
        accounting.zcdp_epsilon(rho, delta),
        accounting.zcdp_epsilon(rho, delta, "bun_steinke"),
        rho,
        ledger.steps,
    )


def privacy_statement(
    method: str,
    calibrated: Calibrated,
    ledger: EventLedger,
    clients: int,
    unit: str,
    mode: str,
    trials: int = 0,
    audit: AuditBound = NOT_AUDITED,
    notes: Sequence[str] = (),
) -> PrivacyStatement:
    """The complete statement; refused when the ledger holds other releases than the plan.

    Args:
        method: its name.
        calibrated: the plan.
        ledger: one client's recorded releases; for the central line, the server's.
        clients: declared number of clients.
        unit: what one row is, such as "one week".
        mode: ``simulation`` or ``release``.
        trials: fits on the private data that chose step size and clip norm.
        audit: a measured lower bound, or why there is none.
        notes: further remarks, such as what else the same clients released.

    Raises:
        SfumatoError: if the statement would be incomplete or contradict the ledger.
    """
    planned = EventLedger()
    for event in calibrated.events:
        planned.record(event)
    if ledger.to_json() != planned.to_json():
        raise SfumatoError(
            f"the ledger recorded {ledger.steps} releases; allowed are the plan's {planned.steps}, with its noise."
        )
    price = price_of(ledger, calibrated.delta)
    central = isinstance(calibrated, CalibratedSufficientStatistics)
    return PrivacyStatement(
        system="modulated",
        method=method,
        setting="central: a trusted server holds all samples and adds the noise; shown for scale beside the local methods"
        if central
        else "local: every client adds the noise itself and nobody is trusted; there is no public data",
        adversary="sees what the server releases, knows the code, the plan and all other samples"
        if central
        else "sees every message that this fit asks of every client, and may be the server; knows the code, the plan and "
        "all other samples",
        unit_of_privacy=_unit(calibrated, unit),
        neighboring_relation="replace_one",
        n=clients,
        epsilon=price.gaussian,
        epsilon_reason="",
        delta=calibrated.delta,
        accountant="gaussian",
        figures=(
            Figure("gaussian", price.gaussian, "exact"),
            Figure("zcdp", price.zcdp, f"rho = {price.rho:.4g}, optimal conversion"),
            Figure("zcdp, Bun and Steinke", price.bun_steinke, "rho + 2 sqrt(rho ln(1/delta))"),
        ),
        mechanism=_mechanism(calibrated),
        phases=_phases(calibrated),
        sampling_assumed="none",
        sampling_used="none",
        empty_batches=0,
        not_covered=(
            *_labels_not_covered(calibrated),
            *_choices_not_covered(calibrated, trials),
            *NOT_COVERED,
        ),
        tuning=TuningCost(trials, "private_data" if trials else "not_tuned"),
        mode=mode,
        audit=audit,
        target_epsilon=calibrated.epsilon,
        notes=(*_notes(calibrated), *notes),
        neighbors=_neighbors(calibrated),
    )


def _unit(calibrated: Calibrated, unit: str) -> str:
    if isinstance(calibrated, CalibratedModulation) and calibrated.plan.labels == "public":
        return f"the features of {unit}, given its label, which is sent in the clear"
    return f"{unit}, features and label"


def _neighbors(calibrated: Calibrated) -> str:
    if isinstance(calibrated, CalibratedModulation) and calibrated.plan.labels == "public":
        return "two data sets are neighbours if the features of one record are replaced by any others and its label stays"
    return ""


def _labels_not_covered(calibrated: Calibrated) -> tuple[str, ...]:
    if isinstance(calibrated, CalibratedModulation) and calibrated.plan.labels == "public":
        return ("labels, which are public, and whatever a label tells about the features",)
    return ()


def _choices_not_covered(calibrated: Calibrated, trials: int) -> tuple[str, ...]:
    if not trials:
        return ()
    what = "step size and clip norm" if isinstance(calibrated, CalibratedLocalSgd) else "step size"
    return (f"the choice of {what} on validation rows (see the cost of tuning)",)


def _mechanism(calibrated: Calibrated) -> str:
    if isinstance(calibrated, CalibratedSufficientStatistics):
        return "Gaussian noise on the smallest eigenvalue of X^T X, on X^T X and on X^T y (AdaSSP)"
    if isinstance(calibrated, CalibratedLocalSgd):
        return "Gaussian noise on each client's clipped gradient, at the client"
    modulation = calibrated.plan.modulation
    kind = "the sample" if modulation.amplitude == 0 else "the modulated sample"
    joint = " and on the label" if calibrated.plan.labels == "private" else ""
    return f"Gaussian noise on {kind}{joint}, clipped to a public radius, at the client"


def _phases(calibrated: Calibrated) -> tuple[Phase, ...]:
    """Noise over half of the largest distance between neighbours, which is the bound on one contribution."""
    if isinstance(calibrated, CalibratedSufficientStatistics):
        names = ("smallest eigenvalue", "matrix", "vector")
        return tuple(
            Phase(
                name,
                1,
                1.0,
                2.0 * mechanism.noise_multiplier,
                mechanism.sensitivity / 2.0,
                sensitivity=mechanism.sensitivity,
            )
            for name, mechanism in zip(names, calibrated.mechanisms, strict=True)
        )
    distance, multiplier = calibrated.plan.neighbor_distance, 2.0 * calibrated.noise_multiplier
    steps = calibrated.plan.releases
    return (Phase("messages", steps, 1.0, multiplier, distance / 2.0, sensitivity=distance),)


def _notes(calibrated: Calibrated) -> tuple[str, ...]:
    if not isinstance(calibrated, CalibratedModulation):
        return ()
    plan = calibrated.plan
    other: Calibration = "lipschitz" if plan.calibration == "phase_marginal" else "phase_marginal"
    why: dict[Literal["phase_marginal", "lipschitz"], str] = {
        "phase_marginal": "a fresh, full-circle phase that nobody else sees makes the cosine independent of the sample, so "
        "that only |1 - alpha| counts",
        "lipschitz": "|1 - alpha| + lambda omega / sqrt(m) bounds the message's change at fixed phases",
    }
    sigmas = [
        f"sigma = {calibrated.noise_multiplier * plan.sensitivity(which):.6g} by {which}"
        for which in (plan.calibration, other)
        if calibrated.epsilon is not None
    ]
    if plan.modulation.amplitude == 0:
        why = dict.fromkeys(
            why, "nothing is modulated, so |1 - alpha| times the diameter is all that a message can move"
        )
    regime = (
        "every client answers once"
        if plan.rounds == 1
        else f"every client answers in each of {plan.rounds} rounds, so its releases compose"
        if plan.regime == "same_clients"
        else f"clients form {plan.rounds} disjoint groups and each answers once"
    )
    return (
        f"calibrated by {plan.calibration}, rule {plan.rule}: {why[plan.calibration]}; {', '.join(sigmas)}",
        regime,
        "the intercept is a public 1 and is neither sent nor noised",
    )
