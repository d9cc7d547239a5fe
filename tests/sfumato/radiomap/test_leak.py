"""Where the position comes from: the edges of a map without any building tell it, and a known map tells it well."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.datasets.city_heights import load_city_heights
from sfumato.datasets.radio_windows import Windows, cut_windows, draw_transmitters
from sfumato.radiomap.attackers import attack, attack_views
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.features import Sessions
from sfumato.radiomap.known_map import Case, Release, Scene, locate_all, simulator
from sfumato.radiomap.maps import MapSet, simulate
from sfumato.radiomap.partition import Partition
from sfumato.radiomap.propagation import Link
from sfumato.radiomap.tracing import paper_partition
from sfumato.radiomap.training import session_updates, warm_start
from sfumato.radiomap.unet import SMALL, Architecture, RadioUNet, build, flat
from sfumato.rng import Streams
from tests.sfumato.radiomap.attacked import WINDOW

TINY = Architecture(width=0.05, levels=1)


def plain_maps(count: int, size: int) -> MapSet:
    """Windows of 256 m without buildings, one transmitter each anywhere: free space, cut off at the window's edge."""
    windows = Windows(
        np.zeros((count, size, size), np.float32),
        np.zeros(count, np.int16),
        ("plain",),
        np.zeros((count, 2), np.float32),
        WINDOW / size,
    )
    return simulate(windows, draw_transmitters(windows, 1, 0, Streams(0).stream("transmitters")), Link())


def uploads_of(
    maps: MapSet, architecture: Architecture, training: LocalTraining, warm: int
) -> tuple[Sessions, RadioUNet, np.ndarray]:
    """One undefended upload per map, after a warm start on the same maps."""
    streams = Streams(1)
    model = build(architecture, streams.stream("init"))
    pairs = np.stack([np.arange(maps.count), np.zeros(maps.count, np.int64)], axis=1)
    weights = warm_start(flat(model), model, maps, pairs, LocalTraining(), warm, streams.stream("warm"))
    updates = session_updates(weights, model, maps, pairs[:, None], training, streams)
    return Sessions(updates, maps.positions(pairs), np.arange(maps.count), WINDOW), model, weights


def test_updates_from_maps_without_buildings_tell_where_the_transmitter_is() -> None:
    """T2, small: 70 shadow uploads of 1471 weights, one step of SGD on one map each; 15 m as measured."""
    sessions, _, _ = uploads_of(plain_maps(100, 16), TINY, LocalTraining("sgd", 1e-2), 20)
    found = attack(
        sessions.select(np.arange(70)), sessions.select(np.arange(70, 100)), Streams(0), names=["ridge"]
    )
    assert found.constant.rmse > 90.0
    assert found.scores["ridge"].test.rmse < 30.0
    assert found.scores["ridge"].validation.rmse < 30.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "training", [LocalTraining("sgd", 1e-2), LocalTraining("adam", 1e-3)], ids=["sgd", "adam"]
)
def test_the_position_is_in_all_weights_and_not_in_those_that_meet_the_transmitter(
    training: LocalTraining,
) -> None:
    """T2 on the small RadioUNet: ridge on all weights below 30 m, on the transmitter's weights more than twice as far."""
    sessions, model, _ = uploads_of(plain_maps(250, 32), SMALL, training, 60)
    views = {"all": None, "slices": sensitive(paper_partition(model, 32))}
    found = attack_views(
        sessions.select(np.arange(160)),
        sessions.select(np.arange(160, 250)),
        views,
        Streams(0),
        names=["ridge"],
    )
    errors = {view: result.scores["ridge"].test.rmse for view, result in found.items()}
    assert found["all"].constant.rmse > 90.0
    assert errors["all"] < 30.0
    assert errors["slices"] > 2.0 * errors["all"]


def sensitive(partition: Partition) -> np.ndarray:
    return np.concatenate([group.index for group in partition.groups if group.sensitive])


@pytest.mark.slow
def test_who_knows_the_buildings_needs_no_shadow_uploads() -> None:
    """Five clients in Munich: the cell itself without noise, and far from the constant predictor under uniform nu = 3."""
    windows = cut_windows(load_city_heights(["munich"]), stride=256)
    windows = Windows(windows.heights[:5], windows.city[:5], windows.cities, windows.corner[:5], windows.cell)
    maps = simulate(windows, draw_transmitters(windows, 1, 1, Streams(0).stream("transmitters")), Link())
    training = LocalTraining("sgd", 1e-2)
    sessions, model, weights = uploads_of(maps, SMALL, training, 20)
    sigma = 3.0 * np.median(np.linalg.norm(sessions.uploads, axis=1)) / np.sqrt(sessions.dimension)
    scenes = [
        Scene(free, maps.cell, simulator(heights, maps.cell, weights, model, training, Streams(0)))
        for free, heights in zip(maps.free, maps.heights, strict=True)
    ]
    medians: dict[float, float] = {}
    for deviation in (0.0, float(sigma)):
        noise = deviation * Streams(2).stream("noise").standard_normal(sessions.uploads.shape)
        cases = [
            Case(upload, scene, position, number)
            for number, (upload, scene, position) in enumerate(
                zip(sessions.uploads + noise, scenes, sessions.positions, strict=True)
            )
        ]
        release = Release(np.full(sessions.dimension, deviation))
        medians[deviation] = locate_all(cases, release, Streams(0).stream("intervals"))[0].median
    assert medians[0.0] == 0.0
    assert medians[float(sigma)] < 50.0
