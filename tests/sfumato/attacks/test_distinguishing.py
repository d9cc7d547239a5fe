from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sfumato.accounting import calibrate_gaussian, gaussian_epsilon
from sfumato.attacks.distinguishing import (
    audit_ceiling,
    audit_local_mechanism,
    fresh_phase_ratio,
    known_phase_ratio,
    opposite_pair,
    shared_phase_ratio,
)
from sfumato.attacks.message_model import MessageModel, unit_directions
from sfumato.errors import SfumatoError
from sfumato.modulated.client import messages
from sfumato.modulated.plan import Domain, ModulatedPlan, Modulation
from sfumato.rng import Streams
from tests.sfumato.attacks.modulated_messages import deviations, draw, rotating, stream

DELTA = 1e-5
# One audit at this level says more than the true epsilon with probability 0.1 % at most.
CONFIDENCE = 0.999


def calibrated(directions, epsilon, amplitude=3.0, scale=0.8):
    """The model whose phase-marginal calibration costs exactly epsilon for samples of norm 1 and all messages."""
    sigma = calibrate_gaussian(epsilon, DELTA, releases=len(directions)) * scale * 2.0
    return MessageModel(directions, scale, amplitude, sigma)


def audit(
    model, pair, runs, ratio=None, true_model=None, phases=None, seed=0, confidence=CONFIDENCE, frequency=4.0
):
    """Of clients who follow ``true_model`` and ``phases``, by the ratio of ``model`` with fresh phases by default."""

    def sampler(sample, count, random):
        return draw(
            np.tile(sample, (count, 1)),
            true_model or model,
            frequency,
            random,
            phases and phases(count, random),
        )

    return audit_local_mechanism(
        sampler,
        *pair,
        ratio or (lambda seen: fresh_phase_ratio(seen[0], *pair, model)),
        runs=runs,
        delta=DELTA,
        confidence=confidence,
        stream=stream(seed),
    )


# ---- the ratios


def test_across_the_directions_the_ratio_is_the_gaussians():
    model = MessageModel(unit_directions(3, 1, 2), 0.8, 5.0, 1.5)
    low, high = opposite_pair(model, 2.0, "across")
    assert np.linalg.norm(low) == np.linalg.norm(high) == pytest.approx(2.0)
    assert low.tolist() == (-high).tolist()
    assert abs(model.directions[0, :, 0] @ high) < 1e-12
    received, _ = draw(np.tile(low, (50, 1)), model, 1.0, stream(0))
    wanted = 0.8 * received.sum(axis=1) @ (high - low) / 1.5**2
    np.testing.assert_allclose(fresh_phase_ratio(received, low, high, model), wanted, atol=1e-8)


def test_the_along_pair_is_where_most_directions_are():
    axes = np.eye(4)[:, :, None][[2, 1, 2]]
    model = MessageModel(axes, 0.8, 5.0, 1.5)
    assert np.abs(opposite_pair(model, 1.0, "along")[1]).tolist() == [0.0, 0.0, 1.0, 0.0]
    assert np.abs(opposite_pair(model, 1.0, "across")[1])[[1, 2]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("amplitude", [0.5, 4.0])
def test_the_mean_of_the_exponential_ratio_is_one_where_the_other_sample_is_the_truth(amplitude):
    # Holds for the density of the real clients alone. Four z-tests at 4.5 standard errors: false alarms below 1e-4
    # by the normal law; the ratio is bounded well enough at this sigma for it to hold.
    model = MessageModel(rotating(3, 1, 2), 0.8, amplitude, 2.0)
    for seed in (0, 1):
        pair = opposite_pair(model, 0.7, ("along", "across")[seed])
        received, _ = draw(np.tile(pair[0], (100_000, 1)), model, 3.0, stream(seed))
        assert abs(deviations(np.exp(fresh_phase_ratio(received, *pair, model)), 1.0)) < 4.5


def test_one_shared_phase_of_a_single_direction_is_a_fresh_one():
    model = MessageModel(rotating(3, 1, 2), 0.8, 9.0, 0.9)
    pair = np.array([0.2, 0.5, -0.4]), np.array([-0.6, 0.1, 0.3])
    received = np.concatenate([draw(np.tile(x, (200, 1)), model, 3.0, stream(2))[0] for x in pair])
    received[0] += 12.0
    np.testing.assert_allclose(
        shared_phase_ratio(received, *pair, model, 3.0), fresh_phase_ratio(received, *pair, model), atol=1e-7
    )


def test_ratio_of_known_phases_is_the_gaussians_around_the_known_centers():
    model = MessageModel(rotating(3, 2, 2), 0.8, 2.0, 0.9)
    pair = np.array([0.2, 0.5, -0.4]), np.array([-0.6, 0.1, 0.3])
    received, phases = draw(np.tile(pair[0], (20, 1)), model, 3.0, stream(3))
    wanted = np.zeros(20)
    for sign, x in zip((-1.0, 1.0), pair, strict=True):
        for t in range(2):
            center = np.tile(0.8 * x, (20, 1))
            for k in range(2):
                v = model.directions[t, :, k]
                center += 2.0 * np.cos(3.0 * (x @ v) + phases[:, t, k])[:, None] * v
            wanted += sign * stats.norm.logpdf(received[:, t], center, 0.9).sum(axis=1)
    np.testing.assert_allclose(known_phase_ratio(received, phases, *pair, model, 3.0), wanted, atol=1e-9)
    fixed = np.zeros((2, 2))
    np.testing.assert_allclose(
        known_phase_ratio(received, fixed, *pair, model, 3.0),
        known_phase_ratio(received, np.zeros_like(phases), *pair, model, 3.0),
        rtol=1e-12,
    )


def test_ratios_change_sign_with_the_pair():
    model = MessageModel(rotating(3, 2, 2), 0.8, 2.0, 0.9)
    low, high = np.array([0.2, 0.5, -0.4]), np.array([-0.6, 0.1, 0.3])
    received, phases = draw(np.tile(low, (20, 1)), model, 3.0, stream(3))
    for ratio in (
        lambda x, y: fresh_phase_ratio(received, x, y, model),
        lambda x, y: known_phase_ratio(received, phases, x, y, model, 3.0),
        lambda x, y: shared_phase_ratio(received, x, y, model, 3.0),
    ):
        assert np.abs(ratio(low, high)).max() > 0.1
        np.testing.assert_allclose(ratio(low, high), -ratio(high, low), atol=1e-12)


# ---- audits of what is right


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 3.0])
def test_bound_of_a_right_mechanism_is_below_its_epsilon_and_more_than_half_of_it(epsilon):
    # The first bound is above epsilon with probability 5 % at most, the second with 0.1 %; seeds are fixed.
    model = calibrated(unit_directions(2, 1), epsilon)
    across = audit(model, opposite_pair(model, 1.0, "across"), 200_000, confidence=0.95)
    along = audit(model, opposite_pair(model, 1.0, "along"), 30_000)
    assert 0.5 * epsilon < across.epsilon_lower <= epsilon
    assert along.epsilon_lower <= epsilon


def test_a_wide_modulation_hides_a_pair_along_it_better_than_the_gaussian_alone():
    model = calibrated(unit_directions(2, 1), 3.0, amplitude=40.0)
    across = audit(model, opposite_pair(model, 1.0, "across"), 60_000)
    along = audit(model, opposite_pair(model, 1.0, "along"), 60_000)
    assert along.epsilon_lower < 0.8 * across.epsilon_lower


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_bound_of_a_composition_is_below_its_epsilon_and_not_far(epsilon):
    # Above epsilon with probability 5 % at most; the seed is fixed.
    model = calibrated(rotating(6, 1, 4), epsilon)
    pair = opposite_pair(model, 1.0, "across")
    bound = audit(model, pair, 60_000, confidence=0.95)
    assert 0.4 * epsilon < bound.epsilon_lower <= epsilon
    once = MessageModel(model.directions[:1], model.scale, model.amplitude, model.sigma)
    single = audit(once, pair, 60_000, confidence=0.95)
    assert single.epsilon_lower < bound.epsilon_lower
    assert single.epsilon_lower <= gaussian_epsilon(2.0 * 0.8 / model.sigma, DELTA)


def test_bounds_of_a_right_mechanism_pass_its_epsilon_no_more_often_than_their_level_allows():
    # At most 5 % each; P[more than 12 of 100] < 0.2 %, and the seeds are fixed. Half of the pairs lie along.
    model = calibrated(unit_directions(2, 1), 1.0, amplitude=1.0)
    above = 0
    for seed in range(100):
        pair = opposite_pair(model, 1.0, ("across", "along")[seed % 2])
        above += audit(model, pair, 4000, seed=seed, confidence=0.95).epsilon_lower > 1.0
    assert above <= 12


@pytest.mark.parametrize(("epsilon", "kind"), [(1.0, "across"), (3.0, "across"), (3.0, "along")])
def test_the_real_client_keeps_what_its_plan_promises(epsilon, kind):
    plan = ModulatedPlan(Domain(4, 1.0), Modulation(0.2, 3.0, 5.0, 2), rounds=3)
    protocol = plan.calibrate(epsilon, DELTA)
    directions = rotating(4, 2, 3) if kind == "along" else unit_directions(4, 2, 3)
    model = MessageModel(directions, 0.8, 3.0 / math.sqrt(2), protocol.noise_std)
    pair = opposite_pair(model, 1.0, kind)

    def sampler(sample, count, random):
        streams = Streams(int(random.integers(0, 2**40, 1)[0]))
        rows, labels = np.tile(sample, (count, 1)), np.zeros(count)
        rounds = [
            np.concatenate(
                [block.features.copy() for block in messages(rows, labels, protocol, V, streams, t)]
            )
            for t, V in enumerate(directions)
        ]
        return np.stack(rounds, axis=1)

    bound = audit_local_mechanism(
        sampler,
        *pair,
        lambda seen: fresh_phase_ratio(seen, *pair, model),
        runs=60_000,
        delta=DELTA,
        confidence=CONFIDENCE,
        stream=stream(1),
    )
    assert 0.3 * epsilon < bound.epsilon_lower <= epsilon


# ---- audits of what is wrong; each bound passes the claim, which chance does in at most 0.1 % of seeds


@pytest.mark.parametrize(("epsilon", "factor"), [(1.0, 0.4), (3.0, 0.5)])
def test_too_little_noise_is_caught(epsilon, factor):
    model = calibrated(unit_directions(2, 1), epsilon)
    wrong = MessageModel(model.directions, model.scale, model.amplitude, factor * model.sigma)
    bound = audit(model, opposite_pair(model, 1.0, "across"), 60_000, true_model=wrong)
    assert bound.epsilon_lower > epsilon


def test_noise_of_one_message_where_many_are_sent_is_caught():
    model = calibrated(unit_directions(2, 1, 8), 2.0)
    once = MessageModel(model.directions, model.scale, model.amplitude, model.sigma / math.sqrt(8))
    bound = audit(once, opposite_pair(model, 1.0, "across"), 50_000)
    assert bound.epsilon_lower > 2.0


def test_revealed_phases_are_caught_and_the_same_messages_without_them_are_not():
    model = calibrated(unit_directions(2, 1), 3.0, amplitude=12.0)
    pair = opposite_pair(model, 1.0, "along")
    frequency = math.pi / 2  # the ends of the domain then are half a period apart

    def ratio(seen):
        return known_phase_ratio(seen[0], seen[1], *pair, model, frequency)

    assert audit(model, pair, 30_000, ratio, frequency=frequency).epsilon_lower > 3.0
    assert audit(model, pair, 30_000, frequency=frequency).epsilon_lower < 3.0


def test_a_phase_that_is_always_zero_is_caught():
    model = calibrated(unit_directions(2, 1), 3.0, amplitude=12.0)
    pair = np.zeros(2), np.array([math.pi / 4.0, 0.0])

    def zero(count, random):
        return np.zeros((count, 1, 1))

    def ratio(seen):
        return known_phase_ratio(seen[0], seen[1], *pair, model, 4.0)

    assert audit(model, pair, 30_000, ratio, phases=zero).epsilon_lower > 3.0
    assert audit(model, pair, 30_000).epsilon_lower < 3.0


@pytest.mark.slow
def test_one_kept_phase_shared_by_two_directions_is_caught_and_two_are_not():
    model = calibrated(unit_directions(3, 2), 3.0, amplitude=12.0)
    pair = np.zeros(3), np.array([math.pi / 8.0, -math.pi / 8.0, 0.0])

    def shared(count, random):
        return 2 * np.pi * random.random((count, 1, 1))

    def ratio(seen):
        return shared_phase_ratio(seen[0], *pair, model, 4.0)

    assert audit(model, pair, 30_000, ratio, phases=shared).epsilon_lower > 3.0
    assert audit(model, pair, 30_000, ratio).epsilon_lower < 3.0


# ---- the audit itself


def test_no_audit_passes_its_ceiling_and_one_without_a_mistake_reaches_it():
    result = audit_local_mechanism(
        lambda sample, count, random: np.full(count, sample[0]) + 0.1 * random.random(count),
        np.zeros(1),
        np.ones(1),
        lambda seen: seen,
        runs=1001,
        delta=1e-3,
        stream=stream(0),
    )
    assert result.epsilon_lower == pytest.approx(audit_ceiling(1001, 1e-3), rel=1e-2)
    assert result.epsilon_lower <= audit_ceiling(1001, 1e-3) + 1e-12
    assert audit_ceiling(200_000, DELTA) > 10.0


def test_every_run_is_scored_once_in_blocks_and_samples_are_not_mixed_up():
    sizes = []

    def sampler(sample, count, random):
        sizes.append((float(sample[0]), count))
        return np.tile(sample, (count, 1))

    result = audit_local_mechanism(
        sampler, np.zeros(1), np.ones(1), lambda seen: seen[:, 0], runs=40_000, delta=0.0, stream=stream(0)
    )
    assert sum(count for value, count in sizes if value == 1.0) == 40_000
    assert sum(count for value, count in sizes if value == 0.0) == 40_000
    assert max(count for _, count in sizes) < 40_000
    assert (result.members, result.nonmembers, result.threshold) == (20_000, 20_000, 1.0)


PLAIN = MessageModel(unit_directions(2, 1), 1.0, 1.0, 1.0)
ONE = np.zeros((1, 1, 2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: opposite_pair(PLAIN, 0.0, "along"), "radius"),
        (lambda: opposite_pair(PLAIN, 1.0, "askew"), "kind"),
        (lambda: known_phase_ratio(ONE, np.zeros((1, 1, 1)), np.zeros(3), np.zeros(2), PLAIN, 1.0), "sample"),
        (lambda: shared_phase_ratio(ONE, np.zeros(2), np.zeros(1), PLAIN, 1.0), "sample"),
        (
            lambda: shared_phase_ratio(
                ONE, np.zeros(2), np.zeros(2), MessageModel(unit_directions(2, 1), 1.0, 1e3, 1.0), 1.0
            ),
            "amplitude",
        ),
        (lambda: fresh_phase_ratio(np.zeros((1, 2)), np.zeros(2), np.zeros(2), PLAIN), "messages"),
        (lambda: audit_ceiling(3, 1e-5), "runs"),
        (lambda: audit_ceiling(100, 1.0), "delta"),
        (lambda: audit(PLAIN, (np.zeros(2), np.zeros(2)), 2), "runs"),
        (lambda: audit(PLAIN, (np.zeros(2), np.zeros(2)), 100, lambda seen: np.zeros(7)), "one per run"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        call()
    assert str(caught.value).count("\n") == 0
