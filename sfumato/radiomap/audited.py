"""The strongest test between two updates: an audit of a defence itself, over one upload or several rounds.

>>> import numpy as np
>>> from sfumato.radiomap.defences import uniform
>>> from sfumato.radiomap.partition import partition_of
>>> from sfumato.rng import Streams
>>> defence = uniform(partition_of(4, {"transmitter": np.array([1])}), nu=4.0, clip_norm=1.0)
>>> found = audit_defence(defence, runs=2000, delta=1e-5, stream=Streams(0).stream("attack"))
>>> 0.0 < found.bound.epsilon_lower < found.epsilon, round(found.epsilon, 3)
(True, 4.377)

The two updates are kept by clipping and as far apart as the promise allows, and the log-likelihood ratio of what is
sent is the best score there is (Neyman and Pearson), so no other pair could show more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sfumato.attacks.distinguishing import audit_ceiling, audit_local_mechanism
from sfumato.attacks.roc import EpsilonBound
from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.radiomap.allocation import FloatArray
from sfumato.radiomap.defences import GuaranteedDefence
from sfumato.radiomap.pricing import price
from sfumato.rng import RandomStream


@dataclass(frozen=True)
class DefenceAudit:
    """A measured lower bound of epsilon beside the claim.

    Attributes:
        bound: the lower bound, with its rates and confidence.
        epsilon: what the promise claims at the same delta.
        ceiling: the bound if no run had been mistaken; under the claim where the claim is large, and then no audit of
            so many runs could come near it.
        mu: of the claim.
        rounds: uploads per run.
        runs: per update.
    """

    bound: EpsilonBound
    epsilon: float
    ceiling: float
    mu: float
    rounds: int
    runs: int

    @property
    def holds(self) -> bool:
        """Whether the measured bound does not contradict the claim."""
        return self.bound.epsilon_lower <= self.epsilon


def audit_defence(
    defence: GuaranteedDefence,
    *,
    runs: int,
    delta: float,
    stream: RandomStream,
    rounds: int = 1,
    confidence: float = 0.95,
    actual: GuaranteedDefence | None = None,
) -> DefenceAudit:
    """Protect the two farthest updates ``runs`` times each and bound epsilon from below.

    With several rounds a client sends one upload in each, the defence observes it, and the pair of the next round is
    the farthest at the noise that follows: the adaptive composition itself.

    Guarantee:
        The true epsilon at ``delta`` for replacing all ``rounds`` uploads is at least ``bound.epsilon_lower`` with
        probability ``confidence``.

    Args:
        defence: what is claimed, and audited.
        runs: per update, at least 4; half of them choose the threshold. Each costs ``rounds`` protections.
        delta: in (0, 1).
        stream: of the noise and of the halves.
        rounds: uploads per run, at least 1.
        confidence: of the lower bound.
        actual: the defence that really runs, where it is not the claimed one.

    Raises:
        SfumatoError: if the defence promises nothing or a number is out of its range.
    """
    if not is_integer(rounds) or rounds < 1:
        raise SfumatoError(f"rounds is {rounds!r}; allowed is an integer of at least 1.")
    claim = price(defence, rounds, delta)
    bound = audit_local_mechanism(
        _sampler(defence if actual is None else actual, rounds),
        np.array([-1.0]),
        np.array([1.0]),
        lambda scores: scores,
        runs=runs,
        delta=delta,
        stream=stream,
        confidence=confidence,
    )
    ceiling = audit_ceiling(runs, delta, confidence)
    return DefenceAudit(bound, claim.epsilon, ceiling, claim.mu, rounds, runs)


def _sampler(
    defence: GuaranteedDefence, rounds: int
) -> Callable[[FloatArray, int, RandomStream], FloatArray]:
    """Runs of the defence on ``sign`` times its farthest update, each as the log-likelihood ratio of all it sent."""

    def sample(sign: FloatArray, count: int, stream: RandomStream) -> FloatArray:
        scores = np.zeros(count)
        for run in range(count):
            state = defence
            for number in range(rounds):
                update = state.farthest()
                sent = state.protect(float(sign[0]) * update, number, stream).upload
                # log p(sent | update) - log p(sent | -update) of Gaussians of one covariance.
                scores[run] += 2.0 * float(sent @ state.precise(update))
                state = state.observe([sent]) if number + 1 < rounds else state
        return scores

    return sample
