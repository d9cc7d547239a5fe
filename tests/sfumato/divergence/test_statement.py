"""Statements say what was spent, by whom the noise was added, and what the estimate aims at."""

from __future__ import annotations

import pytest

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
