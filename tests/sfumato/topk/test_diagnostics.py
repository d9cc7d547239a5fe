from __future__ import annotations

import dataclasses

import pytest
import torch

from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.diagnostics import diagnose
from sfumato.topk.models import build
from sfumato.topk.plan import Method, TwoPhasePlan
from sfumato.topk.probe import Probe
from sfumato.topk.state import State
from sfumato.topk.theory import restriction_benefit
from sfumato.topk.training import Problem, begin, first_support, run

PLAN = TwoPhasePlan(expected_batch_size=200, warmup_steps=10, train_steps=10, active_ratio=0.2)


def _warm(method: Method) -> tuple[Problem, State]:
    inputs = torch.from_numpy(Streams(5).stream("rows").standard_normal((1500, 10))).float()
    targets = (inputs[:, 0] > 0).long()
    module = build("mlp", (10,), 2, Streams(0).stream("init"))
    problem = Problem(module, inputs[:1000], targets[:1000], probe=Probe(inputs[1000:], targets[1000:]))
    calibrated = dataclasses.replace(PLAN, method=method).calibrate(20.0, 1e-5, 1000)
    return problem, run(problem, calibrated, Streams(0), begin(problem, calibrated), until=10)


def test_a_learned_support_keeps_more_energy_than_a_random_one() -> None:
    kept = {}
    for method in ("tp_topk", "tp_rand"):
        problem, warm = _warm(method)
        calibrated = dataclasses.replace(PLAN, method=method).calibrate(20.0, 1e-5, 1000)
        support = first_support(problem, calibrated, Streams(0), warm)
        found = diagnose(problem, calibrated, warm, support, Streams(0), calibrated.dense_noise_std())
        assert found is not None
        kept[method] = found.retained_energy
        if method == "tp_topk":
            assert found.ranking is not None
            assert found.ranking.overlap > found.ranking.chance_overlap
            assert set(found.to_values()) >= {"misranked", "misranked_predicted", "top_overlap"}
        else:
            assert found.ranking is None
    assert kept["tp_topk"] > kept["tp_rand"]


def test_energies_add_up_and_noise_is_k_over_d() -> None:
    problem, warm = _warm("tp_topk")
    calibrated = PLAN.calibrate(20.0, 1e-5, 1000)
    support = first_support(problem, calibrated, Streams(0), warm)
    found = diagnose(problem, calibrated, warm, support, Streams(0), calibrated.dense_noise_std())
    assert found is not None
    total = found.dropped_energy / (1 - found.retained_energy)
    assert found.dropped_energy + found.retained_energy * total == pytest.approx(total)
    assert found.noise_energy_active / found.noise_energy_dense == pytest.approx(support.k / support.d)
    saved = found.noise_energy_dense - found.noise_energy_active
    assert found.beneficial == (found.dropped_energy < saved)


def test_a_dense_step_of_the_whole_budget_has_the_noise_of_the_dense_plan() -> None:
    problem, warm = _warm("tp_topk")
    calibrated = PLAN.calibrate(20.0, 1e-5, 1000)
    dense = dataclasses.replace(PLAN, method="dense").calibrate(20.0, 1e-5, 1000)
    assert calibrated.dense_noise_std() == dense.noise_std(dense.phases[0])
    stingy = dataclasses.replace(PLAN, warmup_budget_share=0.02).calibrate(20.0, 1e-5, 1000)
    generous = dataclasses.replace(PLAN, warmup_budget_share=0.95).calibrate(20.0, 1e-5, 1000)
    assert stingy.noise_std(stingy.phases[1]) < dense.noise_std(dense.phases[0])
    assert generous.noise_std(generous.phases[1]) > dense.noise_std(dense.phases[0])
    support = first_support(problem, calibrated, Streams(0), warm)
    found = diagnose(problem, calibrated, warm, support, Streams(0), calibrated.dense_noise_std())
    assert found is not None
    assert found.noise_energy_dense_budget == pytest.approx(support.d * calibrated.dense_noise_std() ** 2)
    strict = restriction_benefit(
        found.dropped_energy,
        support.d,
        support.k,
        calibrated.noise_std(calibrated.phases[1]),
        calibrated.dense_noise_std(),
    )
    assert found.beneficial_at_equal_budget == strict.beneficial


def test_without_privacy_there_is_no_dense_noise() -> None:
    open_plan = dataclasses.replace(PLAN, method="non_private").calibrate(None, 1e-5, 1000)
    with pytest.raises(SfumatoError, match="non_private"):
        open_plan.dense_noise_std()


def test_nothing_is_measured_without_a_probe_or_a_warmup() -> None:
    problem, warm = _warm("tp_topk")
    calibrated = PLAN.calibrate(20.0, 1e-5, 1000)
    blind = dataclasses.replace(problem, probe=None)
    assert diagnose(blind, calibrated, warm, warm.support, Streams(0), 0.1) is None
    dense = dataclasses.replace(PLAN, method="dense").calibrate(20.0, 1e-5, 1000)
    assert diagnose(problem, dense, warm, warm.support, Streams(0), 0.1) is None
