"""Attacks on models and messages: how much of one example is shown, and what that says about epsilon.

>>> from sfumato.rng import Streams
>>> coins = choose_included(1000, Streams(0).stream("attack"))
>>> audit_one_run(coins.astype(float), coins, delta=1e-5, guess_fractions=0.5).correct
500

``membership.py`` thresholds the loss, ``lira.py`` compares with shadow models, ``canaries.py`` and
``audit.py`` bound epsilon from one run, ``roc.py`` holds the curves and intervals of all. Against clients who send
noisy samples, ``message_model.py`` is what an attacker knows, ``reconstruction.py`` and ``likelihood.py`` estimate the
sample, ``reconstruction_floor.py`` says how well anybody can, and ``distinguishing.py`` audits the mechanism itself.
Arrays go in, frozen results come out.
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
from sfumato.attacks.distinguishing import (
    audit_ceiling,
    audit_local_mechanism,
    fresh_phase_ratio,
    known_phase_ratio,
    opposite_pair,
    shared_phase_ratio,
)
from sfumato.attacks.likelihood import LikelihoodFit, maximum_likelihood
from sfumato.attacks.lira import (
    LiraResult,
    balanced_memberships,
    leave_one_out_scores,
    lira_attack,
    lira_scores,
    logit_confidence,
)
from sfumato.attacks.membership import MembershipResult, loss_threshold_attack
from sfumato.attacks.message_model import MessageModel, log_likelihood, unit_directions
from sfumato.attacks.phase_noise import arcsine_gaussian_information
from sfumato.attacks.reconstruction import (
    MeanError,
    SquaredErrors,
    exact_posterior_mean,
    linear_posterior_error,
    linear_posterior_mean,
    linear_unbiased,
    linear_unbiased_error,
    onto_ball,
    squared_errors,
)
from sfumato.attacks.reconstruction_floor import (
    SquaredError,
    bayesian_floor,
    known_phase_floor,
    known_phase_floor_at,
    least_bayes_error,
    reconstruction_floor,
)
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
    "LikelihoodFit",
    "LiraResult",
    "MeanError",
    "MembershipResult",
    "MessageModel",
    "OperatingPoint",
    "RocCurve",
    "SquaredError",
    "SquaredErrors",
    "advantage",
    "arcsine_gaussian_information",
    "auc",
    "audit_ceiling",
    "audit_local_mechanism",
    "audit_one_run",
    "balanced_memberships",
    "bayesian_floor",
    "block_directions",
    "canary_contribution",
    "choose_included",
    "clopper_pearson",
    "epsilon_lower",
    "epsilon_lower_bound",
    "exact_posterior_mean",
    "fresh_phase_ratio",
    "known_phase_floor",
    "known_phase_floor_at",
    "known_phase_ratio",
    "least_bayes_error",
    "leave_one_out_scores",
    "linear_posterior_error",
    "linear_posterior_mean",
    "linear_unbiased",
    "linear_unbiased_error",
    "lira_attack",
    "lira_scores",
    "log_likelihood",
    "logit_confidence",
    "loss_scores",
    "loss_threshold_attack",
    "maximum_likelihood",
    "mislabel",
    "onto_ball",
    "opposite_pair",
    "p_value",
    "reconstruction_floor",
    "roc_curve",
    "shared_phase_ratio",
    "sparse_directions",
    "squared_errors",
    "thin",
    "tpr_at_fpr",
    "tpr_bound",
    "unit_directions",
]
