"""The client: clip, shrink, modulate, add noise, send. Nothing here looks at more than one sample at a time.

>>> import numpy as np
>>> from sfumato.rng import Streams
>>> plan = ModulatedPlan(Domain(features=3, radius=1.0), Modulation(amplitude=0.5), rounds=1)
>>> directions = orthonormal_directions(np.zeros(3), 1, Streams(0).stream("directions"))
>>> message = send(np.array([0.3, 0.4, 9.0]), 0.5, plan.calibrate(5.0, 1e-5), directions, Streams(0).stream("client/7"))
>>> message.features.shape, message.label
((3,), 0.5)

``send`` is one client. ``messages`` is many clients at once, block by block, with the same arithmetic: the server
sees a block and forgets it, so that memory does not grow with the number of clients.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.modulated.plan import CalibratedModulation, Domain, ModulatedPlan, Modulation
from sfumato.rng import RandomStream, Streams

__all__ = [
    "BLOCK",
    "Block",
    "Domain",
    "Message",
    "ModulatedPlan",
    "Modulation",
    "clip_samples",
    "messages",
    "orthonormal_directions",
    "send",
]

BLOCK: Final = 4096
"""Clients per block, few enough for the cache; a block draws its normals before its phases, so the messages depend on it."""

Floats = NDArray[Any]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Message:
    """What one client sends in one round.

    Attributes:
        features: (n,), the privatised features.
        label: in the clear with public labels, privatised with private ones.
    """

    features: NDArray[np.float64]
    label: float


@dataclass(frozen=True, eq=False)
class Block:
    """The messages of consecutive clients; the arrays are overwritten by the next block, so use or copy them first.

    Attributes:
        features: (b, n), privatised.
        labels: (b,), clear or privatised.
        faulty: how many of the samples had a part that was not finite, which counted as zero. A fact about the
            private data, for simulations; it is not part of the messages.
    """

    features: Floats
    labels: Floats
    faulty: int


def orthonormal_directions(
    coefficients: NDArray[np.float64], count: int, stream: RandomStream
) -> NDArray[np.float64]:
    """V, (n, m): random orthonormal directions, orthogonal to the coefficients where these are not zero.

    Args:
        coefficients: (n,) beta of the features, known to everybody.
        count: m, below n where the coefficients are not zero.
        stream: public randomness.

    Raises:
        SfumatoError: if there is no room for so many directions.
    """
    size = len(coefficients)
    if not np.all(np.isfinite(coefficients)):
        raise SfumatoError("coefficients hold a number that is not finite; allowed are finite numbers.")
    largest = float(np.max(np.abs(coefficients), initial=0.0))
    unit = coefficients / largest if largest > 0 else coefficients  # a norm that neither over- nor underflows
    norm = float(np.linalg.norm(unit))
    taken = 1 if norm > 0 else 0
    if not 0 <= count <= size - taken:
        raise SfumatoError(f"directions is {count}; allowed with {size} features are at most {size - taken}.")
    first = [unit[:, None] / norm] if taken else []
    columns = np.concatenate([*first, stream.standard_normal((size, count))], axis=1)
    basis, _triangle = np.linalg.qr(columns)
    return np.ascontiguousarray(basis[:, taken:])


def send(
    features: NDArray[np.float64],
    label: float,
    calibrated: CalibratedModulation,
    directions: NDArray[np.float64],
    stream: RandomStream,
) -> Message:
    """One client's message of one round.

    Guarantee: as ``ModulatedPlan.calibrate`` promises, if ``stream`` is fresh and known to nobody else. Features that
    are not finite count as zeros, and so does a label that is not; a label that is sent in the clear stays what it is
    whatever the features are, since its neighbours have the same one.

    Args:
        features: (n,), clipped to the domain's radius here.
        label: clipped to the domain's bound here.
        calibrated: the public protocol.
        directions: V, (n, m), from the server.
        stream: the client's own randomness.
    """
    rows = np.asarray(features, dtype=np.float64)[None, :]
    _check_shapes(rows, np.array([label]), calibrated, directions)
    sent = _Sender(calibrated, directions, np.dtype(np.float64), 1)
    block = sent.block(rows, np.array([float(label)]), stream)
    return Message(block.features[0].copy(), float(block.labels[0]))


def messages(
    features: Floats,
    labels: Floats,
    calibrated: CalibratedModulation,
    directions: NDArray[np.float64],
    streams: Streams,
    round_number: int = 0,
) -> Iterator[Block]:
    """The messages of all clients in one round, block by block.

    Guarantee: as for ``send``, client by client.

    Args:
        features: (K, n) float32 or float64; messages have the same dtype. Not changed.
        labels: (K,).
        calibrated: the public protocol.
        directions: V, (n, m).
        streams: the run's randomness; each round has its own stream.
        round_number: which round.

    Raises:
        SfumatoError: if shapes, dtypes, directions or the round do not fit the plan.
    """
    _check_shapes(features, labels, calibrated, directions)
    if not 0 <= round_number < calibrated.plan.rounds:
        raise SfumatoError(
            f"round_number is {round_number}; allowed with {calibrated.plan.rounds} rounds is 0 to "
            f"{calibrated.plan.rounds - 1}, since further messages are not in the budget."
        )
    sender = _Sender(calibrated, directions, features.dtype, min(BLOCK, max(1, len(features))))
    stream = streams.bulk("clients", round_number)
    for start in range(0, len(features), BLOCK):
        rows = slice(start, start + BLOCK)
        yield sender.block(features[rows], labels[rows], stream)


def _check_shapes(
    features: Floats, labels: Floats, calibrated: CalibratedModulation, directions: NDArray[np.float64]
) -> None:
    size, count = calibrated.plan.domain.features, calibrated.plan.modulation.directions
    if features.ndim != 2 or features.shape[1] != size:
        raise SfumatoError(f"features has shape {features.shape}; allowed is (clients, {size}).")
    if str(features.dtype) not in ("float32", "float64"):
        raise SfumatoError(f"features has dtype {features.dtype}; allowed are float32 and float64.")
    if labels.shape != (len(features),):
        raise SfumatoError(f"labels has shape {labels.shape}; allowed is ({len(features)},).")
    plan = calibrated.plan
    if plan.modulation.phase != "fresh":
        raise SfumatoError(
            f"phase is {plan.modulation.phase!r}; allowed for sending is 'fresh', the only protocol that clients here follow."
        )
    if plan.modulation.amplitude > 0:
        if directions.shape != (size, count):
            raise SfumatoError(f"directions has shape {directions.shape}; allowed is ({size}, {count}).")
        check_orthonormal(directions)


def check_orthonormal(directions: NDArray[np.float64]) -> None:
    """Refuse directions of a server that a client cannot trust: large ones would drown noise and phase.

    Raises:
        SfumatoError: unless all are finite and orthonormal to 1e-6.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(directions.T @ directions - np.eye(directions.shape[1]))
    largest = float(np.max(off, initial=0.0))
    if not largest <= 1e-6:
        raise SfumatoError(f"directions are off from orthonormal by {largest:g}; allowed is up to 1e-06.")


def clip_samples(
    features: Floats, labels: Floats, domain: Domain, out: Floats | None = None
) -> tuple[Floats, Vector, NDArray[np.bool_]]:
    """Samples within the public bounds; features whose norm is not finite count as zeros, and a label that is not as zero.

    Guarantee: each returned row has Euclidean norm at most the radius, and each label absolute value at most the
    bound; each row depends on its own sample alone, and each label on itself alone.

    Args:
        features: (b, n) float32 or float64; returned as they are where no row has to be changed.
        labels: (b,).
        domain: the bounds.
        out: where changed rows are put; a new array by default.

    Returns:
        features (b, n), labels (b,) float64, and which samples were not finite (b,).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # A product with ones adds rows up faster than any sum over an axis.
        squares = np.multiply(features, features, out=out) @ np.ones(features.shape[1], features.dtype)
        # A sum in the samples' own precision decides only what is far from the radius.
        safe = domain.radius**2 * (1.0 - 4.0 * features.shape[1] * np.finfo(squares.dtype).eps)
        if _all_within(squares, safe) and _all_within(np.abs(labels), domain.label_bound):
            return features, labels.astype(np.float64), np.zeros(len(labels), bool)
        doubtful = ~(squares <= safe)
        squares = squares.astype(np.float64)
        squares[doubtful] = np.square(features[doubtful], dtype=np.float64).sum(axis=1)
    faulty = ~np.isfinite(squares)
    faulty |= ~np.isfinite(labels)
    bounded = np.clip(labels, -domain.label_bound, domain.label_bound).astype(np.float64)
    # The label does not follow the features: one that is public would otherwise say that they are missing.
    bounded[~np.isfinite(labels)] = 0.0
    outside = squares > domain.radius**2
    if not outside.any() and not faulty.any():
        return features, bounded, faulty
    # Four units of rounding below the radius, so that rounding cannot put a row outside again.
    limit = domain.radius * (1.0 - 4.0 * np.finfo(features.dtype).eps)
    clipped = np.empty(features.shape, features.dtype) if out is None else out
    clipped[...] = features
    outside &= ~faulty
    clipped[outside] = features[outside].astype(np.float64) * (limit / np.sqrt(squares[outside]))[:, None]
    clipped[faulty] = 0.0
    return clipped, bounded, faulty


def _all_within(values: Floats, bound: float) -> bool:
    """Whether all are at most the bound; no, if one is not a number."""
    return bool(values.max(initial=-np.inf) <= bound)


def add_product(target: Floats, left: Floats, right: Floats) -> None:
    """``target += left @ right.T`` without a copy of the product's size; target is C-contiguous (b, n)."""
    _check_contiguous(target)
    blas: Any = importlib.import_module("scipy.linalg.blas")
    multiply = blas.sgemm if target.dtype == np.float32 else blas.dgemm
    multiply(1.0, right.T, left.T, 1.0, target.T, trans_a=1, overwrite_c=1)


def add_multiple(target: Floats, values: Floats, factor: float) -> None:
    """``target += factor * values`` in one pass and without a copy of their size.

    Args:
        target: C-contiguous float32 or float64; changed in place.
        values: of the same shape and dtype.
        factor: a finite number.
    """
    _check_contiguous(target)
    blas: Any = importlib.import_module("scipy.linalg.blas")
    add = blas.saxpy if target.dtype == np.float32 else blas.daxpy
    add(values.reshape(-1), target.reshape(-1), a=factor)


def _check_contiguous(target: Floats) -> None:
    if not target.flags.c_contiguous:
        raise SfumatoError(
            "target is not C-contiguous; allowed is an array that a product can be added to in place."
        )


class _Sender:
    """The arithmetic of a block, in buffers that are used again."""

    def __init__(
        self,
        calibrated: CalibratedModulation,
        directions: NDArray[np.float64],
        dtype: np.dtype[Any],
        rows: int,
    ) -> None:
        plan = calibrated.plan
        self._plan, self._calibrated = plan, calibrated
        self._directions = directions.astype(dtype)
        self._noise = np.empty((rows, plan.domain.features), dtype)
        self._clipped = np.empty((rows, plan.domain.features), dtype)

    def block(self, features: Floats, labels: Floats, stream: RandomStream) -> Block:
        """The messages of one block of clients."""
        plan, count = self._plan, len(features)
        clipped, sent_labels, faulty = clip_samples(features, labels, plan.domain, self._clipped[:count])
        message = self._noise[:count]
        stream.fill_normal(message, self._calibrated.noise_std)
        if plan.modulation.amplitude > 0:
            self._modulate(message, clipped, stream)
        add_multiple(message, clipped, plan.modulation.scale)
        if plan.labels == "private":
            noise = stream.standard_normal(count) * self._calibrated.label_noise_std
            sent_labels = sent_labels + noise
        return Block(message, sent_labels, int(faulty.sum()))

    def _modulate(self, message: Floats, clipped: Floats, stream: RandomStream) -> None:
        """Add (lambda / sqrt(m)) cos(omega <x, v_k> + phi_k) v_k with a fresh phase per client and direction."""
        modulation = self._plan.modulation
        # Turns are added up in float64 whatever the messages' dtype, so that no rounding swallows the phase.
        turns = np.multiply(
            clipped @ self._directions, modulation.frequency / (2.0 * np.pi), dtype=np.float64
        )
        turns += stream.random(turns.shape)
        turns -= np.floor(turns)
        turns *= 2.0 * np.pi
        waves = turns.astype(message.dtype)
        np.cos(waves, out=waves)
        waves *= modulation.direction_amplitude
        add_product(message, waves, self._directions)
