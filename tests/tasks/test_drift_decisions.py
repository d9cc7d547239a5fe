"""How often the decision of a check errs is as its record says, also with few points, and its threshold is in reach."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.drift_records import Records
from sfumato.artifacts import write_npz
from sfumato.divergence.evaluation import target_divergence
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import Reference
from sfumato.errors import SfumatoError
from sfumato.params.drift import parse_watch
from tasks.divergence import check
from tests.flows import monitored

RARE = 0.005
"""Of the reference; the population has none of it, and the threshold is exactly its divergence."""
THRESHOLD = target_divergence(
    Reference.from_probabilities([1.0 - RARE, RARE]), np.array([1.0, 0.0]), EstimatorPlan(Floor("mix", 0.1))
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return monitored.add_monitor(tmp_path)


@pytest.fixture
def rare(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose reference has a rare code that the population lacks, where checks cost nothing."""
    codes = np.zeros(monitored.EXAMPLES, np.int32)
    write_npz(root / "data/current.npz", {"codes": codes, "domain": np.array(2)})
    codes[: int(RARE * len(codes))] = 1
    write_npz(root / "data/reference.npz", {"codes": codes, "domain": np.array(2)})

    def free(*_: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(check, "charge", free)
    return root


def decided(root: Path, seeds: list[int], **drift: Any) -> list[dict[str, Any]]:
    """The records of checks that differ by their seed alone."""
    begun = Records(root, "students").begin(parse_watch(monitored.watch_values(**drift)), None)
    path, found = Records(root, "students").path(begun["check"]), list[dict[str, Any]]()
    for seed in seeds:
        watch = {**begun["watch"], "drift": {**begun["watch"]["drift"], "seed": seed}}
        path.write_text(json.dumps({**begun, "watch": watch}))
        check.run(root, path.relative_to(root))
        found.append(json.loads(path.read_text()))
    return found


def ten_points(root: Path, seeds: list[int]) -> list[dict[str, Any]]:
    options = {"minimum_probability": 0.001, "checks_per_year": 52, "epsilon_per_check": 1.0}
    return decided(root, seeds, draws=10, threshold=THRESHOLD, **options)


def test_one_rare_cell_among_ten_points_is_no_drift(rare: Path) -> None:
    """With these seeds the points meet the cell; a normal tail called each of them a drift."""
    for record in ten_points(rare, [116, 176, 187]):
        assert record["estimate"]["raw"] > 30 * THRESHOLD
        assert record["decision"] == "undecided"
        assert record["false_alarms"]["rates"] == "upper_bounds"
        assert record["power"]["minimal_detectable_divergence"] is None


@pytest.mark.slow
def test_checks_with_ten_points_raise_no_more_false_alarms_than_their_record_says(rare: Path) -> None:
    """1,200 checks at .0962 % raise more than 7 false alarms with probability 3e-5; a normal tail raised 32."""
    found = ten_points(rare, list(range(1200)))
    claimed = found[0]["false_alarms"]["per_check_bonferroni"]
    assert claimed == pytest.approx(0.05 / 52)
    assert sum(record["decision"] == "drift" for record in found) <= 7


def test_with_points_the_record_names_a_divergence_that_is_detected_and_rates_that_are_bounds(
    root: Path,
) -> None:
    few, many, every = (decided(root, [1], draws=draws, name="students")[0] for draws in (500, 50_000, None))
    least = [record["power"]["minimal_detectable_divergence"] for record in (every, many, few)]
    assert 0.1 < least[0] < least[1] < least[2]
    assert every["false_alarms"]["rates"] == "exact"
    assert few["false_alarms"] == {**every["false_alarms"], "rates": "upper_bounds"}
    for record in (few, many, every):
        estimate = record["estimate"]
        assert 0.0 <= estimate["low"] < estimate["high"] <= math.log(10.0)


@pytest.mark.parametrize("coefficient", [0.0, 0.5])
def test_a_threshold_that_a_clipped_ratio_cannot_pass_is_refused_before_anything_is_charged(
    root: Path, coefficient: float
) -> None:
    monitored.write_current(root, 1.0)
    options = {"floor": "clip", "floor_level": 0.1, "coefficient": coefficient}
    with pytest.raises(
        SfumatoError, match=r"^threshold is 50; allowed is below \d.* clipped at 0\.1 can show\.$"
    ):
        decided(root, [1], threshold=50, **options)
    assert not (root / check.CHARGES).exists()
    assert decided(root, [1], threshold=0.1, **options)[0]["decision"] == "drift"
