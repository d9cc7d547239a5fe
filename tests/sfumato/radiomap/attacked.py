"""Uploads that depend on the position in a known way."""

from __future__ import annotations

import numpy as np

from sfumato.radiomap.features import Noise, Sessions

WINDOW = 256.0


def linear_sessions(
    count: int,
    mixing: np.ndarray,
    deviation: np.ndarray | float,
    seed: int,
    first_map: int = 0,
    per_map: int = 4,
    known: bool = True,
) -> Sessions:
    """Uploads x = mixing' (p - centre) + N(0, deviation^2) of uniform positions p."""
    random = np.random.default_rng(seed)
    positions = random.uniform(0.0, WINDOW, (count, 2))
    clean = (positions - WINDOW / 2) @ mixing
    uploads = clean + deviation * random.standard_normal(clean.shape)
    maps = first_map + np.arange(count) // per_map
    return Sessions(uploads, positions, maps, WINDOW, clean if known else None)  # type: ignore[arg-type]


def best_linear_error(mixing: np.ndarray, deviation: np.ndarray | float) -> float:
    """Root of tr (Sigma_p^-1 + M D^-2 M')^-1, the least error of any linear guess."""
    precision = (mixing / np.broadcast_to(deviation, mixing.shape[1]) ** 2) @ mixing.T
    return float(np.sqrt(np.trace(np.linalg.inv(np.eye(2) * 12.0 / WINDOW**2 + precision))))


def knowledge(sessions: Sessions, deviation: np.ndarray | float) -> Noise:
    """The true variances of every weight."""
    assert sessions.clean is not None
    variance = np.broadcast_to(np.asarray(deviation, np.float64) ** 2, sessions.dimension).copy()
    return Noise(variance, sessions.clean.var(axis=0, dtype=np.float64))
