"""How records decide the claims of the TP-TopK paper: one function per claim, from a profile's runs to outcomes.

>>> list(against("tp_topk", "dense")([]))
[]

Base runs alone are compared method with method; runs of a sweep are compared with one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfumato.records import MeanInterval
from sfumato.report.claims import (
    NO_DIFFERENCE,
    Evaluation,
    Judgement,
    Outcome,
    judge_below,
    judge_close,
    judge_positive,
    judge_size,
    points,
    weakest,
)
from sfumato.report.study import BASE, Run, by_seed, levels_of, paired
from sfumato.report.vocabulary import BINARY, dataset_label, method, number

MISRANKING_DISTANCE = 0.05
COLLAPSED_RECALL = 0.1
WARMUP_SHARE = 0.3


def _bases(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.variant == BASE]


def _cells(run: Run, step: str = "train") -> list[tuple[str, str]]:
    records = run.records.get(step, ())
    return [
        (dataset, epsilon)
        for dataset in levels_of(records, "dataset")
        for epsilon in levels_of(run.select(step, dataset=dataset), "epsilon")
        if epsilon != "inf"
    ]


def _metric(
    run: Run, dataset: str, epsilon: str, name: str, metric: str = "test_accuracy"
) -> dict[str, float]:
    return by_seed(run.select("train", dataset=dataset, method=name, epsilon=epsilon), metric)


def against(
    first: str, second: str, metric: str = "test_accuracy", only: frozenset[str] | None = None
) -> Evaluation:
    """First method better than the second on the same seeds, at every place where both exist."""

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in _bases(runs):
            for dataset, epsilon in _cells(run):
                if only is None or dataset in only:
                    one, two = (_metric(run, dataset, epsilon, name, metric) for name in (first, second))
                    difference = paired(one, two)
                    if difference is not None:
                        yield Outcome(dataset, epsilon, judge_positive(difference), run)

    return evaluate


def sized(second: str, sizes: dict[str, float]) -> Evaluation:
    """TP-TopK better than the second method on CIFAR-10 by the claimed number of points."""

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in _bases(runs):
            for epsilon, size in sizes.items():
                one, two = (_metric(run, "cifar10", epsilon, name) for name in ("tp_topk", second))
                difference = paired(one, two)
                if difference is not None:
                    yield Outcome("cifar10", epsilon, judge_size(difference, size), run, f"claimed +{size:g}")

    return evaluate


def largest_on_cifar(runs: Sequence[Run]) -> Iterator[Outcome]:
    """TP-TopK gains more over TP-Rand on CIFAR-10 than on any other data set."""
    for run in _bases(runs):
        for dataset, epsilon in _cells(run):
            if dataset != "cifar10":
                continue
            gains = {name: _gains(run, name, epsilon) for name, other in _cells(run) if other == epsilon}
            others = {name: gain for name, gain in gains.items() if name != "cifar10" and gain}
            if not gains["cifar10"] or not others:
                continue
            parts: list[tuple[str, Judgement]] = []
            for name, gain in others.items():
                difference = paired(gains["cifar10"], gain)
                if difference is not None:
                    parts.append((f"more than on {dataset_label(name)}", judge_positive(difference)))
            if parts:
                yield Outcome("cifar10", epsilon, weakest(parts), run)


def _gains(run: Run, dataset: str, epsilon: str, second: str = "tp_rand") -> dict[str, float]:
    one, two = (_metric(run, dataset, epsilon, name) for name in ("tp_topk", second))
    return {seed: one[seed] - two[seed] for seed in one if seed in two}


def dense_collapses(runs: Sequence[Run]) -> Iterator[Outcome]:
    """Recall of the rare class under dense DP-SGD lies at or below the limit."""
    for run in _bases(runs):
        for dataset, epsilon in _cells(run):
            recalls = list(_metric(run, dataset, epsilon, "dense", "test_positive_recall").values())
            if dataset in BINARY and recalls:
                judged = judge_below(_mean(recalls), COLLAPSED_RECALL)
                yield Outcome(dataset, epsilon, judged, run, "not the paper's data")


def _mean(values: Sequence[float]) -> MeanInterval:
    zeros = {str(seed): 0.0 for seed in range(len(values))}
    found = paired(dict(zip(zeros, values, strict=True)), zeros)
    assert found is not None
    return found


def recall_recovers(runs: Sequence[Run]) -> Iterator[Outcome]:
    """TP-TopK has a higher recall of the rare class than dense DP-SGD."""
    for outcome in against("tp_topk", "dense", "test_positive_recall", BINARY)(runs):
        yield Outcome(
            outcome.dataset, outcome.epsilon, outcome.judgement, outcome.run, "not the paper's data"
        )


def _sweep(runs: Sequence[Run], name: str) -> list[tuple[float, Run]]:
    """The runs of a sweep by their setting, the base run among them where its setting is known."""
    found: dict[float, Run] = {}
    for run in sorted(runs, key=lambda r: r.variant != BASE):
        value = run.setting(name)
        if value is not None and (run.variant == BASE or (run.sweep and run.sweep[0] == name)):
            found[value] = run
    return sorted(found.items(), key=lambda item: item[0])


def _sweep_cells(sweep: Sequence[tuple[float, Run]]) -> list[tuple[str, str]]:
    cells = [_cells(run) for _value, run in sweep if run.sweep]
    return list(dict.fromkeys(cell for found in cells for cell in found))


def interior_optimum(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The share nearest to 30 % beats the smallest and the largest share tried; no share is picked by its result."""
    sweep = _sweep(runs, "share")
    for dataset, epsilon in _sweep_cells(sweep):
        scores = [(value, run, _metric(run, dataset, epsilon, "tp_topk")) for value, run in sweep]
        scores = [entry for entry in scores if entry[2]]
        if len(scores) < 3:
            continue
        value, run, middle = min(scores[1:-1], key=lambda entry: abs(entry[0] - WARMUP_SHARE))
        parts: list[tuple[str, Judgement]] = []
        for end_value, _run, end in (scores[0], scores[-1]):
            difference = paired(middle, end)
            if difference is not None:
                parts.append((f"share {value:g} over {end_value:g}", judge_positive(difference)))
        best = max(scores, key=lambda entry: sum(entry[2].values()) / len(entry[2]))[0]
        if len(parts) == 2:
            judged = weakest(parts)
            text = f"{judged.measured}; the best mean is at {best:g}"
            judged = Judgement(text, judged.verdict, judged.value, judged.interval, judged.unit)
            others = tuple(entry[1] for entry in scores if entry[1] is not run)
            note = f"shares {_listed(entry[0] for entry in scores)}"
            yield Outcome(dataset, epsilon, judged, run, note, beside=others)


def _listed(values: Iterator[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def small_supports_gain(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The gain over TP-Rand at the smallest active ratio exceeds that at the largest."""
    sweep = _sweep(runs, "ratio")
    for dataset, epsilon in _sweep_cells(sweep):
        gains = [(value, run, _gains(run, dataset, epsilon)) for value, run in sweep]
        gains = [entry for entry in gains if entry[2]]
        if len(gains) < 2:
            continue
        difference = paired(gains[0][2], gains[-1][2])
        if difference is not None:
            note = f"gain over TP-Rand at ratio {gains[0][0]:g} minus that at {gains[-1][0]:g}"
            ends = gains[0][1], gains[-1][1]
            yield Outcome(dataset, epsilon, judge_positive(difference), ends[0], note, beside=ends[1:])


def selection_is_free(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The recorded events of TP-TopK and TP-Rand have equal prices."""
    for run in _bases(runs):
        for dataset, epsilon in _cells(run, "account"):
            priced = {
                name: by_seed(
                    run.select("account", dataset=dataset, epsilon=epsilon, method=name), "epsilon_pld"
                )
                for name in ("tp_topk", "tp_rand")
            }
            difference = paired(priced["tp_topk"], priced["tp_rand"])
            if difference is None:
                continue
            seeds = [seed for seed in priced["tp_topk"] if seed in priced["tp_rand"]]
            gaps = [priced["tp_topk"][seed] - priced["tp_rand"][seed] for seed in seeds]
            equal = max(map(abs, gaps)) <= 1e-9
            text = f"ε of the recorded steps {number(priced['tp_topk'][seeds[0]], 5)} and "
            text += f"{number(priced['tp_rand'][seeds[0]], 5)}, equal for {'all' if equal else 'not all'} {len(seeds)} seeds"
            verdict = "holds" if equal else "does not hold"
            judged = Judgement(text, verdict, difference.mean, (min(gaps), max(gaps)), "ε")
            yield Outcome(dataset, epsilon, judged, run)


def misranking(runs: Sequence[Run]) -> Iterator[Outcome]:
    """Predicted and measured misranking are close."""
    for run in _bases(runs):
        for dataset, epsilon in _cells(run):
            measured = _metric(run, dataset, epsilon, "tp_topk", "misranked")
            predicted = _metric(run, dataset, epsilon, "tp_topk", "misranked_predicted")
            difference = paired(measured, predicted)
            if difference is not None:
                one, two = _mean(list(measured.values())).mean, _mean(list(predicted.values())).mean
                judged = judge_close(difference, MISRANKING_DISTANCE)
                text = f"measured {one:.3f}, predicted {two:.3f}: {judged.measured}"
                judged = Judgement(text, judged.verdict, judged.value, judged.interval, judged.unit)
                yield Outcome(dataset, epsilon, judged, run)


def noise_scales(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The noise energies of a step stand in the ratio k/d."""
    names = ("noise_energy_active", "noise_energy_dense", "active", "dimension")
    for run in _bases(runs):
        for dataset, epsilon in _cells(run):
            active, dense, k, d = (_metric(run, dataset, epsilon, "tp_topk", name) for name in names)
            seeds = [seed for seed in active if seed in k and seed in d and dense.get(seed)]
            if seeds:
                ratios = [active[seed] / dense[seed] for seed in seeds]
                wanted = [k[seed] / d[seed] for seed in seeds]
                close = all(abs(r - w) <= 1e-6 * w for r, w in zip(ratios, wanted, strict=True))
                text = f"noise energy ratio {number(ratios[0], 4)}, k/d {number(wanted[0], 4)} ({len(seeds)} seeds)"
                verdict = "holds" if close else "does not hold"
                judged = Judgement(text, verdict, ratios[0], (min(ratios), max(ratios)), "ratio")
                yield Outcome(dataset, epsilon, judged, run)


def criterion(runs: Sequence[Run]) -> Iterator[Outcome]:
    """The criterion at equal budget, on the gradient before the second phase, agrees with the sign of TP-TopK minus dense."""
    for run in _bases(runs):
        for dataset, epsilon in _cells(run):
            says = _metric(run, dataset, epsilon, "tp_topk", "restriction_beneficial_at_equal_budget")
            gains = _gains(run, dataset, epsilon, "dense")
            difference = paired(gains, dict.fromkeys(gains, 0.0))
            if not says or difference is None:
                continue
            text, value, ends = points(difference)
            share = sum(says.values()) / len(says)
            words = f"the criterion says that restriction pays for {round(share * len(says))} of {len(says)} seeds; "
            words += f"TP-TopK minus dense {text}"
            if ends is None or 0 < share < 1:
                yield Outcome(dataset, epsilon, Judgement(words, "not tested", value, ends, "points"), run)
                continue
            agrees = ends[0] > 0 if share == 1 else ends[1] < 0
            ending = "" if ends[0] > 0 or ends[1] < 0 else f"; {NO_DIFFERENCE}"
            verdict = "holds" if agrees else "does not hold"
            yield Outcome(dataset, epsilon, Judgement(words + ending, verdict, value, ends, "points"), run)


def audit_below(runs: Sequence[Run]) -> Iterator[Outcome]:
    """No lower bound of an audit exceeds the claimed epsilon."""
    for run in _bases(runs):
        for dataset, epsilon in _cells(run, "audit"):
            records = run.select("audit", dataset=dataset, epsilon=epsilon)
            bounds = [
                (float(bound), record)
                for record in records
                if isinstance(bound := record.values.get("epsilon_lower"), int | float)
            ]
            if bounds:
                bound, best = max(bounds, key=lambda entry: entry[0])
                levels, single = best.levels, float(best.values.get("confidence") or 0.0)
                confidence = max(
                    0.0, 1.0 - len(bounds) * (1.0 - single)
                )  # the largest of several (Bonferroni)
                claimed = float(epsilon)
                crossed = bound > claimed
                text = f"largest lower bound {number(bound)} ({method(levels.get('method', '')).label}, "
                text += f"{levels.get('space', '?')} space, {100 * confidence:g} % confidence), claimed {number(claimed)}"
                text += "; the claim is refuted" if crossed else "; not refuted"
                verdict = "does not hold" if crossed else "holds"
                yield Outcome(dataset, epsilon, Judgement(text, verdict, bound, None, "ε"), run)


def other_score(runs: Sequence[Run]) -> Iterator[Outcome]:
    """TP-TopK with square-of-mean scores beats the base run on the same seeds."""
    base = next((run for run in runs if run.variant == BASE), None)
    other = next((run for run in runs if run.variant == "score_square_of_mean"), None)
    if base is None or other is None:
        return
    for dataset, epsilon in _cells(other):
        one, two = (_metric(run, dataset, epsilon, "tp_topk") for run in (other, base))
        difference = paired(one, two)
        if difference is not None:
            yield Outcome(dataset, epsilon, judge_positive(difference), other, beside=(base,))
