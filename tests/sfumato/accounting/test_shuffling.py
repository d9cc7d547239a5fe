"""Shuffling: the theorem's numbers, its conditions, an exact clones computation beside it, and calibrated noise."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from sfumato.accounting import calibrate_gaussian, gaussian_delta
from sfumato.accounting.shuffling import (
    APPROXIMATE,
    POST_PROCESSING,
    PURE,
    ShuffleBound,
    calibrate_shuffled_gaussian,
    shuffled_epsilon,
)
from sfumato.errors import AccountingError

EPSILONS = st.floats(0.0, 12.0)
LOG_CLIENTS = st.floats(0.0, 18.0)
LOG_DELTAS = st.floats(-30.0, -1.0)
LOG_SHARES = st.floats(-40.0, 3.0)


def bound_of(local_epsilon: float, log_clients: float, log_delta: float, log_share: float) -> ShuffleBound:
    """The bound of a local delta that is a share of delta / K."""
    clients, delta = max(1, int(math.exp(log_clients))), math.exp(log_delta)
    return shuffled_epsilon(local_epsilon, min(0.9, delta / clients * math.exp(log_share)), clients, delta)


def clones_delta(local_epsilon: float, clients: int, epsilon: float) -> float:
    """An upper bound of delta(epsilon) of the pair that Theorem 3.2 reduces all pure randomizers to, by summation.

    C ~ Bin(K - 1, e^-epsilon0) clones, A ~ Bin(C, 1/2) of them of the first kind, and the client itself is of the
    first kind with probability e^epsilon0 / (e^epsilon0 + 1), or one minus that; the two counts are seen. What is
    cut off in C is counted as lost.
    """

    def log_binomial(trials: np.ndarray, successes: np.ndarray, rate: float) -> np.ndarray:
        ways = (
            special.gammaln(trials + 1.0)
            - special.gammaln(successes + 1.0)
            - special.gammaln(trials - successes + 1.0)
        )
        return ways + special.xlogy(successes, rate) + special.xlog1py(trials - successes, -rate)

    rate, weight = math.exp(-local_epsilon), 1.0 / (1.0 + math.exp(-local_epsilon))
    spread = 9.0 * math.sqrt(clients * rate) + 40.0
    mean = (clients - 1) * rate
    counts = np.arange(max(0, int(mean - spread)), min(clients - 1, int(mean + spread)) + 1, dtype=float)
    mass = np.exp(log_binomial(np.full_like(counts, clients - 1), counts, rate))
    total = max(0.0, 1.0 - float(mass.sum()))
    for clones, share in zip(counts, mass, strict=True):
        seen = np.arange(0.0, clones + 2.0)
        half = np.exp(log_binomial(np.full_like(seen[:-1], clones), seen[:-1], 0.5))
        without, one = np.append(half, 0.0), np.append(0.0, half)
        first, second = weight * one + (1 - weight) * without, weight * without + (1 - weight) * one
        total += share * float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())
    return total


# --- the theorem


def test_a_pure_randomizer_gets_the_number_of_the_formula() -> None:
    # By hand: r = (e - 1) / (e + 1) = 0.46211716, log(4e6) = 15.2018049,
    # 8 sqrt(e 15.2018049 / 1e6) = 0.05142642, 8 e / 1e6 = 2.17463e-5, log(1 + r 0.05144817) = 0.02349678.
    bound = shuffled_epsilon(1.0, 0.0, 1_000_000, 1e-6)
    assert bound.epsilon == pytest.approx(0.02349678, abs=5e-8)
    assert (bound.theorem, bound.reason, bound.clones_delta) == (PURE, None, 1e-6)


def test_a_local_delta_gets_the_number_of_the_extension() -> None:
    # By hand, with delta' = 5e-6 and delta0 = 5e-6 / ((e^epsilon + 1) (1 + e^-2 / 2) 1e5): r = tanh(1) = 0.76159416,
    # log(8e5) = 13.59236701, 8 sqrt(e^2 13.59236701 / 1e5) = 0.25353..., 8 e^2 / 1e5 = 5.9112e-4.
    epsilon = math.log(
        1
        + 0.7615941559557649
        * (8 * math.sqrt(7.38905609893065 * 13.592367006650065 / 1e5) + 5.911244879144520e-4)
    )
    local_delta = 5e-6 / ((math.exp(epsilon) + 1) * (1 + 0.1353352832366127 / 2) * 1e5)
    bound = shuffled_epsilon(2.0, local_delta, 100_000, 1e-5)
    assert bound.epsilon == pytest.approx(epsilon, rel=1e-7)
    assert bound.clones_delta == pytest.approx(5e-6, rel=1e-6)
    assert bound.theorem == APPROXIMATE


@given(EPSILONS, LOG_CLIENTS, LOG_DELTAS, LOG_SHARES)
def test_the_whole_delta_is_spent_and_no_more(
    local_epsilon: float, log_clients: float, log_delta: float, log_share: float
) -> None:
    bound = bound_of(local_epsilon, log_clients, log_delta, log_share)
    if bound.amplified:
        assert bound.epsilon is not None
        assert bound.clones_delta is not None
        weight = (math.exp(bound.epsilon) + 1) * (1 + math.exp(-local_epsilon) / 2) * bound.clients
        spent = bound.clones_delta + weight * bound.local_delta
        assert bound.delta * (1 - 1e-6) <= spent <= bound.delta * (1 + 1e-12)


@given(EPSILONS, LOG_CLIENTS, LOG_DELTAS, LOG_SHARES)
def test_a_bound_is_below_the_local_epsilon_or_says_why_not(
    local_epsilon: float, log_clients: float, log_delta: float, log_share: float
) -> None:
    bound = bound_of(local_epsilon, log_clients, log_delta, log_share)
    if bound.amplified:
        assert bound.epsilon is not None
        assert 0.0 <= bound.epsilon < local_epsilon
        assert bound.clones_delta is not None
        assert local_epsilon <= math.log(bound.clients / (16 * math.log(2 / bound.clones_delta)))
    else:
        assert bound.reason
        assert bound.clones_delta is None
        allowed = bound.local_delta <= bound.delta
        assert bound.epsilon == (local_epsilon if allowed else None)
        assert bound.theorem == (POST_PROCESSING if allowed else None)


@given(EPSILONS, LOG_CLIENTS, LOG_DELTAS, LOG_SHARES, st.floats(0.0, 2.0))
def test_more_clients_more_delta_or_more_local_privacy_never_cost_more(
    local_epsilon: float, log_clients: float, log_delta: float, log_share: float, change: float
) -> None:
    clients, delta = max(1, int(math.exp(log_clients))), math.exp(log_delta)
    local_delta = min(0.4, delta / clients * math.exp(log_share))

    def cost(bound: ShuffleBound) -> float:
        return math.inf if bound.epsilon is None else bound.epsilon

    here = cost(shuffled_epsilon(local_epsilon, local_delta, clients, delta))
    slack = 1 + 1e-6  # relative, as the search for delta' is
    assert (
        cost(shuffled_epsilon(local_epsilon, local_delta, clients, min(0.9, delta * math.exp(change))))
        <= here * slack
    )
    assert (
        cost(shuffled_epsilon(local_epsilon, local_delta * math.exp(-change), clients, delta)) <= here * slack
    )
    assert (
        cost(shuffled_epsilon(local_epsilon * math.exp(-change), local_delta, clients, delta)) <= here * slack
    )
    # More clients are charged more often for a local delta, so that share is kept.
    many = math.ceil(clients * math.exp(change))
    assert cost(shuffled_epsilon(local_epsilon, local_delta * clients / many, many, delta)) <= here * slack


@pytest.mark.parametrize("clients", [235, 10_000, 10**9])
def test_amplification_ends_where_the_condition_does(clients: int) -> None:
    limit = math.log(clients / (16 * math.log(2 / 1e-6)))
    inside, outside = (shuffled_epsilon(limit + shift, 0.0, clients, 1e-6) for shift in (-1e-9, 1e-9))
    assert (outside.epsilon, outside.theorem) == (outside.local_epsilon, POST_PROCESSING)
    assert outside.reason is not None
    assert "the theorem allows" in outside.reason
    # With just enough clients for the condition the formula gives no less than the local epsilon.
    assert inside.amplified == (clients > 235)
    assert inside.amplified or "not below local_epsilon" in str(inside.reason)


def test_a_local_delta_that_uses_up_delta_leaves_the_local_guarantee_or_nothing() -> None:
    used_up = shuffled_epsilon(1.0, 1e-7, 100_000, 1e-5)
    assert (used_up.epsilon, used_up.theorem) == (1.0, POST_PROCESSING)
    assert "nothing of delta" in str(used_up.reason)
    nothing = shuffled_epsilon(1.0, 1e-4, 100_000, 1e-5)
    assert (nothing.epsilon, nothing.theorem) == (None, None)
    assert "local guarantee does not help" in str(nothing.reason)


@pytest.mark.parametrize("clients", [1, 2, 100])
def test_few_clients_do_not_hide_anybody(clients: int) -> None:
    assert not shuffled_epsilon(0.1, 0.0, clients, 1e-5).amplified


@pytest.mark.parametrize(
    ("clients", "share", "delta"),
    [
        (2000, 0.05, 1e-5),
        (6366, 0.3, 1e-5),
        (6366, 1.0, 1e-5),
        (20_000, 1.0, 1e-8),
        (1000, 1.0, 0.01),
        (300, 1.0, 1e-6),
    ],
)
def test_the_formula_is_above_an_exact_computation_of_the_clones_and_not_far(
    clients: int, share: float, delta: float
) -> None:
    local_epsilon = share * (1 - 1e-12) * math.log(clients / (16 * math.log(2 / delta)))
    bound = shuffled_epsilon(local_epsilon, 0.0, clients, delta)
    fraction = math.exp(local_epsilon) / clients
    spread = 8 * math.sqrt(fraction * math.log(4 / delta)) + 8 * fraction
    epsilon = math.log1p(math.tanh(local_epsilon / 2) * spread)
    assert bound.epsilon == pytest.approx(min(epsilon, local_epsilon), rel=1e-12)
    assert clones_delta(local_epsilon, clients, epsilon) <= delta
    assert clones_delta(local_epsilon, clients, epsilon / 8) > delta


@pytest.mark.parametrize("local_epsilon", [0.05, 0.5, 2.0, 5.0])
def test_gaussian_messages_are_close_to_messages_that_clone(local_epsilon: float) -> None:
    # The step from pure to approximate randomizers, built on a grid for Gaussian messages at distance 1.
    deviation = 0.8
    local_delta = gaussian_delta(1 / deviation, local_epsilon)
    grid = np.linspace(-12.0, 13.0, 200_001)

    def law(center: float) -> np.ndarray:
        density = np.exp(-((grid - center) ** 2) / (2 * deviation**2))
        return density / density.sum()

    zero, one = law(0.0), law(1.0)
    growth = math.exp(local_epsilon)
    pair = (zero + one) / (1 + growth)
    pure_zero = np.where(zero > growth * one, growth * pair, np.where(one > growth * zero, pair, zero))
    pure_one = np.where(one > growth * zero, growth * pair, np.where(zero > growth * one, pair, one))
    assert np.all(pure_zero <= growth * pure_one * (1 + 1e-12))
    assert np.all(pure_one <= growth * pure_zero * (1 + 1e-12))
    moved = [float(np.abs(zero - pure_zero).sum() / 2), float(np.abs(one - pure_one).sum() / 2)]
    assert max(moved) == pytest.approx(local_delta / (growth + 1), rel=1e-4)
    # Another client's message must hold e^-epsilon0 of the pair's mixture; what is missing has to be moved in.
    missing = [
        float(np.maximum((pure_zero + pure_one) / (2 * growth) - law(center), 0.0).sum())
        for center in (0.0, 0.5, 1.0)
    ]
    assert max(missing) <= local_delta / growth * (1 + 1 / (growth + 1)) * (1 + 1e-4)
    # And that is what the bound charges per client, or more.
    clients, delta, share = 10**7, 1e-4, 1e-12
    bound = shuffled_epsilon(local_epsilon, share, clients, delta)
    assert bound.epsilon is not None
    assert bound.clones_delta is not None
    charged = (delta - bound.clones_delta) / ((math.exp(bound.epsilon) + 1) * clients * share)
    assert max(*moved, *missing) <= charged * local_delta


# --- calibrated noise


@given(st.floats(-3.0, 2.5), LOG_DELTAS, LOG_CLIENTS)
def test_calibrated_noise_keeps_the_bound_within_the_target(
    log_epsilon: float, log_delta: float, log_clients: float
) -> None:
    epsilon, delta = math.exp(log_epsilon), math.exp(log_delta)
    found = calibrate_shuffled_gaussian(epsilon, delta, max(1, int(math.exp(log_clients))))
    assert found.unshuffled_noise_multiplier == calibrate_gaussian(epsilon, delta)
    if found.noise_multiplier is None:
        assert found.reason
        assert found.bound is None
        return
    assert found.reason is None
    assert found.noise_multiplier < found.unshuffled_noise_multiplier
    bound = found.bound
    assert bound is not None
    assert bound.amplified
    assert bound.epsilon is not None
    assert bound.epsilon <= epsilon
    assert bound.delta == delta
    assert gaussian_delta(1 / found.noise_multiplier, bound.local_epsilon) <= bound.local_delta * (1 + 1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "clients"),
    [(0.1, 1e-5, 840), (1.0, 1e-5, 6366), (2.0, 1e-5, 50_000), (0.5, 1e-9, 10**6)],
)
def test_one_percent_less_noise_is_too_little_whatever_the_local_epsilon(
    epsilon: float, delta: float, clients: int
) -> None:
    found = calibrate_shuffled_gaussian(epsilon, delta, clients)
    assert found.noise_multiplier is not None

    def best(multiplier: float) -> float:
        costs = [math.inf]
        for local_epsilon in np.linspace(epsilon, math.log(clients), 2000):
            bound = shuffled_epsilon(
                float(local_epsilon), gaussian_delta(1 / multiplier, local_epsilon), clients, delta
            )
            if bound.amplified and bound.epsilon is not None:
                costs.append(bound.epsilon)
        return min(costs)

    assert best(0.99 * found.noise_multiplier) > epsilon
    assert best(1.01 * found.noise_multiplier) <= epsilon


def test_calibrated_noise_falls_with_clients_and_with_the_target() -> None:
    def noise(epsilon: float, clients: int) -> float:
        found = calibrate_shuffled_gaussian(epsilon, 1e-5, clients)
        return found.noise_multiplier or found.unshuffled_noise_multiplier

    by_clients = [noise(0.5, clients) for clients in (100, 840, 6366, 50_000, 10**6)]
    by_epsilon = [noise(epsilon, 50_000) for epsilon in (0.1, 0.5, 1.0, 2.0, 3.0, 5.0)]
    assert all(later < earlier for earlier, later in pairwise(by_clients))
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(by_epsilon))


@pytest.mark.parametrize(("epsilon", "clients"), [(8.0, 6366), (1.0, 840), (0.1, 1), (1000.0, 50_000)])
def test_without_amplification_there_is_a_reason_and_no_noise(epsilon: float, clients: int) -> None:
    found = calibrate_shuffled_gaussian(epsilon, 1e-5, clients)
    assert (found.noise_multiplier, found.bound) == (None, None)
    assert found.reason is not None
    assert found.reason.startswith(f"{clients} clients ")


@pytest.mark.parametrize("rule", ["zcdp", "bun_steinke"])
def test_looser_rules_need_more_noise(rule: str) -> None:
    exact = calibrate_shuffled_gaussian(0.5, 1e-5, 6366).noise_multiplier
    loose = calibrate_shuffled_gaussian(0.5, 1e-5, 6366, rule).noise_multiplier  # type: ignore[arg-type]
    assert exact is not None
    assert loose is not None
    assert loose > exact


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1.0, 0.0, 10, 1e-5), "epsilon"),
        ((math.inf, 0.0, 10, 1e-5), "epsilon"),
        ((1.0, -1e-9, 10, 1e-5), "local_delta"),
        ((1.0, 1.0, 10, 1e-5), "local_delta"),
        ((1.0, 0.0, 0, 1e-5), "clients"),
        ((1.0, 0.0, 10.5, 1e-5), "clients"),
        ((1.0, 0.0, True, 1e-5), "clients"),
        ((1.0, 0.0, 10, 0.0), "delta"),
    ],
)
def test_arguments_outside_of_what_is_allowed_are_refused(
    arguments: tuple[float, float, int, float], name: str
) -> None:
    with pytest.raises(AccountingError, match=f"^{name} is"):
        shuffled_epsilon(*arguments)


@pytest.mark.parametrize(("epsilon", "delta", "clients"), [(0.0, 1e-5, 10), (1.0, 1.0, 10), (1.0, 1e-5, 0)])
def test_a_target_that_cannot_be_met_is_refused(epsilon: float, delta: float, clients: int) -> None:
    with pytest.raises(AccountingError):
        calibrate_shuffled_gaussian(epsilon, delta, clients)
