"""Claims and their verdicts: computed from records by declared rules, never typed.

>>> from sfumato.records import MeanInterval
>>> judge_positive(MeanInterval(0.02, 0.01, 3)).verdict
'holds'
>>> judge_positive(MeanInterval(0.02, 0.03, 3)).measured
'+2.00 points (95 % interval −1.00 to +5.00, 3 seeds); no difference was seen'

The rules:

* A claim of direction compares two methods on the same seeds. It holds if the whole 95 % Student t interval of
  the paired difference lies on the claimed side. It does not hold if the interval lies on the other side or
  includes zero; in the second case the text says that no difference was seen.
* A claim of size holds if the interval lies above zero and reaches the claimed size, without being wider than it.
* A claim of closeness holds if the whole interval lies within the stated distance of zero.
* A claim of identity holds if every value meets it.
* A claim of separation orders two errors, the second one times a stated factor. Where records hold single seeds it holds
  if the whole interval of the difference, paired over seeds, lies on the claimed side; where they hold means with their
  intervals only, if the ends that are worst for the claim keep it.
* Without data, or with fewer than two seeds where an interval is needed, it is not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from sfumato.records import MeanInterval
from sfumato.report.study import Run
from sfumato.report.vocabulary import dataset_label, epsilon_label, profile_order, signed

Verdict = Literal["holds", "does not hold", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "not tested")
NO_DIFFERENCE = "no difference was seen"


@dataclass(frozen=True)
class Judgement:
    """What was measured and what follows.

    Attributes:
        measured: in words.
        verdict: by the claim's rule.
        value: the number behind it, in ``unit``.
        interval: its 95 % interval, or the range of the values where no seed varies.
        unit: of value and interval.
    """

    measured: str
    verdict: Verdict
    value: float | None = None
    interval: tuple[float, float] | None = None
    unit: str = ""


@dataclass(frozen=True)
class Outcome:
    """A judgement at one place.

    Attributes:
        dataset, epsilon: where.
        judgement: what was found.
        run: whose records were used.
        note: an addition to the data's description.
        part: a further place, such as a comparison; it enters the id.
        beside: further runs whose records were used.
    """

    dataset: str
    epsilon: str
    judgement: Judgement
    run: Run
    note: str = ""
    part: str = ""
    beside: tuple[Run, ...] = ()


Evaluation = Callable[[Sequence[Run]], Iterable[Outcome]]


@dataclass(frozen=True)
class Claim:
    """A claim, its source, and how records decide it.

    Attributes:
        name: lower-case identifier.
        system: whose claim.
        statement: one sentence.
        source: where it is made.
        command: what produces the records that test it.
        evaluate: given all runs of one profile, an outcome per place where data exist.
        places: (data set, epsilon) pairs that the claim names; those without data are listed as not tested.
        origin: ``paper``, or ``beyond`` for a claim that the paper does not make.
    """

    name: str
    system: str
    statement: str
    source: str
    command: str
    evaluate: Evaluation = lambda _runs: ()
    places: tuple[tuple[str, str], ...] = ()
    origin: Literal["paper", "beyond"] = "paper"


@dataclass(frozen=True)
class Finding:
    """One row of the claims table: a claim at a place, by a profile."""

    id: str
    claim: Claim
    profile: str | None
    dataset: str
    epsilon: str
    data: str
    command: str
    judgement: Judgement
    part: str = ""

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
        return {
            "id": self.id,
            "system": self.claim.system,
            "claim": self.claim.statement,
            "origin": self.claim.origin,
            "source": self.claim.source,
            "command": self.command,
            "profile": self.profile,
            "data": self.data,
            "measured": self.judgement.measured,
            "value": self.judgement.value,
            "unit": self.judgement.unit,
            "interval": list(self.judgement.interval) if self.judgement.interval else None,
            "verdict": self.judgement.verdict,
        }


def evaluate(claims: Iterable[Claim], runs: Sequence[Run]) -> list[Finding]:
    """Every claim on every profile's runs, small profiles first; claims without data as not tested.

    Args:
        claims: what is claimed.
        runs: base runs and sweeps of all profiles.
    """
    findings: list[Finding] = []
    for claim in claims:
        own = [run for run in runs if run.system == claim.system]
        found: list[Finding] = []
        for profile in sorted({run.profile for run in own}, key=profile_order):
            outcomes = claim.evaluate([run for run in own if run.profile == profile])
            found += [_finding(claim, profile, outcome) for outcome in outcomes]
        seen = {(f.dataset, f.epsilon) for f in found}
        missing = [place for place in claim.places if place not in seen]
        if not found and not claim.places:
            missing = [("", "")]
        findings += found + [_untested(claim, *place) for place in missing]
    return findings


def _finding(claim: Claim, profile: str, outcome: Outcome) -> Finding:
    parts = [claim.name, outcome.dataset, outcome.part, outcome.epsilon, profile]
    named = _data(outcome.dataset, outcome.epsilon, outcome.run.labels)
    data = ", ".join(part for part in (named, outcome.note) if part)
    used = (outcome.run, *outcome.beside)
    command = "; ".join(dict.fromkeys(run.command or claim.command for run in used))
    name = "/".join(part for part in parts if part)
    place = outcome.dataset, outcome.epsilon
    return Finding(name, claim, profile, *place, data, command, outcome.judgement, outcome.part)


def _untested(claim: Claim, dataset: str, epsilon: str) -> Finding:
    name = "/".join(part for part in (claim.name, dataset, epsilon) if part)
    judgement = Judgement("no run of this data yet", "not tested")
    return Finding(name, claim, None, dataset, epsilon, _data(dataset, epsilon), claim.command, judgement)


def _data(dataset: str, epsilon: str, labels: Mapping[str, str] = MappingProxyType({})) -> str:
    name = labels.get(dataset) or dataset_label(dataset)
    return ", ".join([*([name] if dataset else []), *([epsilon_label(epsilon)] if epsilon else [])])


def preferred(findings: Iterable[Finding]) -> list[Finding]:
    """For each claim and place the finding of the largest profile that tested it."""
    best: dict[tuple[str, str, str, str], Finding] = {}
    for finding in findings:
        key = (finding.claim.name, finding.dataset, finding.epsilon, finding.part)
        old = best.get(key)
        if old is None or _weight(finding) >= _weight(old):
            best[key] = finding
    return list(best.values())


def _weight(finding: Finding) -> tuple[bool, tuple[int, str]]:
    return finding.judgement.verdict != "not tested", profile_order(finding.profile or "smoke")


# --------------------------------------------------------------------------------------------------- rules
def _ends(mean: MeanInterval) -> tuple[float, float] | None:
    return None if mean.half_width is None else (mean.mean - mean.half_width, mean.mean + mean.half_width)


def points(mean: MeanInterval) -> tuple[str, float, tuple[float, float] | None]:
    """A difference of shares: in words, and its value and interval in percentage points."""
    value, ends = 100 * mean.mean, _ends(mean)
    if ends is None:
        return f"{signed(value)} points (one seed, no interval)", value, None
    low, high = 100 * ends[0], 100 * ends[1]
    text = f"{signed(value)} points (95 % interval {signed(low)} to {signed(high)}, {mean.count} seeds)"
    return text, value, (low, high)


def judge_positive(mean: MeanInterval) -> Judgement:
    """The rule of direction for a paired difference that is claimed to be above zero."""
    text, value, ends = points(mean)
    if ends is None:
        return Judgement(text, "not tested", value, None, "points")
    if ends[0] > 0:
        return Judgement(text, "holds", value, ends, "points")
    ending = "the opposite was seen" if ends[1] < 0 else NO_DIFFERENCE
    return Judgement(f"{text}; {ending}", "does not hold", value, ends, "points")


def judge_size(mean: MeanInterval, claimed_points: float) -> Judgement:
    """The rule of size: above zero, the interval reaches the claimed size, and is no wider than that size.

    >>> judge_size(MeanInterval(0.02, 0.01, 3), 9.2).measured
    '+2.00 points (95 % interval +1.00 to +3.00, 3 seeds); the direction was seen, not the size of +9.20'
    """
    found = judge_positive(mean)
    if found.verdict != "holds" or found.interval is None:
        return found
    if found.interval[1] - found.interval[0] > claimed_points:
        text = f"{found.measured}; the interval is too wide to tell a size of {signed(claimed_points)}"
        return Judgement(text, "does not hold", found.value, found.interval, found.unit)
    if found.interval[1] >= claimed_points:
        return found
    text = f"{found.measured}; the direction was seen, not the size of {signed(claimed_points)}"
    return Judgement(text, "does not hold", found.value, found.interval, found.unit)


def judge_close(mean: MeanInterval, distance: float) -> Judgement:
    """The rule of closeness: the whole interval within ``distance`` (a share) of zero."""
    text, value, ends = points(mean)
    if ends is None:
        return Judgement(text, "not tested", value, None, "points")
    limit = 100 * distance
    close = -limit <= ends[0] and ends[1] <= limit
    ending = f"{'within' if close else 'not within'} ±{limit:g} points"
    return Judgement(f"{text}; {ending}", "holds" if close else "does not hold", value, ends, "points")


def judge_below(mean: MeanInterval, limit: float) -> Judgement:
    """Holds if the whole interval of a share lies at or below ``limit``."""
    value, ends = mean.mean, _ends(mean)
    if ends is None:
        return Judgement(f"{value:.3f} (one seed, no interval)", "not tested", value, None, "share")
    low, high = max(ends[0], 0.0), min(ends[1], 1.0)
    text = f"{value:.3f} (95 % interval {low:.3f} to {high:.3f}, {mean.count} seeds), limit {limit:g}"
    return Judgement(text, "holds" if high <= limit else "does not hold", value, (low, high), "share")


def weakest(judgements: Sequence[tuple[str, Judgement]]) -> Judgement:
    """The joint judgement of parts that must all hold: the worst part's numbers, all parts' words."""
    order = {"does not hold": 0, "not tested": 1, "holds": 2}
    worst = min((j for _name, j in judgements), key=lambda j: (order[j.verdict], j.value or 0.0))
    words = "; ".join(f"{name}: {j.measured}" for name, j in judgements)
    return Judgement(words, worst.verdict, worst.value, worst.interval, worst.unit)
