"""Attacks on trained models: how much of one example a model shows, and what that says about epsilon.

>>> from sfumato.rng import Streams
>>> coins = choose_included(1000, Streams(0).stream("attack"))
>>> audit_one_run(coins.astype(float), coins, delta=1e-5, guess_fractions=0.5).correct
500

``membership.py`` thresholds the loss, ``lira.py`` compares with shadow models, ``canaries.py`` and
``audit.py`` bound epsilon from one run, ``roc.py`` holds the curves and intervals of all. Arrays go in,
frozen results come out.
"""

from __future__ import annotations

from sfumato.attacks.audit import AuditResult, audit_one_run, epsilon_lower, p_value
from sfumato.attacks.canaries import (
    CanaryScores,
    Directions,
    block_directions,
    canary_contribution,
    choose_included,
    loss_scores,
    mislabel,
    sparse_directions,
)
from sfumato.attacks.lira import (
    LiraResult,
    balanced_memberships,
    leave_one_out_scores,
    lira_attack,
    lira_scores,
    logit_confidence,
)
from sfumato.attacks.membership import MembershipResult, loss_threshold_attack
from sfumato.attacks.roc import (
    EpsilonBound,
    OperatingPoint,
    RocCurve,
    advantage,
    auc,
    clopper_pearson,
    epsilon_lower_bound,
    roc_curve,
    thin,
    tpr_at_fpr,
    tpr_bound,
)

__all__ = [
    "AuditResult",
    "CanaryScores",
    "Directions",
    "EpsilonBound",
    "LiraResult",
    "MembershipResult",
    "OperatingPoint",
    "RocCurve",
    "advantage",
    "auc",
    "audit_one_run",
    "balanced_memberships",
    "block_directions",
    "canary_contribution",
    "choose_included",
    "clopper_pearson",
    "epsilon_lower",
    "epsilon_lower_bound",
    "leave_one_out_scores",
    "lira_attack",
    "lira_scores",
    "logit_confidence",
    "loss_scores",
    "loss_threshold_attack",
    "mislabel",
    "p_value",
    "roc_curve",
    "sparse_directions",
    "thin",
    "tpr_at_fpr",
    "tpr_bound",
]
