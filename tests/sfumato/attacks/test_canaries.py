from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sfumato.attacks import (
    CanaryScores,
    Directions,
    auc,
    block_directions,
    canary_contribution,
    choose_included,
    loss_scores,
    mislabel,
    roc_curve,
    sparse_directions,
)
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


def stream(name: str, *keys: int):
    return Streams(0).stream(name, *keys)


def dense(directions: Directions) -> np.ndarray:
    rows = np.zeros((directions.canaries, directions.k))
    np.put_along_axis(rows, directions.indices, directions.values, axis=1)
    return rows


@pytest.mark.parametrize(
    ("canaries", "k", "width"), [(1, 1, None), (10, 10, None), (30, 100, None), (30, 100, 1)]
)
def test_block_directions_are_orthonormal(canaries, k, width):
    directions = block_directions(canaries, k, stream("d"), width)
    rows = dense(directions)
    assert directions.indices.shape == (canaries, width or k // canaries)
    assert np.allclose(rows @ rows.T, np.eye(canaries), atol=1e-14)


def test_block_signs_and_places_are_random():
    rows = dense(block_directions(200, 1000, stream("d")))
    # 1,000 fair signs, five standard deviations.
    assert abs(np.sign(rows).sum()) < 5 * np.sqrt(1000)
    assert not np.array_equal(rows != 0, dense(block_directions(200, 1000, Streams(1).stream("d"))) != 0)


def test_sparse_directions_are_unit_vectors_for_more_canaries_than_coordinates():
    directions = sparse_directions(50, 20, 7, stream("d"))
    rows = dense(directions)
    assert np.all((rows != 0).sum(axis=1) == 7)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0)


@pytest.mark.parametrize("kind", ["block", "sparse"])
def test_contribution_is_the_sum_of_the_selected_directions_at_clip_norm(kind):
    directions = (
        block_directions(20, 70, stream("d")) if kind == "block" else sparse_directions(20, 9, 4, stream("d"))
    )
    selected = choose_included(20, stream("selected"))
    wanted = 2.5 * dense(directions)[selected].sum(axis=0)
    assert np.allclose(canary_contribution(directions, selected, 2.5), wanted)
    assert not canary_contribution(directions, np.zeros(20, bool), 2.5).any()


def test_one_more_canary_changes_the_sum_by_exactly_clip_norm():
    directions = sparse_directions(40, 30, 11, stream("d"))
    with_it = choose_included(40, stream("selected"))
    with_it[7] = True
    without = with_it.copy()
    without[7] = False
    change = canary_contribution(directions, with_it, 0.3) - canary_contribution(directions, without, 0.3)
    assert np.linalg.norm(change) == pytest.approx(0.3, rel=1e-12)


def test_included_is_fair():
    # Standard deviation 0.005, five of them.
    assert choose_included(10000, stream("i")).mean() == pytest.approx(0.5, abs=0.025)


def run(
    rule: str, q: float, sigma: float, steps: int, seed: int = 0, background: float = 0.0, known: bool = False
):
    streams = Streams(seed)
    directions = block_directions(400, 800, streams.stream("d"))
    included = choose_included(400, streams.stream("i"))
    scores = CanaryScores(
        directions,
        rule=rule,
        clip_norm=2.0,
        expected_batch_size=32.0,
        sampling_rate=q,
        noise_multiplier=sigma,
    )
    others = background * streams.stream("others").standard_normal(800)
    for step in range(steps):
        selected = included & (streams.stream("sampling", step).random(400) < q)
        total = canary_contribution(directions, selected, 2.0) + others
        released = (total + 2.0 * sigma * streams.stream("noise", step).standard_normal(800)) / 32.0
        scores.observe(released, others if known else None)
    return scores, included


def separation(scores: CanaryScores, included) -> float:
    return auc(roc_curve(scores.values[included], scores.values[~included]))


def test_sum_score_has_the_gaussian_mechanisms_power():
    # Full participation: mu = sqrt(T) / sigma = 1; the AUC's standard error is 0.005 over 20 runs.
    found = np.mean([separation(*run("sum", 1.0, 5.0, 25, seed)) for seed in range(20)])
    assert found == pytest.approx(stats.norm.cdf(1 / np.sqrt(2)), abs=0.025)


def test_likelihood_ratio_is_the_log_ratio_of_the_mixture_densities():
    q, sigma = 0.2, 0.8
    directions = Directions(np.arange(5)[:, None], np.ones((5, 1)), 5)
    x = np.array([-3.0, -0.2, 0.4, 1.0, 40.0])
    scores = CanaryScores(directions, rule="likelihood_ratio", sampling_rate=q, noise_multiplier=sigma)
    scores.observe(x)
    mixture = np.logaddexp(
        np.log(1 - q) + stats.norm.logpdf(x, 0, sigma), np.log(q) + stats.norm.logpdf(x, 1, sigma)
    )
    assert np.allclose(scores.values, mixture - stats.norm.logpdf(x, 0, sigma))


def test_likelihood_ratio_beats_the_sum_at_small_sampling_rates():
    gains = [
        separation(*run("likelihood_ratio", 0.02, 0.5, 50, seed))
        - separation(*run("sum", 0.02, 0.5, 50, seed))
        for seed in range(10)
    ]
    assert np.mean(gains) > 0.03


def test_full_participation_makes_likelihood_ratio_and_sum_order_alike():
    by_ratio, _ = run("likelihood_ratio", 1.0, 5.0, 10)
    by_sum, _ = run("sum", 1.0, 5.0, 10)
    assert np.array_equal(np.argsort(by_ratio.values), np.argsort(by_sum.values))


def test_known_examples_are_taken_out_of_the_score():
    plain, _ = run("sum", 0.5, 1.0, 20)
    hidden, included = run("sum", 0.5, 1.0, 20, background=30.0)
    cleared, _ = run("sum", 0.5, 1.0, 20, background=30.0, known=True)
    assert np.allclose(cleared.values, plain.values)
    assert separation(hidden, included) < separation(cleared, included) - 0.2


def test_checkpoint_goes_on_with_the_same_scores():
    for rule in ("sum", "likelihood_ratio", "difference"):
        directions = block_directions(10, 40, stream("d"))
        whole, first, second = (
            CanaryScores(directions, rule=rule, sampling_rate=0.3, noise_multiplier=1.0) for _ in range(3)
        )
        releases = stream("r").standard_normal((6, 40))
        for release in releases:
            whole.observe(release)
        for release in releases[:3]:
            first.observe(release)
        second.restore(first.state())
        for release in releases[3:]:
            second.observe(release)
        assert np.array_equal(whole.values, second.values)


def test_switched_directions_score_on_the_new_support():
    scores = CanaryScores(Directions(np.array([[0]]), np.ones((1, 1)), 2), rule="difference")
    scores.observe([1.0, 9.0])
    scores.observe([3.0, 9.0])
    scores.switch(Directions(np.array([[2]]), np.ones((1, 1)), 3))
    scores.observe([0.0, 0.0, 50.0])
    scores.observe([0.0, 0.0, 51.0])
    assert scores.values.tolist() == [4.0 + 1.0]


def test_values_are_a_copy():
    scores = CanaryScores(block_directions(3, 3, stream("d")))
    scores.values[:] = 7.0
    assert not scores.values.any()


def test_mislabelled_examples_keep_their_inputs_and_never_their_labels():
    y = stream("y").integers(0, 10, 5000)
    x = stream("x").random((5000, 2))
    inputs, wrong = mislabel(x, y, 10, stream("m"))
    assert np.array_equal(inputs, x)
    assert wrong.dtype == np.int64
    assert np.all(wrong != y)
    # Uniform over the nine others: chi-square with 8 degrees of freedom, false alarm 1e-4.
    shift = np.bincount((wrong - y) % 10, minlength=10)[1:]
    assert stats.chisquare(shift).pvalue > 1e-4
    assert np.array_equal(mislabel(x, y % 2, 2, stream("m"))[1], 1 - y % 2)


def test_loss_scores_are_higher_for_what_was_learned():
    assert loss_scores([0.1, 2.0]).tolist() == [-0.1, -2.0]
    assert loss_scores([0.5, 2.0], [3.0, 2.5]).tolist() == [2.5, 0.5]


D = Directions(np.array([[0]]), np.ones((1, 1)), 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: choose_included(0, stream("i")), "canaries"),
        (lambda: block_directions(11, 10, stream("d")), "canaries"),
        (lambda: block_directions(5, 10, stream("d"), 3), "15"),
        (lambda: block_directions(0, 10, stream("d")), "canaries"),
        (lambda: block_directions(1, 0, stream("d")), "canaries"),
        (lambda: sparse_directions(3, 10, 11, stream("d")), "coordinates"),
        (lambda: canary_contribution(D, np.array([1]), 1.0), "bool"),
        (lambda: canary_contribution(D, np.array([True]), 0.0), "clip_norm"),
        (lambda: canary_contribution(D, np.array([True]), float("nan")), "clip_norm"),
        (lambda: CanaryScores(D, rule="median"), "rule"),
        (lambda: CanaryScores(D, rule="likelihood_ratio", noise_multiplier=1.0), "sampling_rate"),
        (
            lambda: CanaryScores(D, rule="likelihood_ratio", sampling_rate=0.1, noise_multiplier=0.0),
            "multiplier",
        ),
        (lambda: CanaryScores(D, expected_batch_size=0.0), "expected_batch_size"),
        (lambda: CanaryScores(D).observe([1.0]), "entries"),
        (lambda: CanaryScores(D).observe([1.0, np.nan]), "vector"),
        (lambda: CanaryScores(D).restore({"values": [1.0, 2.0]}), "state"),
        (lambda: CanaryScores(D).switch(block_directions(2, 2, stream("d"))), "one a canary"),
        (lambda: mislabel(np.zeros((2, 3)), np.array([0, 5]), 5, stream("m")), "0..4"),
        (lambda: mislabel(np.zeros((3, 3)), np.array([0, 1]), 5, stream("m")), "shape"),
        (lambda: mislabel(np.zeros((2, 3)), np.array([0, 0]), 1, stream("m")), "classes"),
        (lambda: loss_scores([1.0], [1.0, 2.0]), "initial_losses"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(SfumatoError, match=words):
        call()
