"""Metrics documents of the modulated system with generated figures, for tests of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sfumato import artifacts
from sfumato.records import Record, to_document
from sfumato.report import Run, run_of

ERRORS = {
    "one_shot": 0.5,
    "one_shot_floor": 0.6,
    "one_shot_descent": 0.5,
    "iterative": 0.8,
    "one_shot_lipschitz": 0.9,
    "iterative_lipschitz": 1.4,
    "no_modulation": 0.5,
    "other_frequency": 0.5,
    "dp_sgd": 2.0,
    "ada_ssp": 0.1,
}
FREE = {"least_squares": 0.05, "mean": 1.0}
ONE_SHOT = ("one_shot", "one_shot_floor", "one_shot_descent", "no_modulation", "other_frequency")


def error_of(level: float, epsilon: float, seed: int, name: str) -> float:
    """An error whose seeds share a large factor and differ by a small one, so that pairing matters."""
    own = 0.01 * math.cos(3.0 * seed + len(name))
    return level / math.sqrt(epsilon) * math.exp(0.5 * math.sin(7.0 * seed) + own)


def train_document(
    errors: Mapping[str, float] = ERRORS,
    datasets: Sequence[str] = ("co2", "fair"),
    epsilons: Sequence[str] = ("1", "5"),
    seeds: Sequence[int] = (0, 1, 2, 3),
    dominated: bool = False,
    covered: Sequence[float | None] = (1.0, 0.9, 1.0, 0.95),
) -> dict[str, Any]:
    """A training document; ``errors`` gives each method's level at epsilon 1."""
    records: list[Record] = []
    for dataset in datasets:
        for name, level in {**errors, **FREE}.items():
            for epsilon in ("inf",) if name in FREE else epsilons:
                for seed in seeds[:1] if name in FREE else seeds:
                    levels = {"dataset": dataset, "method": name, "epsilon": epsilon, "seed": str(seed)}
                    error = level if name in FREE else error_of(level, float(epsilon), seed, name)
                    values: dict[str, Any] = {"test_relative_error": error, "bound_reached": False}
                    if name.startswith(ONE_SHOT):
                        values["noise_dominated"] = dominated or epsilon == "1"
                    if name == "one_shot":
                        share = covered[seed % len(covered)]
                        values |= {"covered": share, "half_width": None if share is None else 0.1}
                        if share is None:
                            values |= dict.fromkeys(("covered_reason", "half_width_reason"), "not definite")
                    records.append(Record(levels, values))
    return to_document("modulated", "train", ["dataset", "method", "epsilon", "seed"], records)


def account_document(
    datasets: Sequence[str] = ("co2", "fair"),
    directions: int = 1,
    factor: float = 2.0,
    constant: float | None = None,
    frequency_noise: float = 1.0,
) -> dict[str, Any]:
    """Prices: the paper's sigma is ``factor`` times the one that suffices; its constant is right by default."""
    records: list[Record] = []
    for dataset in datasets:
        for epsilon in ("1", "5"):
            enough = 10 / float(epsilon)
            noises = {
                "one_shot": enough,
                "one_shot_lipschitz": factor * enough,
                "one_shot_descent": enough,
                "other_frequency": frequency_noise * enough,
            }
            for name, noise in noises.items():
                lipschitz = 1 + 1 / math.sqrt(directions) if constant is None else constant
                values: dict[str, Any] = {"noise_std": noise, "noise_std_other": factor * enough}
                values |= {
                    "lipschitz_constant": lipschitz,
                    "marginal_constant": 1.0,
                    "directions": directions,
                }
                records.append(Record({"dataset": dataset, "method": name, "epsilon": epsilon}, values))
    return to_document("modulated", "account", ["dataset", "method", "epsilon"], records)


ATTACKS = ("linear_unbiased", "maximum_likelihood", "linear_posterior_mean", "exact_posterior_mean")


def attack_document(
    ratios: Mapping[str, float] | None = None, half: float = 0.05, label_ratio: float | None = None
) -> dict[str, Any]:
    """Reconstructions on fair; ``ratios`` gives an attacker's error over its floor, 1.01 by default.

    ``label_ratio`` is every attacker's error on private labels over its floor; None with public labels.
    """
    records: list[Record] = []
    for name in ("one_shot", "no_modulation"):
        for attack in ATTACKS:
            for epsilon in ("1", "5"):
                for count in ("1", "20"):
                    floor = 100.0 / float(epsilon)
                    own = 2.0 if "posterior" in attack else floor
                    mse = own * (ratios or {}).get(attack, 1.01)
                    values: dict[str, Any] = {
                        "mse": mse,
                        "mse_low": mse - half * own,
                        "mse_high": mse + half * own,
                        "mse_along": 0.2 * mse,
                        "mse_across": 0.8 * mse,
                        "floor": floor,
                        "floor_along": 0.2 * floor,
                        "floor_across": 0.8 * floor,
                        "floor_bayes": 2.0,
                        "prior_mse": 2.5,
                        "floor_known_phase": None,
                        "floor_known_phase_reason": "no attacker is unbiased",
                    }
                    if label_ratio is not None:
                        noise, bayes = 20.0 / float(epsilon), 0.2
                        error = label_ratio * (bayes if "posterior" in attack else noise)
                        values |= {
                            "label_mse": error,
                            "label_mse_low": 0.95 * error,
                            "label_mse_high": 1.05 * error,
                            "label_floor": noise,
                            "label_floor_bayes": bayes,
                            "label_prior_mse": 0.25,
                        }
                    levels = {"dataset": "fair", "method": name, "attack": attack, "epsilon": epsilon}
                    records.append(Record({**levels, "messages": count}, values))
    return to_document("modulated", "attack", ["dataset", "method", "attack", "epsilon", "messages"], records)


def audit_document(lower: float = 3.0) -> dict[str, Any]:
    """Audits of one_shot at epsilon 5 on fair; the larger bound is ``lower``."""
    records = [
        Record(
            {"dataset": "fair", "method": "one_shot", "epsilon": "5", "pair": pair},
            {"epsilon_lower": bound, "confidence": 0.95, "runs": 1000, "releases": 1},
        )
        for pair, bound in (("along", 0.0), ("across", lower))
    ]
    return to_document("modulated", "audit", ["dataset", "method", "epsilon", "pair"], records)


def run_with(
    *documents: dict[str, Any], profile: str = "quick", variant: str = "base", rounds: float = 20
) -> Run:
    """A run of the modulated system."""
    settings = {"confidence": 0.95, "rounds": rounds}
    return run_of(profile, "modulated", variant, documents, settings=settings)


def full_run() -> Run:
    """A run with every kind of record."""
    return run_with(train_document(), account_document(), attack_document(), audit_document())


def write_run(root: Path) -> None:
    """A finished run's files, and a committed one with a variant."""
    data = root / "data"
    for dataset in ("co2", "fair"):
        document = train_document(datasets=[dataset], seeds=range(4))
        artifacts.write_json(data / f"metrics/modulated/train/{dataset}.json", document)
        artifacts.write_json(data / f"metrics/modulated/account/{dataset}.json", account_document([dataset]))
        for epsilon in ("1", "5"):
            path = data / f"statements/modulated/{dataset}/one_shot-{epsilon}.txt"
            artifacts.write_text(path, f"Modulated statement of {dataset} at {epsilon}: <i>labels</i>.\n")
        columns = ["method", "epsilon", "step_size", "clip_norm", "validation_relative_error"]
        rows = [
            ["dp_sgd", "5", 1.0, 0.03, 0.4],
            ["dp_sgd", "5", 3.0, 0.1, 0.3],
            ["dp_sgd", "5", 10.0, 0.03, 0.5],
        ]
        artifacts.write_csv(data / f"plots/modulated/train/{dataset}.csv", columns, rows)
    artifacts.write_json(data / "metrics/modulated/attack/fair.json", attack_document())
    artifacts.write_json(data / "metrics/modulated/audit/fair.json", audit_document())
    folder = root / "results/medium/modulated"
    for variant in ("base", "rounds_5"):
        artifacts.write_json(folder / variant / "metrics/train/co2.json", train_document(datasets=["co2"]))
        origin = {"command": "make medium", "commit": "fedcba9876543210", "variant": variant}
        artifacts.write_json(folder / variant / "provenance.json", origin)
