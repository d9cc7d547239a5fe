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
    Records(root, "students").save({**record, "year": record["year"] + 1})
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
        ({"codes": np.array([16, 1]), "domain": np.array(16)}, "outside"),
        ({"codes": np.array([], np.int32), "domain": np.array(16)}, "at least"),
        ({"codes": np.array([1.0, 2.0]), "domain": np.array(16)}, "integer"),
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
    assert charges(root) == []


def test_a_series_without_examples_is_refused(root: Path) -> None:
    with pytest.raises(SfumatoError, match="at least"):
        checked(root, population={"path": "data/current.npz", "series": [7]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "a/b"),
        ("epsilon_per_check", 3),
        ("sides", "left"),
        ("confidence", 0.4),
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
