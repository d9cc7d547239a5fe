"""One check of a monitored population: charge, estimate, decide, write; called by ``tasks.check``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    from sfumato.divergence.estimator import Estimate
    from sfumato.divergence.monitoring import MonitoringPlan
    from sfumato.divergence.reference import Reference
    from sfumato.params.drift import Drift, Watch, Window

CHARGES = Path("ledger") / "monitoring" / "charges.jsonl"
"""Book of what the monitors have cost, by data set and calendar year; in simulation too."""
UNIT = "example"
RELEASED = (
    *(
        "raw",
        "clipped",
        "low",
        "high",
        "confidence",
        "noise_std",
        "sampling_std",
        "sampling",
        "epsilon",
        "delta",
    ),
    *("target", "examples", "draws"),
)
"""The fields of an estimate that a record holds."""
_ROUNDING = 1e-9  # a budget that is met but for rounding is met


def run(root: Path, path: Path) -> None:
    """Make the check that a record describes, and write what it found into the record.

    The charge is on disk before noise is drawn, and a record that was charged is never estimated again: a check that
    was broken off stays charged, and the next check is another one.

    Args:
        root: the repository.
        path: the record, below the root.

    Raises:
        BudgetExceededError: if the year's budget, or in release mode the data set's, does not cover the check.
        SfumatoError: if an input is wrong; whatever is found before the charge costs nothing.
    """
    from sfumato import artifacts
    from sfumato.divergence.counting import code_counts, count_points
    from sfumato.divergence.estimator import release
    from sfumato.divergence.noise import calibrated_mechanism
    from sfumato.divergence.plan import EstimatorPlan, Floor
    from sfumato.divergence.reference import Reference, all_points, draw_points
    from sfumato.divergence.sensitivity import sensitivity
    from sfumato.params.drift import parse_watch
    from sfumato.rng import Streams

    record = artifacts.read_json(root / path)
    watch = parse_watch(record["watch"], path.name)
    drift, plan = watch.drift, plan_of(watch)
    known, domain = codes_of(root, drift.reference)
    codes, own_domain = codes_of(root, drift.population)
    if own_domain != domain:
        raise SfumatoError(
            f"the population has the domain {own_domain}; allowed is {domain}, that of the reference."
        )
    streams = Streams(drift.seed, watch.mode)
    reference = Reference.from_counts(code_counts(known, domain), drift.minimum_probability)
    points = (
        all_points(reference)
        if drift.draws is None
        else draw_points(reference, drift.draws, streams.stream("points", "drift", record["number"]))
    )
    estimator = EstimatorPlan(Floor(drift.floor, drift.floor_level), drift.coefficient)
    counts = count_points(codes, reference, points)
    found = sensitivity(points, reference, len(codes), estimator)
    price = (drift.epsilon_per_check, watch.delta)
    noise = calibrated_mechanism(found.charged, *price, discrete=watch.mode == "release")
    budget = charge(root, record, watch, plan, noise.event)
    estimate = release(
        counts,
        len(codes),
        points,
        reference,
        estimator,
        *price,
        streams.stream("noise", "drift", record["number"]),
        confidence=plan.interval_confidence,
    )
    artifacts.write_json(
        root / path,
        {**record, "state": "released", "budget": budget, **outcome(drift, plan, reference, estimate)},
    )


def plan_of(watch: Watch) -> MonitoringPlan:
    """The monitoring plan of a watch; the release mode's noise is the discrete Gaussian, priced by zCDP."""
    from sfumato.divergence.monitoring import MonitoringPlan

    drift = watch.drift
    return MonitoringPlan(
        checks_per_year=drift.checks_per_year,
        epsilon_per_check=drift.epsilon_per_check,
        delta=watch.delta,
        yearly_epsilon=drift.yearly_epsilon,
        threshold=drift.threshold,
        confidence=drift.confidence,
        sides=drift.sides,
        correction=drift.correction,
        rule="zcdp" if watch.mode == "release" else "exact",
    )


def codes_of(root: Path, window: Window) -> tuple[Any, int]:
    """The codes of a window and their domain.

    Raises:
        SfumatoError: if the file is missing or damaged, has no such arrays, or no example of the series.
    """
    import numpy as np

    from sfumato import artifacts

    arrays = artifacts.read_npz(root / window.path)
    needed = {"codes", "domain", *(["series"] if window.series else [])}
    if not needed <= set(arrays):
        raise SfumatoError(
            f"{window.path} holds {', '.join(sorted(arrays)) or 'nothing'}; allowed is a file with {', '.join(sorted(needed))}."
        )
    codes, domain = arrays["codes"], arrays["domain"]
    if domain.shape != () or domain.dtype.kind not in "iu":
        raise SfumatoError(f"{window.path} has a domain of shape {domain.shape}; allowed is one integer.")
    if window.series:
        series = arrays["series"]
        if series.shape != codes.shape:
            raise SfumatoError(
                f"{window.path} has series of shape {series.shape}; allowed is one for each code."
            )
        codes = codes[np.isin(series, window.series)]
    return codes, int(domain)


def charge(
    root: Path, record: Mapping[str, Any], watch: Watch, plan: MonitoringPlan, event: Any
) -> dict[str, Any]:
    """Charge the check to the data set's year and, in release mode, to the book of releases.

    Returns:
        what the year had cost before, costs now, and how many checks of the plan are left.

    Raises:
        BudgetExceededError: if one of the two does not cover it.
        SfumatoError: if the check was charged before, so that its noise may have been drawn.
    """
    from sfumato.divergence.monitoring import checks_left
    from sfumato.ledger import EventLedger, ReleaseBook

    ledger = EventLedger()
    ledger.record(event)
    drift, year = watch.drift, record["year"]
    shared: Any = {"unit": UNIT, "neighboring_relation": "replace_one", "delta": watch.delta}
    account: Any = {**shared, "dataset_hash": _hash(f"{drift.dataset}/{year}")}
    book = ReleaseBook(root / CHARGES)
    before = book.spent(**account)
    bill: dict[str, Any] = {
        "events": ledger.to_json(),
        "run_key": f"drift-{drift.name}-{record['check']}",
        "clock": lambda: datetime.now(UTC).isoformat(timespec="seconds"),
    }
    after = book.charge(**account, **bill, epsilon=drift.yearly_epsilon * (1.0 + _ROUNDING))
    if after.already_charged:
        raise SfumatoError(
            f"check {record['check']} was charged before and its noise may have been drawn; allowed is a new check."
        )
    if watch.mode == "release":
        whole: Any = {**shared, "dataset_hash": _hash(drift.dataset)}
        ReleaseBook(root / watch.ledger).charge(**whole, **bill, epsilon=watch.budget_epsilon)
    return {
        "year": year,
        "yearly_epsilon": drift.yearly_epsilon,
        "checks_before": before.releases,
        "epsilon_before": before.epsilon,
        "epsilon_after": after.epsilon,
        "checks_left": checks_left(plan, after.epsilon),
    }


def outcome(drift: Drift, plan: MonitoringPlan, reference: Reference, estimate: Estimate) -> dict[str, Any]:
    """What the record says of an estimate: the numbers, the decision, and how often such decisions err."""
    from sfumato.divergence.monitoring import (
        false_alarms,
        minimal_detectable_divergence,
        with_bonferroni,
        without_correction,
    )

    error_std = float((estimate.noise_std**2 + estimate.sampling_std**2) ** 0.5)
    plain, corrected = (false_alarms(p, error_std) for p in (without_correction(plan), with_bonferroni(plan)))
    fingerprint = hashlib.sha256(reference.probabilities.tobytes() + reference.cell_of.tobytes()).hexdigest()
    return {
        "decision": plan.decide(estimate.low, estimate.high),
        "estimate": {name: getattr(estimate, name) for name in RELEASED}
        | {"sensitivity": estimate.sensitivity.exact},
        "reference": {
            "fingerprint": fingerprint,
            "cells": reference.cells,
            "merged_codes": reference.merged,
        },
        "power": {
            "error_std": error_std,
            "power": drift.power,
            "minimal_detectable_divergence": minimal_detectable_divergence(plan, error_std, drift.power),
        },
        "false_alarms": {
            "correction": plan.correction,
            "per_check_uncorrected": plain.per_check,
            "per_year_uncorrected": plain.per_year,
            "per_check_bonferroni": corrected.per_check,
            "per_year_bonferroni": corrected.per_year,
        },
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
