"""Who wants to know the divergence: it announces one estimate, and is given a noisy value or noisy counts.

>>> import os
>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import all_points
>>> reference = Reference.from_probabilities([0.5, 0.3, 0.2])
>>> plan = EstimatorPlan(Floor("mix", 0.1))
>>> server = PopulationServer(reference, all_points(reference), plan, 1.0, 1e-5, os.urandom)
>>> Announcement.decode(server.announcement()).trust
'trusted_aggregator'
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from sfumato.divergence.aggregators import Entropy
from sfumato.divergence.agreement import estimate_from_value, points_of, reference_digest
from sfumato.divergence.distributed import (
    DistributedEstimate,
    count_noise,
    counted_shares,
    estimate,
    require_readable,
)
from sfumato.divergence.estimator import Estimate
from sfumato.divergence.intervals import Tail
from sfumato.divergence.messages import (
    Announcement,
    NoisyCounts,
    Result,
    Trust,
)
from sfumato.divergence.plan import EstimatorPlan, require_choice
from sfumato.divergence.reference import PublicPoints, Reference
from sfumato.divergence.wire import SESSION_BYTES
from sfumato.errors import SfumatoError


class PopulationServer:
    """Who wants to know the divergence; it is never given anything that is not private already.

    Args:
        reference: Pi, public.
        points: drawn by the server, public.
        plan: floor and lambda, chosen from public numbers.
        epsilon: of the one release.
        delta: likewise.
        entropy: a source of fresh bytes for the session's name, such as ``os.urandom``.
        trust: who adds the noise.
        confidence: of the interval.
        corrupted_share: how large a share of the clients may collude with who runs the aggregation.
        tail: of the interval's mean over drawn points, as in ``sfumato.divergence.estimator.release``; by default
            ``normal`` with a trusted aggregator and ``guaranteed`` where clients add the noise. Nobody else is told.

    Raises:
        SfumatoError: if a value is outside of what is allowed, the plan has no floor, or no estimate could be made of what
            would be released.
    """

    def __init__(
        self,
        reference: Reference,
        points: PublicPoints,
        plan: EstimatorPlan,
        epsilon: float,
        delta: float,
        entropy: Entropy,
        trust: Trust = "trusted_aggregator",
        confidence: float = 0.95,
        corrupted_share: float = 0.1,
        tail: Tail | None = None,
    ) -> None:
        """A server before its announcement."""
        floor = plan.required_floor
        self._tail: Tail = tail or ("normal" if trust == "trusted_aggregator" else "guaranteed")
        require_choice("tail", self._tail, get_args(Tail))
        times = np.rint(points.weights * points.draws).astype(np.int64)
        self._announced = Announcement(
            session=entropy(SESSION_BYTES),
            trust=trust,
            digest=reference_digest(reference),
            cells=points.cells,
            multiplicities=times,
            floor=floor.kind,
            level=floor.level,
            ceiling=floor.ceiling,
            coefficient=plan.coefficient,
            epsilon=epsilon,
            delta=delta,
            confidence=confidence,
            corrupted_share=corrupted_share,
        )
        self._reference, self._points, self._plan = reference, points_of(self._announced, reference), plan
        if not np.allclose(self._points.weights, points.weights, rtol=1e-12, atol=0.0):
            raise SfumatoError(
                "the points' weights are no shares of draws; allowed are drawn points, or all cells by their probability."
            )
        if trust == "distributed":
            require_readable(self._points.count, count_noise(epsilon, delta, 1))
        self._finished = False

    def announcement(self) -> bytes:
        """What all parties are sent first."""
        return self._announced.encode()

    def receive(self, message: bytes) -> Estimate | DistributedEstimate:
        """The estimate that the aggregation's one message to the server makes.

        Guarantee: post-processing of the noisy value or the noisy counts, and of public numbers.

        Raises:
            SfumatoError: if it is no such message, of another session, or the second one.
        """
        announced = self._announced
        trusted = announced.trust == "trusted_aggregator"
        read = Result.decode(message) if trusted else NoisyCounts.decode(message)
        if read.session != announced.session:
            raise SfumatoError("a result is of another session; allowed is the present one.")
        if self._finished:
            raise SfumatoError("a second result came; allowed is one, since each release spends the budget.")
        made = self._from_value(read) if isinstance(read, Result) else self._from_counts(read)
        self._finished = True
        return made

    def _from_value(self, read: Result) -> Estimate:
        return estimate_from_value(
            read.value,
            read.examples,
            self._points,
            self._reference,
            self._plan,
            self._announced.epsilon,
            self._announced.delta,
            self._announced.confidence,
            read.discrete,
            self._tail,
        )

    def _from_counts(self, read: NoisyCounts) -> DistributedEstimate:
        announced = self._announced
        shares = counted_shares(read.clients, read.required, announced.corrupted_share)
        noise = count_noise(announced.epsilon, announced.delta, shares)
        return estimate(
            read.counts,
            read.examples,
            read.survivors,
            noise,
            self._points,
            self._reference,
            self._plan,
            announced.delta,
            announced.confidence,
            self._tail,
        )
