"""The steps of the modulated system: documents, statements, and the book of releases."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato import artifacts, records
from sfumato.params import Params, merged, parse, read_yaml
from tasks import prepare
from tasks.command import Call
from tasks.modulated import account, attack, train

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "modulated": {
        "grid": {
            "datasets": ["generated"],
            "methods": ["one_shot", "iterative", "dp_sgd", "ada_ssp", "least_squares", "mean"],
            "epsilons": [5],
            "seeds": [0, 1],
        },
        "train": {"rounds": 3, "step_sizes": [1.0, 5.0], "clip_norms": [0.1], "tuning_repeats": 2},
        "attack": {
            "datasets": ["generated"],
            "epsilons": [5],
            "clients": 50,
            "messages": [1, 2],
            "audit_methods": ["one_shot"],
            "audit_runs": 2000,
        },
    }
}
RELEASE = {
    "privacy": {"mode": "release", "budget_epsilon": 5.5},
    "topk": {"grid": {"datasets": [], "references": []}, "audit": {"datasets": []}},
    "divergence": {"grid": {"datasets": []}, "timeline": {"datasets": []}, "attack": {"datasets": []}},
    "radiomap": {"grid": {"datasets": []}},
    "modulated": {
        "grid": {"methods": ["one_shot"], "seeds": None},
        "train": {"step_sizes": [1.0], "clip_norms": [0.1]},
        "attack": {"datasets": [], "audit_methods": []},
    },
}


def _params(*changes: dict[str, Any]) -> Params:
    values = read_yaml(ROOT / "params.yaml")
    for change in (SMALL, *changes):
        values = merged(values, change)
    return parse(values)


def _call(root: Path, params: Params) -> Call:
    return Call(params, root, "modulated", {"dataset": "generated"})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modulated")
    prepare.prepare(Call(_params(), folder, "", {"dataset": "generated"}))
    return folder


@pytest.fixture
def root(prepared: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared / "data", tmp_path / "data")
    return tmp_path


def _book(root: Path) -> list[dict[str, Any]]:
    path = root / "ledger/releases.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_steps_leave_documents_models_events_and_statements(root: Path) -> None:
    call = _call(root, _params())
    for step in (train, attack, account):
        step.run(call)
    fits = records.from_document(artifacts.read_json(root / "data/metrics/modulated/train/generated.json"))
    assert len(records.select(fits, method="one_shot", epsilon="5")) == 2
    assert len(records.select(fits, method="least_squares", epsilon="inf")) == 1
    assert len(records.select(fits, method="one_shot", epsilon="inf")) == 2
    models = artifacts.read_npz(root / "data/models/modulated/train/generated.npz")
    assert models["iterative/5"].shape == (2, 9)
    table = artifacts.read_csv(root / "data/plots/modulated/train/generated.csv")
    assert {row["method"] for row in table} == {"iterative", "dp_sgd"}
    priced = records.from_document(
        artifacts.read_json(root / "data/metrics/modulated/account/generated.json")
    )
    assert {record.levels["method"] for record in priced} == {"one_shot", "iterative", "dp_sgd", "ada_ssp"}
    assert all(record.values["epsilon_gaussian"] == pytest.approx(5.0, rel=1e-6) for record in priced)
    folder = root / "data/statements/modulated/generated"
    assert "sent in the clear" in " ".join((folder / "one_shot-5.txt").read_text().split())
    assert "4 further fits" in (folder / "iterative-5.txt").read_text().replace("\n  ", " ")
    statement = artifacts.read_json(folder / "one_shot-5.json")
    assert 0 < statement["audit"]["epsilon_lower"] <= 5
    assert artifacts.read_json(folder / "iterative-5.json")["audit"]["epsilon_lower"] is None
    attacks = records.from_document(
        artifacts.read_json(root / "data/metrics/modulated/attack/generated.json")
    )
    assert {record.levels["messages"] for record in attacks} == {"1", "2"}
    assert not [name for record in attacks for name in record.values if name.startswith("label")]
    assert "features and label alike" not in statement["audit"]["reason"]
    assert not (root / "ledger").exists()


def test_private_labels_are_attacked_and_their_joint_release_is_audited(root: Path) -> None:
    private = {"modulated": {"client": {"labels": "private"}, "grid": {"methods": ["one_shot"]}}}
    call = _call(root, _params(private))
    for step in (train, attack, account):
        step.run(call)
    attacks = artifacts.read_json(root / "data/metrics/modulated/attack/generated.json")
    assert attacks["tolerances"]["label_mse"] > 0
    found = records.from_document(attacks)
    assert {record.levels["attack"] for record in found} >= {"linear_unbiased", "maximum_likelihood"}
    for record in found:
        values = record.values
        assert float(values["label_mse_low"] or 0) <= float(values["label_mse"] or 0)
        assert float(values["label_floor"] or 0) > float(values["label_floor_bayes"] or 0) > 0
        # Without weight and shrinkage features and label have the same noise.
        if record.levels["method"] == "no_modulation":
            assert values["label_floor"] == pytest.approx(float(values["floor"] or 0) / 8)
    folder = root / "data/statements/modulated/generated"
    statement = artifacts.read_json(folder / "one_shot-5.json")
    assert 0 < statement["audit"]["epsilon_lower"] <= 5
    assert "two ends of the domain, features and label alike" in statement["audit"]["reason"]
    text = " ".join((folder / "one_shot-5.txt").read_text().split())
    assert f"epsilon is at least {statement['audit']['epsilon_lower']:.4g} with 90% confidence" in text


def test_the_same_seeds_give_the_same_bytes(root: Path) -> None:
    call = _call(
        root,
        _params(
            {
                "modulated": {"grid": {"methods": ["one_shot", "dp_sgd"]}},
            },
            {"modulated": {"attack": {"audit_methods": []}}},
        ),
    )
    files = ["data/metrics/modulated/train/generated.json", "data/models/modulated/train/generated.npz"]
    seen = []
    for _ in range(2):
        train.run(call)
        seen.append([(root / name).read_bytes() for name in files])
    assert seen[0] == seen[1]


def test_a_release_is_charged_before_it_is_made_and_only_once_for_each(root: Path) -> None:
    params = _params(RELEASE)
    train.run(_call(root, params))
    (line,) = _book(root)
    assert line["unit"] == "client"
    assert line["neighboring_relation"] == "replace_one"
    recorded = artifacts.read_json(root / "data/events/modulated/train/generated.json")
    assert recorded["cells"]["one_shot/5"]["seeds"] == {"release": line["events"]}
    with pytest.raises(ValueError, match=r"budget is 5\.5"):
        train.run(_call(root, params))
    assert len(_book(root)) == 1


def test_an_aborted_release_stays_charged_and_goes_on_without_a_second_charge(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato.modulated import experiment

    def dies(*_arguments: Any, **_keywords: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(experiment, "run", dies)
        with pytest.raises(KeyboardInterrupt):
            train.run(_call(root, _params(RELEASE)))
    assert len(_book(root)) == 1
    assert not (root / "data/metrics/modulated/train/generated.json").exists()
    train.run(_call(root, _params(RELEASE)))
    assert len(_book(root)) == 1


def test_a_release_keeps_nothing_that_reads_clients_without_noise(root: Path) -> None:
    """What is left are noisy estimates, the plan, and figures of held-out rows."""
    train.run(_call(root, _params(RELEASE)))
    (fit,) = records.from_document(artifacts.read_json(root / "data/metrics/modulated/train/generated.json"))
    for name in ("coefficient_error", "covered", "faulty", "test_relative_error"):
        assert fit.values[name] is None
        assert "without noise" in str(fit.values[f"{name}_reason"])
    models = artifacts.read_npz(root / "data/models/modulated/train/generated.npz")
    assert set(models) == {"one_shot/5"}


def test_fits_of_the_same_clients_are_priced_together_in_their_statements(root: Path) -> None:
    params = _params(
        RELEASE,
        {"privacy": {"budget_epsilon": 100}, "modulated": {"grid": {"methods": ["one_shot", "dp_sgd"]}}},
    )
    train.run(_call(root, params))
    account.run(_call(root, params))
    text = " ".join((root / "data/statements/modulated/generated/one_shot-5.txt").read_text().split())
    assert "one of 2 fits that the same clients answered" in text
    assert f"epsilon = {_book(root)[0]['epsilon_after']:.4g} only" in text


def test_released_estimates_are_drawn_from_the_systems_entropy(root: Path) -> None:
    params = _params(RELEASE, {"privacy": {"budget_epsilon": 100}})
    found = []
    for _ in range(2):
        train.run(_call(root, params))
        found.append(artifacts.read_npz(root / "data/models/modulated/train/generated.npz")["one_shot/5"])
    assert not np.any(found[0] == found[1])
    assert len(_book(root)) == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"grid": {"methods": ["least_squares"]}},
            r"modulated\.grid\.methods holds 'least_squares' in release mode",
        ),
        ({"grid": {"seeds": [0]}}, r"modulated\.grid\.seeds is \[0\] in release mode; allowed is null"),
        (
            {"train": {"step_sizes": [1.0, 2.0]}},
            r"modulated\.train\.step_sizes is \[1\.0, 2\.0\] in release mode",
        ),
        (
            {"attack": {"datasets": ["generated"]}},
            r"modulated\.attack\.datasets is \['generated'\] in release mode",
        ),
    ],
)
def test_what_the_book_does_not_see_is_refused_in_release_mode(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _params(RELEASE, {"modulated": change})
