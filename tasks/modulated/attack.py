"""Attacks on what clients send: ``python -m tasks.attack modulated --dataset fair``.

Reconstruction of the features, and of a private label, from real messages; the likelihood-ratio audit of the mechanism.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasks import command

SEED = 2_000_000
"""The attacks' own seed: they run the mechanism anew on rows of the data."""
MECHANISMS = ("one_shot", "one_shot_lipschitz", "no_modulation")
TOLERANCES = {
    "mse": 0.5,
    "mse_low": 0.5,
    "mse_high": 0.5,
    "mse_along": 0.5,
    "mse_across": 0.5,
    "epsilon_lower": 0.5,
}
LABEL_TOLERANCES = dict.fromkeys(("label_mse", "label_mse_low", "label_mse_high"), 0.5)
"""Added where labels are private, so that there is something to rebuild."""


def run(call: command.Call) -> None:
    """Reconstruct and audit, and write both metrics documents."""
    from sfumato import artifacts, records

    found = list(_reconstructions(call))
    audits = list(_audits(call))
    tolerances = TOLERANCES | (LABEL_TOLERANCES if call.params.modulated.client.labels == "private" else {})
    for step, levels, rows in (
        ("attack", ["dataset", "method", "attack", "epsilon", "messages"], found),
        ("audit", ["dataset", "method", "epsilon", "pair"], audits),
    ):
        document = records.to_document("modulated", step, levels, rows, tolerances)
        artifacts.write_json(call.path("metrics", step, ".json"), document)


def _reconstructions(call: command.Call) -> Any:
    from sfumato import records
    from sfumato.modulated.attacked import reconstruct
    from sfumato.modulated.client import clip_samples
    from sfumato.modulated.experiment import plan_of
    from sfumato.modulated.methods import get_method
    from sfumato.rng import Streams
    from tasks import data_cells
    from tasks.modulated import cells

    setting, attack, domain = cells.setting_of(call), call.params.modulated.attack, cells.domain_of(call)
    problem = cells.problem_of(call)
    rows, labels = (part[: attack.clients].astype("float64") for part in problem.train)
    features, labels, _faulty = clip_samples(rows, labels, domain)
    for name in MECHANISMS:
        for epsilon in attack.epsilons:
            for count in attack.messages:
                plan = replace(plan_of(get_method(name), domain, setting), rounds=count)
                calibrated = plan.calibrate(epsilon, setting.delta)
                place = {
                    "dataset": data_cells.regression_name(call),
                    "method": name,
                    "epsilon": records.epsilon_text(epsilon),
                    "messages": str(count),
                }
                for attacker, outcome in reconstruct(features, labels, calibrated, Streams(SEED)).items():
                    values = {
                        **outcome.to_values(),
                        "noise_std": calibrated.noise_std,
                        "clients": len(features),
                    }
                    yield records.Record({**place, "attack": attacker}, values)
                command.progress(1, 1, f"{call.cell} {name} at epsilon {epsilon:g}, {count} messages")


def _audits(call: command.Call) -> Any:
    from sfumato import records
    from sfumato.attacks import audit_ceiling
    from sfumato.modulated.attacked import audit_messages
    from sfumato.modulated.experiment import plan_of
    from sfumato.modulated.methods import get_method
    from sfumato.rng import Streams
    from tasks import data_cells
    from tasks.modulated import cells

    setting, attack, domain = cells.setting_of(call), call.params.modulated.attack, cells.domain_of(call)
    for name in attack.audit_methods:
        plan = plan_of(get_method(name), domain, setting)
        runs = max(100, attack.audit_runs // plan.releases)
        for epsilon in attack.epsilons:
            for pair in ("across", "along") if plan.modulation.amplitude > 0 else ("across",):
                streams = Streams(SEED + 1)
                calibrated = plan.calibrate(epsilon, setting.delta)
                bound = audit_messages(calibrated, pair, runs, streams, attack.confidence)
                levels = {
                    "dataset": data_cells.regression_name(call),
                    "method": name,
                    "epsilon": records.epsilon_text(epsilon),
                    "pair": pair,
                }
                values: dict[str, records.Value] = {
                    "epsilon_lower": bound.epsilon_lower,
                    "epsilon_ceiling": audit_ceiling(runs, setting.delta, attack.confidence),
                    "confidence": attack.confidence,
                    "runs": runs,
                    "releases": plan.releases,
                }
                yield records.Record(levels, values)
