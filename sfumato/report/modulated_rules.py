"""How records decide the claims on errors and noise of the modulated paper: from a profile's runs to outcomes.

>>> from sfumato.records import MeanInterval
>>> judge_more(MeanInterval(0.7, 0.1, 20), "A", "B").measured
'B has 2.01 times the error of A (95 % interval 1.82 to 2.23, 20 seeds)'

Errors are compared as ratios: the logarithm of the relative test error, averaged over the epsilons of a region, is
subtracted seed by seed, and the mean difference with its Student t interval is read as a ratio. So a region's small
errors count as much as its large ones. An outcome is one row per data set and region.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sfumato.records import MeanInterval
from sfumato.report.claims import NO_DIFFERENCE, Evaluation, Judgement, Outcome, weakest
from sfumato.report.modulated_tables import (
    ErrorRow,
    coverage_rows,
    datasets_of,
    epsilons_of,
    error_rows,
    log_errors,
    log_ratio,
)
from sfumato.report.study import BASE, Run, bases, by_seed, levels_of, number_of, paired
from sfumato.report.vocabulary import method, number

UNIT = "ratio of errors"
CLOSE = 1.1
"""Errors that differ by at most this factor are called equal."""
WIDEST_COVERAGE = 0.2
"""A longer interval of a coverage says nothing."""
WORTHLESS = "noise-dominated: none of these beats predicting the mean"


@dataclass(frozen=True)
class Region:
    """Some of the epsilons.

    Attributes:
        text: for readers.
        low, high: the ends, both inside.
    """

    text: str
    low: float = 0.0
    high: float = math.inf

    def of(self, epsilons: Sequence[str]) -> list[str]:
        """Those of the epsilons that lie in it."""
        return [epsilon for epsilon in epsilons if self.low <= float(epsilon) <= self.high]


SMALL, LARGE, ALL = Region("ε ≤ 1", high=1.0), Region("ε ≥ 5", low=5.0), Region("all ε")


def _ends(mean: MeanInterval) -> tuple[float, float] | None:
    if mean.half_width is None:
        return None
    return math.exp(mean.mean - mean.half_width), math.exp(mean.mean + mean.half_width)


def _words(mean: MeanInterval, first: str, second: str) -> str:
    ends = _ends(mean)
    spread = (
        "one seed, no interval"
        if ends is None
        else f"95 % interval {number(ends[0])} to {number(ends[1])}, {mean.count} seeds"
    )
    return f"{second} has {number(math.exp(mean.mean))} times the error of {first} ({spread})"


def judge_more(mean: MeanInterval, first: str, second: str) -> Judgement:
    """The rule of direction for ratios: the second has the larger error if the whole interval lies above 1.

    Args:
        mean: logarithm of the second's error over the first's.
        first: whose error is claimed to be smaller, in words.
        second: whose is claimed to be larger.
    """
    text, value, ends = _words(mean, first, second), math.exp(mean.mean), _ends(mean)
    if ends is None:
        return Judgement(text, "not tested", value, None, UNIT)
    if ends[0] > 1:
        return Judgement(text, "holds", value, ends, UNIT)
    ending = "the opposite was seen" if ends[1] < 1 else NO_DIFFERENCE
    return Judgement(f"{text}; {ending}", "does not hold", value, ends, UNIT)


def judge_within(mean: MeanInterval, first: str, second: str, low: float, high: float) -> Judgement:
    """The rule of closeness for ratios: the whole interval lies between the ends."""
    text, value, ends = _words(mean, first, second), math.exp(mean.mean), _ends(mean)
    if ends is None:
        return Judgement(text, "not tested", value, None, UNIT)
    inside = low <= ends[0] and ends[1] <= high
    wanted = f"at most {number(high)}" if low == 0 else f"{number(low)} to {number(high)}"
    ending = f"{'within' if inside else 'not within'} {wanted}"
    if not inside and ends[0] <= 1 <= ends[1]:
        ending += f", but the interval is wide: {NO_DIFFERENCE}"
    return Judgement(f"{text}; {ending}", "holds" if inside else "does not hold", value, ends, UNIT)


def _mean_errors(
    rows: Sequence[ErrorRow], dataset: str, names: Sequence[str], epsilons: Sequence[str]
) -> str:
    """Mean errors in words, and whether all of them are worth nothing."""
    found = {(row.method, row.epsilon): row.error.mean for row in rows if row.dataset == dataset}
    parts = [
        f"{method(name).label} " + ", ".join(number(found[name, epsilon]) for epsilon in epsilons)
        for name in names
    ]
    text = f"arithmetic means at ε = {', '.join(epsilons)}: {'; '.join(parts)}"
    worthless = [e for e in epsilons if min(found[name, e] for name in names) >= 1]
    if not worthless:
        return text
    where = "" if worthless == list(epsilons) else f" at ε = {', '.join(worthless)}"
    return f"{text}; {WORTHLESS}{where}"


def smaller_error(pairs: Sequence[tuple[str, str]], region: Region) -> Evaluation:
    """In every pair the first method has the smaller error over the region; an outcome per data set that has all of it."""
    names = list(dict.fromkeys(name for pair in pairs for name in pair))

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in bases(runs):
            rows = error_rows(run)
            for dataset in datasets_of(rows):
                epsilons = _shared(rows, dataset, names, region)
                parts: list[tuple[str, Judgement]] = []
                for first, second in pairs:
                    ratio = log_ratio(run, dataset, second, first, epsilons)
                    if ratio is not None:
                        labels = method(first).label, method(second).label
                        parts.append((f"over {labels[1]}", judge_more(ratio, *labels)))
                if len(parts) == len(pairs):
                    joint = _joint([judgement for _name, judgement in parts])
                    text = f"{joint.measured}; {_mean_errors(rows, dataset, names, epsilons)}"
                    yield Outcome(dataset, "", replace(joint, measured=text), run, region.text)

    return evaluate


def _joint(judgements: Sequence[Judgement]) -> Judgement:
    """The worst of the parts with the words of all."""
    worst = weakest([("", judgement) for judgement in judgements])
    return replace(worst, measured="; ".join(judgement.measured for judgement in judgements))


def _shared(rows: Sequence[ErrorRow], dataset: str, names: Sequence[str], region: Region) -> list[str]:
    """The epsilons of the region at which every method has errors."""
    epsilons = region.of(epsilons_of(row for row in rows if row.dataset == dataset))
    places = {(row.method, row.epsilon) for row in rows if row.dataset == dataset}
    return [epsilon for epsilon in epsilons if all((name, epsilon) in places for name in names)]


def close_twins(
    first: str,
    second: str,
    low: float,
    high: float,
    also: Callable[[Run, str], Judgement | None] = lambda _run, _dataset: None,
) -> Evaluation:
    """The second's error over the first's lies between the ends, over all epsilons, and what else must hold."""

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in bases(runs):
            rows = error_rows(run)
            for dataset in datasets_of(rows):
                epsilons = _shared(rows, dataset, (first, second), ALL)
                ratio = log_ratio(run, dataset, second, first, epsilons)
                if ratio is not None:
                    labels = method(first).label, method(second).label
                    extra = also(run, dataset)
                    parts = [judge_within(ratio, *labels, low, high), *([extra] if extra else [])]
                    yield Outcome(dataset, "", _joint(parts), run, ALL.text)

    return evaluate


def same_noise(first: str, second: str) -> Callable[[Run, str], Judgement | None]:
    """Both methods have the same noise at every epsilon, where both are accounted for."""

    def judge(run: Run, dataset: str) -> Judgement | None:
        found = [_noise(run, dataset, name) for name in (first, second)]
        shared = [epsilon for epsilon in found[0] if epsilon in found[1]]
        if not shared:
            return None
        equal = all(math.isclose(found[0][e], found[1][e], rel_tol=1e-9) for e in shared)
        text = f"their noise is {'equal' if equal else 'not equal'} at ε = {', '.join(shared)}"
        return Judgement(text, "holds" if equal else "does not hold", 1.0, None, "ratio")

    return judge


def _noise(run: Run, dataset: str, name: str) -> dict[str, float]:
    """Epsilon -> sigma of a method."""
    found = {
        record.levels["epsilon"]: number_of(record, "noise_std")
        for record in run.select("account", dataset=dataset, method=name)
    }
    return {epsilon: value for epsilon, value in found.items() if value}


# ------------------------------------------------------------------------------------------- more rounds
def improves_with_rounds(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The iterative estimator has a smaller error with the most rounds tried than with the fewest."""
    tried = {
        value: run
        for run in runs
        if (value := run.setting("rounds")) is not None
        and (run.variant == BASE or (run.sweep and run.sweep[0] == "rounds"))
    }
    if len(tried) < 2 or not any(run.sweep for run in tried.values()):
        return
    few, many = min(tried), max(tried)
    rows = [error_rows(tried[value]) for value in (few, many)]
    for dataset in datasets_of(rows[0]):
        places = [_shared(found, dataset, ("iterative",), ALL) for found in rows]
        epsilons = [epsilon for epsilon in places[0] if epsilon in places[1]]
        errors = [log_errors(tried[value], dataset, "iterative", epsilons) for value in (few, many)]
        ratio = paired(errors[0], errors[1])
        if ratio is not None:
            judged = judge_more(ratio, f"T = {many:g}", f"T = {few:g}")
            means = " and ".join(
                f"T = {value:g}: "
                + ", ".join(
                    number(row.error.mean)
                    for row in found
                    if (row.dataset, row.method) == (dataset, "iterative") and row.epsilon in epsilons
                )
                for value, found in zip((few, many), rows, strict=True)
            )
            text = f"{judged.measured}; arithmetic means at ε = {', '.join(epsilons)} with {means}"
            found_at = tried[many], tried[few]
            joint = replace(judged, measured=text)
            yield Outcome(dataset, "", joint, found_at[0], "all ε, same budget", beside=found_at[1:])


# ----------------------------------------------------------------------------------------------- noise
def _constants(run: Run, name: str) -> dict[str, tuple[float, float, float]]:
    """Data set -> Lipschitz constant, its value without modulation, and m, of a method."""
    found: dict[str, tuple[float, float, float]] = {}
    for record in run.select("account", method=name):
        values = [number_of(record, key) for key in ("lipschitz_constant", "marginal_constant", "directions")]
        numbers = [value for value in values if value is not None]
        if len(numbers) == 3:
            found[record.levels["dataset"]] = (numbers[0], numbers[1], numbers[2])
    return found


def more_directions_less_noise(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The Lipschitz constant falls as |1 - alpha| + lambda omega / sqrt(m), read from the plans that were priced."""
    found = {
        int(constants[2]): (run, constants)
        for run in runs
        if run.variant == BASE or (run.sweep and run.sweep[0] == "directions")
        for constants in _constants(run, "one_shot").values()
    }
    if len(found) < 2:
        return
    one, many = min(found), max(found)
    gains = {m: (constants[0] - constants[1]) * math.sqrt(m) for m, (_run, constants) in found.items()}
    exact = all(math.isclose(gain, gains[one], rel_tol=1e-9) for gain in gains.values())
    first, last = found[one][1][0], found[many][1][0]
    text = f"constant {number(first)} for m = {one}, {number(last)} for m = {many}; (constant − |1−α|)·√m is "
    text += f"{'the same' if exact else 'not the same'}, {number(gains[one])} and {number(gains[many])}. "
    text += "Each direction has the amplitude λ/√m: it is the smaller amplitude that lowers the bound, not that the "
    text += "directions are orthogonal; with λ each it stays where it is"
    verdict = "holds" if exact and last < first else "does not hold"
    judged = Judgement(text, verdict, last / first, None, "ratio of constants")
    note = f"m = {', '.join(str(m) for m in sorted(found))}"
    yield Outcome("", "", judged, found[many][0], note, beside=(found[one][0],))


def lipschitz_ratio(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The paper's sigma over the one that suffices is (|1 - alpha| + lambda omega / sqrt(m)) / |1 - alpha|."""
    for run in bases(runs):
        constants = _constants(run, "one_shot")
        gaps: list[tuple[float, float]] = []
        for dataset, (lipschitz, marginal, _m) in constants.items():
            paper, enough = _noise(run, dataset, "one_shot_lipschitz"), _noise(run, dataset, "one_shot")
            gaps += [(paper[e] / enough[e], lipschitz / marginal) for e in paper if e in enough]
        if gaps:
            equal = all(math.isclose(ratio, wanted, rel_tol=1e-6) for ratio, wanted in gaps)
            text = f"the paper's σ is {number(gaps[0][0], 4)} times the one that suffices, predicted "
            text += f"{number(gaps[0][1], 4)}; {'equal' if equal else 'not equal'} in all {len(gaps)} cells"
            ratios = [ratio for ratio, _wanted in gaps]
            ends = (min(ratios), max(ratios))
            verdict = "holds" if equal and ends[0] > 1 else "does not hold"
            count = len(levels_of(run.records["account"], "dataset"))
            note = f"{count} data set{'s' if count != 1 else ''}, all ε"
            yield Outcome("", "", Judgement(text, verdict, ratios[0], ends, "ratio of σ"), run, note)


# --------------------------------------------------------------------------------------------- intervals
def intervals_cover(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The intervals of one_shot hold at least their nominal share of the coefficients, where noise does not dominate."""
    for run in bases(runs):
        nominal = run.setting("confidence")
        rows = [row for row in coverage_rows(run) if not row.dominated]
        for dataset in dict.fromkeys(row.dataset for row in rows):
            mine = [row for row in rows if row.dataset == dataset]
            shares = [
                by_seed(
                    run.select("train", dataset=dataset, epsilon=row.epsilon, method="one_shot"), "covered"
                )
                for row in mine
            ]
            seeds = [seed for seed in shares[0] if all(seed in share for share in shares)]
            means = {seed: math.fsum(share[seed] for share in shares) / len(shares) for seed in seeds}
            mean = paired(means, dict.fromkeys(means, 0.0))
            if mean is None or nominal is None:
                continue
            fits = sum(row.fits for row in mine)
            missing = fits - sum(row.with_interval for row in mine)
            extra = f"; {missing} of {fits} fits had no interval and are left out" if missing else ""
            note = f"ε = {', '.join(row.epsilon for row in mine)}"
            yield Outcome(dataset, "", _coverage(mean, nominal, extra, missing > fits / 2), run, note)


def _coverage(mean: MeanInterval, nominal: float, extra: str, few: bool) -> Judgement:
    """The rule of coverage; with an interval in less than half of the fits it is not tested, whatever those say."""
    if mean.half_width is None:
        return Judgement(
            f"{mean.mean:.3f} (one seed, no interval){extra}", "not tested", mean.mean, None, "share"
        )
    low, high = max(mean.mean - mean.half_width, 0.0), min(mean.mean + mean.half_width, 1.0)
    text = f"{mean.mean:.3f} of the coefficients inside (95 % interval {low:.3f} to {high:.3f}, {mean.count} seeds), "
    text += f"nominal {nominal:g}{extra}"
    if few or high - low > WIDEST_COVERAGE:
        return Judgement(
            f"{text}; too {'few' if few else 'wide'} to tell", "not tested", mean.mean, (low, high), "share"
        )
    verdict = "holds" if high >= nominal else "does not hold"
    return Judgement(text, verdict, mean.mean, (low, high), "share")
