"""One check of a monitored population: charge, estimate, decide, write; called by ``tasks.check``."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import SfumatoError

if TYPE_CHECKING:
    from sfumato.divergence.estimator import Estimate
    from sfumato.divergence.monitoring import MonitoringPlan
    from sfumato.divergence.plan import EstimatorPlan
    from sfumato.divergence.reference import Reference
    from sfumato.ledger import Charge
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
_LOCK_SECONDS = 120.0


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
    from sfumato.divergence.detection import require_reachable
    from sfumato.divergence.estimator import release
    from sfumato.divergence.noise import calibrated_mechanism
    from sfumato.divergence.reference import Reference, all_points, draw_points
    from sfumato.divergence.sensitivity import sensitivity
    from sfumato.params.drift import parse_watch, read_record
    from sfumato.rng import Streams

    record = read_record(root / path)
    if record["state"] != "begun":
        raise SfumatoError(
            f"check {record['check']} is {record['state']}; allowed is one that has just begun."
        )
    watch = parse_watch(record["watch"], path.name)
    drift, plan = watch.drift, plan_of(watch)
    known, codes, domain = _both_codes(root, drift)
    streams = Streams(drift.seed, watch.mode)
    keys = ("drift", drift.name, record["number"])  # two monitors of one seed must not share their noise
    reference = Reference.from_counts(code_counts(known, domain), drift.minimum_probability)
    estimator = estimator_of(drift)
    require_reachable(drift.threshold, estimator, reference.smallest)
    points = (
        all_points(reference)
        if drift.draws is None
        else draw_points(reference, drift.draws, streams.stream("points", *keys))
    )
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
        streams.stream("noise", *keys),
        confidence=plan.interval_confidence,
        # The error of few points is not normal: such a tail would raise more false alarms than the record says.
        tail="guaranteed" if drift.draws else "normal",
    )
    artifacts.write_json(
        root / path,
        {**record, "state": "released", "budget": budget, **outcome(drift, plan, reference, estimate)},
    )


def estimator_of(drift: Drift) -> EstimatorPlan:
    """What is computed at each point."""
    from sfumato.divergence.plan import EstimatorPlan, Floor

    return EstimatorPlan(Floor(drift.floor, drift.floor_level), drift.coefficient)


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


def _both_codes(root: Path, drift: Drift) -> tuple[Any, Any, int]:
    """The codes of the reference, those of the population, and the domain of both."""
    known, domain = codes_of(root, drift.reference, "reference")
    codes, own_domain = codes_of(root, drift.population, "population")
    if own_domain != domain:
        raise SfumatoError(
            f"the population {drift.population.path} has the domain {own_domain}; allowed is {domain}, that of the "
            f"reference {drift.reference.path}."
        )
    return known, codes, domain


def codes_of(root: Path, window: Window, name: str) -> tuple[Any, int]:
    """The codes of a window and their domain.

    Args:
        root: the repository.
        window: which file, and which series of it.
        name: what the window is to the monitor, for messages: ``reference`` or ``population``.

    Raises:
        SfumatoError: naming the window and its file, if the file is missing or damaged, has no such arrays, a code is
            outside of the domain, or a series has no example; the sentence names no example.
    """
    import numpy as np

    from sfumato.divergence.reference import MAX_DOMAIN

    where = f"the {name} {window.path}"
    arrays = _arrays(root / window.path, where)
    needed = {"codes", "domain", *(["series"] if window.series else [])}
    if not needed <= set(arrays):
        held, allowed = (", ".join(sorted(names)) for names in (arrays, needed))
        raise SfumatoError(f"{where} holds {held or 'nothing'}; allowed is a file with {allowed}.")
    codes, domain = arrays["codes"], arrays["domain"]
    if domain.shape != () or domain.dtype.kind not in "iu" or not 2 <= int(domain) <= MAX_DOMAIN:
        shown = (
            int(domain)
            if domain.shape == () and domain.dtype.kind in "iu"
            else f"{domain.dtype} of shape {domain.shape}"
        )
        raise SfumatoError(f"{where} has the domain {shown}; allowed is one integer from 2 to {MAX_DOMAIN}.")
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise SfumatoError(
            f"{where} has codes of {codes.dtype} and shape {codes.shape}; allowed is a vector of integer codes."
        )
    if window.series:
        series = arrays["series"]
        if series.shape != codes.shape or series.dtype.kind not in "iu":
            raise SfumatoError(
                f"{where} has series of {series.dtype} and shape {series.shape}; allowed is one integer for each code."
            )
        unknown = [number for number in window.series if not (series == number).any()]
        if unknown:
            raise SfumatoError(
                f"{where} has no example of series {unknown[0]}; allowed are series with at least one."
            )
        codes = codes[np.isin(series, window.series)]
    if not codes.size:
        raise SfumatoError(f"{where} has no example; allowed is at least one.")
    if int(codes.min()) < 0 or int(codes.max()) >= int(domain):
        raise SfumatoError(
            f"{where} has a code outside of its domain; allowed are the codes from 0 to {int(domain) - 1}."
        )
    return codes, int(domain)


def _arrays(path: Path, where: str) -> Mapping[str, Any]:
    """The file's arrays; no step has made it, so the sentence must not advise to delete it."""
    from sfumato import artifacts

    if not path.is_file():
        raise SfumatoError(f"{where} is missing; allowed is an npz file with codes and domain.")
    try:
        return artifacts.read_npz(path)
    except SfumatoError as error:
        reason = str(error).rpartition("; ")[0].removeprefix(f"{path} ")
        raise SfumatoError(f"{where} {reason}; write it anew from your own copy of the data.") from None


def charge(
    root: Path, record: Mapping[str, Any], watch: Watch, plan: MonitoringPlan, event: Any
) -> dict[str, Any]:
    """Charge the check to the data set's year and, in release mode, to the book of releases: to both or to none.

    Both books are asked before either is charged. A crash between the two charges leaves the first one, and the check
    is never estimated then.

    Returns:
        what the year had cost before, costs now, and how many checks of the plan are left.

    Raises:
        BudgetExceededError: if one of the two does not cover it; nothing is charged.
        SfumatoError: if the check was charged before, so that its noise may have been drawn.
    """
    from sfumato.divergence.monitoring import checks_left
    from sfumato.ledger import EventLedger, ReleaseBook

    ledger = EventLedger()
    ledger.record(event)
    drift, year = watch.drift, record["year"]
    shared: Any = {"unit": UNIT, "neighboring_relation": "replace_one", "delta": watch.delta}
    account: Any = {**shared, "dataset_hash": _hash(f"{drift.dataset}/{year}")}
    bill: dict[str, Any] = {
        "events": ledger.to_json(),
        "run_key": f"drift-{drift.name}-{record['check']}",
        "clock": lambda: datetime.now(UTC).isoformat(timespec="seconds"),
    }
    orders: list[tuple[Path, dict[str, Any]]] = [
        (root / CHARGES, {**account, **bill, "epsilon": drift.yearly_epsilon * (1.0 + _ROUNDING)})
    ]
    if watch.mode == "release":
        whole = {**shared, **bill, "dataset_hash": _hash(drift.dataset), "epsilon": watch.budget_epsilon}
        orders.append((root / watch.ledger, whole))
    with _charging(root):
        if any(_asked(path, order).already_charged for path, order in orders):
            raise SfumatoError(
                f"check {record['check']} was charged before and its noise may have been drawn; allowed is a new check."
            )
        before = ReleaseBook(root / CHARGES).spent(**account)
        after, *_ = [ReleaseBook(path).charge(**order) for path, order in orders]
    return {
        "year": year,
        "yearly_epsilon": drift.yearly_epsilon,
        "checks_before": before.releases,
        "epsilon_before": before.epsilon,
        "epsilon_after": after.epsilon,
        "checks_left": checks_left(plan, after.epsilon),
    }


def _asked(path: Path, order: Mapping[str, Any]) -> Charge:
    """What a book would answer, found on a copy of it by the same code."""
    from sfumato.ledger import ReleaseBook

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        if path.exists():
            shutil.copyfile(path, copy)
        return ReleaseBook(copy).charge(**order)


@contextmanager
def _charging(root: Path) -> Generator[None]:
    """Keep other checks from charging between the question and the charge.

    Raises:
        SfumatoError: if another one does so for too long.
    """
    from filelock import FileLock, Timeout

    path = root / CHARGES.with_name(".charging.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=_LOCK_SECONDS):
            yield
    except Timeout:
        raise SfumatoError(
            f"another check has been charging for more than {_LOCK_SECONDS:g} s; try again when it has ended."
        ) from None


def outcome(drift: Drift, plan: MonitoringPlan, reference: Reference, estimate: Estimate) -> dict[str, Any]:
    """What the record says of an estimate: the numbers, the decision, and how often such decisions err.

    With every cell a point the rates are those of a population that is just at the threshold; with drawn points they are
    bounds for every population, and so is the detectable divergence, None where nothing is detected that often.
    """
    from sfumato.divergence.monitoring import false_alarms, with_bonferroni, without_correction

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
            "minimal_detectable_divergence": _detectable(drift, plan, reference, estimate),
        },
        "false_alarms": {
            "correction": plan.correction,
            "rates": "exact" if drift.draws is None else "upper_bounds",
            "per_check_uncorrected": plain.per_check,
            "per_year_uncorrected": plain.per_year,
            "per_check_bonferroni": corrected.per_check,
            "per_year_bonferroni": corrected.per_year,
        },
    }


def _detectable(drift: Drift, plan: MonitoringPlan, reference: Reference, estimate: Estimate) -> float | None:
    """The divergence that a check with this noise calls a drift with the monitor's power."""
    from sfumato.divergence.detection import detectable_divergence
    from sfumato.divergence.monitoring import minimal_detectable_divergence

    if drift.draws is None:
        return minimal_detectable_divergence(plan, estimate.noise_std, drift.power)
    return detectable_divergence(
        plan.threshold,
        estimate.noise_std,
        drift.draws,
        estimator_of(drift),
        reference.smallest,
        plan.false_alarm_level,
        drift.power,
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
