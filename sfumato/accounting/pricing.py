"""What a composition of events costs, by every accountant that applies.

>>> from sfumato.mechanisms import subsampled_gaussian
>>> events = [subsampled_gaussian(0.125, 1.0, 24)]
>>> round(epsilon(events, 1e-5), 2), round(epsilon(events, 1e-5, "rdp"), 2)
(4.68, 5.41)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dp_accounting import dp_event

from sfumato.accounting.events import Spent, spent
from sfumato.accounting.gaussian import (
    check_delta,
    check_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    zcdp_epsilon,
)
from sfumato.accounting.pld import pld_delta, pld_epsilon
from sfumato.accounting.prv import PrvCost, prv_epsilon
from sfumato.accounting.renyi import RdpCost, rdp_epsilon
from sfumato.errors import AccountingError
from sfumato.mechanisms import NeighboringRelation, require_relation

Events = Iterable[dp_event.DpEvent] | dp_event.DpEvent
Accountant = Literal["pld", "rdp", "prv", "zcdp", "gaussian"]
ACCOUNTANTS: tuple[Accountant, ...] = ("pld", "rdp", "prv", "zcdp", "gaussian")

MAX_EPSILON = 1e5
_NOT_PRIVATE = "an event adds no noise, so epsilon is infinite."


@dataclass(frozen=True)
class Price:
    """The cost of a composition at one delta by all accountants; None where one does not apply.

    Attributes:
        delta: the delta.
        neighboring_relation: the relation.
        pld: the reported epsilon, an upper bound.
        rdp: epsilon by RDP; at least ``pld`` up to rounding.
        rdp_order: the Renyi order that gave it.
        rdp_order_at_grid_edge: whether a better order may lie beyond the grid.
        prv: Opacus's estimate.
        prv_error: PRV's own bound on its error.
        zcdp: epsilon by the optimal conversion, Gaussian-only events.
        zcdp_rho: rho of Gaussian-only events.
        gaussian: exact epsilon of Gaussian-only events.
        gaussian_mu: their mu.
        steps: number of releases.
        reasons: one sentence for every None, by field name.
    """

    delta: float
    neighboring_relation: NeighboringRelation
    pld: float | None
    rdp: float | None
    rdp_order: float | None
    rdp_order_at_grid_edge: bool
    prv: float | None
    prv_error: float | None
    zcdp: float | None
    zcdp_rho: float | None
    gaussian: float | None
    gaussian_mu: float | None
    steps: int
    reasons: tuple[tuple[str, str], ...]

    def reason(self, field: str) -> str | None:
        """Why a field is None, if it is."""
        return dict(self.reasons).get(field)

    def to_json(self) -> dict[str, object]:
        """Plain finite numbers, None, and ``<field>_reason`` texts."""
        document: dict[str, object] = {
            name: value for name, value in self.__dict__.items() if name not in ("reasons",)
        }
        document.update({f"{name}_reason": reason for name, reason in self.reasons})
        return document


def _sensitivity(relation: NeighboringRelation) -> float:
    """How far one record moves a sum, in clip norms."""
    return 2.0 if relation == "replace_one" else 1.0


def _unsampled(total: Spent, accountant: str, relation: NeighboringRelation) -> None:
    if relation == "replace_one" and not total.gaussian_only:
        raise AccountingError(
            f"accountant {accountant!r} has no bound for sampled releases under 'replace_one'; use 'pld'."
        )


def _gaussian_mu(total: Spent, relation: NeighboringRelation, accountant: str) -> float:
    if not total.gaussian_only:
        raise AccountingError(f"accountant {accountant!r} prices releases of all records only; use 'pld'.")
    return total.mu(_sensitivity(relation))


def _bounded(value: float) -> float:
    if not value <= MAX_EPSILON:
        raise AccountingError(
            f"epsilon is above {MAX_EPSILON:g}, the largest that is priced; use more noise or fewer steps."
        )
    return value


def _pld(total: Spent, delta: float, relation: NeighboringRelation) -> float:
    if total.zcdp_rho > 0:
        raise AccountingError(
            "a zCDP event has no privacy loss distribution; use accountant 'rdp' or 'zcdp'."
        )
    if total.gaussian_only:
        return _bounded(gaussian_epsilon(total.mu(_sensitivity(relation)), delta))
    value = pld_epsilon(total.releases, delta, relation)
    if value == math.inf:
        raise AccountingError(
            "the privacy loss exceeds what is priced (600 in one step) with more than delta probability; "
            "use a larger noise multiplier."
        )
    return _bounded(value)


def _rdp(total: Spent, delta: float, relation: NeighboringRelation) -> RdpCost:
    _unsampled(total, "rdp", relation)
    cost = rdp_epsilon(total.releases, total.zcdp_rho, delta, _sensitivity(relation))
    _bounded(cost.epsilon)
    return cost


def _prv(total: Spent, delta: float, relation: NeighboringRelation, guess: float) -> PrvCost:
    if relation == "replace_one":
        return PrvCost(None, None, "PRV as in Opacus is for add-or-remove-one only.")
    if total.zcdp_rho > 0:
        return PrvCost(None, None, "PRV does not price zCDP events.")
    return prv_epsilon(total.releases, delta, guess)


def _zcdp_rho(total: Spent, relation: NeighboringRelation) -> float:
    return _gaussian_mu(total, relation, "zcdp") ** 2 / 2.0 + total.zcdp_rho


def epsilon(
    events: Events,
    delta: float,
    accountant: Accountant = "pld",
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
) -> float:
    """Smallest epsilon >= 0 that the accountant finds for the composition at delta; infinite without noise.

    A Gaussian event's noise multiplier is sigma over the bound C on one record's contribution; under
    ``replace_one`` a record moves a sum by up to 2C, which is priced here.

    Args:
        events: DpEvents; their order does not matter.
        delta: in (0, 1).
        accountant: ``pld`` (an upper bound, reported), ``rdp``, ``prv``, and for releases of all records
            ``zcdp`` (optimal conversion) and ``gaussian`` (exact).
        neighboring_relation: ``add_or_remove_one`` or ``replace_one``.

    Raises:
        AccountingError: if the accountant cannot price the events.
    """
    check_delta(delta)
    relation = require_relation(neighboring_relation)
    if accountant not in ACCOUNTANTS:
        raise AccountingError(f"accountant is {accountant!r}; allowed are {', '.join(ACCOUNTANTS)}.")
    total = spent(events)
    if total.non_private:
        return math.inf
    if accountant == "rdp":
        return _rdp(total, delta, relation).epsilon
    if accountant == "zcdp":
        return _bounded(zcdp_epsilon(_zcdp_rho(total, relation), delta))
    if accountant == "gaussian":
        if total.zcdp_rho > 0:
            raise AccountingError("a zCDP event is not a Gaussian one; use accountant 'rdp' or 'zcdp'.")
        return _bounded(gaussian_epsilon(_gaussian_mu(total, relation, "gaussian"), delta))
    if accountant == "pld":
        return _pld(total, delta, relation)
    cost = _prv(total, delta, relation, _pld(total, delta, relation))
    if cost.epsilon is None:
        raise AccountingError(str(cost.reason))
    return cost.epsilon


def delta_at(
    events: Events, epsilon: float, neighboring_relation: NeighboringRelation = "add_or_remove_one"
) -> float:
    """Delta of the composition at epsilon by PLD, an upper bound in [0, 1]; 1 without noise.

    Values below exp(-640) are not told apart.

    Raises:
        AccountingError: if epsilon is negative or not finite, or the events cannot be priced.
    """
    check_epsilon(epsilon)
    relation = require_relation(neighboring_relation)
    total = spent(events)
    if total.non_private:
        return 1.0
    if total.zcdp_rho > 0:
        raise AccountingError(
            "a zCDP event has no privacy loss distribution; use accountant 'rdp' or 'zcdp'."
        )
    if total.gaussian_only:
        return gaussian_delta(total.mu(_sensitivity(relation)), epsilon)
    return pld_delta(total.releases, epsilon, relation)


def privacy_curve(
    events: Events,
    epsilons: Sequence[float],
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
) -> list[float]:
    """Delta by PLD at each epsilon; not increasing in epsilon.

    Raises:
        AccountingError: as ``delta_at``.
    """
    kept = list(events) if not isinstance(events, dp_event.DpEvent) else events
    deltas = {value: delta_at(kept, value, neighboring_relation) for value in set(epsilons)}
    lowest = 1.0
    for value in sorted(deltas):
        lowest = deltas[value] = min(lowest, deltas[value])
    return [deltas[value] for value in epsilons]


def price(
    events: Events,
    delta: float,
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
    cross_check: bool = True,
) -> Price:
    """The composition's cost by every accountant; what does not apply is None with its reason.

    Args:
        events: DpEvents that were recorded.
        delta: in (0, 1).
        neighboring_relation: the relation.
        cross_check: whether to ask Opacus's PRV, which costs its import.

    Raises:
        AccountingError: if an event is of no known kind, or delta is not in (0, 1).
    """
    check_delta(delta)
    relation = require_relation(neighboring_relation)
    total = spent(events)
    names = ("pld", "rdp", "prv", "zcdp", "gaussian")
    if total.non_private:
        blank = tuple((name, _NOT_PRIVATE) for name in names)
        return Price(
            delta, relation, None, None, None, False, None, None, None, None, None, None, total.steps, blank
        )
    reasons: dict[str, str] = {}
    values: dict[str, float | None] = {}
    for name in ("pld", "zcdp", "gaussian"):
        try:
            values[name] = epsilon(events := _kept(events), delta, name, relation)
        except AccountingError as error:
            values[name], reasons[name] = None, str(error)
    order, edge = None, False
    try:
        cost = _rdp(total, delta, relation)
        values["rdp"], order, edge = cost.epsilon, cost.order, cost.at_grid_edge
    except AccountingError as error:
        values["rdp"], reasons["rdp"] = None, str(error)
    checked = PrvCost(None, None, "PRV was not asked for.")
    if cross_check:
        checked = _prv(total, delta, relation, values["pld"] or 0.0)
    if checked.reason is not None:
        reasons["prv"] = checked.reason
    mu = total.mu(_sensitivity(relation)) if values["gaussian"] is not None else None
    rho = _zcdp_rho(total, relation) if values["zcdp"] is not None else None
    return Price(
        delta=delta,
        neighboring_relation=relation,
        pld=values["pld"],
        rdp=values["rdp"],
        rdp_order=order,
        rdp_order_at_grid_edge=edge,
        prv=checked.epsilon,
        prv_error=checked.error,
        zcdp=values["zcdp"],
        zcdp_rho=rho,
        gaussian=values["gaussian"],
        gaussian_mu=mu,
        steps=total.steps,
        reasons=tuple(sorted(reasons.items())),
    )


def _kept(events: Events) -> Events:
    return events if isinstance(events, (dp_event.DpEvent, list, tuple)) else list(events)
