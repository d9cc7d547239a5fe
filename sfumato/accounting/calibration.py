"""The least noise that keeps a composition within (epsilon, delta).

>>> sigma = calibrate_subsampled(sampling_rate=0.01, steps=1000, epsilon=8.0, delta=1e-5)
>>> round(sigma, 4)
0.5863
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dp_accounting import dp_event

from sfumato.accounting.events import spent
from sfumato.accounting.gaussian import check_delta
from sfumato.accounting.numeric import find_root
from sfumato.accounting.pld import pld_epsilon
from sfumato.accounting.pricing import Accountant, epsilon
from sfumato.errors import AccountingError
from sfumato.mechanisms import NeighboringRelation, require_relation, subsampled_gaussian

MakeEvents = Callable[[float], Sequence[dp_event.DpEvent]]

MIN_NOISE_MULTIPLIER = 0.02
MAX_NOISE_MULTIPLIER = 1e6
MIN_TARGET, MAX_TARGET = 1e-3, 1e3
TOLERANCE = 1e-5
_NO_PRICE = 1e6


class UnreachableError(AccountingError):
    """No noise multiplier of the range has the target as its cost; the reason is a clause that follows it.

    Attributes:
        too_costly: whether every multiplier costs more, and not less.
    """

    def __init__(self, target: float, reason: str, too_costly: bool) -> None:
        super().__init__(f"epsilon is {target:g}; {reason}.")
        self.reason = reason
        self.too_costly = too_costly


def _check_target(target: float) -> None:
    if isinstance(target, bool) or not MIN_TARGET <= float(target) <= MAX_TARGET:
        raise AccountingError(
            f"epsilon is {target!r}; allowed as a target is a number from {MIN_TARGET:g} to {MAX_TARGET:g}."
        )


def _bracket(excess: Callable[[float], float], target: float) -> tuple[float, float]:
    """(too little, enough) as logarithms of the noise multiplier, a factor of two apart."""
    low, high = math.log(MIN_NOISE_MULTIPLIER), math.log(MAX_NOISE_MULTIPLIER)
    here, step = 0.0, math.log(2.0)
    if excess(here) > 0:
        while excess(here) > 0:
            if here >= high or (here == 0.0 and excess(high) > 0):
                reason = f"no noise multiplier up to {MAX_NOISE_MULTIPLIER:g} costs that little"
                allow = "so allow more epsilon, more delta or fewer steps"
                raise UnreachableError(target, f"{reason}, {allow}", too_costly=True)
            here = min(high, here + step)
        return here - step, here
    while excess(here) <= 0:
        if here <= low:
            reason = f"even a noise multiplier of {MIN_NOISE_MULTIPLIER:g} costs less at this delta"
            raise UnreachableError(
                target, f"{reason}, so ask for a smaller epsilon or delta", too_costly=False
            )
        here = max(low, here - step)
    return here, here + step


def calibrate(
    make_events: MakeEvents,
    epsilon: float,
    delta: float,
    accountant: Accountant = "pld",
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
) -> float:
    """Smallest noise multiplier, to a relative 1e-5, whose events cost at most epsilon when priced back.

    Args:
        make_events: noise multiplier to events; their cost must not increase with the multiplier.
        epsilon: target, from 0.001 to 1000.
        delta: target.
        accountant: which ``epsilon`` function the target is held against.
        neighboring_relation: the relation.

    Returns:
        a multiplier between 0.02 and 1e6 with ``epsilon(make_events(multiplier), delta) <= epsilon``.

    Raises:
        AccountingError: if no multiplier in that range meets the target, or every one does.
    """
    target = epsilon
    _check_target(target)
    check_delta(delta)
    relation = require_relation(neighboring_relation)
    log_target = math.log(target)

    def cost(log_noise: float, coarse: bool) -> float:
        events = make_events(math.exp(log_noise))
        try:
            if coarse and accountant == "pld":
                total = spent(events)
                if not total.gaussian_only and not total.non_private and total.zcdp_rho == 0:
                    return pld_epsilon(total.releases, delta, relation, levels=1)
            return _priced(events, delta, accountant, relation)
        except AccountingError:
            if log_noise > 0.7:
                raise
            return math.inf

    known: dict[tuple[float, bool], float] = {}

    def excess(log_noise: float, coarse: bool = True) -> float:
        key = log_noise, coarse
        if key not in known:
            known[key] = min(max(cost(log_noise, coarse), 1e-9 * target), _NO_PRICE)
        return math.log(known[key]) - log_target

    low, high = _bracket(excess, target)
    start = find_root(excess, low, high, 1e-4) if excess(low) > 0 >= excess(high) else high
    return math.exp(_finish(lambda log_noise: excess(log_noise, False), start, target))


def _priced(
    events: Sequence[dp_event.DpEvent], delta: float, accountant: Accountant, relation: NeighboringRelation
) -> float:
    return epsilon(events, delta, accountant, relation)


def _finish(excess: Callable[[float], float], start: float, target: float) -> float:
    """The root of a decreasing function near ``start``, on the side where it is not positive."""
    width = 2e-3
    low = high = start
    value = excess(start)
    while value > 0 and width < 4.0:
        low, high, width = high, high + width, 4.0 * width
        value = excess(high)
    if low == high:
        while value <= 0 and width < 4.0:
            high, low, width = low, low - width, 4.0 * width
            value = excess(low)
    if excess(high) > 0 or excess(low) <= 0:
        raise AccountingError(f"epsilon is {target:g}; the cost does not fall through it as the noise grows.")
    root = find_root(excess, low, high, TOLERANCE / 4.0)
    while excess(root) > 0:
        root += TOLERANCE / 2.0
    return root


def _check_steps(name: str, steps: int) -> None:
    if isinstance(steps, bool) or not 1 <= steps < math.inf or int(steps) != steps:
        raise AccountingError(f"{name} is {steps!r}; allowed is a whole number of at least 1.")


def _check_rate(sampling_rate: float) -> None:
    if isinstance(sampling_rate, bool) or not 0.0 < sampling_rate <= 1.0:
        raise AccountingError(f"sampling_rate is {sampling_rate!r}; allowed is a number above 0 and up to 1.")


def calibrate_subsampled(
    sampling_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
) -> float:
    """``calibrate`` for ``steps`` equal Poisson-sampled Gaussian releases.

    Raises:
        AccountingError: if the rate, the steps or the target is outside of what is allowed.
    """
    _check_rate(sampling_rate)
    _check_steps("steps", steps)
    return calibrate(
        lambda noise: [subsampled_gaussian(sampling_rate, noise, steps)],
        epsilon,
        delta,
        neighboring_relation=neighboring_relation,
    )


def calibrate_two_phases(
    sampling_rate: float,
    steps_1: int,
    steps_2: int,
    epsilon: float,
    delta: float,
    share: float,
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
) -> tuple[float, float]:
    """Noise multipliers of a warm-up and a training phase that share one budget.

    Phase 1 alone, priced by PLD, costs share * epsilon at the same delta; both phases composed as events
    cost epsilon.

    Args:
        sampling_rate: of both phases, in (0, 1].
        steps_1: steps of the warm-up, at least 1.
        steps_2: steps of the training phase, at least 1.
        epsilon: target of both together.
        delta: target.
        share: the warm-up's, in (0, 1); errors name it as plans do, warmup_budget_share.
        neighboring_relation: the relation.

    Returns:
        (noise multiplier of phase 1, noise multiplier of phase 2).

    Raises:
        AccountingError: if an argument is outside of what is allowed.
    """
    if isinstance(share, bool) or not 0.0 < float(share) < 1.0:
        raise AccountingError(f"warmup_budget_share is {share!r}; allowed is a number above 0 and below 1.")
    _check_rate(sampling_rate)
    _check_steps("steps_1", steps_1)
    _check_steps("steps_2", steps_2)
    _check_target(epsilon)
    first = _calibrate_warm_up(sampling_rate, steps_1, epsilon, delta, share, neighboring_relation)
    warm_up = subsampled_gaussian(sampling_rate, first, steps_1)
    try:
        second = calibrate(
            lambda noise: [warm_up, subsampled_gaussian(sampling_rate, noise, steps_2)],
            epsilon,
            delta,
            neighboring_relation=neighboring_relation,
        )
    except UnreachableError as error:
        if not error.too_costly:
            raise
        raise AccountingError(
            f"{_share_of(share, epsilon)}, which leaves too little for the {steps_2} steps after it; "
            "allowed is a smaller share."
        ) from error
    return first, second


def _share_of(share: float, epsilon: float) -> str:
    return f"warmup_budget_share is {share!r} of epsilon {epsilon:g}"


def _calibrate_warm_up(
    sampling_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    share: float,
    neighboring_relation: NeighboringRelation,
) -> float:
    target = share * epsilon
    if target < MIN_TARGET:
        raise AccountingError(
            f"{_share_of(share, epsilon)}, which leaves {target:g} for the warm-up; "
            f"allowed is a share that leaves it at least {MIN_TARGET:g}."
        )
    try:
        return calibrate_subsampled(sampling_rate, steps, target, delta, neighboring_relation)
    except UnreachableError as error:
        raise AccountingError(
            f"{_share_of(share, epsilon)}, which leaves {target:g} for the warm-up of {steps} steps; "
            f"{error.reason}."
        ) from error
