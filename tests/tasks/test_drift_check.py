"""A check charges before it draws noise, once, over all runs of a year, and is refused when the year is spent."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.drift_records import Record, Records
from sfumato.artifacts import write_npz
from sfumato.errors import BudgetExceededError, SfumatoError
from sfumato.params.drift import parse_watch
from tasks.check import main
from tasks.divergence import check
from tests.flows import monitored


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return monitored.add_monitor(tmp_path)


def begin(root: Path, mode: str = "simulation", budget: float = 3.0, **drift: Any) -> tuple[Record, Path]:
    values = monitored.watch_values(**drift)
    watch = parse_watch({**values, "mode": mode, "budget_epsilon": budget})
    records = Records(root, watch.drift.name)
    record = records.begin(watch, None)
    return record, records.path(record["check"])


def checked(root: Path, **options: Any) -> Record:
    _, path = begin(root, **options)
    check.run(root, path.relative_to(root))
    return json.loads(path.read_text())


def charges(root: Path, book: str = "ledger/monitoring/charges.jsonl") -> list[dict[str, Any]]:
    path = root / book
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_budget_of_a_year_holds_over_separate_runs(root: Path) -> None:
    found = [checked(root)["budget"] for _ in range(2)]
    assert found[0]["epsilon_before"] == 0.0
    assert found[0]["epsilon_after"] == pytest.approx(0.5, rel=1e-6)
    assert found[1]["epsilon_before"] == found[0]["epsilon_after"]
    left = [budget["checks_left"] for budget in found]
    assert left[0] == left[1] + 1
    for _ in range(left[1]):
        assert checked(root)["state"] == "released"
    with pytest.raises(BudgetExceededError, match="budget is 2"):
        checked(root)
    assert len(charges(root)) == left[0] + 1


def test_monitors_of_the_same_people_share_the_budget_and_years_do_not(root: Path) -> None:
    checked(root)
    assert checked(root, name="another")["budget"]["checks_before"] == 1
    assert checked(root, dataset="others")["budget"]["checks_before"] == 0
    record, path = begin(root)
    later = {"year": record["year"] + 1, "started": f"{record['year'] + 1}-01-01T00:00:00+00:00"}
    Records(root, "students").save({**record, **later})
    check.run(root, path.relative_to(root))
    assert json.loads(path.read_text())["budget"]["checks_before"] == 0


def test_a_crash_between_charge_and_release_stays_charged_and_draws_no_second_noise(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato.divergence import estimator

    def dies(*_arguments: Any, **_keywords: Any) -> None:
        raise KeyboardInterrupt

    _, path = begin(root)
    with monkeypatch.context() as patched:
        patched.setattr(estimator, "release", dies)
        with pytest.raises(KeyboardInterrupt):
            check.run(root, path.relative_to(root))
    assert len(charges(root)) == 1
    assert json.loads(path.read_text())["state"] == "begun"
    with pytest.raises(SfumatoError, match="charged before"):
        check.run(root, path.relative_to(root))
    assert checked(root)["budget"]["checks_before"] == 1


@pytest.mark.parametrize(("mode", "seed"), [("simulation", 1), ("release", None)])
def test_what_is_charged_is_what_the_release_records(
    root: Path, monkeypatch: pytest.MonkeyPatch, mode: str, seed: int | None
) -> None:
    from sfumato.divergence import estimator
    from sfumato.ledger import EventLedger

    made: list[Any] = []
    original = estimator.release
    with monkeypatch.context() as patched:
        patched.setattr(estimator, "release", lambda *a, **k: made.append(original(*a, **k)) or made[-1])
        checked(root, mode=mode, seed=seed)
    recorded = EventLedger()
    for event in made[0].events:
        recorded.record(event)
    assert recorded.to_json() == charges(root)[0]["events"]


def test_release_mode_charges_the_year_and_the_book_before_the_noise(root: Path) -> None:
    record = checked(root, mode="release", seed=None)
    assert record["state"] == "released"
    assert charges(root)[0]["events"] == charges(root, "ledger/releases.jsonl")[0]["events"]
    assert charges(root)[0]["neighboring_relation"] == "replace_one"
    with pytest.raises(BudgetExceededError, match=r"budget is 0\.6"):
        checked(root, mode="release", seed=None, budget=0.6)


def test_simulated_checks_do_not_touch_the_book_of_releases(root: Path) -> None:
    checked(root)
    assert charges(root, "ledger/releases.jsonl") == []


def test_a_drifted_population_is_found_and_the_record_says_how_often_such_decisions_err(root: Path) -> None:
    assert checked(root)["decision"] == "no_drift"
    monitored.write_current(root, 0.8)
    record = checked(root)
    assert record["decision"] == "drift"
    found, alarms = record["estimate"], record["false_alarms"]
    assert found["low"] < found["raw"] < found["high"]
    assert alarms["per_check_uncorrected"] == pytest.approx(0.05)
    assert alarms["per_year_uncorrected"] == pytest.approx(1 - 0.95**12)
    assert alarms["per_year_bonferroni"] < 0.05
    assert 0.1 < record["power"]["minimal_detectable_divergence"] < found["raw"]


def test_estimates_are_as_noisy_as_their_interval_says(root: Path) -> None:
    """20 intervals of 90 % miss more than 6 times with probability 2e-3, were the truth known; the spread of 20 normal
    numbers leaves half to 1.7 times its value with probability below 1e-4. The seeds are fixed."""
    found = [
        checked(root, dataset=f"d{i}", name=f"m{i}", correction="none", seed=i)["estimate"] for i in range(20)
    ]
    truth = float(np.mean([estimate["raw"] for estimate in found]))
    spread = float(np.std([estimate["raw"] for estimate in found]))
    assert sum(not estimate["low"] <= truth <= estimate["high"] for estimate in found) <= 6
    assert 0.5 * found[0]["noise_std"] < spread < 1.7 * found[0]["noise_std"]


def test_series_pick_the_examples(root: Path) -> None:
    window = {"path": "data/current.npz", "series": [0]}
    half = checked(root, population=window)["estimate"]["noise_std"]
    assert half == pytest.approx(2 * checked(root)["estimate"]["noise_std"], rel=0.01)


def test_a_record_holds_nothing_of_the_population_but_what_was_released(root: Path) -> None:
    record = checked(root)
    assert set(record) == {
        "version", "monitor", "check", "number", "started", "year", "state", "watch", "prefect_flow_run",
        "budget", "decision", "estimate", "reference", "power", "false_alarms",
    }  # fmt: skip
    numbers = [v for part in ("estimate", "power", "false_alarms") for v in record[part].values()]
    assert all(math.isfinite(v) for v in numbers if isinstance(v, float))


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"codes": np.arange(4)}, "allowed is a file with codes, domain"),
        ({"codes": np.arange(4), "domain": np.array([16])}, "domain"),
        ({"codes": np.arange(4), "domain": np.array(8)}, "domain 8"),
        ({"codes": np.arange(4), "domain": np.array(10**13)}, "from 2 to 16777216"),
        ({"codes": np.arange(4), "domain": np.array(0)}, "from 2 to 16777216"),
        ({"codes": np.arange(4), "domain": np.array(True)}, "one integer"),
        ({"codes": np.arange(4), "domain": np.array(16.0)}, "one integer"),
        ({"codes": np.array([16, 1]), "domain": np.array(16)}, "outside"),
        ({"codes": np.array([-1, 1]), "domain": np.array(16)}, "outside"),
        ({"codes": np.array([2**64 - 1], np.uint64), "domain": np.array(16)}, "outside"),
        ({"codes": np.array([], np.int32), "domain": np.array(16)}, "at least"),
        ({"codes": np.array([1.0, 2.0]), "domain": np.array(16)}, "integer"),
        ({"codes": np.ones((2, 2), np.int32), "domain": np.array(16)}, "vector"),
    ],
)
def test_a_wrong_population_is_refused_in_one_sentence_and_costs_nothing(
    root: Path,
    arrays: dict[str, Any],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_npz(root / "data/current.npz", arrays)
    monkeypatch.chdir(root)
    _, path = begin(root)
    assert main(["divergence", "--record", str(path.relative_to(root))]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert sentence in error
    assert "the population data/current.npz" in error
    assert charges(root) == []


def test_a_wrong_reference_is_named_as_the_reference(root: Path) -> None:
    write_npz(root / "data/reference.npz", {"codes": np.arange(4), "domain": np.array(10**13)})
    with pytest.raises(
        SfumatoError, match=r"^the reference data/reference.npz has the domain 10000000000000;"
    ):
        checked(root)


@pytest.mark.parametrize("series", [[7], [4, 7]])
@pytest.mark.parametrize("window", ["reference", "population"])
def test_a_series_without_examples_is_refused_by_number_and_file(
    root: Path, window: str, series: list[int]
) -> None:
    path = {"reference": "data/reference.npz", "population": "data/current.npz"}[window]
    with pytest.raises(
        SfumatoError, match=f"^the {window} {path} has no example of series 7; .* at least one"
    ):
        checked(root, **{window: {"path": path, "series": series}})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut"])
def test_a_damaged_population_is_not_to_be_deleted(root: Path, content: bytes) -> None:
    (root / "data/current.npz").write_bytes(content)
    with pytest.raises(
        SfumatoError, match=r"the population data/current.npz .*from your own copy"
    ) as refused:
        checked(root)
    assert "delete" not in str(refused.value)
    (root / "data/current.npz").unlink()
    with pytest.raises(SfumatoError, match=r"the population data/current.npz is missing; allowed"):
        checked(root)


# ------------------------------------------------------------------------------------- what is charged, and when
def test_a_confidence_that_no_interval_can_have_costs_nothing(root: Path) -> None:
    record, path = begin(root)
    for confidence in (0.9999999999999999, 1 - 1e-15):
        watch = {**record["watch"], "drift": {**record["watch"]["drift"], "confidence": confidence}}
        Records(root, "students").save({**record, "watch": watch})
        with pytest.raises(SfumatoError, match=r"confidence is 0\.99999.*; allowed"):
            check.run(root, path.relative_to(root))
    assert charges(root) == []


def test_release_checks_that_the_book_refuses_do_not_drain_the_year_nor_the_other_way_round(
    root: Path,
) -> None:
    small = {"mode": "release", "seed": None, "epsilon_per_check": 0.2}
    for _ in range(2):
        checked(root, **small, budget=0.3)
    for _ in range(2):
        with pytest.raises(BudgetExceededError, match=r"budget is 0\.3"):
            checked(root, **small, budget=0.3)
    assert len(charges(root)) == len(charges(root, "ledger/releases.jsonl")) == 2
    with pytest.raises(BudgetExceededError, match=r"budget is 0\.3"):
        checked(root, **small, budget=3.0, yearly_epsilon=0.3)
    assert len(charges(root)) == len(charges(root, "ledger/releases.jsonl")) == 2
    assert checked(root, **small, budget=3.0)["budget"]["checks_before"] == 2


def test_a_crash_between_the_two_charges_leaves_the_first_and_no_release(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato.ledger import ReleaseBook

    real, made = ReleaseBook.charge, [0]

    def dies_at_the_fourth(book: ReleaseBook, **order: Any) -> Any:
        made[0] += 1  # two questions, then two charges
        if made[0] == 4:
            raise KeyboardInterrupt
        return real(book, **order)

    _, path = begin(root, mode="release", seed=None)
    with monkeypatch.context() as patched:
        patched.setattr(ReleaseBook, "charge", dies_at_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            check.run(root, path.relative_to(root))
    with pytest.raises(SfumatoError, match="charged before"):
        check.run(root, path.relative_to(root))
    assert len(charges(root)) == 1
    assert charges(root, "ledger/releases.jsonl") == []


def test_two_monitors_of_one_seed_have_their_own_noise_and_one_monitor_its_own_again(
    root: Path, tmp_path: Path
) -> None:
    first, second = (checked(root, name=name)["estimate"]["raw"] for name in ("a", "b"))
    assert first != second
    (tmp_path / "again").mkdir()
    again = monitored.add_monitor(tmp_path / "again")
    assert checked(again, name="a")["estimate"]["raw"] == first


# ---------------------------------------------------------------------------------------------- forged records
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"year": 1999}, "year is 1999; allowed is 2"),
        ({"year": "x"}, "year is 'x'; allowed is a valid integer"),
        ({"year": [1]}, "year is"),
        ({"number": "a"}, "number is 'a'"),
        ({"number": 7}, "number is 7 of the check 0001-"),
        ({"check": "../../x"}, "check is '../../x'"),
        ({"check": "0001-00000000"}, "is that of check '0001-00000000'"),
        ({"monitor": "others"}, "monitor is 'others'"),
        ({"state": "done"}, "state is 'done'"),
        ({"state": "released"}, "state is 'released'"),
        ({"state": "refused"}, "is refused; allowed is one that has just begun"),
        ({"started": "yesterday"}, "started is 'yesterday'"),
        ({"version": 2}, "version is 2"),
        ({"watch": {}}, "watch.drift is missing"),
        ({"more": 1}, "more is 1, an unknown key"),
    ],
)
def test_a_forged_record_is_refused_in_one_sentence_and_costs_nothing(
    root: Path,
    change: dict[str, Any],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(root)
    record, path = begin(root)
    path.write_text(json.dumps({**record, **change}))
    assert main(["divergence", "--record", str(path.relative_to(root))]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert sentence in error
    assert charges(root) == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", '{"version": 1}', "\x00", '{"a": NaN}'])
def test_a_damaged_record_is_to_be_restored_and_not_deleted(
    root: Path, content: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    _, path = begin(root)
    path.write_text(content)
    assert main(["divergence", "--record", str(path.relative_to(root))]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "restore it from a copy" in error
    assert "delete" not in error
    assert charges(root) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "a/b"),
        ("epsilon_per_check", 3),
        ("sides", "left"),
        ("confidence", 0.4),
        ("confidence", 1 - 1e-15),
        ("floor_level", 1e-13),
        ("threshold", 2.4),
        ("seed", None),
        ("retrain", "other"),
        ("population", {"path": "x"}),
        ("unknown", 1),
    ],
)
def test_a_wrong_monitor_is_refused_in_one_sentence(key: str, value: Any) -> None:
    with pytest.raises(SfumatoError, match=r"allowed .*\.$") as refused:
        parse_watch(monitored.watch_values(**{key: value}))
    assert key in str(refused.value)


def test_a_seed_in_release_mode_is_refused() -> None:
    with pytest.raises(SfumatoError, match="seed voids the guarantee"):
        parse_watch({**monitored.watch_values(), "mode": "release"})
