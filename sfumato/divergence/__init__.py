"""Private divergence of a population from a public reference, for drift (Section 4 of docs/papers.md).

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> reference = Reference.from_probabilities([0.4, 0.3, 0.2, 0.1])
>>> points = draw_points(reference, 10, Streams(0).stream("points"))
>>> counts = count_points(np.array([0, 1, 2, 3] * 2500), reference, points)
>>> plan = EstimatorPlan(Floor("mix", 0.1), coefficient=0.5)
>>> found = release(counts, 10_000, points, reference, plan, epsilon=1.0, delta=1e-5, stream=Streams(0).stream("noise"))
>>> found.low <= found.clipped <= found.high
True

`reference` draws the public points, `counting` counts at them, `sensitivity` says exactly how far one example can move
the estimate, `estimator` releases it with an interval (`intervals`). `theory` says how well, `coefficient` chooses lambda
from public numbers, `baselines` are what it is compared with, `audited` attacks it.
"""

from sfumato.divergence.audited import ReleaseAudit, audit_release
from sfumato.divergence.baselines import NoisyCountsEstimate, central_histogram, local_release, noise_bias
from sfumato.divergence.coefficient import CoefficientChoice, choose_coefficient, uniform_prior
from sfumato.divergence.counting import cell_counts, code_counts, count_points, population_probabilities
from sfumato.divergence.estimator import Batch, Estimate, release, release_batches
from sfumato.divergence.evaluation import describe_target, evaluate, exact_divergence, target_divergence
from sfumato.divergence.plan import EstimatorPlan, Floor, floored_ratio, phi
from sfumato.divergence.reference import PublicPoints, Reference, all_points, draw_points
from sfumato.divergence.sensitivity import Sensitivity, closed_bound, second_moment_sensitivity
from sfumato.divergence.theory import RatioMoments, batch_bias, floor_bias, mean_square_error

__all__ = [
    "Batch",
    "CoefficientChoice",
    "Estimate",
    "EstimatorPlan",
    "Floor",
    "NoisyCountsEstimate",
    "PublicPoints",
    "RatioMoments",
    "Reference",
    "ReleaseAudit",
    "Sensitivity",
    "all_points",
    "audit_release",
    "batch_bias",
    "cell_counts",
    "central_histogram",
    "choose_coefficient",
    "closed_bound",
    "code_counts",
    "count_points",
    "describe_target",
    "draw_points",
    "evaluate",
    "exact_divergence",
    "floor_bias",
    "floored_ratio",
    "local_release",
    "mean_square_error",
    "noise_bias",
    "phi",
    "population_probabilities",
    "release",
    "release_batches",
    "second_moment_sensitivity",
    "target_divergence",
    "uniform_prior",
]
