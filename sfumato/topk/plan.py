"""The plan of a private fit: what is decided before any data is seen, and what it costs.

>>> plan = TwoPhasePlan(expected_batch_size=256, warmup_steps=40, train_steps=80)
>>> plan.method, plan.total_steps
('tp_topk', 120)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal

from dp_accounting import DpEvent

from sfumato import accounting, mechanisms
from sfumato.checks import is_integer, is_number
from sfumato.errors import SfumatoError
from sfumato.topk.scores import Score
from sfumato.topk.supports import SupportShape

Method = Literal["tp_topk", "tp_rand", "on_topk", "on_rand", "dense", "non_private"]
METHODS: tuple[Method, ...] = ("tp_topk", "tp_rand", "on_topk", "on_rand", "dense", "non_private")
TWO_PHASE_METHODS = frozenset(METHODS[:4])


@dataclass(frozen=True)
class Phase:
    """One run of equal steps.

    Attributes:
        name: ``warmup``, ``train`` or ``dense``.
        steps: how many.
        clip_norm: C, the bound on every per-example gradient on the active coordinates.
        learning_rate: of this phase.
        noise_multiplier: sigma, the noise standard deviation over C; None before calibration, 0 without privacy.
    """

    name: Literal["warmup", "train", "dense"]
    steps: int
    clip_norm: float
    learning_rate: float
    noise_multiplier: float | None = None


@dataclass(frozen=True)
class TwoPhasePlan:
    """Everything that a fit decides beforehand (Section 2.1 of docs/papers.md).

    Attributes:
        method: ``tp_topk`` (support learned in the warm-up), ``tp_rand`` (random support), ``on_topk`` and
            ``on_rand`` (support re-chosen during training), ``dense`` (all coordinates, one phase, whole
            budget) or ``non_private`` (no clipping, no noise, no guarantee).
        active_ratio: rho, the share of active coordinates in the second phase.
        warmup_budget_share: the warm-up alone, priced by PLD, costs this share of epsilon.
        warmup_steps, train_steps: T1 and T2; a one-phase method takes T1 + T2 steps.
        clip_norm_warmup, clip_norm_train: C1 and C2; a one-phase method uses C2.
        learning_rate_warmup, learning_rate_train: a one-phase method uses the second.
        expected_batch_size: B, the divisor of every step and, over n, the sampling rate.
        optimizer: ``sgd`` with ``momentum``, or ``adam``, on privatised gradients.
        score: ``mean_square`` (the paper's) or ``square_of_mean``.
        support: ``global``, ``per_layer`` or ``rows``.
        reselect_every: steps between two choices of the support in the online methods.
        reselect_memory: weight of the old scores when ``on_topk`` takes a new full-dimensional step.

    Raises:
        SfumatoError: on a value outside of what is allowed.
    """

    active_ratio: float = 0.1
    warmup_budget_share: float = 0.3
    clip_norm_warmup: float = 0.5
    clip_norm_train: float = 0.5
    expected_batch_size: int = 256
    warmup_steps: int = 40
    train_steps: int = 80
    learning_rate_warmup: float = 0.5
    learning_rate_train: float = 1.0
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9
    score: Score = "mean_square"
    support: SupportShape = "global"
    reselect_every: int = 20
    reselect_memory: float = 0.5
    method: Method = "tp_topk"

    def __post_init__(self) -> None:
        """Check every value."""
        choices = {
            "optimizer": ("sgd", "adam"),
            "score": ("mean_square", "square_of_mean"),
            "support": ("global", "per_layer", "rows"),
            "method": METHODS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise SfumatoError(f"{name} is {getattr(self, name)!r}; allowed are {', '.join(allowed)}.")
        for name in ("expected_batch_size", "warmup_steps", "train_steps", "reselect_every"):
            value = getattr(self, name)
            if not is_integer(value) or value < 1:
                raise SfumatoError(f"{name} is {value!r}; allowed is an integer of at least 1.")
        limits = {
            "active_ratio": (0, 1, False, True),
            "warmup_budget_share": (0, 1, False, False),
            "clip_norm_warmup": (0, math.inf, False, False),
            "clip_norm_train": (0, math.inf, False, False),
            "learning_rate_warmup": (0, math.inf, False, False),
            "learning_rate_train": (0, math.inf, False, False),
            "momentum": (0, 1, True, False),
            "reselect_memory": (0, 1, True, False),
        }
        for name, (low, high, low_in, high_in) in limits.items():
            value = getattr(self, name)
            inside = is_number(value) and (
                low < value < high or (low_in and value == low) or (high_in and value == high)
            )
            if not inside:
                brackets = f"{'[' if low_in else '('}{low}, {high}{']' if high_in else ')'}"
                raise SfumatoError(f"{name} is {value!r}; allowed is a number in {brackets}.")

    @property
    def total_steps(self) -> int:
        """T1 + T2."""
        return self.warmup_steps + self.train_steps

    @property
    def two_phases(self) -> bool:
        """Whether a full-dimensional warm-up comes before restricted training."""
        return self.method in TWO_PHASE_METHODS

    def phases(self, *noise_multipliers: float) -> tuple[Phase, ...]:
        """The phases, with noise multipliers where given."""
        sigmas = noise_multipliers or (None, None)
        if self.two_phases:
            return (
                Phase(
                    "warmup", self.warmup_steps, self.clip_norm_warmup, self.learning_rate_warmup, sigmas[0]
                ),
                Phase("train", self.train_steps, self.clip_norm_train, self.learning_rate_train, sigmas[1]),
            )
        return (Phase("dense", self.total_steps, self.clip_norm_train, self.learning_rate_train, sigmas[0]),)

    def calibrate(self, epsilon: float | None, delta: float, n: int) -> CalibratedPlan:
        """The plan with the noise that makes it (epsilon, delta)-differentially private.

        Guarantee:
            Add or remove one example, Poisson sampling at rate B / n, composed over all recorded steps and
            priced by PLD. n is a declared public size, never the length of a private data set.

        Args:
            epsilon: the whole budget; None only for ``non_private``.
            delta: below 1 / n.
            n: the declared public size of the training set.

        Raises:
            SfumatoError: on values that no calibration can meet.
        """
        if not is_integer(n) or n < self.expected_batch_size:
            raise SfumatoError(
                f"n is {n!r}; allowed is an integer of at least expected_batch_size ({self.expected_batch_size})."
            )
        if not is_number(delta) or not 0 < delta < 1 / n:
            raise SfumatoError(
                f"delta is {delta!r}; allowed is a number above 0 and below 1 / n ({1 / n:.3g})."
            )
        if self.method == "non_private":
            return CalibratedPlan(self, None, delta, n, (0.0,))
        if not is_number(epsilon) or epsilon is None:
            raise SfumatoError(f"epsilon is {epsilon!r}; allowed for {self.method} is a positive number.")
        rate = self.expected_batch_size / n
        if self.two_phases:
            sigmas = accounting.calibrate_two_phases(
                rate, self.warmup_steps, self.train_steps, epsilon, delta, self.warmup_budget_share
            )
        else:
            steps = self.total_steps
            sigmas = (
                accounting.calibrate(
                    lambda sigma: [mechanisms.subsampled_gaussian(rate, sigma, steps)], epsilon, delta
                ),
            )
        return CalibratedPlan(self, epsilon, delta, n, tuple(sigmas))


@dataclass(frozen=True)
class CalibratedPlan:
    """A plan and the noise multipliers that meet its budget.

    Attributes:
        plan: what was calibrated.
        epsilon: the target; None without privacy.
        delta: of the target.
        n: declared public size.
        noise_multipliers: sigma of each phase.
    """

    plan: TwoPhasePlan
    epsilon: float | None
    delta: float
    n: int
    noise_multipliers: tuple[float, ...]

    @property
    def sampling_rate(self) -> float:
        """Q = B / n, from public numbers."""
        return self.plan.expected_batch_size / self.n

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases with their noise."""
        return self.plan.phases(*self.noise_multipliers)

    @property
    def events(self) -> list[DpEvent]:
        """The intended events; accounting prices the recorded ones."""
        return [
            mechanisms.subsampled_gaussian(
                self.sampling_rate, float(phase.noise_multiplier or 0.0), phase.steps
            )
            for phase in self.phases
        ]

    def noise_std(self, phase: Phase) -> float:
        """Nu = sigma C / B, the noise per coordinate of a mean gradient."""
        return float(phase.noise_multiplier or 0.0) * phase.clip_norm / self.plan.expected_batch_size

    def dense_noise_std(self) -> float:
        """Nu of a dense step that has this plan's whole budget, steps, batch size and clip norm C2.

        Raises:
            SfumatoError: if the plan is ``non_private``, which has no noise to compare with.
        """
        if self.plan.method == "non_private":
            raise SfumatoError("method is 'non_private'; allowed is a private one, which has noise.")
        dense = replace(self.plan, method="dense").calibrate(self.epsilon, self.delta, self.n)
        return dense.noise_std(dense.phases[0])

    def __str__(self) -> str:
        """A few lines for people."""
        budget = "not private" if self.epsilon is None else f"epsilon={self.epsilon:g}, delta={self.delta:g}"
        lines = [
            f"{self.plan.method}: {budget}, n={self.n} (declared), add or remove one example",
            f"  Poisson sampling at rate {self.sampling_rate:.5g} (B={self.plan.expected_batch_size})",
        ]
        for phase in self.phases:
            lines.append(
                f"  {phase.name}: {phase.steps} steps, clip norm {phase.clip_norm:g}, "
                f"noise multiplier {phase.noise_multiplier:.5g}, learning rate {phase.learning_rate:g}"
            )
        rest = [f for f in fields(self.plan) if f.name in ("active_ratio", "score", "support")]
        if self.plan.two_phases:
            lines.append("  " + ", ".join(f"{f.name}={getattr(self.plan, f.name)}" for f in rest))
        return "\n".join(lines)
