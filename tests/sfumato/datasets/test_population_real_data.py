"""MNIST by its real writers and by pseudo-clients; skipped with the reason where a file cannot be had."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sfumato import datasets
from sfumato.datasets import Population, client_groups, split_clients, values_of
from sfumato.datasets.population import STAFF, STUDENTS, UNKNOWN
from sfumato.errors import DataUnavailableError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
TRAIN, TEST = slice(0, 60_000), slice(60_000, 70_000)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("raw")


def population(raw: Path, partition: str) -> Population:
    mine = os.environ.get("SFUMATO_DATA")
    folders = [ROOT / "data" / "raw", *([Path(mine)] if mine else [])]
    try:
        datasets.fetch("mnist_population", raw, folders, partition=partition)
    except DataUnavailableError as error:
        pytest.skip(str(error))
    data = datasets.prepare("mnist_population", raw, partition=partition)
    assert isinstance(data, Population)
    return data


def test_each_writer_of_the_training_digits_is_no_writer_of_the_test_digits(raw: Path) -> None:
    people = population(raw, "writer")
    sizes = {part: np.bincount(people.clients[rows]) for part, rows in (("train", TRAIN), ("test", TEST))}
    held = {part: counts[counts > 0] for part, counts in sizes.items()}
    assert (len(held["train"]), len(held["test"])) == (539, 297)
    assert (held["train"].min(), np.median(held["train"]), held["train"].max()) == (19, 116, 131)
    assert not set(people.clients[TRAIN].tolist()) & set(people.clients[TEST].tolist())
    assert len(client_groups(people).identities) == 539 + 297


def test_the_series_parts_the_writers_into_employees_and_students(raw: Path) -> None:
    people = population(raw, "writer")
    writers = {
        series: len(np.unique(people.clients[TRAIN][people.series[TRAIN] == series]))
        for series in (STAFF, STUDENTS)
    }
    assert writers == {STAFF: 289, STUDENTS: 250}
    # the series is a property of the writer: NIST numbers the students' forms from 2100 on
    assert np.array_equal(people.series == STUDENTS, people.clients >= 2100)
    assert [int((people.series[part] == STAFF).sum()) for part in (TRAIN, TEST)] == [30_950, 4_999]


def test_pseudo_clients_hold_the_same_images_in_the_same_order(raw: Path) -> None:
    people = population(raw, "dirichlet")
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(people.labels[TRAIN]).tolist() == counts
    assert set(people.series.tolist()) == {UNKNOWN}
    sizes = client_groups(people).sizes()
    assert (len(sizes), sizes.min(), sizes.max()) == (836, 33, 112)
    real = population(raw, "writer")
    np.testing.assert_array_equal(people.codes, real.codes)


def test_codes_tell_classes_apart_and_their_empty_corners_stay_empty(raw: Path) -> None:
    """Mutual information of code and class in bits; the class alone has 3.3."""
    people = population(raw, "dirichlet")
    joint = np.zeros((10, 1 << 16))
    np.add.at(joint, (people.labels, people.codes), 1 / len(people))
    product = joint.sum(1)[:, None] * joint.sum(0)
    kept = joint > 0
    information = float((joint[kept] * np.log2(joint[kept] / product[kept])).sum())
    assert 1.7 < information < 1.8
    assert len(np.unique(people.codes)) == 1_344
    corners = [np.mean(people.codes >> bit & 1) for bit in (0, 3, 12, 15)]
    assert max(corners) < 0.05


def divergence(first: Population, second: Population, view: str, minimum: float) -> float:
    """KL in nats between two populations, values below the minimum of the first one merged."""
    laws = [np.bincount(values_of(part, view)[0], minlength=1 << 16) / len(part) for part in (first, second)]
    kept = laws[0] >= minimum
    p, q = (np.append(law[kept], law[~kept].sum()) for law in laws)
    shown = p > 0
    with np.errstate(divide="ignore"):
        return float(np.sum(p[shown] * np.log(p[shown] / q[shown])))


def test_students_write_otherwise_than_staff_and_staff_as_staff_do(raw: Path) -> None:
    people = population(raw, "writer")
    staff, students = people.of_series(STAFF), people.of_series(STUDENTS)
    halves = split_clients(staff, 0.5)
    assert abs(divergence(staff, students, "codes", 0.005) - 0.220) < 0.001
    assert abs(divergence(halves[0], halves[1], "codes", 0.005) - 0.008) < 0.001
    assert abs(divergence(staff, students, "labels", 0.005) - 0.001) < 0.0005
    assert divergence(staff, students, "labels_series", 0.005) == np.inf
    assert (len(staff), len(students)) == (35_949, 34_051)


def test_a_prepared_file_of_either_partition_is_byte_stable(raw: Path, tmp_path: Path) -> None:
    for partition in ("dirichlet", "writer"):
        datasets.save(tmp_path / "one.npz", population(raw, partition))
        again = datasets.load(tmp_path / "one.npz", Population)
        assert again.options == {"partition": partition}
        datasets.save(tmp_path / "two.npz", again)
        assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
