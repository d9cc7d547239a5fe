"""How far one example can move the estimate: exactly, for the public points that were really drawn.

>>> import numpy as np
>>> from sfumato.divergence.plan import Floor
>>> from sfumato.divergence.reference import all_points
>>> reference = Reference.from_probabilities([0.5, 0.3, 0.2])
>>> found = sensitivity(all_points(reference), reference, 100, EstimatorPlan(Floor("mix", 0.1), 0.0))
>>> round(found.exact, 6), round(found.closed_bound, 6), found.tight
(0.080791, 0.082757, True)

Replacing one example takes a count c_x down to c_x - 1 and another c_y up to c_y + 1, with N public. The change of the
estimate is w_x [Phi_x(c_x - 1) - Phi_x(c_x)] + w_y [Phi_y(c_y + 1) - Phi_y(c_y)], where a cell that no point shows has
weight 0. Each bracket is a signed step of a function of one count, and the reversed replacement has the opposite sign,
so the largest signed sum over x != y with c_x + c_y <= N is the sensitivity (Section 4.2, Sensitivity).

Mixed, Phi is convex in the count: its steepest descent is the step 1 -> 0 and its steepest ascent N - 1 -> N, which fit
into N examples together. Other functions (a clipped ratio, the squared Phi) are smooth between a few kinks and points of
inflection, and a step is extreme only next to one of these or at either end of the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sfumato.accounting.numeric import find_root
from sfumato.divergence.counting import Counts
from sfumato.divergence.plan import EstimatorPlan, Vector, require_examples
from sfumato.divergence.reference import PublicPoints, Reference

Transform = Callable[[Vector], Vector]
_AROUND = np.arange(-2, 3)
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Neighbors:
    """Two neighbouring populations: one example moves from the cell ``loser`` to the cell ``gainer``.

    Attributes:
        loser: cell that loses an example.
        loser_count: how many it has before, at least 1.
        gainer: cell that gains it.
        gainer_count: how many it has before.
        rest: cell that holds all other examples; it may be one of the two where its count does not matter.
    """

    loser: int
    loser_count: int
    gainer: int
    gainer_count: int
    rest: int

    def populations(self, cells: int, examples: int) -> tuple[Counts, Counts]:
        """(cells,) counts of both populations, before and after.

        Args:
            cells: of the reference.
            examples: N.
        """
        before = np.zeros(cells, np.int64)
        before[self.loser], before[self.gainer] = self.loser_count, self.gainer_count
        before[self.rest] += examples - self.loser_count - self.gainer_count
        after = before.copy()
        after[self.loser] -= 1
        after[self.gainer] += 1
        return before, after


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Largest change of an estimate under replacing one example, N public.

    Attributes:
        exact: the maximum itself where ``tight``, an upper bound of it otherwise.
        closed_bound: the closed formula of Section 4.2, never below the maximum.
        up: (k,) the largest increase of each point's value by one example more, weighted; may be negative.
        down: (k,) the largest increase of each point's value by one example fewer, weighted; may be negative.
        worst: the neighbours that attain ``exact``.
        tight: whether they exist.
        rounding: a bound on the error of two estimates in float64, charged on top.
    """

    exact: float
    closed_bound: float
    up: Vector
    down: Vector
    worst: Neighbors
    tight: bool
    rounding: float

    @property
    def charged(self) -> float:
        """What noise is calibrated to: ``exact`` and what rounding could add to it."""
        return self.exact * (1.0 + 1e-12) + self.rounding


def sensitivity(
    points: PublicPoints, reference: Reference, examples: int, plan: EstimatorPlan
) -> Sensitivity:
    """The sensitivity of the estimate over these points, exact over the whole domain (Section 4.2).

    It is a function of public values alone: the draws, Pi, N and the plan.

    Guarantee:
        No two populations of N examples that differ in one have estimates farther apart than ``exact``, whatever the
        examples are, also outside of the drawn cells.

    Args:
        points: where the population is counted.
        reference: Pi.
        examples: N, public, at least 2.
        plan: floor and lambda.

    Raises:
        SfumatoError: if the plan has no floor, so that none is finite, or N is too small.
    """
    return _Steps(points, reference, examples, plan, plan.values, ()).result(
        closed_bound(points, reference, examples, plan)
    )


def second_moment_sensitivity(
    points: PublicPoints, reference: Reference, examples: int, plan: EstimatorPlan, center: float
) -> Sensitivity:
    """As ``sensitivity``, of sum_x w_x (Phi - t)^2, which tells the sampling variance.

    (Phi - t)^2 has its inflections where q(r) = (lambda r)^2 - lambda r + 1 - lambda - t - ln r = 0; q falls up to
    r = 1 / lambda and rises beyond, so there are at most two. Where the two extreme steps do not fit into N examples
    together the sum of both is returned, which is above the maximum.

    Args:
        points: where the population is counted.
        reference: Pi.
        examples: N, public, at least 2.
        plan: floor and lambda.
        center: t, public.

    Raises:
        SfumatoError: as ``sensitivity``.
    """

    def squared(ratio: Vector) -> Vector:
        return np.square(plan.values(ratio) - center)

    steps = _Steps(points, reference, examples, plan, squared, inflections(plan.coefficient, center))
    reach = np.sqrt(squared(steps.extremes()).max(axis=0))
    each = 2.0 * reach * np.maximum(*_closed_steps(points, reference, examples, plan))
    return steps.result(_best_pair(each, each, True)[0])


def closed_bound(points: PublicPoints, reference: Reference, examples: int, plan: EstimatorPlan) -> float:
    """The closed upper bounds of Section 4.2, without a search.

    Mixed: the largest w_x ln(1 + d_x / gamma) + w_y lambda d_y over x != y, with d = (1 - gamma) / (N Pi). Clipped: the
    two largest of w min(max|lambda - 1/r| / (N Pi), max Phi - min Phi), both over [r_min, r_max].

    Args:
        points: where the population is counted.
        reference: Pi.
        examples: N.
        plan: floor and lambda.

    Raises:
        SfumatoError: if the plan has no floor.
    """
    down, up = _closed_steps(points, reference, examples, plan)
    return _best_pair(down, up, True)[0]


def _closed_steps(
    points: PublicPoints, reference: Reference, examples: int, plan: EstimatorPlan
) -> tuple[Vector, Vector]:
    """(k,) closed bounds of each point's weighted increase by one example fewer, and by one more."""
    floor, weights = plan.required_floor, points.weights
    own = reference.probabilities[points.cells]
    if floor.kind == "mix":
        step = (1.0 - floor.level) / (examples * own)
        return weights * np.log1p(step / floor.level), weights * plan.coefficient * step
    high = np.maximum(1.0 / own if floor.ceiling is None else np.full_like(own, floor.ceiling), floor.level)
    slope = np.maximum(abs(plan.coefficient - 1.0 / floor.level), np.abs(plan.coefficient - 1.0 / high))
    inner = math.inf if plan.coefficient == 0 else 1.0 / plan.coefficient
    ends = np.stack([plan.values(np.full_like(own, floor.level)), plan.values(high)])
    least = plan.values(np.clip(np.full_like(own, inner), floor.level, high))
    each = weights * np.minimum(slope / (examples * own), ends.max(axis=0) - least)
    return each, each


def inflections(coefficient: float, center: float) -> tuple[float, ...]:
    """Where (Phi(r) - t)^2 turns from convex to concave or back, ascending.

    Solved in z = ln(lambda r), where q is e^2z - e^z - z + c with its least value c at 0, for any lambda. A place beyond the
    numbers that float64 has is cut to 0 or to e^700, which no ratio reaches.
    """
    if coefficient == 0:
        return (math.exp(1.0 - center),) if center > -600.0 else ()
    log_coefficient = math.log(coefficient)
    least = 1.0 - coefficient - center + log_coefficient
    if least >= 0.0:
        return ()

    def turn(z: float) -> float:
        return math.expm1(z) * math.exp(z) - z + least

    # Below 0 the exponentials lie between -1/4 and 0; above, y (y - 1) - ln y >= y (y - 2) for y = e^z.
    # Both ends have room for rounding.
    ends = ((1.000001 * least - 0.25, 0.0), (0.0, math.log(2.0 + math.sqrt(-least)) + 1e-6))
    roots = [find_root(turn, low, high, 1e-14) for low, high in ends]
    return tuple(math.exp(min(root - log_coefficient, 700.0)) for root in roots)


def _best_pair(first: Vector, second: Vector, spare: bool) -> tuple[float, int, int]:
    """The largest first[x] + second[y] over x != y, and where; -1 is a cell without a point, if there is ``spare``."""
    best, at = -math.inf, (-1, -1)
    tops = [np.argsort(values)[::-1][:2].tolist() for values in (first, second)]
    if spare:
        tops = [[*top, -1] for top in tops]
    for x in tops[0]:
        for y in tops[1]:
            if x == y:
                continue
            value = (float(first[x]) if x >= 0 else 0.0) + (float(second[y]) if y >= 0 else 0.0)
            if value > best:
                best, at = value, (x, y)
    return best, at[0], at[1]


class _Steps:
    """The signed steps of a function of each point's count, at every count where one can be extreme."""

    def __init__(
        self,
        points: PublicPoints,
        reference: Reference,
        examples: int,
        plan: EstimatorPlan,
        transform: Transform,
        turns: tuple[float, ...],
    ) -> None:
        require_examples(examples)
        points.check_within(reference)
        floor = plan.required_floor
        self.points, self.reference, self.examples, self.convex = points, reference, examples, not turns
        self.transform, self.weights = transform, points.weights
        self.unit: Vector = 1.0 / (examples * reference.probabilities[points.cells])
        kinks = [*turns]
        inner = math.inf if plan.coefficient == 0 else 1.0 / plan.coefficient
        if floor.kind == "mix":
            kinks = [(turn - floor.level) / (1.0 - floor.level) for turn in turns]
            inner = (inner - floor.level) / (1.0 - floor.level)
        else:
            kinks += [floor.level] if floor.ceiling is None else [floor.level, floor.ceiling]
        self.inner = max(inner, 0.0)
        self.at = self._candidates(kinks)
        self.rise = self._rise(self.at)

    def _candidates(self, kinks: list[float]) -> Vector:
        """(k, c) counts from which a step up may be extreme: whole numbers from 0 to N - 1."""
        last = self.examples - 1.0
        columns: list[Vector] = [np.zeros_like(self.unit), np.full_like(self.unit, last)]
        for kink in kinks:
            near: Vector = np.floor(np.clip(kink / self.unit, 0.0, last))
            columns += [near + offset for offset in _AROUND]
        inside: Vector = np.clip(np.stack(columns, axis=1), 0.0, last)
        return inside

    def _rise(self, counts: Vector) -> Vector:
        """(k, c) weighted change of each point's value from these counts to one more."""
        unit = self.unit[:, None]
        moved = self.transform((counts + 1.0) * unit) - self.transform(counts * unit)
        weighted: Vector = self.weights[:, None] * moved
        return weighted

    def extremes(self) -> Vector:
        """(3, k) ratios before the floor among which Phi has its largest and smallest value."""
        highest = self.unit * self.examples
        inner: Vector = np.minimum(self.inner, highest)
        return np.stack([np.zeros_like(highest), highest, inner])

    def result(self, closed: float) -> Sensitivity:
        """The maximum over pairs, with the pair; the unconstrained one first, since it nearly always fits."""
        up, down = self.rise.max(axis=1), (-self.rise).max(axis=1)
        spare = self.points.count < self.reference.cells
        best, x, y = _best_pair(down, up, spare)
        lost = 0.0 if x < 0 else float(self.at[x, (-self.rise[x]).argmax()])
        gained = 0.0 if y < 0 else float(self.at[y, self.rise[y].argmax()])
        tight = self._fits(x, lost, y, gained)
        if not tight and self.convex:
            best, x, lost, y, gained = self._constrained(down, up, spare)
            tight = True
        total = float(self.weights @ np.abs(self.transform(self.extremes())).max(axis=0))
        rounding = 8.0 * _EPS * (self.points.count + 8) * (1.0 + total)
        worst = self._neighbors(x, lost, y, gained)
        return Sensitivity(max(best, 0.0), closed, up, down, worst, tight, rounding)

    def _fits(self, x: int, lost: float, y: int, gained: float) -> bool:
        """Whether N examples can have lost + 1 in x and gained in y, the others elsewhere."""
        if x < 0 or y < 0:
            return True
        free = self.examples - 1.0 - lost - gained
        return free >= 0.0 if self.reference.cells > 2 else free == 0.0

    def _constrained(self, down: Vector, up: Vector, spare: bool) -> tuple[float, int, float, int, float]:
        """The maximum over pairs that fit.

        Fewer examples in x leave more for y. On a convex piece a descent is steeper, and an ascent flatter, at a smaller
        count, so a pair that is best lies next to a kink in x, and in y next to a kink or at what is left for it.
        """
        best = (-math.inf, -1, 0.0, -1, 0.0)
        if spare:
            x, y = int(down.argmax()), int(up.argmax())
            best = (float(down[x]), x, float(self.at[x, (-self.rise[x]).argmax()]), -1, 0.0)
            if up[y] > best[0]:
                best = (float(up[y]), -1, 0.0, y, float(self.at[y, self.rise[y].argmax()]))
        highest = float(up.max())
        for x in np.argsort(down)[::-1].tolist():
            if float(down[x]) + highest <= best[0]:
                break
            best = max(best, self._best_partner(x), key=lambda found: found[0])
        return best

    def _best_partner(self, x: int) -> tuple[float, int, float, int, float]:
        """For one losing point, the best count and partner that fit."""
        counts = np.unique(self.at[x])
        if self.reference.cells == 2:
            other = 1 - x
            mirrored = self.examples - 1.0 - np.unique(self.at[other])
            counts = np.unique(
                np.clip(np.add.outer(np.append(counts, mirrored), _AROUND), 0, self.examples - 1)
            )
        best = (-math.inf, x, 0.0, -1, 0.0)
        for lost in counts.tolist():
            left = self.examples - 1.0 - lost
            at = np.column_stack([np.minimum(self.at, left), np.full(len(self.at), left)])
            if self.reference.cells == 2:
                at = at[:, -1:]
            rise = self._rise(at)
            rise[x] = -math.inf
            y, column = np.unravel_index(int(rise.argmax()), rise.shape)
            fall = -float(self._rise(np.full((len(self.at), 1), lost))[x, 0])
            if fall + float(rise[y, column]) > best[0]:
                best = (fall + float(rise[y, column]), x, lost, int(y), float(at[y, column]))
        return best

    def _neighbors(self, x: int, lost: float, y: int, gained: float) -> Neighbors:
        """The pair as cells; a point that is none is any cell that was not drawn, and takes the other examples."""
        drawn, cells = set(self.points.cells.tolist()), self.points.cells.tolist()
        undrawn = [cell for cell in range(min(len(cells) + 2, self.reference.cells)) if cell not in drawn]
        if x < 0 or y < 0:
            rest = undrawn[0]
            loser, gainer = (rest, cells[y]) if x < 0 else (cells[x], rest)
        else:
            loser, gainer = cells[x], cells[y]
            others = (cell for cell in range(min(3, self.reference.cells)) if cell not in (loser, gainer))
            rest = next(others, gainer)
        return Neighbors(loser, int(lost) + 1, gainer, int(gained), rest)
