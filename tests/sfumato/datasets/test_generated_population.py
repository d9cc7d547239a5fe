from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from sfumato.datasets import Population, prepare
from sfumato.datasets.generated_population import (
    GeneratedLaw,
    dirichlet_law,
    drifted_law,
    generate_population,
    public_law,
    zipf_law,
)
from sfumato.datasets.population import STAFF, STUDENTS, client_groups
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


@settings(max_examples=60, deadline=None)
@given(domain=st.integers(1, 300), exponent=st.floats(0, 3), drift=st.floats(0, 1))
def test_both_laws_are_positive_and_sum_to_one_and_the_divergence_is_theirs(
    domain: int, exponent: float, drift: float
) -> None:
    law = zipf_law(domain, exponent, drift)
    for masses in (law.reference, law.current):
        assert masses.min() > 0
        assert math.isclose(math.fsum(masses), 1.0, abs_tol=1e-12)
    direct = math.fsum(p * math.log(p / q) for p, q in zip(law.reference, law.current, strict=True))
    assert math.isclose(law.divergence, direct, abs_tol=1e-9)
    assert law.divergence >= -1e-12


def test_the_divergence_grows_with_the_drift_from_nothing() -> None:
    values = [zipf_law(64, 1.0, drift).divergence for drift in np.linspace(0, 1, 11)]
    assert values[0] == 0.0
    assert all(np.diff(values) > 0)
    # at full drift P is Pi in reverse order: sum_x Pi(x) ln(Pi(x) / Pi(63 - x)), with Pi(x) = 1 / (H (x + 1))
    harmonic = sum(1 / place for place in range(1, 65))
    exact = sum(math.log((65 - place) / place) / (harmonic * place) for place in range(1, 65))
    assert math.isclose(values[-1], exact, rel_tol=1e-12)


@pytest.mark.parametrize("current", [True, False])
@pytest.mark.parametrize("kind", ["zipf", "dirichlet"])
def test_examples_follow_the_stated_law(kind: str, current: bool) -> None:
    """Chi-square of 50,000 draws over 32 cells at 1e-6: one false alarm in a million each."""
    streams = Streams(8)
    law = zipf_law(32, 0.8, 0.4) if kind == "zipf" else dirichlet_law(32, 5.0, 0.4, streams.stream("law"))
    people = generate_population(law, 500, 100, streams.stream(f"people/{kind}"), current=current)
    counts = np.bincount(people.codes, minlength=32)
    expected = 50_000 * (law.current if current else law.reference)
    assert chisquare(counts, expected * (50_000 / expected.sum())).pvalue > 1e-6


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), first=st.integers(0, 100))
def test_clients_have_the_given_sizes_and_identities(sizes: list[int], first: int) -> None:
    stream = Streams(1).stream("people")
    people = generate_population(
        zipf_law(16), len(sizes), np.array(sizes), stream, series=STAFF, first_client=first
    )
    groups = client_groups(people)
    assert groups.sizes().tolist() == sizes
    assert groups.identities.tolist() == list(range(first, first + len(sizes)))
    assert set(people.series.tolist()) == {STAFF}
    np.testing.assert_array_equal(people.labels, people.codes % 10)


def test_the_data_set_is_the_same_for_everyone_and_drifts_between_its_series() -> None:
    people = prepare("generated_population", "unused")
    again = prepare("generated_population", "unused")
    assert isinstance(people, Population)
    assert isinstance(again, Population)
    np.testing.assert_array_equal(people.codes, again.codes)
    assert client_groups(people).sizes().tolist() == [50] * 2000
    assert people.clients[people.series == STAFF].max() == 999
    law = public_law()
    assert abs(law.divergence - 0.1801) < 5e-5
    for series, masses in ((STAFF, law.reference), (STUDENTS, law.current)):
        counts = np.bincount(people.of_series(series).codes, minlength=1024)
        # 64 cells of 16 neighbours; a chi-square at 1e-6 is one false alarm in a million
        assert chisquare(counts.reshape(64, 16).sum(1), 50_000 * masses.reshape(64, 16).sum(1)).pvalue > 1e-6


@pytest.mark.slow
def test_ten_million_examples_of_the_largest_codes_are_made() -> None:
    people = generate_population(zipf_law(1 << 16), 1_000_000, 10, Streams(0).stream("people"))
    assert len(people) == 10_000_000
    assert people.codes.max() < 1 << 16


LAW = zipf_law(4)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda s: zipf_law(0), "domain is 0; allowed is an integer from 1"),
        (lambda s: zipf_law(4, -1.0), "exponent is -1.0; allowed is a number from 0 to 10"),
        (lambda s: zipf_law(4, 1.0, 1.1), "drift is 1.1; allowed is a number from 0 to 1"),
        (lambda s: dirichlet_law(4, 0.01, 0.1, s), "concentration is 0.01; allowed"),
        (lambda s: drifted_law(np.array([1.0, 0.0]), 0.5), "not all positive and finite"),
        (lambda s: generate_population(LAW, 0, 5, s), "clients is 0; allowed"),
        (lambda s: generate_population(LAW, 2, 0, s), "examples_per_client is 0; allowed"),
        (lambda s: generate_population(LAW, 2, np.array([1]), s), "examples_per_client has dtype int64"),
        (lambda s: generate_population(LAW, 2, np.array([1.0, 2.0]), s), "has dtype float64"),
        (lambda s: generate_population(LAW, 2, 1, s, series=7), "series is 7; allowed are"),
        (lambda s: generate_population(LAW, 2, 1, s, first_client=-1), "first_client is -1; allowed"),
    ],
)
def test_numbers_outside_of_what_is_allowed_are_refused(make: object, sentence: str) -> None:
    assert callable(make)
    with pytest.raises(SfumatoError, match=sentence) as caught:
        make(Streams(0).stream("people"))
    assert "\n" not in str(caught.value)


def test_the_smallest_law_has_one_cell_and_no_divergence() -> None:
    law: GeneratedLaw = zipf_law(1, 1.0, 0.7)
    assert law.divergence == 0.0
    assert generate_population(law, 2, 3, Streams(0).stream("people")).codes.tolist() == [0] * 6
