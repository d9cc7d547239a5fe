"""What the estimator is held against: noise at every client before Phi, and a noisy histogram of a trusted server.

>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import all_points
>>> from sfumato.rng import Streams
>>> reference, plan = Reference.from_probabilities([0.5, 0.3, 0.2]), EstimatorPlan(Floor("mix", 0.1), 0.0)
>>> clients = np.array([[3, 3, 4]] * 100)
>>> found = local_release(clients, 1000, all_points(reference), reference, plan, 8.0, 1e-5, Streams(0).stream("noise"))
>>> round(found.client_noise_std, 3), round(found.noise_std, 2), len(found.events)
(0.849, 8.49, 1)

Here the logarithm meets noisy counts, so its curvature and the cut at 0 turn noise into bias (Algorithm 1 and Section
4.2, Local baseline, of docs/papers.md); ``noise_bias`` says how much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import ArrayLike

from sfumato.accounting import calibrate_gaussian
from sfumato.divergence.counting import Counts
from sfumato.divergence.evaluation import ratios
from sfumato.divergence.intervals import clipped_value
from sfumato.divergence.plan import EstimatorPlan, Vector, array_of, require_examples, require_number
from sfumato.divergence.reference import PublicPoints, Reference, all_points
from sfumato.errors import SfumatoError
from sfumato.mechanisms import Gaussian
from sfumato.rng import RandomStream

_BLOCK = 1 << 16
_WIDTH = 9.0  # standard deviations on either side; the normal law beyond has mass 2e-19
_NODES = 16


@dataclass(frozen=True)
class NoisyCountsEstimate:
    """An estimate from noisy counts.

    Attributes:
        raw: Phi's mean over the points, in nats; biased by the noise.
        clipped: ``raw`` cut to the range of the target, which a floor of kind ``clip`` lets reach below 0.
        noise_std: standard deviation of the noise of each summed count.
        client_noise_std: of each count of one client; 0 where the server adds the noise.
        epsilon: budget of one client, or of the histogram.
        delta: likewise.
        events: what one example spent, to be priced under replace-one.
    """

    raw: float
    clipped: float
    noise_std: float
    client_noise_std: float
    epsilon: float
    delta: float
    events: tuple[DpEvent, ...]


def counts_mechanism(points: PublicPoints, epsilon: float, delta: float) -> Gaussian:
    """Gaussian noise on the counts at the points: replacing an example moves two by one each, sqrt(2) in Euclidean norm.

    Args:
        points: with a single one the norm is 1.
        epsilon: above 0.
        delta: above 0 and below 1.

    Raises:
        AccountingError: if epsilon or delta is outside of what can be priced.
    """
    return Gaussian(math.sqrt(min(points.count, 2)), calibrate_gaussian(epsilon, delta), "replace_one")


def local_counts(client_counts: Counts, noise_std: float, stream: RandomStream) -> Vector:
    """The sum of the clients' messages, each client's counts plus N(0, tau^2) of its own on each (Algorithm 1).

    Args:
        client_counts: (n, k) integers.
        noise_std: tau.
        stream: of the noise.

    Returns:
        (k,) float64, not rounded and possibly negative.
    """
    total: Vector = np.zeros(int(client_counts.shape[1]))
    for start in range(0, len(client_counts), _BLOCK):
        sent: Vector = client_counts[start : start + _BLOCK].astype(np.float64)
        sent += noise_std * stream.standard_normal(sent.shape)
        total += sent.sum(axis=0)
    return total


def local_release(
    client_counts: ArrayLike,
    examples: int,
    points: PublicPoints,
    reference: Reference,
    plan: EstimatorPlan,
    epsilon: float,
    delta: float,
    stream: RandomStream,
) -> NoisyCountsEstimate:
    """The paper's local baseline: nobody is trusted, every client adds the whole noise itself (Algorithm 1).

    Guarantee:
        Local (epsilon, delta)-differential privacy of each client's message for replacing one of its examples, its
        number of examples public, with real-valued noise; it is a baseline and has no release mode of its own.

    Args:
        client_counts: (n, k) integers, each client's counts at the points.
        examples: N of all clients, public.
        points: public.
        reference: Pi.
        plan: its floor acts on the noisy ratio, which is cut at 0 before.
        epsilon: of each client.
        delta: likewise.
        stream: of the noise.

    Raises:
        SfumatoError: if an argument is outside of what is allowed, or the plan has no floor.
    """
    own = array_of("client counts", client_counts)
    if own.ndim != 2 or not len(own) or own.dtype.kind not in "iu":
        raise SfumatoError(
            f"client counts are {own.dtype} of shape {own.shape}; allowed are integers, one row per client and at least one."
        )
    ratios(own.sum(axis=0, dtype=np.int64), examples, points, reference)
    mechanism = counts_mechanism(points, epsilon, delta)
    total = local_counts(own, mechanism.sigma, stream)
    raw, clipped = _value(total, examples, points, reference, plan)
    spread = mechanism.sigma * math.sqrt(len(own))
    return NoisyCountsEstimate(raw, clipped, spread, mechanism.sigma, epsilon, delta, (mechanism.event,))


def central_histogram(
    counts: ArrayLike,
    examples: int,
    reference: Reference,
    plan: EstimatorPlan,
    epsilon: float,
    delta: float,
    stream: RandomStream,
) -> NoisyCountsEstimate:
    """A noisy count of every cell by a trusted server, and the plug-in divergence of it: shown for scale.

    It releases the whole histogram, which is worth more than one number, and pays for it in bias.

    Guarantee:
        (epsilon, delta)-differential privacy for replacing one example, N public, with real-valued noise; a baseline
        without a release mode.

    Args:
        counts: (cells,) integers.
        examples: N, public.
        reference: Pi.
        plan: its floor acts on the noisy ratio.
        epsilon: of the histogram.
        delta: likewise.
        stream: of the noise.

    Raises:
        SfumatoError: if an argument is outside of what is allowed, or the plan has no floor.
    """
    points = all_points(reference)
    ratios(counts, examples, points, reference)
    mechanism = counts_mechanism(points, epsilon, delta)
    noisy: Vector = np.asarray(counts) + mechanism.sigma * stream.standard_normal(reference.cells)
    raw, clipped = _value(noisy, examples, points, reference, plan)
    return NoisyCountsEstimate(raw, clipped, mechanism.sigma, 0.0, epsilon, delta, (mechanism.event,))


def noise_bias(
    counts: ArrayLike,
    examples: int,
    points: PublicPoints,
    reference: Reference,
    plan: EstimatorPlan,
    noise_std: float,
) -> float:
    """E[estimate from c + N(0, s^2)] - estimate from c, by quadrature between the kinks of Phi.

    Where the noise is small beside the counts it is about (1 / 2) sum w (1 - gamma)^2 s^2 / (N Pi r)^2 > 0; where it is
    large, the cut at 0 raises the mean ratio and the sign turns (Section 4.2, Local baseline).

    Args:
        counts: (k,) integers without noise; known in simulations only.
        examples: N.
        points: where they were counted.
        reference: Pi.
        plan: with a floor.
        noise_std: s of each summed count.

    Returns:
        nats.

    Raises:
        SfumatoError: if an argument is outside of what is allowed, or the plan has no floor.
    """
    floor = plan.required_floor
    require_number("noise_std", noise_std, 0.0, 1e150)
    clean = plan.values(ratios(counts, examples, points, reference))
    if noise_std == 0.0:
        return 0.0
    total = 0.0
    bounds = [0.0] if floor.kind == "mix" else [floor.level, floor.ceiling or 0.0]
    rows = zip(
        np.asarray(counts).tolist(),
        reference.probabilities[points.cells].tolist(),
        points.weights,
        clean,
        strict=True,
    )
    for count, probability, weight, value in rows:
        size = examples * probability
        z, mass = _normal_nodes([(bound * size - count) / noise_std for bound in [0.0, *bounds]])
        noisy = plan.values(np.maximum(count + noise_std * z, 0.0) / size)
        total += float(weight) * (float(mass @ noisy) - float(value))
    return total


def _normal_nodes(kinks: list[float]) -> tuple[Vector, Vector]:
    """Nodes and masses of a Gauss-Legendre rule for the standard normal, fine around the kinks."""
    near = np.geomspace(1e-9, 1.0, 40)
    edges = [
        np.linspace(-_WIDTH, _WIDTH, 37),
        *(kink + near for kink in kinks),
        *(kink - near for kink in kinks),
    ]
    every = np.unique(np.clip(np.concatenate([*edges, np.array(kinks)]), -_WIDTH, _WIDTH))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(every)[:, None] / 2.0
    z = (every[:-1, None] + half + half * nodes).ravel()
    mass = (half * weights).ravel() * np.exp(-0.5 * z**2)
    return z, mass / mass.sum()


def _value(
    counts: Vector, examples: int, points: PublicPoints, reference: Reference, plan: EstimatorPlan
) -> tuple[float, float]:
    """Phi's mean of noisy counts, which are first cut at 0, and the same cut to its range."""
    require_examples(examples)
    noisy = np.maximum(counts, 0.0) / (examples * reference.probabilities[points.cells])
    raw = float(points.weights @ plan.values(noisy))
    return raw, clipped_value(raw, plan, reference.smallest)
