"""Release mode: the book is charged before the first noise, once per run, and refuses what passes the budget."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfumato import datasets
from sfumato.params import Params, merged, parse, read_yaml
from tasks import prepare
from tasks.checkpoints import Checkpoints, run_key
from tasks.command import Call
from tasks.topk import train, warmup

ROOT = Path(__file__).resolve().parents[2]
RELEASE = {
    "privacy": {"mode": "release", "budget_epsilon": 3.2},
    "topk": {
        "grid": {
            "datasets": ["digits"],
            "references": [],
            "methods": ["tp_topk", "tp_rand"],
            "epsilons": [3],
            "seeds": None,
        },
        "warmup": {"steps": 3},
        "train": {"steps": 4, "probe_examples": 32},
        "audit": {"datasets": []},
    },
    "modulated": {"grid": {"datasets": []}, "attack": {"datasets": []}},
    "divergence": {"grid": {"datasets": []}, "timeline": {"datasets": []}, "attack": {"datasets": []}},
    "radiomap": {"grid": {"datasets": []}},
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    prepare.prepare(Call(_params(), folder, "", {"dataset": "digits"}))
    return folder


@pytest.fixture
def root(prepared: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared / "data", tmp_path / "data")
    return tmp_path


def _params(**privacy: Any) -> Params:
    return parse(merged(merged(read_yaml(ROOT / "params.yaml"), RELEASE), {"privacy": privacy}))


def _book(root: Path) -> list[dict[str, Any]]:
    path = root / "ledger/releases.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _warmup(root: Path, params: Params) -> None:
    warmup.run(Call(params, root, "topk", {"dataset": "digits", "epsilon": "3"}))


def _train(root: Path, params: Params, method: str) -> None:
    train.run(Call(params, root, "topk", {"dataset": "digits", "method": method, "epsilon": "3"}))


def test_each_stage_charges_its_plan_and_the_book_ends_at_the_target(root: Path) -> None:
    params = _params()
    _warmup(root, params)
    assert [line["events"][0]["count"] for line in _book(root)] == [3]
    _train(root, params, "tp_topk")
    book = _book(root)
    assert [line["events"][0]["count"] for line in book] == [3, 4]
    recorded = json.loads((root / "data/events/topk/train/digits-tp_topk-3.json").read_text())
    assert list(recorded["seeds"]) == ["release"]
    charged = [event for line in book for event in line["events"]]
    assert recorded["seeds"]["release"] == charged


def test_what_would_pass_the_budget_is_refused_before_any_output(root: Path) -> None:
    params = _params()
    _warmup(root, params)
    _train(root, params, "tp_topk")
    with pytest.raises(ValueError, match=r"budget is 3\.2"):
        _train(root, params, "tp_rand")
    assert len(_book(root)) == 2
    assert not (root / "data/models/topk/train/digits-tp_rand-3.safetensors").exists()


def test_an_aborted_run_stays_charged_and_is_charged_once_when_it_goes_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = _params()
    from sfumato.topk import training

    def dies(*_arguments: Any, **_keywords: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "privatize", dies)
        with pytest.raises(KeyboardInterrupt):
            _warmup(root, params)
    assert len(_book(root)) == 1
    _warmup(root, params)
    assert len(_book(root)) == 1


def test_a_finished_stage_that_runs_again_is_a_new_release(root: Path) -> None:
    params = _params(budget_epsilon=10.0)
    _warmup(root, params)
    first = (root / "data/models/topk/warmup/digits-3.safetensors").read_bytes()
    _warmup(root, params)
    assert len(_book(root)) == 2
    assert (root / "data/models/topk/warmup/digits-3.safetensors").read_bytes() != first


def test_simulation_charges_nothing(root: Path) -> None:
    simulated = merged(RELEASE, {"privacy": {"mode": "simulation"}, "topk": {"grid": {"seeds": [0]}}})
    params = parse(merged(read_yaml(ROOT / "params.yaml"), simulated))
    _warmup(root, params)
    assert _book(root) == []


def test_a_larger_budget_neither_draws_nor_charges_again(root: Path) -> None:
    """The budget is no part of a run's key, nor of what its stages depend on."""
    pipeline: Any = read_yaml(ROOT / "dvc.yaml")
    for stage in pipeline["stages"].values():
        assert not {"privacy", "privacy.budget_epsilon", "privacy.ledger"} & set(stage.get("params", []))
    small = Call(_params(), root, "topk", {"dataset": "digits", "epsilon": "3"})
    large = Call(_params(budget_epsilon=9.0), root, "topk", {"dataset": "digits", "epsilon": "3"})
    prepared = root / "data/prepared/digits.npz"
    assert run_key(small, "warmup", [prepared]) == run_key(large, "warmup", [prepared])


def test_states_that_are_lost_after_the_outputs_are_a_new_release(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs may have been seen once they are written: drawing them anew must be charged."""

    def dies(_self: Checkpoints) -> None:
        raise KeyboardInterrupt

    params = _params(budget_epsilon=10.0)
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "clear", dies)
        with pytest.raises(KeyboardInterrupt):
            _warmup(root, params)
    first = (root / "data/models/topk/warmup/digits-3.safetensors").read_bytes()
    _warmup(root, params)
    assert (root / "data/models/topk/warmup/digits-3.safetensors").read_bytes() == first
    assert len(_book(root)) == 1

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "clear", dies)
        with pytest.raises(KeyboardInterrupt):
            _warmup(root, params)
    for path in (root / ".runtime/checkpoints").rglob("release.safetensors"):
        path.write_bytes(path.read_bytes()[:-9])
    _warmup(root, params)
    assert len(_book(root)) == 3


def test_another_target_of_the_same_rows_shares_the_budget(root: Path) -> None:
    params = _params()
    _warmup(root, params)
    path = root / "data/prepared/digits.npz"
    data = datasets.load(path)
    flipped = datasets.Examples(data.train.x, data.train.y[::-1].copy())
    datasets.save(path, replace(data, train=flipped))
    _warmup(root, params)
    assert len({line["dataset_hash"] for line in _book(root)}) == 1


def test_a_release_leaves_nothing_measured_without_noise_beside_the_model(root: Path) -> None:
    params = _params()
    _warmup(root, params)
    _train(root, params, "tp_topk")
    text = (root / "data/plots/topk/train/digits-tp_topk-3.csv").read_text().splitlines()
    header = text[0].split(",")
    for line in text[1:]:
        row = dict(zip(header, line.split(","), strict=True))
        assert (row["held_out_loss"], row["held_out_accuracy"], row["retained_energy"]) == ("", "", "")
    metrics = json.loads((root / "data/metrics/topk/train/digits-tp_topk-3.json").read_text())
    values = metrics["values"]["digits"]["tp_topk"]["3"]["release"]
    assert values["empty_batches"] is None
