from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.records import MeanInterval, Record, to_document
from sfumato.report import CLAIMS, Finding, Run, evaluate, run_of
from sfumato.report.claims import (
    NO_DIFFERENCE,
    Judgement,
    judge_below,
    judge_close,
    judge_positive,
    judge_size,
    preferred,
    weakest,
)
from sfumato.report.study import settings_of

sys.path.insert(0, str(Path(__file__).parent))
import generated


def runs_of(*documents: dict[str, object], profile: str = "quick", variant: str = "base") -> Run:
    return run_of(profile, "topk", variant, documents, settings={"share": 0.3, "ratio": 0.1})


def by_id(*runs: Run) -> dict[str, Finding]:
    findings = evaluate(CLAIMS, runs)
    assert len({finding.id for finding in findings}) == len(findings)
    return {finding.id: finding for finding in findings}


def accuracies(
    gains: dict[str, list[float]], epsilon: str = "1", dataset: str = "mnist"
) -> dict[str, object]:
    records = [
        Record(
            {"dataset": dataset, "method": method, "epsilon": epsilon, "seed": str(seed)},
            {"test_accuracy": value},
        )
        for method, values in gains.items()
        for seed, value in enumerate(values)
    ]
    return to_document("topk", "train", ["dataset", "method", "epsilon", "seed"], records)


@pytest.mark.parametrize(
    ("mean", "half", "verdict", "words"),
    [
        (0.02, 0.01, "holds", ""),
        (0.02, 0.02, "does not hold", NO_DIFFERENCE),
        (0.02, 0.03, "does not hold", NO_DIFFERENCE),
        (0.0, 0.0, "does not hold", NO_DIFFERENCE),
        (-0.02, 0.01, "does not hold", "the opposite was seen"),
        (0.02, None, "not tested", "one seed"),
    ],
)
def test_direction_holds_only_if_the_whole_interval_is_on_the_claimed_side(
    mean: float, half: float | None, verdict: str, words: str
) -> None:
    found = judge_positive(MeanInterval(mean, half, 1 if half is None else 3))
    assert found.verdict == verdict
    assert words in found.measured


@given(st.floats(-1, 1), st.floats(0, 1))
def test_verdict_of_direction_agrees_with_its_printed_interval(mean: float, half: float) -> None:
    found = judge_positive(MeanInterval(mean, half, 3))
    assert found.interval is not None
    assert (found.verdict == "holds") == (found.interval[0] > 0)


def test_size_needs_the_direction_and_an_interval_that_reaches_it() -> None:
    assert judge_size(MeanInterval(0.09, 0.01, 3), 9.21).verdict == "holds"
    assert judge_size(MeanInterval(0.02, 0.01, 3), 9.21).verdict == "does not hold"
    assert judge_size(MeanInterval(0.05, 0.08, 3), 9.21).verdict == "does not hold"


def test_closeness_needs_the_whole_interval_within_the_distance() -> None:
    assert judge_close(MeanInterval(0.01, 0.02, 3), 0.05).verdict == "holds"
    assert judge_close(MeanInterval(0.04, 0.02, 3), 0.05).verdict == "does not hold"
    assert judge_below(MeanInterval(0.04, 0.02, 3), 0.1).verdict == "holds"
    assert judge_below(MeanInterval(0.09, 0.02, 3), 0.1).verdict == "does not hold"


def test_a_joint_claim_is_as_good_as_its_worst_part() -> None:
    good, bad = Judgement("a", "holds", 1.0), Judgement("b", "does not hold", -1.0)
    assert weakest([("x", good), ("y", bad)]).verdict == "does not hold"
    assert weakest([("x", good), ("y", Judgement("c", "not tested"))]).verdict == "not tested"


def test_methods_are_compared_on_the_same_seeds() -> None:
    # Unpaired the spread of 0.1 between seeds would hide the constant gain of 0.01; paired it cannot.
    topk, rand = [0.5, 0.6, 0.7], [0.49, 0.589, 0.691]
    finding = by_id(runs_of(accuracies({"tp_topk": topk, "tp_rand": rand})))[
        "topk_learned_beats_random/mnist/1/quick"
    ]
    assert finding.judgement.verdict == "holds"
    assert finding.judgement.value == pytest.approx(1.0, abs=1e-9)


def test_a_seed_that_one_method_lacks_is_left_out() -> None:
    found = by_id(runs_of(accuracies({"tp_topk": [0.5, 0.6, 0.9], "tp_rand": [0.49, 0.58]})))
    assert found["topk_learned_beats_random/mnist/1/quick"].judgement.value == pytest.approx(1.5)


def test_one_seed_is_not_a_test() -> None:
    found = by_id(runs_of(accuracies({"tp_topk": [0.9], "dense": [0.1]})))
    assert found["topk_sparse_beats_dense/mnist/1/quick"].judgement.verdict == "not tested"


def test_without_records_every_claim_is_listed_as_not_tested() -> None:
    findings = evaluate(CLAIMS, [])
    assert {finding.judgement.verdict for finding in findings} == {"not tested"}
    assert {finding.claim.name for finding in findings} == {claim.name for claim in CLAIMS}
    assert {claim.system for claim in CLAIMS} == {"topk", "modulated", "radiomap", "divergence"}
    assert all(finding.claim.source and finding.command for finding in findings)


def test_claims_on_cifar10_are_held_against_the_papers_sizes() -> None:
    gains = {"tp_topk": [0.50, 0.51, 0.52], "dense": [0.41, 0.42, 0.43], "tp_rand": [0.49, 0.5005, 0.5095]}
    found = by_id(runs_of(accuracies(gains, "3", "cifar10")))
    assert found["topk_gain_over_dense_on_cifar10/cifar10/3/quick"].judgement.verdict == "does not hold"
    assert "not the size" in found["topk_gain_over_dense_on_cifar10/cifar10/3/quick"].judgement.measured
    assert found["topk_gain_over_dense_on_cifar10/cifar10/1"].judgement.verdict == "not tested"


def test_minority_collapse_is_tested_on_other_data_and_says_so() -> None:
    document = generated.train_document("thyroid", recalls={"dense": 0.04, "tp_topk": 0.5})
    found = by_id(runs_of(document))
    for name in ("topk_dense_collapses_on_minority", "topk_minority_recall_recovers"):
        finding = found[f"{name}/thyroid/1/quick"]
        assert finding.judgement.verdict == "holds"
        assert "not the paper's data" in finding.data


@pytest.mark.parametrize(
    ("gains", "verdict"), [((0.0, 0.02, 0.0), "holds"), ((0.0, 0.02, 0.04), "does not hold")]
)
def test_warmup_share_is_interior_only_if_it_beats_both_ends(
    gains: tuple[float, float, float], verdict: str
) -> None:
    base = runs_of(generated.train_document("mnist", ["tp_topk"], ["1"], gain=gains[1]))
    ends = [
        runs_of(generated.train_document("mnist", ["tp_topk"], ["1"], gain=gain), variant=f"share_{share}")
        for share, gain in ((0.1, gains[0]), (0.7, gains[2]))
    ]
    name = "topk_warmup_share_has_interior_optimum/mnist/1/quick"
    assert by_id(base, *ends)[name].judgement.verdict == verdict
    assert name not in by_id(base, ends[0])


def test_gain_by_support_size_compares_the_smallest_with_the_largest_ratio() -> None:
    def sweep(ratio: str, gain: float) -> Run:
        documents = [
            generated.train_document("mnist", [method], ["1"], gain=value)
            for method, value in (("tp_topk", gain), ("tp_rand", 0.0))
        ]
        return runs_of(*documents, variant=f"ratio_{ratio}")

    name = "topk_gain_grows_as_support_shrinks/mnist/1/quick"
    assert by_id(sweep("0.02", 0.05), sweep("0.3", 0.01))[name].judgement.verdict == "holds"
    assert by_id(sweep("0.02", 0.01), sweep("0.3", 0.05))[name].judgement.verdict == "does not hold"


def test_sweeps_and_tuning_grids_do_not_enter_the_comparison_of_methods() -> None:
    document = generated.train_document("mnist")
    found = by_id(
        runs_of(document, variant="share_0.1"), runs_of(document, variant="clip_1_rate_2", profile="tune")
    )
    assert found["topk_learned_beats_random"].judgement.verdict == "not tested"


@pytest.mark.parametrize(("extra", "verdict"), [(0.0, "holds"), (0.01, "does not hold")])
def test_selection_is_free_only_if_the_recorded_prices_are_equal(extra: float, verdict: str) -> None:
    found = by_id(runs_of(generated.account_document("mnist", extra=extra)))
    assert found["topk_selection_costs_no_privacy/mnist/1/quick"].judgement.verdict == verdict


@pytest.mark.parametrize(("lower", "verdict"), [(2.9, "holds"), (3.1, "does not hold")])
def test_an_audit_above_the_claim_refutes_it(lower: float, verdict: str) -> None:
    found = by_id(runs_of(generated.audit_document("mnist", lower)))
    assert found["topk_audit_stays_below_claim/mnist/3/quick"].judgement.verdict == verdict


def test_the_other_score_is_compared_with_the_base_run_of_its_profile() -> None:
    base = runs_of(generated.train_document("mnist", ["tp_topk"], ["1"], gain=0.0))
    other = runs_of(
        generated.train_document("mnist", ["tp_topk"], ["1"], gain=0.01), variant="score_square_of_mean"
    )
    name = "topk_square_of_mean_beats_mean_square/mnist/1/quick"
    assert by_id(base, other)[name].judgement.verdict == "holds"
    assert name not in by_id(other)


def test_all_profiles_are_kept_and_the_largest_is_preferred() -> None:
    good = accuracies({"tp_topk": [0.6, 0.61, 0.62], "tp_rand": [0.5, 0.51, 0.521]})
    bad = accuracies({"tp_topk": [0.5, 0.51, 0.52], "tp_rand": [0.6, 0.61, 0.621]})
    findings = evaluate(CLAIMS, [runs_of(good), runs_of(bad, profile="medium")])
    mine = [f for f in findings if f.claim.name == "topk_learned_beats_random"]
    assert [f.profile for f in mine] == ["quick", "medium"]
    best = [f for f in preferred(findings) if f.claim.name == "topk_learned_beats_random"]
    assert [(f.profile, f.judgement.verdict) for f in best] == [("medium", "does not hold")]


def test_settings_of_a_run_are_read_nested_or_dotted() -> None:
    assert settings_of({"params": {"topk": {"train": {"active_ratio": 0.05}}}}) == {"ratio": 0.05}
    assert settings_of({"params": {"topk": 3}, "overrides": None}) == {}


def test_findings_of_a_copy_of_a_data_set_bear_its_name() -> None:
    levels = ["dataset", "method", "epsilon", "seed"]
    found = [
        Record(
            dict(zip(levels, ("cifar10", method, "3", str(seed)), strict=True)),
            {"test_accuracy": value + seed / 50},
        )
        for method, value in (("tp_topk", 0.5), ("dense", 0.4))
        for seed in range(3)
    ]
    document = to_document("topk", "train", levels, found, {})
    for source, name in (("jpeg", "CIFAR-10 (JPEG copy)"), ("png", "CIFAR-10")):
        run = run_of("cifar10", "topk", "base", [document], {"params": {"data": {"cifar10_source": source}}})
        data = {f.data for f in evaluate(CLAIMS, [run]) if f.claim.name == "topk_sparse_beats_dense"}
        assert data == {f"{name}, ε = 3"}
