"""The strongest test between two samples of one client: an audit of the local mechanism itself.

>>> from sfumato.rng import Streams
>>> model = MessageModel(unit_directions(features=2, count=0), scale=1.0, amplitude=0.0, sigma=2.0)
>>> def sampler(sample: FloatArray, count: int, stream: RandomStream) -> FloatArray:
...     return sample + 2.0 * stream.standard_normal((count, 1, 2))
>>> low, high = opposite_pair(model, radius=1.0, kind="across")
>>> audit = audit_local_mechanism(
...     sampler, low, high, lambda seen: fresh_phase_ratio(seen, low, high, model),
...     runs=20_000, delta=1e-5, confidence=0.95, stream=Streams(0).stream("attack"),
... )
>>> 0.0 < audit.epsilon_lower < 4.377  # what mu = 1 costs at that delta
True

By Neyman and Pearson's lemma the log-likelihood ratio of what is seen is the best score there is; its thresholds trace
the whole trade-off that the mechanism allows between these two samples. The three ratios are those of the three phase
protocols of Section 1.3 of docs/papers.md: fresh and kept, revealed (a fixed phase is a revealed one), and one kept
phase shared by all directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, cast, get_args

import numpy as np
from scipy import special as _special  # pyright: ignore[reportMissingTypeStubs]

from sfumato.attacks.message_model import MessageModel, log_likelihood, unit_directions
from sfumato.attacks.roc import (
    EpsilonBound,
    FloatArray,
    check_fraction,
    clopper_pearson,
    epsilon_lower_bound,
    epsilon_of_rates,
)
from sfumato.checks import is_integer
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

special = cast(Any, _special)

__all__ = [
    "MessageModel",
    "audit_ceiling",
    "audit_local_mechanism",
    "fresh_phase_ratio",
    "known_phase_ratio",
    "opposite_pair",
    "shared_phase_ratio",
    "unit_directions",
]

Pair = Literal["across", "along"]
Seen = TypeVar("Seen")

_BLOCK: Final = 16_384
_MAX_NODES: Final = 4096
_STEPS_PER_NAT: Final = 1024.0


def opposite_pair(model: MessageModel, radius: float, kind: Pair) -> tuple[FloatArray, FloatArray]:
    """Two samples at opposite ends of the domain, x_0 = -x_1 with norm R.

    Args:
        model: the public protocol.
        radius: R, above 0.
        kind: ``across``, where the messages' directions are met least: with fewer directions in all than features
            nothing but the Gaussian noise hides the pair, the worst there is. ``along``, where they are met most.

    Returns:
        (x_0, x_1), float64 (n,) each.

    Raises:
        SfumatoError: if the radius is not above 0 or the kind not one of these.
    """
    if not 0.0 < radius < math.inf:
        raise SfumatoError(f"radius is {radius!r}; allowed is a finite number above 0.")
    if kind not in get_args(Pair):
        raise SfumatoError(f"kind is {kind!r}; allowed are {', '.join(get_args(Pair))}.")
    _values, vectors = np.linalg.eigh(model.modulated)
    end = radius * vectors[:, 0 if kind == "across" else -1]
    return -end, end


def fresh_phase_ratio(
    messages: FloatArray, x_0: FloatArray, x_1: FloatArray, model: MessageModel
) -> FloatArray:
    """Exact log p(g | x_1) - log p(g | x_0) of the protocol as it should be: phases fresh, uniform and kept.

    Args:
        messages: (K, T, n).
        x_0: one sample, (n,).
        x_1: its neighbour, (n,).
        model: the public protocol.

    Returns:
        float64 (K,), about 1e-9 exact.

    Raises:
        SfumatoError: if a shape does not fit or a number is not finite.
    """
    return log_likelihood(messages, x_1, model) - log_likelihood(messages, x_0, model)


def known_phase_ratio(
    messages: FloatArray,
    phases: FloatArray,
    x_0: FloatArray,
    x_1: FloatArray,
    model: MessageModel,
    frequency: float,
) -> FloatArray:
    """Exact log-likelihood ratio where the phases are seen too, as when they are sent along, reused or fixed.

    Given the phases a message is Gaussian around s x + a sum_k cos(omega <x, v_k> + phi_k) v_k.

    Args:
        messages: (K, T, n).
        phases: phi, in radians, (K, T, m) or anything that broadcasts to it.
        x_0: one sample, (n,).
        x_1: its neighbour, (n,).
        model: the public protocol.
        frequency: omega.

    Returns:
        float64 (K,).

    Raises:
        SfumatoError: if a shape does not fit or a number is not finite.
    """
    received = model.check_messages(messages)
    _check_samples(model, x_0, x_1)
    angles = np.broadcast_to(phases, (len(received), model.rounds, model.count))
    square_0, square_1 = (
        np.square(received - _centers(sample, angles, model, frequency)).sum(axis=(1, 2))
        for sample in (x_0, x_1)
    )
    return (square_0 - square_1) / (2.0 * model.sigma**2)


def shared_phase_ratio(
    messages: FloatArray, x_0: FloatArray, x_1: FloatArray, model: MessageModel, frequency: float
) -> FloatArray:
    """Log-likelihood ratio where one fresh, uniform, kept phase per message serves all of its directions.

    The cosines of two directions then differ by the angle omega <x, v_k - v_l>, which tells about x (Section 1.3 a').
    The density is the mean over the phase of the Gaussian around s x + a sum_k cos(omega <x, v_k> + phi) v_k, taken by
    the midpoint rule, which converges geometrically on a period.

    Args:
        messages: (K, T, n).
        x_0: one sample, (n,).
        x_1: its neighbour, (n,).
        model: the public protocol.
        frequency: omega.

    Returns:
        float64 (K,).

    Raises:
        SfumatoError: if a shape does not fit, a number is not finite or the amplitude is so large against sigma
            that the phase cannot be resolved.
    """
    received = model.check_messages(messages)
    _check_samples(model, x_0, x_1)
    count = 64 + 16 * math.ceil(model.amplitude * math.sqrt(model.count) / model.sigma)
    if count > _MAX_NODES:
        raise SfumatoError(
            f"amplitude over sigma is {model.amplitude / model.sigma:g}; allowed is about 250 at most."
        )
    nodes = 2.0 * np.pi * (np.arange(count) + 0.5) / count
    low, high = (_shared_phase_density(received, sample, model, frequency, nodes) for sample in (x_0, x_1))
    return high - low


def _check_samples(model: MessageModel, *samples: FloatArray) -> None:
    for sample in samples:
        if np.shape(sample) != (model.features,):
            raise SfumatoError(f"a sample has shape {np.shape(sample)}; allowed is ({model.features},).")


def _centers(sample: FloatArray, phases: FloatArray, model: MessageModel, frequency: float) -> FloatArray:
    """The messages without noise, s x + a sum_k cos(omega <x, v_k> + phi_k) v_k, for phases (K, T, m): (K, T, n)."""
    cosines = np.cos(frequency * np.einsum("n,tnm->tm", sample, model.directions) + phases)
    return model.scale * sample + model.amplitude * np.einsum("ktm,tnm->ktn", cosines, model.directions)


def _shared_phase_density(
    received: FloatArray, sample: FloatArray, model: MessageModel, frequency: float, nodes: FloatArray
) -> FloatArray:
    """Log density of each client's messages up to the Gaussian's constant, (K,)."""
    phases = np.broadcast_to(nodes[:, None, None], (len(nodes), model.rounds, model.count))
    centers = _centers(sample, phases, model, frequency)
    density = np.zeros(len(received))
    for number in range(model.rounds):
        message, center = received[:, number], centers[:, number] - model.scale * sample
        rest = message - model.scale * sample
        # |rest - center|^2 in three terms; the first is common to all nodes.
        exponent = (rest @ center.T - 0.5 * np.square(center).sum(axis=1)) / model.sigma**2
        density += special.logsumexp(exponent, axis=1) - 0.5 * np.square(rest).sum(axis=1) / model.sigma**2
    return density


def _check_runs(runs: int) -> None:
    if not is_integer(runs) or runs < 4:
        raise SfumatoError(f"runs is {runs!r}; allowed is an integer of at least 4.")


def audit_ceiling(runs: int, delta: float, confidence: float = 0.95) -> float:
    """The bound of an audit in which no run is ever mistaken: the most that so many runs can show.

    Args:
        runs: messages, or series of them, per sample.
        delta: in [0, 1).
        confidence: in (0, 1).

    Raises:
        SfumatoError: if a number is out of its range.
    """
    _check_runs(runs)
    check_fraction("delta", delta, zero=True)
    judged = runs - runs // 2
    low, _ = clopper_pearson(judged, judged, confidence)
    _, high = clopper_pearson(0, judged, confidence)
    return float(epsilon_of_rates(low, high, delta))


def audit_local_mechanism(
    sampler: Callable[[FloatArray, int, RandomStream], Seen],
    x_0: FloatArray,
    x_1: FloatArray,
    log_likelihood_ratio: Callable[[Seen], FloatArray],
    *,
    runs: int,
    delta: float,
    stream: RandomStream,
    confidence: float = 0.95,
) -> EpsilonBound:
    """A lower bound of a local mechanism's epsilon, from messages that it really makes for two samples.

    The mechanism is run ``runs`` times on each sample, block by block, and every run scored by its log-likelihood
    ratio, in steps of 1/1024. The threshold is chosen on one half of the runs and the rates bounded on the other
    (``roc.py``). With T messages of a client per run it audits their composition.

    Guarantee:
        The mechanism's true epsilon at ``delta``, for replacing one sample by the other, is at least
        ``epsilon_lower`` with probability ``confidence``, if the runs are independent. A ratio that is not the
        mechanism's own makes the bound weaker and never wrong.

    Args:
        sampler: the real mechanism: a sample (n,), how many runs, and randomness; gives what an adversary sees of
            these runs, for instance messages (runs, T, n).
        x_0: one sample, (n,).
        x_1: its neighbour, (n,).
        log_likelihood_ratio: of what the sampler gives, (runs,), larger where x_1 is likelier.
        runs: per sample, at least 4; half of them choose the threshold.
        delta: in [0, 1).
        stream: for the sampler and for the halves.
        confidence: in (0, 1).

    Returns:
        The bound, with x_1's runs as members. ``audit_ceiling`` says what such an audit could have shown at most.

    Raises:
        SfumatoError: if the runs are too few, a number is out of its range or a score is not finite.
    """
    _check_runs(runs)
    scores: list[FloatArray] = []
    for sample in (x_1, x_0):
        sizes = [min(_BLOCK, runs - start) for start in range(0, runs, _BLOCK)]
        parts = [log_likelihood_ratio(sampler(sample, size, stream)) for size in sizes]
        # Coarser scores are as valid, and leave fewer thresholds to try.
        scores.append(np.floor(np.concatenate(parts) * _STEPS_PER_NAT) / _STEPS_PER_NAT)
        if scores[-1].shape != (runs,):
            raise SfumatoError(
                f"{runs} runs gave scores of shape {scores[-1].shape}; allowed is one per run."
            )
    return epsilon_lower_bound(scores[0], scores[1], delta, stream, confidence)
