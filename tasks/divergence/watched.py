"""The further documents of the estimation stage: what the protocol weighs, and the watch on a drifting population."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tasks import command

if TYPE_CHECKING:
    from sfumato.datasets.population import Population
    from sfumato.divergence.comparisons import Pair
    from sfumato.divergence.timeline import Check

Documents = dict[str, tuple[list[str], list[Any]]]
SEED = 4_000_000
"""Of the weighed protocol run and the watch, which are one run each."""
VIEW = "codes"


def documents(call: command.Call, population: Population, compared: dict[str, list[Pair]]) -> Documents:
    """Step name -> its levels and records; empty in release mode, where each would be a further release."""
    empty: Documents = {
        "payload": (["dataset", "trust"], []),
        "timeline": (["dataset", "check"], []),
        "monitor": (["dataset"], []),
    }
    if call.params.privacy.mode == "release":
        return empty
    found = {**empty, "payload": (["dataset", "trust"], _payload(call, compared))}
    if call.options["dataset"] in call.params.divergence.timeline.datasets:
        found |= _timeline(call, population)
    return found


def _payload(call: command.Call, compared: dict[str, list[Pair]]) -> list[Any]:
    from sfumato import records
    from sfumato.divergence.payload import weigh
    from sfumato.rng import Streams
    from tasks.divergence import cells

    params, setting = call.params.divergence, cells.setting_of(call)
    pair = next(iter(compared.values()))[0]
    found: list[Any] = []
    for trust in ("trusted_aggregator", "distributed"):
        payload = weigh(
            trust, pair, setting, params.studies.epsilon, Streams(SEED), params.train.protocol_clients
        )
        values: dict[str, records.Value] = {
            "clients": payload.clients,
            "points": payload.points,
            "counts_message_bytes": payload.counts_message,
            "bytes_sent_per_client": payload.sent,
            "bytes_received_per_client": payload.received,
        }
        found.append(records.Record({"dataset": call.options["dataset"], "trust": trust}, values))
    return found


def _timeline(call: command.Call, population: Population) -> Documents:
    from sfumato import records
    from sfumato.divergence.monitoring import MonitoringPlan
    from sfumato.divergence.timeline import shares_of, watch
    from sfumato.rng import Streams
    from tasks.divergence import cells

    params, name = call.params.divergence, call.options["dataset"]
    watched = params.timeline
    shares = shares_of(watched.checks, watched.drift_at, watched.drift_share)
    plan = MonitoringPlan(
        watched.checks,
        watched.epsilon,
        call.params.privacy.delta,
        watched.yearly_epsilon,
        watched.threshold,
        params.train.confidence,
        correction=watched.correction,
    )
    pairs = cells.pairs_of(call, population, VIEW, tuple(shares))
    smoothing = params.train.smoothing
    setting = cells.setting_of(call)
    setting = replace(setting, floor=replace(setting.floor, level=watched.floor_level))
    checks = watch(pairs, shares, setting, plan, Streams(SEED), smoothing)
    rows = [
        records.Record({"dataset": name, "check": str(check.number)}, _check_values(check))
        for check in checks
    ]
    return {
        "timeline": (["dataset", "check"], rows),
        "monitor": (["dataset"], [records.Record({"dataset": name}, _monitor_values(call, plan, checks))]),
    }


def _check_values(check: Check) -> dict[str, Any]:
    found = check.estimate
    return {
        "drift_share": check.share,
        "divergence": check.divergence,
        "target": check.target,
        "raw": found.raw,
        "clipped": found.clipped,
        "low": found.low,
        "high": found.high,
        "noise_std": found.noise_std,
        "epsilon_spent": check.spent,
        "alarm": check.decision == "drift",
        "cleared": check.decision == "no_drift",
    }


def _monitor_values(call: command.Call, plan: Any, checks: list[Check]) -> dict[str, Any]:
    from sfumato.divergence.monitoring import (
        detection_power,
        false_alarms,
        minimal_detectable_divergence,
    )

    watched = call.params.divergence.timeline
    error = max(check.estimate.noise_std for check in checks)
    alarms = [check.number for check in checks if check.decision == "drift"]
    rates = false_alarms(plan, error)
    values: dict[str, Any] = {
        "checks": len(checks),
        "drift_at": watched.drift_at,
        "first_alarm": alarms[0] if alarms else None,
        "threshold": plan.threshold,
        "confidence": plan.confidence,
        "epsilon_per_check": plan.epsilon_per_check,
        "yearly_epsilon": plan.yearly_epsilon,
        "epsilon_spent": checks[-1].spent,
        "delta": plan.delta,
        "checks_affordable": plan.checks_affordable,
        "false_alarm_per_check": rates.per_check,
        "false_alarms_per_year": rates.expected_per_year,
        "minimal_detectable_divergence": minimal_detectable_divergence(plan, error),
        "power_at_end": detection_power(plan, checks[-1].target, error),
        "error_std": error,
    }
    if not alarms:
        values["first_alarm_reason"] = "no check decided for a drift"
    return values
