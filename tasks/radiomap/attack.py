"""Locate transmitters from uploads under every defence: ``python -m tasks.attack radiomap --dataset city_maps``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasks import command

LEVELS = ["dataset", "method", "multiplier", "seed", "round", "view", "uploads", "attacker"]
TOLERANCES = {"rmse": 15.0, "median": 15.0, "half_width": 10.0}
AT = "clip_only"
"""The defence at whose weights all are attacked unless each has its own, so that their differences are paired."""


def run(call: command.Call) -> None:
    """Attack every defence at the same weights: one upload, several rounds averaged, the sum of six, the known map."""
    from functools import partial

    from sfumato import artifacts, records
    from sfumato.radiomap.processes import side_by_side
    from tasks.radiomap import cells

    maps = cells.maps_of(call)
    _check_trained(call)
    seeds, found = list(cells.streams_of(call)), list[records.Record]()
    guesses: dict[str, Any] = {}
    attacked = side_by_side(partial(_of_seed, call), seeds, call.params.radiomap.attack.seeds_at_once)
    for number, (made, thought) in enumerate(attacked):
        found += made
        guesses = guesses or thought
        command.progress(number + 1, len(seeds), "seeds attacked", every=1)
    document = records.to_document("radiomap", "attack", LEVELS, found, TOLERANCES)
    artifacts.write_npz(
        call.root / "data/plots/radiomap/pictures" / f"{call.options['dataset']}.npz",
        _pictures(call, cells.part_of(call, maps, "clients"), guesses),
    )
    artifacts.write_json(call.path("metrics", "attack", ".json"), document)


def _of_seed(call: command.Call, seed: str) -> tuple[list[Any], dict[str, Any]]:
    """Records of one seed, and where its first victim is put under each defence."""
    from tasks.radiomap import cells

    maps, models, streams = cells.maps_of(call), _models(call, AT), cells.streams_of(call)[seed]
    guesses: dict[str, Any] = {}
    return list(_records_of(call, maps, models, seed, streams, guesses)), guesses


def _records_of(
    call: command.Call, maps: Any, models: Any, seed: str, streams: Any, guesses: dict[str, Any]
) -> Iterator[Any]:
    from tasks.radiomap import cells

    public, partition = cells.public_of(call, seed), cells.partition_of(cells.model_of(call, streams))
    own = call.params.radiomap.attack.trajectory == "own"
    shared = None if own else _sides(call, maps, models, f"0/seed{seed}", streams)
    for method in call.params.radiomap.grid.defences:
        for nu in cells.multipliers_of(call, method):
            levels = _levels(call, method, nu, seed)
            sides = shared
            if sides is None:
                cell = f"{levels['multiplier']}/seed{seed}"
                sides = _sides(call, maps, _models(call, method), cell, streams, method)
            defence = cells.defence_of(call, method, nu, public, partition)
            yield from _of_defence(defence, sides, levels, streams, guesses)
    if shared is not None:
        yield from _known_map(call, cells.part_of(call, maps, "clients"), shared, models, seed, streams)


def _sides(
    call: command.Call, maps: Any, models: Any, cell: str, streams: Any, method: str = AT
) -> dict[int, tuple[Any, Any]]:
    """Round -> undefended updates of the attacker and of the victims at the weights of one training."""
    from sfumato.radiomap.attacked import make_updates
    from tasks.radiomap import cells

    attack, model = call.params.radiomap.attack, cells.model_of(call, streams)
    shadow, victims = (cells.part_of(call, maps, part) for part in ("shadow", "clients"))
    shared = (call.params.radiomap.train.maps_per_upload, cells.local_of(call), streams)
    sides: dict[int, tuple[Any, Any]] = {}
    for number in sorted(attack.rounds):
        weights = _weights(call, models, cell, number, method)
        sides[number] = (
            make_updates(model, weights, shadow, attack.shadow_uploads, *shared, "shadow"),
            make_updates(model, weights, victims, attack.client_uploads, *shared, "victims"),
        )
    return sides


def _check_trained(call: command.Call) -> None:
    """Refuse models of another grid before anything is attacked."""
    from sfumato.radiomap.preparation import multiplier_text
    from tasks.radiomap import cells

    for method in call.params.radiomap.grid.defences:
        models = _models(call, method)
        for nu in cells.multipliers_of(call, method):
            for seed in cells.streams_of(call):
                last = call.params.radiomap.train.rounds
                _weights(call, models, f"{multiplier_text(nu)}/seed{seed}", last, method)


def _models(call: command.Call, method: str) -> Any:
    """The arrays that training under a defence kept."""
    from sfumato import artifacts

    name = f"{call.options['dataset']}-{method}.npz"
    return artifacts.read_npz(call.root / "data/models/radiomap/train" / name)


def _weights(call: command.Call, models: Any, cell: str, number: int, method: str = AT) -> Any:
    """The weights with which a round begins; those after the last one are the trained model's.

    Raises:
        SfumatoError: if training kept none of that round.
    """
    from sfumato.errors import SfumatoError

    name = f"{cell}/final" if number == call.params.radiomap.train.rounds else f"{cell}/round{number}"
    if name not in models:
        raise SfumatoError(
            f"training with {method} kept no weights {name!r}; allowed are the multipliers, seeds and radiomap.attack.rounds that "
            "it was run with: run it again."
        )
    return models[name]


def _levels(call: command.Call, method: str, nu: float, seed: str) -> dict[str, str]:
    from sfumato.radiomap.preparation import multiplier_text

    return {
        "dataset": call.options["dataset"],
        "method": method,
        "multiplier": multiplier_text(nu),
        "seed": seed,
    }


def _of_defence(
    defence: Any,
    sides: dict[int, tuple[Any, Any]],
    levels: dict[str, str],
    streams: Any,
    guesses: dict[str, Any],
) -> Iterator[Any]:
    """Records of one defence at one multiplier."""
    from sfumato.radiomap.attacked import (
        attack_average,
        attack_defended,
        attack_records,
        attack_secure_sum,
        defend,
        guessed,
        sensitive_index,
        sum_records,
    )

    rounds = {number: defend(defence, *pair, number, streams) for number, pair in sides.items()}
    last = max(rounds)
    for number, made in rounds.items():
        result = attack_defended(made, streams)
        at = {**levels, "round": str(number), "view": "all", "uploads": "1"}
        yield from attack_records(result, at)
        if number == last:
            guesses[f"{levels['method']}/{levels['multiplier']}"] = guessed(result, 0)
    index = sensitive_index(defence.partition)
    final = {**levels, "round": str(last)}
    yield from attack_records(
        attack_defended(rounds[last], streams, index), {**final, "view": "slices", "uploads": "1"}
    )
    if len(rounds) > 1:
        averaged = attack_average(list(rounds.values()), streams)
        yield from attack_records(averaged, {**final, "view": "all", "uploads": str(len(rounds))})
    yield from sum_records(
        attack_secure_sum(rounds[last], streams), {**final, "view": "all", "uploads": "sum6"}
    )


def _known_map(
    call: command.Call, maps: Any, sides: dict[int, tuple[Any, Any]], models: Any, seed: str, streams: Any
) -> Iterator[Any]:
    """Records of the attacker who knows a victim's building map and simulates where the transmitter could be."""
    from sfumato.radiomap.attacked import attack_values
    from sfumato.radiomap.candidates import Candidates, attack_known_maps
    from sfumato.records import Record
    from tasks.radiomap import cells

    count = call.params.radiomap.attack.known_map_uploads
    if not count:
        return
    last, model = max(sides), cells.model_of(call, streams)
    public, partition = cells.public_of(call, seed), cells.partition_of(model)
    candidates = Candidates(
        model,
        _weights(call, models, f"0/seed{seed}", last),
        maps,
        cells.local_of(call),
        cells.link_of(call),
        streams,
        cells.encoding_of(call),
    )
    every = {
        (method, nu): cells.defence_of(call, method, nu, public, partition)
        for method in call.params.radiomap.grid.defences
        for nu in cells.multipliers_of(call, method)
    }
    found = attack_known_maps(candidates, sides[last][1], every, count, last, streams)
    for (method, nu), errors in found.items():
        place = {"round": str(last), "view": "all", "uploads": "1", "attacker": "known_map"}
        yield Record({**_levels(call, method, nu, seed), **place}, attack_values(errors))


def _pictures(call: command.Call, maps: Any, guesses: dict[str, Any]) -> dict[str, Any]:
    """The first victim's map, what the models of the first seed draw of it, and where it is thought to be.

    Models that noise has drowned draw no finite map, and are left out.
    """
    import numpy as np

    from sfumato.radiomap.encoding import decode
    from sfumato.radiomap.federated import all_pairs, draw_sessions
    from sfumato.radiomap.references import predictions
    from sfumato.radiomap.unet import load_flat
    from tasks.radiomap import cells

    seed, streams = next(iter(cells.streams_of(call).items()))
    radiomap = call.params.radiomap
    per_upload = radiomap.train.maps_per_upload
    stream = streams.stream("attack", "victims", "sessions")
    pair = draw_sessions(
        maps, all_pairs(maps), radiomap.attack.client_uploads, per_upload, stream, per_upload > 1
    )[0, :1]
    drawn: dict[str, Any] = {}
    model = cells.model_of(call, streams)
    for name in guesses:
        method, text = name.split("/")
        load_flat(model, _models(call, method)[f"{text}/seed{seed}/final"])
        picture = predictions(model, maps, pair)[0].reshape(maps.size, maps.size)
        if np.isfinite(picture).all():
            drawn[name] = picture
    place, which = int(pair[0, 0]), int(pair[0, 1])
    return {
        "heights": maps.heights[place],
        "free": maps.free[place],
        "truth": decode(maps.radio[place, which], cells.encoding_of(call)),
        "transmitter": maps.transmitters[place, which],
        "names": np.array(list(drawn)),
        "predictions": decode(np.clip(np.stack(list(drawn.values())), 0.0, 1.0), cells.encoding_of(call)),
        "guesses": np.stack([guesses[name] for name in drawn]) / maps.cell - 0.5,
        "cell": np.array(maps.cell),
    }
