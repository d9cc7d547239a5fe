"""The real graph, every stage of it, on small data: by the flow, again, and by plain DVC."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sfumato.artifacts import read_json, write_text
from sfumato.params import merged, read_yaml

ROOT = Path(__file__).resolve().parents[2]


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = {
        "DVC_NO_ANALYTICS": "1",
        "DO_NOT_TRACK": "1",
        "DVC_SITE_CACHE_DIR": str(folder / ".runtime/site"),
    }
    environment = {**os.environ, "PATH": path, **quiet}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


def _copy(target: Path, changes: Any = None) -> Path:
    """The working files with the smoke profile's parameters, as a repository of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        source, place = ROOT / name, target / name
        made = name.startswith(("data/metrics", "dvc.lock", "results/", "tests/"))
        if source.is_file() and (not made or name.endswith(".gitkeep")):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)
    (target / "results").mkdir(exist_ok=True)
    (target / "results/.gitkeep").touch()
    from io import StringIO

    from ruamel.yaml import YAML

    profile = read_yaml(ROOT / "profiles/smoke.yaml")
    assert isinstance(profile, dict)
    text = StringIO()
    values = merged(read_yaml(ROOT / "params.yaml"), merged(profile["params"], changes or {}))
    YAML(typ="safe", pure=True).dump(values, text)
    write_text(target / "params.yaml", text.getvalue())
    for command in (["git", "init", "-q"], ["git", "add", "-A", "--force"]):
        subprocess.run(command, cwd=target, check=True)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, "commit", "-qm", "start"], cwd=target, check=True)
    return target


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = _copy(tmp_path_factory.mktemp("repository"))
    done = _run(folder, sys.executable, "-m", "flows.reproduce")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


DIVERGENCE_ALONE = {
    "topk": {
        "grid": {"datasets": [], "references": []},
        "audit": {"datasets": []},
        "membership": {"datasets": [], "blocks": []},
    },
    "modulated": {"grid": {"datasets": []}, "attack": {"datasets": []}},
    "radiomap": {"grid": {"datasets": []}},
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The system whose stages are over soonest, after one run of the flow; the slow tests run all systems."""
    folder = _copy(tmp_path_factory.mktemp("small"), DIVERGENCE_ALONE)
    done = _run(folder, sys.executable, "-m", "flows.reproduce")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_the_flow_makes_page_statements_claims_and_runs(small: Path) -> None:
    page = (small / "report/index.html").read_text()
    assert '<section id="divergence">' in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert read_json(small / "report/claims.json")
    statement = (small / "data/statements/divergence/generated_population/all_cells-1.txt").read_text()
    assert "replaced by any other" in " ".join(statement.split())
    assert (small / ".runtime/mlflow/mlflow.db").exists()
    timeline = read_json(small / "data/metrics/divergence/timeline/generated_population.json")
    assert len(timeline["values"]["generated_population"]) == 6


def test_plain_dvc_has_nothing_left_to_do_after_the_flow(small: Path) -> None:
    before = (small / "dvc.lock").read_bytes()
    done = _run(small, "dvc", "repro")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Running stage" not in done.stdout
    assert (small / "dvc.lock").read_bytes() == before


@pytest.mark.slow
def test_the_flow_runs_every_system(repository: Path) -> None:
    page = (repository / "report/index.html").read_text()
    for name in ("modulated", "divergence", "radiomap"):
        assert f'<section id="{name}">' in page
    statement = (repository / "data/statements/modulated/generated/one_shot-5.txt").read_text()
    assert "replaced by any other" in " ".join(statement.split())


@pytest.mark.slow
def test_the_flow_attacks_audits_and_shadows_the_trained_models(repository: Path) -> None:
    statement = (repository / "data/statements/topk/digits-3/tp_topk-0.txt").read_text()
    assert "one training example" in statement
    audit = read_json(repository / "data/metrics/topk/audit/digits-tp_topk-3.json")
    assert set(audit["values"]["digits"]["tp_topk"]["3"]) == {"gradient", "input"}
    lira = read_json(repository / "data/metrics/topk/membership/digits-tp_topk-3.json")
    assert lira["values"]["digits"]["tp_topk"]["3"]["online"]["shadow_models"] == 8


@pytest.mark.slow
def test_recorded_events_price_to_the_target(repository: Path) -> None:
    priced = read_json(repository / "data/metrics/topk/account/digits-3.json")["values"]["digits"]
    for method in ("tp_topk", "dense"):
        for seed in ("0", "1"):
            values = priced[method]["3"][seed]
            assert values["steps"] == 18
            assert 0.98 * 3 <= values["epsilon_pld"] <= 3
            assert values["epsilon_pld"] <= values["epsilon_rdp"]
    assert priced["non_private"]["inf"]["0"]["epsilon_pld"] is None


@pytest.mark.slow
def test_every_seed_keeps_its_own_weights(repository: Path) -> None:
    from sfumato.artifacts import read_tensors

    tensors = read_tensors(repository / "data/models/topk/train/digits-dense-3.safetensors")
    assert (tensors["seed0/1.weight"] != tensors["seed1/1.weight"]).any()


@pytest.mark.slow
def test_plain_dvc_reproduces_the_lock_bit_for_bit(repository: Path) -> None:
    before = (repository / "dvc.lock").read_bytes()
    for made in (
        "data/prepared",
        "data/models",
        "data/events",
        "data/plots",
        "data/statements",
        "report",
        ".dvc/cache",
    ):
        for path in (repository / made).rglob("*"):
            if path.is_file() and path.name != ".gitkeep":
                path.unlink()
    for path in (repository / "data/metrics").rglob("*.json"):
        path.unlink()
    shutil.rmtree(repository / ".dvc/tmp", ignore_errors=True)
    done = _run(repository, "dvc", "repro")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (repository / "dvc.lock").read_bytes() == before


@pytest.mark.slow
def test_the_systems_own_flow_leaves_the_same_lock(repository: Path) -> None:
    before = (repository / "dvc.lock").read_bytes()
    done = _run(repository, sys.executable, "-m", "flows.topk")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (repository / "dvc.lock").read_bytes() == before


@pytest.mark.slow
def test_a_change_of_the_library_runs_its_stages_again(repository: Path) -> None:
    path = repository / "sfumato/topk/scores.py"
    path.write_text(path.read_text() + "\n# a remark\n")
    done = _run(repository, "dvc", "status", "topk-train@digits-dense-3")
    assert "sfumato/topk" in done.stdout


NO_RADIOMAP = "radiomap.grid.datasets=[]"
NO_DIVERGENCE = (
    "divergence.grid.datasets=[]",
    "divergence.timeline.datasets=[]",
    "divergence.attack.datasets=[]",
)
RELEASE = (
    "privacy.mode=release",
    "topk.grid.seeds=null",
    "topk.grid.references=[]",
    "topk.audit.datasets=[]",
    "topk.membership.datasets=[]",
    "topk.membership.blocks=[]",
    "topk.train.tuning.chosen_on=public data",
    "topk.train.tuning.private_trials={digits: 0}",
    "modulated.grid.datasets=[]",
    "modulated.attack.datasets=[]",
    *NO_DIVERGENCE,
    NO_RADIOMAP,
)


def _released(folder: Path, settings: tuple[str, ...]) -> tuple[Path, Path]:
    """A tree where nothing has run before, and the workspace in it after a release with these settings."""
    root = _copy(folder / "release")
    words = [word for setting in settings for word in ("--set", setting)]
    done = _run(root, sys.executable, "-m", "flows.workspace", "--profile", "smoke", "--keep", *words)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (place,) = (root / ".runtime/workspaces").glob("smoke-*/base")
    return root, place


@pytest.mark.slow
def test_a_release_ends_with_its_statements_and_its_charges(tmp_path: Path) -> None:
    """The recipe of docs/howto.md, in a workspace where nothing has run before."""
    folder, place = _released(tmp_path, RELEASE)
    for method in ("tp_topk", "dense"):
        text = (place / f"data/statements/topk/digits-3/{method}-release.txt").read_text()
        assert "release. The noise is drawn from the operating system's entropy" in " ".join(text.split())
    assert (place / "report/index.html").is_file()
    assert len((folder / "ledger/releases.jsonl").read_text().splitlines()) == 3


MODULATED_RELEASE = (
    "privacy.mode=release",
    "topk.grid={datasets: [], references: [], methods: [dense], epsilons: [3], seeds: null}",
    "topk.audit.datasets=[]",
    "topk.membership.datasets=[]",
    "topk.membership.blocks=[]",
    "modulated.grid.methods=[one_shot_floor]",
    "modulated.grid.seeds=null",
    "modulated.train.step_sizes=[1.0]",
    "modulated.attack.datasets=[]",
    *NO_DIVERGENCE,
    NO_RADIOMAP,
)


@pytest.mark.slow
def test_a_release_of_clients_messages_ends_with_a_statement_and_one_charge(tmp_path: Path) -> None:
    """The recipe of docs/howto.md for the modulated system, with topk left out, in a fresh workspace."""
    folder, place = _released(tmp_path, MODULATED_RELEASE)
    text = " ".join((place / "data/statements/modulated/generated/one_shot_floor-5.txt").read_text().split())
    assert "release. The noise is drawn from the operating system's entropy" in text
    summary = (place / "report/summary.txt").read_text()
    assert "Modulated regression, released" in summary
    assert "TP-TopK" not in summary
    page = (place / "report/index.html").read_text()
    assert "Released: the coefficients lie in" in page
    assert "No fit of the modulated system is finished yet" not in page
    assert len((folder / "ledger/releases.jsonl").read_text().splitlines()) == 1


DIVERGENCE_RELEASE = (
    "privacy.mode=release",
    "topk.grid={datasets: [], references: [], methods: [dense], epsilons: [3], seeds: null}",
    "topk.audit.datasets=[]",
    "topk.membership.datasets=[]",
    "topk.membership.blocks=[]",
    "modulated.grid.datasets=[]",
    "modulated.attack.datasets=[]",
    "divergence.grid={datasets: [generated_population], comparisons: [codes], methods: [all_cells], epsilons: [1], seeds: null}",
    "divergence.train.drift=series",
    "divergence.train.drift_shares=[0.5]",
    "divergence.timeline.datasets=[]",
    "divergence.attack.datasets=[]",
    NO_RADIOMAP,
)


@pytest.mark.slow
def test_a_released_divergence_ends_with_a_statement_and_one_charge(tmp_path: Path) -> None:
    folder, place = _released(tmp_path, DIVERGENCE_RELEASE)
    statement = place / "data/statements/divergence/generated_population/all_cells-1.txt"
    text = " ".join(statement.read_text().split())
    assert "release. The noise is drawn by an exact discrete sampler" in text
    assert len((folder / "ledger/releases.jsonl").read_text().splitlines()) == 1
