from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sfumato.params import read_yaml
from sfumato.report import Finding, Run, evaluate, run_of
from sfumato.report.claims import Judgement
from sfumato.report.radiomap_claims import RADIOMAP_CLAIMS, SOURCES
from sfumato.report.radiomap_tables import Cell
from sfumato.report.radiomap_variants import (
    base_of,
    base_rows,
    changed,
    error_change,
    variant_rows,
    variants_of,
)
from sfumato.report.vocabulary import RADIOMAP_VARIANTS

sys.path.insert(0, str(Path(__file__).parent))
import generated_radiomap as generated
from pages import ROOT

AT_3 = "city_maps/nu_3/medium"
WHOLE = "city_maps/medium"
OF_TWO_RUNS = {
    **{f"source_{name}": f"radiomap_{name}" for name in SOURCES},
    "sgd_uploads_leak_less": "radiomap_sgd",
}
OF_ONE_VARIANT = (
    "matched_multiplier_targeted",
    "matched_multiplier_privacy_order",
    "matched_multiplier_utility_order",
)


def _mapping(document: Any) -> dict[str, Any]:
    return document


def base_run(profile: str = "medium", **options: Any) -> Run:
    settings: dict[str, Any] = {"multipliers": ["3"], "attackers": ["best"], **options}
    seeds = settings.get("seeds", generated.SEEDS)
    documents = (
        generated.train_document(multipliers=["3"], seeds=seeds),
        generated.attack_document(**settings),
    )
    return generated.run_with(*documents, profile=profile)


def findings(name: str, *runs: Run) -> dict[str, Finding]:
    claim = next(claim for claim in RADIOMAP_CLAIMS if claim.name == f"radiomap_{name}")
    found = evaluate([claim], runs)
    assert len({finding.id for finding in found}) == len(found)
    return {finding.id: finding for finding in found}


def judged(name: str, *runs: Run, at: str = WHOLE) -> Judgement:
    return findings(name, *runs)[f"radiomap_{name}/{at}"].judgement


# ---------------------------------------------------------------------------------------- which runs there are
def test_every_radio_map_variant_of_the_profiles_has_words_and_is_no_sweep() -> None:
    names = [
        str(row["name"])
        for path in sorted((ROOT / "profiles").glob("*.yaml"))
        for row in _mapping(read_yaml(path)).get("variants", [])
        if str(row["name"]).startswith("radiomap_")
    ]
    assert set(names) == set(generated.VARIANTS)
    for name in names:
        run = Run("medium", "radiomap", name, {})
        assert run.sweep is None
        assert run.change in RADIOMAP_VARIANTS


def test_a_variant_is_known_with_and_without_its_systems_name() -> None:
    for name in ("radiomap_circular", "circular"):
        run = Run("medium", "radiomap", name, {})
        assert changed("circular")([run]) == [run]
        assert changed("circular_margin")([run]) == []
    swept = Run("medium", "modulated", "modulated_rounds_80", {})
    assert swept.sweep == ("rounds", "80")
    assert swept.setting("rounds") == 80.0
    assert Run("medium", "radiomap", "modulated_rounds_80", {}).sweep is None


def test_variants_come_in_the_order_of_their_words_then_by_name_and_without_the_base_run() -> None:
    names = ["radiomap_own", "zoo", "base", "radiomap_margin", "maps_4", "radiomap_circular"]
    runs = [run_of("medium", "radiomap", name, []) for name in names]
    found = [run.variant for run in variants_of(runs)]
    assert found == ["radiomap_circular", "radiomap_margin", "radiomap_own", "maps_4", "zoo"]
    base = base_of(runs)
    assert base is not None
    assert base.variant == "base"
    assert base_of(variants_of(runs)) is None


# ------------------------------------------------------------------------------------------------ missing runs
@pytest.mark.parametrize(("name", "variant"), list(OF_TWO_RUNS.items()))
def test_a_claim_about_two_runs_is_not_tested_without_either(name: str, variant: str) -> None:
    run, base = generated.variant_run(variant, {"clip_only": 64.0}), base_run()
    other = generated.variant_run("radiomap_multiplier", {"clip_only": 64.0})
    elsewhere = base_run("quick")
    for runs in ((), (base,), (run,), (base, other), (run, elsewhere)):
        found = findings(name, *runs)
        assert list(found) == [f"radiomap_{name}"]
        assert found[f"radiomap_{name}"].judgement.verdict == "not tested"
    assert judged(name, run, base).verdict == "holds"


@pytest.mark.parametrize("name", OF_ONE_VARIANT)
def test_a_claim_about_the_same_sigma_is_not_tested_without_its_run(name: str) -> None:
    found = findings(name, base_run(), generated.variant_run("radiomap_circular"))
    assert [finding.judgement.verdict for finding in found.values()] == ["not tested"]


def test_nothing_is_compared_where_the_two_runs_share_no_round_or_no_seed() -> None:
    run = generated.variant_run("radiomap_circular", {"clip_only": 64.0}, rounds=[30])
    assert [f.judgement.verdict for f in findings("source_circular", base_run(), run).values()] == [
        "not tested"
    ]
    run = generated.variant_run("radiomap_circular", {"clip_only": 64.0}, seeds=[7, 8])
    assert [f.judgement.verdict for f in findings("source_circular", base_run(), run).values()] == [
        "not tested"
    ]


@pytest.mark.parametrize(
    "name", [*OF_TWO_RUNS, *OF_ONE_VARIANT, "known_map_attacker", "adaptive_error_rises"]
)
def test_one_seed_decides_no_claim_about_variants(name: str) -> None:
    runs = [generated.variant_run(variant, {"clip_only": 64.0}, seeds=[0]) for variant in generated.VARIANTS]
    found = findings(name, base_run(seeds=[0]), *runs)
    assert {finding.judgement.verdict for finding in found.values()} == {"not tested"}
    assert all("one seed, no interval" in finding.judgement.measured for finding in found.values())


# -------------------------------------------------------------------------------------- the leak at its source
@pytest.mark.parametrize("variant", list(SOURCES))
@pytest.mark.parametrize(
    ("metres", "decibels", "expected"),
    [
        (56.0, -17.0, "holds"),
        (56.0, -16.85, "holds"),
        (56.0, -16.75, "does not hold"),
        (56.0, -18.0, "holds"),
        (54.0, -17.0, "does not hold"),
        (50.0, -18.0, "does not hold"),
    ],
)
def test_a_source_is_removed_if_the_error_grows_and_the_map_stays(
    variant: str, metres: float, decibels: float, expected: str
) -> None:
    # Clipping alone leaves 54 m at −17 dB in the base run; the limit is 0.2 dB above it.
    run = generated.variant_run(f"radiomap_{variant}", {"clip_only": metres}, {"clip_only": decibels})
    assert judged(f"source_{variant}", base_run(), run).verdict == expected


def test_two_runs_are_paired_over_their_seeds_and_both_are_named() -> None:
    # The seeds' common part has a spread of 8 m; unpaired it would hide a gap of 2 m.
    base, run = base_run(), generated.variant_run("radiomap_circular", {"clip_only": 56.0})
    gap = error_change(run, base, Cell("city_maps", "clip_only", "0"))
    assert gap is not None
    assert gap.mean == pytest.approx(2.0, abs=0.5)
    assert 0 < (gap.half_width or 0.0) < 1.5
    row = next(row for row in variant_rows(run, base) if row.method == "clip_only")
    assert row.best is not None
    assert (row.best.half_width or 0.0) > 5
    finding = findings("source_circular", base, run)[f"radiomap_source_circular/{WHOLE}"]
    assert finding.data == "City maps, Clipping only: circular padding instead of zeros"
    assert "attacker’s error over that of the base run: +2.1" in finding.judgement.measured
    assert "validation error of the base run over its own" in finding.judgement.measured


def test_the_error_of_two_runs_is_taken_at_the_last_round_that_both_have() -> None:
    # The base run is attacked at rounds 0, 10 and 20, and its error rises by 8 m from the first to the last.
    base = base_run()
    early = generated.variant_run("radiomap_circular", rounds=[10])
    gap = error_change(early, base, Cell("city_maps", "clip_only", "0"))
    assert gap is not None
    assert gap.mean == pytest.approx(4.0, abs=0.5)


@pytest.mark.parametrize(
    ("metres", "expected"), [(60.0, "holds"), (54.0, "does not hold"), (48.0, "does not hold")]
)
def test_plain_sgd_leaks_less_only_if_clipping_alone_leaves_a_larger_error(
    metres: float, expected: str
) -> None:
    run = generated.variant_run("radiomap_sgd", {"clip_only": metres, "uniform": 99.0}, {"clip_only": -10.0})
    found = judged("sgd_uploads_leak_less", base_run(), run)
    assert found.verdict == expected
    assert ("the opposite was seen" in found.measured) == (metres < 50)


# ----------------------------------------------------------------------------------------------- the same sigma
@pytest.mark.parametrize(
    ("targeted", "never_above", "papers_order"),
    [
        (50.0, "holds", "does not hold"),
        (60.0, "holds", "does not hold"),
        (63.0, "holds", "holds"),
        (67.0, "does not hold", "holds"),
    ],
)
def test_at_the_same_sigma_targeted_noise_is_held_against_uniform_noise(
    targeted: float, never_above: str, papers_order: str
) -> None:
    run = generated.variant_run("radiomap_multiplier", {"targeted_uniform": targeted})
    runs = base_run(), run
    assert judged("matched_multiplier_targeted", *runs, at=AT_3).verdict == never_above
    assert judged("matched_multiplier_privacy_order", *runs, at=AT_3).verdict == papers_order
    finding = findings("matched_multiplier_targeted", *runs)[f"radiomap_matched_multiplier_targeted/{AT_3}"]
    assert finding.data == "City maps, ν = 3, same σ on every noised weight"


@pytest.mark.parametrize(
    ("targeted", "expected"), [(-16.3, "holds"), (-16.0, "does not hold"), (-15.5, "does not hold")]
)
def test_at_the_same_sigma_targeted_noise_should_keep_the_map_better(targeted: float, expected: str) -> None:
    run = generated.variant_run("radiomap_multiplier", utility={"targeted_uniform": targeted})
    assert judged("matched_multiplier_utility_order", base_run(), run, at=AT_3).verdict == expected


# ------------------------------------------------------------------------------------------ who knows the map
def test_who_knows_the_map_is_judged_by_medians_over_the_defences_he_was_tried_on() -> None:
    base = base_run()
    found = judged("known_map_attacker", base)
    assert found.verdict == "holds"
    # He is off by 11 m in every seed, the regressor by 0.8 of its error: 45 m undefended, 60 m under uniform noise.
    level = (45.0 + 60.0) / 2 + sum(map(generated.common, generated.SEEDS)) / len(generated.SEEDS)
    assert found.value == pytest.approx(0.8 * level - 11.0, abs=0.5)
    assert "mean over 2 cells (No defence, Uniform noise)" in found.measured
    assert "112 updates a seed were simulated" in found.measured


def test_who_knows_the_map_but_guesses_worse_refutes_the_claim() -> None:
    document = generated.attack_document({"none": 10.0, "uniform": 9.0}, ["3"], attackers=["best"])
    found = judged("known_map_attacker", generated.run_with(document, profile="medium"))
    assert found.verdict == "does not hold"


def test_without_an_attacker_who_knows_the_map_nothing_is_said_of_him() -> None:
    document = generated.attack_document({"clip_only": 54.0}, ["3"])
    found = findings("known_map_attacker", generated.run_with(document, profile="medium"))
    assert [finding.judgement.verdict for finding in found.values()] == ["not tested"]


# --------------------------------------------------------------------------------------- own weights and rounds
@pytest.mark.parametrize(
    ("shared", "own", "expected"),
    [(8.0, 0.0, "does not hold"), (8.0, -6.0, "does not hold"), (0.0, 8.0, "holds")],
)
def test_a_rise_is_decided_at_a_defences_own_weights_where_those_were_attacked(
    shared: float, own: float, expected: str
) -> None:
    run = generated.variant_run("radiomap_own", rounds=[0, 5, 10, 15, 20], rise=own)
    found = findings("adaptive_error_rises", base_run(rise=shared), run)
    assert list(found) == [f"radiomap_adaptive_error_rises/{AT_3}"]
    finding = found[f"radiomap_adaptive_error_rises/{AT_3}"]
    assert finding.judgement.verdict == expected
    assert finding.data == "City maps, ν = 3, own weights"
    alone = findings("adaptive_error_rises", base_run(rise=shared))[f"radiomap_adaptive_error_rises/{AT_3}"]
    assert alone.judgement.verdict == ("holds" if shared > 0 else "does not hold")
    assert alone.data == "City maps, ν = 3"


def test_own_weights_attacked_at_one_round_leave_the_rise_to_the_base_run() -> None:
    run = generated.variant_run("radiomap_own", rounds=[20])
    found = findings("adaptive_error_rises", base_run(), run)
    assert [finding.data for finding in found.values()] == ["City maps, ν = 3"]


def test_own_weights_decide_for_all_multipliers_and_for_their_own_profile_only() -> None:
    run = generated.variant_run("radiomap_own", rounds=[0, 20], rise=0.0)
    base = generated.run_with(generated.attack_document(attackers=["best"]), profile="medium")
    quick = generated.run_with(generated.attack_document(attackers=["best"]), profile="quick")
    found = findings("adaptive_error_rises", base, run, quick)
    assert {name.removeprefix("radiomap_adaptive_error_rises/") for name in found} == {
        AT_3,
        "city_maps/nu_1/quick",
        "city_maps/nu_3/quick",
    }


# --------------------------------------------------------------------------------------------------------- rows
def test_rows_of_the_base_run_are_those_of_defences_that_a_variant_has_too() -> None:
    base, run = generated.full_run(), generated.variant_run("radiomap_circular")
    assert [(row.method, row.multiplier) for row in base_rows(base, [run])] == [
        ("clip_only", "0"),
        ("uniform", "3"),
    ]
    assert all(row.privacy_change is None and row.utility_change is None for row in base_rows(base, [run]))
    assert base_rows(base, []) == []


def test_rows_of_a_variant_without_a_base_run_have_no_difference() -> None:
    rows = variant_rows(generated.variant_run("radiomap_sgd"), None)
    assert [row.method for row in rows] == ["clip_only", "uniform", "shaped"]
    assert all(row.best is not None and row.privacy_change is None for row in rows)
