"""Privacy amplification by shuffling: what a local guarantee becomes when nobody can tell whose message is whose.

>>> bound = shuffled_epsilon(local_epsilon=1.0, local_delta=0.0, clients=1_000_000, delta=1e-6)
>>> round(bound.epsilon, 4), bound.theorem, bound.reason
(0.0235, 'Feldman, McMillan and Talwar (2021), Theorem 3.1', None)
>>> shuffled_epsilon(local_epsilon=8.0, local_delta=0.0, clients=1000, delta=1e-6).reason
'local_epsilon is 8; the theorem allows at most 1.46 with 1000 clients and what is left of delta.'

All bounds here are of "Hiding among the clones" (Feldman, McMillan and Talwar, FOCS 2021). They hold against everybody
who sees the messages after a shuffler that everybody trusts, for the replacement of one client's whole message input,
and need messages that differ in nothing but the randomizer's output: no sender, no time, one randomizer for all.

Where labels are public there is no amplification. A message then carries its label in the clear, and the guarantee is
for the features *given* the label: the crowd in which a client hides is only those who have the very same label, which
for a real-valued label is the client alone. So these functions are for messages whose labels are private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sfumato.accounting.gaussian import (
    GaussianRule,
    calibrate_gaussian,
    check_delta,
    check_epsilon,
)
from sfumato.accounting.numeric import find_root, minimum
from sfumato.checks import is_integer, is_number
from sfumato.errors import AccountingError

PURE: Final = "Feldman, McMillan and Talwar (2021), Theorem 3.1"
APPROXIMATE: Final = "Feldman, McMillan and Talwar (2021), Theorem 3.8"
POST_PROCESSING: Final = (
    "post-processing: shuffled messages are at least as private as their senders' messages"
)

MAX_CLIENTS: Final = 10**15
_ROUNDING = 1e-9
_EDGE = 1e-6  # delta' stays that much below delta, relatively


@dataclass(frozen=True)
class ShuffleBound:
    """What is promised for one client when all messages were shuffled, under replace-one.

    Attributes:
        epsilon: at ``delta``; below ``local_epsilon`` where shuffling helps, equal to it where only the local
            guarantee is left, None where not even that holds at ``delta``.
        delta: the whole delta.
        theorem: what the epsilon rests on; None where there is none.
        reason: why shuffling does not help; None where it does.
        local_epsilon: of one message.
        local_delta: of one message.
        clients: how many messages were shuffled.
        clones_delta: the part of ``delta`` that the theorem's own failure takes; None where it is not used.
    """

    epsilon: float | None
    delta: float
    theorem: str | None
    reason: str | None
    local_epsilon: float
    local_delta: float
    clients: int
    clones_delta: float | None

    @property
    def amplified(self) -> bool:
        """Whether shuffling lowers epsilon."""
        return self.reason is None


@dataclass(frozen=True)
class ShuffledGaussian:
    """The noise of one Gaussian message per client that is enough after shuffling.

    Attributes:
        noise_multiplier: sigma over the largest distance between two un-noised messages; None where shuffling allows
            no less noise than ``unshuffled_noise_multiplier``.
        unshuffled_noise_multiplier: what the same budget needs without a shuffler.
        bound: what is promised with ``noise_multiplier``; None without one.
        reason: why there is none.
    """

    noise_multiplier: float | None
    unshuffled_noise_multiplier: float
    bound: ShuffleBound | None
    reason: str | None


def _check_clients(clients: int) -> None:
    if not is_integer(clients) or not 1 <= clients <= MAX_CLIENTS:
        raise AccountingError(f"clients is {clients!r}; allowed is an integer from 1 to {MAX_CLIENTS:g}.")


def _growth(local_epsilon: float, clients: int, clones_delta: float) -> float:
    """e^epsilon - 1 of Theorem 3.1, without its condition."""
    fraction = math.exp(local_epsilon) / clients
    spread = 8.0 * math.sqrt(fraction * math.log(4.0 / clones_delta)) + 8.0 * fraction
    return math.tanh(local_epsilon / 2.0) * spread


def _largest_local_epsilon(clients: int, clones_delta: float) -> float:
    """log(K / (16 log(2 / delta))), the condition of Theorems 3.1 and 3.8."""
    return math.log(clients / (16.0 * math.log(2.0 / clones_delta)))


def _failures(local_epsilon: float, clients: int) -> float:
    """(1 + e^-epsilon0 / 2) K, how often a local delta counts in the distance to randomizers without one."""
    return (1.0 + math.exp(-local_epsilon) / 2.0) * clients


def _clones_delta(local_epsilon: float, local_delta: float, clients: int, delta: float) -> float | None:
    """The largest delta' with delta' + (e^epsilon(delta') + 1) (1 + e^-epsilon0 / 2) K delta0 at most delta."""
    if local_delta == 0.0:
        return delta
    weight = _failures(local_epsilon, clients) * local_delta

    def left(clones_delta: float) -> float:
        return delta - weight * (2.0 + _growth(local_epsilon, clients, clones_delta))

    # ``left`` increases, so from delta on the iterates fall to its largest fixed point.
    found = delta
    for _ in range(1000):
        before, found = found, left(found)
        if found <= 0.0 or before - found <= 1e-14 * found:
            break
    found *= 1.0 - _ROUNDING
    return found if found > 0.0 and found <= left(found) else None


def shuffled_epsilon(local_epsilon: float, local_delta: float, clients: int, delta: float) -> ShuffleBound:
    """Epsilon at delta of shuffled messages, each from an (epsilon0, delta0)-locally private randomizer.

    With r = (e^epsilon0 - 1) / (e^epsilon0 + 1),

        epsilon = log(1 + r (8 sqrt(e^epsilon0 log(4 / delta')) / sqrt(K) + 8 e^epsilon0 / K)),
        delta = delta' + (e^epsilon + 1) (1 + e^-epsilon0 / 2) K delta0,

    where epsilon0 <= log(K / (16 log(2 / delta'))): Theorem 3.1 of Feldman, McMillan and Talwar (2021), and for
    delta0 > 0 its extension, Theorem 3.8. The second line is a triangle inequality. The two inputs of the client
    that is replaced have outputs within delta0 / (e^epsilon0 + 1) in total variation of a pair that is purely
    epsilon0-close, and every other client's output is within e^-epsilon0 delta0 (1 + 1 / (e^epsilon0 + 1)) of one
    that holds a clone of that pair with probability e^-epsilon0; both are at most (1 + e^-epsilon0 / 2) delta0.
    The largest delta' that the given delta leaves is taken.

    Guarantee:
        (epsilon, delta)-differential privacy of the shuffled messages, for replacing the input of one client, if
        ``bound.epsilon`` is not None. All clients use the same randomizer with fresh randomness of their own, the
        shuffler keeps the permutation to itself, and ``clients`` counts the messages that really arrived. It is a
        statement about those who see shuffled messages only; against the shuffler the local guarantee is what holds.

    Args:
        local_epsilon: epsilon0, at least 0.
        local_delta: delta0, from 0 to below 1.
        clients: K, at least 1.
        delta: the whole delta of the shuffled messages, above 0 and below 1.

    Returns:
        the bound; without amplification it is the local guarantee, or none where ``local_delta`` is above ``delta``,
        with the reason.

    Raises:
        AccountingError: if an argument is outside of what is allowed.
    """
    check_epsilon(local_epsilon)
    if not is_number(local_delta) or not 0.0 <= local_delta < 1.0:
        raise AccountingError(f"local_delta is {local_delta!r}; allowed is a number from 0 to below 1.")
    _check_clients(clients)
    check_delta(delta)
    found = _amplified(local_epsilon, local_delta, clients, delta)
    if not isinstance(found, str):
        theorem = PURE if local_delta == 0.0 else APPROXIMATE
        return ShuffleBound(found[0], delta, theorem, None, local_epsilon, local_delta, clients, found[1])
    if local_delta <= delta:
        return ShuffleBound(
            local_epsilon, delta, POST_PROCESSING, found, local_epsilon, local_delta, clients, None
        )
    reason = f"{found} The local guarantee does not help, since its delta is above {delta:.4g}."
    return ShuffleBound(None, delta, None, reason, local_epsilon, local_delta, clients, None)


def _amplified(
    local_epsilon: float, local_delta: float, clients: int, delta: float
) -> tuple[float, float] | str:
    """(epsilon, delta') of the theorem, or the reason why it does not lower epsilon."""
    limit = _largest_local_epsilon(clients, delta)
    clones_delta = None
    if local_epsilon <= limit:
        clones_delta = _clones_delta(local_epsilon, local_delta, clients, delta)
        if clones_delta is None:
            return (
                f"local_delta is {local_delta:.4g}; {clients} times as much and more is charged, which leaves nothing "
                f"of delta = {delta:.4g}."
            )
        limit = _largest_local_epsilon(clients, clones_delta)
    if clones_delta is None or local_epsilon > limit:
        return (
            f"local_epsilon is {local_epsilon:.4g}; the theorem allows at most {limit:.4g} with {clients} clients and "
            "what is left of delta."
        )
    epsilon = math.log1p(_growth(local_epsilon, clients, clones_delta))
    if epsilon >= local_epsilon:
        return f"the theorem gives epsilon = {epsilon:.4g}, which is not below local_epsilon = {local_epsilon:.4g}."
    return epsilon, clones_delta


def _smallest_log_clones_delta(local_epsilon: float, epsilon: float, clients: int) -> float:
    """Log of the smallest delta' at which Theorem 3.1 holds and gives at most epsilon; infinite if none does."""
    fraction = math.exp(local_epsilon) / clients
    room = math.expm1(epsilon) / math.tanh(local_epsilon / 2.0) - 8.0 * fraction
    if room <= 0.0:
        return math.inf
    by_formula = math.log(4.0) - (room / 8.0) ** 2 / fraction
    by_condition = math.log(2.0) - 1.0 / (16.0 * fraction)
    return max(by_formula, by_condition)


def _largest_local_delta(
    local_epsilon: float, least_log_clones_delta: float, clients: int, delta: float
) -> float:
    """The largest delta0 that delta allows over all delta' from the given one to delta."""

    def cost(log_clones_delta: float) -> float:
        # Convex over positive and concave in delta', so there is one valley.
        clones_delta = math.exp(log_clones_delta)
        return (2.0 + _growth(local_epsilon, clients, clones_delta)) / (delta - clones_delta)

    # Below e^-40 delta nothing is left to gain.
    low = max(least_log_clones_delta, math.log(delta) - 40.0)
    _, least = minimum(cost, low, math.log(delta) - 0.1 * _EDGE)
    return (1.0 - _ROUNDING) / (least * _failures(local_epsilon, clients))


def calibrate_shuffled_gaussian(
    epsilon: float, delta: float, clients: int, rule: GaussianRule = "exact"
) -> ShuffledGaussian:
    """Least noise of one Gaussian message per client, features and label together, that is enough after shuffling.

    A Gaussian message is (epsilon0, delta0(epsilon0))-locally private for every epsilon0, and ``shuffled_epsilon``
    holds for each. For an epsilon0, delta' is chosen among those that give at most ``epsilon`` so that the most is left
    for delta0, which is far below delta / K, and the noise is what (epsilon0, delta0) needs; the epsilon0 with the
    least noise is searched. All of it depends on public numbers only.

    Guarantee:
        (epsilon, delta)-differential privacy of the shuffled messages under replace-one, as ``shuffled_epsilon``
        promises, for one release with private labels. With public labels there is no such bound.

    Args:
        epsilon: target, above 0.
        delta: target, in (0, 1).
        clients: K, at least 1.
        rule: how the local (epsilon0, delta0) becomes noise.

    Returns:
        the noise, or None and the reason where shuffling allows no less than going without.

    Raises:
        AccountingError: if an argument is outside of what is allowed.
    """
    _check_clients(clients)
    unshuffled = calibrate_gaussian(epsilon, delta, rule)

    found = _least_noise(epsilon, delta, clients, rule)
    if found is None:
        reason = f"{clients} clients are too few to hide among at epsilon = {epsilon:.4g}."
        return ShuffledGaussian(None, unshuffled, None, reason)
    multiplier, local_epsilon, local_delta = found
    if multiplier >= unshuffled:
        reason = f"{clients} clients hide so little at epsilon = {epsilon:.4g} that the small delta of a message costs more."
        return ShuffledGaussian(None, unshuffled, None, reason)
    bound = shuffled_epsilon(local_epsilon, local_delta, clients, delta)
    return ShuffledGaussian(multiplier, unshuffled, bound, None)


def _least_noise(
    epsilon: float, delta: float, clients: int, rule: GaussianRule
) -> tuple[float, float, float] | None:
    """(noise multiplier, epsilon0, delta0) with the least noise; None where the theorem gives epsilon for no epsilon0."""

    def least_log_clones_delta(local_epsilon: float) -> float:
        # Rounding must not put the bound above the target.
        return _smallest_log_clones_delta(local_epsilon, epsilon * (1.0 - _ROUNDING), clients)

    def excess(local_epsilon: float) -> float:
        return min(1e300, least_log_clones_delta(local_epsilon) - math.log(delta) + _EDGE)

    if epsilon >= math.log(clients) or excess(epsilon) >= 0.0:
        return None
    # Beyond log K a clone is rarer than one in K, and nothing is feasible.
    edge = find_root(excess, epsilon, math.log(clients), 1e-12)

    def local_delta(local_epsilon: float) -> float:
        return _largest_local_delta(local_epsilon, least_log_clones_delta(local_epsilon), clients, delta)

    best, multiplier = minimum(
        lambda local_epsilon: calibrate_gaussian(local_epsilon, local_delta(local_epsilon), rule),
        epsilon,
        edge,
    )
    return multiplier, best, local_delta(best)
