from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from sfumato.dpsgd import ClippedSum, Support, get_engine
from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.audited import AuditSetting, GradientCanaries, audit
from sfumato.topk.models import build
from sfumato.topk.plan import CalibratedPlan, TwoPhasePlan
from sfumato.topk.training import Problem, Release

SETTING = AuditSetting(canaries=300, guesses=100, confidence=0.95)


def _problem() -> tuple[Problem, tuple[torch.Tensor, torch.Tensor]]:
    module = build("mlp", (20,), 2, Streams(1).stream("init"))
    inputs = torch.from_numpy(Streams(2).stream("rows").standard_normal((1000, 20))).float()
    targets = (inputs[:, 0] > 0).long()
    return Problem(module, inputs[:600], targets[:600]), (inputs[600:], targets[600:])


def _plan(**changes: Any) -> TwoPhasePlan:
    base = TwoPhasePlan(expected_batch_size=300, warmup_steps=10, train_steps=30, active_ratio=0.4)
    return dataclasses.replace(base, **changes)


def test_a_correct_mechanism_is_not_refuted() -> None:
    problem, held_out = _problem()
    calibrated = _plan().calibrate(2.0, 1e-5, 600)
    outcome = audit(problem, held_out, 2, calibrated, SETTING, Streams(0))
    # Each bound exceeds a true epsilon with probability at most 5 %; the seed is fixed.
    assert outcome.gradient_space.epsilon_lower <= 2.0
    assert outcome.input_space.epsilon_lower <= 2.0
    assert outcome.gradient_space.ceiling > 2.0


def test_a_mechanism_without_noise_is_caught_whatever_it_claims() -> None:
    problem, held_out = _problem()
    claimed = _plan().calibrate(2.0, 1e-5, 600)
    quiet = CalibratedPlan(claimed.plan, 2.0, 1e-5, 600, tuple(s * 1e-3 for s in claimed.noise_multipliers))
    outcome = audit(problem, held_out, 2, quiet, SETTING, Streams(0))
    assert outcome.gradient_space.epsilon_lower > 2.0


def test_noise_divided_by_the_batch_size_once_too_often_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: noise of std sigma C / B is added to the sum."""
    from sfumato.topk import training

    def wrong(clipped: ClippedSum, clip_norm: float, sigma: float, batch: int, stream: Any) -> torch.Tensor:
        noise = torch.from_numpy(stream.standard_normal(len(clipped.sum))) * sigma * clip_norm / batch
        return ((clipped.sum.double() + noise) / batch).float()

    monkeypatch.setattr(training, "privatize", wrong)
    problem, held_out = _problem()
    calibrated = _plan().calibrate(2.0, 1e-5, 600)
    outcome = audit(problem, held_out, 2, calibrated, SETTING, Streams(0))
    assert outcome.gradient_space.epsilon_lower > 2.0


def test_canaries_are_examples_of_norm_clip_norm_on_the_support() -> None:
    calibrated = dataclasses.replace(_plan(), expected_batch_size=600).calibrate(2.0, 1e-5, 600)
    canaries = GradientCanaries(50, calibrated, Streams(0))
    support = Support.of(torch.arange(0, 1000, 3), 1000)
    planted = canaries.contribute(0, support, 0.7)
    assert planted.shape == (support.k,)
    # Rate 1: every included canary is sampled, and blocks are disjoint.
    assert float(planted.norm()) == pytest.approx(0.7 * np.sqrt(canaries.included.sum()), rel=1e-5)


def test_scores_separate_canaries_where_nothing_else_happens() -> None:
    calibrated = dataclasses.replace(_plan(), expected_batch_size=600).calibrate(50.0, 1e-5, 600)
    canaries = GradientCanaries(60, calibrated, Streams(0))
    support = Support.full(900)
    for step in range(5):
        planted = canaries.contribute(step, support, 1.0)
        canaries.observe(Release(step, support, planted / 600, torch.zeros(900), 1.0, 0.5))
    assert canaries.scores[canaries.included].min() > canaries.scores[~canaries.included].max()


def test_the_audited_rows_leave_the_problem_untouched() -> None:
    problem, held_out = _problem()
    before = problem.inputs.clone()
    audit(problem, held_out, 2, _plan().calibrate(2.0, 1e-5, 600), SETTING, Streams(0))
    assert torch.equal(problem.inputs, before)
    assert problem.canaries is None


def test_more_canaries_than_held_out_rows_are_refused() -> None:
    problem, held_out = _problem()
    with pytest.raises(SfumatoError, match="canaries is 500"):
        audit(
            problem, held_out, 2, _plan().calibrate(2.0, 1e-5, 600), AuditSetting(500, 100, 0.95), Streams(0)
        )
    with pytest.raises(SfumatoError, match="guesses is 20"):
        AuditSetting(10, 20, 0.95)


def test_an_opacus_engine_can_be_audited_too() -> None:
    problem, held_out = _problem()
    problem = dataclasses.replace(problem, engine=get_engine("opacus"))
    calibrated = _plan(warmup_steps=2, train_steps=3).calibrate(2.0, 1e-5, 600)
    outcome = audit(problem, held_out, 2, calibrated, SETTING, Streams(0))
    assert outcome.gradient_space.canaries == 300


def test_an_audit_that_could_say_nothing_is_refused_before_a_step() -> None:
    problem, held_out = _problem()
    taken: list[object] = []
    open_plan = _plan(method="non_private").calibrate(None, 1e-5, 600)
    with pytest.raises(SfumatoError, match="non_private"):
        audit(problem, held_out, 2, open_plan, SETTING, Streams(0), taken.append)
    narrow = _plan(active_ratio=0.01).calibrate(2.0, 1e-5, 600)
    with pytest.raises(SfumatoError, match=r"canaries is 300; allowed is up to \d+, the active coordinates"):
        audit(problem, held_out, 2, narrow, SETTING, Streams(0), taken.append)
    assert taken == []
