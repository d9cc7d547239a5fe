"""What an audit of the local mechanism found, for the statements."""

from __future__ import annotations

from sfumato import artifacts, records
from sfumato.guarantee import AuditBound
from sfumato.modulated.methods import Method
from sfumato.modulated.statement import NOT_AUDITED
from tasks.command import Call
from tasks.data_cells import regression_name


def bound_of(call: Call, method: Method, epsilon: float) -> AuditBound:
    """The largest lower bound of the audits of this method and epsilon, or why there is none."""
    setting, name = call.params.modulated.attack, regression_name(call)
    if (
        name not in setting.datasets
        or method.name not in setting.audit_methods
        or epsilon not in setting.epsilons
    ):
        return NOT_AUDITED
    path = call.root / "data/metrics/modulated/audit" / f"{name}.json"
    found = records.select(
        records.from_document(artifacts.read_json(path)),
        method=method.name,
        epsilon=records.epsilon_text(epsilon),
    )
    best = max(found, key=lambda record: float(record.values["epsilon_lower"] or 0.0))
    confidence = round(1 - len(found) * (1 - float(best.values["confidence"] or 0.0)), 12)
    times = int(best.values["releases"] or 1)
    seen = "messages" if times == 1 else f"series of {times} messages"
    both = ", features and label alike" if call.params.modulated.client.labels == "private" else ""
    return AuditBound(
        float(best.values["epsilon_lower"] or 0.0),
        confidence,
        f"likelihood ratio of {best.values['runs']} {seen} of either of two samples at the two ends of the domain{both}, "
        f"{best.levels['pair']} the directions",
    )
