"""How records decide the claims on radio maps: from a profile's runs to outcomes.

>>> from sfumato.records import MeanInterval
>>> judge_above(MeanInterval(4.0, 3.0, 5), "m").measured
'+4.00 m (95 % interval +1.00 to +7.00, 5 seeds)'
>>> judge_above(MeanInterval(-1.0, 3.0, 5), "m", -5.0).measured
'−1.00 m (95 % interval −4.00 to +2.00, 5 seeds); all of it above −5 m'

Differences are paired over seeds, in metres of located transmitters (more is more private) and in decibels of validation
error (less is more useful). An outcome is one row per data set and noise multiplier, or per data set. The attacker is the one
chosen by validation, at the last round that both sides were attacked at, unless a claim says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sfumato.records import MeanInterval, mean_and_interval
from sfumato.report.claims import NO_DIFFERENCE, Evaluation, Judgement, Outcome, weakest
from sfumato.report.radiomap_tables import (
    FREE,
    REFERENCE,
    AccountRow,
    Cell,
    Reading,
    account_rows,
    cells_of,
    datasets_of,
    error_gap,
    methods_of,
    multipliers_of,
    order,
    seed_gaps,
    uploads_of,
    utility_gap,
)
from sfumato.report.study import Run, bases
from sfumato.report.vocabulary import ATTACKERS, VIEWS, method, number, percent, signed

CLOSE_METRES = 5.0
"""An error of location within this many metres is called equal: seeds alone move it by as much."""
CLOSE_DB = 0.2
"""A validation error within this many decibels is called equal."""
FORMAL = 10.0
"""An epsilon above this is called no formal protection."""
Pairs = Sequence[tuple[str, str]]
Choice = Callable[[Sequence[Run]], Sequence[Run]]
"""Which of a profile's runs decide."""
BEST = Reading()


def judge_above(mean: MeanInterval, unit: str, limit: float = 0.0) -> Judgement:
    """Holds if the whole interval lies above a limit.

    Args:
        mean: a paired difference.
        unit: of it.
        limit: 0 for a claim of direction, below it for a claim of being not worse by more than that.
    """
    value, half = mean.mean, mean.half_width
    if half is None:
        return Judgement(f"{signed(value)} {unit} (one seed, no interval)", "not tested", value, None, unit)
    ends = (value - half, value + half)
    text = (
        f"{signed(value)} {unit} (95 % interval {signed(ends[0])} to {signed(ends[1])}, {mean.count} seeds)"
    )
    above = ends[0] > limit
    if limit:
        text += f"; {'all' if above else 'not all'} of it above {number(limit)} {unit}"
    elif not above:
        text += f"; {'the opposite was seen' if ends[1] < 0 else NO_DIFFERENCE}"
    return Judgement(text, "holds" if above else "does not hold", value, ends, unit)


def prefixed(words: str, judged: Judgement) -> Judgement:
    """The judgement with words before what was measured."""
    return replace(judged, measured=f"{words}: {judged.measured}")


def negative(mean: MeanInterval | None) -> MeanInterval | None:
    """The difference the other way round."""
    return None if mean is None else MeanInterval(0.0 - mean.mean, mean.half_width, mean.count)


def joint(parts: Sequence[tuple[str, MeanInterval | None, str, float]]) -> Judgement | None:
    """All parts must hold: name, difference, unit, limit; None where one has no data."""
    judged = [(name, judge_above(gap, unit, limit)) for name, gap, unit, limit in parts if gap is not None]
    if not judged or len(judged) < len(parts):
        return None
    return weakest(judged)


def each(
    judge: Callable[[Run, str, str], Judgement | None], among: Choice = bases, note: str = ""
) -> Evaluation:
    """An outcome per data set and noise multiplier that can be judged.

    Args:
        judge: of a run, a data set and a multiplier.
        among: which runs.
        note: what is to be said of them.
    """
    ending = f", {note}" if note else ""

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in among(runs):
            for dataset in datasets_of(run):
                for multiplier in multipliers_of(run, dataset):
                    judged = judge(run, dataset, multiplier)
                    if judged is not None:
                        words = f"ν = {multiplier}{ending}"
                        yield Outcome(dataset, "", judged, run, words, f"nu_{multiplier}")

    return evaluate


def whole(judge: Callable[[Run, str], Judgement | None], note: str = "") -> Evaluation:
    """An outcome per data set that can be judged."""

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in bases(runs):
            for dataset in dict.fromkeys([*datasets_of(run), *(row.dataset for row in account_rows(run))]):
                judged = judge(run, dataset)
                if judged is not None:
                    yield Outcome(dataset, "", judged, run, note)

    return evaluate


def labels(first: str, second: str) -> str:
    """Two defences, the one that is claimed to have the larger figure first."""
    return f"{method(first).label} over {method(second).label}"


# ---------------------------------------------------------------------------------------- order of defences
def larger_error(
    pairs: Pairs, view: str = "all", limit: float = 0.0, among: Choice = bases, note: str = ""
) -> Evaluation:
    """In every pair the transmitter is located with a larger error under the first defence.

    Args:
        pairs: (the more private, the less private) as claimed.
        view: which weights the attacker reads.
        limit: metres; below 0 for a claim of being not worse.
        among: which runs decide.
        note: what is to be said of them.
    """
    reading = Reading(view=view)

    def judge(run: Run, dataset: str, multiplier: str) -> Judgement | None:
        parts = [
            (labels(first, second), _gap(run, dataset, multiplier, first, second, reading), "m", limit)
            for first, second in pairs
        ]
        return joint(parts)

    return each(judge, among, note)


def _gap(
    run: Run, dataset: str, multiplier: str, first: str, second: str, reading: Reading = BEST
) -> MeanInterval | None:
    cells = (Cell(dataset, first, multiplier), Cell(dataset, second, multiplier))
    return error_gap(run, (cells[0], reading), (cells[1], reading))


def _loss(run: Run, dataset: str, multiplier: str, first: str, second: str) -> MeanInterval | None:
    """By how many dB the second has the larger validation error."""
    return utility_gap(run, Cell(dataset, second, multiplier), Cell(dataset, first, multiplier))


def smaller_validation_error(pairs: Pairs, among: Choice = bases, note: str = "") -> Evaluation:
    """In every pair the first defence has the smaller validation error.

    Args:
        pairs: (the more useful, the less useful) as claimed.
        among: which runs decide.
        note: what is to be said of them.
    """

    def judge(run: Run, dataset: str, multiplier: str) -> Judgement | None:
        parts = [
            (labels(second, first), _loss(run, dataset, multiplier, first, second), "dB", 0.0)
            for first, second in pairs
        ]
        return joint(parts)

    return each(judge, among, note)


def better_than_uniform(name: str, limit: float = 0.0) -> Evaluation:
    """At equal energy a defence is more private than uniform noise and not less useful.

    Args:
        name: of the defence.
        limit: metres; below 0 where it is claimed to be not worse.
    """

    def judge(run: Run, dataset: str, multiplier: str) -> Judgement | None:
        privacy = _gap(run, dataset, multiplier, name, REFERENCE)
        useful = _loss(run, dataset, multiplier, name, REFERENCE)
        parts = [
            (labels(name, REFERENCE), privacy, "m", limit),
            (labels(REFERENCE, name), useful, "dB", -CLOSE_DB),
        ]
        return joint(parts)

    return each(judge)


def targeted_leaves_what_clipping_leaves(run: Run, dataset: str, multiplier: str) -> Judgement | None:
    """Noise on the transmitter's weights alone raises the error by less than `CLOSE_METRES` over clipping alone."""
    gap = negative(_gap(run, dataset, multiplier, "targeted_uniform", "clip_only"))
    return joint([(labels("clip_only", "targeted_uniform"), gap, "m", -CLOSE_METRES)])


# ------------------------------------------------------------------------------------------------- leakage
def _beyond_slices(run: Run, dataset: str) -> Judgement | None:
    cell = Cell(dataset, "none", "0")
    gap = error_gap(run, (cell, Reading(view="slices")), (cell, BEST))
    return joint([(f"{VIEWS['slices']} over {VIEWS['all']}", gap, "m", 0.0)])


def _clipping_leaks(run: Run, dataset: str) -> Judgement | None:
    cell = Cell(dataset, "clip_only", "0")
    gap = error_gap(run, (cell, Reading("constant")), (cell, BEST))
    return joint([(f"{ATTACKERS['constant']} over {ATTACKERS['best']}", gap, "m", 0.0)])


def _mean_gap(found: Sequence[dict[str, float]]) -> MeanInterval | None:
    """Mean over cells of a seed's differences, over the seeds that all cells have, with its interval."""
    if not found:
        return None
    seeds = [seed for seed in found[0] if all(seed in other for other in found)]
    means = [math.fsum(gaps[seed] for gaps in found) / len(found) for seed in seeds]
    return mean_and_interval(means) if means else None


def over_cells(
    run: Run, cells: Sequence[Cell], first: Reading, second: Reading, name: str = "rmse"
) -> Judgement | None:
    """Whether the first reading's error is the larger one, on average over the cells that have both.

    Args:
        run: whose records.
        cells: the defences.
        first: what is read of each, with the larger error as claimed.
        second: with the smaller one.
        name: ``rmse`` or ``median``.
    """
    gaps = [(cell, seed_gaps(run, (cell, first), (cell, second), name=name)) for cell in cells]
    found = [(cell, gap) for cell, gap in gaps if gap]
    mean = _mean_gap([gap for _cell, gap in found])
    if mean is None:
        return None
    judged = judge_above(mean, "m")
    names = ", ".join(dict.fromkeys(method(cell.method).label for cell, _gap in found))
    return replace(judged, measured=f"{judged.measured}; mean over {len(found)} cells ({names})")


def _averaging_helps(run: Run, dataset: str, multiplier: str) -> Judgement | None:
    averaged = [text for text in uploads_of(run, dataset) if text.isdigit() and int(text) > 1]
    if not averaged:
        return None
    names = [name for name in methods_of(run, dataset, multiplier) if name not in FREE]
    cells = [Cell(dataset, name, multiplier) for name in names]
    judged = over_cells(run, cells, BEST, Reading(uploads=averaged[-1]))
    if judged is None:
        return None
    return prefixed(f"one update over the mean of {averaged[-1]}", judged)


def _sum_hides(run: Run, dataset: str) -> Judgement | None:
    sums = [text for text in uploads_of(run, dataset) if text.startswith("sum")]
    if not sums:
        return None
    judged = over_cells(run, cells_of(run, dataset), Reading(uploads=sums[-1]), BEST)
    if judged is None:
        return None
    return prefixed(f"the sum of {sums[-1].removeprefix('sum')} over one update", judged)


# ---------------------------------------------------------------------------------------------- guarantees
def _named(row: AccountRow) -> str:
    return f"{method(row.method).label}, ν = {row.multiplier}"


def _epsilon(value: float) -> str:
    """Large ones in full.

    >>> _epsilon(5210.4), _epsilon(0.512)
    ('5,210', '0.512')
    """
    return f"{value:,.0f}" if value >= 100 else number(value)


def _audits(run: Run, dataset: str) -> Judgement | None:
    """No lower bound of an audit exceeds the epsilon of one update."""
    found = [
        (row.audit_lower, row.epsilon_upload, row)
        for row in account_rows(run)
        if row.dataset == dataset and row.audit_lower is not None and row.epsilon_upload is not None
    ]
    if not found:
        return None
    lower, claimed, top = max(found, key=lambda entry: entry[0] / entry[1] if entry[1] else math.inf)
    crossed = any(row.crossed for _lower, _claimed, row in found)
    text = f"{len(found)} audits; the closest proves {_epsilon(lower)} of {_epsilon(claimed)} claimed ({_named(top)}"
    if top.audit_confidence is not None:
        text += f"; each at {percent(top.audit_confidence, 0)} confidence"
    text += f"); {'the claim is refuted' if crossed else 'not refuted'}"
    return Judgement(text, "does not hold" if crossed else "holds", lower, None, "ε")


def _no_formal_protection(run: Run, dataset: str) -> Judgement | None:
    """Every epsilon of a single update lies above `FORMAL`."""
    found = [
        (row.epsilon_upload, row)
        for row in account_rows(run)
        if row.dataset == dataset and row.epsilon_upload is not None
    ]
    if not found:
        return None
    found.sort(key=lambda entry: (entry[0], order(entry[1].multiplier)))
    low, least = found[0]
    high, most = found[-1]
    text = f"ε of one update from {_epsilon(low)} ({_named(least)}) to {_epsilon(high)} ({_named(most)})"
    return Judgement(text, "holds" if low > FORMAL else "does not hold", low, (low, high), "ε")


targeted_does_not_protect = each(targeted_leaves_what_clipping_leaves)
uploads_leak_beyond_slices = whole(_beyond_slices, "no defence")
clipping_leaves_leakage = whole(_clipping_leaks)
averaging_helps = each(_averaging_helps)
sum_hides_more = whole(_sum_hides, "all ν")
audits_stay_below = whole(_audits, "all ν")
no_formal_protection = whole(_no_formal_protection, "all ν")
