"""What the estimators are held against: locally private gradient descent, least squares without privacy, the mean.

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> domain = Domain(features=2, radius=1.0)
>>> features = np.array([[0.5, 0.0], [0.0, 0.5], [-0.5, 0.0], [0.0, -0.5]])
>>> labels = 0.25 + features @ np.array([0.5, -0.5])
>>> ordinary_least_squares(features, labels).round(6)
array([ 0.25,  0.5 , -0.5 ])
>>> predict_the_mean(labels, domain)
array([0.25, 0.  , 0.  ])
>>> calibrated = LocalSgdPlan(domain, clip_norm=0.5, rounds=4).calibrate(epsilon=5.0, delta=1e-5)
>>> fit = local_sgd(features, labels, calibrated, Steps(size=0.1), Streams(0))
>>> round(calibrated.noise_std, 2), fit.ledger.steps
(1.78, 4)

The gradient baseline is fair to the systems it is compared with (Section 1.4 of docs/papers.md): each client clips and
adds noise to its own gradient, under the same replace-one relation, with the same accountant. What it releases depends
on features *and* label, so its guarantee is for both, also where the systems' labels are public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from dp_accounting import DpEvent
from numpy.typing import NDArray

from sfumato.accounting import GaussianRule, calibrate_gaussian
from sfumato.errors import SfumatoError
from sfumato.ledger import EventLedger
from sfumato.mechanisms import Gaussian
from sfumato.modulated.client import BLOCK, clip_samples
from sfumato.modulated.iterative import Fit, Steps, group_slices
from sfumato.modulated.plan import Domain, Regime, check_target, require_choice, require_count, require_number
from sfumato.modulated.server import Vector, project
from sfumato.rng import Streams

Noise = Literal["clients", "mean"]
"""Where the noise is drawn: by each client, or once on the mean with the same distribution (for simulations)."""


@dataclass(frozen=True)
class LocalSgdPlan:
    """DP-SGD with one sample per client and local noise, before its noise is known.

    Attributes:
        domain: the public bounds.
        clip_norm: C, the bound on the Euclidean norm of a client's gradient.
        rounds: T, how often the server asks.
        regime: ``same_clients`` answer in every round, so their releases compose; ``disjoint_groups`` answer once
            each, in the round of their group.
        rule: how (epsilon, delta) becomes noise.
        intercept: whether the model has one; a client's sample then is (1, x), and the gradient has a coordinate more.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    domain: Domain
    clip_norm: float
    rounds: int = 1
    regime: Regime = "same_clients"
    rule: GaussianRule = "exact"
    intercept: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        require_number("clip_norm", self.clip_norm, 0.0, 1e9, open_low=True)
        require_count("rounds", self.rounds, 1, 1_000_000)
        require_choice("regime", self.regime, get_args(Regime))
        require_choice("rule", self.rule, get_args(GaussianRule))

    @property
    def releases(self) -> int:
        """How many gradients one client sends."""
        return self.rounds if self.regime == "same_clients" else 1

    @property
    def neighbor_distance(self) -> float:
        """2 C, the largest distance between the clipped gradients of two samples."""
        return 2.0 * self.clip_norm

    def calibrate(self, epsilon: float | None, delta: float) -> CalibratedLocalSgd:
        """The plan with the noise that makes each client's messages (epsilon, delta)-differentially private.

        Guarantee:
            Local differential privacy of features and label jointly: whatever anybody who sees all messages concludes
            about one client, replacing its whole sample changes its odds by at most e^epsilon, up to delta, over all
            of the client's releases. It needs noise that the client draws anew and keeps; coefficients chosen from
            earlier messages are covered.

        Args:
            epsilon: the budget; None for no noise and no guarantee.
            delta: above 0 and below 1.

        Raises:
            AccountingError: if epsilon or delta is outside of what can be priced.
        """
        check_target(epsilon, delta)
        if epsilon is None:
            return CalibratedLocalSgd(self, None, delta, 0.0)
        multiplier = calibrate_gaussian(epsilon, delta, self.rule, self.releases)
        return CalibratedLocalSgd(self, float(epsilon), delta, multiplier)


@dataclass(frozen=True)
class CalibratedLocalSgd:
    """A plan and the noise that meets its budget.

    Attributes:
        plan: what was calibrated.
        epsilon: the target; None without privacy.
        delta: of the target.
        noise_multiplier: sigma over 2 C.
    """

    plan: LocalSgdPlan
    epsilon: float | None
    delta: float
    noise_multiplier: float

    @property
    def noise_std(self) -> float:
        """Sigma per coordinate of one client's gradient."""
        return self.noise_multiplier * self.plan.neighbor_distance

    @property
    def events(self) -> list[DpEvent]:
        """One client's intended releases; accounting prices the recorded ones."""
        return [self.release_event] * self.plan.releases

    @property
    def release_event(self) -> DpEvent:
        """What one gradient costs its client, to be priced under replace-one."""
        return Gaussian(self.plan.neighbor_distance, self.noise_multiplier, "replace_one").event


def clipped_gradients(rows: Vector, labels: Vector, coefficients: Vector, clip_norm: float) -> Vector:
    """(b, p): each client's gradient (<a, beta> - y) a of half the squared error, scaled down to norm C.

    Guarantee: each row has Euclidean norm at most ``clip_norm`` and depends on its own sample alone; a gradient whose
    norm is not finite counts as zeros.

    Args:
        rows: (b, p), a = (1, x), or x without an intercept.
        labels: (b,).
        coefficients: (p,) beta.
        clip_norm: C.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        gradients = (rows @ coefficients - labels)[:, None] * rows
        norms = np.sqrt(np.einsum("ij,ij->i", gradients, gradients))
        # Four units of rounding below C, so that rounding cannot put a row outside again.
        factors = np.where(norms > clip_norm, clip_norm * (1.0 - 4.0 * np.finfo(np.float64).eps) / norms, 1.0)
        gradients *= factors[:, None]
    gradients[~np.isfinite(norms)] = 0.0
    return gradients


def local_sgd(
    features: NDArray[Any],
    labels: NDArray[Any],
    calibrated: CalibratedLocalSgd,
    steps: Steps,
    streams: Streams,
    noise: Noise = "clients",
) -> Fit:
    """Projected gradient descent on gradients that each client clipped and noised itself (Section 1.4).

    Guarantee: as ``LocalSgdPlan.calibrate`` promises, with ``noise="clients"``. With ``noise="mean"`` nobody has
    noised a gradient; only the coefficients have the distribution that they would have had.

    Args:
        features: (K, n) float32 or float64; computed with in float64. Not changed.
        labels: (K,).
        calibrated: the public protocol.
        steps: the server's step sizes and ball, public numbers.
        streams: the run's randomness; each block of each round has its own stream.
        noise: ``clients`` draws every client's noise. ``mean`` draws one N(0, sigma^2 I / K) a round, which is exactly
            how the mean of K of them is distributed; it is for tuning grids, at a cost per round without noise per
            client.

    Raises:
        SfumatoError: if shapes do not fit the plan, there are fewer clients than disjoint groups or none, or
            ``noise="mean"`` is asked for in release mode.
    """
    if noise not in get_args(Noise):
        raise SfumatoError(f"noise is {noise!r}; allowed are {', '.join(get_args(Noise))}.")
    if noise == "mean" and streams.mode == "release":
        raise SfumatoError(
            "noise is 'mean' in release mode; allowed is 'clients', since each client must draw its own."
        )
    plan = calibrated.plan
    rows, own, faulty = _samples(features, labels, plan)
    fit = Fit(np.zeros(plan.domain.features + int(plan.intercept)), EventLedger(), plan.rounds, 0)
    disjoint = plan.regime == "disjoint_groups"
    groups = list(group_slices(len(rows), plan.rounds)) if disjoint else [slice(0, len(rows))] * plan.rounds
    for number, group in enumerate(groups):
        if number == 0 or not disjoint:
            fit.ledger.record(calibrated.release_event)
        mean = _noisy_mean(rows[group], own[group], fit.coefficients, calibrated, streams, number, noise)
        fit.coefficients = project(fit.coefficients - steps.at(number) * mean, steps.coefficient_bound)
        fit.faulty += int(faulty[group].sum())
        fit.path.append(fit.coefficients)
    return fit


def _noisy_mean(
    rows: Vector,
    labels: Vector,
    coefficients: Vector,
    calibrated: CalibratedLocalSgd,
    streams: Streams,
    round_number: int,
    noise: Noise,
) -> Vector:
    """The mean of what the clients of a round send."""
    total = np.zeros_like(coefficients)
    for number, start in enumerate(range(0, len(rows), BLOCK)):
        block = slice(start, start + BLOCK)
        sent = clipped_gradients(rows[block], labels[block], coefficients, calibrated.plan.clip_norm)
        if noise == "clients":
            drawn = np.empty_like(sent)
            streams.bulk("gradients", round_number, number).fill_normal(drawn, calibrated.noise_std)
            sent += drawn
        total += sent.sum(axis=0)
    if noise == "mean":
        drawn = streams.stream("gradients/mean", round_number).standard_normal(len(total))
        total += math.sqrt(len(rows)) * calibrated.noise_std * drawn
    return total / len(rows)


def _samples(
    features: NDArray[Any], labels: NDArray[Any], plan: LocalSgdPlan
) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """(K, p) rows (1, x), (K,) labels and which samples were not finite, each clipped by its own client."""
    size = plan.domain.features
    if (
        features.ndim != 2
        or features.shape[1] != size
        or labels.shape != (len(features),)
        or not len(features)
    ):
        raise SfumatoError(
            f"features and labels have shapes {features.shape} and {labels.shape}; allowed are (clients, {size}) and "
            "(clients,) with at least one client."
        )
    clipped, own, faulty = clip_samples(features.astype(np.float64), labels, plan.domain)
    return (np.column_stack([np.ones(len(own)), clipped]) if plan.intercept else clipped), own, faulty


def ordinary_least_squares(features: NDArray[Any], labels: NDArray[Any], intercept: bool = True) -> Vector:
    """Least squares without privacy: of all minimisers, the one with the smallest coefficients of the features.

    Singular values that rounding alone could have made count as zero, so constant, repeated and more columns than
    rows are allowed. A constant column gets no coefficient where there is an intercept.

    Guarantee: none; it is the line that a private fit of the same samples is compared with.

    Args:
        features: (K, n), all finite; clip them first to compare with fits of clipped samples.
        labels: (K,), all finite.
        intercept: whether the model has one.

    Returns:
        (p,) float64, the intercept first where there is one.

    Raises:
        SfumatoError: if the shapes do not fit, there is no sample, or a value is not finite.
    """
    rows: Vector = np.asarray(features, np.float64)
    own: Vector = np.asarray(labels, np.float64)
    if rows.ndim != 2 or not rows.size or own.shape != (len(rows),):
        raise SfumatoError(
            f"features and labels have shapes {rows.shape} and {own.shape}; allowed are (clients, features) and "
            "(clients,) with at least one of each."
        )
    if not (np.all(np.isfinite(rows)) and np.all(np.isfinite(own))):
        raise SfumatoError("features or labels hold a number that is not finite; allowed are finite numbers.")
    slopes: Vector = np.zeros(len(rows.T))
    center: Vector = rows.mean(axis=0) if intercept else slopes.copy()
    level = float(own.mean()) if intercept else 0.0
    moved = rows - center
    # Rounding is relative to the numbers before they were centred, and so is what counts as zero.
    size, left = float(np.linalg.norm(rows)), float(np.linalg.norm(moved, 2))
    threshold = max(rows.shape) * np.finfo(np.float64).eps * size
    if left > threshold:
        slopes += np.linalg.lstsq(moved, own - level, rcond=threshold / left)[0]
    return np.concatenate([[level - center @ slopes], slopes]) if intercept else slopes


def predict_the_mean(labels: NDArray[Any], domain: Domain) -> Vector:
    """(1 + n,) coefficients that predict the mean of the clipped labels for everybody.

    Guarantee: it does not look at features, so where labels are public it is free of charge; where they are private
    it promises nothing.

    Args:
        labels: (K,); one that is not finite counts as zero, as at the clients.
        domain: its label bound, and the number of features.

    Raises:
        SfumatoError: if labels is not a vector of at least one entry.
    """
    if labels.ndim != 1 or not labels.size:
        raise SfumatoError(f"labels has shape {labels.shape}; allowed is a vector with at least one entry.")
    own = np.where(np.isfinite(labels), labels, 0.0).clip(-domain.label_bound, domain.label_bound)
    coefficients = np.zeros(1 + domain.features)
    coefficients[0] = own.mean()
    return coefficients
