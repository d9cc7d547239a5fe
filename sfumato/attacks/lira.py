"""LiRA: membership by the likelihood ratio under shadow models (Carlini et al. 2022).

>>> from sfumato.rng import Streams
>>> memberships = balanced_memberships(8, 500, Streams(0).stream("memberships"))
>>> noise = Streams(0).stream("training").standard_normal((8, 500))
>>> scores, references = leave_one_out_scores(noise + 3.0 * memberships, memberships, mode="online")
>>> references, bool(scores[memberships].mean() > scores[~memberships].mean())
(6, True)

A shadow model is trained as the target is, on a random half of the examples. For each example the
confidences of the shadows that held it and of those that did not are fitted by one Gaussian each; the
target's confidence is then judged by their likelihood ratio (online), or by how far it lies above the second
Gaussian (offline, which needs no shadow that holds the attacked example). Every model serves as the
target once, with the others as its references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.audit import AuditResult, audit_one_run
from sfumato.attacks.membership import FALSE_POSITIVE_RATES, MembershipResult, summarize
from sfumato.attacks.roc import FloatArray, roc_curve, tpr_at_fpr
from sfumato.errors import SfumatoError
from sfumato.rng import RandomStream

BoolArray = NDArray[np.bool_]
Mode = Literal["online", "offline"]
Variance = Literal["auto", "global", "per_example"]

PER_EXAMPLE_VARIANCE_FROM = 64
"""References from which a variance per example beats a pooled one (Carlini et al. 2022, Section 6)."""

VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True, eq=False)
class LiraResult:
    """What LiRA reached over all targets.

    Attributes:
        membership: figures of the pooled scores. Its intervals treat the scores as independent although
            the same examples recur with every target; ``tpr_spread`` shows the variation between targets.
        tpr_spread: for each reported false-positive rate, the standard deviation over the targets of the
            true-positive rate of that target's own curve.
        audit: the one-run audit of the first model by its scores, a true bound of epsilon if the
            memberships were independent fair coins (those of ``balanced_memberships`` are, in one model).
        mode: ``online`` or ``offline``.
        variance: ``global`` or ``per_example``, what was used.
        shadow_models: number of trained models.
        references: the fewest models that one target was judged by.
    """

    membership: MembershipResult
    tpr_spread: tuple[float, ...]
    audit: AuditResult
    mode: Mode
    variance: Variance
    shadow_models: int
    references: int


def logit_confidence(logits: ArrayLike, labels: ArrayLike) -> FloatArray:
    """The logit-scaled confidence log p_y - log(1 - p_y) of each example, stable for p_y near 0 or 1.

    Computed as z_y - logsumexp of the other logits (Carlini et al. 2022, Section 4.2).

    Args:
        logits: shape (examples, classes), at least two classes, finite.
        labels: integers in 0..classes-1, shape (examples,).

    Returns:
        float64, shape (examples,).

    Raises:
        SfumatoError: on other shapes, labels out of range or logits that are not finite.
    """
    z, y = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    if z.ndim != 2 or z.shape[1] < 2 or y.shape != z.shape[:1]:
        raise SfumatoError(
            f"logits have shape {z.shape}, labels {y.shape}; allowed are (n, classes >= 2), (n,)."
        )
    if not np.issubdtype(y.dtype, np.integer) or (
        y.size and (int(y.min()) < 0 or int(y.max()) >= z.shape[1])
    ):
        raise SfumatoError(f"labels have type {y.dtype}; allowed are integers in 0..{z.shape[1] - 1}.")
    if not bool(np.all(np.isfinite(z))):
        raise SfumatoError("logits hold a number that is not finite; allowed are finite numbers.")
    own = np.take_along_axis(z, y[:, None], axis=1)[:, 0]
    others = z.copy()
    np.put_along_axis(others, y[:, None], -np.inf, axis=1)
    top = others.max(axis=1)
    return own - top - np.log(np.exp(others - top[:, None]).sum(axis=1))


def balanced_memberships(n_models: int, n_examples: int, stream: RandomStream) -> BoolArray:
    """Which model is trained on which example: each example in exactly half of the models.

    Models 2j and 2j + 1 are complements of each other, decided by a fair coin per example. So
    the memberships of one model are independent fair coins, as the one-run audit asks; rows do not change
    when models are added, so row k is a function of (stream, k) and a cached shadow stays valid.

    Args:
        n_models: even, at least 2.
        n_examples: at least 1.
        stream: freshly made from its name, the same for every shadow's stage.

    Returns:
        bool, shape (n_models, n_examples).

    Raises:
        SfumatoError: if a number is out of its range.
    """
    if n_models < 2 or n_models % 2:
        raise SfumatoError(f"n_models is {n_models}; allowed is an even number of at least 2.")
    if n_examples < 1:
        raise SfumatoError(f"n_examples is {n_examples}; allowed is at least 1.")
    coins = stream.random((n_models // 2, n_examples)) < 0.5
    return np.stack([coins, ~coins], axis=1).reshape(n_models, n_examples)


def _gaussians(
    values: FloatArray, chosen: BoolArray, pooled: bool, side: str
) -> tuple[FloatArray, FloatArray | np.float64]:
    """Mean and variance over the chosen models for each example; the variance pooled over examples or not."""
    count = chosen.sum(axis=0)
    need = 1 if pooled else 2
    if int(count.min()) < need:
        short = int(np.argmin(count))
        raise SfumatoError(
            f"example {short} has {count[short]} shadow models {side} it; allowed are at least {need}."
        )
    mean = np.where(chosen, values, 0.0).sum(axis=0) / count
    squares = (np.where(chosen, values - mean, 0.0) ** 2).sum(axis=0)
    if pooled:
        freedom = int(np.sum(count - 1))
        if freedom < 1:
            raise SfumatoError(
                f"every example has one shadow model {side} it; allowed are at least 2 for some."
            )
        return mean, np.float64(max(float(squares.sum()) / freedom, VARIANCE_FLOOR))
    return mean, np.maximum(squares / (count - 1), VARIANCE_FLOOR)


def lira_scores(
    target_confidences: ArrayLike,
    shadow_confidences: ArrayLike,
    shadow_memberships: ArrayLike,
    *,
    mode: Mode = "online",
    variance: Variance = "auto",
) -> FloatArray:
    """The LiRA score of each example for one target model; larger means likelier a member.

    Online: log N(phi; in) - log N(phi; out). Offline: (phi - mean out) / std out, which ranks as the paper's
    one-sided 1 - P(Z > phi) does but does not saturate at 1.

    The pooled variance is the mean within-example variance with the degrees of freedom of the fitted
    means; the spread *between* examples is not part of it.

    Args:
        target_confidences: from ``logit_confidence``, shape (examples,).
        shadow_confidences: shape (shadows, examples).
        shadow_memberships: bool, whether the shadow was trained on the example; shape (shadows, examples).
        mode: ``online`` or ``offline``.
        variance: ``global`` (pooled over examples), ``per_example``, or ``auto``: pooled under 64 shadows.

    Returns:
        float64, shape (examples,).

    Raises:
        SfumatoError: on shapes that differ, confidences that are not finite, an unknown option, or an example
            with too few shadows with or without it.
    """
    phi, shadows, inside = _checked(target_confidences, shadow_confidences, shadow_memberships)
    pooled = _variance_rule(variance, shadows.shape[0]) == "global"
    mean_out, var_out = _gaussians(shadows, ~inside, pooled, "without")
    if mode == "offline":
        return (phi - mean_out) / np.sqrt(var_out)
    if mode != "online":
        raise SfumatoError(f"mode is {mode!r}; allowed are 'online' and 'offline'.")
    mean_in, var_in = _gaussians(shadows, inside, pooled, "with")
    return 0.5 * (
        (phi - mean_out) ** 2 / var_out + np.log(var_out) - (phi - mean_in) ** 2 / var_in - np.log(var_in)
    )


def _variance_rule(variance: Variance, shadows: int) -> Variance:
    if variance == "auto":
        return "global" if shadows < PER_EXAMPLE_VARIANCE_FROM else "per_example"
    if variance not in ("global", "per_example"):
        raise SfumatoError(f"variance is {variance!r}; allowed are 'auto', 'global' and 'per_example'.")
    return variance


def _checked(
    target: ArrayLike, shadows: ArrayLike, memberships: ArrayLike
) -> tuple[FloatArray, FloatArray, BoolArray]:
    phi, values, inside = (
        np.asarray(target, np.float64),
        np.asarray(shadows, np.float64),
        np.asarray(memberships),
    )
    if inside.dtype != np.bool_:
        raise SfumatoError(f"memberships have type {inside.dtype}; allowed is bool.")
    if values.ndim != 2 or inside.shape != values.shape or phi.shape != values.shape[1:] or phi.size == 0:
        raise SfumatoError(
            f"confidences have shape {values.shape}, memberships {inside.shape} and the target {phi.shape};"
            " allowed are (shadows, examples) twice and (examples,)."
        )
    if not (bool(np.all(np.isfinite(values))) and bool(np.all(np.isfinite(phi)))):
        raise SfumatoError("confidences hold a number that is not finite; allowed are finite numbers.")
    return phi, values, inside


def leave_one_out_scores(
    confidences: ArrayLike,
    memberships: ArrayLike,
    *,
    mode: Mode = "online",
    variance: Variance = "auto",
) -> tuple[FloatArray, int]:
    """Scores of every model as the target, with the other models as its references.

    A model whose memberships are the exact complement of the target's is left out too: the counts of models
    with and without an example would otherwise tell the target's membership, and by that bias the scores.

    Args:
        confidences: shape (models, examples).
        memberships: bool, shape (models, examples).
        mode: as in ``lira_scores``.
        variance: as in ``lira_scores``; ``auto`` goes by the number of references.

    Returns:
        Scores, float64, shape (models, examples), and the fewest references of a target.

    Raises:
        SfumatoError: as ``lira_scores``; also for fewer than 3 models.
    """
    values, inside = np.asarray(confidences, np.float64), np.asarray(memberships)
    if values.ndim != 2 or values.shape[0] < 3:
        raise SfumatoError(f"confidences have shape {values.shape}; allowed is (models >= 3, examples).")
    _checked(values[0], values, inside)
    scores, references = np.empty_like(values), values.shape[0]
    for target in range(values.shape[0]):
        kept = np.any(inside == inside[target], axis=1)
        kept[target] = False
        references = min(references, int(kept.sum()))
        if not references:
            raise SfumatoError(
                f"model {target} has no reference model; allowed are models besides its complement."
            )
        scores[target] = lira_scores(values[target], values[kept], inside[kept], mode=mode, variance=variance)
    return scores, references


def lira_attack(
    confidences: ArrayLike,
    memberships: ArrayLike,
    stream: RandomStream,
    *,
    shadow_models: int,
    delta: float,
    mode: Mode = "online",
    variance: Variance = "auto",
    guess_fraction: float = 0.02,
    confidence: float = 0.95,
    fprs: Sequence[float] = FALSE_POSITIVE_RATES,
) -> LiraResult:
    """LiRA over all models, each as the target once (Carlini et al. 2022).

    Args:
        confidences: from ``logit_confidence`` of every model on every example, shape (models, examples).
        memberships: bool, shape (models, examples); from ``balanced_memberships`` of the training's stream.
        stream: halves the pooled scores for the epsilon summary.
        shadow_models: how many models were asked for; another number of rows is refused, as an attack with
            fewer references than stated is weaker than its name.
        delta: of the epsilon bounds, in [0, 1).
        mode: ``online`` or ``offline``.
        variance: as in ``lira_scores``; it is decided by the number of references.
        guess_fraction: fraction of the examples on which the audit of the first model guesses, fixed before.
        confidence: of all intervals.
        fprs: false-positive rates to report at.

    Raises:
        SfumatoError: if the rows are not ``shadow_models`` many, or as ``leave_one_out_scores``.
    """
    values, inside = np.asarray(confidences, np.float64), np.asarray(memberships)
    present = values.shape[0] if values.ndim == 2 else 0
    if present != shadow_models:
        raise SfumatoError(
            f"shadow_models is {shadow_models} but {present} are present; allowed is an equal number."
        )
    scores, references = leave_one_out_scores(values, inside, mode=mode, variance=variance)
    pooled = summarize(
        f"lira_{mode}", scores[inside], scores[~inside], stream, delta=delta, confidence=confidence, fprs=fprs
    )
    curves = [roc_curve(row[member], row[~member]) for row, member in zip(scores, inside, strict=True)]
    spread = tuple(float(np.std([tpr_at_fpr(curve, fpr).tpr for curve in curves], ddof=1)) for fpr in fprs)
    return LiraResult(
        membership=pooled,
        tpr_spread=spread,
        audit=audit_one_run(
            scores[0], inside[0], delta=delta, confidence=confidence, guess_fractions=guess_fraction
        ),
        mode=mode,
        variance=_variance_rule(variance, references),
        shadow_models=present,
        references=references,
    )
