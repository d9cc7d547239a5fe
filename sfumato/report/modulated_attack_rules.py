"""How records decide the claims on attacks against the modulated system: floors and audits.

>>> list(no_attack_beats_its_floor([]))
[]

Many attacks are held against their floors at once, so their 95 % intervals are widened to hold jointly (Bonferroni,
normal approximation over the attacked clients). Runs with private labels are judged apart from those with public ones:
there the label is attacked too, and audited together with the features.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence

from sfumato.report.claims import Judgement, Outcome
from sfumato.report.modulated_label_rows import LabelRow, label_rows
from sfumato.report.modulated_tables import ATTACKS, AttackRow, attack_rows, local_audit_rows
from sfumato.report.study import BASE, Run, bases
from sfumato.report.vocabulary import method, number

MANY_MESSAGES = 10
"""From so many messages of one client on the likelihood attack is expected at its floor."""
WIDEST = 0.25
"""An interval wider than this share of the floor on either side says nothing."""
CONFIDENCE = 0.95


def joint_half_width(row: AttackRow | LabelRow, count: int) -> float:
    """Half of the interval of one error such that ``count`` of them hold jointly."""
    special = importlib.import_module("scipy.special")
    single, joint = (float(special.ndtri(1 - (1 - CONFIDENCE) / (2 * k))) for k in (1, count))
    return (row.high - row.mse) * joint / single


def _where(row: AttackRow | LabelRow) -> str:
    what = "on the label, " if isinstance(row, LabelRow) else ""
    place = f"{method(row.method).label}, ε = {row.epsilon}, T = {row.messages}"
    return f"{ATTACKS.get(row.attack, row.attack)}, {what}{place}"


def _attacked(runs: Sequence[Run]) -> Iterator[tuple[Run, str, str]]:
    """Base runs and those with other labels: the run, the part of its findings, the addition to their note."""
    for run in runs:
        if run.variant == BASE:
            yield run, "", ""
        elif run.sweep and run.sweep[0] == "labels":
            yield run, run.variant, f", {run.sweep[1]} labels"


def no_attack_beats_its_floor(runs: Sequence[Run]) -> Iterator[Outcome]:
    """No error lies below the floor that binds the attacker: Cramer-Rao if unbiased, Bayes if it has a prior."""
    for run, part, note in _attacked(runs):
        features = [row for row in attack_rows(run) if row.attack != "maximum_likelihood"]
        rows = [row for row in (*features, *label_rows(run)) if row.own_floor > 0]
        for dataset in dict.fromkeys(row.dataset for row in rows):
            mine = [row for row in rows if row.dataset == dataset]
            lowest = min(mine, key=lambda row: (row.mse + joint_half_width(row, len(mine))) / row.own_floor)
            half = joint_half_width(lowest, len(mine))
            ends = tuple((lowest.mse + sign * half) / lowest.own_floor for sign in (-1, 1))
            ratio, beaten = lowest.mse / lowest.own_floor, ends[1] < 1
            text = f"{len(mine)} attacks; the one furthest down has {number(ratio)} times its floor (joint 95 % interval "
            text += f"{number(ends[0])} to {number(ends[1])}; {_where(lowest)})"
            verdict = "does not hold" if beaten else "holds"
            judged = Judgement(text, verdict, ratio, (ends[0], ends[1]), "error over floor")
            yield Outcome(dataset, "", judged, run, f"all ε and T{note}", part)


def likelihood_reaches_its_floor(runs: Sequence[Run]) -> Iterator[Outcome]:
    """With many messages the error of the likelihood attack and its Cramer-Rao floor agree within the interval."""
    for run in bases(runs):
        rows = [row for row in attack_rows(run) if row.attack == "maximum_likelihood" and row.floor > 0]
        for dataset in dict.fromkeys(row.dataset for row in rows):
            most = max(row.messages for row in rows if row.dataset == dataset)
            mine = [row for row in rows if (row.dataset, row.messages) == (dataset, most)]
            if most < MANY_MESSAGES:
                continue
            halves = [joint_half_width(row, len(mine)) for row in mine]
            worst, half = max(
                zip(mine, halves, strict=True),
                key=lambda entry: abs(entry[0].mse - entry[0].floor) / entry[1],
            )
            ratio, width = worst.mse / worst.floor, half / worst.floor
            text = f"{len(mine)} attacks; the one furthest off has {number(ratio)} times its floor (joint 95 % interval "
            text += f"{number(ratio - width)} to {number(ratio + width)}; {_where(worst)})"
            ends = (ratio - width, ratio + width)
            if max(h / row.floor for row, h in zip(mine, halves, strict=True)) > WIDEST:
                judged = Judgement(f"{text}; too wide to tell", "not tested", ratio, ends, "error over floor")
            else:
                verdict = "holds" if abs(ratio - 1) <= width else "does not hold"
                judged = Judgement(text, verdict, ratio, ends, "error over floor")
            yield Outcome(dataset, "", judged, run, f"all ε, T = {most}")


def audits_stay_below(runs: Sequence[Run]) -> Iterator[Outcome]:
    """No lower bound of the likelihood-ratio audit exceeds the claimed epsilon."""
    for run, part, note in _attacked(runs):
        rows = local_audit_rows(run)
        for dataset in dict.fromkeys(row.dataset for row in rows):
            mine = [row for row in rows if row.dataset == dataset]
            top = max(mine, key=lambda row: row.lower / row.claimed)
            crossed = [row for row in mine if row.crossed]
            text = f"{len(mine)} audits; the closest proves {number(top.lower)} of {number(top.claimed)} claimed "
            text += f"({method(top.method).label}, {top.pair} the directions; each at {100 * top.confidence:g} % confidence)"
            text += "; the claim is refuted" if crossed else "; not refuted"
            verdict = "does not hold" if crossed else "holds"
            judged = Judgement(text, verdict, top.lower, None, "ε")
            yield Outcome(dataset, "", judged, run, f"all ε{note}", part)
