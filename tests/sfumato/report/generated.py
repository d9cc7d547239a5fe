"""A tree of files as a finished run leaves them, with generated figures, for tests of the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sfumato import artifacts
from sfumato.records import Record, to_document

METHODS = ("tp_topk", "tp_rand", "on_topk", "on_rand", "dense")
LAYOUT: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("0.weight", (16, 1, 8, 8)),
    ("0.bias", (16,)),
    ("3.weight", (32, 16, 4, 4)),
    ("3.bias", (32,)),
    ("7.weight", (32, 512)),
    ("7.bias", (32,)),
    ("9.weight", (10, 32)),
    ("9.bias", (10,)),
)
SIZE = sum(int(np.prod(shape)) for _name, shape in LAYOUT)
GAIN = {
    "tp_topk": 0.02,
    "tp_rand": 0.0,
    "on_topk": -0.01,
    "on_rand": -0.02,
    "dense": 0.005,
    "non_private": 0.05,
}


def fit_values(
    method: str, epsilon: float, seed: int, gain: float | None = None, recall: float | None = None
) -> dict[str, Any]:
    """A fit's metrics; the seeds' common part is large, their own part small, so that pairing matters."""
    common = 0.01 * np.sin(7.0 * seed)
    own = 0.001 * np.cos(3.0 * seed + len(method))
    accuracy = 0.9 + 0.02 * np.log(min(epsilon, 20)) + (GAIN[method] if gain is None else gain) + common + own
    values: dict[str, Any] = {
        "test_accuracy": min(float(accuracy), 0.999),
        "test_balanced_accuracy": min(float(accuracy) - 0.01, 0.999),
        "test_loss": 0.4,
        "validation_accuracy": min(float(accuracy), 0.999),
        "validation_loss": 0.4,
        "steps": 120,
        "active": 2601 if method not in ("dense", "non_private") else SIZE,
        "dimension": SIZE,
        "empty_batches": 0,
    }
    if recall is not None:
        values |= {"test_positive_recall": recall + own, "test_positive_auc": 0.9}
    for index, (name, _shape) in enumerate(LAYOUT):
        leaf = name.replace(".", "_")
        values[f"density/{leaf}"] = (0.6 if index == 6 else 0.08 + 0.01 * index) if "topk" in method else 0.1
    if method.startswith(("tp", "on")):
        values |= {
            "retained_energy": 0.35 + own if "topk" in method else 0.1 + own,
            "dropped_energy": 0.05,
            "noise_energy_active": 0.0123 * 2601 / SIZE,
            "noise_energy_dense": 0.0123,
            "noise_energy_dense_budget": 0.0101,
            "restriction_beneficial": method == "tp_topk",
            "restriction_beneficial_at_equal_budget": method == "tp_topk",
        }
    if method.endswith("topk"):
        values |= {
            "misranked": 0.31 + 5 * own,
            "misranked_predicted": 0.3,
            "top_overlap": 0.35,
            "top_overlap_by_chance": 2601 / SIZE,
        }
    return values


def train_document(
    dataset: str,
    methods: Sequence[str] = METHODS,
    epsilons: Sequence[str] = ("1", "3"),
    seeds: Sequence[int] = (0, 1, 2),
    gain: float | None = None,
    recalls: dict[str, float] | None = None,
) -> dict[str, Any]:
    """A training document of one data set."""
    records = [
        Record(
            {"dataset": dataset, "method": method, "epsilon": epsilon, "seed": str(seed)},
            fit_values(method, float(epsilon), seed, gain, (recalls or {}).get(method)),
        )
        for method in methods
        for epsilon in (("inf",) if method == "non_private" else epsilons)
        for seed in seeds
    ]
    return to_document("topk", "train", ["dataset", "method", "epsilon", "seed"], records)


def attack_document(dataset: str, methods: Sequence[str] = METHODS, epsilon: str = "1") -> dict[str, Any]:
    """A loss-threshold attack's document."""
    records: list[Record] = []
    for method in (*methods, "non_private"):
        for seed in range(3):
            strength = 0.55 if method == "non_private" else 0.505 + 0.002 * seed
            levels = {"dataset": dataset, "method": method, "seed": str(seed)}
            levels["epsilon"] = "inf" if method == "non_private" else epsilon
            values: dict[str, Any] = {
                "auc": strength,
                "advantage": 0.02,
                "tpr_at_fpr_0_01": 0.011 + 0.001 * seed,
            }
            records.append(Record(levels, values))
    return to_document("topk", "attack", ["dataset", "method", "epsilon", "seed"], records)


def audit_document(dataset: str, lower: float = 0.8, epsilon: str = "3") -> dict[str, Any]:
    """A one-run audit's document."""
    values: dict[str, Any] = {"epsilon_ceiling": 4.2, "correct": 120, "guesses": 200, "canaries": 1000}
    values |= {"delta": 1e-5, "confidence": 0.95}
    records = [
        Record(
            {"dataset": dataset, "method": "tp_topk", "epsilon": epsilon, "space": space},
            {"epsilon_lower": bound, **values},
        )
        for space, bound in (("gradient", lower), ("input", 0.0))
    ]
    return to_document("topk", "audit", ["dataset", "method", "epsilon", "space"], records)


def account_document(dataset: str, epsilon: str = "1", extra: float = 0.0) -> dict[str, Any]:
    """Prices of the recorded events."""
    records: list[Record] = []
    for method in METHODS:
        for seed in range(3):
            levels = {"dataset": dataset, "method": method, "epsilon": epsilon, "seed": str(seed)}
            price = float(epsilon) - 0.001 + (extra if method == "tp_topk" else 0.0)
            records.append(Record(levels, {"epsilon_pld": price, "epsilon_rdp": price + 0.3, "delta": 1e-5}))
    return to_document("topk", "account", ["dataset", "method", "epsilon", "seed"], records)


def write_run(root: Path, params: str, datasets: Sequence[str] = ("mnist",), lower: float = 0.8) -> None:
    """A finished run's files for the grid of the given params.yaml text."""
    (root / "params.yaml").write_text(params, encoding="utf-8")
    data = root / "data"
    for dataset in datasets:
        for epsilon in ("1", "3"):
            attack = attack_document(dataset, epsilon=epsilon)
            artifacts.write_json(data / f"metrics/topk/attack/{dataset}-{epsilon}.json", attack)
            account = account_document(dataset, epsilon)
            artifacts.write_json(data / f"metrics/topk/account/{dataset}-{epsilon}.json", account)
            _write_roc(data / f"plots/topk/attack/{dataset}-{epsilon}.csv", dataset, epsilon)
            for method in METHODS:
                _write_fit(data, dataset, method, epsilon)
        _write_fit(data, dataset, "non_private", "inf")
        artifacts.write_json(
            data / f"metrics/topk/audit/{dataset}-tp_topk-3.json", audit_document(dataset, lower)
        )


def _write_fit(data: Path, dataset: str, method: str, epsilon: str) -> None:
    cell = f"{dataset}-{method}-{epsilon}"
    document = train_document(dataset, [method], [epsilon])
    artifacts.write_json(data / f"metrics/topk/train/{cell}.json", document)
    columns = [
        "seed",
        "step",
        "phase",
        "gradient_norm",
        "held_out_loss",
        "held_out_accuracy",
        "retained_energy",
    ]
    rows: list[list[object]] = []
    for seed in range(3):
        for step in range(1, 121):
            seen = step % 10 == 0
            phase = "dense" if method in ("dense", "non_private") else "warmup" if step <= 40 else "train"
            level = float(0.9 - 0.8 * np.exp(-step / 25) + 0.005 * seed + GAIN[method])
            rows.append(
                [
                    seed,
                    step,
                    phase,
                    1.5,
                    0.5 if seen else None,
                    level if seen else None,
                    0.4 if seen else None,
                ]
            )
    artifacts.write_csv(data / f"plots/topk/train/{cell}.csv", columns, rows)
    random = np.random.Generator(np.random.Philox(7))
    tensors: dict[str, Any] = {}
    for name, shape in LAYOUT:
        tensors[f"seed0/{name}"] = random.normal(0, 0.1, shape).astype(np.float32)
    tensors["seed0/support"] = np.sort(random.permutation(SIZE)[:2601]).astype(np.int64)
    layout = json.dumps([[name, list(shape)] for name, shape in LAYOUT])
    artifacts.write_tensors(data / f"models/topk/train/{cell}.safetensors", tensors, {"layout": layout})
    for seed in range(3):
        place = (
            data / f"statements/topk/{dataset}-{'1' if epsilon == 'inf' else epsilon}" / f"{method}-{seed}"
        )
        artifacts.write_text(place.with_suffix(".txt"), f"Privacy statement of {cell}: <b>one row</b> & δ.\n")
        artifacts.write_json(place.with_suffix(".json"), {"epsilon": epsilon})


def _write_roc(path: Path, dataset: str, epsilon: str) -> None:
    rows: list[list[object]] = []
    for method in (*METHODS, "non_private"):
        for seed in range(3):
            for fpr in np.geomspace(1e-3, 1, 20):
                power = 0.9 if method == "non_private" else 0.99
                place = [dataset, method, "inf" if method == "non_private" else epsilon]
                rows.append([*place, seed, float(fpr), float(fpr**power)])
    artifacts.write_csv(path, ["dataset", "method", "epsilon", "seed", "fpr", "tpr"], rows)


def write_results(root: Path) -> None:
    """Committed figures of a medium run with two sweeps and the other score."""
    folder = root / "results/medium/topk"
    recalls = {
        "tp_topk": 0.5,
        "tp_rand": 0.45,
        "on_topk": 0.4,
        "on_rand": 0.4,
        "dense": 0.04,
        "non_private": 0.8,
    }
    for dataset in ("mnist", "fashion_mnist", "thyroid"):
        document = train_document(
            dataset, (*METHODS, "non_private"), recalls=recalls if dataset == "thyroid" else None
        )
        artifacts.write_json(folder / f"base/metrics/train/{dataset}.json", document)
    sweep = {"share_0.1": 0.0, "share_0.2": 0.015, "share_0.5": 0.012, "share_0.7": -0.02}
    for variant, gain in sweep.items():
        document = train_document("fashion_mnist", ["tp_topk"], ["1"], gain=gain)
        artifacts.write_json(folder / variant / "metrics/train/a.json", document)
    for variant, gain in {"ratio_0.02": 0.05, "ratio_0.3": 0.003}.items():
        one = train_document("fashion_mnist", ["tp_topk"], ["1"], gain=gain)
        two = train_document("fashion_mnist", ["tp_rand"], ["1"])
        artifacts.write_json(folder / variant / "metrics/train/a.json", one)
        artifacts.write_json(folder / variant / "metrics/train/b.json", two)
    for variant in ("base", *sweep, "ratio_0.02", "ratio_0.3"):
        origin = {"command": "make medium", "commit": "0123456789abcdef", "variant": variant}
        artifacts.write_json(folder / variant / "provenance.json", origin)
    other = train_document("mnist", ["tp_topk"], gain=0.03)
    artifacts.write_json(folder / "score_square_of_mean/metrics/train/a.json", other)
    for variant, gain in {"clip_0.25_rate_1": 0.0, "clip_1_rate_1": 0.01}.items():
        tuned = train_document("mnist", ["tp_topk", "dense"], seeds=[100], gain=gain)
        artifacts.write_json(root / "results/tune/topk" / variant / "metrics/train/a.json", tuned)
