"""The audit of what is released: ``python -m tasks.attack divergence --dataset mnist_population``."""

from __future__ import annotations

from typing import Any

from tasks import command

SEED = 2_000_000
"""The audit's own seed: it runs the mechanism anew on two neighbours of its own making."""
LEVELS = ["dataset", "method", "epsilon"]
TOLERANCES = {"epsilon_lower": 0.5}


def run(call: command.Call) -> None:
    """Audit every method and epsilon, and write the metrics document."""
    from sfumato import artifacts, records

    document = records.to_document("divergence", "audit", LEVELS, list(_audits(call)), TOLERANCES)
    artifacts.write_json(call.path("metrics", "audit", ".json"), document)


def _audits(call: command.Call) -> Any:
    """On the first pair of the first comparison, whose population plays no part: neighbours attain the sensitivity."""
    from sfumato import records
    from sfumato.divergence.audited import audit_release
    from sfumato.divergence.experiment import coefficient_of
    from sfumato.divergence.plan import EstimatorPlan
    from sfumato.divergence.reference import all_points, draw_points
    from sfumato.rng import Streams
    from tasks.divergence import cells

    setting, attack = cells.setting_of(call), call.params.divergence.attack
    streams = Streams(SEED)
    pair = cells.pairs_of(call, cells.population_of(call), cells.comparisons_of(call)[0])[0]
    drawn = draw_points(pair.reference, setting.points, streams.stream("points"))
    work = [(method, epsilon) for method in attack.methods for epsilon in attack.epsilons]
    for done, (method, epsilon) in enumerate(work, 1):
        points = drawn if method == "trusted_aggregator" else all_points(pair.reference)
        coefficient = coefficient_of(pair, setting, points, setting.floor, epsilon)
        audit = audit_release(
            points,
            pair.reference,
            pair.examples,
            EstimatorPlan(setting.floor, coefficient),
            epsilon,
            setting.delta,
            runs=attack.runs,
            stream=streams.stream("attack", method, records.epsilon_text(epsilon)),
            confidence=attack.confidence,
        )
        values: dict[str, records.Value] = {
            "epsilon_lower": audit.bound.epsilon_lower,
            "epsilon_ceiling": audit.ceiling,
            "confidence": attack.confidence,
            "runs": audit.runs,
        }
        levels = {
            "dataset": call.options["dataset"],
            "method": method,
            "epsilon": records.epsilon_text(epsilon),
        }
        yield records.Record(levels, values)
        command.progress(done, len(work), f"{call.cell} {method} at epsilon {epsilon:g}")
