"""Price and audit what the clients recorded: ``python -m tasks.account radiomap --dataset city_maps``."""

from __future__ import annotations

from typing import Any

from tasks import command

LEVELS = ["dataset", "method", "multiplier"]
TOLERANCES = {
    "epsilon_upload": 1.0,
    "epsilon_client": 10.0,
    "audit_lower": 1.0,
    "sigma_least": 0.1,
    "db_at_epsilon_10": 5.0,
}
PRICED = (
    "epsilon_upload",
    "epsilon_client",
    "mu_upload",
    "sigma_least",
    "multiplier_for_epsilon_10",
    "db_at_epsilon_10",
    "audit_lower",
)


def run(call: command.Call) -> None:
    """Price every defence and multiplier at the seed that costs a client most, audit one upload, write the statements."""
    from sfumato import artifacts, records
    from sfumato.radiomap.preparation import multiplier_text
    from tasks.radiomap import cells

    found: list[records.Record] = []
    for method in call.params.radiomap.grid.defences:
        name = f"{call.options['dataset']}-{method}.json"
        recorded = _recorded(
            call, method, artifacts.read_json(call.root / "data/events/radiomap/train" / name)
        )
        for nu in cells.multipliers_of(call, method):
            text = multiplier_text(nu)
            seed, defence = _costliest(call, method, nu, recorded)
            cell = recorded[f"{text}/{seed}"]
            levels = {"dataset": call.options["dataset"], "method": method, "multiplier": text}
            values, bound = _values(call, defence, cell, recorded.get("low_epsilon", {}))
            found.append(records.Record(levels, values))
            statement = _statement(call, defence, nu, cell, bound)
            folder = call.root / "data/statements/radiomap" / call.options["dataset"]
            artifacts.write_json(folder / f"{method}-{text}.json", statement.to_json())
            artifacts.write_text(folder / f"{method}-{text}.txt", statement.to_text())
    document = records.to_document("radiomap", "account", LEVELS, found, TOLERANCES)
    artifacts.write_json(call.path("metrics", "account", ".json"), document)


def _recorded(call: command.Call, method: str, document: Any) -> Any:
    """What training recorded of every multiplier and seed.

    Raises:
        SfumatoError: if one is missing.
    """
    from sfumato.errors import SfumatoError
    from sfumato.radiomap.preparation import multiplier_text
    from tasks.radiomap import cells

    found = document.get("cells") if isinstance(document, dict) else None
    names = [
        f"{multiplier_text(nu)}/{seed}"
        for nu in cells.multipliers_of(call, method)
        for seed in cells.streams_of(call)
    ]
    missing = [name for name in names if not isinstance(found, dict) or name not in found]
    if missing:
        raise SfumatoError(
            f"training with {method} recorded nothing of multiplier/seed {missing[0]}; allowed are those of radiomap.grid that it was "
            "run with: run it again."
        )
    return found


def _costliest(call: command.Call, method: str, nu: float, recorded: Any) -> tuple[str, Any]:
    """The seed in which all uploads of one client cost most together, and its defence; who sends most differs by seed.

    Without a promise it is the seed in which one client sent most.
    """
    import math

    from sfumato.radiomap.preparation import multiplier_text
    from sfumato.radiomap.pricing import promise_of, why_no_epsilon
    from tasks.radiomap import cells

    found: list[tuple[float, str, Any]] = []
    for seed, streams in cells.streams_of(call).items():
        model = cells.model_of(call, streams)
        defence = cells.defence_of(call, method, nu, cells.public_of(call, seed), cells.partition_of(model))
        mu = 1.0 if why_no_epsilon(defence) else promise_of(defence).mu
        uploads = recorded[f"{multiplier_text(nu)}/{seed}"]["uploads"]
        found.append((mu * math.sqrt(uploads), seed, defence))
    _mu, seed, defence = max(found, key=lambda entry: entry[0])
    return seed, defence


def _values(call: command.Call, defence: Any, cell: Any, low: Any) -> tuple[dict[str, Any], Any]:
    """Leaves of the document, and the audit's bound."""
    import math

    from sfumato.guarantee import AuditBound
    from sfumato.radiomap.audited import audit_defence
    from sfumato.radiomap.pricing import price, promise_of, why_no_epsilon
    from sfumato.radiomap.statement import NOT_AUDITED
    from sfumato.rng import Streams

    delta, attack = call.params.privacy.delta, call.params.radiomap.attack
    values: dict[str, Any] = {
        "delta": delta,
        "uploads_per_client": cell["uploads"],
        "released": cell["released"],
    }
    reason = why_no_epsilon(defence)
    if reason:
        values |= {name: None for name in PRICED} | {f"{name}_reason": reason for name in PRICED}
        return values, NOT_AUDITED
    one, together = price(defence, 1, delta), price(defence, cell["uploads"], delta)
    stream = Streams(AUDIT_SEED).stream("audit", defence.name)
    audit = audit_defence(
        defence, runs=attack.audit_runs, delta=delta, stream=stream, confidence=attack.confidence
    )
    for name, epsilon in (("epsilon_upload", one.epsilon), ("epsilon_client", together.epsilon)):
        values[name] = epsilon if math.isfinite(epsilon) else None
        if values[name] is None:
            values[f"{name}_reason"] = "it is infinite for every number that can be computed"
    values |= {
        "mu_upload": one.mu,
        "sigma_least": min(promise_of(defence).sigmas),
        "audit_lower": audit.bound.epsilon_lower,
        "audit_confidence": attack.confidence,
        "multiplier_for_epsilon_10": low.get("multiplier"),
        "db_at_epsilon_10": low.get("validation_db"),
    }
    for name in ("multiplier_for_epsilon_10", "db_at_epsilon_10"):
        if values[name] is None:
            values[f"{name}_reason"] = low.get(
                "reason", "its allocator is trained for the multipliers of the grid alone"
            )
    return values, AuditBound(audit.bound.epsilon_lower, attack.confidence)


def _statement(call: command.Call, defence: Any, nu: float, cell: Any, bound: Any) -> Any:
    from sfumato.ledger import EventLedger
    from sfumato.radiomap.statement import NOT_AUDITED, Run, privacy_statement

    plan = call.params.radiomap.train
    numbers = Run(
        plan.clients,
        cell["uploads"],
        cell["released"],
        call.params.privacy.delta,
        call.params.privacy.mode,
        nu,
    )
    unit = "client" if bound is NOT_AUDITED else "upload"
    return privacy_statement(defence, EventLedger.from_json(cell["events"], 0), numbers, unit, bound)


AUDIT_SEED = 5_000_000
"""Of the audit's noise: it attacks the mechanism, not one of the trained models."""
