"""The pieces of the experiment on a tiny world: public part, training under each defence, attacks on the same uploads."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from sfumato.datasets.radio_windows import Windows, draw_transmitters
from sfumato.errors import SfumatoError
from sfumato.radiomap import attacked
from sfumato.radiomap.allocator import AllocatorSettings
from sfumato.radiomap.attacked import (
    attack_average,
    attack_defended,
    attack_records,
    attack_secure_sum,
    defend,
    make_updates,
    observed_state,
    sensitive_index,
    sum_records,
)
from sfumato.radiomap.candidates import Candidates, attack_known_maps
from sfumato.radiomap.client import LocalTraining
from sfumato.radiomap.encoding import RADIO_MAP_SEER
from sfumato.radiomap.federated import FederationPlan
from sfumato.radiomap.fits import Federation, curve_rows, deal, fit, fit_values, uploads_of
from sfumato.radiomap.maps import MapSet, simulate
from sfumato.radiomap.preparation import (
    DEFENCES,
    NOISELESS,
    Prepared,
    Public,
    PublicSettings,
    make_defence,
    prepare_public,
)
from sfumato.radiomap.propagation import Link
from sfumato.radiomap.tracing import layer_partition
from sfumato.radiomap.unet import Architecture, RadioUNet, build
from sfumato.rng import Streams
from tests.cases import quick_ones

SIZE, CELL, NU = 16, 16.0, 3.0
PLAN, LOCAL = FederationPlan(3, 2, 2), LocalTraining(batch_size=1)
SETTINGS = PublicSettings(
    steps=2, uploads=40, components=4, allocator=AllocatorSettings(steps=3), per_round=2
)
STREAMS = Streams(0)


@cache
def world() -> MapSet:
    """Three cities of random blocks."""
    random = np.random.default_rng(0)
    count = 18
    heights = np.where(random.random((count, SIZE, SIZE)) < 0.2, 15.0, 0.0).astype(np.float32)
    city = np.repeat(np.arange(3), count // 3).astype(np.int16)
    windows = Windows(
        heights, city, ("clients", "shadow", "validation"), np.zeros((count, 2), np.float32), CELL
    )
    places = draw_transmitters(windows, 8, 1, STREAMS.stream("places"))
    return simulate(windows, places, Link())


def network() -> RadioUNet:
    return build(Architecture(0.05, 2), STREAMS.stream("init"))


@cache
def prepared() -> Prepared:
    model = network()
    shadow = world().of_cities(("shadow",))
    return prepare_public(model, layer_partition(model), shadow, LOCAL, LOCAL, SETTINGS, (NU,), STREAMS)


def defence(name: str) -> Any:
    nu = 0.0 if name in NOISELESS else NU
    return make_defence(name, nu, prepared().public, layer_partition(network()), PLAN.rounds, SETTINGS.floor)


@cache
def federation() -> Federation:
    maps = world()
    return Federation(PLAN, LOCAL, 1, maps.of_cities(("clients",)), maps.of_cities(("validation",)))


@pytest.mark.parametrize("name", quick_ones(DEFENCES, {"none", "shaped", "adaptive_certified"}))
def test_every_defence_trains_from_the_same_public_weights_and_adds_its_energy(name: str) -> None:
    model, guarded = network(), defence(name)
    history = fit(model, federation(), prepared().public, guarded, STREAMS, keep_weights=(0,))
    assert np.array_equal(history.weights[0], prepared().public.weights)
    assert not np.array_equal(history.final, history.weights[0])
    values = fit_values(history, guarded, prepared().public, 0.0 if name in NOISELESS else NU)
    if name in NOISELESS:
        assert values["energy_ratio"] is None
    else:
        assert values["energy_ratio"] == pytest.approx(1.0, rel=1e-9)
    assert len(curve_rows(history, ["0", "3"])) == PLAN.rounds
    assert sum(uploads_of(history).values()) == PLAN.rounds * PLAN.active


def test_the_public_part_survives_its_file_form() -> None:
    public = prepared().public
    again = Public.from_arrays(public.arrays())
    assert again.clip_norm == public.clip_norm
    for name, value in public.arrays().items():
        assert np.array_equal(again.arrays()[name], value)
    with pytest.raises(SfumatoError, match="'weights' is missing"):
        Public.from_arrays({})


def test_the_public_part_reads_the_shadow_maps_alone_and_is_the_same_for_the_same_seed() -> None:
    model = network()
    shadow = world().of_cities(("shadow",))
    again = prepare_public(model, layer_partition(model), shadow, LOCAL, LOCAL, SETTINGS, (NU,), STREAMS)
    for name, value in prepared().public.arrays().items():
        assert np.array_equal(again.public.arrays()[name], value), name


def test_uploads_that_share_maps_all_round_are_refused_with_what_to_change() -> None:
    """Forty draws of two of six maps leave no three groups of maps apart."""
    model = network()
    settings = replace(SETTINGS, maps_per_upload=2)
    shadow = world().of_cities(("shadow",))
    places = shadow.transmitters.copy()
    places[:] = np.argwhere((shadow.heights == 0).all(axis=0))[:8]
    radio = np.where((shadow.heights == 0)[:, None], np.float32(0.5), np.float32(0.0))
    shared = replace(shadow, transmitters=places, radio=np.repeat(radio, 8, axis=1))
    with pytest.raises(
        SfumatoError, match=r"40 uploads of 2 shadow maps each leave 1 group .* fewer maps per upload"
    ):
        prepare_public(model, layer_partition(model), shared, LOCAL, LOCAL, settings, (NU,), STREAMS)


def test_the_clip_norm_is_passed_by_half_of_the_shadow_updates() -> None:
    made = make_updates(
        network(), prepared().public.weights, world().of_cities(("shadow",)), 40, 1, LOCAL, STREAMS, "shadow"
    )
    share = np.mean(np.linalg.norm(made.updates.astype(np.float64), axis=1) > prepared().public.clip_norm)
    assert 0.2 < share < 0.8


def test_an_unknown_defence_or_multiplier_is_one_sentence() -> None:
    partition = layer_partition(network())
    for name, nu in (("unifrom", 1.0), ("uniform", 0.0)):
        with pytest.raises(SfumatoError, match="is unknown; allowed are none"):
            make_defence(name, nu, prepared().public, partition, 2, 0.25)
    with pytest.raises(SfumatoError, match="no allocator was trained for the multiplier 7"):
        make_defence("adaptive", 7.0, prepared().public, partition, 2, 0.25)


def test_maps_are_dealt_out_whole_and_to_everybody() -> None:
    hands = deal(10, 3, np.random.default_rng(0).permutation(10))
    assert sorted(np.concatenate(hands).tolist()) == list(range(10))
    with pytest.raises(SfumatoError, match="2 maps for 3 clients"):
        deal(2, 3, np.arange(2))


@cache
def sides() -> tuple[Any, Any]:
    model, weights = network(), prepared().public.weights
    shadow, victims = (world().of_cities((name,)) for name in ("shadow", "clients"))
    return (
        make_updates(model, weights, shadow, 48, 1, LOCAL, STREAMS, "shadow"),
        make_updates(model, weights, victims, 24, 1, LOCAL, STREAMS, "victims"),
    )


@pytest.mark.parametrize("name", quick_ones(DEFENCES, {"uniform", "shaped"}))
def test_every_attacker_reads_every_defence(name: str) -> None:
    guarded = defence(name)
    made = defend(guarded, *sides(), 0, STREAMS)
    assert made.attacked.clean is None  # what an attacker does not have of others
    result = attack_defended(made, STREAMS)
    rows = attack_records(result, {"method": name})
    assert {row.levels["attacker"] for row in rows} >= {
        "ridge",
        "kernel",
        "mlp",
        "whitened",
        "best",
        "least",
        "constant",
    }
    least = next(row.values["rmse"] for row in rows if row.levels["attacker"] == "least")
    assert all(
        least <= row.values["rmse"]
        for row in rows
        if row.levels["attacker"] != "constant"  # type: ignore[operator]
    )
    index = sensitive_index(guarded.partition)
    assert 0 < len(index) < guarded.partition.dimension
    attack_defended(made, STREAMS, index, ["ridge"])


def test_averages_and_sums_are_attacked() -> None:
    rounds = [defend(defence("uniform"), *sides(), number, STREAMS) for number in (0, 1)]
    assert not np.array_equal(rounds[0].attacked.uploads, rounds[1].attacked.uploads)  # fresh noise
    assert "ridge" in attack_average(rounds, STREAMS, ["ridge"]).scores
    summed = attack_secure_sum(rounds[0], STREAMS, ["ridge"])
    assert {row.levels["attacker"] for row in sum_records(summed, {})} == {
        "ridge",
        "best",
        "least",
        "constant",
    }


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_a_defence_that_learns_is_attacked_in_the_state_that_it_has_when_the_round_begins(
    number: int,
) -> None:
    """Its allocator is told how far the training is, and the first round has no releases to learn from."""
    first = defence("adaptive_certified")
    state: Any = observed_state(first, sides()[1], number, STREAMS)
    assert state.round == number
    assert (state.seen is None) == (number == 0)
    assert np.array_equal(state.sigmas, first.sigmas) == (number == 0)


@pytest.mark.parametrize("name", ["uniform", "shaped"])
def test_who_reads_averages_is_told_the_noise_and_the_signal_of_the_averages(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Independent noise of levels s and 3 s leaves (1 + 9) s^2 / 4 in the mean; shaped noise is even where it is read."""
    told: list[Any] = []
    real = attacked.attack
    monkeypatch.setattr(attacked, "attack", lambda *given: (told.append(given), real(*given))[1])
    first = defend(defence(name), *sides(), 0, STREAMS)
    other = defend(defence(name), *sides(), 1, STREAMS)
    second = replace(other, sigmas=3.0 * other.sigmas)
    attack_average([first, second], STREAMS, ["whitened_ridge"])
    noise, shadow = told[0][3], told[0][0]
    spread = first.defence.partition.spread(first.sigmas[0])
    assert noise.variance == pytest.approx(2.5 * spread**2)
    assert shadow.clean is not None
    assert noise.signal.sum() == pytest.approx(shadow.clean.var(axis=0, dtype=np.float64).sum(), rel=1e-6)
    if name == "shaped":
        assert len(told) == 2
        assert told[1][3].variance == pytest.approx(first.defence.sigma**2 / 2)  # type: ignore[attr-defined]


def test_who_reads_sums_of_shaped_uploads_reads_them_where_their_noise_is_even(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    real = attacked.attack_sums
    monkeypatch.setattr(attacked, "attack_sums", lambda *given: (told.append(given), real(*given))[1])
    made = defend(defence("shaped"), *sides(), 0, STREAMS)
    found = attack_secure_sum(made, STREAMS, ["ridge", "whitened_ridge"])
    shape, (ours, theirs, *_rest, noise, names) = made.defence.shape, told[1]  # type: ignore[attr-defined]
    assert names == ["whitened_ridge"]
    assert noise.variance == pytest.approx(made.defence.sigma**2)  # type: ignore[attr-defined]
    assert ours.uploads[0] == pytest.approx(shape.power(made.shadow.uploads[0], -0.5), rel=1e-4, abs=1e-6)
    assert theirs.uploads[0] == pytest.approx(shape.power(made.attacked.uploads[0], -0.5), rel=1e-4, abs=1e-6)
    even = real(*told[1])
    assert found.each["whitened_ridge"] == even.each["whitened_ridge"]
    assert found.chosen == min(found.held_out, key=lambda name: found.held_out[name])
    assert set(found.held_out) == set(found.each) == {"ridge", "whitened_ridge"}
    assert set(attack_secure_sum(made, STREAMS, ["ridge"]).each) == {"ridge"}
    assert set(attack_defended(made, STREAMS, names=["ridge"]).scores) == {"ridge"}


def test_sessions_of_several_maps_are_held_out_with_all_that_share_one() -> None:
    maps = world().of_cities(("shadow",))
    made = make_updates(network(), prepared().public.weights, maps, 30, 2, LOCAL, STREAMS, "shadow")
    for number in range(maps.count):
        touching = (made.sessions[:, :, 0] == number).any(axis=1)
        assert len(set(made.maps[touching].tolist())) <= 1


def test_who_knows_the_map_simulates_it_in_the_victims_units() -> None:
    """In RadioMapSeer's as well: the true cell then gives the very update."""
    whole = world().of_cities(("clients",))
    windows = Windows(whole.heights, whole.city, whole.cities, whole.corner, CELL)
    maps = simulate(windows, whole.transmitters, Link(), RADIO_MAP_SEER)
    weights = prepared().public.weights
    made = make_updates(network(), weights, maps, 1, 1, LOCAL, STREAMS, "victims")
    place, which = made.sessions[0, 0]
    candidates = Candidates(network(), weights, maps, LOCAL, Link(), STREAMS, RADIO_MAP_SEER)
    found = candidates.scene(int(place)).simulate(maps.transmitters[place, which][None].astype(np.int64))
    assert np.array_equal(found[0], made.updates[0])


@pytest.mark.slow
def test_who_knows_the_map_finds_an_undefended_transmitter_and_noise_hides_it() -> None:
    """Without noise the true cell gives the very update, so that it is found, whatever the defence's clip."""
    model = network()
    victims = world().of_cities(("clients",))
    candidates = Candidates(model, prepared().public.weights, victims, LOCAL, Link(), STREAMS)
    every = {"none": defence("none"), "clip_only": defence("clip_only"), "uniform": defence("uniform")}
    found = attack_known_maps(candidates, sides()[1], every, 3, 0, STREAMS)
    assert found["none"].rmse <= found["uniform"].rmse
    assert found["none"].median < 3 * CELL
