"""Price what the estimates recorded: ``python -m tasks.account divergence --dataset mnist_population``."""

from __future__ import annotations

import json
from typing import Any

from tasks import command

LEVELS = ["dataset", "method", "epsilon"]
TOLERANCES = {"epsilon_gaussian": 1e-3, "epsilon_zcdp": 1e-3, "noise_multiplier": 1e-2}


def run(call: command.Call) -> None:
    """Price the recorded events of every method and epsilon, and write the statements."""
    from sfumato import artifacts, datasets, records
    from sfumato.divergence.methods import get_method
    from sfumato.divergence.statement import privacy_statement
    from sfumato.ledger import EventLedger
    from tasks.divergence import cells

    name = call.options["dataset"]
    spec, setting = datasets.get_population_spec(name), cells.setting_of(call)
    recorded = artifacts.read_json(call.path("events", "train", ".json"))["cells"]
    found: list[Any] = []
    notes = _together(call, recorded)
    for key, cell in recorded.items():
        method, text = key.split("/")
        ledgers = [EventLedger.from_json(json.loads(events), 0) for events in cell["events"]]
        costs = [_price(ledger, setting.delta) for ledger in ledgers]
        worst = max(range(len(costs)), key=lambda place: costs[place].epsilon)
        statement = privacy_statement(
            get_method(method),
            setting,
            float(text),
            ledgers[worst],
            cell["examples"],
            spec.unit_of_privacy,
            call.params.privacy.mode,
            _audit_of(call, method, float(text)),
            (f"said for each of {cell['releases']} estimates by itself", *notes),
        )
        folder = call.root / "data/statements/divergence" / name
        artifacts.write_json(folder / f"{method}-{text}.json", statement.to_json())
        artifacts.write_text(folder / f"{method}-{text}.txt", statement.to_text())
        levels = {"dataset": name, "method": method, "epsilon": text}
        values = _values(costs[worst], float(text), setting.delta, cell)
        found.append(records.Record(levels, values))
    document = records.to_document("divergence", "account", LEVELS, found, TOLERANCES)
    artifacts.write_json(call.path("metrics", "account", ".json"), document)


def _price(ledger: Any, delta: float) -> Any:
    from sfumato.divergence.statement import price_of

    return price_of(ledger, delta)


def _values(price: Any, epsilon: float, delta: float, cell: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "epsilon_target": epsilon,
        "delta": delta,
        "n": cell["examples"],
        "releases": cell["releases"],
        "epsilon_gaussian": price.epsilon if price.gaussian else None,
        "epsilon_zcdp": price.zcdp,
        "noise_multiplier": 1.0 / (2.0 * price.rho) ** 0.5,
    }
    if not price.gaussian:
        values["epsilon_gaussian_reason"] = "discrete noise is priced by zCDP"
    return values


def _together(call: command.Call, recorded: Any) -> tuple[str, ...]:
    """In release mode, what all estimates of the stage cost the same people together."""
    from sfumato.divergence.statement import price_of
    from sfumato.ledger import EventLedger

    if call.params.privacy.mode != "release":
        return ()
    everything = EventLedger()
    for cell in recorded.values():
        for events, times in cell["events"].items():
            for event in EventLedger.from_json(json.loads(events), 0).events:
                for _ in range(times):
                    everything.record(event)
    total = price_of(everything, call.params.privacy.delta).epsilon
    return (f"whoever sees all estimates of this stage is bound by epsilon = {total:.4g} only",)


def _audit_of(call: command.Call, method: str, epsilon: float) -> Any:
    """The audit's lower bound of this method and epsilon, or why there is none."""
    from sfumato import artifacts, records
    from sfumato.divergence.statement import NOT_AUDITED
    from sfumato.guarantee import AuditBound

    attack, name = call.params.divergence.attack, call.options["dataset"]
    if name not in attack.datasets or method not in attack.methods or epsilon not in attack.epsilons:
        return NOT_AUDITED
    path = call.root / "data/metrics/divergence/audit" / f"{name}.json"
    rows = records.from_document(artifacts.read_json(path))
    row = records.select(rows, method=method, epsilon=records.epsilon_text(epsilon))[0]
    return AuditBound(
        float(row.values["epsilon_lower"] or 0.0),
        float(row.values["confidence"] or 0.0),
        f"likelihood ratio of {row.values['runs']} releases of either of two neighbours that are farthest apart",
    )
