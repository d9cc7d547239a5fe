"""On another CPU class the tree stays clean, and the next run is cached."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows import committed
from flows.committed import active_files, put_local_in_place, read_committed, settle
from flows.graph import GraphResult, run_graph
from tests.flows import toy

TARGETS = ["topk-train@a-1"]
METRICS = "data/metrics/topk/train/a-dense-1.json"


@pytest.fixture
def published(undisturbed: Path, tmp_path: Path, server: str) -> Path:
    """The toy after a run, with its dvc.lock and metrics committed."""
    root = toy.copied(undisturbed, tmp_path / "toy", git=True)
    toy.run_git(root, "add", "-A")
    toy.run_git(root, "commit", "-qm", "run")
    return root


def again(root: Path) -> GraphResult:
    """Make the stage's outputs anew, as on a machine without the cache."""
    import shutil

    shutil.rmtree(root / ".dvc" / "cache")
    (root / METRICS).unlink()
    (root / "data/plots/topk/train/a-dense-1.csv").unlink()
    return run_graph(root, TARGETS)


def is_clean(root: Path) -> bool:
    return toy.run_git(root, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [
        pytest.param("0", "bitwise", marks=pytest.mark.slow),
        ("0.25", "within_tolerance"),
        pytest.param("3", "differs", marks=pytest.mark.slow),
    ],
)
def test_run_is_judged_and_the_tree_left_clean(
    published: Path, monkeypatch: pytest.MonkeyPatch, shift: str, verdict: str
) -> None:
    monkeypatch.setenv("TOY_CPU", shift)
    assert again(published).count("ran") == 2
    assert settle(published) == verdict
    assert is_clean(published)
    document = json.loads((published / "report/reproduction.json").read_text())
    assert document["verdict"] == verdict
    assert len(document["differences"]) == (0 if shift == "0" else 2)
    if shift == "0":
        assert active_files(published) == (published / "dvc.lock", published)
        return
    assert active_files(published) == (published / "report/local/dvc.lock", published / "report/local")
    assert put_local_in_place(published)
    assert run_graph(published, TARGETS).count("cached") == 2
    assert settle(published) == verdict
    assert is_clean(published)


@pytest.mark.parametrize("change", [pytest.param("params", marks=pytest.mark.slow), "library"])
def test_changed_parameters_or_code_are_left_as_they_are(published: Path, change: str) -> None:
    if change == "params":
        toy.set_params(published, scale=5)
    else:
        (published / "library/arithmetic.py").write_text("def value(base, scale, seed):\n    return 1.0\n")
    run_graph(published, TARGETS)
    before = toy.contents(published)
    assert settle(published) is None
    assert toy.contents(published) == before
    assert not put_local_in_place(published)


def test_outside_of_git_nothing_is_touched(repository: Path) -> None:
    (repository / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    assert read_committed(repository) is None
    assert settle(repository) is None
    assert not put_local_in_place(repository)


class KilledError(BaseException):
    """Stands for a kill at a write."""


def killed_at(write: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the n-th file operation of the module be the last one."""
    left = [write]

    def guarded(action: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*arguments: object, **options: object) -> object:
            if left[0] == 0:
                raise KilledError
            left[0] -= 1
            return action(*arguments, **options)

        return wrapper

    monkeypatch.setattr(committed, "write_bytes", guarded(committed.write_bytes))
    monkeypatch.setattr(committed, "write_json", guarded(committed.write_json))
    monkeypatch.setattr(committed.shutil, "rmtree", guarded(committed.shutil.rmtree))


def test_kill_between_any_two_writes_leaves_a_tree_that_the_next_run_completes(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_CPU", "0.25")
    again(published)
    own = toy.contents(published)
    for action in (settle, put_local_in_place):
        for write in range(20):
            with monkeypatch.context() as patch:
                killed_at(write, patch)
                try:
                    action(published)
                    break
                except KilledError:
                    pass
            put_local_in_place(published)
            assert {name: own[name] for name in (METRICS, "dvc.lock")} == {
                name: (published / name).read_bytes() for name in (METRICS, "dvc.lock")
            }, (action.__name__, write)
            if action is put_local_in_place:
                settle(published)
        else:
            pytest.fail("the action never came to its end")
        assert write > 1
    settle(published)
    assert is_clean(published)
