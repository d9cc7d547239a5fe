"""The aggregate simulator has the law of the messages' moments, and draws another sigma at once.

Fixed seeds. Means and covariances of 4,000 draws by either path are compared: a z-score beyond 4.5 has a false-alarm
rate of 7e-6, a variance ratio outside of 15 % one below 1e-9; Kolmogorov-Smirnov at 1e-4."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from sfumato.errors import SfumatoError
from sfumato.modulated.aggregate import AggregateData, standard_wishart
from sfumato.modulated.client import orthonormal_directions
from sfumato.modulated.plan import CalibratedModulation, Domain, ModulatedPlan, Modulation
from sfumato.modulated.server import Moments
from sfumato.rng import Streams
from tests.cases import quick_ones
from tests.sfumato.modulated.populations import Population, population

REPEATS = 4_000


def _numbers(moments: Moments) -> np.ndarray:
    upper = moments.outer[np.triu_indices(len(moments.features))]
    return np.concatenate([moments.features, upper, moments.cross, [moments.label, moments.label_square]])


def _both(people: Population, calibrated: CalibratedModulation, count: int) -> tuple[np.ndarray, np.ndarray]:
    size = people.features.shape[1]
    directions = orthonormal_directions(np.zeros(size), count, Streams(1).stream("directions"))
    sent = np.array([_numbers(m) for m in people.releases(calibrated, directions, REPEATS)])
    data = AggregateData.of(people.features, people.labels, calibrated.plan.domain)
    drawn = []
    for repeat in range(REPEATS):
        streams = Streams(10_000 + repeat)
        phases = data.phases(count, streams.stream("phases"))
        drawn.append(_numbers(data.moments(calibrated, directions, phases, streams.stream("noise"))))
    return sent, np.array(drawn)


@pytest.mark.parametrize(
    ("labels", "count", "clients"),
    quick_ones(
        [("public", 1, 30), ("public", 2, 30), ("private", 1, 30), ("public", 1, 4)], {("private", 1, 30)}
    ),
)
def test_both_paths_have_the_same_law(labels: str, count: int, clients: int) -> None:
    people = population(clients, 3)
    plan = ModulatedPlan(Domain(3, 1.0), Modulation(0.2, 2.0, 2.0, count), labels=labels)  # type: ignore[arg-type]
    sent, drawn = _both(people, plan.calibrate(6.0, 1e-5), count)
    spread = np.sqrt((sent.var(axis=0) + drawn.var(axis=0)) / REPEATS)
    assert np.all(np.abs(sent.mean(axis=0) - drawn.mean(axis=0)) <= 4.5 * spread + 1e-12)
    random = sent.std(axis=0) > 1e-12
    assert np.array_equal(random, drawn.std(axis=0) > 1e-12)
    assert np.all(np.abs(sent.var(axis=0)[random] / drawn.var(axis=0)[random] - 1) < 0.15)
    one, two = (np.corrcoef(part[:, random].T) for part in (sent, drawn))
    assert np.abs(one - two).max() < 4.5 * math.sqrt(2.0 / REPEATS)
    for place in np.flatnonzero(random)[:: max(1, random.sum() // 4)]:
        assert ks_2samp(sent[:, place], drawn[:, place]).pvalue > 1e-4


def test_a_constant_column_and_more_features_than_clients_are_defined() -> None:
    x = np.column_stack([np.full(3, 0.5), np.array([0.1, 0.2, 0.3]), np.zeros(3), np.zeros(3)])
    data = AggregateData.of(x, np.array([0.1, 0.2, 0.3]), Domain(4, 1.0))
    calibrated = ModulatedPlan(Domain(4, 1.0)).calibrate(1.0, 1e-5)
    none = np.zeros((4, 0))
    moments = data.moments(calibrated, none, data.phases(0, Streams(0).stream("p")), Streams(0).stream("n"))
    assert np.all(np.isfinite(_numbers(moments)))
    assert np.linalg.matrix_rank(moments.outer) <= 3  # three clients span no more


def test_another_sigma_needs_no_new_phases_and_scales_the_noise() -> None:
    people = population(500, 3)
    data = AggregateData.of(people.features, people.labels, Domain(3, 1.0))
    plan = ModulatedPlan(Domain(3, 1.0), Modulation(amplitude=1.0), intercept=False)
    directions = orthonormal_directions(np.zeros(3), 1, Streams(1).stream("directions"))
    phases = data.phases(1, Streams(0).stream("phases"))
    quiet = data.moments(plan.calibrate(None, 1e-5), directions, phases, Streams(2).stream("noise"))
    ones, twos = (
        data.moments(plan.calibrate(epsilon, 1e-5), directions, phases, Streams(2).stream("noise"))
        for epsilon in (20.0, 5.0)
    )
    ratio = plan.noise_std(5.0, 1e-5) / plan.noise_std(20.0, 1e-5)
    assert np.allclose(twos.features - quiet.features, ratio * (ones.features - quiet.features))


def test_clipping_and_faulty_samples_are_the_clients() -> None:
    x = np.array([[3.0, 4.0], [np.nan, 0.0], [0.1, 0.1]])
    data = AggregateData.of(x, np.array([2.0, 0.5, -0.5]), Domain(2, 1.0))
    assert data.faulty == 1
    assert np.allclose(data.features, [[0.6, 0.8], [0, 0], [0.1, 0.1]])
    assert data.labels.tolist() == [1.0, 0.5, -0.5]


@pytest.mark.parametrize("freedom", [1, 3, 6, 200])
def test_wishart_matrices_have_their_mean_and_variance(freedom: int) -> None:
    """Mean m I and variance of a diagonal entry 2 m, of an off-diagonal one m; 6,000 draws, 4.5 standard errors."""
    draws = np.array([standard_wishart(3, freedom, Streams(i).stream("w")) for i in range(6000)])
    error = 4.5 / math.sqrt(6000)
    assert np.abs(draws.mean(axis=0) - freedom * np.eye(3)).max() < error * math.sqrt(2 * freedom)
    assert draws[:, 0, 0].var() == pytest.approx(2 * freedom, rel=0.15 if freedom > 5 else 0.4)
    assert draws[:, 0, 1].var() == pytest.approx(freedom, rel=0.15 if freedom > 5 else 0.4)


def test_wrong_shapes_are_one_sentence() -> None:
    with pytest.raises(SfumatoError, match=r"shapes \(3, 2\) and \(4,\); allowed are \(clients, 2\)"):
        AggregateData.of(np.zeros((3, 2)), np.zeros(4), Domain(2, 1.0))
