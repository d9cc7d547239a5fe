"""Price what was recorded: ``python -m tasks.account topk --dataset mnist --epsilon 3``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks import command


def run(call: command.Call) -> None:
    """Price the recorded events of every method, compare with target and audit, and write the statements."""
    import json

    from sfumato import artifacts, records
    from sfumato.ledger import EventLedger
    from sfumato.topk.statement import price_of, privacy_statement
    from tasks import data_cells
    from tasks.topk import cells

    dataset, text = data_cells.dataset_name(call), command.required(call.options, "epsilon")
    folder = call.root / "data/statements/topk" / f"{dataset}-{text}"
    priced: dict[str, Any] = {}
    found = []
    reference = ("non_private",) if dataset in call.params.topk.grid.references else ()
    for method in (*call.params.topk.grid.methods, *reference):
        private = method != "non_private"
        path = call.root / "data/events/topk/train" / f"{dataset}-{method}-{text if private else 'inf'}.json"
        recorded = artifacts.read_json(path)
        audit = _audit_bound(call, dataset, method, text)
        calibrated = cells.calibrated_of(call, method)
        for label, events in recorded["seeds"].items():
            ledger = EventLedger.from_json(events, recorded["empty_batches"].get(label) or 0)
            key = json.dumps(events, sort_keys=True)
            if key not in priced:
                priced[key] = price_of(ledger, recorded["delta"])
            price = priced[key]
            levels = {
                "dataset": dataset,
                "method": method,
                "epsilon": records.epsilon_text(float(text) if private else None),
                "seed": label,
            }
            found.append(records.Record(levels, _values(price, ledger.steps, recorded)))
            statement = privacy_statement(
                calibrated, ledger, call.params.privacy.mode, cells.tuning_of(call), audit, price
            )
            artifacts.write_json(folder / f"{method}-{label}.json", statement.to_json())
            artifacts.write_text(folder / f"{method}-{label}.txt", statement.to_text())
    tolerances = {"epsilon_pld": 1e-3, "epsilon_rdp": 1e-3, "epsilon_prv": 1e-2}
    document = records.to_document(
        "topk", "account", ["dataset", "method", "epsilon", "seed"], found, tolerances
    )
    artifacts.write_json(call.path("metrics", "account", ".json"), document)


def _values(price: Any, steps: int, recorded: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"delta": recorded["delta"], "n": recorded["n"], "steps": steps}
    values["epsilon_target"] = recorded["epsilon_target"]
    if values["epsilon_target"] is None:
        values["epsilon_target_reason"] = "not private"
    for name in ("pld", "rdp", "prv", "prv_error"):
        values[f"epsilon_{name}"] = getattr(price, name)
        if values[f"epsilon_{name}"] is None:
            values[f"epsilon_{name}_reason"] = price.reason(name) or price.reason("prv") or "not applicable"
    return values


def _audit_bound(call: command.Call, dataset: str, method: str, epsilon: str) -> Any:
    """The larger of the audit's two bounds at half the error probability each, or why there is none."""
    from sfumato import artifacts, records
    from sfumato.guarantee import AuditBound
    from sfumato.topk.statement import NOT_AUDITED

    setting = call.params.topk.audit
    inside = dataset in setting.datasets and method in setting.methods
    if not (inside and float(epsilon) in setting.epsilons):
        return NOT_AUDITED
    path = call.root / "data/metrics/topk/audit" / f"{dataset}-{method}-{epsilon}.json"
    found = records.from_document(artifacts.read_json(path))
    best = max(found, key=lambda record: float(record.values["epsilon_lower"] or 0.0))
    confidence = round(1 - len(found) * (1 - float(best.values["confidence"] or 0.0)), 12)
    return AuditBound(
        float(best.values["epsilon_lower"] or 0.0),
        confidence,
        f"one-run audit of a separate fit with {best.values['canaries']} canaries in {best.levels['space']} space",
    )
