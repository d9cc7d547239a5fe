"""The attacker without a prior: the sample under which a client's messages are likeliest.

>>> model = MessageModel(unit_directions(features=2, count=1, rounds=3), scale=1.0, amplitude=4.0, sigma=0.5)
>>> received = np.array([[[4.1, 0.1], [-3.9, 0.3], [3.8, 0.2]]])
>>> fit = maximum_likelihood(received, model)
>>> fit.estimates.round(3).tolist(), fit.converged.tolist()
([[0.126, 0.2]], [True])

In units of sigma a message is z_t = y + r sum_k cos(U_tk) v_tk + N(0, I), y = s x / sigma. A Newton step that does not
raise the likelihood is replaced by a step of expectation maximisation over the unknown phases,
y <- mean_t (z_t - r sum_k E[cos U_tk | z_t, y] v_tk), which always does. The density along a direction has two peaks
where a is large against sigma, so the likelihood can have several. If the messages vary enough to make it concave
there is one; otherwise the climb is repeated from places where a single message is likeliest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.message_model import MessageModel, log_likelihood, unit_directions
from sfumato.attacks.phase_noise import noise_moments, noise_shape
from sfumato.attacks.roc import FloatArray

__all__ = ["LikelihoodFit", "MessageModel", "maximum_likelihood", "unit_directions"]

_STEPS: Final = 300
_TOLERANCE: Final = 1e-12
_STARTS: Final = 3
_CAP: Final = 0.95


@dataclass(frozen=True, eq=False)
class LikelihoodFit:
    """Where the likelihood of each client's messages is largest.

    Attributes:
        estimates: float64 (K, n).
        log_likelihoods: float64 (K,), at the estimates.
        converged: bool (K,), whether a further Newton step would gain less than 1e-12.
        concave: whether the log-likelihood is known to be concave, so that every converged estimate is the maximum.
            If not, an estimate is the best of several local maxima, and can be one of several equals: with one message
            and a large amplitude there are two along each direction, and the message cannot tell which.
    """

    estimates: FloatArray
    log_likelihoods: FloatArray
    converged: NDArray[np.bool_]
    concave: bool


@dataclass(frozen=True, eq=False)
class _Problem:
    """Clients' messages in units of sigma: their mean (K, n), their projections (K, L) to the columns (n, L)."""

    mean: FloatArray
    projections: FloatArray
    columns: FloatArray
    rounds: int
    ratio: float
    concave: bool

    def of(self, clients: NDArray[np.int64]) -> _Problem:
        """The problem of some of the clients."""
        return replace(self, mean=self.mean[clients], projections=self.projections[clients])


@dataclass(frozen=True, eq=False)
class _Points:
    """One point y per client, and the log-likelihood there, up to a constant of the client.

    Attributes:
        place: y, (K, n).
        height: (K,).
        gradient: (K, n).
        spread: Var[z | u] of each message and direction, (K, L); the Hessian is sum spread v v^T - T I.
        converged: (K,).
    """

    place: FloatArray
    height: FloatArray
    gradient: FloatArray
    spread: FloatArray
    converged: NDArray[np.bool_]

    def put(self, clients: NDArray[np.int64], other: _Points) -> None:
        """Overwrite the points of some of the clients."""
        for own, new in zip(
            (self.place, self.height, self.gradient, self.spread, self.converged),
            (other.place, other.height, other.gradient, other.spread, other.converged),
            strict=True,
        ):
            own[clients] = new

    def of(self, clients: NDArray[np.int64]) -> _Points:
        """The points of some of the clients."""
        return _Points(
            self.place[clients],
            self.height[clients],
            self.gradient[clients],
            self.spread[clients],
            self.converged[clients],
        )


def _at(problem: _Problem, place: FloatArray) -> _Points:
    offset = place - problem.mean
    rest = problem.projections - place @ problem.columns
    moments = noise_moments(rest, problem.ratio, 1.0)
    # Gaussian in all directions, put right along the modulated ones.
    height = (moments.log_density + 0.5 * rest**2).sum(axis=1) - 0.5 * problem.rounds * (offset**2).sum(
        axis=1
    )
    gradient = -problem.rounds * offset - (rest + moments.score) @ problem.columns.T
    return _Points(place, height, gradient, moments.curvature + 1.0, np.zeros(len(place), np.bool_))


def _newton_steps(problem: _Problem, points: _Points) -> FloatArray:
    hessian = _negative_hessian(problem, points.spread)
    if not problem.concave:
        # Where the likelihood is not concave, a step with the spread capped below 1 still leads upwards.
        bent = np.flatnonzero(np.linalg.eigvalsh(hessian)[:, 0] < 1.0 - _CAP)
        hessian[bent] = _negative_hessian(problem, np.minimum(points.spread[bent], _CAP))
    return np.asarray(np.linalg.solve(hessian, points.gradient[:, :, None])[:, :, 0], dtype=np.float64)


def _negative_hessian(problem: _Problem, spread: FloatArray) -> FloatArray:
    columns = problem.columns
    return problem.rounds * np.eye(len(columns)) - (spread[:, None, :] * columns) @ columns.T


def _climb(problem: _Problem, start: FloatArray) -> _Points:
    """Local maxima, from one start per client."""
    points = _at(problem, start.copy())
    active = np.arange(len(start))
    for _ in range(_STEPS):
        here, part = points.of(active), problem.of(active)
        steps = _newton_steps(part, here)
        done = (steps * here.gradient).sum(axis=1) < _TOLERANCE
        points.converged[active[done]] = True
        if done.all():
            break
        active, steps, part, here = (
            active[~done],
            steps[~done],
            problem.of(active[~done]),
            here.of(np.flatnonzero(~done)),
        )
        ahead = _at(part, here.place + steps)
        lower = np.flatnonzero(~(ahead.height > here.height))
        if lower.size:
            # The Hessian is nowhere below -T: a step of gradient / T, which is expectation maximisation, cannot lose.
            ahead.put(lower, _at(part.of(lower), (here.place + here.gradient / problem.rounds)[lower]))
        points.put(active, ahead)
    return points


def _keep_higher(best: _Points, other: _Points) -> None:
    higher = np.flatnonzero(other.height > best.height)
    best.put(higher, other.of(higher))


def _message_terms(rest: FloatArray, ratio: float) -> FloatArray:
    """What a message adds to the height through one direction: log f(u) and the Gaussian's square, put back."""
    return noise_moments(rest, ratio, 1.0).log_density + 0.5 * rest**2


def _candidates(
    problem: _Problem, points: _Points, lines: NDArray[np.int64], mode: float
) -> tuple[FloatArray, FloatArray]:
    """For each line and peak the place where that message is likeliest, (C, K, n), and the gain in height, (C, K)."""
    rest = problem.projections - points.place @ problem.columns
    terms = _message_terms(rest, problem.ratio)
    places: list[FloatArray] = []
    gains: list[FloatArray] = []
    for line in lines:
        direction = problem.columns[:, line]
        overlap = direction @ problem.columns
        near = np.flatnonzero(np.abs(overlap) > 1e-12)
        slope = 2.0 * (points.place - problem.mean) @ direction
        for peak in (mode, -mode):
            shift = rest[:, line] - peak
            moved = _message_terms(rest[:, near] - shift[:, None] * overlap[near], problem.ratio)
            gains.append(
                (moved - terms[:, near]).sum(axis=1) - 0.5 * problem.rounds * (shift + slope) * shift
            )
            places.append(points.place + shift[:, None] * direction)
    return np.stack(places), np.stack(gains)


def _search(problem: _Problem, best: _Points, directions: int, mode: float) -> None:
    """Climb again from the likeliest of the places where one message is likeliest, direction after direction."""
    clients = np.arange(len(best.height))
    for number in range(directions):
        lines = np.arange(number, problem.columns.shape[1], directions, dtype=np.int64)
        places, gains = _candidates(problem, best, lines, mode)
        order = np.argsort(-gains, axis=0, kind="stable")
        for rank in range(min(_STARTS, len(order))):
            _keep_higher(best, _climb(problem, places[order[rank], clients]))


def maximum_likelihood(messages: FloatArray, model: MessageModel) -> LikelihoodFit:
    """The sample under which each client's messages are likeliest, by their exact density.

    The attacker knows s, a, sigma and every direction. It would gain nothing from omega: the phases are unknown, fresh
    and uniform, so the density does not depend on it.

    Args:
        messages: (K, T, n).
        model: the public protocol.

    Returns:
        Estimates at least as likely as those of ``linear_unbiased``, and what is known about them.

    Raises:
        SfumatoError: if a shape does not fit or a number is not finite.
    """
    received = model.check_messages(messages)
    scaled = received / model.sigma
    ratio = model.amplitude / model.sigma
    mode, excess = noise_shape(ratio, 1.0)
    largest = float(np.linalg.eigvalsh(model.modulated)[-1])
    columns = np.moveaxis(model.directions, 1, 0).reshape(model.features, -1)
    problem = _Problem(
        mean=scaled.mean(axis=1),
        projections=np.einsum("ktn,tnm->ktm", scaled, model.directions).reshape(
            len(scaled), columns.shape[1]
        ),
        columns=columns,
        rounds=model.rounds,
        ratio=ratio,
        concave=model.rounds - (1.0 + excess) * largest > 0.0,
    )
    best = _climb(problem, problem.mean)
    if not problem.concave:
        _search(problem, best, model.count, mode)
    estimates = best.place * (model.sigma / model.scale)
    return LikelihoodFit(
        estimates, log_likelihood(received, estimates, model), best.converged, problem.concave
    )
