"""Price what each client's ledger recorded: ``python -m tasks.account modulated --dataset fair``."""

from __future__ import annotations

import json
from typing import Any

from tasks import command

TOLERANCES = {
    "epsilon_gaussian": 1e-3,
    "epsilon_zcdp": 1e-3,
    "epsilon_bun_steinke": 1e-3,
    "noise_std": 1e-3,
    "noise_std_other": 1e-3,
}


def run(call: command.Call) -> None:
    """Price the recorded events of every method and epsilon, compare with the target, and write the statements."""
    from sfumato import artifacts, datasets, records
    from sfumato.ledger import EventLedger
    from sfumato.modulated.experiment import calibrated_of
    from sfumato.modulated.methods import get_method
    from sfumato.modulated.setting import Tuned
    from sfumato.modulated.statement import price_of, privacy_statement
    from tasks import data_cells
    from tasks.modulated import audits, cells

    name = data_cells.regression_name(call)
    spec = datasets.get_regression_spec(name)
    recorded = artifacts.read_json(call.path("events", "train", ".json"))["cells"]
    setting = cells.setting_of(call)
    notes = _together(call, recorded)
    found: list[Any] = []
    for key, cell in recorded.items():
        method_name, text = key.split("/")
        method = get_method(method_name)
        tuned = Tuned(cell["step_size"], cell["clip_norm"], cell["trials"])
        calibrated = calibrated_of(method, cells.domain_of(call), setting, float(text), tuned)
        audit = audits.bound_of(call, method, float(text))
        # One list of events, unless a seed released something else; the statement refuses what is not the plan's.
        texts = {json.dumps(events, sort_keys=True): events for events in cell["seeds"].values()}
        ledgers = [EventLedger.from_json(events, 0) for events in texts.values()]
        statements = [
            privacy_statement(
                method_name,
                calibrated,
                ledger,
                spec.n_train,
                spec.unit_of_privacy,
                call.params.privacy.mode,
                tuned.trials,
                audit,
                notes,
            )
            for ledger in ledgers
        ]
        price, statement = price_of(ledgers[0], calibrated.delta), statements[0]
        folder = call.root / "data/statements/modulated" / name
        artifacts.write_json(folder / f"{method_name}-{text}.json", statement.to_json())
        artifacts.write_text(folder / f"{method_name}-{text}.txt", statement.to_text())
        levels = {"dataset": name, "method": method_name, "epsilon": text}
        found.append(
            records.Record(levels, _values(call, method, float(text), calibrated, price, spec.n_train))
        )
    document = records.to_document(
        "modulated", "account", ["dataset", "method", "epsilon"], found, TOLERANCES
    )
    artifacts.write_json(call.path("metrics", "account", ".json"), document)


def _together(call: command.Call, recorded: Any) -> tuple[str, ...]:
    """In release mode, what all fits of the stage cost the same clients together."""
    from sfumato.ledger import EventLedger
    from sfumato.modulated.statement import price_of

    everything = EventLedger()
    for cell in recorded.values():
        for events in cell["seeds"].values():
            for event in EventLedger.from_json(events, 0).events:
                everything.record(event)
    if call.params.privacy.mode != "release" or len(recorded) < 2:
        return ()
    total = price_of(everything, call.params.privacy.delta).gaussian
    return (
        f"this is one of {len(recorded)} fits that the same clients answered; whoever sees all of their messages is bound by "
        f"epsilon = {total:.4g} only",
    )


def _values(
    call: command.Call, method: Any, epsilon: float, calibrated: Any, price: Any, clients: int
) -> dict[str, Any]:
    from sfumato import accounting
    from sfumato.modulated.plan import CalibratedModulation

    values: dict[str, Any] = {
        "epsilon_target": epsilon,
        "delta": calibrated.delta,
        "n": clients,
        "releases": price.releases,
        "epsilon_gaussian": price.gaussian,
        "epsilon_zcdp": price.zcdp,
        "epsilon_bun_steinke": price.bun_steinke,
        "noise_multiplier": calibrated.noise_multiplier,
    }
    if not isinstance(calibrated, CalibratedModulation):
        return values
    plan = calibrated.plan
    other = "lipschitz" if plan.calibration == "phase_marginal" else "phase_marginal"
    values |= {
        "lipschitz_constant": plan.modulation.lipschitz,
        "marginal_constant": plan.modulation.scale,
        "directions": plan.modulation.directions,
        "noise_std": calibrated.noise_std,
        "noise_std_other": calibrated.noise_multiplier * plan.sensitivity(other),
    }
    if method.one_release:
        reason = "labels are public and identify a message again, so shuffling hides nobody"
        multiplier = None
        if plan.labels == "private":
            shuffled = accounting.calibrate_shuffled_gaussian(epsilon, calibrated.delta, clients, plan.rule)
            multiplier, reason = shuffled.noise_multiplier, shuffled.reason or ""
        values["shuffled_noise_multiplier"] = multiplier
        if multiplier is None:
            values["shuffled_noise_multiplier_reason"] = reason
    return values
