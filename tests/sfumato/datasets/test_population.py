from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.artifacts import write_npz
from sfumato.datasets import POPULATION_SPECS, Dataset, Population, get_population_spec, load, prepare, save
from sfumato.datasets.population import (
    STAFF,
    STUDENTS,
    UNKNOWN,
    client_groups,
    joined,
    load_population,
    mixture,
    save_population,
    split_clients,
    values_of,
)
from sfumato.datasets.population_specs import PopulationName
from sfumato.errors import SfumatoError
from sfumato.rng import Streams


def arrays(n: int = 6, **changes: Any) -> dict[str, Any]:
    content = {
        "codes": np.arange(n, dtype=np.int32),
        "labels": (np.arange(n) % 10).astype(np.int16),
        "clients": (np.arange(n) // 2).astype(np.int32),
        "series": np.where(np.arange(n) % 2, STUDENTS, STAFF).astype(np.int16),
        "domain": 16,
    }
    return {**content, **changes}


@st.composite
def populations(draw: st.DrawFn) -> Population:
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    return Population(
        rng.integers(0, 16, n).astype(np.int32),
        rng.integers(0, 10, n).astype(np.int16),
        rng.integers(0, draw(st.integers(1, 50)), n).astype(np.int32),
        rng.choice([STAFF, STUDENTS], n).astype(np.int16),
        16,
    )


def rows(population: Population) -> list[tuple[int, ...]]:
    parts = (population.codes, population.labels, population.clients, population.series)
    return [tuple(int(value) for value in row) for row in zip(*parts, strict=True)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"domain": 0}, "domain is 0; allowed is an integer from 1"),
        ({"domain": True}, "domain is True; allowed"),
        ({"domain": 5}, "codes of a population leave their range; allowed are 0 to 4."),
        ({"codes": np.arange(6)}, "codes of a population have dtype int64"),
        ({"labels": np.zeros(5, np.int16)}, r"labels of a population have dtype int16 and shape \(5,\)"),
        (
            {"labels": np.full(6, 10, np.int16)},
            "labels of a population leave their range; allowed are 0 to 9.",
        ),
        (
            {"clients": np.full(6, -1, np.int32)},
            "clients of a population leave their range; allowed are 0 to",
        ),
        (
            {"series": np.full(6, 3, np.int16)},
            r"series of a population hold other values; allowed are \(-1, 0, 4\)",
        ),
    ],
)
def test_an_array_outside_of_what_is_allowed_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SfumatoError, match=sentence):
        Population(**arrays(**changes))


def test_a_refusal_repeats_no_private_value() -> None:
    codes = np.array([1, 2, 3, 4, 5, 12_345], np.int32)
    with pytest.raises(SfumatoError) as caught:
        Population(**arrays(codes=codes))
    assert "12345" not in str(caught.value)


def test_an_empty_population_is_refused() -> None:
    with pytest.raises(SfumatoError, match="a population has 0 examples; allowed is at least 1"):
        Population(**arrays(0))


@settings(max_examples=50, deadline=None)
@given(populations())
def test_groups_hold_each_example_once_with_its_client(population: Population) -> None:
    groups = client_groups(population)
    assert sorted(groups.order.tolist()) == list(range(len(population)))
    assert groups.sizes().min() >= 1
    for place, identity in enumerate(groups.identities):
        held = groups.rows(place)
        assert np.array_equal(held, np.flatnonzero(population.clients == identity))


@settings(max_examples=50, deadline=None)
@given(populations())
def test_views_say_what_an_example_is_within_their_domain(population: Population) -> None:
    for view in ("codes", "labels", "labels_series"):
        codes, domain = values_of(population, view)
        assert codes.dtype == np.int32
        assert codes.shape == (len(population),)
        assert 0 <= codes.min() <= codes.max() < domain
    both, _ = values_of(population, "labels_series")
    assert np.array_equal(both % 10, population.labels)
    assert np.array_equal(both >= 10, population.series == STUDENTS)


def test_a_view_that_does_not_exist_or_lacks_the_series_is_refused() -> None:
    population = Population(**arrays())
    with pytest.raises(SfumatoError, match="view is 'pixels'; allowed are codes, labels, labels_series"):
        values_of(population, "pixels")
    unknown = Population(**arrays(series=np.array([0, 4, 0, 4, 0, UNKNOWN], np.int16)))
    with pytest.raises(SfumatoError, match="series of some examples are unknown"):
        values_of(unknown, "labels_series")


def test_a_series_is_selected_and_a_missing_one_refused() -> None:
    population = Population(**arrays())
    assert population.of_series(STUDENTS).codes.tolist() == [1, 3, 5]
    with pytest.raises(SfumatoError, match="no example of series 4"):
        population.of_series(STAFF).of_series(STUDENTS)


@settings(max_examples=50, deadline=None)
@given(populations(), st.floats(0.05, 0.95))
def test_a_split_keeps_clients_whole_and_loses_no_example(population: Population, share: float) -> None:
    clients = len(client_groups(population).identities)
    if not 0 < round(share * clients) < clients:
        with pytest.raises(SfumatoError, match="leaves each part at least one"):
            split_clients(population, share)
        return
    first, second = split_clients(population, share)
    assert len(client_groups(first).identities) == round(share * clients)
    assert not set(first.clients.tolist()) & set(second.clients.tolist())
    assert sorted(rows(joined([first, second]))) == sorted(rows(population))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 30), st.integers(1, 30))
def test_a_mixture_takes_the_stated_numbers_without_replacement(drifted: int, examples: int) -> None:
    drifted = min(drifted, examples)
    numbers = np.arange(30, dtype=np.int32)
    zeros = np.zeros(30, np.int16)
    first = Population(numbers, zeros, numbers, zeros, 64)
    second = Population(numbers + np.int32(30), zeros, numbers, zeros + np.int16(STUDENTS), 64)
    mixed = mixture(first, second, drifted / examples, examples, Streams(3).stream("mixture"))
    assert len(mixed) == examples
    assert int((mixed.series == STUDENTS).sum()) == drifted
    assert len(np.unique(mixed.codes)) == examples


def test_a_mixture_draws_every_example_equally_often() -> None:
    """1,000 draws of 5 of 20: each count is Binomial(1000, 1/4); a z beyond 4.5 has a chance of 20 * 7e-6 = 1.4e-4."""
    numbers = np.arange(20, dtype=np.int32)
    first = Population(numbers, np.zeros(20, np.int16), numbers, np.zeros(20, np.int16), 32)
    streams = Streams(5)
    drawn = [mixture(first, first, 0.0, 5, streams.stream("mixture", run)).codes for run in range(1000)]
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    assert np.abs(counts - 250).max() < 4.5 * np.sqrt(1000 * 0.25 * 0.75)


@pytest.mark.parametrize(
    ("share", "examples", "sentence"),
    [
        (1.5, 4, "share is 1.5; allowed is a number from 0 to 1"),
        (float("nan"), 4, "share is nan"),
        (0.5, 0, "examples is 0; allowed is an integer of at least 1"),
        (0.0, 7, "needs 7 examples of a population that has 6"),
    ],
)
def test_an_impossible_mixture_is_refused(share: float, examples: int, sentence: str) -> None:
    population = Population(**arrays())
    with pytest.raises(SfumatoError, match=sentence):
        mixture(population, population, share, examples, Streams(0).stream("mixture"))


def test_populations_of_unlike_domains_are_not_joined() -> None:
    first, second = Population(**arrays()), Population(**arrays(domain=17))
    with pytest.raises(SfumatoError, match=r"the domains are \[16, 17\]"):
        joined([first, second])
    with pytest.raises(SfumatoError, match="the domains are 16 and 17"):
        mixture(first, second, 0.5, 2, Streams(0).stream("mixture"))


@pytest.fixture(scope="module")
def generated() -> Population:
    population = prepare("generated_population", "unused")
    assert isinstance(population, Population)
    return population


def test_a_prepared_file_is_byte_stable_and_gives_the_same_population(
    generated: Population, tmp_path: Path
) -> None:
    save(tmp_path / "one.npz", generated)
    again = load(tmp_path / "one.npz", Population)
    save(tmp_path / "two.npz", again)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert (again.name, again.options, again.domain) == (generated.name, generated.options, generated.domain)
    for part in ("codes", "labels", "clients", "series"):
        np.testing.assert_array_equal(getattr(again, part), getattr(generated, part))


def test_files_of_another_kind_or_content_are_refused_in_one_sentence(
    generated: Population, tmp_path: Path
) -> None:
    path = tmp_path / "population.npz"
    save(path, generated)
    with pytest.raises(SfumatoError, match="holds the population data set generated_population; a classifi"):
        load(path, Dataset)
    save(tmp_path / "digits.npz", prepare("digits", "unused"))
    with pytest.raises(SfumatoError, match="holds the classification data set digits; a population one"):
        load(tmp_path / "digits.npz", Population)
    with pytest.raises(SfumatoError, match="has 6 examples; declared are 100000"):
        save_population(path, Population(**arrays(domain=1024), name="generated_population"))
    with pytest.raises(SfumatoError, match="has the domain 16; declared is 1024"):
        save_population(path, Population(**arrays(), name="generated_population"))
    with pytest.raises(SfumatoError, match="there is no population ''"):
        save_population(path, Population(**arrays()))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"domain": np.array([16])}, "has a domain of dtype int64 and shape"),
        ({"options": np.array("[]")}, "has unreadable options"),
        ({"options": np.array('{"size": "2"}')}, "generated_population has no option 'size'"),
        ({"series": None}, "it is no prepared data set"),
        ({"extra": np.zeros(1)}, "it is no prepared data set"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    header = {"name": np.array("generated_population"), "options": np.array("{}")}
    content = {**header, **arrays(), **changes}
    write_npz(tmp_path / "p.npz", {name: value for name, value in content.items() if value is not None})
    with pytest.raises(SfumatoError, match=sentence) as caught:
        load_population(tmp_path / "p.npz")
    assert "\n" not in str(caught.value)


def test_every_population_has_one_spec_and_every_spec_says_what_a_client_is() -> None:
    assert set(get_args(PopulationName)) == set(POPULATION_SPECS)
    for name, spec in POPULATION_SPECS.items():
        assert spec.name == name
        assert set(spec.client) == set(spec.options.get("partition", ("",)))
    with pytest.raises(SfumatoError, match="there is no population 'mnist'; allowed are mnist_population"):
        get_population_spec("mnist")


def test_the_title_says_when_clients_are_no_people(generated: Population) -> None:
    assert generated.title == "Generated population"
    named = arrays(name="mnist_population", options={"partition": "dirichlet"})
    assert Population(**named).title == "MNIST digits of pseudo-clients"
    named["options"] = {"partition": "writer"}
    assert Population(**named).title == "MNIST digits by writer"
