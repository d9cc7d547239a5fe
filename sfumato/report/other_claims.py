"""Headline claims of the other three papers; they are listed as not tested until their systems have records.

>>> sorted({claim.system for claim in OTHER_CLAIMS})
['divergence', 'modulated', 'radiomap']
"""

from __future__ import annotations

from sfumato.report.claims import Claim


def _claim(name: str, statement: str, section: str) -> Claim:
    system = name.split("_", 1)[0]
    return Claim(
        name, system, statement, f"Section {section} of docs/papers.md", f"python -m flows.{_FLOWS[system]}"
    )


_FLOWS = {"modulated": "modulated", "radiomap": "radiomap", "divergence": "drift"}

OTHER_CLAIMS: tuple[Claim, ...] = (
    _claim(
        "modulated_one_shot_best_at_small_epsilon",
        "At a small ε the one-shot estimator from one private sample per client is the best of the methods.",
        "1.6",
    ),
    _claim(
        "modulated_iterative_overtakes",
        "With more rounds and at moderate or large ε the iterative estimator passes one-shot and DP-SGD on most tasks.",
        "1.6",
    ),
    _claim("modulated_dp_sgd_worst", "The DP-SGD baseline is clearly the worst of the methods.", "1.6"),
    _claim(
        "modulated_multi_vector_lowers_sensitivity",
        "With m orthonormal directions the sensitivity falls from |1−α|+λω to |1−α|+λω/√m.",
        "1.2",
    ),
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
