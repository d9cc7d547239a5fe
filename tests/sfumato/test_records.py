"""Metrics documents hold finite leaves by their levels, and statistics are paired by seed."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from sfumato.errors import SfumatoError
from sfumato.records import (
    MeanInterval,
    Record,
    epsilon_text,
    from_document,
    mean_and_interval,
    paired_difference,
    select,
    to_document,
    values_by_seed,
)

LEVELS = ["dataset", "method", "epsilon", "seed"]


def record(seed: str = "0", method: str = "dense", **values: Any) -> Record:
    levels = {"dataset": "mnist", "method": method, "epsilon": "0.5", "seed": seed}
    return Record(levels, values or {"test_accuracy": 0.9})


def document(*records: Record) -> dict[str, Any]:
    return to_document("topk", "train", LEVELS, records, {"test_accuracy": 0.02})


def test_document_has_the_agreed_form() -> None:
    assert document(record("0", test_accuracy=0.9), record("1", test_accuracy=0.8)) == {
        "system": "topk",
        "step": "train",
        "levels": LEVELS,
        "values": {"mnist": {"dense": {"0.5": {"0": {"test_accuracy": 0.9}, "1": {"test_accuracy": 0.8}}}}},
        "tolerances": {"test_accuracy": 0.02},
    }


def test_records_come_back() -> None:
    records = [record(seed, method) for method in ("dense", "tp_topk") for seed in ("0", "1")]
    assert from_document(document(*records)) == records


def test_numpy_values_become_plain_ones() -> None:
    values = document(record(a=np.float64(0.5), b=np.int64(2), c=np.bool_(True)))["values"]
    leaves = values["mnist"]["dense"]["0.5"]["0"]
    assert leaves == {"a": 0.5, "b": 2, "c": True}
    assert [type(value) for value in leaves.values()] == [float, int, bool]


def test_null_beside_its_reason_is_allowed() -> None:
    found = record(audit_epsilon=None, audit_epsilon_reason="not audited in this profile")
    assert from_document(document(found)) == [found]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"loss": math.nan}, "mnist/dense/0.5/0/loss is nan"),
        ({"loss": math.inf}, "loss is inf"),
        ({"loss": "0.5"}, "loss is '0.5'"),
        ({"loss": [0.5]}, "loss is"),
        ({"loss": np.zeros(1)}, "loss is"),
        ({"loss": None}, "loss is null; it needs loss_reason"),
        ({"loss": None, "loss_reason": " "}, "loss_reason is ' '"),
        ({"loss_reason": 3}, "loss_reason is 3"),
        ({"Loss": 0.5}, "Loss is a bad name"),
        ({"a-b": 0.5}, "a-b is a bad name"),
        ({"a.b": 0.5}, "bad name"),
    ],
)
def test_bad_leaves_are_refused_by_both_directions(values: dict[str, Any], named: str) -> None:
    with pytest.raises(SfumatoError, match=named):
        document(record(**values))
    broken = document(record())
    broken["values"]["mnist"]["dense"]["0.5"]["0"] = values
    with pytest.raises(SfumatoError, match=named):
        from_document(broken)


def test_two_records_at_one_place_are_refused() -> None:
    with pytest.raises(SfumatoError, match=r"two records are at mnist/dense/0\.5/0"):
        document(record(), record())


def test_missing_or_extra_level_is_refused() -> None:
    with pytest.raises(SfumatoError, match="a record has the levels"):
        to_document("topk", "train", ["seed"], [record()])
    with pytest.raises(SfumatoError, match="the level seed is ''"):
        document(record(seed=""))


@pytest.mark.parametrize("tolerance", [-0.1, math.nan, math.inf, True, "0.1"])
def test_bad_tolerance_is_refused(tolerance: Any) -> None:
    with pytest.raises(SfumatoError, match="tolerance of 'test_accuracy'"):
        to_document("topk", "train", LEVELS, [record()], {"test_accuracy": tolerance})


@pytest.mark.parametrize("key", ["system", "step", "levels", "values", "tolerances"])
def test_document_with_a_missing_or_wrong_part_is_refused(key: str) -> None:
    whole = document(record())
    for broken_value in (None, 3, "no such thing!"):
        broken = copy.deepcopy(whole)
        broken[key] = broken_value
        with pytest.raises(SfumatoError):
            from_document(broken)
    del whole[key]
    with pytest.raises(SfumatoError, match="needed are"):
        from_document(whole)


def test_epsilon_text_is_shortest_and_comes_back() -> None:
    cases = [
        (1.0, "1"),
        (3, "3"),
        (0.5, "0.5"),
        (0.1, "0.1"),
        (200.0, "200"),
        (math.inf, "inf"),
        (None, "inf"),
    ]
    assert [epsilon_text(epsilon) for epsilon, _ in cases] == [text for _, text in cases]
    assert all(float(epsilon_text(value)) == value for value in (0.1 + 0.2, 1e-5, 12345.678))
    for bad in (-1.0, math.nan):
        with pytest.raises(SfumatoError):
            epsilon_text(bad)


# ------------------------------------------------------------------------------------------------ statistics
def test_interval_equals_the_textbook_value() -> None:
    """Student (n = 10): mean 1.58, s = 1.229995, t(0.975; 9) = 2.262157 gives a half width of 0.879882."""
    gains = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    interval = mean_and_interval(gains)
    assert interval.mean == pytest.approx(1.58)
    assert interval.half_width == pytest.approx(0.879882, abs=1e-5)
    assert interval.count == 10


def test_interval_of_one_seed_has_no_width() -> None:
    assert mean_and_interval([0.9]) == MeanInterval(0.9, None, 1)


def test_interval_covers_as_often_as_it_says() -> None:
    """4,000 draws of 3 normals: the coverage is within 4 standard errors of 95 % (false alarms < 1e-4)."""
    draws = np.random.Generator(np.random.Philox(3)).standard_normal((4000, 3))
    intervals = [mean_and_interval(row.tolist()) for row in draws]
    covered = sum(abs(i.mean) <= i.half_width for i in intervals if i.half_width is not None)
    assert abs(covered / 4000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf]])
def test_interval_needs_finite_values(values: list[float]) -> None:
    with pytest.raises(SfumatoError, match="the values are"):
        mean_and_interval(values)


def test_paired_difference_uses_the_pairs_not_the_order() -> None:
    first = [record(str(seed), test_accuracy=0.5 + seed / 10) for seed in range(3)]
    second = [record(str(seed), test_accuracy=0.4 + seed / 10) for seed in reversed(range(3))]
    difference = paired_difference(first, second, "test_accuracy")
    assert difference.mean == pytest.approx(0.1)
    assert difference.half_width == pytest.approx(0.0, abs=1e-12)
    assert paired_difference(second, first, "test_accuracy").mean == pytest.approx(-0.1)


def test_paired_difference_refuses_other_seeds_repeats_and_gaps() -> None:
    with pytest.raises(SfumatoError, match=r"the seeds \['0'\] and \['1'\]"):
        paired_difference([record("0")], [record("1")], "test_accuracy")
    with pytest.raises(SfumatoError, match="the seed 0 occurs twice"):
        paired_difference([record("0"), record("0")], [record("0")], "test_accuracy")
    with pytest.raises(SfumatoError, match="loss is None"):
        paired_difference([record("0")], [record("0")], "loss")


def test_values_by_seed_are_in_the_order_of_numbers() -> None:
    assert list(values_by_seed([record(seed) for seed in ("10", "2", "0")], "test_accuracy")) == [
        "0",
        "2",
        "10",
    ]


def test_select_matches_every_given_level() -> None:
    records = [record(seed, method) for method in ("dense", "tp_topk") for seed in ("0", "1")]
    assert select(records, method="dense", seed="1") == [records[1]]
    assert select(records, method="nothing") == []
