"""Record and replay of the local mechanism: what one client's sample can change, with everybody's randomness fixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.modulated.baselines import LocalSgdPlan, clipped_gradients
from sfumato.modulated.client import messages, orthonormal_directions
from sfumato.modulated.iterative import Steps, iterate, release_of
from sfumato.modulated.plan import Domain, ModulatedPlan, Modulation
from sfumato.modulated.server import Moments
from sfumato.rng import Streams

PLAN = ModulatedPlan(Domain(3, 1.0), Modulation(0.2, 1.0, 3.0, 2))
OTHERS = np.random.default_rng(0).uniform(-1, 1, (5, 3))
ANY = st.floats(-1e6, 1e6, allow_nan=False) | st.sampled_from([np.nan, np.inf, -np.inf])


def _sent(plan: ModulatedPlan, sample: np.ndarray, label: float) -> tuple[np.ndarray, np.ndarray]:
    """All messages of six clients, the last with this sample, under fixed noise and phases."""
    x, y = np.vstack([OTHERS, sample]), np.append(np.zeros(5), label)
    directions = orthonormal_directions(np.zeros(3), 2, Streams(1).stream("directions"))
    (block,) = messages(x, y, plan.calibrate(1.0, 1e-5), directions, Streams(3))
    return block.features.copy(), block.labels.copy()


@given(arrays(np.float64, 3, elements=ANY), arrays(np.float64, 3, elements=ANY))
@settings(max_examples=200, deadline=None)
def test_at_fixed_phases_a_message_moves_by_at_most_the_lipschitz_sensitivity(
    one: np.ndarray, two: np.ndarray
) -> None:
    first, second = _sent(PLAN, one, 0.0)[0], _sent(PLAN, two, 0.0)[0]
    assert np.array_equal(first[:5], second[:5])
    assert np.linalg.norm(first[5] - second[5]) <= PLAN.sensitivity("lipschitz") * (1 + 1e-9)


@given(arrays(np.float64, 3, elements=ANY), arrays(np.float64, 3, elements=ANY))
@settings(max_examples=200, deadline=None)
def test_without_the_cosine_it_moves_by_at_most_the_marginal_sensitivity(
    one: np.ndarray, two: np.ndarray
) -> None:
    plan = replace(PLAN, modulation=replace(PLAN.modulation, amplitude=0.0))
    first, second = _sent(plan, one, 0.0)[0], _sent(plan, two, 0.0)[0]
    assert np.linalg.norm(first[5] - second[5]) <= PLAN.sensitivity("phase_marginal") * (1 + 1e-9)


@given(arrays(np.float64, 3, elements=ANY), ANY, arrays(np.float64, 3, elements=ANY), ANY)
@settings(max_examples=200, deadline=None)
def test_a_private_label_moves_with_the_features_by_at_most_the_joint_sensitivity(
    one: np.ndarray, label_one: float, two: np.ndarray, label_two: float
) -> None:
    plan = replace(
        PLAN, labels="private", label_weight=0.7, modulation=replace(PLAN.modulation, amplitude=0.0)
    )
    (x1, y1), (x2, y2) = _sent(plan, one, label_one), _sent(plan, two, label_two)
    moved = np.append(x1[5] - x2[5], 0.7 * (y1[5] - y2[5]))
    assert np.linalg.norm(moved) <= plan.neighbor_distance * (1 + 1e-9)


@given(
    arrays(np.float64, (2, 4), elements=st.floats(-1e3, 1e3)),
    arrays(np.float64, 4, elements=st.floats(-10, 10)),
)
@settings(max_examples=150, deadline=None)
def test_clipped_gradients_of_two_samples_lie_within_two_clip_norms(
    rows: np.ndarray, beta: np.ndarray
) -> None:
    plan = LocalSgdPlan(Domain(3, 1.0), 0.4)
    one, two = clipped_gradients(rows, np.array([0.5, -0.5]), beta, plan.clip_norm)
    assert np.linalg.norm(one - two) <= plan.neighbor_distance * (1 + 1e-12)


@pytest.mark.parametrize("regime", ["same_clients", "disjoint_groups"])
def test_the_server_works_from_messages_alone(regime: str) -> None:
    """Replaying recorded moments without any sample gives the same coefficients, bit for bit."""
    random = np.random.default_rng(1)
    x, y = random.uniform(-0.5, 0.5, (40, 3)), random.uniform(-0.5, 0.5, 40)
    calibrated = replace(PLAN, rounds=4, regime=regime).calibrate(5.0, 1e-5)  # type: ignore[arg-type]
    real, recorded = release_of(x, y, calibrated, Streams(2)), list[Moments]()

    def recording(clients: slice, directions: np.ndarray, number: int) -> Moments:
        recorded.append(real(clients, directions, number))
        return recorded[-1]

    fit = iterate(40, calibrated, Steps(0.5), Streams(2), recording)
    again = iterate(40, calibrated, Steps(0.5), Streams(2), lambda _c, _d, number: recorded[number])
    assert np.array_equal(fit.coefficients, again.coefficients)
