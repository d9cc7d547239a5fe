"""Theory beside measurement for one fit: energies, the one-step criterion and the quality of the ranking.

All of it is measured on held-out rows, is outside of the guarantee and never feeds back into training.

>>> Diagnostics(0.4, 0.6, 0.1, 1.0, True, None).to_values()["retained_energy"]
0.4
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.dpsgd import ParameterLayout, Support
from sfumato.rng import Streams
from sfumato.topk.plan import CalibratedPlan
from sfumato.topk.probe import mean_clipped_gradient
from sfumato.topk.state import State
from sfumato.topk.theory import RankingQuality, noise_energy, ranking_quality, restriction_benefit
from sfumato.topk.training import Problem

PAIRS = 10_000


@dataclass(frozen=True)
class Diagnostics:
    """What restriction keeps, drops and saves at the end of the warm-up.

    Attributes:
        retained_energy: ||P_A G||^2 / ||G||^2 of the mean clipped gradient G on the probe.
        dropped_energy: ||G||^2 - ||P_A G||^2.
        noise_energy_active: k nu^2 of a second-phase step.
        noise_energy_dense: d nu^2 of a dense step at the same nu.
        beneficial: the one-step criterion, dropped energy below the noise energy saved.
        ranking: how well the scores ranked the coordinates; None for a random support or a full one.
    """

    retained_energy: float
    dropped_energy: float
    noise_energy_active: float
    noise_energy_dense: float
    beneficial: bool
    ranking: RankingQuality | None

    def to_values(self) -> dict[str, float | int | bool | str | None]:
        """The figures by metric name."""
        values: dict[str, float | int | bool | str | None] = {
            "retained_energy": self.retained_energy,
            "dropped_energy": self.dropped_energy,
            "noise_energy_active": self.noise_energy_active,
            "noise_energy_dense": self.noise_energy_dense,
            "restriction_beneficial": self.beneficial,
        }
        if self.ranking is not None:
            values["misranked"] = self.ranking.misranked
            values["misranked_predicted"] = self.ranking.predicted
            values["top_overlap"] = self.ranking.overlap
            values["top_overlap_by_chance"] = self.ranking.chance_overlap
        return values


def diagnose(
    problem: Problem, calibrated: CalibratedPlan, warm: State, support: Support, streams: Streams
) -> Diagnostics | None:
    """Measure a support on the probe at the end of the warm-up; None without a probe or a warm-up.

    Args:
        problem: module, engine and probe.
        calibrated: the plan.
        warm: the state after the warm-up.
        support: the one that the second phase starts with.
        streams: draws the pairs of the ranking figures.
    """
    plan = calibrated.plan
    probe = problem.probe
    if probe is None or not plan.two_phases:
        return None
    layout = ParameterLayout.of(problem.module)
    layout.load(problem.module, warm.parameters)
    warmup, train = calibrated.phases
    gradients = {
        clip_norm: mean_clipped_gradient(
            problem.module, problem.loss, problem.engine, probe, layout, clip_norm
        )
        for clip_norm in {train.clip_norm, warmup.clip_norm}
    }
    gradient = gradients[train.clip_norm].double().numpy()
    total = float((gradient**2).sum())
    kept = float((gradient[support.indices.numpy()] ** 2).sum())
    noise = calibrated.noise_std(train)
    benefit = restriction_benefit(total - kept, layout.size, support.k, noise)
    ranking = None
    if plan.method in ("tp_topk", "on_topk") and 0 < support.k < layout.size:
        stream = streams.stream("diagnostics")
        pairs = np.stack(
            [stream.integers(0, support.k, PAIRS), stream.integers(0, layout.size - support.k, PAIRS)], axis=1
        )
        scores = warm.scores.mean_square().numpy()
        ranked = gradients[warmup.clip_norm].double().numpy()  # the scores saw gradients clipped to this norm
        ranking = ranking_quality(
            scores, ranked, support.indices.numpy(), calibrated.noise_std(warmup), plan.warmup_steps, pairs
        )
    return Diagnostics(
        kept / total if total > 0 else 0.0,
        total - kept,
        noise_energy(support.k, noise),
        noise_energy(layout.size, noise),
        benefit.beneficial,
        ranking,
    )
