"""Membership inference by a threshold on the loss: the simplest attack, and the result record of all.

>>> from sfumato.rng import Streams
>>> losses_in, losses_out = np.linspace(0.0, 1.0, 100), np.linspace(0.5, 1.5, 100)
>>> result = loss_threshold_attack(losses_in, losses_out, Streams(0).stream("attack"), delta=1e-5)
>>> round(result.auc, 2), round(result.advantage, 2), result.members
(0.87, 0.5, 100)

The attacker holds the model and examples with their labels, and calls an example a member where its
loss is small (Yeom et al. 2018). It is the weakest of the attacks here: with the same threshold for easy and
hard examples it says little at a low false-positive rate (Carlini et al. 2022), where ``lira.py`` is strong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.attacks.roc import (
    EpsilonBound,
    OperatingPoint,
    RocCurve,
    advantage,
    auc,
    check_scores,
    epsilon_lower_bound,
    roc_curve,
    tpr_at_fpr,
)
from sfumato.rng import RandomStream

FALSE_POSITIVE_RATES = (0.001, 0.01)


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """What a membership attack reached.

    Attributes:
        attack: its name, for example ``loss_threshold``.
        auc: area under the ROC curve, 0.5 for no information.
        advantage: largest true-positive minus false-positive rate.
        points: true-positive rates at fixed false-positive rates, with intervals.
        epsilon: lower bound of epsilon, threshold chosen and judged on different halves. The scores of one
            model's examples are not independent trials, so it is a summary and not the audit's bound.
        curve: the exact ROC curve.
        members: number of member scores.
        nonmembers: number of non-member scores.
    """

    attack: str
    auc: float
    advantage: float
    points: tuple[OperatingPoint, ...]
    epsilon: EpsilonBound
    curve: RocCurve
    members: int
    nonmembers: int

    def as_metrics(self) -> dict[str, float | int]:
        """The figures as metric names and finite numbers; a rate of 0.001 is written ``0_001``."""
        metrics: dict[str, float | int] = {
            "auc": self.auc,
            "advantage": self.advantage,
            "members": self.members,
            "nonmembers": self.nonmembers,
            "epsilon_lower": self.epsilon.epsilon_lower,
            "epsilon_lower_confidence": self.epsilon.confidence,
        }
        for point in self.points:
            name = "tpr_at_fpr_" + f"{point.target_fpr:.10f}".rstrip("0").replace(".", "_")
            metrics[name] = point.tpr
            metrics[name + "_low"] = point.tpr_low
            metrics[name + "_high"] = point.tpr_high
            metrics[name + "_reached_fpr"] = point.fpr
        return metrics


def summarize(
    attack: str,
    member_scores: ArrayLike,
    nonmember_scores: ArrayLike,
    stream: RandomStream,
    *,
    delta: float,
    confidence: float = 0.95,
    fprs: Sequence[float] = FALSE_POSITIVE_RATES,
) -> MembershipResult:
    """Every figure of an attack from its scores (larger = likelier a member).

    Args:
        attack: a name for the result.
        member_scores: vector of at least 2.
        nonmember_scores: vector of at least 2.
        stream: halves the scores for the epsilon bound.
        delta: of the epsilon bound, in [0, 1).
        confidence: of all intervals, in (0, 1).
        fprs: false-positive rates to report at, each in (0, 1).

    Raises:
        SfumatoError: if a score is not finite or a number is out of its range.
    """
    curve = roc_curve(member_scores, nonmember_scores)
    return MembershipResult(
        attack=attack,
        auc=auc(curve),
        advantage=advantage(curve),
        points=tuple(tpr_at_fpr(curve, fpr, confidence) for fpr in fprs),
        epsilon=epsilon_lower_bound(member_scores, nonmember_scores, delta, stream, confidence),
        curve=curve,
        members=curve.members,
        nonmembers=curve.nonmembers,
    )


def loss_threshold_attack(
    member_losses: ArrayLike,
    nonmember_losses: ArrayLike,
    stream: RandomStream,
    *,
    delta: float,
    confidence: float = 0.95,
    fprs: Sequence[float] = FALSE_POSITIVE_RATES,
) -> MembershipResult:
    """Membership by the loss alone: smaller means likelier a member (Yeom et al. 2018).

    Args:
        member_losses: per-example losses (nats) of training examples, shape (members,).
        nonmember_losses: per-example losses of examples that were not trained on, shape (nonmembers,), of the
            same distribution; another distribution is detected in place of membership.
        stream: halves the scores for the epsilon bound.
        delta: of the epsilon bound, in [0, 1).
        confidence: of all intervals, in (0, 1).
        fprs: false-positive rates to report at.

    Raises:
        SfumatoError: if there are fewer than 2 losses of a kind, one is not finite, or a number out of range.
    """
    inside, outside = (
        check_scores("member_losses", member_losses),
        check_scores("nonmember_losses", nonmember_losses),
    )
    return summarize(
        "loss_threshold",
        np.negative(inside),
        np.negative(outside),
        stream,
        delta=delta,
        confidence=confidence,
        fprs=fprs,
    )
