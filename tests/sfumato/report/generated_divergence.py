"""Metrics documents of the divergence system with generated figures, for tests of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sfumato import artifacts
from sfumato.records import Record, to_document
from sfumato.report import Run, run_of

DATASET = "mnist_population"
FREE = 0.2
ERRORS = {
    "trusted_aggregator": 0.205,
    "all_cells": 0.1,
    "per_batch": 0.4,
    "distributed": 0.3,
    "local_mix": 0.9,
    "local_clip": 1.1,
    "histogram": 0.5,
}
BIASES = {"per_batch": 0.3, "distributed": 0.1, "local_mix": 0.8, "local_clip": 1.0}
INTERVALS = ("trusted_aggregator", "all_cells")
HALF = 0.01
SEEDS = 5
COEFFICIENTS = {0.0: 0.2, 0.1: 0.21, 0.5: 0.3, 1.0: 0.4, 2.0: 0.6}
POINTS = {1.0: 0.5, 10.0: 0.205, 100.0: 0.2}
BATCHES = {1.0: 0.21, 10.0: 0.4}
FLOORS = {0.01: 0.4, 0.05: 0.2, 0.2: 0.35}
PAIRS = {"0-1": (0.05, 0.03), "1-2": (0.3, 0.05), "2-3": (0.8, 0.06), "3-4": (1.5, 0.07), "4-5": (2.2, 0.08), "5-6": (3.0, 0.09)}  # fmt: skip
"""Pair -> truth and error of the paper's method."""


def values_of(
    error: float,
    half: float | None = HALF,
    bias: float = 0.0,
    private: bool = True,
    covered: float | None = None,
    divergence: float = 1.0,
    pairs: int = 90,
) -> dict[str, Any]:
    """The leaves of one training record."""
    found: dict[str, Any] = {
        "absolute_error": error,
        "target_error": 0.9 * error,
        "bias": bias,
        "noise_std": 0.05 if private else None,
        "divergence": divergence,
        "target": 0.9 * divergence,
        "covered": covered,
        "pairs": pairs,
        "infinite": 3,
        "seeds": 1 if half is None else SEEDS,
        "smoothing": 0.01,
    }
    for name in ("absolute_error", "target_error", "bias"):
        found[f"{name}_half_width"] = half
        if half is None:
            found[f"{name}_half_width_reason"] = "one seed has no spread"
    if not private:
        found["noise_std_reason"] = "no noise is added"
    if covered is None:
        found["covered_reason"] = "no interval was computed"
    return found


def train_document(
    errors: Mapping[str, float] = ERRORS,
    epsilons: Sequence[str] = ("0.5", "1", "3"),
    comparisons: Sequence[str] = ("digits", "codes"),
    half: float | None = HALF,
    biases: Mapping[str, float] = BIASES,
    covered: float | None = 0.96,
    datasets: Sequence[str] = (DATASET,),
    studies: Mapping[str, Mapping[float, float]] | None = None,
    pairs: Mapping[str, tuple[float, float]] = PAIRS,
) -> dict[str, Any]:
    """A training document; ``errors`` gives each method's error at every epsilon."""
    records: list[Record] = []
    for dataset in datasets:
        for comparison in comparisons:
            place = {"dataset": dataset, "comparison": comparison}
            records += _epsilons(place, errors, epsilons, half, biases, covered)
            for study, found in (DEFAULT_STUDIES if studies is None else studies).items():
                method = "per_batch" if study == "batches" else "trusted_aggregator"
                for value, error in found.items():
                    bias = biases.get(method, 0.0)
                    values = values_of(error, half, bias)
                    records.append(_record(place, study, f"{value:g}", method, values))
            for name, (truth, error) in pairs.items():
                for method, factor in (("trusted_aggregator", 1.0), ("non_private", 0.9)):
                    values = values_of(error * factor, half, divergence=truth, pairs=1)
                    records.append(_record(place, "pair", name, method, values))
    return to_document("divergence", "train", ["dataset", "comparison", "study", "value", "method"], records)


DEFAULT_STUDIES = {"coefficient": COEFFICIENTS, "points": POINTS, "batches": BATCHES, "floor": FLOORS}


def _epsilons(
    place: Mapping[str, str],
    errors: Mapping[str, float],
    epsilons: Sequence[str],
    half: float | None,
    biases: Mapping[str, float],
    covered: float | None,
) -> list[Record]:
    free = values_of(FREE, half, private=False)
    records = [_record(place, "epsilon", "inf", "non_private", free)]
    for method, error in errors.items():
        for epsilon in epsilons:
            share = covered if method in INTERVALS else None
            values = values_of(error, half, biases.get(method, 0.0), covered=share)
            records.append(_record(place, "epsilon", epsilon, method, values))
    return records


def _record(
    place: Mapping[str, str], study: str, value: str, method: str, values: Mapping[str, Any]
) -> Record:
    return Record({**place, "study": study, "value": value, "method": method}, dict(values))


def payload_document(counts: int = 190) -> dict[str, Any]:
    """Bytes of both trust models."""
    records = [
        Record(
            {"dataset": DATASET, "trust": trust},
            {
                "clients": 100,
                "points": 10,
                "counts_message_bytes": counts,
                "bytes_sent_per_client": 4321,
                "bytes_received_per_client": 5432,
            },
        )
        for trust in ("trusted_aggregator", "distributed")
    ]
    return to_document("divergence", "payload", ["dataset", "trust"], records)


def audit_document(lower: float = 0.9) -> dict[str, Any]:
    """Audits at a claimed epsilon of 1."""
    records = [
        Record(
            {"dataset": DATASET, "method": method, "epsilon": "1"},
            {"epsilon_lower": bound, "epsilon_ceiling": 4.5, "confidence": 0.95, "runs": 200000},
        )
        for method, bound in (("trusted_aggregator", 0.5), ("all_cells", lower))
    ]
    return to_document("divergence", "audit", ["dataset", "method", "epsilon"], records)


def account_document() -> dict[str, Any]:
    """Prices with and without an exact Gaussian one."""
    records: list[Record] = []
    for method in ("trusted_aggregator", "distributed"):
        exact = method == "trusted_aggregator"
        values: dict[str, Any] = {
            "epsilon_target": 1.0,
            "delta": 1e-5,
            "n": 15000,
            "releases": 5,
            "epsilon_gaussian": 0.9999 if exact else None,
            "epsilon_zcdp": 1.0421,
            "noise_multiplier": 3.73,
        }
        if not exact:
            values["epsilon_gaussian_reason"] = "discrete noise is priced by zCDP"
        records.append(Record({"dataset": DATASET, "method": method, "epsilon": "1"}, values))
    return to_document("divergence", "account", ["dataset", "method", "epsilon"], records)


def timeline_documents(
    alarms: Sequence[int] = (7, 8, 9), drift_at: int = 5, checks: int = 10
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The checks and the monitor; the population drifts from ``drift_at`` on."""
    rows: list[Record] = []
    for check in range(checks):
        truth = 0.01 + 0.03 * max(0, check - drift_at + 1)
        alarm = check in alarms
        values = {
            "drift_share": 0.2 * max(0, check - drift_at + 1) / (checks - drift_at),
            "divergence": truth,
            "target": 0.9 * truth,
            "raw": 0.9 * truth + 0.002 * (-1) ** check,
            "clipped": 0.9 * truth,
            "low": 0.9 * truth - 0.01,
            "high": 0.9 * truth + 0.01,
            "noise_std": 0.005,
            "epsilon_spent": 0.5 * (check + 1) ** 0.5,
            "alarm": alarm,
            "cleared": check < drift_at and not alarm,
        }
        rows.append(Record({"dataset": DATASET, "check": str(check)}, dict(values)))
    first: dict[str, Any] = {"first_alarm": min(alarms, default=None)}
    if not alarms:
        first["first_alarm_reason"] = "no check decided for a drift"
    monitor = Record(
        {"dataset": DATASET},
        {
            "checks": checks,
            "drift_at": drift_at,
            **first,
            "threshold": 0.06,
            "confidence": 0.95,
            "epsilon_per_check": 0.5,
            "yearly_epsilon": 4.0,
            "epsilon_spent": 1.6,
            "delta": 1e-5,
            "checks_affordable": 40,
            "false_alarm_per_check": 0.0019,
            "false_alarms_per_year": 0.05,
            "minimal_detectable_divergence": 0.08,
            "power_at_end": 0.97,
            "error_std": 0.005,
        },
    )
    return (
        to_document("divergence", "timeline", ["dataset", "check"], rows),
        to_document("divergence", "monitor", ["dataset"], [monitor]),
    )


def run_with(*documents: dict[str, Any], profile: str = "quick", variant: str = "base") -> Run:
    """A run of the divergence system."""
    settings = {"divergence_confidence": 0.95, "divergence_epsilon": 1.0}
    return run_of(profile, "divergence", variant, documents, settings=settings)


def full_run() -> Run:
    """A run with every kind of record."""
    return run_with(
        train_document(), payload_document(), audit_document(), account_document(), *timeline_documents()
    )


def write_run(root: Path) -> None:
    """A finished run's files, and a committed one with a variant."""
    data = root / "data/metrics/divergence"
    documents = {
        "train": train_document(),
        "payload": payload_document(),
        "audit": audit_document(),
        "account": account_document(),
    }
    documents |= dict(zip(("timeline", "monitor"), timeline_documents(), strict=True))
    for step, document in documents.items():
        artifacts.write_json(data / step / f"{DATASET}.json", document)
    path = root / f"data/statements/divergence/{DATASET}/all_cells-1.txt"
    artifacts.write_text(path, "Divergence statement of all cells at 1: <i>N is public</i>.\n")
    folder = root / "results/medium/divergence"
    for variant in ("base", "points_3"):
        artifacts.write_json(folder / variant / "metrics/train/mnist_population.json", train_document())
        origin = {"command": "make medium", "commit": "abcdef9876543210", "variant": variant}
        artifacts.write_json(folder / variant / "provenance.json", origin)
