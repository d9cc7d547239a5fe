"""Headline claims of the other two papers; they are listed as not tested until their systems have records.

>>> sorted({claim.system for claim in OTHER_CLAIMS})
['divergence', 'radiomap']
"""

from __future__ import annotations

from sfumato.report.claims import Claim


def _claim(name: str, statement: str, section: str) -> Claim:
    system = name.split("_", 1)[0]
    return Claim(
        name, system, statement, f"Section {section} of docs/papers.md", f"python -m flows.{_FLOWS[system]}"
    )


_FLOWS = {"radiomap": "radiomap", "divergence": "drift"}

OTHER_CLAIMS: tuple[Claim, ...] = (
    _claim(
        "radiomap_adaptive_hides_transmitter_best",
        "At a matched noise budget adaptive allocation leaves an attacker the largest error on the transmitter "
        "(45.6 m against 42.3 m targeted and 36.8 m uniform).",
        "3.3",
    ),
    _claim(
        "radiomap_adaptive_keeps_maps_best",
        "At a matched noise budget adaptive allocation also reconstructs the map best (−15.87 dB against −15.66 dB "
        "targeted and −14.43 dB uniform).",
        "3.3",
    ),
    _claim(
        "divergence_matches_non_private",
        "For ε between 0.5 and 1 the private divergence estimate matches the non-private one.",
        "4.3",
    ),
    _claim("divergence_small_lambda_best", "The best control-variate weight λ is close to 0.", "4.3"),
    _claim("divergence_few_points_suffice", "About 10 sampled points per batch are nearly enough.", "4.3"),
    _claim(
        "divergence_aggregator_beats_local_noise",
        "Noise added once by the aggregator gives a smaller error than noise added by every client.",
        "4.1",
    ),
)
