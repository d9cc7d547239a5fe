"""The claims of the TP-TopK paper, and some beyond it, with the rules that decide them.

>>> len({claim.name for claim in TOPK_CLAIMS}) == len(TOPK_CLAIMS)
True

Sources are sections of docs/papers.md. Only the paper's abstract and opening, and texts about it, were read;
the direction and the size of its gains are known, its absolute accuracies are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sfumato.records import MeanInterval
from sfumato.report.claims import (
    NO_DIFFERENCE,
    Claim,
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

QUICK = "make run"
MEDIUM = "make medium"
PAPER = "make paper"
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


def _metric(run: Run, dataset: str, epsilon: str, name: str, metric: str = "test_accuracy") -> dict[str, float]:
    return by_seed(run.select("train", dataset=dataset, method=name, epsilon=epsilon), metric)


def _against(first: str, second: str, metric: str = "test_accuracy", only: frozenset[str] | None = None) -> Evaluation:
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


def _sized(second: str, sizes: dict[str, float]) -> Evaluation:
    """TP-TopK better than the second method on CIFAR-10 by the claimed number of points."""

    def evaluate(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in _bases(runs):
            for epsilon, size in sizes.items():
                one, two = (_metric(run, "cifar10", epsilon, name) for name in ("tp_topk", second))
                difference = paired(one, two)
                if difference is not None:
                    yield Outcome("cifar10", epsilon, judge_size(difference, size), run, f"claimed +{size:g}")

    return evaluate


def _largest_on_cifar(runs: Sequence[Run]) -> Iterator[Outcome]:
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


def _dense_collapses(runs: Sequence[Run]) -> Iterator[Outcome]:
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


def _recall_recovers(runs: Sequence[Run]) -> Iterator[Outcome]:
    for outcome in _against("tp_topk", "dense", "test_positive_recall", BINARY)(runs):
        yield Outcome(outcome.dataset, outcome.epsilon, outcome.judgement, outcome.run, "not the paper's data")


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


def _interior_optimum(runs: Sequence[Run]) -> Iterator[Outcome]:
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
            yield Outcome(dataset, epsilon, judged, run, f"shares {_listed(entry[0] for entry in scores)}")


def _listed(values: Iterator[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _small_supports_gain(runs: Sequence[Run]) -> Iterator[Outcome]:
    sweep = _sweep(runs, "ratio")
    for dataset, epsilon in _sweep_cells(sweep):
        gains = [(value, run, _gains(run, dataset, epsilon)) for value, run in sweep]
        gains = [entry for entry in gains if entry[2]]
        if len(gains) < 2:
            continue
        difference = paired(gains[0][2], gains[-1][2])
        if difference is not None:
            note = f"gain over TP-Rand at ratio {gains[0][0]:g} minus that at {gains[-1][0]:g}"
            yield Outcome(dataset, epsilon, judge_positive(difference), gains[0][1], note)


def _selection_is_free(runs: Sequence[Run]) -> Iterator[Outcome]:
    for run in _bases(runs):
        for dataset, epsilon in _cells(run, "account"):
            priced = {
                name: by_seed(run.select("account", dataset=dataset, epsilon=epsilon, method=name), "epsilon_pld")
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


def _misranking(runs: Sequence[Run]) -> Iterator[Outcome]:
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


def _noise_scales(runs: Sequence[Run]) -> Iterator[Outcome]:
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


def _criterion(runs: Sequence[Run]) -> Iterator[Outcome]:
    for run in _bases(runs):
        for dataset, epsilon in _cells(run):
            says = _metric(run, dataset, epsilon, "tp_topk", "restriction_beneficial")
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


def _audit_below(runs: Sequence[Run]) -> Iterator[Outcome]:
    for run in _bases(runs):
        for dataset, epsilon in _cells(run, "audit"):
            records = run.select("audit", dataset=dataset, epsilon=epsilon)
            bounds = [
                (float(bound), record.levels)
                for record in records
                if isinstance(bound := record.values.get("epsilon_lower"), int | float)
            ]
            if bounds:
                bound, levels = max(bounds, key=lambda entry: entry[0])
                claimed = float(epsilon)
                crossed = bound > claimed
                text = f"largest lower bound {number(bound)} ({method(levels.get('method', '')).label}, "
                text += f"{levels.get('space', '?')} space, 95 % confidence), claimed {number(claimed)}"
                text += "; the claim is refuted" if crossed else "; not refuted"
                verdict = "does not hold" if crossed else "holds"
                yield Outcome(dataset, epsilon, Judgement(text, verdict, bound, None, "ε"), run)


def _other_score(runs: Sequence[Run]) -> Iterator[Outcome]:
    base = next((run for run in runs if run.variant == BASE), None)
    other = next((run for run in runs if run.variant == "score_square_of_mean"), None)
    if base is None or other is None:
        return
    for dataset, epsilon in _cells(other):
        one, two = (_metric(run, dataset, epsilon, "tp_topk") for run in (other, base))
        difference = paired(one, two)
        if difference is not None:
            yield Outcome(dataset, epsilon, judge_positive(difference), other)


def _accuracy_beyond(name: str, first: str, second: str, statement: str, source: str) -> Claim:
    return Claim(name, "topk", statement, source, QUICK, _against(first, second), origin="beyond")


RESULTS = "Section 2.4 of docs/papers.md"
THEORY = "Section 2.2 of docs/papers.md"

TOPK_CLAIMS: tuple[Claim, ...] = (
    Claim(
        "topk_learned_beats_random",
        "topk",
        "A learned support gives a higher test accuracy than a random one of the same size, at the same ε and steps.",
        RESULTS,
        QUICK,
        _against("tp_topk", "tp_rand"),
    ),
    Claim(
        "topk_sparse_beats_dense",
        "topk",
        "Training on the learned support gives a higher test accuracy than DP-SGD on all coordinates, at the same ε.",
        RESULTS,
        QUICK,
        _against("tp_topk", "dense"),
    ),
    Claim(
        "topk_gain_over_random_on_cifar10",
        "topk",
        "On CIFAR-10 at ε = 1 the learned support gains 1.23 points of accuracy over a random one.",
        RESULTS,
        PAPER,
        _sized("tp_rand", {"1": 1.23}),
        (("cifar10", "1"),),
    ),
    Claim(
        "topk_gain_over_dense_on_cifar10",
        "topk",
        "On CIFAR-10 the method gains 9.21, 10.25 and 4.37 points over dense DP-SGD at ε = 1, 3 and 8.",
        RESULTS,
        PAPER,
        _sized("dense", {"1": 9.21, "3": 10.25, "8": 4.37}),
        (("cifar10", "1"), ("cifar10", "3"), ("cifar10", "8")),
    ),
    Claim(
        "topk_largest_gain_on_cifar10",
        "topk",
        "The gain over a random support is larger on CIFAR-10 than on the other data sets.",
        RESULTS,
        PAPER,
        _largest_on_cifar,
    ),
    Claim(
        "topk_dense_collapses_on_minority",
        "topk",
        "On imbalanced medical data dense DP-SGD hardly ever finds the rare class (recall of at most 0.1; 0.04 in "
        "the paper, on EyePACS).",
        RESULTS,
        MEDIUM,
        _dense_collapses,
        (("thyroid", "1"), ("thyroid", "3")),
    ),
    Claim(
        "topk_minority_recall_recovers",
        "topk",
        "On imbalanced medical data the learned support finds more of the rare class than dense DP-SGD (recall 0.52 "
        "in the paper, on EyePACS).",
        RESULTS,
        MEDIUM,
        _recall_recovers,
        (("thyroid", "1"), ("thyroid", "3")),
    ),
    Claim(
        "topk_warmup_share_has_interior_optimum",
        "topk",
        "The best share of the budget for the warm-up is about 30 %: better than a small and than a large one.",
        "Section 2.3 of docs/papers.md",
        MEDIUM,
        _interior_optimum,
    ),
    Claim(
        "topk_gain_grows_as_support_shrinks",
        "topk",
        "The gain of a learned over a random support is larger when fewer coordinates are active.",
        RESULTS,
        MEDIUM,
        _small_supports_gain,
    ),
    Claim(
        "topk_selection_costs_no_privacy",
        "topk",
        "Choosing the support from releases already made costs no privacy: TP-TopK costs what TP-Rand costs.",
        THEORY,
        QUICK,
        _selection_is_free,
    ),
    Claim(
        "topk_noise_energy_is_proportional_to_support",
        "topk",
        "In restricted training the noise energy of a step is k/d of the dense one at equal noise per coordinate "
        "(from the calibrated plan).",
        THEORY,
        QUICK,
        _noise_scales,
    ),
    Claim(
        "topk_criterion_predicts_the_winner",
        "topk",
        "Where the one-step criterion says that restriction pays, TP-TopK ends above dense DP-SGD; where not, below.",
        THEORY,
        QUICK,
        _criterion,
    ),
    Claim(
        "topk_misranking_is_predicted",
        "topk",
        "The normal approximation predicts how often warm-up scores rank two coordinates wrongly, to within "
        "5 percentage points.",
        THEORY,
        QUICK,
        _misranking,
    ),
    Claim(
        "topk_audit_stays_below_claim",
        "topk",
        "A one-run audit's lower bound of ε stays at or below the ε claimed (a bound below it proves nothing more).",
        "Section 2.2 of docs/papers.md; Steinke et al. 2023",
        QUICK,
        _audit_below,
        origin="beyond",
    ),
    Claim(
        "topk_square_of_mean_beats_mean_square",
        "topk",
        "Scoring by the square of the mean noisy gradient gives a higher accuracy than the paper's mean square.",
        "Section 2.7 of docs/papers.md",
        MEDIUM,
        _other_score,
        origin="beyond",
    ),
    _accuracy_beyond(
        "topk_choosing_once_beats_choosing_again",
        "tp_topk",
        "on_topk",
        "A learned support chosen once after the warm-up gives a higher accuracy than one chosen again during training.",
        "Section 2.1 of docs/papers.md",
    ),
    _accuracy_beyond(
        "topk_random_once_beats_random_again",
        "tp_rand",
        "on_rand",
        "A random support drawn once gives a higher accuracy than one drawn again during training.",
        "Section 2.1 of docs/papers.md",
    ),
)
