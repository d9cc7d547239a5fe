"""The drift flow: what it records, when it alarms, what it does when something is missing or spent."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from flows.drift import drift, estimate, log_to_mlflow, main, read_watch
from flows.drift_event import EVENT, event_of
from flows.drift_links import link, log_check
from flows.drift_records import Record, Records, episodes
from flows.drift_retrain import retrain
from flows.errors import FlowError, InterruptedStageError, StageFailedError
from flows.mirror import KIND, open_store
from flows.processes import Children
from sfumato.errors import SfumatoError
from sfumato.params.drift import parse_watch
from tests.flows import monitored, toy


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return monitored.add_monitor(toy.make_repository(tmp_path / "toy"))


def released(number: int, decision: str, reference: str = "staff", **more: Any) -> Record:
    """A record as a finished check leaves it."""
    return {
        "version": 1,
        "started": "2026-03-02T04:00:00+00:00",
        "year": 2026,
        "monitor": "students",
        "check": f"{number:04d}-0000000{number}",
        "number": number,
        "state": "released",
        "decision": decision,
        "reference": {"fingerprint": reference},
        "prefect_flow_run": None,
        "mlflow_run": None,
        "estimate": {"raw": 0.3, "low": 0.2, "high": 0.4, "target": "merged"},
        "budget": {"epsilon_after": 0.5},
        "watch": parse_watch(monitored.watch_values()).model_dump(mode="json"),
        **more,
    }


# ------------------------------------------------------------------------------------------------- the records
def test_checks_are_numbered_in_order_and_kept_whole(tmp_path: Path) -> None:
    records = Records(tmp_path, "students")
    watch = parse_watch(monitored.watch_values())
    names = [records.begin(watch, None)["check"] for _ in range(3)]
    assert [name[:4] for name in names] == ["0001", "0002", "0003"]
    assert [record["check"] for record in records.all()] == names
    assert parse_watch(records.read(names[0])["watch"]) == watch


@pytest.mark.parametrize("check", ["../0001-00000000", "0001", "", "0001-00000000/.."])
def test_a_name_that_is_no_check_reaches_no_file(tmp_path: Path, check: str) -> None:
    with pytest.raises(FlowError, match="allowed"):
        Records(tmp_path, "students").path(check)
    with pytest.raises(FlowError, match="allowed"):
        Records(tmp_path, f"a/{check}")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", json.dumps({**released(1, "drift"), "number": "a"})]
    + [
        json.dumps({k: v for k, v in released(1, "drift").items() if k != key}) for key in ("state", "number")
    ],
)
def test_a_damaged_record_stops_the_monitor_and_is_to_be_restored(tmp_path: Path, content: str) -> None:
    records, watch = Records(tmp_path, "students"), parse_watch(monitored.watch_values())
    records.folder.mkdir(parents=True)
    path = records.path(released(1, "drift")["check"])
    path.write_text(content)
    for look in (records.all, lambda: records.read(path.stem), lambda: records.begin(watch, None)):
        with pytest.raises(SfumatoError, match="restore it from a copy") as refused:
            look()
        assert "delete" not in str(refused.value)
    assert [found.name for found in records.folder.glob("*.json")] == [path.name]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["threshold=1", "threshold.x=1"],
            "threshold.x goes through threshold, which is a value and no section.",
        ),
        (["threshold"], "allowed is key=value, such as threshold=0.2."),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(
    root: Path, settings: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [part for text in settings for part in ("--set", text)]
    assert main(["--root", str(root), *arguments]) == 2
    found = capsys.readouterr()
    assert sentence in found.out + found.err
    assert "Traceback" not in found.out + found.err
    assert not (root / "ledger").exists()


def test_checks_that_released_nothing_change_no_episode() -> None:
    refused = {"check": "0002-00000002", "state": "refused"}
    episode, alarms = episodes([released(1, "drift"), refused, released(3, "drift")])
    assert (episode.opened_by, alarms) == ("0001-00000001", {"0001-00000001"})


def test_two_checks_at_once_are_refused(tmp_path: Path) -> None:
    with (
        Records(tmp_path, "students").locked(),
        pytest.raises(FlowError, match="being checked"),
        Records(tmp_path, "students").locked(),
    ):
        pass


def test_a_tree_without_a_monitor_or_with_a_wrong_one_is_refused(repository: Path, root: Path) -> None:
    assert read_watch(root).drift.name == "students"
    assert read_watch(root, {"threshold": 0.3}).drift.threshold == 0.3
    with pytest.raises(SfumatoError, match=r"drift\.threshold is 0"):
        read_watch(root, {"threshold": 0})
    (root / "params.yaml").write_text("toy: {}\n")
    with pytest.raises(FlowError, match="divergence"):
        read_watch(root)


# --------------------------------------------------------------------------------------------------- the event
def test_an_event_names_what_to_retrain_and_is_the_same_one_when_sent_again() -> None:
    event = event_of(released(1, "drift", mlflow_run="abc"), "/tree")
    assert event["event"] == EVENT
    assert event["payload"]["system"] == "topk"
    assert event["payload"]["check_run"] == "abc"
    assert event["payload"]["root"] == "/tree"
    assert event["id"] == event_of(released(1, "drift"), "")["id"]
    assert event["id"] != event_of(released(2, "drift"), "")["id"]


def test_prefect_yaml_starts_a_retraining_with_all_that_the_event_says() -> None:
    import inspect

    from sfumato.params import read_yaml

    content: Any = read_yaml(toy.PROJECT / "prefect.yaml")
    deployment = next(one for one in content["deployments"] if one["name"] == "on-drift")
    trigger = deployment["triggers"][0]
    assert trigger["expect"] == [EVENT]
    payload = event_of(released(1, "drift"), "")["payload"]
    parameters = inspect.signature(retrain.fn).parameters
    for name, template in trigger["parameters"].items():
        assert name in parameters
        assert template == f"{{{{ event.payload.{name} }}}}"
        assert name in payload


# --------------------------------------------------------------------------------------------------- the links
@pytest.mark.slow
def test_check_and_retraining_name_each_other_in_mlflow(root: Path) -> None:
    record = released(1, "drift")
    run = log_check(root, record)
    assert log_check(root, record) == run
    client, experiment = open_store(root / ".runtime" / "mlflow")
    assert client.get_run(run).data.metrics["raw"] == 0.3
    assert link(root, record, "flow-1") == []
    assert "sfumato.drift.retraining_run" not in client.get_run(run).data.tags
    retraining = client.create_run(experiment, tags={KIND: "flow", "prefect.flow_run": "flow-1"}).info.run_id
    assert link(root, record, "flow-1") == [retraining]
    assert client.get_run(run).data.tags["sfumato.drift.retraining_run"] == retraining
    assert client.get_run(retraining).data.tags["sfumato.drift.check_run"] == run


# ---------------------------------------------------------------------------------------------------- the flow
@pytest.mark.slow
def test_an_alarm_is_raised_once_an_episode_and_waits_for_a_server_that_listens(
    root: Path, server: str
) -> None:
    settings = {"epsilon_per_check": 0.25}
    assert not drift(settings, str(root))["alarm"]
    monitored.write_current(root, 0.8)
    first = drift(settings, str(root))
    assert (first["decision"], first["alarm"]) == ("drift", True)
    record = Records(root, "students").read(first["check"])
    assert not record["event"]["sent"]
    assert "no automation" in record["event"]["reason"]
    client, _ = open_store(root / ".runtime" / "mlflow")
    assert client.get_run(record["mlflow_run"]).data.tags["sfumato.drift.decision"] == "drift"
    second = drift(settings, str(root))
    assert (second["decision"], second["alarm"]) == ("drift", False)
    monitored.write_current(root, 0.0)
    assert drift(settings, str(root))["decision"] == "no_drift"
    monitored.write_current(root, 0.8)
    assert drift(settings, str(root))["alarm"]
    spent = [one["budget"]["epsilon_after"] for one in Records(root, "students").all()]
    assert spent == sorted(spent)


@pytest.mark.slow
def test_a_check_that_the_budget_refuses_fails_the_flow_in_one_sentence_and_sends_nothing(
    root: Path, server: str
) -> None:
    monitored.write_current(root, 0.8)
    settings = {"epsilon_per_check": 1.5, "name": "greedy"}
    assert drift(settings, str(root))["alarm"]
    state = drift(settings, str(root), return_state=True)
    assert state.is_failed()
    assert "budget is 2" in (state.message or "")
    last = Records(root, "greedy").all()[-1]
    assert (last["state"], last.get("event"), last.get("mlflow_run")) == ("refused", None, None)
    assert last["reason"].count(". ") == 0


@pytest.mark.slow
def test_a_check_that_is_killed_stays_charged_and_the_next_one_is_a_new_one(
    root: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sitecustomize.py").write_text(
        "import sys, os, signal\n"
        "if 'tasks.check' in sys.argv:\n"
        "    import sfumato.divergence.estimator as e\n"
        "    e.release = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", f"{root}{os.pathsep}{toy.PROJECT}")
        state = drift(None, str(root), return_state=True)
        assert state.is_failed()
        assert "stays charged" in (state.message or "")
    drift(None, str(root))
    first, second = Records(root, "students").all()
    assert first["state"] == "failed"
    assert second["budget"]["checks_before"] == 1
    book = (root / "ledger/monitoring/charges.jsonl").read_text().splitlines()
    assert [
        json.loads(line)["run_key"][-len(one["check"]) :]
        for line, one in zip(book, (first, second), strict=True)
    ] == [
        first["check"],
        second["check"],
    ]


@pytest.mark.parametrize("status", [-9, 1, 2])
@pytest.mark.parametrize("state", ["released", "begun"])
def test_a_release_counts_however_its_child_ended_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, status: int
) -> None:
    records = Records(tmp_path, "students")
    check = records.begin(parse_watch(monitored.watch_values()), None)["check"]
    finished = {**released(1, "drift"), **records.read(check), "state": state}

    def child(*_: Any) -> int:
        records.save(finished)
        return status

    monkeypatch.setattr(Children, "run", child)
    monkeypatch.setattr("flows.drift.get_run_logger", logging.getLogger)
    if state == "released":
        assert estimate.fn(tmp_path, records, check) == records.read(check) == finished
        assert episodes(records.all())[1] == {check}
        return
    with pytest.raises((FlowError, InterruptedStageError, StageFailedError)):
        estimate.fn(tmp_path, records, check)
    assert records.read(check)["state"] == ("refused" if status == 2 else "failed")


def test_a_check_keeps_its_mlflow_run_when_it_cannot_be_logged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: Any) -> str:
        raise SfumatoError("the store is down.")

    records, kept = Records(tmp_path, "students"), list[Any]()
    records.folder.mkdir(parents=True)
    monkeypatch.setattr("flows.drift.log_check", down)
    monkeypatch.setattr("flows.drift.get_run_logger", logging.getLogger)
    for record in (released(1, "drift", mlflow_run="abc"), released(2, "drift")):
        log_to_mlflow(tmp_path, records, record)
        kept.append(records.read(record["check"])["mlflow_run"])
    assert kept == ["abc", None]


@pytest.mark.slow
def test_a_check_that_is_killed_after_its_release_still_raises_its_alarm(
    root: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitored.write_current(root, 0.8)
    (root / "sitecustomize.py").write_text(
        "import sys, os, signal\n"
        "if 'tasks.check' in sys.argv:\n"
        "    import sfumato.artifacts as a\n"
        "    write = a.write_json\n"
        "    a.write_json = lambda *p: (write(*p), os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{root}{os.pathsep}{toy.PROJECT}")
    assert drift(None, str(root))["alarm"]
    (record,) = Records(root, "students").all()
    assert (record["state"], record["alarm"], record["decision"]) == ("released", True, "drift")
    assert "no automation" in record["event"]["reason"]


@pytest.mark.slow
def test_nobody_retrains_for_a_check_that_raised_no_alarm_or_twice(root: Path, server: str) -> None:
    records = Records(root, "students")
    records.folder.mkdir(parents=True)
    for record in (released(1, "no_drift"), released(2, "drift", mlflow_run="abc")):
        records.save(record)
    first, second = (record["check"] for record in records.all())
    for wrong in (
        {"check": first},
        {"check": "0009-00000009"},
        {"check": second, "system": "modulated"},
        {"check": second, "check_run": "other"},
    ):
        state = retrain(monitor="students", root=str(root), return_state=True, **wrong)
        assert state.is_failed()
        assert "allowed" in (state.message or "")
    runs = retrain("students", second, system="topk", check_run="abc", root=str(root))
    assert len(runs) == 1
    assert records.read(second)["retraining"]["state"] == "finished"
    assert (root / "dvc.lock").exists()
    assert retrain("students", second, root=str(root)) == runs


def test_the_figures_of_the_how_to_are_those_that_its_commands_print() -> None:
    import doctest

    assert doctest.testfile(str(toy.PROJECT / "docs/drift.md"), module_relative=False).failed == 0
