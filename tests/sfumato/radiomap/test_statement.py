"""Who promises an epsilon prints it with what it is worth; who does not cannot."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato import accounting
from sfumato.errors import SfumatoError
from sfumato.guarantee import AuditBound, PrivacyStatement
from sfumato.ledger import EventLedger
from sfumato.radiomap.defences import Defence, uniform
from sfumato.radiomap.partition import partition_of
from sfumato.radiomap.pricing import nu_for_epsilon, price, upload_event
from sfumato.radiomap.statement import Run, privacy_statement
from tests.sfumato.radiomap.defended import guaranteed, three_groups, without_promise

PARTITION = three_groups(4800)
NU = 1.5
RUN = Run(clients=14, uploads=5, released=40, delta=1e-5, mode="simulation", nu=NU)
PROMISED = guaranteed(PARTITION, NU)
OTHERS = without_promise(PARTITION, NU)


def _ledger(defence: Defence, uploads: int = 5) -> EventLedger:
    ledger = EventLedger()
    for _upload in range(uploads):
        ledger.record(upload_event(defence))
    return ledger


@pytest.mark.parametrize("name", list(PROMISED))
@pytest.mark.parametrize("unit", ["upload", "client"])
def test_a_defence_with_a_promise_states_its_epsilon_and_that_it_protects_nothing(
    name: str, unit: str
) -> None:
    defence = PROMISED[name]
    stated = privacy_statement(defence, _ledger(defence), RUN, unit)  # type: ignore[arg-type]
    uploads = 1 if unit == "upload" else 5
    assert stated.epsilon == pytest.approx(price(defence, uploads, 1e-5).epsilon, rel=1e-9)
    assert stated.method == name
    assert stated.protects_nothing
    text = " ".join(stated.to_text().split())
    assert "in the thousands and more protects nothing formally" in text
    wanted = nu_for_epsilon(defence, NU, 10.0, 1e-5, uploads)
    assert f"would take nu = {wanted:.4g} instead of 1.5" in text
    assert PrivacyStatement.from_json(stated.to_json()) == stated


@pytest.mark.parametrize("name", list(OTHERS))
def test_a_defence_without_a_promise_cannot_print_an_epsilon(name: str) -> None:
    defence = OTHERS[name]
    stated = privacy_statement(defence, _ledger(defence), RUN)
    assert stated.epsilon is None
    assert all(figure.value is None for figure in stated.figures)
    assert stated.protects_nothing
    text = stated.to_text()
    assert text.startswith(f"radiomap / {name.split(',')[0]}: NOT private.")
    assert "there is no guarantee" in text
    with pytest.raises(SfumatoError):
        replace(stated, epsilon=1.0)
    with pytest.raises(SfumatoError):
        replace(stated, epsilon=1.0, epsilon_reason="")


def test_the_text_says_who_is_trusted_what_one_record_is_and_what_is_assumed() -> None:
    defence = PROMISED["adaptive_certified"]
    text = " ".join(privacy_statement(defence, _ledger(defence), RUN).to_text().split())
    for needed in (
        "nobody is trusted, not even the server",
        "all uploads of one client, 5 at most",
        "the updates behind all uploads of one client are replaced by any others that are finite",
        "n = 14",
        "public by assumption, from public maps alone",
        "a client's randomness: assumed its own",
        "priced at the least noise that the floor of 0.25 allows",
        "number of examples behind an upload, which is sent in the clear",
        "a client sends nothing where its update is not finite, which is seen",
        "norms and clipped shares of the updates in a training's curves",
    ):
        assert needed in text


def test_groups_of_their_own_clips_are_stated_one_by_one() -> None:
    defence = PROMISED["static_optimal"]
    stated = privacy_statement(defence, _ledger(defence), RUN, "upload")
    assert [phase.name for phase in stated.phases] == [f"uploads, group {name}" for name in PARTITION.names]
    multipliers = np.array([phase.noise_multiplier for phase in stated.phases])
    assert 2.0 * np.sqrt(np.sum(multipliers**-2.0)) == pytest.approx(defence.promise.mu)


def test_an_epsilon_above_a_million_is_a_figure_and_not_a_claim() -> None:
    # mu = 2 sqrt(d) / nu, as at nu = 3 over the 13,274,031 weights of the full network.
    nu = 3.0 * math.sqrt(1000 / 13_274_031)
    defence = uniform(partition_of(1000, {}), nu, 1.0)
    run = replace(RUN, nu=nu)
    stated = privacy_statement(defence, _ledger(defence), run)
    assert stated.epsilon is None
    assert "protects nothing formally" in stated.epsilon_reason
    assert stated.figures[0].value == pytest.approx(price(defence, 5, 1e-5).epsilon)
    assert "would take nu" in " ".join(stated.to_text().split())


def test_a_small_epsilon_gets_no_word_of_thousands() -> None:
    nu = nu_for_epsilon(PROMISED["uniform"], NU, 8.0, 1e-5, 5)
    defence = uniform(PARTITION, nu, 1.5)
    stated = privacy_statement(defence, _ledger(defence), replace(RUN, nu=nu))
    assert stated.epsilon == pytest.approx(8.0)
    assert "protects nothing formally" not in stated.to_text()


def test_an_audit_above_the_claim_is_a_red_flag() -> None:
    nu = nu_for_epsilon(PROMISED["uniform"], NU, 1.0, 1e-5, 5)
    defence = uniform(PARTITION, nu, 1.5)
    stated = privacy_statement(
        defence, _ledger(defence), replace(RUN, nu=nu), audit=AuditBound(1.4, 0.95), notes=("a remark",)
    )
    assert stated.audit_crosses_claim
    assert "RED FLAG" in stated.to_text()
    assert "a remark" in stated.notes


def test_a_ledger_of_other_releases_is_refused() -> None:
    defence = PROMISED["uniform"]
    with pytest.raises(SfumatoError, match="recorded 4 uploads; allowed are the run's 5"):
        privacy_statement(defence, _ledger(defence, 4), RUN)
    with pytest.raises(SfumatoError, match="each with the noise of uniform"):
        privacy_statement(defence, _ledger(PROMISED["adaptive_certified"]), RUN)
    with pytest.raises(SfumatoError, match="each with the noise of clip_only"):
        privacy_statement(OTHERS["clip_only"], _ledger(defence), RUN)


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SfumatoError, match="clients is 0"):
        replace(RUN, clients=0)
    with pytest.raises(SfumatoError, match="released is 71"):
        replace(RUN, released=71)
    with pytest.raises(SfumatoError, match="unit is 'map'"):
        privacy_statement(PROMISED["uniform"], _ledger(PROMISED["uniform"]), RUN, "map")  # type: ignore[arg-type]


def test_the_recorded_events_are_priced_as_stated() -> None:
    defence = uniform(PARTITION, 60.0, 1.5)
    ledger = _ledger(defence)
    stated = privacy_statement(defence, ledger, replace(RUN, nu=60.0))
    assert stated.epsilon == pytest.approx(
        accounting.epsilon(ledger.events, 1e-5, "pld", "replace_one"), rel=1e-9
    )
