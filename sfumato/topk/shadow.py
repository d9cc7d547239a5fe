"""Shadow fits for LiRA: the target's own plan, with a random half of the attacked rows left out.

>>> from sfumato.rng import Streams
>>> rows = [shadow_members(4, 10, model, Streams(0)) for model in range(4)]
>>> sum(rows).tolist()
[2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.attacks.lira import balanced_memberships, logit_confidence
from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from sfumato.topk.evaluation import logits_of
from sfumato.topk.models import initialize
from sfumato.topk.plan import CalibratedPlan
from sfumato.topk.training import Observer, Problem, begin, run


def shadow_members(models: int, examples: int, model: int, streams: Streams) -> NDArray[np.int64]:
    """int64[examples] of 0 and 1: the attacked rows that shadow model ``model`` trains on; each is in half of them.

    Raises:
        SfumatoError: if there is no such model.
    """
    if not 0 <= model < models:
        raise SfumatoError(f"shadow model is {model}; allowed is 0 to {models - 1}.")
    return balanced_memberships(models, examples, streams.stream("membership"))[model].astype(np.int64)


def shadow_confidences(
    problem: Problem,
    calibrated: CalibratedPlan,
    members: NDArray[np.int64],
    streams: Streams,
    observer: Observer | None = None,
) -> NDArray[np.float64]:
    """float64[examples]: logit-scaled confidences of one shadow model on the attacked rows.

    The attacked rows are the first ``examples`` training rows. A shadow model trains on its half of them and
    on all other rows, with the target's declared n, batch size and noise: it is one more run of the very
    mechanism under attack.

    Args:
        problem: module and all training rows.
        calibrated: the target's plan.
        members: from ``shadow_members``.
        streams: of this shadow model.
        observer: called after each step.

    Raises:
        SfumatoError: if there are fewer training rows than attacked ones.
    """
    count, rows = len(members), len(problem.inputs)
    if count > rows:
        raise SfumatoError(f"examples is {count}; allowed is at most the number of training rows ({rows}).")
    initialize(problem.module, streams.stream("init"))
    kept = torch.from_numpy(np.concatenate([np.flatnonzero(members), np.arange(count, rows)]))
    shadow = replace(problem, inputs=problem.inputs[kept], targets=problem.targets[kept], probe=None)
    run(shadow, calibrated, streams, begin(shadow, calibrated), observer=observer)
    attacked = slice(0, count)
    logits = logits_of(problem.module, problem.inputs[attacked])
    return logit_confidence(logits.double().numpy(), problem.targets[attacked].numpy())
