"""A stage that dies goes on from its last checkpoint and leaves the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sfumato.params import Params, merged, parse, read_yaml
from sfumato.topk.state import State
from tasks import checkpoints, prepare
from tasks.command import Call
from tasks.topk import cells, train, warmup
from tests.cases import quick_ones

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "topk": {
        "grid": {
            "datasets": ["digits"],
            "references": [],
            "methods": ["tp_topk"],
            "epsilons": [3],
            "seeds": [0, 1],
        },
        "warmup": {"steps": 4},
        "train": {"steps": 8, "probe_examples": 32},
        "audit": {"datasets": []},
    }
}
CELL = {"dataset": "digits", "method": "tp_topk", "epsilon": "3"}


def _params() -> Params:
    return parse(merged(read_yaml(ROOT / "params.yaml"), SMALL))


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    prepare.prepare(Call(_params(), folder, "", {"dataset": "digits"}))
    warmup.run(Call(_params(), folder, "topk", {"dataset": "digits", "epsilon": "3"}))
    return folder


def _save_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    save = checkpoints.Checkpoints.save
    monkeypatch.setattr(
        checkpoints.Checkpoints, "save", lambda self, name, state, force=True: save(self, name, state, True)
    )


def _outputs(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "data").rglob("*-tp_topk-3.*"))
    }


@pytest.mark.parametrize(("seed", "step"), quick_ones([("0", 7), ("1", 9)], {("1", 9)}))
def test_a_killed_fit_resumes_with_the_same_bits(
    warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str, step: int
) -> None:
    _save_at_every_step(monkeypatch)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        shutil.copytree(warm / "data", folder / "data")
    train.run(Call(_params(), whole, "topk", CELL))

    steps: list[tuple[str, int]] = []
    real = cells.observer

    def dying(call: Call, label: str, total: int, save: Callable[[State], None]) -> Callable[[State], None]:
        observe = real(call, label, total, save)

        def observed(state: State) -> None:
            observe(state)
            steps.append((label, state.step))
            if (label, state.step) == (seed, step) and len(steps) < 20 and not resumed:
                raise KeyboardInterrupt

        return observed

    resumed: list[bool] = []
    monkeypatch.setattr(cells, "observer", dying)
    with pytest.raises(KeyboardInterrupt):
        train.run(Call(_params(), broken, "topk", CELL))
    assert not _outputs(broken)
    resumed.append(True)
    steps.clear()
    train.run(Call(_params(), broken, "topk", CELL))
    assert steps[0] == (seed, step + 1)
    assert _outputs(broken) == _outputs(whole)
    assert not list((broken / ".runtime/checkpoints").iterdir())


def test_another_parameter_never_sees_the_checkpoint(
    warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save_at_every_step(monkeypatch)
    shutil.copytree(warm / "data", tmp_path / "data")
    seen: list[int] = []

    def dies(_call: Call, _label: str, _total: int, save: Callable[[State], None]) -> Callable[[State], None]:
        def observed(state: State) -> None:
            save(state)
            seen.append(state.step)
            if len(seen) == 3:
                raise KeyboardInterrupt

        return observed

    monkeypatch.setattr(cells, "observer", dies)
    with pytest.raises(KeyboardInterrupt):
        train.run(Call(_params(), tmp_path, "topk", CELL))
    changed: Any = merged(SMALL, {"topk": {"train": {"active_ratio": 0.2}}})
    train.run(Call(parse(merged(read_yaml(ROOT / "params.yaml"), changed)), tmp_path, "topk", CELL))
    assert seen[3] == 5
