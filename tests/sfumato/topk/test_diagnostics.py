from __future__ import annotations

import dataclasses

import pytest
import torch

from sfumato.rng import Streams
from sfumato.topk.diagnostics import diagnose
from sfumato.topk.models import build
from sfumato.topk.plan import Method, TwoPhasePlan
from sfumato.topk.probe import Probe
from sfumato.topk.state import State
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
        found = diagnose(problem, calibrated, warm, support, Streams(0))
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
    found = diagnose(problem, calibrated, warm, support, Streams(0))
    assert found is not None
    total = found.dropped_energy / (1 - found.retained_energy)
    assert found.dropped_energy + found.retained_energy * total == pytest.approx(total)
    assert found.noise_energy_active / found.noise_energy_dense == pytest.approx(support.k / support.d)
    saved = found.noise_energy_dense - found.noise_energy_active
    assert found.beneficial == (found.dropped_energy < saved)


def test_nothing_is_measured_without_a_probe_or_a_warmup() -> None:
    problem, warm = _warm("tp_topk")
    calibrated = PLAN.calibrate(20.0, 1e-5, 1000)
    blind = dataclasses.replace(problem, probe=None)
    assert diagnose(blind, calibrated, warm, warm.support, Streams(0)) is None
    dense = dataclasses.replace(PLAN, method="dense").calibrate(20.0, 1e-5, 1000)
    assert diagnose(problem, dense, warm, warm.support, Streams(0)) is None
