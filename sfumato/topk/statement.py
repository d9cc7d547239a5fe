"""The privacy statement of a topk fit, from its plan and from what its ledger recorded.

>>> UNTUNED.tuned_on
'not_tuned'
"""

from __future__ import annotations

from sfumato import accounting
from sfumato.errors import SfumatoError
from sfumato.guarantee import AuditBound, Figure, Phase, PrivacyStatement, TuningCost
from sfumato.ledger import EventLedger
from sfumato.topk.plan import CalibratedPlan

UNTUNED = TuningCost(0, "not_tuned")
NOT_AUDITED = AuditBound(None, None, "no audit was run for this method and epsilon")

NOT_COVERED = (
    "hyper-parameter tuning (see the cost of tuning)",
    "validation and test figures, and diagnostics such as retained gradient energy: measured without noise on held-out rows",
    "attack and audit figures: they read the training rows without noise and are for the holder of the data",
    "the declared size n, the architecture and the clip norms: public by assumption",
)


def price_of(ledger: EventLedger, delta: float) -> accounting.Price:
    """What the recorded events cost, by every accountant that applies."""
    return accounting.price(ledger.events, delta)


def privacy_statement(
    calibrated: CalibratedPlan,
    ledger: EventLedger,
    mode: str,
    tuning: TuningCost = UNTUNED,
    audit: AuditBound = NOT_AUDITED,
    price: accounting.Price | None = None,
) -> PrivacyStatement:
    """The complete statement; refused when a field is missing or contradicts another.

    Args:
        calibrated: the plan of the fit.
        ledger: what the fit recorded.
        mode: ``simulation`` or ``release``.
        tuning: what choosing the hyper-parameters cost.
        audit: a measured lower bound for this method and epsilon, or why there is none.
        price: of the ledger's events, if it is known already.

    Raises:
        SfumatoError: if the statement would be incomplete, or the ledger did not record the plan's steps.
    """
    plan = calibrated.plan
    check_recorded(calibrated, ledger)
    price = price or price_of(ledger, calibrated.delta)
    private = plan.method != "non_private"
    return PrivacyStatement(
        system="topk",
        method=plan.method,
        setting="central: one trusted holder of all rows trains and adds the noise; there is no public data",
        adversary=f"sees every {'privatised ' if private else ''}gradient and so every model, knows the code, the plan and "
        "all other rows",
        unit_of_privacy="one training example",
        neighboring_relation="add_or_remove_one",
        n=calibrated.n,
        epsilon=price.pld if private else None,
        epsilon_reason="" if private else "gradients are neither clipped nor noised",
        delta=calibrated.delta,
        accountant="pld",
        figures=_figures(price),
        mechanism=_mechanism(calibrated),
        phases=tuple(_phase(calibrated, index) for index in range(len(calibrated.phases))),
        sampling_assumed="poisson",
        sampling_used="poisson",
        empty_batches=ledger.empty_batches if mode == "simulation" else None,
        not_covered=NOT_COVERED,
        tuning=tuning,
        mode=mode,
        audit=audit,
        target_epsilon=calibrated.epsilon,
        notes=_notes(calibrated),
    )


def check_recorded(calibrated: CalibratedPlan, ledger: EventLedger) -> None:
    """Refuse a ledger that holds other steps than the plan, whose phases the statement prints.

    Raises:
        SfumatoError: if a step is missing, or another one was recorded.
    """
    planned = EventLedger()
    for event in calibrated.events:
        planned.record(event)
    if ledger.to_json() != planned.to_json():
        raise SfumatoError(
            f"the ledger recorded {_steps(ledger)}; allowed is what the plan takes, {_steps(planned)}."
        )


def _steps(ledger: EventLedger) -> str:
    runs = [
        f"{entry['count']} at rate {float(entry.get('sampling_rate', 1.0)):.5g} and noise multiplier "
        f"{float(entry.get('noise_multiplier', 0.0)):.5g}"
        for entry in ledger.to_json()
    ]
    return f"{ledger.steps} steps ({', '.join(runs)})" if runs else "no step"


def _figures(price: accounting.Price) -> tuple[Figure, ...]:
    edge = ", at the edge of the order grid" if price.rdp_order_at_grid_edge else ""
    order = f"an upper bound, order {price.rdp_order:g}{edge}" if price.rdp_order is not None else ""
    error = (
        f"an estimate with its own error bound {price.prv_error:.2g}" if price.prv_error is not None else ""
    )
    return (
        Figure("rdp", price.rdp, order or price.reason("rdp") or "not applicable"),
        Figure("prv", price.prv, error or price.reason("prv") or "not applicable"),
        Figure("zcdp", price.zcdp, price.reason("zcdp") or "optimal conversion"),
        Figure("gaussian", price.gaussian, price.reason("gaussian") or "exact"),
    )


def _mechanism(calibrated: CalibratedPlan) -> str:
    if calibrated.plan.method == "non_private":
        return "plain SGD on Poisson batches, without clipping and without noise"
    where = {
        "tp_topk": "all coordinates in the warm-up, then on the coordinates whose privatised gradients scored highest",
        "tp_rand": "all coordinates in the warm-up, then on a random set of coordinates",
        "on_topk": "all coordinates in the warm-up, then on coordinates re-chosen by full-dimensional noisy steps",
        "on_rand": "all coordinates in the warm-up, then on random sets of coordinates",
        "dense": "all coordinates",
    }[calibrated.plan.method]
    return f"Gaussian noise on sums of clipped per-example gradients, on {where}"


def _phase(calibrated: CalibratedPlan, index: int) -> Phase:
    phase = calibrated.phases[index]
    private = calibrated.plan.method != "non_private"
    share = calibrated.plan.warmup_budget_share if phase.name == "warmup" else None
    return Phase(
        phase.name,
        phase.steps,
        calibrated.sampling_rate,
        float(phase.noise_multiplier or 0.0),
        phase.clip_norm if private else None,
        share,
    )


def _notes(calibrated: CalibratedPlan) -> tuple[str, ...]:
    plan = calibrated.plan
    notes = [f"the divisor of every step is the public expected batch size {plan.expected_batch_size}"]
    if plan.two_phases:
        size = (
            f"whole rows up to {plan.active_ratio:g}" if plan.support == "rows" else f"{plan.active_ratio:g}"
        )
        notes.append(
            f"the support holds {size} of the coordinates ({plan.support}, score {plan.score}); choosing "
            "it is post-processing of released gradients, or random, and costs nothing"
        )
    if plan.method == "on_topk":
        notes.append(
            f"every {plan.reselect_every} steps of phase train a step is taken on all coordinates, clipped to the warm-up's "
            f"norm {plan.clip_norm_warmup:g}, to choose the support anew; it has the phase's noise multiplier and is charged "
            "like every other"
        )
    return tuple(notes)
