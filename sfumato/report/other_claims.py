"""Headline claims of the paper on radio maps; they are listed as not tested until its system has records.

>>> sorted({claim.system for claim in OTHER_CLAIMS})
['radiomap']
"""

from __future__ import annotations

from sfumato.report.claims import Claim


def _claim(name: str, statement: str, section: str) -> Claim:
    source = f"Section {section} of docs/papers.md"
    return Claim(f"radiomap_{name}", "radiomap", statement, source, "python -m flows.radiomap")


OTHER_CLAIMS: tuple[Claim, ...] = (
    _claim(
        "adaptive_hides_transmitter_best",
        "At a matched noise budget adaptive allocation leaves an attacker the largest error on the transmitter "
        "(45.6 m against 42.3 m targeted and 36.8 m uniform).",
        "3.3",
    ),
    _claim(
        "adaptive_keeps_maps_best",
        "At a matched noise budget adaptive allocation also reconstructs the map best (−15.87 dB against −15.66 dB "
        "targeted and −14.43 dB uniform).",
        "3.3",
    ),
)
