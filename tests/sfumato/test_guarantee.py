"""The privacy statement: complete, consistent, readable, and honest about what it is worth."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import gaussian_delta
from sfumato.errors import SfumatoError
from sfumato.guarantee import (
    AuditBound,
    Figure,
    Phase,
    PrivacyStatement,
    TuningCost,
    membership_bound,
    strength,
)


def statement(**changes: Any) -> PrivacyStatement:
    values: dict[str, Any] = {
        "system": "topk",
        "method": "tp_topk",
        "setting": "one trusted curator trains on all records",
        "adversary": "sees every noisy gradient and the final model, and knows all records but one",
        "unit_of_privacy": "example",
        "neighboring_relation": "add_or_remove_one",
        "n": 55_000,
        "epsilon": 2.9,
        "epsilon_reason": "",
        "delta": 1e-5,
        "accountant": "pld",
        "figures": (Figure("rdp", 3.2, "order 6.9"), Figure("zcdp", None, "sampled releases")),
        "mechanism": "Gaussian noise on clipped per-example gradient sums",
        "phases": (Phase("warm-up", 45, 0.009, 1.1, 0.5, 0.3), Phase("train", 105, 0.009, 0.9, 0.5)),
        "sampling_assumed": "poisson",
        "sampling_used": "poisson",
        "empty_batches": 2,
        "not_covered": ("test accuracy is computed on public test rows", "labels of the test set"),
        "tuning": TuningCost(0, "public_data"),
        "mode": "simulation",
        "audit": AuditBound(0.4, 0.95),
        "target_epsilon": 3.0,
    }
    return PrivacyStatement(**{**values, **changes})


def non_private(**changes: Any) -> PrivacyStatement:
    return statement(
        **{
            "epsilon": None,
            "epsilon_reason": "No noise was added.",
            "phases": (Phase("train", 100, 0.01, 0.0, None),),
            "figures": (Figure("rdp", None, "no noise"),),
            **changes,
        }
    )


def flat(text: str) -> str:
    return " ".join(text.split())


def test_json_round_trip_is_finite_and_exact() -> None:
    for made in (statement(), non_private(), statement(notes=("one", "two"), mode="release")):
        text = json.dumps(made.to_json(), allow_nan=False)
        assert PrivacyStatement.from_json(json.loads(text)) == made


@pytest.mark.parametrize("field", sorted(statement().to_json().keys() - {"audit_crosses_claim", "strength"}))
def test_a_missing_field_is_an_error_that_names_it(field: str) -> None:
    document = statement().to_json()
    del document[field]
    with pytest.raises(SfumatoError, match=f"statement.{field} is missing"):
        PrivacyStatement.from_json(document)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("system", ""),
        ("setting", "  "),
        ("adversary", ""),
        ("unit_of_privacy", ""),
        ("accountant", ""),
        ("mechanism", ""),
        ("not_covered", ()),
        ("not_covered", ("",)),
        ("phases", ()),
        ("figures", ()),
        ("neighboring_relation", "swap"),
        ("mode", "demo"),
        ("n", 0),
        ("n", 10.5),
        ("n", True),
        ("delta", 0.0),
        ("delta", math.nan),
        ("epsilon", math.inf),
        ("epsilon", -0.1),
        ("epsilon", math.nan),
        ("empty_batches", -1),
        ("empty_batches", 151),
        ("sampling_assumed", "shuffle"),
        ("sampling_used", "sorted"),
        ("noise", "laplace"),
        ("target_epsilon", 0.0),
    ],
)
def test_an_empty_or_impossible_field_is_an_error_that_names_it(field: str, value: object) -> None:
    with pytest.raises(SfumatoError, match=field):
        statement(**{field: value})


def test_contradictions_are_errors() -> None:
    with pytest.raises(SfumatoError, match="epsilon_reason"):
        statement(epsilon=None)
    with pytest.raises(SfumatoError, match="allowed is one of both"):
        statement(epsilon_reason="it is infinite")
    with pytest.raises(SfumatoError, match="adds no noise"):
        statement(phases=(Phase("train", 200, 0.01, 0.0, 1.0),))
    with pytest.raises(SfumatoError, match="private trials and tuning on private data go together"):
        TuningCost(0, "private_data")
    with pytest.raises(SfumatoError, match="go together"):
        TuningCost(3, "public_data")
    with pytest.raises(SfumatoError, match="clip_norm is missing"):
        Phase("train", 1, 0.5, 1.0, None)
    with pytest.raises(SfumatoError, match=r"audit\.reason"):
        AuditBound(None, None)
    with pytest.raises(SfumatoError, match=r"audit\.confidence"):
        AuditBound(1.0, None)
    with pytest.raises(SfumatoError, match=r"figures\.zcdp\.note"):
        Figure("zcdp", None)
    with pytest.raises(SfumatoError, match=r"figures\.gaussian"):
        statement(figures=(Figure("gaussian", 1.0),))


@pytest.mark.parametrize("used", ["shuffle", "fixed_size", "weighted", "none"])
def test_another_sampling_than_assumed_voids_the_amplification_claim(used: str) -> None:
    with pytest.raises(SfumatoError, match="amplification claim is void"):
        statement(sampling_used=used)
    with pytest.raises(SfumatoError, match="sampling_rate below 1"):
        statement(sampling_used=used, sampling_assumed="none")
    kept = statement(
        sampling_used=used, sampling_assumed="none", phases=(Phase("train", 200, 1.0, 30.0, 1.0),)
    )
    assert "no amplification is claimed" in flat(kept.to_text())
    assert non_private(sampling_used=used).epsilon is None


def test_the_first_line_says_whether_it_is_private() -> None:
    assert "(2.9, 1e-05)-differentially" in statement().to_text().splitlines()[0]
    assert "NOT private. No noise was added." in non_private().to_text().splitlines()[0]


def test_the_text_names_everything_and_wraps() -> None:
    text = statement().to_text()
    assert max(len(line) for line in text.splitlines()) <= 100
    words = flat(text)
    for expected in (
        "one trusted curator",
        "knows all records but one",
        "two data sets are neighbours if one has one record more",
        "n = 55000 is a declared public number",
        "rdp 3.2 (order 6.9)",
        "zcdp none (sampled releases)",
        "45 steps, sampling rate 0.009, noise multiplier 1.1, clip norm 0.5, 30% of epsilon if alone",
        "2 of 150 batches were empty and still released noise",
        "labels of the test set",
        "tuned on public data, which costs no privacy",
        "epsilon is at least 0.4 with 95% confidence",
    ):
        assert expected in words, expected


@pytest.mark.parametrize(
    ("epsilon", "word"),
    [(0.5, "strong"), (2.0, "moderate"), (8.0, "weak"), (10.5, "next to nothing"), (900.0, "nothing")],
)
def test_a_large_epsilon_is_said_in_words_to_protect_nothing(epsilon: float, word: str) -> None:
    assert word in strength(epsilon)
    made = statement(epsilon=epsilon, target_epsilon=None)
    assert word in flat(made.to_text())
    assert made.protects_nothing == (epsilon > 10)


def test_an_audit_above_the_claim_is_a_red_flag_at_the_top() -> None:
    broken = statement(audit=AuditBound(4.0, 0.95))
    assert broken.audit_crosses_claim
    assert broken.to_json()["audit_crosses_claim"] is True
    assert "RED FLAG" in " ".join(broken.to_text().splitlines()[:2])
    assert not statement().audit_crosses_claim
    assert "RED FLAG" not in statement().to_text()
    assert not non_private(audit=AuditBound(4.0, 0.95)).audit_crosses_claim


def test_modes_say_what_the_noise_is_worth() -> None:
    assert "known seed, so whoever knows the seed can subtract it" in flat(statement().to_text())
    released = flat(statement(mode="release").to_text())
    assert "operating system's entropy" in released
    for continuous in (released, flat(statement().to_text())):
        assert "a Gaussian in floating-point numbers, which only approximates" in continuous
    for mode in ("release", "simulation"):
        assert "floating-point" not in flat(statement(mode=mode, noise="discrete").to_text())


def test_what_an_epsilon_is_worth_is_said_with_its_delta() -> None:
    assert "factor of up to 18.2, up to delta = 1e-05." in flat(statement().to_text())


def test_an_audit_says_what_was_audited() -> None:
    made = statement(audit=AuditBound(0.4, 0.9, "one-run audit of a separate fit"))
    assert "epsilon is at least 0.4 with 90% confidence (one-run audit of a separate fit)." in flat(
        made.to_text()
    )


def test_a_fit_without_noise_does_not_speak_of_noise_or_epsilon() -> None:
    words = flat(non_private(tuning=TuningCost(7, "private_data")).to_text())
    assert "released noise" not in words
    assert "part of epsilon" not in words
    assert "7 further fits on the private data, without privacy like this one" in words


def test_tuning_and_delta_and_target_are_warned_of() -> None:
    tuned = flat(statement(tuning=TuningCost(7, "private_data")).to_text())
    assert "7 further fits on the private data, which are NOT part of epsilon" in tuned
    accounted = flat(statement(tuning=TuningCost(7, "private_data", accounted=True)).to_text())
    assert "which are part of epsilon" in accounted
    assert "is not below 1/n" in flat(statement(n=1000, delta=1e-3).to_text())
    assert "above the target of 2" in flat(statement(target_epsilon=2.0).to_text())


@given(st.floats(0.05, 5.0), st.floats(0.0, 6.0), st.floats(1e-4, 1.0))
def test_no_attack_on_a_gaussian_beats_the_membership_bound(mu: float, epsilon: float, rate: float) -> None:
    from scipy.stats import norm

    best = float(norm.cdf(mu + norm.ppf(rate)))  # the likelihood-ratio test's power
    assert best <= membership_bound(epsilon, gaussian_delta(mu, epsilon), rate) + 1e-9


def test_malformed_documents_are_refused() -> None:
    good = statement().to_json()
    for document, match in (
        ([], "statement is"),
        ({**good, "extra": 1}, "'extra'"),
        ({**good, "phases": "train"}, "phases is"),
        ({**good, "phases": [{"name": "train"}]}, r"phases\.steps is missing"),
        ({**good, "tuning": None}, "tuning is None"),
        ({**good, "epsilon": "3"}, "epsilon is '3'"),
        ({**good, "not_covered": "nothing"}, "not_covered is"),
    ):
        with pytest.raises(SfumatoError, match=match):
            PrivacyStatement.from_json(document)
