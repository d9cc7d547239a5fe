from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sfumato.dpsgd import get_engine
from sfumato.errors import SfumatoError, UnsupportedLayerError
from sfumato.guarantee import PrivacyStatement, TuningCost
from sfumato.ledger import EventLedger
from sfumato.mechanisms import subsampled_gaussian_step
from sfumato.rng import Streams
from sfumato.topk import TwoPhasePlan, fit
from sfumato.topk.statement import privacy_statement

ROOT = Path(__file__).resolve().parents[3]
PLAN = TwoPhasePlan(expected_batch_size=30, warmup_steps=4, train_steps=6).calibrate(2.0, 1e-5, 500)


def _rows() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.from_numpy(Streams(0).stream("rows").standard_normal((480, 5))).float()
    return inputs, (inputs[:, 0] > 0).long()


def test_the_readme_example_runs_in_at_most_twelve_lines() -> None:
    text = (ROOT / "README.md").read_text()
    blocks: list[str] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    blocks = [block for block in blocks if "sfumato.topk" in block]
    assert len(blocks) == 1
    lines = [line for line in blocks[0].splitlines() if line.strip()]
    assert len(lines) <= 12
    small = blocks[0].replace("50_000", "2_000")
    names: dict[str, Any] = {}
    exec(compile(small, "README.md", "exec"), names)
    assert names["result"].epsilon <= 3.0


def test_the_statement_is_complete_and_survives_a_round_trip() -> None:
    result = fit(PLAN, nn.Linear(5, 2), *_rows(), Streams(0))
    statement = result.statement(TuningCost(16, "private_data"))
    assert statement == PrivacyStatement.from_json(statement.to_json())
    text = statement.to_text()
    for part in ("add", "one training example", "16", "simulation", "500"):
        assert part in text
    assert statement.epsilon is not None
    assert statement.epsilon <= 2.0


def test_release_mode_draws_from_the_system_and_does_not_count_empty_batches() -> None:
    module = nn.Linear(5, 2)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    first = fit(PLAN, module, *_rows(), Streams(None, "release"))
    weights = first.state.parameters.clone()
    module.load_state_dict(start)
    second = fit(PLAN, module, *_rows(), Streams(None, "release"))
    assert not torch.equal(weights, second.state.parameters)
    assert first.statement().mode == "release"
    assert "was not counted" in first.statement().to_text().replace("\n", " ").replace("  ", " ")


def test_a_module_that_mixes_examples_in_its_own_code_is_refused() -> None:
    class Centered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x - x.mean(0))

    with pytest.raises(SfumatoError):
        fit(PLAN, Centered(), *_rows(), Streams(0))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.SyncBatchNorm(4)])
def test_a_normalisation_over_the_batch_is_refused_by_name(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(5, 4), layer, nn.Linear(4, 2))
    with pytest.raises(UnsupportedLayerError, match=r"1.*BatchNorm.*(GroupNorm|LayerNorm)"):
        fit(PLAN, module, *_rows(), Streams(0))


def test_a_declared_size_is_used_and_not_the_length() -> None:
    inputs, targets = _rows()
    whole = fit(PLAN, nn.Linear(5, 2), inputs, targets, Streams(0))
    fewer = fit(PLAN, nn.Linear(5, 2), inputs[:-1], targets[:-1], Streams(0))
    assert whole.events == fewer.events
    assert whole.epsilon == fewer.epsilon


def test_token_inputs_are_accepted() -> None:
    module = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(12, 2))
    tokens = torch.from_numpy(Streams(0).stream("t").integers(0, 7, (480, 4)))
    result = fit(PLAN, module, tokens, _rows()[1], Streams(0))
    assert result.support.k >= 1


def test_a_statement_of_other_steps_than_the_plan_is_refused() -> None:
    with pytest.raises(
        SfumatoError, match="the ledger recorded no step; allowed is what the plan takes, 10 steps"
    ):
        privacy_statement(PLAN, EventLedger(), "release")
    other = EventLedger()
    other.record(subsampled_gaussian_step(0.1, 50.0))
    with pytest.raises(SfumatoError, match=r"1 steps \(1 at rate 0.1 and noise multiplier 50\)"):
        privacy_statement(PLAN, other, "release")
    result = fit(PLAN, nn.Linear(5, 2), *_rows(), Streams(0))
    once_more = result.state.ledger.copied()
    once_more.record(PLAN.events[-1].event)  # type: ignore[attr-defined]
    with pytest.raises(SfumatoError, match="the ledger recorded 11 steps"):
        privacy_statement(PLAN, once_more, "simulation")


def test_a_plan_without_noise_is_refused_in_words() -> None:
    with pytest.raises(SfumatoError, match="the plan is a TwoPhasePlan; allowed is one with its noise"):
        fit(TwoPhasePlan(), nn.Linear(5, 2), *_rows(), Streams(0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda targets: targets.float(), "targets have dtype torch.float32 and 1 dimensions"),
        (lambda targets: targets[:, None], "targets have dtype torch.int64 and 2 dimensions"),
        (lambda targets: targets + 1, "targets range from 1 to 2; allowed are classes from 0 to 1"),
        (lambda targets: targets - 1, "targets range from -1 to 0; allowed are classes from 0 to 1"),
    ],
)
def test_targets_that_are_no_classes_are_refused_before_a_step(change: Any, sentence: str) -> None:
    inputs, targets = _rows()
    taken: list[object] = []
    with pytest.raises(SfumatoError, match=sentence):
        fit(PLAN, nn.Linear(5, 2), inputs, change(targets), Streams(0), observer=taken.append)
    assert taken == []


class Centre(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows - rows.mean(dim=0)


@pytest.mark.parametrize("engine", ["functional", "opacus"])
def test_mixing_behind_an_embedding_is_refused_too(engine: Any) -> None:
    module = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), Centre(), nn.Linear(12, 2))
    tokens = torch.from_numpy(Streams(0).stream("tokens").integers(0, 7, (480, 3)))
    with pytest.raises(UnsupportedLayerError, match="mixes the examples"):
        fit(PLAN, module, tokens, torch.zeros(480, dtype=torch.int64), Streams(0), engine=get_engine(engine))


def test_the_statement_names_the_steps_that_choose_the_support_anew() -> None:
    plan = TwoPhasePlan(
        method="on_topk",
        expected_batch_size=30,
        warmup_steps=4,
        train_steps=6,
        reselect_every=2,
        clip_norm_warmup=0.25,
    )
    result = fit(plan.calibrate(2.0, 1e-5, 500), nn.Linear(5, 2), *_rows(), Streams(0))
    words = " ".join(result.statement().to_text().split())
    assert (
        "every 2 steps of phase train a step is taken on all coordinates, clipped to the warm-up's norm 0.25"
        in words
    )


def test_what_is_no_module_is_refused_in_words() -> None:
    with pytest.raises(SfumatoError, match=r"module is a function; allowed is a torch\.nn\.Module"):
        fit(PLAN, lambda rows: rows, *_rows(), Streams(0))  # type: ignore[arg-type]
