"""The claims of the modulated-learning paper, and some beyond it, with the rules that decide them.

>>> len({claim.name for claim in MODULATED_CLAIMS}) == len(MODULATED_CLAIMS)
True

Sources are sections of docs/papers.md. No table of the paper was available: directions are compared. Which estimator
stands for a family is fixed here and not chosen by its result: ``one_shot`` (closed form, no stabilisation) for
one-shot, ``iterative`` (the same clients every round) for the iterative one, ``dp_sgd`` for the baseline, all three
under the same local privacy and with the smaller of the two valid calibrations.
"""

from __future__ import annotations

from typing import Literal

from sfumato.report.claims import Claim, Evaluation
from sfumato.report.modulated_attack_rules import (
    audits_stay_below,
    likelihood_reaches_its_floor,
    no_attack_beats_its_floor,
)
from sfumato.report.modulated_rules import (
    ALL,
    CLOSE,
    LARGE,
    SMALL,
    close_twins,
    improves_with_rounds,
    intervals_cover,
    lipschitz_ratio,
    more_directions_less_noise,
    same_noise,
    smaller_error,
)

QUICK, MEDIUM = "make run", "make medium"


def _claim(
    name: str,
    statement: str,
    section: str,
    evaluate: Evaluation,
    origin: Literal["paper", "beyond"] = "beyond",
    command: str = QUICK,
) -> Claim:
    source = f"Section {section} of docs/papers.md"
    return Claim(f"modulated_{name}", "modulated", statement, source, command, evaluate, origin=origin)


MODULATED_CLAIMS: tuple[Claim, ...] = (
    _claim(
        "one_shot_best_at_small_epsilon",
        "At a small ε (at most 1) the one-shot estimator has a smaller test error than the iterative one and than DP-SGD. "
        "Rule of direction on the ratio of errors, paired over seeds.",
        "1.6",
        smaller_error((("one_shot", "iterative"), ("one_shot", "dp_sgd")), SMALL),
        "paper",
    ),
    _claim(
        "iterative_overtakes",
        "At a moderate or large ε (at least 5) the iterative estimator has a smaller test error than one-shot and DP-SGD. "
        "Rule of direction on the ratio of errors, paired over seeds.",
        "1.6",
        smaller_error((("iterative", "one_shot"), ("iterative", "dp_sgd")), LARGE),
        "paper",
    ),
    _claim(
        "iterative_improves_with_rounds",
        "At the same total budget the iterative estimator has a smaller test error with more rounds. Rule of direction, "
        "the most rounds tried against the fewest.",
        "1.6",
        improves_with_rounds,
        "paper",
        MEDIUM,
    ),
    _claim(
        "dp_sgd_worst",
        "The DP-SGD baseline is clearly the worst: one-shot and the iterative estimator both have smaller test errors. Rule "
        "of direction on the ratio of errors, paired over seeds.",
        "1.6",
        smaller_error((("one_shot", "dp_sgd"), ("iterative", "dp_sgd")), ALL),
        "paper",
    ),
    _claim(
        "multi_vector_lowers_sensitivity",
        "With m orthonormal directions the sensitivity falls from |1−α|+λω to |1−α|+λω/√m. Rule of identity.",
        "1.2",
        more_directions_less_noise,
        "paper",
        MEDIUM,
    ),
    _claim(
        "frequency_does_not_matter",
        f"The frequency ω changes nothing: eight times the frequency gives the same noise, and an error within a factor of "
        f"{CLOSE:g}. Rules of identity and closeness.",
        "1.3 a′",
        close_twins(
            "one_shot_descent",
            "other_frequency",
            1 / CLOSE,
            CLOSE,
            same_noise("one_shot_descent", "other_frequency"),
        ),
    ),
    _claim(
        "modulation_is_no_help",
        f"The modulation does not help the estimate: without it (λ = 0), at the same ε, the error is at most {CLOSE:g} times as "
        "large. Rule of closeness, one-sided.",
        "1.3 a′",
        close_twins("one_shot_descent", "no_modulation", 0.0, CLOSE),
    ),
    _claim(
        "lipschitz_noise_is_larger_by_the_constant",
        "The paper’s calibration adds 1+λω/(√m|1−α|) times the noise that a fresh, secret phase needs. Rule of identity.",
        "1.3 a′",
        lipschitz_ratio,
    ),
    _claim(
        "lipschitz_noise_costs_accuracy",
        "At the same ε the paper’s calibration gives one-shot and the iterative estimator larger test errors. Rule of "
        "direction on the ratio of errors, paired over seeds.",
        "1.3 a′",
        smaller_error((("one_shot", "one_shot_lipschitz"), ("iterative", "iterative_lipschitz")), ALL),
    ),
    _claim(
        "no_attack_beats_its_floor",
        "No reconstruction has a smaller error than its floor: Cramér–Rao for the unbiased attacker, van Trees for those who "
        "know the clients’ mean and spread. Fails if a whole joint 95 % interval lies below.",
        "1.3 d",
        no_attack_beats_its_floor,
    ),
    _claim(
        "likelihood_attack_reaches_its_floor",
        "From many messages of a client, at the same total budget, the maximum-likelihood attacker reaches the Cramér–Rao floor. "
        "Holds if every joint 95 % interval contains the floor.",
        "1.3 d",
        likelihood_reaches_its_floor,
    ),
    _claim(
        "audit_stays_below_claim",
        "The likelihood-ratio audit of the local mechanism proves no more than the claimed ε.",
        "1.3 a",
        audits_stay_below,
    ),
    _claim(
        "intervals_cover",
        "Where noise does not dominate, the confidence intervals of one-shot, which account for the privacy noise, hold at least "
        "their nominal share of the coefficients. Fails if the whole 95 % interval of the share lies below.",
        "1.3 c",
        intervals_cover,
    ),
)
