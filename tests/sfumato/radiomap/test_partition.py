"""Groups of weights cover every coordinate once, or are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SfumatoError
from sfumato.radiomap.partition import Group, Partition, partition_of


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_any_labelling_is_a_partition_that_spreads_and_measures_as_its_labels_say(
    dimension: int, groups: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(0, groups, dimension)
    partition = partition_of(
        dimension, {f"g{number}": np.flatnonzero(labels == number) for number in range(groups)}
    )
    vector = random.normal(size=dimension)
    assert partition.sizes.sum() == dimension
    assert np.isclose(np.linalg.norm(partition.norms(vector)), np.linalg.norm(vector))
    values = random.normal(size=partition.count)
    spread = partition.spread(values)
    for number, group in enumerate(partition.groups):
        assert np.all(spread[group.index] == values[number])
        assert np.isclose(partition.norms(vector)[number], np.linalg.norm(vector[group.index]))
        assert np.all(partition.labels[group.index] == number)


def test_what_no_group_names_is_the_rest_and_only_named_groups_are_sensitive() -> None:
    partition = partition_of(6, {"a": np.array([5, 1]), "none": np.array([], int)}, sensitive={"a"})
    assert partition.names == ("a", "rest")
    assert partition.groups[0].index.tolist() == [1, 5]
    assert partition.groups[1].index.tolist() == [0, 2, 3, 4]
    assert partition.sensitive.tolist() == [True, False]


def test_positions_cannot_be_changed_afterwards() -> None:
    given_index = np.array([0, 2])
    group = Group("a", given_index)
    given_index[0] = 1
    assert group.index.tolist() == [0, 2]
    with pytest.raises(ValueError, match="read-only"):
        group.index[0] = 1


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([2, 1], "not ascending"),
        ([1, 1], "not ascending"),
        ([-1, 2], "not ascending"),
        ([], "d_g >= 1"),
        ([0.5, 1.5], "allowed are integers"),
        ([[0], [1]], "d_g >= 1"),
    ],
)
def test_positions_that_are_not_ascending_integers_are_refused(index: list[float], message: str) -> None:
    with pytest.raises(SfumatoError, match=message):
        Group("a", np.array(index))


@pytest.mark.parametrize(
    ("groups", "dimension", "message"),
    [
        ((), 2, "groups is empty"),
        ((Group("a", np.array([0, 1])), Group("a", np.array([2]))), 3, "names two groups"),
        ((Group("a", np.array([0, 1])), Group("b", np.array([1, 2]))), 3, "coordinate 1 is in 2 groups"),
        ((Group("a", np.array([0, 2])),), 3, "coordinate 1 is in 0 groups"),
        ((Group("a", np.array([0, 3])),), 3, "position 3; allowed is below 3"),
        ((Group("a", np.array([0])),), 0, "dimension is 0"),
    ],
)
def test_groups_that_overlap_or_leave_gaps_are_refused(
    groups: tuple[Group, ...], dimension: int, message: str
) -> None:
    with pytest.raises(SfumatoError, match=message):
        Partition(groups, dimension)


def test_a_nameless_group_an_unknown_sensitive_name_and_wrong_shapes_are_refused() -> None:
    with pytest.raises(SfumatoError, match="name of a group is empty"):
        Group("", np.array([0]))
    with pytest.raises(SfumatoError, match="'b' has no positions"):
        partition_of(3, {"a": np.array([0])}, sensitive={"b"})
    partition = partition_of(3, {"a": np.array([0])})
    with pytest.raises(SfumatoError, match=r"shape \(2,\); allowed is \(3,\)"):
        partition.norms(np.zeros(2))
    with pytest.raises(SfumatoError, match="one per group"):
        partition.spread(np.zeros(3))
