"""Metrics documents, curves and pictures of the radio map system with generated figures, for tests of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from sfumato import artifacts
from sfumato.params import Params
from sfumato.records import Record, to_document
from sfumato.report import RadiomapPictures, Run, pictures_of, run_of

DATASET = "city_maps"
FREE = ("none", "clip_only")
TEN = ("multiplier_for_epsilon_10", "db_at_epsilon_10")
CERTIFIED = ("uniform", "static_optimal", "adaptive_certified", "shaped")
UTILITY = {
    "none": -17.2,
    "clip_only": -17.0,
    "uniform": -16.0,
    "targeted_uniform": -16.3,
    "static_optimal": -16.05,
    "adaptive": -16.6,
    "adaptive_certified": -16.2,
    "shaped": -16.1,
}
"""Defence -> validation error in dB: the paper's order."""
METRES = {
    "none": 45.0,
    "clip_only": 54.0,
    "uniform": 60.0,
    "targeted_uniform": 66.0,
    "static_optimal": 61.0,
    "adaptive": 75.0,
    "adaptive_certified": 63.0,
    "shaped": 70.0,
}
"""Defence -> error of the chosen attacker in metres at the last round: the paper's order."""
SLICES_ABOVE = 20.0
CONSTANT = 93.0
RISE = 8.0
"""Metres by which every defence's error rises from the first attacked round to the last."""
ATTACKERS = {"best": 0.0, "least": -2.0, "ridge": 1.0, "kernel": 0.5, "mlp": -2.0, "whitened": 0.0}
"""Attacker -> metres added to the chosen one's error."""
SEEDS = (0, 1, 2, 3, 4)
ROUNDS = (0, 10, 20)
LEVELS = ["dataset", "method", "multiplier", "seed"]
ATTACK_LEVELS = [*LEVELS, "round", "view", "attacker", "uploads"]


def common(seed: int) -> float:
    """A seed's own part, the same for every defence: large, so that pairing matters."""
    return 12.0 * float(np.sin(7.0 * seed + 1.0))


def own(seed: int, method: str) -> float:
    """A seed's part that differs between defences: small."""
    return 0.4 * float(np.cos(3.0 * seed + len(method)))


def noises_of(method: str, multipliers: Sequence[str]) -> Sequence[str]:
    return ("0",) if method in FREE else multipliers


def train_document(
    utility: Mapping[str, float] = UTILITY,
    multipliers: Sequence[str] = ("1", "3"),
    seeds: Sequence[int] = SEEDS,
    dataset: str = DATASET,
) -> dict[str, Any]:
    """A training document."""
    records: list[Record] = []
    for method, level in utility.items():
        for place, noise in enumerate(noises_of(method, multipliers)):
            for seed in seeds:
                decibels = level + 0.3 * place + 0.02 * common(seed) + 0.02 * own(seed, method)
                values: dict[str, Any] = {
                    "validation_mse": float(10 ** (decibels / 10)),
                    "validation_db": decibels,
                    "mean_map_db": -15.4,
                    "distance_only_db": -17.7,
                    "warm_start_db": -16.1,
                    "clipped_share": 0.0 if method == "none" else 0.47,
                    "dropped": 0,
                    "energy_ratio": None if method in FREE else 1.001,
                }
                if method in FREE:
                    values["energy_ratio_reason"] = "no noise is added"
                levels = {"dataset": dataset, "method": method, "multiplier": noise, "seed": str(seed)}
                records.append(Record(levels, values))
    return to_document("radiomap", "train", LEVELS, records)


def attack_document(
    metres: Mapping[str, float] = METRES,
    multipliers: Sequence[str] = ("1", "3"),
    seeds: Sequence[int] = SEEDS,
    rounds: Sequence[int] = ROUNDS,
    slices: Mapping[str, float] | None = None,
    averaged: float = -6.0,
    summed: float = 15.0,
    rise: float = RISE,
    dataset: str = DATASET,
    attackers: Sequence[str] = tuple(ATTACKERS),
    variant: str = "",
) -> dict[str, Any]:
    """Errors of every attacker; ``slices`` are those of a reader of the transmitter's weights at the last round.

    Args:
        metres: defence -> error of the chosen attacker at the last round.
        multipliers, seeds, rounds, dataset: the places.
        slices: as ``metres``; by default 20 m above them.
        averaged, summed: what averages over four updates and sums of six add to the error.
        rise: from the first round to the last.
        attackers: of single updates, beside the constant guess.
        variant: of the run; it changes the seeds' own parts.
    """
    narrow = {name: value + SLICES_ABOVE for name, value in metres.items()} if slices is None else slices
    records: list[Record] = []
    for method, level in metres.items():
        for place, noise in enumerate(noises_of(method, multipliers)):
            for seed in seeds:
                levels = {"dataset": dataset, "method": method, "multiplier": noise, "seed": str(seed)}
                for index, number in enumerate(rounds):
                    late = rise * (1 - index / max(len(rounds) - 1, 1))
                    shift = 3.0 * place - late + common(seed) + own(seed, method + variant)
                    here = {**levels, "round": str(number)}
                    records += _readers(here, level + shift, narrow[method] + shift, attackers)
                last = {**levels, "round": str(rounds[-1])}
                base = level + 3.0 * place + common(seed) + own(seed, method + variant)
                records += _several(last, base, averaged, summed, method)
    return to_document("radiomap", "attack", ATTACK_LEVELS, records)


def _readers(
    levels: Mapping[str, str], whole: float, narrow: float, attackers: Sequence[str]
) -> list[Record]:
    """Single updates and both views."""
    found: list[Record] = []
    for view, level in (("all", whole), ("slices", narrow)):
        for attacker in attackers:
            found.append(_attacked(levels, view, attacker, "1", level + ATTACKERS[attacker]))
        found.append(_attacked(levels, view, "constant", "1", CONSTANT))
    return found


def _several(
    levels: Mapping[str, str], base: float, averaged: float, summed: float, method: str
) -> list[Record]:
    """Averages over rounds, sums over clients, and the attacker who knows the map."""
    found = [_attacked(levels, "all", "best", "sum6", base + summed)]
    if method not in FREE:
        found.append(_attacked(levels, "all", "best", "4", base + averaged))
    if method in ("none", "uniform"):
        found.append(_attacked(levels, "all", "known_map", "1", base - 30.0, 11.0))
    return found


def _attacked(
    levels: Mapping[str, str],
    view: str,
    attacker: str,
    uploads: str,
    rmse: float,
    median: float | None = None,
) -> Record:
    values: dict[str, Any] = {
        "rmse": rmse,
        "median": 0.8 * rmse if median is None else median,
        "half_width": 4.5,
        "count": 112,
    }
    return Record({**levels, "view": view, "attacker": attacker, "uploads": uploads}, values)


def warmup_document(seeds: Sequence[int] = SEEDS, dataset: str = DATASET) -> dict[str, Any]:
    """What the public warm-up left."""
    records = [
        Record(
            {"dataset": dataset, "seed": str(seed)},
            {
                "validation_mse": 0.024,
                "validation_db": -16.1,
                "mean_map_db": -15.4,
                "distance_only_db": -17.7,
                "clip_norm": 0.31,
                "dimension": 26051,
                "sensitive": 354,
                "allocator_loss_start": 0.9,
                "allocator_loss_end": 0.7,
                "largest_share": 0.41,
            },
        )
        for seed in seeds
    ]
    return to_document("radiomap", "warmup", ["dataset", "seed"], records)


def account_document(
    epsilons: Mapping[str, float] | None = None, lower: float = 5.0, dataset: str = DATASET
) -> dict[str, Any]:
    """Prices at both multipliers; defences that are not certified have reasons in their place.

    Args:
        epsilons: multiplier -> epsilon of one update.
        lower: the audits' lower bound.
        dataset: whose.
    """
    prices = {"1": 5210.0, "3": 640.0} if epsilons is None else epsilons
    records: list[Record] = []
    for method in METRES:
        for noise in noises_of(method, list(prices)):
            values: dict[str, Any] = {"uploads_per_client": 9, "delta": 1e-5}
            names = ("epsilon_upload", "epsilon_client", "sigma_least", "audit_lower", "audit_confidence")
            if method in CERTIFIED:
                figures = (prices[noise], 9 * prices[noise], 0.0123, lower, 0.95)
                values |= dict(zip(names, figures, strict=True))
                values |= dict(zip(TEN, (91.3, -9.87), strict=True))
            without = () if method in CERTIFIED else names
            for name in (*without, *(() if method in CERTIFIED[:2] else TEN)):
                values |= {name: None, f"{name}_reason": "some weights get <no> noise of known size"}
            records.append(Record({"dataset": dataset, "method": method, "multiplier": noise}, values))
    return to_document("radiomap", "account", ["dataset", "method", "multiplier"], records)


def run_with(*documents: dict[str, Any], profile: str = "quick", variant: str = "base") -> Run:
    """A run of the radio map system."""
    return run_of(profile, "radiomap", variant, documents, settings={})


def full_run() -> Run:
    """A run with every kind of record."""
    return run_with(warmup_document(), train_document(), attack_document(), account_document())


VARIANTS = {
    "radiomap_own": tuple(METRES),
    **dict.fromkeys(
        ("radiomap_circular", "radiomap_reflect", "radiomap_margin", "radiomap_circular_margin"),
        ("clip_only", "uniform"),
    ),
    "radiomap_multiplier": ("clip_only", "uniform", "targeted_uniform"),
    "radiomap_sgd": ("clip_only", "uniform", "shaped"),
}
"""Variant of the medium profile -> its defences."""


def variant_run(
    variant: str,
    metres: Mapping[str, float] | None = None,
    utility: Mapping[str, float] | None = None,
    seeds: Sequence[int] = SEEDS,
    profile: str = "medium",
    **attack: Any,
) -> Run:
    """A variant at one multiplier, attacked at the last round, with these figures of some defences in place of the base's."""
    names = VARIANTS[variant]
    db = {name: {**UTILITY, **(utility or {})}[name] for name in names}
    errors = {name: {**METRES, **(metres or {})}[name] for name in names}
    options: dict[str, Any] = {"rounds": [20], "rise": 0.0, "attackers": ["best"], **attack}
    documents = (
        train_document(db, ["3"], seeds),
        attack_document(errors, ["3"], seeds, variant=variant, **options),
    )
    return run_with(*documents, profile=profile, variant=variant)


def curve_rows(multipliers: Sequence[str] = ("1", "3"), steps: int = 6) -> tuple[dict[str, str], ...]:
    """Rows as the report reads them from the curves of all defences."""
    return tuple(
        {"system": "radiomap", "dataset": DATASET, "method": method, **row}
        for method in UTILITY
        for row in curve_of(method, multipliers, steps)
    )


def curve_of(method: str, multipliers: Sequence[str] = ("1", "3"), steps: int = 6) -> list[dict[str, str]]:
    """Rows of one defence's curve."""
    return [
        {
            "step": str(step),
            "seed": str(seed),
            "multiplier": noise,
            "validation_db": repr(UTILITY[method] + 1.0 / step + 0.02 * common(seed)),
            "norm": repr(0.4 / step),
            "clipped_share": "0.5",
        }
        for noise in noises_of(method, multipliers)
        for seed in SEEDS[:2]
        for step in range(1, steps + 1)
    ]


def picture_arrays(
    size: int = 32, names: Sequence[str] = ("none/0", "uniform/3", "adaptive/3")
) -> dict[str, Any]:
    """Arrays of the pictures' file: a block of houses, gain that falls with distance."""
    heights = np.zeros((size, size))
    heights[size // 4 : size // 2, size // 3 : size // 2] = 18.0
    heights[-size // 4 :, : size // 4] = 7.0
    rows, columns = np.mgrid[:size, :size]
    at = (size // 8, size - size // 8)
    truth = -50.0 - 22.0 * np.log10(1 + np.hypot(rows - at[0], columns - at[1]))
    free = heights == 0
    truth[~free] = 0.0
    return {
        "heights": heights,
        "truth": truth,
        "free": free,
        "transmitter": np.array(at),
        "names": np.array(list(names)),
        "predictions": np.stack([truth + 3.0 * (place + 1) for place in range(len(names))]),
        "guesses": np.array([[at[0] + 3.0 * place, at[1] - 4.0 * place] for place in range(len(names))]),
        "cell": np.array(8.0),
    }


def pictures() -> RadiomapPictures:
    """A set of pictures."""
    return pictures_of(DATASET, picture_arrays())


def write_run(root: Path) -> None:
    """A finished run's files, and a committed one with a variant."""
    documents = {
        "warmup": warmup_document(),
        "train": train_document(),
        "attack": attack_document(),
        "account": account_document(),
    }
    for step, document in documents.items():
        artifacts.write_json(root / f"data/metrics/radiomap/{step}/{DATASET}.json", document)
    for method in UTILITY:
        rows = curve_of(method)
        path = root / f"data/plots/radiomap/train/{DATASET}-{method}.csv"
        artifacts.write_csv(path, list(rows[0]), [list(row.values()) for row in rows])
    artifacts.write_npz(root / f"data/plots/radiomap/pictures/{DATASET}.npz", picture_arrays())
    for name in ("uniform-3", "none-0"):
        path = root / f"data/statements/radiomap/{DATASET}/{name}.txt"
        artifacts.write_text(path, f"Radio map statement of {name}: <i>C is public</i>.\n")
    folder = root / "results/medium/radiomap"
    for variant in ("base", "maps_4"):
        artifacts.write_json(folder / variant / "metrics/train/city_maps.json", train_document())
        artifacts.write_json(folder / variant / "metrics/attack/city_maps.json", attack_document())
        origin = {"command": "make medium", "commit": "abcdef9876543210", "variant": variant}
        artifacts.write_json(folder / variant / "provenance.json", origin)


# ---------------------------------------------------------------------------------------------- parameters
GRID = {
    "datasets": [DATASET],
    "defences": list(UTILITY),
    "multipliers": [1.0, 3.0],
    "matching": "energy",
    "seeds": list(SEEDS),
}
MAPS = {
    "window": 256.0,
    "stride": 64.0,
    "cell": 8.0,
    "frequency": 5.9e9,
    "clients": ["munich", "florence"],
    "shadow": ["etoile"],
    "validation": ["san_francisco"],
}
TRAIN = {
    "clients": 14,
    "active": 6,
    "rounds": 20,
    "maps_per_upload": 1,
    "epochs": 1,
    "optimizer": "adam",
    "learning_rate": 0.001,
    "loss_margin": 0,
}


def with_radiomap(params: Params, **grid: Any) -> Any:
    """The parameters with figures of this system that the report reads, whatever params.yaml says of it.

    Args:
        params: of the whole tree.
        grid: what to change in the grid.
    """
    section = SimpleNamespace(
        grid=SimpleNamespace(**{**GRID, **grid}),
        maps=SimpleNamespace(**MAPS),
        network=SimpleNamespace(width=0.5, padding="zeros"),
        warmup=SimpleNamespace(steps=60),
        train=SimpleNamespace(**TRAIN),
        attack=SimpleNamespace(
            shadow_uploads=300, client_uploads=112, rounds=[0, 10, 20], trajectory="shared"
        ),
    )
    others = {name: getattr(params, name) for name in Params.model_fields if name != "radiomap"}
    return SimpleNamespace(**others, radiomap=section)
