"""Pairs of a public reference and a population: who is in which, and how many."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.datasets.population import Population, View
from sfumato.divergence.comparisons import CompareSetting, Drift, compare, drift_populations
from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from tests.sfumato.divergence.examples import REFERENCE, pair, population

SETTING = CompareSetting(0.02, (0.0, 0.5, 1.0), "series", 800)


def test_a_population_drifts_away_from_its_reference_as_its_share_grows() -> None:
    pairs = compare(population(), "codes", SETTING, Streams(0))
    assert [each.name for each in pairs] == ["0", "0.5", "1"]
    assert all(each.examples == 800 for each in pairs)
    divergences = [each.divergence(0.01) for each in pairs]
    assert divergences == sorted(divergences)
    assert divergences[0] < 0.1 < divergences[2]


def test_the_reference_and_the_population_share_no_client() -> None:
    data = population()
    for each in compare(data, "codes", SETTING, Streams(0)):
        staff = data.of_series(0)
        assert each.client_count <= 120 - len(np.unique(staff.clients)) // 2


def test_a_drift_of_labels_leaves_only_large_labels_at_the_end() -> None:
    setting = CompareSetting(0.02, (0.0, 1.0), "labels", 200)
    none, full = compare(population(), "labels", setting, Streams(0))
    assert none.values.min() < 5
    assert full.values.min() >= 5


def test_every_ordered_pair_of_digits_is_there_once() -> None:
    pairs = compare(population(), "digits", SETTING, Streams(0))
    assert len({each.name for each in pairs}) == len(pairs) == 90
    sizes = {each.name.split("-")[1]: each.examples for each in pairs}
    assert sum(sizes.values()) == len(population())


def test_a_drift_of_series_needs_known_series() -> None:
    data = population()
    unknown = type(data)(data.codes, data.labels, data.clients, np.full_like(data.series, -1), data.domain)
    with pytest.raises(SfumatoError, match="the series of some examples are unknown; allowed is 'labels'"):
        compare(unknown, "codes", SETTING, Streams(0))


def test_counts_of_groups_add_up_to_the_populations() -> None:
    own = pair()
    groups = np.arange(own.client_count) % 7
    parts = own.group_counts(groups, 7)
    assert parts.shape == (7, REFERENCE.cells)
    assert np.array_equal(parts.sum(axis=0), own.counts)
    first = own.reference.cell_of[own.values[groups[own.clients] == 3]]
    assert np.array_equal(parts[3], np.bincount(first, minlength=REFERENCE.cells))


def test_smoothing_makes_a_divergence_finite() -> None:
    own = pair((500, 500, 0, 0))
    assert own.divergence() == np.inf
    assert 0.5 < own.divergence(0.01) < 2.0


@pytest.mark.parametrize("drift", ["labels", "series"])
@pytest.mark.parametrize("view", ["codes", "labels_series"])
def test_no_example_is_in_a_population_twice(drift: Drift, view: View) -> None:
    data = population()
    marked = Population(
        np.arange(len(data), dtype=np.int32), data.labels, data.clients, data.series, len(data)
    )
    setting = CompareSetting(0.0, (0.5,), drift, 300)
    parts = drift_populations(marked, view, setting, Streams(0))
    for each in parts[1]:
        assert len(np.unique(each.codes)) == len(each) == 300
