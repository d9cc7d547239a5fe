"""How claims are decided by variants of a radio map run, beside the base run of the same profile.

>>> runs = [Run("medium", "radiomap", name, {}) for name in ("base", "radiomap_circular")]
>>> list(removes_the_leak("circular")(runs))  # no records
[]

A claim whose variant was not run has no outcome, and is listed as not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sfumato.report.claims import Evaluation, Judgement, Outcome
from sfumato.report.radiomap_rules import (
    BEST,
    CLOSE_DB,
    CLOSE_METRES,
    each,
    joint,
    judge_above,
    larger_error,
    negative,
    over_cells,
    prefixed,
    smaller_validation_error,
    whole,
)
from sfumato.report.radiomap_tables import (
    NO_NOISE,
    Cell,
    Reading,
    cells_of,
    datasets_of,
    errors,
    read,
    rounds_of,
)
from sfumato.report.radiomap_variants import OWN, base_of, changed, error_change, utility_change
from sfumato.report.study import Run, number_of, paired
from sfumato.report.vocabulary import ATTACKERS, RADIOMAP_VARIANTS, method

OWN_WEIGHTS = "own weights"
SAME_SIGMA = "same σ on every noised weight"
CLIPPING = "clip_only"
KNOWN_MAP = Reading("known_map")
TARGETED_OVER_UNIFORM = (("targeted_uniform", "uniform"),)


# ------------------------------------------------------------------------------------------------- rounds
def error_rises(name: str) -> Evaluation:
    """The error at the last attacked round lies above that at the first.

    Where a profile has the run in which every defence is attacked at the weights of its own training, that run decides;
    otherwise the base run does, at the weights that all defences share.

    Args:
        name: of the defence.
    """

    def judge(run: Run, dataset: str, multiplier: str) -> Judgement | None:
        cell = Cell(dataset, name, multiplier)
        rounds = rounds_of(read(run, cell, BEST))
        if len(rounds) < 2:
            return None
        gap = paired(errors(run, cell, BEST, rounds[-1]), errors(run, cell, BEST, rounds[0]))
        if gap is None:
            return None
        return prefixed(f"from round {rounds[0]} to round {rounds[-1]}", judge_above(gap, "m"))

    own, shared = each(judge, changed(OWN), OWN_WEIGHTS), each(judge)

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        decided = list(own(runs))
        yield from decided
        seen = {outcome.dataset for outcome in decided}
        yield from (outcome for outcome in shared(runs) if outcome.dataset not in seen)

    return evaluate


# ------------------------------------------------------------------------------------- two runs of a profile
def _under_clipping(name: str, judge: Callable[[Run, Run, Cell], Judgement | None]) -> Evaluation:
    """An outcome per data set that both a variant and the base run have, under clipping alone.

    Args:
        name: of the variant.
        judge: of the variant, the base run and the defence.
    """
    note = f"{method(CLIPPING).label}: {RADIOMAP_VARIANTS[name]}"

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        base = base_of(runs)
        if base is None:
            return
        for run in changed(name)(runs):
            for dataset in datasets_of(run):
                judged = judge(run, base, Cell(dataset, CLIPPING, NO_NOISE))
                if judged is not None:
                    yield Outcome(dataset, "", judged, run, note, beside=(base,))

    return evaluate


def removes_the_leak(name: str) -> Evaluation:
    """Under clipping alone the error is larger than in the base run, at a validation error at most `CLOSE_DB` larger.

    Args:
        name: of the variant.
    """

    def judge(run: Run, base: Run, cell: Cell) -> Judgement | None:
        useful = negative(utility_change(run, base, cell))
        parts = [
            ("attacker’s error over that of the base run", error_change(run, base, cell), "m", 0.0),
            ("validation error of the base run over its own", useful, "dB", -CLOSE_DB),
        ]
        return joint(parts)

    return _under_clipping(name, judge)


def _larger_than_base(run: Run, base: Run, cell: Cell) -> Judgement | None:
    return joint([("attacker’s error over that of the base run", error_change(run, base, cell), "m", 0.0)])


# ------------------------------------------------------------------------------------------- the known map
def _known_map_helps(run: Run, dataset: str) -> Judgement | None:
    """Medians, at the last round, over all defences that this attacker was tried on."""
    cells = cells_of(run, dataset)
    judged = over_cells(run, cells, BEST, KNOWN_MAP, "median")
    if judged is None:
        return None
    records = [record for cell in cells for record in read(run, cell, KNOWN_MAP)]
    counts = [value for record in records if (value := number_of(record, "count")) is not None]
    tried = f"; {max(counts):,.0f} updates a seed were simulated" if counts else ""
    words = f"median of the regressor over that of one who {ATTACKERS['known_map']}"
    return prefixed(words, replace(judged, measured=f"{judged.measured}{tried}"))


sgd_leaks_less = _under_clipping("sgd", _larger_than_base)
targeted_not_above_uniform = larger_error(
    (("uniform", "targeted_uniform"),), limit=-CLOSE_METRES, among=changed("multiplier"), note=SAME_SIGMA
)
privacy_order_at_same_sigma = larger_error(
    TARGETED_OVER_UNIFORM, among=changed("multiplier"), note=SAME_SIGMA
)
utility_order_at_same_sigma = smaller_validation_error(
    TARGETED_OVER_UNIFORM, changed("multiplier"), SAME_SIGMA
)
known_map_helps = whole(_known_map_helps, "all ν")
