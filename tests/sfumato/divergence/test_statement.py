"""Statements say what was spent, by whom the noise was added, and what the estimate aims at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfumato.accounting import gaussian_epsilon, zcdp_epsilon
from sfumato.divergence.experiment import estimate
from sfumato.divergence.methods import METHODS, get_method
from sfumato.divergence.statement import price_of, privacy_statement
from sfumato.errors import SfumatoError
from sfumato.guarantee import PrivacyStatement
from sfumato.ledger import EventLedger
from sfumato.rng import Streams
from tests.sfumato.divergence.examples import SETTING, pair


def _statement(
    name: str, epsilon: float = 1.0, asked: float = 1.0, mode: str = "simulation"
) -> PrivacyStatement:
    ledger = EventLedger()
    for event in estimate(name, pair(), SETTING, epsilon, Streams(0)).events:
        ledger.record(event)
    return privacy_statement(get_method(name), SETTING, asked, ledger, 1000, "one example", mode)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.private])
def test_every_private_method_has_a_complete_statement(name: str) -> None:
    statement = _statement(name)
    assert statement.epsilon == pytest.approx(1.0, rel=1e-2)
    assert statement.epsilon is not None
    assert statement.epsilon <= 1.0 + 1e-6
    assert statement.accountant == ("zcdp" if name == "distributed" else "gaussian")
    assert PrivacyStatement.from_json(statement.to_json()) == statement
    text = " ".join(statement.to_text().split())
    assert "replaced by any other; n = 1000" in text
    assert "gamma" in text or name == "local_clip"


def test_who_adds_the_noise_is_said_first() -> None:
    assert _statement("local_mix").setting.startswith("local: every client")
    assert (
        "colludes" in _statement("distributed").adversary or "collude" in _statement("distributed").adversary
    )
    assert "trusted aggregator" in _statement("all_cells").setting


def test_a_run_that_spent_more_than_asked_gets_no_statement() -> None:
    with pytest.raises(
        SfumatoError, match=r"the recorded releases cost epsilon = 2\.?\d*; allowed is the target, 1"
    ):
        _statement("all_cells", epsilon=2.0, asked=1.0)


def test_nothing_recorded_is_no_price() -> None:
    with pytest.raises(SfumatoError, match="the ledger holds no private release"):
        price_of(EventLedger(), 1e-5)


def _with_moment(name: str, share: float, release: bool = False) -> PrivacyStatement:
    setting, ledger = replace(SETTING, sampling="budget_share", variance_share=share), EventLedger()
    streams = Streams(None, "release") if release else Streams(0)
    for event in estimate(name, pair(), setting, 1.0, streams, interval=True).events:
        ledger.record(event)
    mode = "release" if release else "simulation"
    return privacy_statement(get_method(name), setting, 1.0, ledger, 1000, "one example", mode)


def _statements() -> list[PrivacyStatement]:
    private = [name for name, method in METHODS.items() if method.private]
    moments = [
        _with_moment(name, share) for name in ("trusted_aggregator", "per_batch") for share in (0.2, 0.5)
    ]
    return [*map(_statement, private), *moments, _with_moment("trusted_aggregator", 0.2, release=True)]


def test_the_phases_that_are_printed_cost_the_epsilon_that_is_stated() -> None:
    for statement in _statements():
        rho = sum(phase.steps * (2.0 / phase.noise_multiplier) ** 2 / 2.0 for phase in statement.phases)
        assert statement.delta is not None
        price = gaussian_epsilon if statement.accountant == "gaussian" else zcdp_epsilon
        spent = (2.0 * rho) ** 0.5 if statement.accountant == "gaussian" else rho
        assert price(spent, statement.delta) == pytest.approx(statement.epsilon, rel=1e-6)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_released_second_moment_is_a_phase_of_its_own_and_is_said(share: float) -> None:
    statement = _with_moment("trusted_aggregator", share)
    value, moment = statement.phases
    assert (value.name, moment.name) == ("release of the value", "release of the second moment")
    assert value.noise_multiplier / moment.noise_multiplier == pytest.approx((share / (1.0 - share)) ** 0.5)
    assert "the mean of Phi squared" in statement.mechanism
    assert "Phi squared" not in _statement("trusted_aggregator").mechanism
    assert len(_statement("trusted_aggregator").phases) == 1
