"""The audit stays below an honest claim and above one whose noise is too small. Seeds are fixed."""

from __future__ import annotations

import pytest

from sfumato.divergence.audited import audit_release
from sfumato.divergence.evaluation import evaluate
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import Reference, all_points, draw_points
from sfumato.divergence.sensitivity import sensitivity
from sfumato.mechanisms import Gaussian
from sfumato.rng import Streams

REFERENCE = Reference.from_probabilities([0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("floor", [Floor("mix", 0.1), Floor("clip", 0.2, 3.0)])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("draws", [0, 5])
def test_a_hundred_thousand_releases_bound_epsilon_from_below_and_never_above_the_claim(
    floor: Floor, epsilon: float, draws: int
) -> None:
    """At 99.9 % confidence a bound above the claim has probability 1e-3 each; a good audit comes within a half of it."""
    points = draw_points(REFERENCE, draws, Streams(1).stream("points")) if draws else all_points(REFERENCE)
    found = audit_release(
        points,
        REFERENCE,
        500,
        EstimatorPlan(floor, 0.5),
        epsilon,
        1e-5,
        runs=100_000,
        stream=Streams(0).stream("attack"),
        confidence=0.999,
    )
    assert found.holds
    assert found.bound.epsilon_lower > 0.4 * epsilon
    assert found.ceiling > found.bound.epsilon_lower


def test_the_audited_pair_is_as_far_apart_as_the_noise_is_calibrated_to() -> None:
    plan = EstimatorPlan(Floor("mix", 0.1), 0.0)
    points = all_points(REFERENCE)
    found = audit_release(
        points, REFERENCE, 500, plan, 1.0, 1e-5, runs=1000, stream=Streams(0).stream("attack")
    )
    moved = sensitivity(points, REFERENCE, 500, plan)
    assert found.distance == pytest.approx(moved.exact)
    before, after = found.neighbors.populations(4, 500)
    values = [evaluate(counts, 500, points, REFERENCE, plan) for counts in (before, after)]
    assert abs(values[1] - values[0]) == pytest.approx(moved.exact)
    assert abs(after - before).sum() == 2


def test_noise_that_is_too_small_by_half_is_caught() -> None:
    plan, points = EstimatorPlan(Floor("mix", 0.1), 0.0), all_points(REFERENCE)
    moved = sensitivity(points, REFERENCE, 500, plan)
    weak = Gaussian(moved.exact, 0.4, "replace_one")
    found = audit_release(
        points,
        REFERENCE,
        500,
        plan,
        1.0,
        1e-5,
        runs=100_000,
        stream=Streams(0).stream("attack"),
        mechanism=weak,
    )
    assert not found.holds
    assert found.bound.epsilon_lower > 1.5
