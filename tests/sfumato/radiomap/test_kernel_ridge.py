"""The closed form of leaving maps out equals fitting without them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.radiomap.kernel_ridge import Checks, fit, penalties_of


def refitted(features: np.ndarray, positions: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of centred features and the intercept, by the primal normal equations."""
    centred, mean = features - features.mean(axis=0), positions.mean(axis=0)
    slopes = np.linalg.solve(
        centred.T @ centred + penalty * np.eye(features.shape[1]), centred.T @ (positions - mean)
    )
    return slopes, mean - features.mean(axis=0) @ slopes


@given(st.integers(0, 2**32 - 1), st.integers(3, 9), st.integers(1, 4), st.sampled_from([1e-2, 1.0, 50.0]))
@settings(max_examples=30, deadline=None)
def test_held_out_guesses_are_those_of_a_fit_without_the_map(
    seed: int, groups: int, copies: int, penalty: float
) -> None:
    random = np.random.default_rng(seed)
    features = random.standard_normal((groups * copies, 5)) + 3.0
    positions = random.uniform(0.0, 100.0, (len(features), 2))
    labels = random.permutation(np.repeat(np.arange(groups), copies))
    rows = random.standard_normal((7, 5)) + 3.0
    row_labels = random.integers(0, groups, 7)
    gram = features @ features.T
    own = fit(gram, positions, labels, 1e6, np.array([penalty]))
    others = fit(
        gram,
        positions,
        labels,
        1e6,
        np.array([penalty]),
        Checks(rows @ features.T, np.zeros((7, 2)), row_labels),
    )
    for checked, seen, where in ((own, features, labels), (others, rows, row_labels)):
        for number, label in enumerate(where):
            slopes, intercept = refitted(features[labels != label], positions[labels != label], penalty)
            expected = np.clip(seen[number] @ slopes + intercept, 0.0, 1e6)
            assert np.allclose(checked.held_out[number], expected, atol=1e-6)
    slopes, intercept = refitted(features, positions, penalty)
    assert np.allclose(
        own.predict(rows @ features.T), np.clip(rows @ slopes + intercept, 0.0, 1e6), atol=1e-6
    )


def test_the_penalty_with_the_smallest_held_out_error_is_chosen() -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((60, 30))
    positions = 50.0 + features[:, :2] * 5.0 + random.standard_normal((60, 2)) * 5.0
    gram, labels = features @ features.T, np.arange(60) // 3
    chosen = fit(gram, positions, labels, 100.0)
    alone = [fit(gram, positions, labels, 100.0, np.array([value])) for value in penalties_of(gram)]
    assert chosen.error == pytest.approx(min(one.error for one in alone))
    assert chosen.penalty in penalties_of(gram)
    away = np.linalg.norm(chosen.held_out - positions, axis=1)
    assert chosen.error == pytest.approx(np.sqrt(np.mean(away**2)))


def test_noisy_copies_of_a_session_teach_nothing_only_if_they_are_held_out_together() -> None:
    """Each of 30 sessions has its own direction and no signal; six copies of it straddle a split by rows."""
    random = np.random.default_rng(0)
    sessions = np.repeat(random.standard_normal((30, 200)), 6, axis=0)
    features = sessions + 0.1 * random.standard_normal(sessions.shape)
    positions = np.repeat(random.uniform(0.0, 100.0, (30, 2)), 6, axis=0)
    gram, spread = features @ features.T, float(np.sqrt(positions.var(axis=0).sum()))
    assert fit(gram, positions, np.arange(180), 100.0).error < 0.2 * spread
    assert fit(gram, positions, np.repeat(np.arange(30), 6), 100.0).error > 0.95 * spread


def test_features_without_variance_give_the_mean_position() -> None:
    positions = np.array([[0.0, 10.0], [20.0, 30.0], [40.0, 80.0]])
    fitted = fit(np.zeros((3, 3)), positions, np.arange(3), 100.0)
    assert fitted.predict(np.zeros((2, 3))) == pytest.approx(np.array([[20.0, 40.0]] * 2))
