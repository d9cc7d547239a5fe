"""A labelled fit with canaries, and the lower bound of epsilon that its releases give.

The audited model is a separate fit: its canaries are planted, so it is never the one that is published.

>>> AuditSetting(canaries=1000, guesses=200, confidence=0.95).guess_fraction
0.2
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.attacks.audit import AuditResult, audit_one_run
from sfumato.attacks.canaries import (
    CanaryScores,
    Directions,
    block_directions,
    canary_contribution,
    choose_included,
    loss_scores,
    mislabel,
)
from sfumato.dpsgd import ParameterLayout, Support
from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.plan import CalibratedPlan
from sfumato.topk.supports import support_size
from sfumato.topk.training import Observer, Problem, Release, begin, run


@dataclass(frozen=True)
class AuditSetting:
    """What an audit fixes before it sees a score.

    Attributes:
        canaries: how many per space; each is in with probability one half.
        guesses: the most confident guesses, half of them "in" and half "out".
        confidence: of each lower bound.
    """

    canaries: int
    guesses: int
    confidence: float

    def __post_init__(self) -> None:
        """Refuse more guesses than canaries."""
        if not 2 <= self.guesses <= self.canaries:
            raise SfumatoError(
                f"guesses is {self.guesses}; allowed is 2 to the number of canaries ({self.canaries})."
            )

    @property
    def guess_fraction(self) -> float:
        """The share of canaries that a guess is made on."""
        return self.guesses / self.canaries


@dataclass(frozen=True)
class AuditOutcome:
    """Two lower bounds of epsilon from one run.

    Attributes:
        gradient_space: canaries whose clipped gradient is a unit vector on the support (white box).
        input_space: mislabelled held-out images, scored by their drop in loss (black box).
    """

    gradient_space: AuditResult
    input_space: AuditResult


@dataclass(frozen=True)
class _Segment:
    """Steps with one support, clip norm and noise multiplier."""

    support: Support
    clip_norm: float
    noise_multiplier: float
    directions: Directions
    scores: CanaryScores

    def fits(self, support: Support, clip_norm: float, noise_multiplier: float) -> bool:
        same = (clip_norm, noise_multiplier) == (self.clip_norm, self.noise_multiplier)
        return same and support == self.support


class GradientCanaries:
    """Canaries that plant clip_norm x unit direction into the clipped sums; implements ``training.Canaries``.

    Guarantee:
        Each canary is one example: its gradient has norm C on the support and it is Poisson-sampled like
        every other, so the mechanism under audit is the one that the plan claims.
    """

    def __init__(self, canaries: int, calibrated: CalibratedPlan, streams: Streams) -> None:
        """Toss the inclusion coins.

        Args:
            canaries: how many.
            calibrated: the audited plan.
            streams: the audit's own randomness.
        """
        self.included: NDArray[np.bool_] = choose_included(canaries, streams.stream("audit", "included"))
        self._calibrated = calibrated
        self._streams = streams
        self._settled = np.zeros(canaries)
        self._current: _Segment | None = None

    @property
    def scores(self) -> NDArray[np.float64]:
        """float64[canaries]: sums of log-likelihood ratios over all releases; larger is likelier in."""
        return self._settled + (self._current.scores.values if self._current else 0.0)

    def contribute(self, step: int, support: Support, clip_norm: float) -> Tensor:
        """Tensor[k]: C times the directions of the canaries that are in and sampled at this step."""
        segment = self._segment(step, support, clip_norm)
        coins = self._streams.stream("audit", "sampling", step).random(len(self.included))
        selected = self.included & (coins < self._calibrated.sampling_rate)
        return torch.from_numpy(canary_contribution(segment.directions, selected, clip_norm)).float()

    def observe(self, release: Release) -> None:
        """Add this release's log-likelihood ratios.

        Raises:
            SfumatoError: if nothing was contributed before.
        """
        if self._current is None:
            raise SfumatoError("a release was observed before a contribution; allowed is the other order.")
        self._current.scores.observe(release.gradient.numpy(), release.others.numpy())

    def _segment(self, step: int, support: Support, clip_norm: float) -> _Segment:
        """Directions and scores for this support, clip norm and noise; new ones where any of them changed."""
        sigma = self._sigma(step)
        if self._current is not None:
            if self._current.fits(support, clip_norm, sigma):
                return self._current
            self._settled = self._settled + self._current.scores.values
        stream = self._streams.stream("audit", "directions", step)
        directions = block_directions(len(self.included), support.k, stream)
        scores = CanaryScores(
            directions,
            rule="likelihood_ratio",
            clip_norm=clip_norm,
            expected_batch_size=self._calibrated.plan.expected_batch_size,
            sampling_rate=self._calibrated.sampling_rate,
            noise_multiplier=sigma,
        )
        self._current = _Segment(support, clip_norm, sigma, directions, scores)
        return self._current

    def _sigma(self, step: int) -> float:
        phases = self._calibrated.phases
        return float((phases[0] if step < phases[0].steps else phases[-1]).noise_multiplier or 0.0)


def audit(
    problem: Problem,
    held_out: tuple[Tensor, Tensor],
    classes: int,
    calibrated: CalibratedPlan,
    setting: AuditSetting,
    streams: Streams,
    observer: Observer | None = None,
) -> AuditOutcome:
    """Fit once with canaries in both spaces and bound epsilon from below.

    Args:
        problem: module and training rows; canaries are added to a copy of the rows.
        held_out: inputs and targets of rows that are not trained on, at least ``canaries`` of them.
        classes: number of classes.
        calibrated: the plan under audit.
        setting: what is fixed beforehand.
        streams: the audit's randomness.
        observer: called after each step.

    Returns:
        Both bounds; each holds with the setting's confidence, taken by itself.

    Raises:
        SfumatoError: if there are too few held-out rows or coordinates, or the plan is not private.
    """
    inputs, targets = held_out
    check_auditable(problem, calibrated, setting)
    if len(inputs) < setting.canaries:
        raise SfumatoError(
            f"canaries is {setting.canaries}; allowed is up to {len(inputs)}, the held-out rows."
        )
    rows = torch.from_numpy(
        streams.stream("audit", "rows").permutation(len(inputs))[: setting.canaries].copy()
    )
    _, wrong = mislabel(rows.numpy(), targets[rows].numpy(), classes, streams.stream("audit", "labels"))
    wrong_labels = torch.from_numpy(wrong)
    inside = choose_included(setting.canaries, streams.stream("audit", "included", "input"))
    kept = torch.from_numpy(inside)
    gradient_canaries = GradientCanaries(setting.canaries, calibrated, streams)
    audited = replace(
        problem,
        inputs=torch.cat([problem.inputs, inputs[rows][kept]]),
        targets=torch.cat([problem.targets, wrong_labels[kept]]),
        canaries=gradient_canaries,
        probe=None,
    )
    start = begin(audited, calibrated)
    before = _losses(audited, inputs[rows], wrong_labels)
    run(audited, calibrated, streams, start, observer=observer)
    after = _losses(audited, inputs[rows], wrong_labels)
    return AuditOutcome(
        _bound(gradient_canaries.scores, gradient_canaries.included, calibrated.delta, setting),
        _bound(loss_scores(after, before), inside, calibrated.delta, setting),
    )


def check_auditable(problem: Problem, calibrated: CalibratedPlan, setting: AuditSetting) -> None:
    """Refuse, before a step is taken, an audit that could say nothing.

    Raises:
        SfumatoError: if the plan is not private, or its support has no coordinate for every canary.
    """
    plan = calibrated.plan
    if plan.method == "non_private":
        raise SfumatoError(
            "method is 'non_private'; allowed for an audit is a method that claims an epsilon."
        )
    dimension = ParameterLayout.of(problem.module).size
    active = support_size(plan.active_ratio, dimension) if plan.two_phases else dimension
    if setting.canaries > active:
        raise SfumatoError(
            f"canaries is {setting.canaries}; allowed is up to {active}, the active coordinates, since each "
            "canary in gradient space takes coordinates of its own."
        )


def _losses(problem: Problem, inputs: Tensor, targets: Tensor) -> NDArray[np.float64]:
    with torch.no_grad():
        return problem.loss(problem.module(inputs), targets).double().numpy()


def _bound(
    scores: NDArray[np.float64], included: NDArray[np.bool_], delta: float, setting: AuditSetting
) -> AuditResult:
    return audit_one_run(
        scores, included, delta=delta, confidence=setting.confidence, guess_fractions=setting.guess_fraction
    )
