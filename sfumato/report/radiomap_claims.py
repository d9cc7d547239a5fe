"""The claims of the paper on federated radio maps, and some beyond it, with the rules that decide them.

>>> len({claim.name for claim in RADIOMAP_CLAIMS}) == len(RADIOMAP_CLAIMS)
True

Sources are sections of docs/papers.md. The paper's figures are of its own maps and of a much larger network; here its
directions are put to the test. Error means the root mean squared error in metres of the located transmitter, by the
attacker chosen by validation; a defence with a larger one is the more private.
"""

from __future__ import annotations

from typing import Literal

from sfumato.report.claims import Claim, Evaluation
from sfumato.report.radiomap_rules import (
    CLOSE_DB,
    CLOSE_METRES,
    FORMAL,
    audits_stay_below,
    averaging_helps,
    better_than_uniform,
    clipping_leaves_leakage,
    larger_error,
    no_formal_protection,
    smaller_validation_error,
    sum_hides_more,
    targeted_does_not_protect,
    uploads_leak_beyond_slices,
)
from sfumato.report.radiomap_variant_rules import (
    error_rises,
    known_map_helps,
    privacy_order_at_same_sigma,
    removes_the_leak,
    sgd_leaks_less,
    targeted_not_above_uniform,
    utility_order_at_same_sigma,
)

QUICK, MEDIUM = "make run", "make medium"
PAPERS_ORDER = (("targeted_uniform", "uniform"), ("adaptive", "targeted_uniform"))
OTHERS = ("none", "clip_only", "uniform", "targeted_uniform")
"""The defences that the paper compares its own with."""
NOISY = ("uniform", "targeted_uniform")
SOURCES = {
    "circular": "With circular padding, under which no convolution sees an edge",
    "reflect": "With reflect padding, which mirrors the map at its edge instead of adding zeros",
    "margin": "With a loss that ignores the map’s margin, where the field is cut off",
    "circular_margin": "With circular padding and a loss that ignores the map’s margin",
}
"""Variant -> how it removes the leak at its source."""


def _claim(
    name: str,
    statement: str,
    section: str,
    evaluate: Evaluation,
    origin: Literal["paper", "beyond"] = "beyond",
    command: str = QUICK,
) -> Claim:
    source = f"Section {section} of docs/papers.md"
    return Claim(f"radiomap_{name}", "radiomap", statement, source, command, evaluate, origin=origin)


_AT_ENERGY: tuple[Claim, ...] = (
    _claim(
        "adaptive_hides_transmitter_best",
        "At a matched noise budget adaptive allocation leaves an attacker the largest error on the transmitter "
        "(45.6 m against 42.3 m targeted and 36.8 m uniform), larger than each of the paper’s other defences leaves. Rule of direction.",
        "3.3",
        larger_error([("adaptive", name) for name in OTHERS]),
        "paper",
    ),
    _claim(
        "adaptive_keeps_maps_best",
        "At a matched noise budget adaptive allocation also reconstructs the map best (−15.87 dB against −15.66 dB "
        "targeted and −14.43 dB uniform). Rule of direction.",
        "3.3",
        smaller_validation_error([("adaptive", name) for name in NOISY]),
        "paper",
    ),
    _claim(
        "privacy_order",
        "Order of privacy, for an attacker who reads the whole update: uniform below targeted below adaptive noise. Rule of direction.",
        "3.3",
        larger_error(PAPERS_ORDER),
        "paper",
    ),
    _claim(
        "privacy_order_on_slices",
        "Order of privacy as the paper looks at it, for an attacker who reads the transmitter’s weights only: uniform below targeted "
        "below adaptive noise. Rule of direction.",
        "3.3",
        larger_error(PAPERS_ORDER, "slices"),
        "paper",
    ),
    _claim(
        "utility_order",
        "Order of utility: uniform noise has the largest validation error, targeted a smaller one, adaptive the smallest. Rule of "
        "direction.",
        "3.3",
        smaller_validation_error(PAPERS_ORDER),
        "paper",
    ),
    _claim(
        "adaptive_error_rises",
        "Under adaptive noise the attacker’s error rises over the rounds: at the last attacked round it lies above that at the first; "
        "at the weights of its own training where those were attacked (own weights). Rule of direction.",
        "3.3",
        error_rises("adaptive"),
        "paper",
        MEDIUM,
    ),
    _claim(
        "targeted_does_not_protect",
        "Noise on the transmitter’s weights alone does not protect against a reader of the whole update: the error is at most "
        f"{CLOSE_METRES:g} m above that under clipping alone. Rule of closeness, one-sided.",
        "3.5",
        targeted_does_not_protect,
    ),
    _claim(
        "uploads_leak_beyond_slices",
        "An undefended update gives the transmitter away beyond the transmitter’s weights: whoever reads all of it has a smaller "
        "error than a reader of those weights only. Rule of direction.",
        "3.2",
        uploads_leak_beyond_slices,
    ),
    _claim(
        "clipping_leaves_leakage",
        "Clipping alone leaves a leak: the attacker’s error lies below that of a constant guess. Rule of direction.",
        "3.3",
        clipping_leaves_leakage,
    ),
    _claim(
        "shaped_beats_uniform",
        "At equal energy noise shaped by the principal components of public updates leaves the attacker a larger error than uniform "
        f"noise, at a validation error at most {CLOSE_DB:g} dB larger. Rules of direction and closeness.",
        "3.5",
        better_than_uniform("shaped"),
    ),
    _claim(
        "adaptive_certified_not_worse",
        f"The certified adaptive noise is not worse than uniform noise: its error is at most {CLOSE_METRES:g} m smaller, its validation error "
        f"at most {CLOSE_DB:g} dB larger. Rule of closeness, one-sided.",
        "3.5",
        better_than_uniform("adaptive_certified", -CLOSE_METRES),
    ),
    _claim(
        "averaging_helps_attacker",
        "An attacker who averages a client’s updates over several rounds has a smaller error than one who reads one of them, on average "
        "over the defences with noise. Rule of direction.",
        "3.5",
        averaging_helps,
        command=MEDIUM,
    ),
    _claim(
        "sum_hides_more",
        "The sum over the active clients, which is all that secure aggregation shows, leaves a larger error than a single update, on "
        "average over the defences. Rule of direction.",
        "3.5",
        sum_hides_more,
    ),
    _claim(
        "audit_stays_below_claim",
        "The likelihood-ratio audit of an update proves no more than the claimed ε, for every defence that has one. Rule of identity.",
        "3.5",
        audits_stay_below,
    ),
    _claim(
        "no_formal_protection",
        f"At every noise multiplier tried, the ε of a single update lies above {FORMAL:g}: no formal protection worth its name. Rule of identity.",
        "3.5",
        no_formal_protection,
    ),
)
_OF_VARIANTS: tuple[Claim, ...] = (
    *(
        _claim(
            f"source_{variant}",
            f"{words}, and clipping alone, an update gives less away: the attacker’s error is larger than with zero padding and the whole loss, "
            f"at a validation error at most {CLOSE_DB:g} dB larger. Rules of direction and closeness.",
            "3.5",
            removes_the_leak(variant),
            command=MEDIUM,
        )
        for variant, words in SOURCES.items()
    ),
    _claim(
        "matched_multiplier_targeted",
        "With the same σ on every noised weight targeted noise is not more private than uniform noise for a reader of the whole update, "
        f"since uniform noise is targeted noise and more (data processing): its error is at most {CLOSE_METRES:g} m larger. Rule of "
        "closeness, one-sided.",
        "3.5",
        targeted_not_above_uniform,
        command=MEDIUM,
    ),
    _claim(
        "matched_multiplier_privacy_order",
        "Order of privacy if a matched noise multiplier means the same σ on every noised weight, for an attacker who reads the whole "
        "update: uniform below targeted noise. Rule of direction.",
        "3.3",
        privacy_order_at_same_sigma,
        "paper",
        MEDIUM,
    ),
    _claim(
        "matched_multiplier_utility_order",
        "Order of utility if a matched noise multiplier means the same σ on every noised weight: targeted noise has a smaller validation "
        "error than uniform noise. Rule of direction.",
        "3.3",
        utility_order_at_same_sigma,
        "paper",
        MEDIUM,
    ),
    _claim(
        "known_map_attacker",
        "Who knows the client’s building map and simulates every place of the transmitter has a smaller median error than the regressor, "
        "on average over the defences. Rule of direction.",
        "3.5",
        known_map_helps,
        command=MEDIUM,
    ),
    _claim(
        "sgd_uploads_leak_less",
        "With plain SGD instead of Adam on the clients an update gives less away: under clipping alone the attacker’s error is larger. "
        "Rule of direction.",
        "3.5",
        sgd_leaks_less,
        command=MEDIUM,
    ),
)
RADIOMAP_CLAIMS: tuple[Claim, ...] = (*_AT_ENERGY, *_OF_VARIANTS)
