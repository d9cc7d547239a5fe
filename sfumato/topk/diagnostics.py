"""Theory beside measurement for one fit: energies, the one-step criterion and the quality of the ranking.

All of it is measured on held-out rows, is outside of the guarantee and never feeds back into training.

>>> found = Diagnostics(0.4, 0.6, 0.1, noise_energy_dense=1.0, noise_energy_dense_budget=0.5, ranking=None)
>>> found.beneficial, found.beneficial_at_equal_budget
(True, False)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.dpsgd import ParameterLayout, Support
from sfumato.rng import Streams
from sfumato.topk.plan import CalibratedPlan
from sfumato.topk.probe import mean_clipped_gradient
from sfumato.topk.state import State
from sfumato.topk.theory import RankingQuality, noise_energy, ranking_quality
from sfumato.topk.training import Problem

PAIRS = 10_000


@dataclass(frozen=True)
class Diagnostics:
    """What restriction keeps, drops and saves at the end of the warm-up.

    Attributes:
        retained_energy: ||P_A G||^2 / ||G||^2 of the mean clipped gradient G on the probe.
        dropped_energy: ||G||^2 - ||P_A G||^2.
        noise_energy_active: k nu^2 of a second-phase step.
        noise_energy_dense: d nu^2 of a dense step at the same nu, which is the paper's comparison.
        noise_energy_dense_budget: d nu^2 of a dense step that spends the whole budget evenly on all steps, at
            the same batch size and clip norm; that nu is larger or smaller, as the share of the warm-up says.
        ranking: how well the scores ranked the coordinates; None for a random support or a full one.
    """

    retained_energy: float
    dropped_energy: float
    noise_energy_active: float
    noise_energy_dense: float
    noise_energy_dense_budget: float
    ranking: RankingQuality | None

    @property
    def beneficial(self) -> bool:
        """The one-step criterion at equal noise: dropped energy below the noise energy saved."""
        return self.dropped_energy < self.noise_energy_dense - self.noise_energy_active

    @property
    def beneficial_at_equal_budget(self) -> bool:
        """The one-step criterion against a dense step of the whole budget."""
        return self.dropped_energy < self.noise_energy_dense_budget - self.noise_energy_active

    def to_values(self) -> dict[str, float | int | bool | str | None]:
        """The figures by metric name."""
        values: dict[str, float | int | bool | str | None] = {
            "retained_energy": self.retained_energy,
            "dropped_energy": self.dropped_energy,
            "noise_energy_active": self.noise_energy_active,
            "noise_energy_dense": self.noise_energy_dense,
            "noise_energy_dense_budget": self.noise_energy_dense_budget,
            "restriction_beneficial": self.beneficial,
            "restriction_beneficial_at_equal_budget": self.beneficial_at_equal_budget,
        }
        if self.ranking is not None:
            values["misranked"] = self.ranking.misranked
            values["misranked_predicted"] = self.ranking.predicted
            values["top_overlap"] = self.ranking.overlap
            values["top_overlap_by_chance"] = self.ranking.chance_overlap
        return values


def diagnose(
    problem: Problem,
    calibrated: CalibratedPlan,
    warm: State,
    support: Support,
    streams: Streams,
    dense_noise_std: float,
) -> Diagnostics | None:
    """Measure a support on the probe at the end of the warm-up; None without a probe or a warm-up.

    Args:
        problem: module, engine and probe.
        calibrated: the plan.
        warm: the state after the warm-up.
        support: the one that the second phase starts with.
        streams: draws the pairs of the ranking figures.
        dense_noise_std: nu of a dense step of the whole budget, as ``CalibratedPlan.dense_noise_std`` gives.
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
        noise_energy(layout.size, dense_noise_std),
        ranking,
    )
