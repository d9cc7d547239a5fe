"""The privacy statement of an estimated divergence, from what the run recorded.

>>> from sfumato.ledger import EventLedger
>>> from sfumato.mechanisms import Gaussian
>>> ledger = EventLedger()
>>> ledger.record(Gaussian(0.1, 3.73, "replace_one").event)
>>> round(price_of(ledger, 1e-5).epsilon, 2)
1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato import accounting
from sfumato.divergence.experiment import Setting
from sfumato.divergence.methods import Method
from sfumato.errors import SfumatoError
from sfumato.guarantee import AuditBound, Figure, Phase, PrivacyStatement, TuningCost
from sfumato.ledger import EventJson, EventLedger

NOT_AUDITED = AuditBound(None, None, "no audit was run for this method and epsilon")
NOT_COVERED = (
    "errors and targets, which are measured against the private population without noise",
    "attack and audit figures, which are simulations by the holder of the data",
    "the reference, the number of examples N, the clients and how many examples each holds: public by assumption",
    "the numbers of the estimator: public, fixed in advance and the same for every population",
)
_SETTINGS = {
    "central": "central: one party, the trusted aggregator, sees the sum of the clients' counts and adds the noise",
    "distributed": "distributed: every client adds a share of the noise to its counts, and nobody sees but the noisy sum",
    "local": "local: every client adds all of the noise itself and nobody is trusted",
}
_ADVERSARIES = {
    "central": "sees the released number, may be the server that asked, knows the reference, the points, the code and all "
    "other examples",
    "distributed": "sees the sum of the noisy counts, may run the aggregation and collude with the stated share of the "
    "clients, knows the code and all other examples",
    "local": "sees every client's noisy counts, knows the code and all other examples",
}
_MECHANISMS = {
    "central": "Gaussian noise on the mean of Phi over public points, calibrated to their exact sensitivity",
    "distributed": "discrete Gaussian noise shared by the clients, on the summed counts at public points",
    "local": "Gaussian noise on each client's counts at public points",
}


@dataclass(frozen=True)
class Price:
    """What recorded releases cost together, under replace-one.

    Attributes:
        epsilon: by ``accountant``.
        accountant: ``gaussian`` where all noise is Gaussian, which is exact; ``zcdp`` otherwise.
        zcdp: by zCDP with the optimal conversion.
        rho: the zCDP parameter.
        releases: how many.
        gaussian: whether all noise is Gaussian.
    """

    epsilon: float
    accountant: str
    zcdp: float
    rho: float
    releases: int
    gaussian: bool


def price_of(ledger: EventLedger, delta: float) -> Price:
    """Price recorded releases at delta.

    Raises:
        SfumatoError: if nothing was recorded, or something without privacy.
    """
    spent = accounting.spent(ledger.events)
    if spent.non_private or not ledger.steps:
        raise SfumatoError(
            "the ledger holds no private release; allowed is at least one, and none without noise."
        )
    mu = spent.mu(2.0)
    rho = mu * mu / 2.0 + spent.zcdp_rho
    zcdp = accounting.zcdp_epsilon(rho, delta)
    gaussian = spent.zcdp_rho == 0.0
    exact = accounting.gaussian_epsilon(mu, delta) if gaussian else zcdp
    return Price(exact, "gaussian" if gaussian else "zcdp", zcdp, rho, ledger.steps, gaussian)


def privacy_statement(
    method: Method,
    setting: Setting,
    epsilon: float,
    ledger: EventLedger,
    examples: int,
    unit: str,
    mode: str,
    audit: AuditBound = NOT_AUDITED,
    notes: Sequence[str] = (),
) -> PrivacyStatement:
    """The complete statement of one release by a method.

    Args:
        method: a private one.
        setting: the public numbers.
        epsilon: what was asked for.
        ledger: what one example spent.
        examples: N of the smallest population that it is said for.
        unit: what one example is.
        mode: ``simulation`` or ``release``.
        audit: a measured lower bound, or why there is none.
        notes: further remarks, such as what else was released about the same people.

    Raises:
        SfumatoError: if the ledger's price is above what was asked for, or the statement would be incomplete.
    """
    price = price_of(ledger, setting.delta)
    if price.epsilon > epsilon * (1.0 + 1e-6):
        raise SfumatoError(
            f"the recorded releases cost epsilon = {price.epsilon:.6g}; allowed is the target, {epsilon:g}."
        )
    figures = [Figure("zcdp", price.zcdp, f"rho = {price.rho:.4g}, optimal conversion")]
    if price.gaussian:
        figures.insert(0, Figure("gaussian", price.epsilon, "exact"))
    discrete, moment = mode == "release", _has_moment(method, setting, ledger)
    return PrivacyStatement(
        system="divergence",
        method=method.name,
        setting=_SETTINGS[method.trust],
        adversary=_ADVERSARIES[method.trust],
        unit_of_privacy=unit,
        neighboring_relation="replace_one",
        n=examples,
        epsilon=price.epsilon,
        epsilon_reason="",
        delta=setting.delta,
        accountant=price.accountant,
        figures=tuple(figures),
        mechanism=_mechanism(method, moment),
        phases=_phases(ledger, moment),
        sampling_assumed="none",
        sampling_used="none",
        empty_batches=0,
        not_covered=NOT_COVERED,
        tuning=TuningCost(0, "not_tuned"),
        mode=mode,
        audit=audit,
        target_epsilon=epsilon,
        noise="discrete" if discrete else "floating_point",
        notes=(*_notes(method, setting), *notes),
    )


_HISTOGRAM = "Gaussian noise on the count of every cell; a baseline, shown for scale"


_SECOND_MOMENT = (
    ", and on the mean of Phi squared, with a sensitivity and a share of the budget of its own, which tells how far the draw "
    "of the points scatters"
)


def _mechanism(method: Method, moment: bool) -> str:
    own = _HISTOGRAM if method.name == "histogram" else _MECHANISMS[method.trust]
    return own + _SECOND_MOMENT if moment else own


def _has_moment(method: Method, setting: Setting, ledger: EventLedger) -> bool:
    """Whether the two recorded releases are a value and the second moment of Phi."""
    shared = setting.sampling == "budget_share" and method.drawn and method.trust == "central"
    return shared and ledger.steps == 2


def _phases(ledger: EventLedger, moment: bool) -> tuple[Phase, ...]:
    """Each event with its noise in units of one record's largest contribution, half of what replacing it moves."""
    private = [entry for entry in ledger.to_json() if entry["kind"] != "no_op"]
    entries = [(_multiplier(entry), int(entry["count"])) for entry in private]
    if not moment:
        return tuple(Phase("release", count, 1.0, noise, 0.5, sensitivity=1.0) for noise, count in entries)
    each = [noise for noise, count in entries for _ in range(count)]
    names = ("release of the value", "release of the second moment")
    return tuple(
        Phase(name, 1, 1.0, noise, 0.5, sensitivity=1.0) for name, noise in zip(names, each, strict=True)
    )


def _multiplier(entry: EventJson) -> float:
    if entry["kind"] == "zcdp":
        return 2.0 / (2.0 * float(entry["rho"])) ** 0.5
    return float(entry["noise_multiplier"])


def _notes(method: Method, setting: Setting) -> tuple[str, ...]:
    floor = setting.floor_of(method)
    below = (
        "mixed with the reference, so the estimate aims at KL(Pi || (1 - gamma) P + gamma Pi), which is below KL(Pi || P)"
        if floor.kind == "mix"
        else "clipped from below, which shifts the estimate"
    )
    found = [
        f"the ratio is {below}; the level is {floor.level:g}",
        "rare codes share one cell, which lowers the divergence further",
        "the noise of a phase is in units of its sensitivity, which is computed for the points that were drawn",
    ]
    if method.name == "per_batch":
        found.append(
            f"an example is in one of {setting.batches} batches (parallel composition); the mean over batches "
            "over-estimates, since the logarithm of a batch's ratio lies below that of the whole"
        )
    if method.trust in ("distributed", "local") or method.name == "histogram":
        found.append("the logarithm sees noisy counts, which makes the estimate biased")
    if method.trust == "distributed":
        found.append(
            f"the bound (Kairouz, Liu and Steinke 2021) counts on all but {setting.corrupted_share:.0%} of the clients' noise"
        )
    return tuple(found)
