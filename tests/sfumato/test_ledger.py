"""The ledger of events and the book of releases: counts, round trips, budgets, crashes, concurrency."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import epsilon, gaussian_epsilon
from sfumato.errors import BudgetExceededError, SfumatoError
from sfumato.ledger import Charge, EventLedger, ReleaseBook
from sfumato.mechanisms import gaussian_event, subsampled_gaussian, subsampled_gaussian_step

PLAN: list[dict[str, Any]] = [{"kind": "gaussian", "noise_multiplier": 10.0, "count": 1}]


def noon() -> str:
    return "2026-01-01T12:00:00Z"


def charge(book: ReleaseBook, run_key: str, **changes: Any) -> Charge:
    arguments: dict[str, Any] = {
        "dataset_hash": "d1",
        "unit": "example",
        "neighboring_relation": "add_or_remove_one",
        "epsilon": 1.0,
        "delta": 1e-5,
        "events": PLAN,
        "run_key": run_key,
        "clock": noon,
    }
    return book.charge(**{**arguments, **changes})


# --- events


def test_steps_count_optimiser_steps_not_entries() -> None:
    ledger = EventLedger()
    for _ in range(30):
        ledger.record(subsampled_gaussian_step(0.1, 1.2), realised_batch_size=4)
    for _ in range(70):
        ledger.record(subsampled_gaussian_step(0.1, 0.9), realised_batch_size=0)
    assert ledger.steps == 100
    assert len(ledger.events) == 2
    assert ledger.empty_batches == 70


def test_recorded_steps_cost_what_the_plan_costs() -> None:
    ledger = EventLedger()
    for step in range(60):
        ledger.record(subsampled_gaussian_step(0.1, 1.0 if step % 2 else 2.0))
    plan = [subsampled_gaussian(0.1, 1.0, 30), subsampled_gaussian(0.1, 2.0, 30)]
    assert len(ledger.to_json()) == 60
    assert epsilon(ledger.events, 1e-5) == epsilon(plan, 1e-5)


EVENTS = st.one_of(
    st.builds(
        subsampled_gaussian_step, st.sampled_from([0.0, 0.25, 0.1, 1.0]), st.sampled_from([0.0, 0.5, 1.75])
    ),
    st.builds(gaussian_event, st.floats(1e-3, 1e6)),
    st.builds(dp_event.ZCDpEvent, rho=st.floats(0.0, 10.0)),
)


@given(st.lists(EVENTS, max_size=12))
def test_json_round_trip_keeps_events_order_and_count(events: list[dp_event.DpEvent]) -> None:
    ledger = EventLedger()
    for event in events:
        ledger.record(event)
    document = json.loads(json.dumps(ledger.to_json(), allow_nan=False))
    again = EventLedger.from_json(document)
    assert again.events == ledger.events
    assert again.steps == len(events)


def test_empty_batches_are_counted_either_way_and_survive_the_round_trip() -> None:
    ledger = EventLedger()
    ledger.record(gaussian_event(1.0))
    ledger.record_empty_batch()
    assert EventLedger.from_json(ledger.to_json(), ledger.empty_batches).empty_batches == 1
    with pytest.raises(SfumatoError, match="empty_batches is 2"):
        EventLedger.from_json(ledger.to_json(), 2)


@pytest.mark.parametrize(
    ("document", "match"),
    [
        ({"kind": "gaussian"}, "events is a dict"),
        ("gaussian", "events is a str"),
        ([3], "event 0"),
        ([{"kind": "laplace", "count": 1}], "kind is 'laplace'"),
        ([{"kind": ["gaussian"], "count": 1}], "kind is"),
        ([{"kind": "gaussian", "count": 1}], "noise_multiplier is None"),
        ([{"kind": "gaussian", "noise_multiplier": "1", "count": 1}], "noise_multiplier is '1'"),
        ([{"kind": "gaussian", "noise_multiplier": True, "count": 1}], "noise_multiplier is True"),
        ([{"kind": "gaussian", "noise_multiplier": float("nan"), "count": 1}], "noise_multiplier is nan"),
        ([{"kind": "gaussian", "noise_multiplier": 1.0, "count": 0}], "count is 0"),
        ([{"kind": "gaussian", "noise_multiplier": 1.0, "count": 1.0}], r"count is 1\.0"),
        ([{"kind": "gaussian", "noise_multiplier": 1.0, "count": 1, "x": 1}], "'x' is not a field"),
        (
            [{"kind": "poisson_sampled_gaussian", "noise_multiplier": 1.0, "sampling_rate": 1.5, "count": 1}],
            "sampling_rate is 1.5",
        ),
    ],
)
def test_malformed_documents_are_refused_by_entry_and_field(document: object, match: str) -> None:
    with pytest.raises(SfumatoError, match=match):
        EventLedger.from_json(document)


def test_events_of_unknown_kind_are_refused_when_recorded() -> None:
    with pytest.raises(SfumatoError, match="cannot be recorded"):
        EventLedger().record(dp_event.LaplaceDpEvent(1.0))
    with pytest.raises(SfumatoError, match="cannot be recorded"):
        EventLedger().record(dp_event.ComposedDpEvent([gaussian_event(1.0)]))
    with pytest.raises(SfumatoError, match="realised_batch_size"):
        EventLedger().record(gaussian_event(1.0), realised_batch_size=-1)


# --- book


def test_budget_is_priced_by_composition_and_not_by_adding(tmp_path: Path) -> None:
    book = ReleaseBook(tmp_path / "ledger" / "releases.jsonl")
    single = gaussian_epsilon(0.1, 1e-5)
    for number in range(1, 8):
        answer = charge(book, f"run {number}")
        assert answer.epsilon == pytest.approx(gaussian_epsilon(0.1 * number**0.5, 1e-5), rel=1e-9)
    assert 7 * single > 1.0 > answer.epsilon
    with pytest.raises(BudgetExceededError, match=r"run 8.*8 releases; the budget is 1"):
        charge(book, "run 8")
    assert (
        book.spent(
            dataset_hash="d1", unit="example", neighboring_relation="add_or_remove_one", delta=1e-5
        ).releases
        == 7
    )


def test_a_resumed_run_is_not_charged_twice_and_a_changed_plan_is_refused(tmp_path: Path) -> None:
    book = ReleaseBook(tmp_path / "releases.jsonl")
    first = charge(book, "run 1")
    before = (tmp_path / "releases.jsonl").read_bytes()
    again = charge(ReleaseBook(tmp_path / "releases.jsonl"), "run 1")
    assert not first.already_charged
    assert again.already_charged
    assert again.epsilon == first.epsilon
    assert (tmp_path / "releases.jsonl").read_bytes() == before
    with pytest.raises(SfumatoError, match="other events"):
        charge(book, "run 1", events=[{**PLAN[0], "noise_multiplier": 20.0}])


def test_an_aborted_run_stays_charged(tmp_path: Path) -> None:
    book = ReleaseBook(tmp_path / "releases.jsonl")
    plan = [{**PLAN[0], "noise_multiplier": 4.0}]
    charge(book, "aborted", events=plan)
    with pytest.raises(BudgetExceededError):
        charge(book, "next", events=plan)


@pytest.mark.parametrize(
    "other", [{"neighboring_relation": "replace_one"}, {"unit": "person"}, {"dataset_hash": "d2"}]
)
def test_budgets_of_other_relations_units_and_data_are_not_mixed(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    book = ReleaseBook(tmp_path / "releases.jsonl")
    plan = [{**PLAN[0], "noise_multiplier": 8.0}]
    for number in range(4):
        charge(book, f"run {number}", events=plan)
    answer = charge(book, "run 0", events=plan, **other)
    assert answer.releases == 1
    assert not answer.already_charged


def test_a_refused_run_changes_nothing(tmp_path: Path) -> None:
    book = ReleaseBook(tmp_path / "releases.jsonl")
    charge(book, "run 1")
    before = (tmp_path / "releases.jsonl").read_bytes()
    for changes in (
        {"events": [{"kind": "non_private", "count": 1}]},
        {"events": [{**PLAN[0], "noise_multiplier": 0.1}]},
        {"events": []},
        {"epsilon": float("nan")},
        {"delta": 0.0},
        {"unit": " "},
        {"neighboring_relation": "swap"},
        {"dataset_hash": None},
    ):
        with pytest.raises(SfumatoError):
            charge(book, "run 2", **changes)
    assert (tmp_path / "releases.jsonl").read_bytes() == before


@pytest.mark.parametrize("cut", [1, 2, 10, 60, 10_000])
def test_a_torn_last_line_never_costs_a_complete_one(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "releases.jsonl"
    book = ReleaseBook(path)
    charge(book, "run 1")
    complete = path.read_bytes()
    charge(book, "run 2")
    torn = path.read_bytes()[len(complete) :][:-cut]
    path.write_bytes(complete + torn)
    answer = charge(book, "run 3")
    lines = path.read_bytes().splitlines()
    assert path.read_bytes().startswith(complete)
    assert path.read_bytes().endswith(b"\n")
    # Only the line's end was missing in the first case: the charge is whole and is kept.
    keys = [json.loads(line)["run_key"] for line in lines]
    assert keys == (["run 1", "run 2", "run 3"] if cut == 1 else ["run 1", "run 3"])
    assert answer.releases == len(keys)


def test_a_damaged_line_within_the_book_stops_every_charge(tmp_path: Path) -> None:
    path = tmp_path / "releases.jsonl"
    book = ReleaseBook(path)
    charge(book, "run 1")
    charge(book, "run 2")
    damaged = path.read_bytes().replace(b'"run_key"', b'"run_kex"', 1)
    for content in (damaged, b"[]\n", b"\n", b"not json\n", b"\xff\xfe\n"):
        path.write_bytes(content)
        with pytest.raises(SfumatoError, match="line 1 of"):
            charge(book, "run 3")
        assert path.read_bytes() == content


def test_a_failing_disk_leaves_the_book_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "releases.jsonl"
    book = ReleaseBook(path)
    charge(book, "run 1")
    before = path.read_bytes()
    write = os.write

    def full_disk(descriptor: int, data: bytes) -> int:
        if b"run 2" not in data:
            return write(descriptor, data)
        write(descriptor, data[:20])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full_disk)
        with pytest.raises(SfumatoError, match=r"No space left.*nothing was charged"):
            charge(book, "run 2")
    assert path.read_bytes() == before
    assert charge(book, "run 2").releases == 2


def test_the_line_is_on_disk_before_charge_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "releases.jsonl"
    synced: list[bytes] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(path.read_bytes())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    charge(ReleaseBook(path), "run 1")
    assert b"run 1" in synced[0]
    assert len(synced) == 2  # the file and, since it is new, its folder


def test_a_lock_held_elsewhere_is_a_sentence(tmp_path: Path) -> None:
    held = FileLock(tmp_path / "releases.jsonl.lock")
    held.acquire()
    with pytest.raises(SfumatoError, match="locked by another process"):
        charge(ReleaseBook(tmp_path / "releases.jsonl", lock_timeout=0.2), "run 1")
    held.release()
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(SfumatoError, match="cannot be opened"):
        charge(ReleaseBook(blocked / "releases.jsonl"), "run 1")


def _racer(path: str, number: int, answers: Any) -> None:
    try:
        charge(ReleaseBook(Path(path)), f"run {number}", events=[{**PLAN[0], "noise_multiplier": 8.0}])
        answers.put(True)
    except BudgetExceededError:
        answers.put(False)


def test_concurrent_processes_never_overspend_or_tear(tmp_path: Path) -> None:
    path = tmp_path / "releases.jsonl"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sfumato.ledger"])
    answers = context.Queue()
    racers = [context.Process(target=_racer, args=(str(path), number, answers)) for number in range(6)]
    for racer in racers:
        racer.start()
    granted = [answers.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(timeout=60)
    # Four releases with noise multiplier 8 cost 0.96 at delta = 1e-5, five cost 1.09.
    assert sum(granted) == 4
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({line["run_key"] for line in lines}) == 4
    costs = [line["epsilon_after"] for line in lines]
    assert costs == sorted(costs)
    assert costs[-1] <= 1.0
