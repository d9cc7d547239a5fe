"""The steps of the divergence system: documents, statements, and the book of releases."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sfumato import artifacts, records
from sfumato.errors import SfumatoError
from sfumato.params import Params, merged, parse, read_yaml
from tasks import prepare
from tasks.command import Call
from tasks.divergence import account, attack, train

ROOT = Path(__file__).resolve().parents[2]
NAME = "generated_population"
SMALL = {
    "divergence": {
        "grid": {
            "datasets": [NAME],
            "comparisons": ["codes"],
            "methods": ["non_private", "trusted_aggregator", "all_cells", "distributed", "local_mix"],
            "epsilons": [1],
            "seeds": [0, 1],
        },
        "train": {"drift": "series", "drift_shares": [0.5], "examples": 2000, "protocol_clients": 12},
        "studies": {"coefficients": [0, 1], "points": [3], "batches": [2], "floor_levels": [0.1]},
        "timeline": {"datasets": [NAME], "checks": 4, "drift_at": 2},
        "attack": {"datasets": [NAME], "methods": ["all_cells"], "epsilons": [1], "runs": 2000},
    }
}
RELEASE = {
    "privacy": {"mode": "release", "budget_epsilon": 1.2},
    "topk": {"grid": {"datasets": [], "references": []}, "audit": {"datasets": []}},
    "modulated": {"grid": {"datasets": []}, "attack": {"datasets": []}},
    "divergence": {
        "grid": {"methods": ["all_cells"], "seeds": None},
        "timeline": {"datasets": []},
        "attack": {"datasets": []},
    },
    "radiomap": {"grid": {"datasets": []}},
}


def _params(*changes: dict[str, Any]) -> Params:
    values = read_yaml(ROOT / "params.yaml")
    for change in (SMALL, *changes):
        values = merged(values, change)
    return parse(values)


def _call(root: Path, params: Params) -> Call:
    return Call(params, root, "divergence", {"dataset": NAME})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("divergence")
    prepare.prepare(Call(_params(), folder, "", {"dataset": NAME}))
    return folder


@pytest.fixture
def root(prepared: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared / "data", tmp_path / "data")
    return tmp_path


def _book(root: Path) -> list[dict[str, Any]]:
    path = root / "ledger/releases.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _read(root: Path, step: str) -> list[records.Record]:
    return records.from_document(artifacts.read_json(root / f"data/metrics/divergence/{step}/{NAME}.json"))


def test_the_steps_leave_documents_events_and_statements(root: Path) -> None:
    call = _call(root, _params())
    for step in (train, attack, account):
        step.run(call)
    figures = _read(root, "train")
    assert {record.levels["study"] for record in figures} == {
        "epsilon",
        "coefficient",
        "points",
        "batches",
        "floor",
        "pair",
    }
    assert len(_read(root, "timeline")) == 4
    assert _read(root, "monitor")[0].values["checks"] == 4
    assert {record.levels["trust"] for record in _read(root, "payload")} == {
        "trusted_aggregator",
        "distributed",
    }
    priced = _read(root, "account")
    assert {record.levels["method"] for record in priced} == {
        "trusted_aggregator",
        "all_cells",
        "distributed",
        "local_mix",
    }
    folder = root / "data/statements/divergence" / NAME
    statement = artifacts.read_json(folder / "all_cells-1.json")
    assert 0 < statement["audit"]["epsilon_lower"] <= statement["epsilon"] <= 1
    assert not (root / "ledger").exists()


def test_the_same_seeds_give_the_same_bytes(root: Path) -> None:
    call = _call(root, _params())
    files = [
        f"data/metrics/divergence/{step}/{NAME}.json" for step in ("train", "timeline", "payload", "monitor")
    ]
    seen = []
    for _ in range(2):
        train.run(call)
        seen.append([(root / name).read_bytes() for name in files])
    assert seen[0] == seen[1]


def test_a_step_that_fails_leaves_all_former_outputs_as_they_were(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.divergence import watched

    def fails(*_arguments: Any) -> None:
        raise SfumatoError("the watch failed.")

    train.run(_call(root, _params()))
    before = {path: path.read_bytes() for path in (root / "data").rglob("*") if path.is_file()}
    monkeypatch.setattr(watched, "documents", fails)
    with pytest.raises(SfumatoError, match="the watch failed"):
        train.run(_call(root, _params({"divergence": {"grid": {"epsilons": [2]}}})))
    assert {path: path.read_bytes() for path in (root / "data").rglob("*") if path.is_file()} == before


def test_a_release_is_charged_once_and_a_second_one_is_refused(root: Path) -> None:
    params = _params(RELEASE)
    train.run(_call(root, params))
    (line,) = _book(root)
    assert line["unit"] == "example"
    assert line["neighboring_relation"] == "replace_one"
    with pytest.raises(ValueError, match=r"budget is 1\.2"):
        train.run(_call(root, params))
    assert len(_book(root)) == 1


def test_a_release_keeps_noisy_numbers_and_nothing_else(root: Path) -> None:
    params = _params(RELEASE)
    train.run(_call(root, params))
    (row,) = artifacts.read_csv(root / f"data/plots/divergence/train/{NAME}.csv")
    assert float(row["low"]) <= float(row["high"])
    assert row["seed"] == "release"
    for step in ("train", "timeline", "payload", "monitor"):
        assert _read(root, step) == []
    account.run(_call(root, params))
    text = (root / f"data/statements/divergence/{NAME}/all_cells-1.txt").read_text()
    assert "release. The noise is drawn by an exact discrete sampler" in " ".join(text.split())


def test_every_estimate_of_a_stage_is_charged(root: Path) -> None:
    more = {
        "privacy": {"budget_epsilon": 50},
        "divergence": {
            "grid": {"methods": ["all_cells", "distributed"], "epsilons": [0.5, 1]},
            "train": {"drift_shares": [0.1, 0.5]},
        },
    }
    train.run(_call(root, _params(RELEASE, more)))
    (line,) = _book(root)
    assert sum(event["count"] for event in line["events"]) == 8
    account.run(_call(root, _params(RELEASE, more)))
    text = (root / f"data/statements/divergence/{NAME}/all_cells-1.txt").read_text()
    assert f"epsilon = {line['epsilon_after']:.4g} only" in " ".join(text.split())


def test_an_aborted_release_stays_charged_and_goes_on_without_a_second_charge(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato.divergence import studies

    def dies(*_arguments: Any, **_keywords: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(studies, "measure", dies)
        with pytest.raises(KeyboardInterrupt):
            train.run(_call(root, _params(RELEASE)))
    assert len(_book(root)) == 1
    train.run(_call(root, _params(RELEASE)))
    assert len(_book(root)) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"grid": {"methods": ["histogram"]}},
            r"divergence\.grid\.methods holds 'histogram' in release mode",
        ),
        ({"grid": {"seeds": [0]}}, r"divergence\.grid\.seeds is \[0\] in release mode; allowed is null"),
        ({"attack": {"datasets": [NAME]}}, r"divergence\.attack\.datasets is .* in release mode"),
        ({"timeline": {"datasets": [NAME]}}, r"divergence\.timeline\.datasets is .* in release mode"),
    ],
)
def test_what_the_book_does_not_see_is_refused_in_release_mode(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _params(RELEASE, {"divergence": change})
