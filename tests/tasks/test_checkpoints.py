from __future__ import annotations

from pathlib import Path

import torch

from sfumato.dpsgd import Support
from sfumato.ledger import EventLedger
from sfumato.mechanisms import subsampled_gaussian
from sfumato.params import load
from sfumato.topk.scores import ScoreStatistics
from sfumato.topk.state import State
from tasks.checkpoints import Checkpoints, run_key
from tasks.command import Call

ROOT = Path(__file__).resolve().parents[2]


def _state(step: int) -> State:
    ledger = EventLedger()
    for _ in range(step):
        ledger.record(subsampled_gaussian(0.01, 1.0, 1), realised_batch_size=0)
    return State(
        step,
        torch.arange(4.0),
        {"momentum": torch.ones(4)},
        Support.of([1, 3], 4),
        ScoreStatistics.zeros(4),
        ledger,
    )


def test_a_saved_state_comes_back_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints.of(tmp_path, "k" * 64, State.from_tensors)
    checkpoints.save("0", _state(3), force=True)
    loaded = checkpoints.load("0")
    assert loaded is not None
    assert loaded.step == 3
    assert loaded.ledger.empty_batches == 3
    assert loaded.ledger.to_json() == _state(3).ledger.to_json()
    assert torch.equal(loaded.parameters, torch.arange(4.0))
    assert loaded.support == Support.of([1, 3], 4)


def test_saves_are_spaced_by_the_interval(tmp_path: Path) -> None:
    now = [0.0]
    checkpoints = Checkpoints(tmp_path, interval=10.0, clock=lambda: now[0], restore=State.from_tensors)
    checkpoints.save("0", _state(1))
    assert checkpoints.load("0") is None
    now[0] = 11.0
    checkpoints.save("0", _state(2))
    now[0] = 12.0
    checkpoints.save("0", _state(3))
    loaded = checkpoints.load("0")
    assert loaded is not None
    assert loaded.step == 2


def test_a_damaged_checkpoint_counts_as_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints.of(tmp_path, "k" * 64, State.from_tensors)
    checkpoints.save("0", _state(3), force=True)
    path = checkpoints.folder / "0.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    assert checkpoints.load("0") is None


def test_a_key_changes_with_parameters_options_and_inputs(tmp_path: Path) -> None:
    params = load(ROOT / "params.yaml")
    data = tmp_path / "x.npz"
    data.write_bytes(b"1")
    call = Call(params, tmp_path, "topk", {"dataset": "mnist", "epsilon": "3"})
    key = run_key(call, "train", [data])
    assert key == run_key(call, "train", [data])
    assert key != run_key(call, "warmup", [data])
    assert key != run_key(
        Call(params, tmp_path, "topk", {"dataset": "mnist", "epsilon": "1"}), "train", [data]
    )
    other = params.model_copy(update={"privacy": params.privacy.model_copy(update={"delta": 1e-6})})
    assert key != run_key(Call(other, tmp_path, "topk", call.options), "train", [data])
    data.write_bytes(b"2")
    assert key != run_key(call, "train", [data])
