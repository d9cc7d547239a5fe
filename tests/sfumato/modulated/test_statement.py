"""Statements say whose data, which calibration, both sigmas, and refuse what was not recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfumato.errors import SfumatoError
from sfumato.guarantee import AuditBound, PrivacyStatement
from sfumato.ledger import EventLedger
from sfumato.modulated.baselines import LocalSgdPlan
from sfumato.modulated.plan import Domain, ModulatedPlan, Modulation
from sfumato.modulated.statement import Calibrated, price_of, privacy_statement
from sfumato.modulated.sufficient_statistics import SufficientStatisticsPlan

PLAN = ModulatedPlan(Domain(3, 1.0), Modulation(0.0, 0.5, 2.0, 1), rounds=4)


def _recorded(calibrated: Calibrated) -> EventLedger:
    ledger = EventLedger()
    for event in calibrated.events:
        ledger.record(event)
    return ledger


def _statement(calibrated: Calibrated, **more: object) -> PrivacyStatement:
    return privacy_statement(
        "iterative",
        calibrated,
        _recorded(calibrated),
        500,
        "one respondent",
        "simulation",
        **more,  # type: ignore[arg-type]
    )


def test_the_first_line_says_that_public_labels_are_sent_in_the_clear() -> None:
    text = " ".join(_statement(PLAN.calibrate(2.0, 1e-5)).to_text().split("\n\n")[0].split())
    assert "(2, 1e-05)-differentially private per the features of one respondent" in text
    assert "given its label, which is sent in the clear" in text
    whole = _statement(replace(PLAN, labels="private").calibrate(2.0, 1e-5)).to_text()
    private = " ".join(whole.split("\n\n")[0].split())
    assert "clear" not in private
    assert "features and label" in private


@pytest.mark.parametrize("calibration", ["phase_marginal", "lipschitz"])
def test_it_names_the_calibration_and_prints_both_sigmas(calibration: str) -> None:
    plan = replace(PLAN, calibration=calibration)  # type: ignore[arg-type]
    text = " ".join(_statement(plan.calibrate(2.0, 1e-5)).to_text().split())
    assert f"calibrated by {calibration}, rule exact" in text
    for which in ("phase_marginal", "lipschitz"):
        assert f"sigma = {plan.noise_std(2.0, 1e-5, which):.6g} by {which}" in text  # type: ignore[arg-type]


def test_local_and_central_methods_are_told_apart() -> None:
    assert _statement(PLAN.calibrate(2.0, 1e-5)).setting.startswith("local")
    assert _statement(LocalSgdPlan(Domain(3, 1.0), 0.5, 4).calibrate(2.0, 1e-5)).setting.startswith("local")
    central = _statement(SufficientStatisticsPlan(Domain(3, 1.0)).calibrate(2.0, 1e-5))
    assert central.setting.startswith("central")
    assert len(central.phases) == 3


@pytest.mark.parametrize(
    "calibrated",
    [
        PLAN.calibrate(2.0, 1e-5),
        replace(PLAN, regime="disjoint_groups").calibrate(2.0, 1e-5),
        replace(PLAN, labels="private", rule="bun_steinke").calibrate(2.0, 1e-5),
        LocalSgdPlan(Domain(3, 1.0), 0.5, 4).calibrate(2.0, 1e-5),
        SufficientStatisticsPlan(Domain(3, 1.0)).calibrate(2.0, 1e-5),
    ],
)
def test_the_price_is_at_most_the_target_and_statements_survive_json(calibrated: Calibrated) -> None:
    statement = _statement(calibrated)
    assert statement.epsilon is not None
    assert statement.epsilon <= 2.0
    assert PrivacyStatement.from_json(statement.to_json()) == statement
    price = price_of(_recorded(calibrated), 1e-5)
    assert price.gaussian < price.zcdp < price.bun_steinke


def test_a_rule_of_bun_and_steinke_prices_to_its_target_by_that_rule() -> None:
    price = price_of(_recorded(replace(PLAN, rule="bun_steinke").calibrate(2.0, 1e-5)), 1e-5)
    assert price.bun_steinke == pytest.approx(2.0, rel=1e-6)


def test_tuning_and_audit_are_in_the_statement() -> None:
    bound = AuditBound(1.1, 0.95, "likelihood ratio of 1000 messages")
    text = " ".join(_statement(PLAN.calibrate(2.0, 1e-5), trials=18, audit=bound).to_text().split())
    assert "chosen with 18 further fits on the private data" in text
    assert "epsilon is at least 1.1 with 95% confidence" in text
    crossed = _statement(PLAN.calibrate(2.0, 1e-5), audit=AuditBound(2.5, 0.95, "x"))
    assert crossed.audit_crosses_claim
    assert "RED FLAG" in crossed.to_text()


def test_a_ledger_with_other_releases_is_refused() -> None:
    calibrated = PLAN.calibrate(2.0, 1e-5)
    ledger = _recorded(calibrated)
    ledger.record(calibrated.release_event)
    with pytest.raises(SfumatoError, match="the ledger recorded 5 releases; allowed are the plan's 4"):
        privacy_statement("iterative", calibrated, ledger, 500, "one respondent", "simulation")


def _plain(calibrated: Calibrated, **more: object) -> str:
    return " ".join(_statement(calibrated, **more).to_text().split())


def test_local_methods_say_so_in_their_first_line_and_central_ones_do_not() -> None:
    for local in (PLAN.calibrate(2.0, 1e-5), LocalSgdPlan(Domain(3, 1.0), 0.5, 4).calibrate(2.0, 1e-5)):
        assert "iterative: locally (2, 1e-05)-differentially private" in _plain(local)
    assert "iterative: (2, 1e-05)" in _plain(SufficientStatisticsPlan(Domain(3, 1.0)).calibrate(2.0, 1e-5))


def test_neighbours_keep_a_public_label_and_change_a_private_one() -> None:
    kept = "the features of one record are replaced by any others and its label stays"
    assert kept in _plain(PLAN.calibrate(2.0, 1e-5))
    assert kept not in _plain(replace(PLAN, labels="private").calibrate(2.0, 1e-5))


@pytest.mark.parametrize("calibration", ["phase_marginal", "lipschitz"])
def test_phases_print_the_noise_and_what_it_hides_and_no_clip_norm_that_nobody_clips_to(
    calibration: str,
) -> None:
    calibrated = replace(PLAN, calibration=calibration).calibrate(2.0, 1e-5)  # type: ignore[arg-type]
    text = _plain(calibrated)
    moved = calibrated.plan.neighbor_distance
    assert (
        f"standard deviation {calibrated.noise_std:.6g} on what two neighbours move by at most {moved:.6g}"
        in text
    )
    assert "clip norm" not in text.split("Not covered")[0]


def test_what_was_chosen_is_named_by_method() -> None:
    sgd = LocalSgdPlan(Domain(3, 1.0), 0.5, 4).calibrate(2.0, 1e-5)
    assert "the choice of step size and clip norm on validation rows" in _plain(sgd, trials=6)
    assert "the choice of step size on validation rows" in _plain(PLAN.calibrate(2.0, 1e-5), trials=6)
    assert "the choice of" not in _plain(PLAN.calibrate(2.0, 1e-5))


def test_without_modulation_the_phase_is_not_mentioned() -> None:
    text = _plain(replace(PLAN, modulation=Modulation()).calibrate(2.0, 1e-5))
    assert "nothing is modulated" in text
    assert "phase that nobody else sees" not in text
