from __future__ import annotations

import numpy as np
import pytest
import torch

from sfumato.attacks.lira import lira_attack
from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.models import build
from sfumato.topk.plan import TwoPhasePlan
from sfumato.topk.shadow import shadow_confidences, shadow_members
from sfumato.topk.training import Problem


def _problem(rows: int) -> Problem:
    inputs = torch.from_numpy(Streams(5).stream("rows").standard_normal((rows, 40))).float()
    targets = torch.from_numpy(Streams(5).stream("labels").integers(0, 2, rows))
    return Problem(build("mlp", (40,), 2, Streams(0).stream("init")), inputs, targets)


def test_every_attacked_row_is_in_half_of_the_shadow_models() -> None:
    rows = np.stack([shadow_members(6, 50, model, Streams(0)) for model in range(6)])
    assert (rows.sum(axis=0) == 3).all()


def test_a_shadow_model_never_sees_the_rows_left_out() -> None:
    problem = _problem(120)
    plan = TwoPhasePlan(expected_batch_size=60, warmup_steps=2, train_steps=2).calibrate(5.0, 1e-5, 120)
    members = shadow_members(2, 40, 0, Streams(0))
    poisoned = problem.inputs.clone()
    poisoned[:40][torch.from_numpy(members) == 0] = 1e6
    first = shadow_confidences(problem, plan, members, Streams(1))
    other = Problem(problem.module, poisoned, problem.targets)
    second = shadow_confidences(other, plan, members, Streams(1))
    inside = members == 1
    assert np.array_equal(first[inside], second[inside])


@pytest.mark.slow
def test_lira_finds_the_members_of_an_overfitted_model() -> None:
    """Random labels, no privacy: the only way to fit them is to remember the rows."""
    problem = _problem(100)
    plan = TwoPhasePlan(
        method="non_private",
        expected_batch_size=40,
        warmup_steps=50,
        train_steps=200,
        learning_rate_train=0.1,
    ).calibrate(None, 1e-5, 100)
    members = np.stack([shadow_members(8, 100, model, Streams(0)) for model in range(8)])
    confidences = np.stack(
        [shadow_confidences(problem, plan, row, Streams(10 + i)) for i, row in enumerate(members)]
    )
    result = lira_attack(
        confidences, members.astype(bool), Streams(0).stream("attack"), shadow_models=8, delta=1e-5
    )
    assert result.membership.auc > 0.75  # 400 pairs: the null is 0.5 with a standard error of 0.02


def test_more_attacked_rows_than_training_rows_are_refused() -> None:
    plan = TwoPhasePlan(expected_batch_size=10, warmup_steps=1, train_steps=1).calibrate(5.0, 1e-5, 100)
    with pytest.raises(SfumatoError, match="examples is 200"):
        shadow_confidences(_problem(100), plan, np.ones(200, dtype=np.int64), Streams(0))
    with pytest.raises(SfumatoError, match="shadow model is 4"):
        shadow_members(4, 10, 4, Streams(0))
