"""What is derived from public messages alone: everybody comes to the same."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.divergence.agreement import estimate_from_value, points_of, reference_digest
from sfumato.divergence.estimator import release
from sfumato.divergence.intervals import Tail
from sfumato.divergence.messages import Announcement
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.reference import PublicPoints, Reference, all_points
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream, Streams, SystemStream
from tests.sfumato.divergence.parties import MASSES, PLAN, POINTS, REFERENCE, parties


@pytest.mark.parametrize("points", [POINTS, all_points(REFERENCE)], ids=["drawn", "all"])
@pytest.mark.parametrize("stream", [Streams(1).stream("noise"), SystemStream()], ids=["seeded", "system"])
def test_the_estimate_rebuilt_from_its_value_is_the_released_one(
    points: PublicPoints, stream: RandomStream
) -> None:
    counts = np.array([200, 500, 600, 0, 400, 200, 100])[points.cells]
    released = release(counts, 2000, points, REFERENCE, PLAN, 1.0, 1e-5, stream, confidence=0.9)
    discrete = isinstance(stream, SystemStream)
    rebuilt = estimate_from_value(
        released.raw, 2000, points, REFERENCE, PLAN, 1.0, 1e-5, confidence=0.9, discrete=discrete
    )
    for name, value in vars(released).items():
        if name != "sensitivity":
            assert getattr(rebuilt, name) == value, name
    assert rebuilt.sensitivity.charged == released.sensitivity.charged


def test_other_references_have_other_digests() -> None:
    other_masses = Reference.from_probabilities(list(reversed(MASSES)))
    other_cells = Reference.from_probabilities(MASSES, 0.06)
    digests = {reference_digest(one) for one in (REFERENCE, other_masses, other_cells)}
    assert len(digests) == 3
    assert reference_digest(Reference.from_probabilities(MASSES)) == reference_digest(REFERENCE)


@pytest.mark.parametrize("points", [POINTS, all_points(REFERENCE)], ids=["drawn", "all"])
def test_clients_get_the_points_that_the_server_drew(points: PublicPoints) -> None:
    announced = Announcement.decode(parties(points=points).server.announcement())
    got = points_of(announced, REFERENCE)
    assert np.array_equal(got.cells, points.cells)
    assert np.array_equal(got.weights, points.weights)
    assert got.draws == points.draws


def test_an_announcement_on_another_reference_or_cell_is_refused() -> None:
    announced = Announcement.decode(parties().server.announcement())
    with pytest.raises(SfumatoError, match="about another reference"):
        points_of(announced, Reference.from_probabilities(MASSES, 0.06))
    beyond = Announcement(**{**vars(announced), "cells": announced.cells + np.int32(100)})
    with pytest.raises(SfumatoError, match="asks for the cell"):
        points_of(beyond, REFERENCE)


@pytest.mark.parametrize("tail", ["normal", "guaranteed"])
def test_the_interval_of_a_value_has_the_tail_that_is_asked_for(tail: Tail) -> None:
    counts = np.array([200, 500, 600, 0, 400, 200, 100])[POINTS.cells]
    stream = Streams(1).stream("noise")
    released = release(counts, 2000, POINTS, REFERENCE, PLAN, 1.0, 1e-5, stream, tail=tail)
    rebuilt, other = (
        estimate_from_value(released.raw, 2000, POINTS, REFERENCE, PLAN, 1.0, 1e-5, 0.95, False, one)
        for one in (tail, "normal" if tail == "guaranteed" else "guaranteed")
    )
    assert (rebuilt.low, rebuilt.high) == (released.low, released.high)
    assert (other.low, other.high) != (released.low, released.high)
    with pytest.raises(SfumatoError, match="tail is 'fat'"):
        estimate_from_value(0.1, 2000, POINTS, REFERENCE, PLAN, 1.0, 1e-5, 0.95, False, "fat")  # type: ignore[arg-type]


def test_a_value_below_zero_is_clipped_to_its_targets_range_and_lies_in_its_interval() -> None:
    plan, every = EstimatorPlan(Floor("clip", 0.5, 2.0), 0.0), all_points(REFERENCE)
    found = estimate_from_value(-0.2939, 10**7, every, REFERENCE, plan, 1.0, 1e-5, 0.95, False)
    assert found.low <= found.clipped == -0.2939 <= found.high < 0.0
