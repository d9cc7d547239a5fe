"""A run with other parameters leaves the user's tree alone and shares the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.errors import FlowError, StageFailedError
from flows.profiles import assignment, check_parameters, merged_text, read_profile
from flows.workspace import Request, run_request, working_files
from sfumato.errors import SfumatoError


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file that is the user's: all but caches, results and run-time files."""
    skipped = (".runtime", ".dvc/cache", ".dvc/tmp", "results", "data/raw", "ledger", ".git")
    return {
        name: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not (name := path.relative_to(root).as_posix()).startswith(skipped)
    }


def test_the_schema_judges_parameters_of_this_tree_before_anything_runs() -> None:
    """The early check finds the schema where it lies; otherwise every mistake would surface in a stage."""
    root = Path(__file__).resolve().parents[2]
    check_parameters(root)
    good = (root / "params.yaml").read_text()
    for key, wrong in (("shrinkage: 0.0", "shrinkage: 1"), ("seeds: [0, 1, 2]", "seeds: null")):
        assert key in good
        with pytest.raises(SfumatoError, match="allowed is"):
            check_parameters(root, good.replace(key, wrong, 1))


@pytest.mark.slow
def test_profile_runs_every_variant_and_publishes_its_figures(repository: Path, server: str) -> None:
    before = snapshot(repository)
    first = run_request(Request(repository, "tiny", targets=["topk-account"]))
    assert [result.count("ran") for result in first] == [3, 2]  # prepare@a comes from the run cache
    assert snapshot(repository) == before
    low = repository / "results/tiny/topk/low"
    assert '"accuracy": 7.0' in (low / "metrics/train/a-dense-1.json").read_text()
    assert not (low / "statements").exists()  # made again from the recorded parameters
    high = json.loads((repository / "results/tiny/topk/high/provenance.json").read_text())
    assert (high["profile"], high["variant"], high["commit"]) == ("tiny", "high", None)
    assert high["command"] == "python -m flows.workspace --profile tiny topk-account"
    assert len(high["params_sha256"]) == len(high["dvc_lock_sha256"]) == 64
    assert not (repository / ".runtime/workspaces/tiny/low").exists()
    stamps = {path: path.stat().st_mtime_ns for path in (repository / "results").rglob("*") if path.is_file()}
    again = run_request(Request(repository, "tiny", targets=["topk-account"]))
    assert [result.count("ran") for result in again] == [0, 0]
    assert stamps == {
        path: path.stat().st_mtime_ns for path in (repository / "results").rglob("*") if path.is_file()
    }


def test_failed_variant_keeps_and_publishes_what_was_finished(repository: Path, server: str) -> None:
    profile = repository / "profiles/tiny.yaml"
    profile.write_text("params: {toy: {datasets: [a], fail: 'a-3'}}\n")
    with pytest.raises(StageFailedError, match="a-3"):
        run_request(Request(repository, "tiny", targets=["topk-train"], workers=1))
    found = sorted(path.name for path in (repository / "results").rglob("*.json"))
    assert found == ["a-dense-1.json", "provenance.json"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"targets": ["topk-tarin"]}, "target 'topk-tarin' is not in the graph"),
        ({"targets": ["topk-train@b-dense-1"]}, "is not in the graph"),
        ({"workers": 0}, "workers is 0; allowed are integers of at least 1"),
    ],
)
def test_a_wrong_target_or_number_of_workers_makes_no_workspace(
    repository: Path, options: dict[str, Any], sentence: str
) -> None:
    (repository / "profiles/tiny.yaml").write_text("params: {toy: {datasets: [a]}}\n")
    before = sorted(path for path in repository.rglob("*") if ".dvc/tmp" not in str(path))
    with pytest.raises(FlowError, match=sentence):
        run_request(Request(repository, "tiny", **options))
    assert sorted(path for path in repository.rglob("*") if ".dvc/tmp" not in str(path)) == before


@pytest.mark.slow
def test_overrides_alone_are_not_published(
    repository: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_request(Request(repository, overrides={"toy.scale": 4}, targets=["other-train"], keep=True))
    said = capsys.readouterr().out
    assert "Compare:  make ui" in said
    assert "Files:    .runtime/workspaces/custom-" in said
    assert "Figures:" not in said
    (workspace,) = (repository / ".runtime/workspaces").glob("custom-*/base")
    assert "scale: 4  # a factor" in (workspace / "params.yaml").read_text()
    assert (workspace / "ledger").resolve() == repository / "ledger"
    assert (workspace / "data/raw").resolve() == repository / "data/raw"
    assert not (repository / "results").exists()
    assert "scale: 2  # a factor" in (repository / "params.yaml").read_text()


def test_file_that_was_removed_goes_from_the_workspace_too(repository: Path) -> None:
    from flows.workspace import prepare

    (repository / "notes.txt").write_text("x")
    folder = prepare(repository, repository / ".runtime/workspaces/p/v", "toy: {}\n")
    assert (folder / "notes.txt").exists()
    (repository / "notes.txt").unlink()
    prepare(repository, folder, "toy: {}\n")
    assert not (folder / "notes.txt").exists()
    assert (folder / "step.py").exists()


def test_copy_follows_git_where_there_is_git(git_repository: Path) -> None:
    (git_repository / "junk.pyc").write_text("x")
    (git_repository / ".gitignore").write_text("*.pyc\n")
    names = working_files(git_repository)
    assert "junk.pyc" not in names
    assert {"step.py", ".dvc/config", "profiles/tiny.yaml", "params.yaml"} <= set(names)


def test_folders_that_stages_read_exist_in_a_workspace_too(git_repository: Path) -> None:
    for name in ("audit/.gitkeep", "audit/old.json"):
        path = git_repository / "data/metrics" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    names = working_files(git_repository)
    assert "data/metrics/audit/.gitkeep" in names
    assert "data/metrics/audit/old.json" not in names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "tiny.yaml"),
        ("paramz: {}", "'paramz'; allowed are params, publish, variants"),
        ("variants: [{nam: x}]", "'nam'; allowed are name, params, targets"),
        ("variants: [{name: ../x}]", "'../x'; allowed are letters"),
        ("variants: [{name: x}, {name: x}]", "share a name"),
        ("variants: [{name: x, targets: 3}]", "targets of variant x is 3"),
        ("publish: maybe", "'maybe'; allowed are true and false"),
        ("params: [1", "not YAML"),
    ],
)
def test_wrong_profile_is_one_sentence_and_changes_nothing(repository: Path, text: str, message: str) -> None:
    (repository / "profiles/tiny.yaml").write_text(text)
    before = snapshot(repository)
    with pytest.raises(FlowError, match=message.replace("[", r"\[")) as caught:
        run_request(Request(repository, "tiny"))
    assert "\n" not in str(caught.value)
    assert snapshot(repository) == before
    assert not (repository / ".runtime").exists()


def test_unknown_profile_variant_and_assignment_name_what_is_allowed(repository: Path) -> None:
    with pytest.raises(FlowError, match="'big' is not in profiles/; allowed are tiny"):
        read_profile(repository, "big")
    with pytest.raises(FlowError, match="'mid' is not in profile tiny; allowed are low, high"):
        read_profile(repository, "tiny").chosen("mid")
    for text in ("toy.scale", "=1", "toy..scale=1"):
        with pytest.raises(FlowError, match="allowed is key=value"):
            assignment(text)
    with pytest.raises(FlowError, match="goes through scale"):
        merged_text(repository, {}, {"toy.scale.x": 1})


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", "0.00001"])
def test_small_numbers_are_numbers_in_every_spelling(text: str) -> None:
    assert assignment(f"privacy.delta={text}") == ("privacy.delta", 1e-5)
