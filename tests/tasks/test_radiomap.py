"""The steps of the radio map system on a few windows: files, records, statements, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato import artifacts, records
from sfumato.errors import SfumatoError
from sfumato.params import Params, merged, parse, read_yaml
from sfumato.radiomap.defences import uniform
from sfumato.radiomap.unet import dimension
from sfumato.rng import Streams
from tasks.command import Call
from tasks.radiomap import account, attack, cells, prepare, train, warmup

ROOT = Path(__file__).resolve().parents[2]
METHODS = ["clip_only", "uniform", "adaptive_certified"]
SMALL = {
    "radiomap": {
        "grid": {"datasets": ["city_maps"], "defences": METHODS, "multipliers": [3], "seeds": [0]},
        "maps": {"stride": 256, "cell": 16, "transmitters": 8},
        "network": {"width": 0.05, "levels": 2},
        "warmup": {"steps": 2, "uploads": 40, "components": 4, "allocator_steps": 2},
        "train": {"clients": 3, "active": 2, "rounds": 2},
        "attack": {
            "shadow_uploads": 60,
            "client_uploads": 24,
            "rounds": [0, 2],
            "known_map_uploads": 1,
            "seeds_at_once": 1,
            "audit_runs": 100,
        },
    }
}


def _params(*changes: dict[str, Any]) -> Params:
    values = read_yaml(ROOT / "params.yaml")
    for change in (SMALL, *changes):
        values = merged(values, change)
    return parse(values)


def _call(root: Path, *changes: dict[str, Any], **options: str) -> Call:
    return Call(_params(*changes), root, "radiomap", {"dataset": "city_maps", **options})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("radiomap")
    prepare.run(_call(root))
    return root


@pytest.fixture(scope="module")
def done(prepared: Path) -> Path:
    """A tree after all steps."""
    warmup.run(_call(prepared))
    for method in METHODS:
        train.run(_call(prepared, method=method))
    attack.run(_call(prepared))
    account.run(_call(prepared))
    return prepared


def _read(root: Path, name: str) -> list[records.Record]:
    return records.from_document(artifacts.read_json(root / f"data/metrics/radiomap/{name}.json"))


def test_prepared_maps_come_back_as_they_were_and_no_city_is_in_two_parts(prepared: Path) -> None:
    call = _call(prepared)
    maps = cells.load_maps(cells.prepared_path(call))
    assert set(maps.cities) == {"munich", "florence", "etoile", "san_francisco"}
    parts = [cells.part_of(call, maps, part).count for part in ("clients", "shadow", "validation")]
    assert min(parts) >= 3
    assert sum(parts) == maps.count
    cells.save_maps(prepared / "again.npz", maps)
    assert (prepared / "again.npz").read_bytes() == cells.prepared_path(call).read_bytes()


@pytest.mark.slow
def test_the_steps_leave_records_pictures_and_statements(done: Path) -> None:
    for method in METHODS:
        (fit,) = _read(done, f"train/city_maps-{method}")
        assert isinstance(fit.values["validation_db"], float)
    rows = _read(done, "attack/city_maps")
    seen = {row.levels["attacker"] for row in rows}
    assert {
        "ridge",
        "kernel",
        "mlp",
        "whitened",
        "noise_aware",
        "known_map",
        "best",
        "least",
        "constant",
    } <= seen
    assert {row.levels["uploads"] for row in rows} == {"1", "2", "sum6"}
    assert {row.levels["view"] for row in rows} == {"all", "slices"}
    pictures = artifacts.read_npz(done / "data/plots/radiomap/pictures/city_maps.npz")
    assert pictures["predictions"].shape == (3, 16, 16)
    assert pictures["truth"].max() <= 0.0
    folder = done / "data/statements/radiomap/city_maps"
    assert "no epsilon" in " ".join((folder / "clip_only-0.txt").read_text().split())
    certified = " ".join((folder / "uniform-3.txt").read_text().split())
    assert "protects nothing formally" in certified


@pytest.mark.slow
def test_the_priced_uploads_are_those_that_were_sent_and_the_audit_stays_below(done: Path) -> None:
    recorded = artifacts.read_json(done / "data/events/radiomap/train/city_maps-uniform.json")["cells"]
    assert recorded["3/0"]["released"] == 4
    for row in _read(done, "account/city_maps"):
        if row.levels["method"] == "clip_only":
            assert row.values["epsilon_upload"] is None
            continue
        assert row.values["uploads_per_client"] == recorded["3/0"]["uploads"]
        assert 0 <= float(row.values["audit_lower"] or 0) <= float(row.values["epsilon_upload"] or 0)
        assert float(row.values["epsilon_upload"] or 0) > 10


@pytest.mark.slow
def test_equal_parameters_give_equal_bytes(done: Path, tmp_path: Path) -> None:
    before = (done / "data/metrics/radiomap/train/city_maps-uniform.json").read_bytes()
    train.run(_call(done, method="uniform"))
    assert (done / "data/metrics/radiomap/train/city_maps-uniform.json").read_bytes() == before


def test_radiomapseer_that_nobody_placed_is_one_sentence(tmp_path: Path) -> None:
    call = Call(_params(), tmp_path, "radiomap", {"dataset": "radiomapseer"})
    with pytest.raises(SfumatoError, match="place its folder RadioMapSeer") as caught:
        prepare.run(call)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"maps": {"shadow": ["munich"]}}, "which another part has"),
        ({"maps": {"built": [0.8, 0.1]}}, "a smaller share before a larger one"),
        ({"train": {"active": 15}}, "at most the 3 clients"),
        ({"attack": {"rounds": [3]}}, "0 to the 2 rounds"),
        ({"grid": {"defences": ["uniform"]}}, "lists with clip_only"),
        ({"train": {"maps_per_upload": 2}}, "simulates one map"),
        ({"grid": {"multipliers": [0]}}, "greater than 0"),
        ({"grid": {"multipliers": [3, 3.0000001]}}, "differ in their first six digits"),
        ({"maps": {"cell": 7}}, "divides the window of 256 m"),
        ({"maps": {"cell": 1.5}}, "divides the window of 256 m"),
        ({"maps": {"margin": 8}}, r"maps\.margin is 8 for maps of 16 cells a side; allowed is at most 7"),
        ({"network": {"levels": 5}}, "allowed are maps of a multiple of 32 cells"),
        ({"network": {"levels": 4, "padding": "reflect"}}, "a multiple of 16 cells, 32 at least"),
        (
            {"train": {"loss_margin": 8}},
            r"loss_margin is 8 for maps of 16 cells a side; allowed is at most 7",
        ),
        ({"attack": {"confidence": 0.5}}, "greater than 0.5"),
    ],
)
def test_parameters_that_do_not_fit_are_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SfumatoError, match=sentence) as caught:
        _params({"radiomap": change})
    assert "\n" not in str(caught.value)


def test_release_mode_is_refused_since_the_clients_live_on_public_maps() -> None:
    off = {
        "privacy": {"mode": "release"},
        "topk": {"grid": {"datasets": [], "references": []}, "audit": {"datasets": []}},
        "modulated": {"grid": {"datasets": []}, "attack": {"datasets": []}},
        "divergence": {
            "grid": {"datasets": []},
            "timeline": {"datasets": []},
            "attack": {"datasets": []},
        },
    }
    with pytest.raises(SfumatoError, match=r"radiomap\.grid\.datasets is \['city_maps'\] in release mode"):
        _params(off)


def test_what_is_priced_is_the_seed_in_which_all_uploads_of_a_client_cost_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the same noise in both it is the one in which a client sent more."""
    call = _call(ROOT)
    call = Call(_params({"radiomap": {"grid": {"seeds": [0, 1]}}}), call.root, call.system, call.options)
    monkeypatch.setattr(cells, "public_of", lambda *_given: None)
    monkeypatch.setattr(
        cells, "defence_of", lambda _call, _method, nu, _public, partition: uniform(partition, nu, 1.0)
    )
    for most in (0, 1):
        recorded = {f"3/{seed}": {"uploads": 9 if seed == most else 8} for seed in (0, 1)}
        seed, _defence = account._costliest(call, "uniform", 3.0, recorded)
        assert seed == str(most)


def test_weights_that_training_did_not_keep_are_not_taken_from_another_round() -> None:
    call = _call(ROOT)
    models = {"0/seed0/round1": "first", "0/seed0/final": "last"}
    assert attack._weights(call, models, "0/seed0", 1) == "first"
    assert attack._weights(call, models, "0/seed0", 2) == "last"
    with pytest.raises(
        SfumatoError,
        match="clip_only kept no weights '0/seed0/round0'; allowed are the multipliers, seeds and",
    ):
        attack._weights(call, models, "0/seed0", 0)
    with pytest.raises(SfumatoError, match="kept no weights '3/seed0/final'"):
        attack._weights(call, models, "3/seed0", 2)


def test_seeds_attacked_side_by_side_give_the_bytes_of_one_after_the_other(
    prepared: Path, tmp_path: Path
) -> None:
    shutil.copytree(prepared / "data/prepared", tmp_path / "data/prepared")
    two = {"radiomap": {"grid": {"defences": ["clip_only"], "seeds": [0, 1]}}}
    attacked = {"attack": {"rounds": [2], "known_map_uploads": 0}}
    warmup.run(_call(tmp_path, two))
    train.run(_call(tmp_path, two, method="clip_only"))
    made: list[bytes] = []
    for processes in (1, 2):
        attacked["attack"]["seeds_at_once"] = processes
        attack.run(_call(tmp_path, two, {"radiomap": attacked}))
        made.append((tmp_path / "data/metrics/radiomap/attack/city_maps.json").read_bytes())
    assert made[0] == made[1]


def test_models_and_records_of_another_grid_are_refused_in_one_sentence_before_anything_is_attacked(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where training ran at nu = 3 alone, an attack and an account at nu = 1 name what is missing and write nothing."""
    for folder in ("models", "events"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    (tmp_path / "data/prepared").symlink_to(prepared / "data/prepared")
    for method in METHODS:
        text = "0" if method == "clip_only" else "3"
        kept = {f"{text}/seed0/final": np.zeros(3, np.float32)}
        artifacts.write_npz(tmp_path / f"data/models/radiomap/train/city_maps-{method}.npz", kept)
        found = {"cells": {f"{text}/0": {"uploads": 1, "released": 1, "events": []}}}
        artifacts.write_json(tmp_path / f"data/events/radiomap/train/city_maps-{method}.json", found)
    changed = _params({"radiomap": {"grid": {"defences": METHODS[:2], "multipliers": [1]}}})
    call = Call(changed, tmp_path, "radiomap", {"dataset": "city_maps"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        SfumatoError, match="training with uniform kept no weights '1/seed0/final'; allowed are"
    ) as caught:
        attack.run(call)
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(account, "_costliest", lambda *_given: pytest.fail("it went on"))
    only = Call(
        _params({"radiomap": {"grid": {"seeds": [4]}}}), tmp_path, "radiomap", {"dataset": "city_maps"}
    )
    for document in ({"cells": {"0/0": {}}}, {"a": 1}, []):
        artifacts.write_json(tmp_path / "data/events/radiomap/train/city_maps-clip_only.json", document)
        with pytest.raises(
            SfumatoError, match="clip_only recorded nothing of multiplier/seed 0/4; allowed are"
        ):
            account.run(only)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_part_without_a_window_is_refused_by_prepare_and_named(tmp_path: Path) -> None:
    """No window of 1000 m fits into the attacker's city of 676 m."""
    changed = _params({"radiomap": {"maps": {"window": 1000, "stride": 1000, "cell": 50}}})
    with pytest.raises(
        SfumatoError, match=r"radiomap\.maps\.shadow is \['etoile'\], of which the prepared maps hold no"
    ):
        prepare.run(Call(changed, tmp_path, "", {"dataset": "city_maps"}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "value"), [("cell", 8), ("window", 512), ("transmitters", 4)])
def test_maps_of_other_parameters_are_not_taken_for_these(prepared: Path, name: str, value: int) -> None:
    changed = _params({"radiomap": {"maps": {"stride": 512, name: value}}})
    call = Call(changed, prepared, "radiomap", {"dataset": "city_maps"})
    with pytest.raises(
        SfumatoError, match=rf"maps\.{name} .*; allowed is {value}, .* run tasks\.prepare again"
    ):
        cells.maps_of(call)


def test_models_that_draw_no_finite_map_are_left_out_of_the_pictures(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = _call(prepared)
    maps = cells.part_of(call, cells.maps_of(call), "clients")
    size = dimension(cells.model_of(call, Streams(0)))
    finals = {"clip_only": np.zeros(size, np.float32), "uniform": np.full(size, 1e30, np.float32)}
    monkeypatch.setattr(
        attack,
        "_models",
        lambda _call, method: {f"{0 if method == 'clip_only' else 3}/seed0/final": finals[method]},
    )
    guesses = {"clip_only/0": np.zeros(2), "uniform/3": np.ones(2)}
    found = attack._pictures(call, maps, guesses)
    assert found["names"].tolist() == ["clip_only/0"]
    assert np.isfinite(found["predictions"]).all()
    assert found["guesses"].shape == (1, 2)
