"""The claims of the paper on private divergence, and some beyond it, with the rules that decide them.

>>> len({claim.name for claim in DIVERGENCE_CLAIMS}) == len(DIVERGENCE_CLAIMS)
True

Sources are sections of docs/papers.md. No table of the paper was available: directions and sizes in words are
compared. The trusted aggregator with pooled counts stands for the paper's method, both floors of Algorithm 1 for its
baseline; neither is chosen by its result.
"""

from __future__ import annotations

from typing import Literal

from sfumato.report.claims import Claim, Evaluation
from sfumato.report.divergence_monitor_rules import (
    alarm_after_drift,
    audits_stay_below,
    intervals_cover,
    message_below_1kb,
    no_alarm_before_drift,
)
from sfumato.report.divergence_rules import (
    CLOSE,
    FEW,
    LOW,
    NEAR_ZERO,
    batches_leave_the_coefficient,
    beats_local,
    best_coefficient_near_zero,
    distributed_between,
    floor_trades_bias_for_noise,
    low_error_small_and_large,
    matches_non_private,
    over_epsilons,
    per_batch_bias_positive,
    pooled_beats_per_batch,
    ten_points_nearly_enough,
)

COMMAND = "make run"


def _claim(
    name: str,
    statement: str,
    section: str,
    evaluate: Evaluation = lambda _runs: (),
    origin: Literal["paper", "beyond"] = "beyond",
) -> Claim:
    source = f"Section {section} of docs/papers.md"
    return Claim(f"divergence_{name}", "divergence", statement, source, COMMAND, evaluate, origin=origin)


DIVERGENCE_CLAIMS: tuple[Claim, ...] = (
    _claim(
        "matches_non_private",
        f"For ε between 0.5 and 1 the private estimate matches the non-private one: its error is at most {CLOSE:g} times as large. "
        "Rule of separation.",
        "4.3",
        matches_non_private,
        "paper",
    ),
    _claim(
        "beats_local",
        "At every ε up to 3 noise added once by the aggregator gives a smaller error than noise added by every client, with "
        "either floor. Rule of separation.",
        "4.1",
        beats_local,
        "paper",
    ),
    _claim(
        "best_coefficient_near_zero",
        f"The best control-variate weight λ is close to 0: the smallest error lies at λ ≤ {NEAR_ZERO:g} and below that at λ = 1. "
        "Rule of separation.",
        "4.3",
        best_coefficient_near_zero,
        "paper",
    ),
    _claim(
        "ten_points_nearly_enough",
        f"About {FEW} sampled points are nearly enough: the error with {FEW} is at most {CLOSE:g} times that with the most points "
        "tried. Rule of separation.",
        "4.3",
        ten_points_nearly_enough,
        "paper",
    ),
    _claim(
        "batch_size_only_speed",
        "The size of the batches changes the speed, not the best λ: with batches the λ that is best for pooled counts, which are one "
        f"batch, gives an error of at most {CLOSE:g} times that of their own best λ. Rule of separation.",
        "4.3",
        batches_leave_the_coefficient,
        "paper",
    ),
    _claim(
        "message_below_1kb",
        "A client’s masked counts are below 1 KB (1,000 bytes). Rule of identity; what the keys and shares of the secure aggregation "
        "add is named beside it.",
        "4.1",
        message_below_1kb,
        "paper",
    ),
    _claim(
        "low_error_small_and_large",
        f"The error is low for small and for large divergences: at most {LOW:g} nats on average over the lower and over the upper "
        "third of the pairs. Rule: both means with their intervals.",
        "4.3",
        low_error_small_and_large,
        "paper",
    ),
    _claim(
        "pooled_beats_per_batch",
        "Counts pooled over all clients give a smaller error than the paper’s averaged batches, at every ε and number of batches. Rule of separation.",
        "4.2",
        pooled_beats_per_batch,
    ),
    _claim(
        "per_batch_bias_positive",
        "Averaging over batches overestimates: its bias is above zero at the largest ε, or else with the most batches studied. Rule of direction.",
        "4.2",
        per_batch_bias_positive,
    ),
    _claim(
        "all_cells_beats_drawn_points",
        "Counting every cell gives a smaller error than counting drawn points, at every ε. Rule of separation.",
        "4.2",
        over_epsilons("all_cells", ("trusted_aggregator",)),
    ),
    _claim(
        "noise_after_phi_beats_noisy_counts",
        "With the same trusted party and every cell counted, noise after Φ gives a smaller error than noise on the counts, "
        "at every ε. Rule of separation.",
        "4.2",
        over_epsilons("all_cells", ("histogram",)),
    ),
    _claim(
        "distributed_between",
        "Distributed noise, which trusts no aggregator, has an error below that of local noise at every ε and nowhere clearly "
        "below that of the trusted aggregator. Rule of separation.",
        "4.1",
        distributed_between,
    ),
    _claim(
        "floor_trades_bias_for_noise",
        "The floor trades bias for noise: the error has its minimum inside the studied range of γ, below both ends. Rule of "
        "separation.",
        "4.2",
        floor_trades_bias_for_noise,
    ),
    _claim(
        "audit_stays_below_claim",
        "The likelihood-ratio audit of the released number proves no more than the claimed ε.",
        "4.1",
        audits_stay_below,
    ),
    _claim(
        "intervals_cover",
        "The confidence intervals hold what they aim at, the divergence with the floor, at least as often as they say. Fails if the "
        "binomial 95 % interval of the share lies below, with each pair and seed as a trial.",
        "4.2",
        intervals_cover,
    ),
    _claim(
        "no_alarm_before_drift",
        "On a watched population no alarm comes before the drift. Rule of identity, one population per data set.",
        "4.1",
        no_alarm_before_drift,
    ),
    _claim(
        "alarm_after_drift",
        "On a watched population an alarm comes after the drift. Rule of identity, one population per data set; not tested where the "
        "drift ends below the divergence that one check finds nine times in ten.",
        "4.1",
        alarm_after_drift,
    ),
)
