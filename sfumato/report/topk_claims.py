"""The claims of the TP-TopK paper, and some beyond it, with the rules that decide them.

>>> len({claim.name for claim in TOPK_CLAIMS}) == len(TOPK_CLAIMS)
True

Sources are sections of docs/papers.md. Only the paper's abstract and opening, and texts about it, were read;
the direction and the size of its gains are known, its absolute accuracies are not.
"""

from __future__ import annotations

from sfumato.report.claims import Claim
from sfumato.report.topk_rules import (
    against,
    audit_below,
    criterion,
    dense_collapses,
    interior_optimum,
    largest_on_cifar,
    misranking,
    noise_scales,
    other_score,
    recall_recovers,
    selection_is_free,
    sized,
    small_supports_gain,
)

QUICK = "make run"
MEDIUM = "make medium"
PAPER = "make paper"


def _accuracy_beyond(name: str, first: str, second: str, statement: str, source: str) -> Claim:
    return Claim(name, "topk", statement, source, QUICK, against(first, second), origin="beyond")


RESULTS = "Section 2.4 of docs/papers.md"
THEORY = "Section 2.2 of docs/papers.md"

TOPK_CLAIMS: tuple[Claim, ...] = (
    Claim(
        "topk_learned_beats_random",
        "topk",
        "A learned support gives a higher test accuracy than a random one of the same size, at the same ε and steps.",
        RESULTS,
        QUICK,
        against("tp_topk", "tp_rand"),
    ),
    Claim(
        "topk_sparse_beats_dense",
        "topk",
        "Training on the learned support gives a higher test accuracy than DP-SGD on all coordinates, at the same ε.",
        RESULTS,
        QUICK,
        against("tp_topk", "dense"),
    ),
    Claim(
        "topk_gain_over_random_on_cifar10",
        "topk",
        "On CIFAR-10 at ε = 1 the learned support gains 1.23 points of accuracy over a random one.",
        RESULTS,
        PAPER,
        sized("tp_rand", {"1": 1.23}),
        (("cifar10", "1"),),
    ),
    Claim(
        "topk_gain_over_dense_on_cifar10",
        "topk",
        "On CIFAR-10 the method gains 9.21, 10.25 and 4.37 points over dense DP-SGD at ε = 1, 3 and 8.",
        RESULTS,
        PAPER,
        sized("dense", {"1": 9.21, "3": 10.25, "8": 4.37}),
        (("cifar10", "1"), ("cifar10", "3"), ("cifar10", "8")),
    ),
    Claim(
        "topk_largest_gain_on_cifar10",
        "topk",
        "The gain over a random support is larger on CIFAR-10 than on the other data sets.",
        RESULTS,
        PAPER,
        largest_on_cifar,
    ),
    Claim(
        "topk_dense_collapses_on_minority",
        "topk",
        "On imbalanced medical data dense DP-SGD hardly ever finds the rare class (recall of at most 0.1; 0.04 in "
        "the paper, on EyePACS).",
        RESULTS,
        MEDIUM,
        dense_collapses,
        (("thyroid", "1"), ("thyroid", "3")),
    ),
    Claim(
        "topk_minority_recall_recovers",
        "topk",
        "On imbalanced medical data the learned support finds more of the rare class than dense DP-SGD (recall 0.52 "
        "in the paper, on EyePACS).",
        RESULTS,
        MEDIUM,
        recall_recovers,
        (("thyroid", "1"), ("thyroid", "3")),
    ),
    Claim(
        "topk_warmup_share_has_interior_optimum",
        "topk",
        "The best share of the budget for the warm-up is about 30 %: better than a small and than a large one.",
        "Section 2.3 of docs/papers.md",
        MEDIUM,
        interior_optimum,
    ),
    Claim(
        "topk_gain_grows_as_support_shrinks",
        "topk",
        "The gain of a learned over a random support is larger when fewer coordinates are active.",
        RESULTS,
        MEDIUM,
        small_supports_gain,
    ),
    Claim(
        "topk_selection_costs_no_privacy",
        "topk",
        "Choosing the support from releases already made costs no privacy: TP-TopK costs what TP-Rand costs.",
        THEORY,
        QUICK,
        selection_is_free,
    ),
    Claim(
        "topk_noise_energy_is_proportional_to_support",
        "topk",
        "In restricted training the noise energy of a step is k/d of the dense one at equal noise per coordinate "
        "(from the calibrated plan).",
        THEORY,
        QUICK,
        noise_scales,
    ),
    Claim(
        "topk_criterion_predicts_the_winner",
        "topk",
        "Where the one-step criterion, against a dense step of the whole budget, says that restriction pays, TP-TopK "
        "ends above dense DP-SGD; where not, below.",
        THEORY,
        QUICK,
        criterion,
    ),
    Claim(
        "topk_misranking_is_predicted",
        "topk",
        "The normal approximation predicts how often warm-up scores rank two coordinates wrongly, to within "
        "5 percentage points.",
        THEORY,
        QUICK,
        misranking,
    ),
    Claim(
        "topk_audit_stays_below_claim",
        "topk",
        "A one-run audit's lower bound of ε stays at or below the ε claimed (a bound below it proves nothing more).",
        "Section 2.2 of docs/papers.md; Steinke et al. 2023",
        QUICK,
        audit_below,
        origin="beyond",
    ),
    Claim(
        "topk_square_of_mean_beats_mean_square",
        "topk",
        "Scoring by the square of the mean noisy gradient gives a higher accuracy than the paper's mean square.",
        "Section 2.7 of docs/papers.md",
        MEDIUM,
        other_score,
        origin="beyond",
    ),
    _accuracy_beyond(
        "topk_choosing_once_beats_choosing_again",
        "tp_topk",
        "on_topk",
        "A learned support chosen once after the warm-up gives a higher accuracy than one chosen again during training.",
        "Section 2.1 of docs/papers.md",
    ),
    _accuracy_beyond(
        "topk_random_once_beats_random_again",
        "tp_rand",
        "on_rand",
        "A random support drawn once gives a higher accuracy than one drawn again during training.",
        "Section 2.1 of docs/papers.md",
    ),
)
