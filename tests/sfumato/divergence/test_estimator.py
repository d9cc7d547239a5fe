"""Evaluation, release, batches: values, noise, events, refusals. Seeds are fixed; false-alarm rates beside each test."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from sfumato.accounting import calibrate_gaussian, epsilon, gaussian_epsilon, spent
from sfumato.divergence.estimator import Batch, Estimate, release, release_batches
from sfumato.divergence.evaluation import describe_target, evaluate, exact_divergence, target_divergence
from sfumato.divergence.plan import EstimatorPlan, Floor, Vector
from sfumato.divergence.reference import PublicPoints, Reference, all_points, draw_points
from sfumato.divergence.sensitivity import second_moment_sensitivity, sensitivity
from sfumato.divergence.theory import RatioMoments, batch_bias
from sfumato.errors import SfumatoError
from sfumato.ledger import EventLedger
from sfumato.rng import Streams

REFERENCE = Reference.from_probabilities([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
COUNTS = np.array([2000, 2000, 2500, 1500, 1900, 100])
POPULATION = COUNTS / 10_000
MIX = EstimatorPlan(Floor("mix", 0.1), 0.5)
CLIP = EstimatorPlan(Floor("clip", 0.1, 5.0), 0.5)


def _points(draws: int, key: int = 0) -> PublicPoints:
    return draw_points(REFERENCE, draws, Streams(0).stream("points", key)) if draws else all_points(REFERENCE)


def _release(points: PublicPoints, key: int = 0, plan: EstimatorPlan = MIX, **options: object) -> Estimate:
    stream = Streams(1).stream("noise", key)
    return release(COUNTS[points.cells], 10_000, points, REFERENCE, plan, 1.0, 1e-5, stream, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("floor", [Floor("mix", 0.1), Floor("clip", 0.3, 2.0), Floor("clip", 0.3)])
def test_the_estimate_is_unbiased_for_its_target_at_every_lambda(coefficient: float, floor: Floor) -> None:
    """2,000 draws of 5 points: |z| < 4.2 for each of twelve (false alarm 3e-4)."""
    plan = EstimatorPlan(floor, coefficient)
    values = [
        evaluate(COUNTS[points.cells], 10_000, points, REFERENCE, plan)
        for points in (_points(5, key) for key in range(2000))
    ]
    target = target_divergence(REFERENCE, POPULATION, plan)
    z = (np.mean(values) - target) / (np.std(values) / math.sqrt(len(values)))
    assert abs(z) < 4.2


def test_over_every_cell_the_estimate_is_the_target_itself() -> None:
    for plan in (MIX, CLIP):
        found = evaluate(COUNTS, 10_000, all_points(REFERENCE), REFERENCE, plan)
        assert found == pytest.approx(target_divergence(REFERENCE, POPULATION, plan), rel=1e-12)


def test_the_exact_divergence_is_that_of_the_definition_and_infinite_on_a_missing_cell() -> None:
    own = REFERENCE.probabilities
    assert exact_divergence(REFERENCE, POPULATION) == pytest.approx(float(own @ np.log(own / POPULATION)))
    missing = np.array([0.5, 0.5, 0, 0, 0, 0])
    assert exact_divergence(REFERENCE, missing) == math.inf
    assert target_divergence(REFERENCE, missing, MIX) <= -math.log(0.1)


def test_the_mixed_target_is_a_divergence_below_both_of_its_bounds() -> None:
    for seed in range(50):
        population = np.random.default_rng(seed).dirichlet(np.full(6, 0.4))
        found = target_divergence(REFERENCE, population, MIX)
        mixed = 0.9 * population + 0.1 * REFERENCE.probabilities
        assert found == pytest.approx(exact_divergence(REFERENCE, mixed))
        assert found <= min(-math.log(0.1), 0.9 * exact_divergence(REFERENCE, population)) + 1e-12


def test_noise_has_the_standard_deviation_that_the_exact_gaussian_asks_of_the_realised_points() -> None:
    points = _points(10)
    moved = sensitivity(points, REFERENCE, 10_000, MIX)
    found = _release(points)
    assert found.noise_std == pytest.approx(moved.exact * calibrate_gaussian(1.0, 1e-5), rel=1e-6)
    clean = evaluate(COUNTS[points.cells], 10_000, points, REFERENCE, MIX)
    raws = np.array([_release(points, key).raw for key in range(800)])
    # 800 releases: mean within 4.2, variance within 4.2 standard errors (false alarm 6e-5).
    assert abs(raws.mean() - clean) < 4.2 * found.noise_std / math.sqrt(800)
    assert raws.var() / found.noise_std**2 == pytest.approx(1.0, abs=4.2 * math.sqrt(2 / 800))


@pytest.mark.parametrize(
    "options", [{}, {"sampling": "budget_share"}, {"sampling": "budget_share", "variance_share": 0.7}]
)
def test_the_recorded_events_cost_exactly_the_budget(options: dict[str, object]) -> None:
    found = _release(_points(10), **options)
    ledger = EventLedger()
    for event in found.events:
        ledger.record(event)
    assert len(found.events) == (2 if options else 1)
    assert gaussian_epsilon(spent(ledger.events).mu(2.0), 1e-5) == pytest.approx(1.0, rel=1e-9)
    assert gaussian_epsilon(spent(ledger.events).mu(2.0), 1e-5) <= 1.0 + 1e-12


def test_release_mode_adds_discrete_noise_on_a_grid_whose_price_is_within_the_budget() -> None:
    points = all_points(REFERENCE)
    stream = Streams(None, "release").stream("noise")
    found = [
        release(COUNTS, 10_000, points, REFERENCE, MIX, 1.0, 1e-5, stream, confidence=0.999)
        for _ in range(20)
    ]
    moved = sensitivity(points, REFERENCE, 10_000, MIX)
    step = moved.charged / 1024.0
    assert all(abs(one.raw / step - round(one.raw / step)) < 1e-6 for one in found)
    assert len({one.raw for one in found}) > 1
    assert epsilon(list(found[0].events), 1e-5, "zcdp", "replace_one") <= 1.0 + 1e-9
    assert found[0].noise_std == pytest.approx(moved.exact * calibrate_gaussian(1.0, 1e-5, "zcdp"), rel=2e-3)
    # Twenty intervals at 99.9 %: more than two misses have probability 1e-6.
    target = target_divergence(REFERENCE, POPULATION, MIX)
    assert sum(not one.low <= target <= one.high for one in found) <= 2


def test_release_mode_charges_a_budget_share_within_the_budget_too() -> None:
    points = _points(10)
    stream = Streams(None, "release").stream("noise")
    found = release(
        COUNTS[points.cells], 10_000, points, REFERENCE, MIX, 1.0, 1e-5, stream, sampling="budget_share"
    )
    assert len(found.events) == 2
    assert epsilon(list(found.events), 1e-5, "zcdp", "replace_one") <= 1.0 + 1e-9


def test_the_second_moments_noise_is_that_of_its_own_sensitivity() -> None:
    points = _points(10)
    moved = second_moment_sensitivity(points, REFERENCE, 10_000, MIX, 0.0)
    share, whole = _release(points, sampling="budget_share", variance_share=0.25), _release(points)
    assert share.noise_std == pytest.approx(whole.noise_std / math.sqrt(0.75))
    assert moved.exact > 0


def test_raw_is_reported_as_it_is_and_clipped_lies_within_the_targets_range() -> None:
    points = all_points(REFERENCE)
    same = np.rint(REFERENCE.probabilities * 100).astype(int)
    found = [
        release(same, 100, points, REFERENCE, MIX, 0.05, 1e-5, Streams(0).stream("noise", key))
        for key in range(40)
    ]
    assert min(one.raw for one in found) < 0.0
    assert max(one.raw for one in found) > -math.log(0.1)
    assert all(0.0 <= one.clipped <= -math.log(0.1) for one in found)
    assert all(0.0 <= one.low <= one.high <= -math.log(0.1) for one in found)


def test_a_release_is_a_function_of_counts_points_and_stream_alone() -> None:
    points = _points(10)
    one, two, other = _release(points), _release(points), _release(points, 1)
    assert (one.raw, one.low, one.high) == (two.raw, two.low, two.high)
    assert one.raw != other.raw


def test_everything_beside_the_noisy_value_is_the_same_for_two_populations() -> None:
    points = _points(10)
    other = COUNTS[::-1].copy()
    one, two = (
        release(counts[points.cells], 10_000, points, REFERENCE, MIX, 1.0, 1e-5, Streams(0).stream("noise"))
        for counts in (COUNTS, other)
    )
    for field in (
        "noise_std",
        "target",
        "draws",
        "examples",
        "bias",
        "epsilon",
        "delta",
        "sampling",
        "confidence",
    ):
        assert getattr(one, field) == getattr(two, field)
    assert one.sensitivity.exact == two.sensitivity.exact
    assert one.raw != two.raw


def _batches(count: int, examples: int, key: int) -> list[Batch]:
    random = np.random.default_rng(key)
    points = all_points(REFERENCE)
    return [Batch(random.multinomial(examples, POPULATION), examples, points) for _ in range(count)]


def test_a_mean_over_batches_is_biased_as_the_formula_says_and_the_pooled_estimate_hardly() -> None:
    """4,000 populations of 4 x 400 examples: each mean within 4 standard errors and 15 % of the bias (false alarm 1e-4)."""
    target = target_divergence(REFERENCE, POPULATION, MIX)
    each, pooled = [], []
    for key in range(4000):
        batches = _batches(4, 400, key)
        each.append(np.mean([evaluate(b.counts, b.examples, b.points, REFERENCE, MIX) for b in batches]))
        total = np.sum([b.counts for b in batches], axis=0)
        pooled.append(evaluate(total, 1600, all_points(REFERENCE), REFERENCE, MIX))
    bias = batch_bias(REFERENCE, POPULATION, MIX.floor, 400)
    error = 4 * np.std(each) / math.sqrt(4000)
    assert abs(np.mean(each) - target - bias) < error + 0.15 * bias
    assert np.mean(each) - target > 0.8 * bias - error
    assert abs(np.mean(pooled) - target - bias / 4) < error + 0.05 * bias


def test_batches_average_their_noise_spend_one_budget_and_say_their_bias() -> None:
    batches = _batches(4, 400, 0)
    found = release_batches(batches, REFERENCE, MIX, 1.0, 1e-5, Streams(0).stream("noise"))
    one = release(
        batches[0].counts, 400, batches[0].points, REFERENCE, MIX, 1.0, 1e-5, Streams(0).stream("noise")
    )
    assert found.noise_std == pytest.approx(one.noise_std / 2.0)
    assert len(found.events) == 1
    assert found.bias == pytest.approx(0.9**2 * 5 / 800)
    assert one.bias == 0.0
    assert "mean over 4 batches" in found.target
    assert found.examples == 1600


def test_the_target_is_said_in_words_with_what_merging_does() -> None:
    merged = Reference.from_probabilities(REFERENCE.probabilities, 0.08)
    assert "2 rare codes" not in describe_target(REFERENCE, MIX)
    assert "rare codes count as one cell" in describe_target(merged, MIX)
    assert "clipped to at least 0.1 and at most 5" in describe_target(REFERENCE, CLIP)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (COUNTS[:3], "one integer for each of 6 points"),
        (COUNTS / 2.0, "one integer for each"),
        (COUNTS * 2, "no counts of 10000 examples"),
        (COUNTS - 2000, "no counts of 10000 examples"),
        (np.array([]), "one integer for each"),
    ],
)
def test_counts_that_are_none_are_refused_in_one_sentence_that_tells_no_count(
    counts: Vector, said: str
) -> None:
    with pytest.raises(SfumatoError, match=said) as caught:
        release(counts, 10_000, all_points(REFERENCE), REFERENCE, MIX, 1.0, 1e-5, Streams(0).stream("noise"))
    told = {float(number) for number in re.findall(r"\d+", str(caught.value))}
    assert told.isdisjoint(np.abs(counts[counts != 0]).tolist())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"examples": 1}, "examples is 1"),
        ({"plan": EstimatorPlan(None, 1.0)}, "floor is None"),
        ({"sampling": "public_bound"}, "allowed is 'none'"),
        ({"sampling": "guess"}, "sampling is 'guess'"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"confidence": 0.0}, "confidence is 0.0"),
        ({"tail": "fat"}, "tail is 'fat'"),
        ({"epsilon": "1"}, "epsilon is '1'; allowed is a number above 0."),
        ({"epsilon": None}, "epsilon is None"),
        ({"epsilon": float("inf")}, "epsilon is inf"),
        ({"delta": "x"}, "delta is 'x'; allowed is a number above 0 and below 1"),
        ({"confidence": "a"}, "confidence is 'a'; allowed is a number above 0 and below 1"),
        ({"confidence": None}, "confidence is None"),
        ({"confidence": True}, "confidence is True"),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(options: dict[str, object], said: str) -> None:
    known: dict[str, object] = {"epsilon": 1.0, "delta": 1e-5, "examples": 10_000, "plan": MIX}
    known |= options
    first = [known.pop(name) for name in ("examples", "plan", "epsilon", "delta")]
    with pytest.raises(SfumatoError, match=said):
        release(
            COUNTS,
            first[0],  # type: ignore[arg-type]
            all_points(REFERENCE),
            REFERENCE,
            *first[1:],  # type: ignore[arg-type]
            Streams(0).stream("noise"),
            **known,
        )


def test_sampling_that_does_not_fit_the_points_is_refused() -> None:
    with pytest.raises(SfumatoError, match="'none' with 10 draws"):
        _release(_points(10), sampling="none")
    with pytest.raises(SfumatoError, match="at least 2 points"):
        _release(_points(1), sampling="budget_share")
    with pytest.raises(SfumatoError, match=r"variance_share is 1.0"):
        _release(_points(10), sampling="budget_share", variance_share=1.0)
    with pytest.raises(SfumatoError, match="batches are none"):
        release_batches([], REFERENCE, MIX, 1.0, 1e-5, Streams(0).stream("noise"))
    mixed = [Batch(COUNTS[p.cells], 10_000, p) for p in (_points(5), _points(6))]
    with pytest.raises(SfumatoError, match="different numbers of points"):
        release_batches(mixed, REFERENCE, MIX, 1.0, 1e-5, Streams(0).stream("noise"))


def test_variance_of_the_estimate_is_that_of_theory() -> None:
    """3,000 draws of 8 points: the variance within 15 %, over four standard errors (kurtosis below 6)."""
    values = [
        evaluate(COUNTS[points.cells], 10_000, points, REFERENCE, MIX)
        for points in (_points(8, key) for key in range(3000))
    ]
    expected = RatioMoments.of(REFERENCE, POPULATION, MIX.floor).variance(0.5) / 8
    assert np.var(values) / expected == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("share", ["a", None, True, 0.0, 1.0])
def test_a_share_of_the_budget_that_is_none_is_refused(share: object) -> None:
    with pytest.raises(SfumatoError, match="variance_share is"):
        _release(_points(10), sampling="budget_share", variance_share=share)


def test_a_stream_that_draws_nothing_is_refused() -> None:
    with pytest.raises(SfumatoError, match=r"stream is NoneType; allowed is a stream of sfumato\.rng\."):
        release(COUNTS, 10_000, all_points(REFERENCE), REFERENCE, MIX, 1.0, 1e-5, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counts", "examples"),
    [
        (COUNTS, 10_001),
        (COUNTS, 10**6),
        (COUNTS * 0, 10_000),
        (np.array([2**62, 2**62, 2**62, 2**62, 0, 0]), 10_000),
        (np.array([2**63, 2**63, 0, 0, 0, 0], np.uint64), 10_000),
    ],
)
def test_counts_of_every_cell_have_to_sum_to_the_examples(counts: np.ndarray, examples: int) -> None:
    stream = Streams(0).stream("noise")
    with pytest.raises(SfumatoError, match=f"counts are no counts of {examples} examples"):
        release(counts, examples, all_points(REFERENCE), REFERENCE, MIX, 1.0, 1e-5, stream)


def test_counts_at_drawn_points_may_sum_to_less_and_never_to_more() -> None:
    points = _points(2)
    assert math.isfinite(evaluate(np.zeros(points.count, int), 10_000, points, REFERENCE, MIX))
    for large in (10_001, 2**62, 2**63 - 1):
        with pytest.raises(SfumatoError, match="with at most that sum"):
            evaluate(np.full(points.count, large), 10_000, points, REFERENCE, MIX)


def test_ragged_counts_and_probabilities_are_refused() -> None:
    points = all_points(REFERENCE)
    with pytest.raises(SfumatoError, match="counts are no array"):
        evaluate([[1, 2], [3]], 10_000, points, REFERENCE, MIX)  # type: ignore[list-item]
    for probabilities in ([[0.5], [0.2, 0.3]], ["a"] * 6, [None] * 6):
        with pytest.raises(SfumatoError, match="probabilities of the population"):
            exact_divergence(REFERENCE, probabilities)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cells", "weights"),
    [
        ([0], [1.0]),
        ([0, 1, 2, 3, 4], [0.4, 0.25, 0.15, 0.1, 0.1]),
        ([0, 1, 2, 3, 4, 5], [0.3, 0.35, 0.15, 0.1, 0.06, 0.04]),
    ],
)
def test_points_without_a_draw_that_are_not_every_cell_are_refused(
    cells: list[int], weights: list[float]
) -> None:
    points = PublicPoints(np.array(cells), np.array(weights), 0)
    with pytest.raises(SfumatoError, match="draws is 0 with points that are not the 6 cells"):
        _release(points)


def test_a_negative_estimate_is_clipped_to_its_targets_range_and_lies_in_its_interval() -> None:
    plan, every = EstimatorPlan(Floor("clip", 0.7, 3.0), 0.0), all_points(REFERENCE)
    counts = np.array([700_000, 0, 0, 300_000, 0, 0])
    found = release(counts, 10**6, every, REFERENCE, plan, 5.0, 1e-5, Streams(0).stream("noise"))
    assert found.low <= found.clipped == found.raw <= found.high < 0.0
