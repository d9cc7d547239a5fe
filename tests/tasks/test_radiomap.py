"""The steps of the radio map system on a few windows: files, records, statements, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfumato import artifacts, records
from sfumato.errors import SfumatoError
from sfumato.params import Params, merged, parse, read_yaml
from sfumato.radiomap.defences import uniform
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
            "audit_runs": 100,
        },
    }
}


def _params(*changes: dict[str, Any]) -> Params:
    values = read_yaml(ROOT / "params.yaml")
    for change in (SMALL, *changes):
        values = merged(values, change)
    return parse(values)


def _call(root: Path, **options: str) -> Call:
    return Call(_params(), root, "radiomap", {"dataset": "city_maps", **options})


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
    with pytest.raises(SfumatoError, match="kept no weights '0/seed0/round0'; allowed are the rounds"):
        attack._weights(call, models, "0/seed0", 0)
    with pytest.raises(SfumatoError, match="kept no weights '3/seed0/final'"):
        attack._weights(call, models, "3/seed0", 2)
