from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.records import MeanInterval
from sfumato.report import CLAIMS, Finding, Run, evaluate
from sfumato.report.claims import NO_DIFFERENCE, Judgement
from sfumato.report.radiomap_claims import RADIOMAP_CLAIMS
from sfumato.report.radiomap_rules import CLOSE_DB, CLOSE_METRES, judge_above
from sfumato.report.radiomap_tables import Cell, Reading, cells_of, defence_rows, error_gap, multipliers_of

sys.path.insert(0, str(Path(__file__).parent))
import generated_radiomap as generated

AT_3 = "city_maps/nu_3/quick"
WHOLE = "city_maps/quick"


def by_id(*runs: Run) -> dict[str, Finding]:
    findings = [f for f in evaluate(CLAIMS, runs) if f.claim.system == "radiomap"]
    assert len({finding.id for finding in findings}) == len(findings)
    return {finding.id: finding for finding in findings}


def judged(run: Run, name: str) -> Judgement:
    """What one claim of that name came to; only it is evaluated."""
    claim = next(claim for claim in RADIOMAP_CLAIMS if f"radiomap_{name.split('/')[0]}" == claim.name)
    return {finding.id: finding for finding in evaluate([claim], [run])}[f"radiomap_{name}"].judgement


def verdict(run: Run, name: str) -> str:
    return judged(run, name).verdict


def few_attackers(metres: Mapping[str, float] | None = None, **options: Any) -> dict[str, Any]:
    """An attack document with one multiplier and no attacker whom no claim reads."""
    settings: dict[str, Any] = {"multipliers": ["3"], "attackers": ["best"], **options}
    return generated.attack_document({**generated.METRES, **(metres or {})}, **settings)


def of_metres(**changed: Any) -> Run:
    names = ("slices", "averaged", "summed", "rise")
    options = {name: changed.pop(name) for name in names if name in changed}
    train = generated.train_document(multipliers=["3"])
    return generated.run_with(train, few_attackers(changed, **options))


def of_utility(**changed: float) -> Run:
    document = generated.train_document({**generated.UTILITY, **changed}, multipliers=["3"])
    return generated.run_with(document, few_attackers())


def test_without_runs_every_claim_is_listed_as_not_tested() -> None:
    found = by_id()
    assert len(found) == len(RADIOMAP_CLAIMS) == 24
    assert {finding.judgement.verdict for finding in found.values()} == {"not tested"}


def test_the_papers_claims_are_told_from_those_beyond_it() -> None:
    papers = {claim.name.removeprefix("radiomap_") for claim in RADIOMAP_CLAIMS if claim.origin == "paper"}
    assert papers == {
        "adaptive_hides_transmitter_best",
        "adaptive_keeps_maps_best",
        "privacy_order",
        "privacy_order_on_slices",
        "utility_order",
        "adaptive_error_rises",
        "matched_multiplier_privacy_order",
        "matched_multiplier_utility_order",
    }
    assert all(claim.source.startswith("Section 3.") for claim in RADIOMAP_CLAIMS)


def test_a_claim_that_the_quick_profile_cannot_decide_names_the_medium_one() -> None:
    whole = generated.run_with(
        generated.train_document(), few_attackers(rounds=[20]), generated.account_document()
    )
    # One attacked round leaves no averages, and the default parameters simulate no place.
    attacked = tuple(
        record
        for record in whole.records["attack"]
        if record.levels["uploads"] in ("1", "sum6") and record.levels["attacker"] != "known_map"
    )
    quick = replace(whole, records={**whole.records, "attack": attacked})
    decided = {finding.claim.name for finding in by_id(quick).values() if finding.profile == "quick"}
    assert decided == {claim.name for claim in RADIOMAP_CLAIMS if claim.command == "make run"}
    assert {claim.command for claim in RADIOMAP_CLAIMS} == {"make run", "make medium"}


def test_records_of_every_kind_put_every_claim_to_the_test() -> None:
    variants = [
        generated.variant_run(name, {"clip_only": 64.0}, profile="quick") for name in generated.VARIANTS
    ]
    found = by_id(generated.full_run(), *variants)
    assert {finding.claim.name for finding in found.values()} == {claim.name for claim in RADIOMAP_CLAIMS}
    assert "not tested" not in {finding.judgement.verdict for finding in found.values()}
    failed = {f.claim.name for f in found.values() if f.judgement.verdict == "does not hold"}
    # The generated figures have the paper's order, in which targeted noise does protect.
    assert failed == {"radiomap_targeted_does_not_protect", "radiomap_matched_multiplier_targeted"}


@given(st.floats(-50, 50), st.floats(0, 50), st.sampled_from([0.0, -CLOSE_METRES, -CLOSE_DB]))
def test_a_difference_holds_exactly_if_its_whole_interval_lies_above_the_limit(
    mean: float, half: float, limit: float
) -> None:
    found = judge_above(MeanInterval(mean, half, 5), "m", limit)
    assert found.interval is not None
    assert (found.verdict == "holds") == (found.interval[0] > limit)
    assert found.verdict in ("holds", "does not hold")


def test_an_overlap_is_no_difference_and_a_reversal_is_named() -> None:
    assert NO_DIFFERENCE in judge_above(MeanInterval(1.0, 2.0, 5), "m").measured
    assert "the opposite was seen" in judge_above(MeanInterval(-3.0, 2.0, 5), "m").measured
    assert judge_above(MeanInterval(3.0, None, 1), "m").verdict == "not tested"


def test_one_seed_decides_nothing_but_identities() -> None:
    run = generated.run_with(
        generated.train_document(seeds=[0]),
        few_attackers(seeds=[0]),
        generated.account_document(),
    )
    found = by_id(run)
    tested = {f.claim.name for f in found.values() if f.judgement.verdict != "not tested"}
    assert tested == {"radiomap_audit_stays_below_claim", "radiomap_no_formal_protection"}


def test_defences_are_compared_on_the_same_seeds() -> None:
    # The seeds' common part has a spread of 8 m; unpaired it would hide a gap of 2 m.
    run = of_metres(shaped=62.0)
    row = next(row for row in defence_rows(run) if row.method == "shaped" and row.multiplier == "3")
    assert row.best is not None
    assert (row.best.half_width or 0.0) > 5
    found = judged(run, f"shaped_beats_uniform/{AT_3}")
    assert found.verdict == "holds"
    assert "Shaped noise over Uniform noise: +2.0" in found.measured


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "holds"),
        ({"uniform": 67.0}, "does not hold"),
        ({"adaptive": 65.0}, "does not hold"),
        ({"targeted_uniform": 76.0}, "does not hold"),
    ],
)
def test_the_order_of_privacy_needs_both_steps(changed: dict[str, float], expected: str) -> None:
    assert verdict(of_metres(**changed), f"privacy_order/{AT_3}") == expected


def test_the_papers_view_is_judged_by_the_transmitters_weights_alone() -> None:
    run = of_metres(slices={**generated.METRES, "uniform": 90.0})
    assert verdict(run, f"privacy_order_on_slices/{AT_3}") == "does not hold"
    assert verdict(run, f"privacy_order/{AT_3}") == "holds"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "holds"),
        ({"uniform": -16.4}, "does not hold"),
        ({"adaptive": -16.2}, "does not hold"),
    ],
)
def test_the_order_of_utility_needs_both_steps(changed: dict[str, float], expected: str) -> None:
    assert verdict(of_utility(**changed), f"utility_order/{AT_3}") == expected


@pytest.mark.parametrize("rival", ["none", "clip_only", "uniform", "targeted_uniform"])
def test_adaptive_hides_best_only_against_each_of_the_papers_defences(rival: str) -> None:
    name = f"adaptive_hides_transmitter_best/{AT_3}"
    assert verdict(of_metres(), name) == "holds"
    assert verdict(of_metres(**{rival: 80.0}), name) == "does not hold"
    assert verdict(of_metres(shaped=99.0), name) == "holds"


@pytest.mark.parametrize("rival", ["uniform", "targeted_uniform"])
def test_adaptive_keeps_maps_best_only_against_both_at_the_same_budget(rival: str) -> None:
    name = f"adaptive_keeps_maps_best/{AT_3}"
    assert verdict(of_utility(**{rival: -16.7}), name) == "does not hold"
    assert verdict(of_utility(none=-20.0, shaped=-20.0), name) == "holds"


@pytest.mark.parametrize(
    ("rise", "expected"), [(8.0, "holds"), (0.0, "does not hold"), (-4.0, "does not hold")]
)
def test_a_rise_is_held_against_the_first_attacked_round(rise: float, expected: str) -> None:
    found = judged(of_metres(rise=rise), f"adaptive_error_rises/{AT_3}")
    assert found.verdict == expected
    assert found.measured.startswith("from round 0 to round 20")


def test_one_round_shows_no_rise() -> None:
    run = generated.run_with(few_attackers(rounds=[20]))
    assert not [name for name in by_id(run) if name.startswith("radiomap_adaptive_error_rises/")]


@pytest.mark.parametrize(
    ("metres", "expected"), [(54.0, "holds"), (58.0, "holds"), (60.0, "does not hold"), (40.0, "holds")]
)
def test_targeted_noise_that_changes_little_does_not_protect(metres: float, expected: str) -> None:
    # Clipping alone leaves 54 m; the limit is 5 m above it.
    assert verdict(of_metres(targeted_uniform=metres), f"targeted_does_not_protect/{AT_3}") == expected


def test_leaks_are_held_against_the_slices_and_against_a_constant_guess() -> None:
    assert verdict(of_metres(), f"uploads_leak_beyond_slices/{WHOLE}") == "holds"
    same = of_metres(slices=dict(generated.METRES))
    assert verdict(same, f"uploads_leak_beyond_slices/{WHOLE}") == "does not hold"
    assert verdict(of_metres(), f"clipping_leaves_leakage/{WHOLE}") == "holds"
    blind = of_metres(clip_only=generated.CONSTANT)
    assert verdict(blind, f"clipping_leaves_leakage/{WHOLE}") == "does not hold"


@pytest.mark.parametrize(
    ("metres", "decibels", "expected"),
    [
        (70.0, -16.0, "holds"),
        (70.0, -15.85, "holds"),
        (70.0, -15.75, "does not hold"),
        (60.0, -16.0, "does not hold"),
    ],
)
def test_shaped_noise_wins_on_privacy_without_losing_utility(
    metres: float, decibels: float, expected: str
) -> None:
    run = generated.run_with(
        generated.train_document({**generated.UTILITY, "shaped": decibels}, multipliers=["3"]),
        few_attackers({"shaped": metres}),
    )
    assert verdict(run, f"shaped_beats_uniform/{AT_3}") == expected


@pytest.mark.parametrize(("metres", "expected"), [(60.0, "holds"), (56.0, "holds"), (54.0, "does not hold")])
def test_certified_noise_may_be_a_little_worse(metres: float, expected: str) -> None:
    assert verdict(of_metres(adaptive_certified=metres), f"adaptive_certified_not_worse/{AT_3}") == expected


@pytest.mark.parametrize(
    ("averaged", "expected"), [(-6.0, "holds"), (0.0, "does not hold"), (2.0, "does not hold")]
)
def test_averages_are_held_against_single_updates(averaged: float, expected: str) -> None:
    found = judged(of_metres(averaged=averaged), f"averaging_helps_attacker/{AT_3}")
    assert found.verdict == expected
    assert "one update over the mean of 4" in found.measured
    assert "mean over 6 cells" in found.measured


@pytest.mark.parametrize(
    ("summed", "expected"), [(15.0, "holds"), (0.0, "does not hold"), (-5.0, "does not hold")]
)
def test_sums_are_held_against_single_updates(summed: float, expected: str) -> None:
    found = judged(of_metres(summed=summed), f"sum_hides_more/{WHOLE}")
    assert found.verdict == expected
    assert "the sum of 6 over one update" in found.measured


def test_a_seed_that_one_defence_lacks_is_left_out_of_a_mean_over_defences() -> None:
    document = few_attackers(multipliers=["1", "3"])
    del document["values"]["city_maps"]["uniform"]["3"]["4"]
    run = generated.run_with(document)
    assert "4 seeds" in judged(run, f"averaging_helps_attacker/{AT_3}").measured
    assert "5 seeds" in judged(run, "averaging_helps_attacker/city_maps/nu_1/quick").measured


@pytest.mark.parametrize(("lower", "expected"), [(639.0, "holds"), (641.0, "does not hold")])
def test_an_audit_above_its_claim_refutes_it(lower: float, expected: str) -> None:
    run = generated.run_with(generated.account_document(lower=lower))
    assert verdict(run, f"audit_stays_below_claim/{WHOLE}") == expected


@pytest.mark.parametrize(
    ("least", "expected"), [(10.5, "holds"), (10.0, "does not hold"), (2.0, "does not hold")]
)
def test_one_epsilon_of_at_most_ten_is_a_formal_protection(least: float, expected: str) -> None:
    run = generated.run_with(generated.account_document({"1": 5000.0, "30": least}))
    found = judged(run, f"no_formal_protection/{WHOLE}")
    assert found.verdict == expected
    assert "ν = 30" in found.measured


def test_figures_of_two_readings_are_taken_at_the_last_round_that_both_have() -> None:
    late = few_attackers(rounds=[0, 10])
    for by_round in late["values"]["city_maps"]["uniform"]["3"].values():
        by_round["20"] = {"all": {"best": {"1": dict(by_round["10"]["all"]["best"]["1"], rmse=500.0)}}}
    run = generated.run_with(late)
    cells = (Cell("city_maps", "shaped", "3"), Cell("city_maps", "uniform", "3"))
    gap = error_gap(run, (cells[0], Reading()), (cells[1], Reading()))
    assert gap is not None
    assert gap.mean == pytest.approx(10.0, abs=0.5)


def test_multipliers_are_in_the_order_of_their_numbers_and_noiseless_cells_come_once() -> None:
    run = generated.run_with(generated.train_document(multipliers=["10", "0.3", "3"]))
    assert multipliers_of(run, "city_maps") == ["0.3", "3", "10"]
    cells = cells_of(run, "city_maps")
    assert [cell.multiplier for cell in cells if cell.method in generated.FREE] == ["0", "0"]
    assert len(cells) == len(set(cells)) == 2 + 3 * 6


def test_variants_and_each_multiplier_are_kept_apart() -> None:
    varied = generated.run_with(generated.train_document(), few_attackers(), variant="maps_4")
    assert {f.judgement.verdict for f in by_id(varied).values()} == {"not tested"}
    found = by_id(generated.run_with(few_attackers(multipliers=["1", "3"])))
    assert {name for name in found if name.startswith("radiomap_privacy_order/")} == {
        "radiomap_privacy_order/city_maps/nu_1/quick",
        "radiomap_privacy_order/city_maps/nu_3/quick",
    }
    assert found[f"radiomap_privacy_order/{AT_3}"].data == "City maps, ν = 3"
