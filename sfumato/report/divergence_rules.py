"""How records decide the claims on errors of the divergence paper: from a profile's runs to outcomes.

>>> from sfumato.records import MeanInterval
>>> part = Part("ε = 1", "B", MeanInterval(0.2, 0.05, 20), MeanInterval(0.4, 0.05, 20))
>>> judge_order([part], "A").measured
'A has 0.5 times the error of B at ε = 1 (0.2 ± 0.05 and 0.4 ± 0.05 nats); the intervals keep the order'

Where records hold the errors of single seeds, these are paired: the seeds share points and noise. Where they hold means
with 95 % intervals only, the rule of separation takes the ends that are worst for the claim: the upper end of the error
that is claimed to be smaller, the lower end of the other. That costs power and never gains it, however the two errors
are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sfumato.records import MeanInterval, mean_and_interval
from sfumato.report.claims import NO_DIFFERENCE, Evaluation, Judgement, Outcome
from sfumato.report.divergence_tables import (
    LOCAL,
    EstimateRow,
    at_place,
    by_method,
    epsilons_of,
    estimate_rows,
    places_of,
)
from sfumato.report.study import Run, bases
from sfumato.report.text import with_spread
from sfumato.report.vocabulary import comparison_label, method, number

UNIT = "nats"
CLOSE = 1.1
"""A private error of at most this many times the non-private one matches it."""
NEAR_ZERO = 0.25
"""A weight lambda up to here is close to zero."""
PLAIN = 1.0
"""The weight of the estimator without a choice of lambda."""
FEW = 10
"""The paper's number of points."""
LOW = 0.1
"""Nats; a mean error of at most this is low."""
PAPER, FREE = "trusted_aggregator", "non_private"


@dataclass(frozen=True)
class Part:
    """Two errors at one value of a study.

    Attributes:
        where: the value, for readers; empty where it is in the names.
        other: whose error the second one is, for readers.
        first: the error that is claimed to be small.
        second: the error that it is held against.
        paired: seed -> both errors, where recorded.
    """

    where: str
    other: str
    first: MeanInterval
    second: MeanInterval
    paired: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def margin(self, factor: float) -> tuple[float, float, float] | None:
        """``first - factor * second`` and its ends; None where an interval is missing."""
        value = self.first.mean - factor * self.second.mean
        if len(self.paired) > 1:
            found = mean_and_interval([one - factor * two for one, two in self.paired.values()])
            half = found.half_width or 0.0
        elif self.first.half_width is None or self.second.half_width is None:
            return None
        else:
            half = self.first.half_width + factor * self.second.half_width
        return value, value - half, value + half


def judge_order(parts: Sequence[Part], first: str, factor: float = 1.0) -> Judgement:
    """The rule of separation: at every value the first error lies below ``factor`` times the second, ends included.

    Args:
        parts: at least one.
        first: whose error is claimed to be small, in words.
        factor: 1 for a claim of direction, more for a claim of closeness.
    """
    margins = [part.margin(factor) for part in parts]
    found = [margin for margin in margins if margin is not None]
    if len(found) < len(parts):
        return Judgement(f"{_words(parts[-1], first)}; one seed, no interval", "not tested", None, None, UNIT)
    place = max(range(len(parts)), key=lambda index: found[index][2])
    value, *ends = found[place]
    interval = (ends[0], ends[1])
    text, limit = _words(parts[place], first), "" if factor == 1 else f" within a factor of {number(factor)}"
    if len(parts) > 1:
        text = f"{text}, the least clear of {len(parts)} comparisons"
    if len(parts[place].paired) > 1:
        times = "" if factor == 1 else f" the first less {number(factor)} times the second,"
        seeds = f"paired over {len(parts[place].paired)} seeds"
        low, high = (_signed(end) for end in ends)
        text = f"{text};{times} {seeds}: {_signed(value)} (95 % interval {low} to {high})"
    missed = [part for part, margin in zip(parts, found, strict=True) if margin[2] >= 0]
    if not missed:
        return Judgement(f"{text}; the intervals keep the order{limit}", "holds", value, interval, UNIT)
    opposite = [part for part, margin in zip(parts, found, strict=True) if margin[1] > 0]
    ending = f"; they do not keep the order{limit}{_list(missed, parts, 'anywhere')}"
    ending += (
        f"; the opposite was seen{_list(opposite, parts, 'everywhere')}" if opposite else f": {NO_DIFFERENCE}"
    )
    return Judgement(f"{text}{ending}", "does not hold", value, interval, UNIT)


def _list(some: Sequence[Part], parts: Sequence[Part], every: str) -> str:
    """Where some of the parts are; empty for the only one."""
    if len(some) == len(parts):
        return "" if len(parts) == 1 else f" {every}"
    several = len({part.other for part in parts}) > 1
    return " at " + ", ".join(f"{part.where} ({part.other})" if several else part.where for part in some)


def _words(part: Part, first: str) -> str:
    ratio = "" if part.second.mean <= 0 else f"{number(part.first.mean / part.second.mean)} times "
    where = f" at {part.where}" if part.where else ""
    means = f"{with_spread(part.first)} and {with_spread(part.second)} nats"
    return f"{first} has {ratio}the error of {part.other}{where} ({means})"


def _signed(value: float) -> str:
    """Three significant digits with a sign.

    >>> _signed(-0.01234), _signed(0.5)
    ('−0.0123', '+0.5')
    """
    return f"{'−' if value < 0 else '+'}{number(abs(value))}"


def _named(name: str) -> str:
    return method(name).label


def over_epsilons(
    first: str, seconds: Sequence[str], low: float = 0.0, high: float = math.inf, factor: float = 1.0
) -> Evaluation:
    """At every epsilon of a region the first method's error is below those of the others.

    Args:
        first: the method whose error is claimed to be small.
        seconds: those that it is held against, as far as they have records.
        low: the region's lower end, inside.
        high: its upper end, inside.
        factor: how many times the others' error is allowed.
    """
    upper = f"ε ≤ {high:g}" if high < math.inf else "all ε"
    region = f"{low:g} ≤ {upper}" if low else upper

    def judge(rows: Sequence[EstimateRow]) -> Judgement | None:
        parts: list[Part] = []
        for epsilon in (e for e in epsilons_of(rows) if low <= float(e) <= high):
            found = by_method(rows, epsilon)
            for name in seconds:
                parts += _part(found.get(first), found.get(name), f"ε = {epsilon}")
        return judge_order(parts, _named(first), factor) if parts else None

    return _everywhere(judge, "epsilon", region)


def _part(one: EstimateRow | None, two: EstimateRow | None, where: str) -> list[Part]:
    """The part of two rows, none where one of them is missing."""
    if one is None or two is None:
        return []
    return [_of_rows(where, _named(two.method), one, two)]


def _of_rows(where: str, other: str, one: EstimateRow, two: EstimateRow) -> Part:
    paired = {seed: (error, two.by_seed[seed]) for seed, error in one.by_seed.items() if seed in two.by_seed}
    return Part(where, other, one.error, two.error, paired)


def _everywhere(
    judge: Callable[[Sequence[EstimateRow]], Judgement | None], study: str, note: str
) -> Evaluation:
    """An outcome per data set and comparison at which a study can be judged."""

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in bases(runs):
            rows = estimate_rows(run)
            for place in places_of(rows):
                mine = at_place(rows, place, study)
                judged = judge(mine) if mine else None
                if judged is not None:
                    yield outcome(place, judged, run, note)

    return evaluate


def outcome(place: tuple[str, str], judged: Judgement, run: Run, note: str) -> Outcome:
    """An outcome at a data set and comparison."""
    words = ", ".join(part for part in (comparison_label(place[1]), note) if part)
    return Outcome(place[0], "", judged, run, words, place[1])


# -------------------------------------------------------------------------------------------------- studies
def _by_value(rows: Sequence[EstimateRow]) -> dict[float, EstimateRow]:
    """Value -> row of the paper's method, ascending."""
    return {row.number: row for row in rows if row.method == PAPER}


def _smallest(rows: Mapping[float, EstimateRow]) -> float:
    """The value with the smallest mean error."""
    return min(rows, key=lambda value: rows[value].error.mean)


def _coefficient(rows: Sequence[EstimateRow]) -> Judgement | None:
    found = _by_value(rows)
    near = {value: row for value, row in found.items() if value <= NEAR_ZERO}
    if not near or len(near) == len(found):
        return None
    best, plain = _smallest(found), PLAIN if PLAIN in found else max(found)
    text = f"the smallest error is at λ = {best:g}"
    if best > NEAR_ZERO:
        means = f"{with_spread(found[best].error)} nats; {with_spread(near[_smallest(near)].error)} at λ = {_smallest(near):g}"
        return Judgement(f"{text} ({means})", "does not hold", best, None, "λ")
    judged = judge_order([_of_rows("", f"λ = {plain:g}", found[best], found[plain])], f"λ = {best:g}")
    return Judgement(f"{text}; {judged.measured}", judged.verdict, best, None, "λ")


def _batched_coefficient(rows: Sequence[EstimateRow]) -> Judgement | None:
    """The lambda that is best for pooled counts, held against the one that is best for averaged batches."""
    pooled = _by_value(rows)
    batches = {row.number: row for row in rows if row.method == "per_batch" and row.number in pooled}
    if len(batches) < 2 or len(batches) < len(pooled):
        return None
    best, own = _smallest(pooled), _smallest(batches)
    text = f"the smallest error is at λ = {best:g} with pooled counts, at λ = {own:g} with batches"
    if best == own:
        return Judgement(text, "holds", 0.0, None, "λ")
    judged = judge_order([_of_rows("", f"λ = {own:g}", batches[best], batches[own])], f"λ = {best:g}", CLOSE)
    return Judgement(f"{text}; with batches {judged.measured}", judged.verdict, best - own, None, "λ")


def _points(rows: Sequence[EstimateRow]) -> Judgement | None:
    found = _by_value(rows)
    most = max(found, default=0.0)
    if FEW not in found or most <= FEW:
        return None
    return judge_order([_of_rows("", f"m = {most:g}", found[FEW], found[most])], f"m = {FEW}", CLOSE)


def _floor(rows: Sequence[EstimateRow]) -> Judgement | None:
    found = _by_value(rows)
    if len(found) < 3:
        return None
    best, ends = _smallest(found), (min(found), max(found))
    text = f"the smallest error of {len(found)} floors is at γ = {best:g} ({with_spread(found[best].error)} nats)"
    if best in ends:
        return Judgement(f"{text}, an end of the studied range", "does not hold", best, None, "γ")
    parts = [_of_rows(f"γ = {end:g}", "an end of the range", found[best], found[end]) for end in ends]
    judged = judge_order(parts, f"γ = {best:g}")
    return Judgement(f"{text}; {judged.measured}", judged.verdict, best, None, "γ")


def _pairs(rows: Sequence[EstimateRow]) -> Judgement | None:
    """Mean error over the lower and the upper third of the pairs by their divergence.

    Every pair has points and noise of its own, so the intervals of their errors add in squares.
    """
    mine = [row for row in rows if row.method == PAPER and row.divergence is not None]
    mine.sort(key=lambda row: row.divergence or 0.0)
    third = len(mine) // 3
    if third < 2:
        return None
    texts: list[str] = []
    highs: list[float | None] = []
    means: list[float] = []
    for words, part in (("smallest", mine[:third]), ("largest", mine[-third:])):
        errors = [row.error for row in part]
        halves = [error.half_width for error in errors if error.half_width is not None]
        mean = math.fsum(error.mean for error in errors) / len(errors)
        half = math.hypot(*halves) / len(errors) if len(halves) == len(errors) else None
        ends = part[0].divergence or 0.0, part[-1].divergence or 0.0
        spread = "" if half is None else f" ± {number(half, 2)}"
        texts.append(
            f"{number(mean)}{spread} nats over the {third} {words} divergences ({number(ends[0])} to {number(ends[1])})"
        )
        means.append(mean)
        highs.append(None if half is None else mean + half)
    text = f"mean error {' and '.join(texts)}, limit {LOW:g} nats"
    known = [high for high in highs if high is not None]
    if len(known) < 2:
        return Judgement(f"{text}; one seed, no interval", "not tested", max(means), None, UNIT)
    return Judgement(text, "holds" if max(known) <= LOW else "does not hold", max(means), None, UNIT)


batches_leave_the_coefficient = _everywhere(_batched_coefficient, "coefficient", "")
best_coefficient_near_zero = _everywhere(_coefficient, "coefficient", "")
ten_points_nearly_enough = _everywhere(_points, "points", "")
floor_trades_bias_for_noise = _everywhere(_floor, "floor", "")
low_error_small_and_large = _everywhere(_pairs, "pair", "")
matches_non_private = over_epsilons(PAPER, (FREE,), 0.5, 1.0, CLOSE)
beats_local = over_epsilons(PAPER, LOCAL, 0.0, 3.0)


# ----------------------------------------------------------------------------------------- between two others
def distributed_between(runs: Sequence[Run]) -> Iterator[Outcome]:
    """Distributed noise has a smaller error than local noise, and nowhere clearly a smaller one than the aggregator."""
    for run in bases(runs):
        rows = estimate_rows(run)
        for place in places_of(rows):
            mine = at_place(rows, place, "epsilon")
            above: list[Part] = []
            below: list[Part] = []
            for epsilon in epsilons_of(mine):
                found = by_method(mine, epsilon)
                own, where = found.get("distributed"), f"ε = {epsilon}"
                above += _part(own, found.get(PAPER), where)
                for name in LOCAL:
                    below += _part(own, found.get(name), where)
            if above and below:
                yield outcome(place, _between(above, below), run, "all ε")


def _between(above: Sequence[Part], below: Sequence[Part]) -> Judgement:
    smaller = judge_order(below, _named("distributed"))
    margins = [part.margin(1.0) for part in above]
    beaten = [part.where for part, m in zip(above, margins, strict=True) if m is not None and m[2] < 0]
    if beaten:
        text = f"{smaller.measured}; its error is below that of the trusted aggregator at {', '.join(beaten)}"
        return Judgement(text, "does not hold", smaller.value, smaller.interval, UNIT)
    text = f"{smaller.measured}; nowhere clearly below the trusted aggregator"
    return Judgement(text, smaller.verdict, smaller.value, smaller.interval, UNIT)


def _batched(rows: Sequence[EstimateRow]) -> list[EstimateRow]:
    """The per-batch rows of more than one batch of the study of T, few batches first."""
    return [row for row in rows if row.study == "batches" and row.method == "per_batch" and row.number > 1]


def pooled_beats_per_batch(runs: Sequence[Run]) -> Iterator[Outcome]:
    """Pooled counts have a smaller error than averaged batches, at every epsilon and number of batches."""
    for run in bases(runs):
        rows, studied = estimate_rows(run), run.setting("divergence_epsilon")
        for place in places_of(rows):
            mine, parts = at_place(rows, place, "epsilon"), list[Part]()
            for epsilon in epsilons_of(mine):
                found = by_method(mine, epsilon)
                parts += _part(found.get(PAPER), found.get("per_batch"), f"ε = {epsilon}")
                if float(epsilon) == studied:
                    for row in _batched([row for row in rows if row.place == place]):
                        parts += _part(found.get(PAPER), row, f"ε = {epsilon}, T = {row.value}")
            if parts:
                yield outcome(place, judge_order(parts, _named(PAPER)), run, "all ε and T")


def per_batch_bias_positive(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The per-batch estimate is biased upwards at the largest epsilon, else with the most batches studied."""
    for run in bases(runs):
        rows = estimate_rows(run)
        for place in places_of(rows):
            mine = [row for row in at_place(rows, place, "epsilon") if row.method == "per_batch"]
            largest = [*_batched([row for row in rows if row.place == place])[-1:], *mine[-1:]][-1:]
            for row in largest:
                if row.bias is not None:
                    value = f"{'ε' if row.study == 'epsilon' else 'T'} = {row.value}"
                    yield outcome(place, _positive(row.bias), run, value)


def _positive(bias: MeanInterval) -> Judgement:
    text = f"bias {with_spread(bias)} nats"
    if bias.half_width is None:
        return Judgement(f"{text} (one seed, no interval)", "not tested", bias.mean, None, UNIT)
    ends = (bias.mean - bias.half_width, bias.mean + bias.half_width)
    if ends[0] > 0:
        return Judgement(text, "holds", bias.mean, ends, UNIT)
    ending = "the opposite was seen" if ends[1] < 0 else "no bias was seen"
    return Judgement(f"{text}; {ending}", "does not hold", bias.mean, ends, UNIT)
