from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.records import MeanInterval
from sfumato.report import CLAIMS, Finding, Run, evaluate
from sfumato.report.claims import NO_DIFFERENCE
from sfumato.report.modulated_attack_rules import joint_half_width
from sfumato.report.modulated_claims import MODULATED_CLAIMS
from sfumato.report.modulated_rules import WORTHLESS, judge_more, judge_within
from sfumato.report.modulated_tables import attack_rows, log_ratio, tuning_rows

sys.path.insert(0, str(Path(__file__).parent))
import generated_modulated as generated


def by_id(*runs: Run) -> dict[str, Finding]:
    findings = [f for f in evaluate(CLAIMS, runs) if f.claim.system == "modulated"]
    assert len({finding.id for finding in findings}) == len(findings)
    return {finding.id: finding for finding in findings}


def verdict(run: Run | list[Run], name: str) -> str:
    runs = run if isinstance(run, list) else [run]
    return by_id(*runs)[f"modulated_{name}"].judgement.verdict


def test_without_runs_every_claim_is_listed_as_not_tested() -> None:
    found = by_id()
    assert len(found) == len(MODULATED_CLAIMS)
    assert {finding.judgement.verdict for finding in found.values()} == {"not tested"}


def test_every_claim_says_where_it_is_made_and_whether_the_paper_makes_it() -> None:
    papers = {claim.name.removeprefix("modulated_") for claim in MODULATED_CLAIMS if claim.origin == "paper"}
    assert papers == {
        "one_shot_best_at_small_epsilon",
        "iterative_overtakes",
        "iterative_improves_with_rounds",
        "dp_sgd_worst",
        "multi_vector_lowers_sensitivity",
    }
    assert all(claim.source.startswith("Section 1.") for claim in MODULATED_CLAIMS)
    assert all("Rule" in c.statement or "Fails" in c.statement or "Holds" in c.statement or "audit" in c.name
               for c in MODULATED_CLAIMS)  # fmt: skip


@pytest.mark.parametrize(
    ("mean", "half", "expected", "words"),
    [
        (0.2, 0.1, "holds", ""),
        (0.2, 0.2, "does not hold", NO_DIFFERENCE),
        (-0.2, 0.1, "does not hold", "the opposite was seen"),
        (0.2, None, "not tested", "one seed"),
    ],
)
def test_a_larger_error_needs_the_whole_interval_above_one(
    mean: float, half: float | None, expected: str, words: str
) -> None:
    found = judge_more(MeanInterval(mean, half, 1 if half is None else 5), "A", "B")
    assert found.verdict == expected
    assert words in found.measured


@given(st.floats(-2, 2), st.floats(0, 1))
def test_verdicts_of_ratios_agree_with_their_intervals(mean: float, half: float) -> None:
    found = judge_more(MeanInterval(mean, half, 5), "A", "B")
    assert found.interval is not None
    assert (found.verdict == "holds") == (found.interval[0] > 1)
    close = judge_within(MeanInterval(mean, half, 5), "A", "B", 0.9, 1.1)
    assert close.interval is not None
    assert (close.verdict == "holds") == (close.interval[0] >= 0.9 and close.interval[1] <= 1.1)


def test_ratios_are_paired_over_seeds_and_averaged_over_epsilons() -> None:
    # The seeds' common factor varies by e^0.5; unpaired it would hide the ratio of 1.6.
    ratio = log_ratio(generated.full_run(), "co2", "iterative", "one_shot", ["1", "5"])
    assert ratio is not None
    assert ratio.half_width is not None
    assert math.exp(ratio.mean) == pytest.approx(0.8 / 0.5, rel=0.05)
    assert ratio.half_width < 0.05


def test_one_shot_is_best_only_against_both_rivals() -> None:
    name = "one_shot_best_at_small_epsilon/co2/quick"
    errors = {**generated.ERRORS, "one_shot": 0.5, "iterative": 0.8, "dp_sgd": 2.0}
    assert verdict(generated.run_with(generated.train_document(errors)), name) == "holds"
    for rival in ("iterative", "dp_sgd"):
        document = generated.train_document({**errors, rival: 0.4})
        assert verdict(generated.run_with(document), name) == "does not hold"


def test_each_region_of_epsilon_is_judged_by_its_own_records() -> None:
    low = generated.train_document(epsilons=["0.5", "1"])
    found = by_id(generated.run_with(low))
    assert found["modulated_one_shot_best_at_small_epsilon/co2/quick"].data == "CO₂, ε ≤ 1"
    assert found["modulated_iterative_overtakes"].judgement.verdict == "not tested"


def test_iterative_overtakes_only_where_it_has_the_smaller_error() -> None:
    name = "iterative_overtakes/fair/quick"
    assert verdict(generated.full_run(), name) == "does not hold"
    document = generated.train_document({**generated.ERRORS, "iterative": 0.2})
    assert verdict(generated.run_with(document), name) == "holds"


def test_a_missing_rival_leaves_the_claim_untested() -> None:
    errors = {name: level for name, level in generated.ERRORS.items() if name != "dp_sgd"}
    assert verdict(generated.run_with(generated.train_document(errors)), "dp_sgd_worst") == "not tested"


def test_worthless_errors_are_called_noise_dominated_beside_the_verdict() -> None:
    large = {name: 20 * level for name, level in generated.ERRORS.items()}
    found = by_id(generated.run_with(generated.train_document(large)))
    judged = found["modulated_one_shot_best_at_small_epsilon/co2/quick"].judgement
    assert judged.verdict == "holds"
    assert WORTHLESS in judged.measured
    small = by_id(generated.full_run())["modulated_one_shot_best_at_small_epsilon/co2/quick"].judgement
    assert WORTHLESS not in small.measured


def test_dp_sgd_is_worst_only_if_both_others_beat_it() -> None:
    assert verdict(generated.full_run(), "dp_sgd_worst/co2/quick") == "holds"
    document = generated.train_document({**generated.ERRORS, "dp_sgd": 0.7})
    assert verdict(generated.run_with(document), "dp_sgd_worst/co2/quick") == "does not hold"


@pytest.mark.parametrize(("level", "expected"), [(1.2, "holds"), (0.5, "does not hold")])
def test_more_rounds_are_compared_with_the_fewest(level: float, expected: str) -> None:
    few = generated.train_document({**generated.ERRORS, "iterative": level})
    runs = [
        generated.run_with(generated.train_document()),
        generated.run_with(few, variant="rounds_5", rounds=5),
    ]
    assert verdict(runs, "iterative_improves_with_rounds/co2/quick") == expected
    assert verdict(runs[0], "iterative_improves_with_rounds") == "not tested"


@pytest.mark.parametrize(
    ("constant", "expected"), [(None, "holds"), (2.0, "does not hold"), (1.3, "does not hold")]
)
def test_directions_lower_the_constant_by_the_square_root_of_their_number(
    constant: float | None, expected: str
) -> None:
    many = generated.account_document(directions=4, constant=constant)
    runs = [
        generated.run_with(generated.account_document()),
        generated.run_with(many, variant="directions_4"),
    ]
    assert verdict(runs, "multi_vector_lowers_sensitivity/quick") == expected
    assert verdict(runs[0], "multi_vector_lowers_sensitivity") == "not tested"


@pytest.mark.parametrize(
    ("level", "noise", "expected"),
    [
        (0.5, 1.0, "holds"),
        (0.6, 1.0, "does not hold"),
        (0.4, 1.0, "does not hold"),
        (0.5, 1.1, "does not hold"),
    ],
)
def test_frequency_does_not_matter_only_if_errors_are_close_and_noise_is_equal(
    level: float, noise: float, expected: str
) -> None:
    run = generated.run_with(
        generated.train_document({**generated.ERRORS, "other_frequency": level}),
        generated.account_document(frequency_noise=noise),
    )
    assert verdict(run, "frequency_does_not_matter/co2/quick") == expected


@pytest.mark.parametrize(("level", "expected"), [(0.5, "holds"), (0.2, "holds"), (0.6, "does not hold")])
def test_modulation_is_no_help_unless_its_absence_costs_error(level: float, expected: str) -> None:
    document = generated.train_document({**generated.ERRORS, "no_modulation": level})
    assert verdict(generated.run_with(document), "modulation_is_no_help/co2/quick") == expected


@pytest.mark.parametrize(
    ("factor", "expected"), [(2.0, "holds"), (1.9, "does not hold"), (1.0, "does not hold")]
)
def test_the_papers_noise_is_held_against_its_constant(factor: float, expected: str) -> None:
    run = generated.run_with(generated.account_document(factor=factor))
    assert verdict(run, "lipschitz_noise_is_larger_by_the_constant/quick") == expected


def test_the_papers_noise_costs_accuracy_only_if_both_estimators_lose() -> None:
    name = "lipschitz_noise_costs_accuracy/co2/quick"
    assert verdict(generated.full_run(), name) == "holds"
    document = generated.train_document({**generated.ERRORS, "one_shot_lipschitz": 0.5})
    assert verdict(generated.run_with(document), name) == "does not hold"


@pytest.mark.parametrize("attack", ["linear_unbiased", "linear_posterior_mean", "exact_posterior_mean"])
def test_an_attack_below_the_floor_that_binds_it_refutes_the_floor(attack: str) -> None:
    name = "no_attack_beats_its_floor/fair/quick"
    assert verdict(generated.full_run(), name) == "holds"
    run = generated.run_with(generated.attack_document({attack: 0.8}))
    assert verdict(run, name) == "does not hold"


def test_an_attack_on_a_private_label_below_its_floor_refutes_the_floor() -> None:
    name = "no_attack_beats_its_floor/fair/quick"
    assert verdict(generated.run_with(generated.attack_document(label_ratio=1.01)), name) == "holds"
    run = generated.run_with(generated.attack_document(label_ratio=0.8))
    assert verdict(run, name) == "does not hold"
    assert "on the label" in by_id(run)[f"modulated_{name}"].judgement.measured


def test_a_run_with_private_labels_is_judged_beside_the_base_and_not_in_its_place() -> None:
    base = generated.run_with(generated.attack_document(), generated.audit_document(3.0))
    private = generated.run_with(
        generated.attack_document(label_ratio=0.8), generated.audit_document(5.1), variant="labels_private"
    )
    other = generated.run_with(generated.audit_document(5.1), variant="amplitude_2")
    for claim in ("no_attack_beats_its_floor", "audit_stays_below_claim"):
        runs = [base, private, other]
        assert verdict(runs, f"{claim}/fair/quick") == "holds"
        assert verdict(runs, f"{claim}/fair/labels_private/quick") == "does not hold"
        assert "private labels" in by_id(*runs)[f"modulated_{claim}/fair/labels_private/quick"].data
        assert not [place for place in by_id(*runs) if claim in place and "amplitude" in place]


def test_many_intervals_are_widened_to_hold_together() -> None:
    # 0.94 of the floor with a half width of 0.05 lies below for one attack, but not for 24 of them jointly.
    row = attack_rows(generated.run_with(generated.attack_document()))[0]
    half = row.high - row.mse
    assert joint_half_width(row, 1) == pytest.approx(half)
    assert joint_half_width(row, 24) > 1.5 * half
    run = generated.run_with(generated.attack_document({"linear_unbiased": 0.94}))
    assert verdict(run, "no_attack_beats_its_floor/fair/quick") == "holds"


@pytest.mark.parametrize(
    ("ratio", "half", "expected"),
    [
        (1.02, 0.05, "holds"),
        (1.3, 0.05, "does not hold"),
        (0.7, 0.05, "does not hold"),
        (1.02, 0.5, "not tested"),
    ],
)
def test_likelihood_reaches_its_floor_only_if_every_interval_holds_it(
    ratio: float, half: float, expected: str
) -> None:
    run = generated.run_with(generated.attack_document({"maximum_likelihood": ratio}, half))
    assert verdict(run, "likelihood_attack_reaches_its_floor/fair/quick") == expected


@pytest.mark.parametrize(("lower", "expected"), [(4.9, "holds"), (5.1, "does not hold")])
def test_a_local_audit_above_its_claim_refutes_it(lower: float, expected: str) -> None:
    run = generated.run_with(generated.audit_document(lower))
    assert verdict(run, "audit_stays_below_claim/fair/quick") == expected


@pytest.mark.parametrize(
    ("covered", "expected"),
    [
        ((1.0, 0.9, 1.0, 0.95), "holds"),
        ((0.7, 0.72, 0.7, 0.71), "does not hold"),
        ((1.0, 0.2, 1.0, 0.2), "not tested"),
        ((None, None, None, 1.0), "not tested"),
    ],
)
def test_coverage_is_judged_where_intervals_exist_and_tell(
    covered: tuple[float | None, ...], expected: str
) -> None:
    run = generated.run_with(generated.train_document(covered=covered))
    assert verdict(run, "intervals_cover/co2/quick") == expected


def test_coverage_is_not_judged_where_noise_dominates() -> None:
    run = generated.run_with(generated.train_document(dominated=True))
    assert verdict(run, "intervals_cover") == "not tested"


def test_variants_do_not_enter_the_comparison_of_methods() -> None:
    run = generated.run_with(generated.train_document(), variant="amplitude_2")
    assert verdict(run, "dp_sgd_worst") == "not tested"


def test_one_seed_decides_nothing() -> None:
    run = generated.run_with(generated.train_document(seeds=[0]))
    for finding in by_id(run).values():
        assert finding.judgement.verdict == "not tested"


def test_choices_at_the_end_of_a_grid_are_marked() -> None:
    lines = [
        {"dataset": "co2", "method": "dp_sgd", "epsilon": "5", "step_size": step, "clip_norm": clip,
         "validation_relative_error": error}
        for step, clip, error in (("1", "0.03", "0.4"), ("3", "0.1", "0.5"), ("3", "0.03", "0.3"), ("10", "0.1", "0.9"))
    ]  # fmt: skip
    row = tuning_rows(lines)[0]
    assert (row.step_size, row.clip_norm, row.trials) == (3.0, 0.03, 4)
    assert row.edges == ("clip_norm",)
