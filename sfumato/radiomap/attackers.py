"""Regressors from a defended upload to the transmitter's position, and the attack that runs them all.

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> random = np.random.default_rng(0)
>>> place = random.uniform(0.0, 256.0, (80, 2))
>>> uploads = place @ random.standard_normal((2, 50)) + random.standard_normal((80, 50))
>>> sessions = Sessions(uploads, place, np.arange(80) // 4, window=256.0)
>>> shadow, attacked = sessions.select(np.arange(48)), sessions.select(np.arange(48, 80))
>>> found = attack(shadow, attacked, Streams(0), names=["ridge", "rbf_ridge"])
>>> found.constant.rmse > 50.0, found.scores[found.chosen].test.rmse < 2.0
(True, True)

Uploads have tens of thousands of weights and an attacker has hundreds of them, so everything works on inner products of
uploads: one pass over the weights gives a Gram matrix, and no cost after it depends on d.

* ``ridge``: linear, on features standardised by the shadow uploads' mean and deviation and winsorised.
* ``rbf_ridge``: the Gaussian kernel on the same features; its width is chosen by held-out maps like every penalty.
* ``perceptron``: a small neural network on the 64 leading principal components; those of clean uploads, with fresh noise
  added at every step, where the attacker has them.
* ``whitened_ridge``: linear; weights are scaled by what the published noise leaves of them, either 1 / sqrt(v + sigma^2)
  with the variance v of clean uploads, or sqrt(v) / (v + sigma^2), which turns down what the noise drowns.
* ``noise_aware_ridge``: linear, fitted to the attacker's own uploads *before* their noise, with the noise's known energy
  as penalty: what infinitely many noisy copies of every shadow upload would teach. Only with clean uploads and noise.

An attacker makes its shadow uploads itself, so it has them without noise as well (`Sessions.clean`). Trained on one noisy copy
of each, regressors learn little of the directions that tell the position, and a defence looks better than it is.

Whole maps are left out in every choice. The report shows the attacker that held-out shadow maps choose and, labelled as
pessimistic, the smallest error on the attacked uploads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.radiomap import kernel_ridge, perceptron
from sfumato.radiomap.features import Features, Noise, Scaler, Sessions, check_maps, check_pair
from sfumato.radiomap.localisation import AttackResult, Scored, Vector, evaluate
from sfumato.rng import RandomStream, Streams

COMPONENTS: Final = 64
_WIDTHS: Final = (0.25, 1.0, 4.0)
_CLEAN_SHARES: Final = (0.01, 0.3)
_CLEAN_PENALTIES: Final = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, eq=False)
class Attacker:
    """A fitted attacker.

    Attributes:
        name: such as ``ridge``.
        held_out: (n, 2) guesses for the shadow uploads in metres, each without the uploads of its own map.
        guess: from (m, d) features of the attack's scaler to (m, 2) positions in metres.
        scaler: makes the features.
    """

    name: str
    held_out: Vector
    guess: Callable[[Features], Vector]
    scaler: Scaler

    def predict(self, uploads: NDArray[Any]) -> Vector:
        """(m, 2) positions in metres, within the window, from (m, d) uploads.

        Raises:
            SfumatoError: if an upload is not finite or of another size.
        """
        return self.guess(self.scaler.apply(uploads))


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is shared by all attackers of one set of shadow uploads.

    Attributes:
        shadow: the shadow sessions.
        scaler: of their uploads.
        features: (n, d) float32.
        gram: (n, n) float64, inner products of the features divided by d.
        noise: what is known of the defence's noise.
    """

    shadow: Sessions
    scaler: Scaler
    features: Features
    gram: Vector
    noise: Noise | None

    @staticmethod
    def of(shadow: Sessions, noise: Noise | None) -> Prepared:
        """Standardise and multiply out.

        Raises:
            SfumatoError: if there are too few shadow maps or the noise is of another size.
        """
        check_maps(shadow.maps)
        if noise is not None and len(noise.variance) != shadow.dimension:
            raise SfumatoError(
                f"the noise is known of {len(noise.variance)} weights; allowed is {shadow.dimension}, as uploads have."
            )
        scaler = Scaler.of(shadow.uploads)
        features = scaler.apply(shadow.uploads)
        return Prepared(shadow, scaler, features, products(features, features), noise)

    def fit(self, gram: Vector, **choices: Any) -> kernel_ridge.KernelRidge:
        """A ridge regression on an (n, n) kernel of the shadow uploads."""
        return kernel_ridge.fit(gram, self.shadow.positions, self.shadow.maps, self.shadow.window, **choices)


def products(left: Features, right: Features) -> Vector:
    """(m, n) float64: inner products of float32 features, divided by their number."""
    return (left @ right.T).astype(np.float64) / left.shape[1]


def constant(shadow: Sessions, count: int) -> Vector:
    """(count, 2): the mean of the shadow positions, what a guess without any upload would be."""
    return np.repeat(shadow.positions.mean(axis=0)[None], count, axis=0)


# ------------------------------------------------------------------------------------------------- attackers
def ridge(prepared: Prepared, stream: RandomStream) -> Attacker:
    """Linear ridge regression on the standardised features."""
    del stream
    fitted = prepared.fit(prepared.gram)
    return Attacker(
        "ridge",
        fitted.held_out,
        lambda rows: fitted.predict(products(rows, prepared.features)),
        prepared.scaler,
    )


def rbf_ridge(prepared: Prepared, stream: RandomStream) -> Attacker:
    """Ridge regression with the Gaussian kernel exp(-|x - x'|^2 / (w m)), m the median squared distance."""
    del stream
    squares = np.diag(prepared.gram)
    apart = np.maximum(squares[:, None] + squares - 2.0 * prepared.gram, 0.0)
    np.fill_diagonal(apart, 0.0)
    median = float(np.median(apart)) or 1.0
    fits = [(width, prepared.fit(np.exp(-apart / (width * median)))) for width in _WIDTHS]
    best_width, best = min(fits, key=lambda pair: pair[1].error)

    def guess(rows: Features) -> Vector:
        own = np.einsum("ij,ij->i", rows, rows, dtype=np.float64) / rows.shape[1]
        away = own[:, None] + squares - 2.0 * products(rows, prepared.features)
        return best.predict(np.exp(-np.maximum(away, 0.0) / (best_width * median)))

    return Attacker("rbf_ridge", best.held_out, guess, prepared.scaler)


def neural(prepared: Prepared, stream: RandomStream) -> Attacker:
    """A perceptron on principal components, found anew without each left-out third of the maps.

    With clean uploads the components are theirs, and the network is trained on them with fresh noise at every step, of the
    covariance that the difference between noisy and clean uploads shows; guesses are made from noisy uploads.
    """
    shadow, base = prepared.shadow, prepared.features
    gram = check = prepared.gram
    if shadow.clean is not None:
        base = prepared.scaler.apply(shadow.clean)
        gram, check = products(base, base), products(prepared.features, base)
    folds = perceptron.deal(shadow.maps, stream)
    count = min(COMPONENTS, min(int(np.sum(folds != fold)) for fold in range(perceptron.FOLDS)))
    projections = np.array([_components(gram, folds != fold, count) for fold in range(perceptron.FOLDS + 1)])
    train, seen = gram @ projections, check @ projections
    roots = None
    if shadow.clean is not None:
        roots = np.array([np.linalg.qr(part, mode="r") for part in seen - train]) / np.sqrt(shadow.count)
        roots = roots.astype(np.float32)
    inputs = perceptron.Inputs(train.astype(np.float32), seen.astype(np.float32), roots)
    fitted = perceptron.fit(inputs, shadow.positions, folds, shadow.window, stream)
    return Attacker(
        "perceptron",
        fitted.held_out,
        lambda rows: fitted.predict(products(rows, base) @ projections[-1]),
        prepared.scaler,
    )


def _components(gram: Vector, kept: NDArray[np.bool_], count: int) -> Vector:
    """(n, count) from a kernel's row to the leading principal components of the kept rows, the mean square of all being 1.

    They are divided by one number, so that the leading ones stay the largest; components without variance are 0.
    """
    values, basis = np.linalg.eigh(gram[np.ix_(kept, kept)])
    leading, vectors = values[-count:], basis[:, -count:]
    alive = leading > 1e-9 * max(float(values[-1]), 1e-300)
    factors = np.divide(1.0, leading, out=np.zeros_like(leading), where=alive) ** 0.5
    unit = float(np.sqrt(kept.sum() / max(float(leading[alive].mean()), 1e-300))) if alive.any() else 0.0
    projection = np.zeros((len(gram), count))
    projection[kept] = unit * vectors * factors
    return projection


def whitened_ridge(prepared: Prepared, stream: RandomStream) -> Attacker:
    """Linear ridge regression on weights scaled by what the noise leaves of them; without noise, all alike."""
    del stream
    spread = prepared.scaler.deviation.astype(np.float64)
    noise = prepared.noise
    scales = [np.ones(len(spread))]
    if noise is not None:
        total = noise.variance + noise.signal
        alive = total > 0.0
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=alive)
        scales = [np.sqrt(inverse), np.sqrt(noise.signal) * inverse]
    best = min((_weighted(prepared, spread * scale) for scale in scales), key=lambda pair: pair[0].error)
    fitted, weights = best
    return Attacker(
        "whitened_ridge",
        fitted.held_out,
        lambda rows: fitted.predict(products(rows * weights, prepared.features)),
        prepared.scaler,
    )


def _weighted(prepared: Prepared, factors: Vector) -> tuple[kernel_ridge.KernelRidge, Features]:
    """The fit when features are multiplied by (d,) factors, and the squares of these, of mean 1."""
    weights = _squared(factors)
    return prepared.fit(products(prepared.features * weights, prepared.features)), weights


def _squared(factors: Vector) -> Features:
    """(d,) float32 squares, divided by their mean; none if all are 0."""
    largest = float(np.abs(factors).max())
    squares = (factors / (largest if largest > 0.0 else 1.0)) ** 2
    mean = float(squares.mean())
    return (squares / (mean if mean > 0.0 else 1.0)).astype(np.float32)


def noise_aware_ridge(prepared: Prepared, stream: RandomStream) -> Attacker:
    """Linear regression of least expected error under the known noise, fitted to clean shadow uploads.

    Minimises sum_i |y_i - b - w'x_i|^2 + n w' Sigma w, the expectation over fresh noise of covariance Sigma in every upload:
    ridge regression on x scaled by 1 / sigma with penalty n. A share of the signal's variance is added to sigma^2, as a
    finite number of shadow uploads asks for; share and penalty are chosen on the noisy uploads of held-out maps.

    Raises:
        SfumatoError: if the shadow sessions have no clean uploads or the noise is not known.
    """
    del stream
    shadow, noise = prepared.shadow, prepared.noise
    if shadow.clean is None or noise is None:
        raise SfumatoError(
            "noise_aware_ridge has no clean shadow uploads or no noise; allowed is with both only."
        )
    clean = prepared.scaler.apply(shadow.clean)
    spread = prepared.scaler.deviation.astype(np.float64)
    best: tuple[kernel_ridge.KernelRidge, Features] | None = None
    for share in _CLEAN_SHARES:
        base = noise.variance + share * noise.signal
        inverse = np.divide(1.0, base, out=np.zeros_like(base), where=base > 0.0)
        squares = spread**2 * inverse
        mean = float(squares.mean()) or 1.0
        weights = (squares / mean).astype(np.float32)
        # products() divides by d and the weights by their mean: the penalty n is measured in the same unit.
        unit = shadow.count / (mean * len(spread))
        checks = kernel_ridge.Checks(
            products(prepared.features * weights, clean), shadow.positions, shadow.maps
        )
        gram = products(clean * weights, clean)
        fitted = prepared.fit(gram, penalties=unit * np.array(_CLEAN_PENALTIES), checks=checks)
        if best is None or fitted.error < best[0].error:
            best = (fitted, weights)
    assert best is not None
    chosen, kept = best
    return Attacker(
        "noise_aware_ridge",
        chosen.held_out,
        lambda rows: chosen.predict(products(rows * kept, clean)),
        prepared.scaler,
    )


ATTACKERS: Final[Mapping[str, Callable[[Prepared, RandomStream], Attacker]]] = {
    "ridge": ridge,
    "rbf_ridge": rbf_ridge,
    "perceptron": neural,
    "whitened_ridge": whitened_ridge,
    "noise_aware_ridge": noise_aware_ridge,
}


# ---------------------------------------------------------------------------------------------------- attack
def fit_attackers(
    shadow: Sessions, streams: Streams, noise: Noise | None = None, names: Sequence[str] | None = None
) -> list[Attacker]:
    """Fit attackers to shadow uploads.

    Args:
        shadow: defended uploads with known positions, of at least three maps.
        streams: the attack's randomness; the stream ``attack/<name>`` of each attacker.
        noise: what is known of the defence's noise.
        names: of `ATTACKERS`; by default all that can be had: ``noise_aware_ridge`` needs ``noise`` and clean uploads.

    Raises:
        SfumatoError: if a name is unknown, there are too few maps, or sizes do not match.
    """
    if names is None:
        bare = noise is None or shadow.clean is None
        names = [name for name in ATTACKERS if not (bare and name == "noise_aware_ridge")]
    unknown = sorted(set(names) - set(ATTACKERS))
    if unknown or not names:
        raise SfumatoError(
            f"attacker {unknown[0] if unknown else None!r} is unknown; allowed are {sorted(ATTACKERS)}."
        )
    prepared = Prepared.of(shadow, noise)
    return [ATTACKERS[name](prepared, streams.stream(f"attack/{name}")) for name in names]


def attack(
    shadow: Sessions,
    attacked: Sessions,
    streams: Streams,
    noise: Noise | None = None,
    names: Sequence[str] | None = None,
) -> AttackResult:
    """Fit all attackers to shadow uploads and judge them on others.

    Args:
        shadow: the attacker's own defended uploads, at the same global weights and through the same defence.
        attacked: clients' defended uploads, on other maps.
        streams: the attack's randomness.
        noise: what is known of the defence's noise.
        names: of `ATTACKERS`; by default all that can be had.

    Returns:
        Errors in metres on held-out shadow maps and on the attacked uploads, beside the constant predictor's.

    Raises:
        SfumatoError: if there are too few shadow maps, an upload is not finite, or sizes or windows differ.
    """
    check_pair(shadow, attacked)
    fitted = fit_attackers(shadow, streams, noise, names)
    features = fitted[0].scaler.apply(attacked.uploads)
    scores: dict[str, Scored] = {}
    predictions: dict[str, Vector] = {}
    for attacker in fitted:
        predictions[attacker.name] = attacker.guess(features)
        scores[attacker.name] = Scored(
            evaluate(
                attacker.held_out, shadow.positions, shadow.maps, streams.stream("attack/intervals", "shadow")
            ),
            evaluate(
                predictions[attacker.name],
                attacked.positions,
                attacked.maps,
                streams.stream("attack/intervals"),
            ),
        )
    reference = evaluate(
        constant(shadow, attacked.count),
        attacked.positions,
        attacked.maps,
        streams.stream("attack/intervals"),
    )
    return AttackResult(scores, reference, predictions)


def attack_views(
    shadow: Sessions,
    attacked: Sessions,
    views: Mapping[str, NDArray[Any] | None],
    streams: Streams,
    noise: Noise | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, AttackResult]:
    """The attack on several sets of weights, such as all of them and the transmitter's (the paper's view).

    Args:
        shadow: as for `attack`.
        attacked: as for `attack`.
        views: name -> (k,) positions in an upload, or None for all.
        streams: as for `attack`.
        noise: as for `attack`.
        names: as for `attack`.

    Raises:
        SfumatoError: as `attack`, or if a view is empty or outside of an upload.
    """
    return {
        view: attack(
            shadow.restrict(index),
            attacked.restrict(index),
            streams,
            None if noise is None else noise.restrict(index),
            names,
        )
        for view, index in views.items()
    }
