"""All that a report is made from, as one immutable value: records, curves, models' supports, statements.

>>> from sfumato.records import Record, to_document
>>> record = Record({"dataset": "mnist", "method": "dense", "epsilon": "1", "seed": "0"}, {"test_accuracy": 0.9})
>>> document = to_document("topk", "train", ["dataset", "method", "epsilon", "seed"], [record])
>>> run = run_of("quick", "topk", BASE, [document])
>>> by_seed(run.select("train", dataset="mnist"), "test_accuracy")
{'0': 0.9}

Everything is handed in as plain values; the step that makes the report reads the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.records import MeanInterval, Record, from_document, mean_and_interval
from sfumato.report.radiomap_pictures import RadiomapPictures
from sfumato.report.vocabulary import dataset_order, epsilon_order, method_order, profile_order

Groups = dict[tuple[str | None, ...], list[Record]]
BASE = "base"
ALL_SEEDS = "all"
"""The seed of a statement that is the same for every seed."""
_SWEEP = re.compile(r"(share|ratio|score|labels|directions|rounds|rule|amplitude)_(.+)")
_ALIASES = frozenset({"", "base", "main", "default", "grid"})
_SETTINGS = {
    "share": ("topk", "warmup", "budget_share"),
    "ratio": ("topk", "train", "active_ratio"),
    "rounds": ("modulated", "train", "rounds"),
    "confidence": ("modulated", "train", "confidence"),
    "divergence_confidence": ("divergence", "train", "confidence"),
    "divergence_epsilon": ("divergence", "studies", "epsilon"),
}


@dataclass(frozen=True)
class Run:
    """The records of one profile and one variant of a system.

    Attributes:
        profile: such as ``quick`` or ``medium``.
        system: such as ``topk``.
        variant: ``base``, or what was varied, such as ``share_0.1``.
        records: step -> its records.
        command: what made them, where known.
        commit: the state of the code that made them, where known.
        settings: sweep name -> the value this run has, where known.
        labels: data sets that this run has from another source than usual -> how they are called then.
    """

    profile: str
    system: str
    variant: str
    records: Mapping[str, tuple[Record, ...]]
    command: str = ""
    commit: str = ""
    settings: Mapping[str, float] = field(default_factory=dict[str, float])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def select(self, step: str, **levels: str) -> list[Record]:
        """The records of a step at these levels, in their order."""
        names = tuple(sorted(levels))
        groups = self._grouped.get((step, names))
        if groups is None:
            groups = self._grouped[step, names] = {}
            for record in self.records.get(step, ()):
                groups.setdefault(tuple(record.levels.get(name) for name in names), []).append(record)
        return list(groups.get(tuple(levels[name] for name in names), ()))

    @cached_property
    def _grouped(self) -> dict[tuple[str, tuple[str, ...]], Groups]:
        """Records by step and level names, then by the levels' texts; filled as they are asked for.

        A long run has thousands of records and is asked thousands of times.
        """
        return {}

    @property
    def sweep(self) -> tuple[str, str] | None:
        """What was varied and to what, or None for a base run."""
        match = _SWEEP.fullmatch(self.change)
        return (match[1], match[2]) if match else None

    @property
    def change(self) -> str:
        """The variant's name without the system's, which a profile of several systems may put before it.

        >>> run = Run("medium", "radiomap", "radiomap_circular", {})
        >>> run.change, run.sweep
        ('circular', None)
        """
        return self.variant.removeprefix(f"{self.system}_")

    def setting(self, name: str) -> float | None:
        """The value of a swept setting in this run, where known."""
        if self.sweep and self.sweep[0] == name:
            return _number(self.sweep[1])
        return self.settings.get(name)


@dataclass(frozen=True)
class Support:
    """Which coordinates of a model are active, and the first layer's weights.

    Attributes:
        dataset, method, epsilon, seed: the model's place.
        layout: parameter name -> shape, in the order of the flat vector.
        indices: int64[k], sorted flat indices.
        first_weight: float64 array, the first parameter with at least two axes.
        first_active: bool array of the same shape.
    """

    dataset: str
    method: str
    epsilon: str
    seed: str
    layout: tuple[tuple[str, tuple[int, ...]], ...]
    indices: NDArray[np.int64]
    first_name: str
    first_weight: NDArray[np.float64]
    first_active: NDArray[np.bool_]


@dataclass(frozen=True)
class Statement:
    """A privacy statement.

    Attributes:
        dataset, method, epsilon, seed: what it is about.
        text: for people.
        content: its fields.
        system: whose.
    """

    dataset: str
    method: str
    epsilon: str
    seed: str
    text: str
    content: Mapping[str, Any]
    system: str = "topk"


@dataclass(frozen=True)
class Study:
    """What a report shows.

    Attributes:
        current: the run whose files lie in the tree.
        results: committed long runs.
        curves: rows of training curves as text, with dataset, method and epsilon added.
        rocs: rows of the loss-threshold attack's ROC curves.
        lira_rocs: rows of the likelihood-ratio attack's.
        supports: one per model looked at.
        statements: of the current run.
        settings: facts of the parameters that the page names.
        further: current runs of further systems.
        tunings: rows of further systems' tuning tables as text, with system and data set added.
        round_curves: rows of further systems' curves over rounds as text, with system, data set and method added.
        pictures: radio maps, one set per data set.
        engine: rows of the engine's benchmark, as it printed them.
    """

    current: Run
    results: tuple[Run, ...] = ()
    curves: tuple[Mapping[str, str], ...] = ()
    rocs: tuple[Mapping[str, str], ...] = ()
    lira_rocs: tuple[Mapping[str, str], ...] = ()
    supports: tuple[Support, ...] = ()
    statements: tuple[Statement, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    further: tuple[Run, ...] = ()
    tunings: tuple[Mapping[str, str], ...] = ()
    round_curves: tuple[Mapping[str, str], ...] = ()
    pictures: tuple[RadiomapPictures, ...] = ()
    engine: tuple[Mapping[str, Any], ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, small profiles first; a committed one gives way to the current one of the same name."""
        current = (self.current, *self.further)
        mine = {(run.profile, run.system, run.variant) for run in current}
        others = [run for run in self.results if (run.profile, run.system, run.variant) not in mine]
        return tuple(
            sorted([*current, *others], key=lambda r: (profile_order(r.profile), r.system, r.variant))
        )

    def current_of(self, system: str) -> Run | None:
        """The run of a system whose files lie in the tree, or None."""
        return next((run for run in (self.current, *self.further) if run.system == system), None)


def run_of(
    profile: str,
    system: str,
    variant: str,
    documents: Iterable[Mapping[str, Any]],
    provenance: Mapping[str, Any] | None = None,
    keep: Callable[[str, Record], bool] = lambda _step, _record: True,
    settings: Mapping[str, float] | None = None,
) -> Run:
    """A run from its metrics documents.

    Args:
        profile: the profile's name.
        system: documents of other systems are left out.
        variant: the variant's name; ``main`` and the like become ``base``.
        documents: metrics documents.
        provenance: ``command``, ``commit`` and ``params`` or ``overrides``, where known.
        keep: given a step and a record, whether it belongs to the run.
        settings: swept settings of this run, where known.

    Raises:
        SfumatoError: if a document is malformed.
    """
    found: dict[str, list[Record]] = {}
    for document in documents:
        if document.get("system") == system:
            step = str(document.get("step"))
            found.setdefault(step, []).extend(r for r in from_document(document) if keep(step, r))
    origin = provenance or {}
    return Run(
        profile,
        system,
        BASE if variant in _ALIASES else variant,
        {step: tuple(sorted(records, key=_place)) for step, records in sorted(found.items())},
        str(origin.get("command") or ""),
        str(origin.get("commit") or ""),
        settings if settings is not None else settings_of(origin),
        _labels_of(origin),
    )


def _labels_of(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Results of a copy of a data set bear its name.

    >>> _labels_of({"params": {"data": {"cifar10_source": "jpeg"}}})
    {'cifar10': 'CIFAR-10 (JPEG copy)'}
    """
    params = cast("Mapping[str, Any]", provenance.get("params") or {})
    source = cast("Mapping[str, Any]", params.get("data") or {}).get("cifar10_source")
    return {"cifar10": "CIFAR-10 (JPEG copy)"} if source == "jpeg" else {}


def _place(record: Record) -> tuple[object, ...]:
    levels = record.levels
    rest = tuple(levels[k] for k in sorted(levels) if k not in ("dataset", "method", "epsilon", "seed"))
    return (
        dataset_order(levels.get("dataset", "")),
        epsilon_order(levels.get("epsilon", "")),
        method_order(levels.get("method", "")),
        (len(levels.get("seed", "")), levels.get("seed", "")),
        rest,
    )


def settings_of(origin: Mapping[str, Any]) -> dict[str, float]:
    """The swept settings that a provenance or a parameter tree holds, nested or with dotted keys.

    >>> settings_of({"overrides": {"topk.warmup.budget_share": 0.2}})
    {'share': 0.2}
    """
    found: dict[str, float] = {}
    for name, keys in _SETTINGS.items():
        for key in ("params", "overrides"):
            tree: object = origin.get(key)
            if isinstance(tree, Mapping):
                dotted = cast("Mapping[str, object]", tree).get(".".join(keys))
                value = dotted if dotted is not None else _nested(cast("Mapping[str, object]", tree), keys)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    found[name] = float(value)
    return found


def _nested(tree: object, keys: Sequence[str]) -> object:
    if not keys:
        return tree
    return (
        _nested(cast("Mapping[str, object]", tree).get(keys[0]), keys[1:])
        if isinstance(tree, Mapping)
        else None
    )


def _number(text: str) -> float | None:
    for candidate in (text, text.replace("_", ".", 1)):
        try:
            return float(candidate)
        except ValueError:
            continue
    return None


def support_of(
    place: tuple[str, str, str, str], tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
) -> Support | None:
    """The support of one seed of a model file, or None where the file holds none.

    Args:
        place: dataset, method, epsilon, seed.
        tensors: ``seed<k>/<parameter>`` and ``seed<k>/support``.
        metadata: with ``layout``, a JSON list of [name, shape].
    """
    prefix = f"seed{place[3]}/"
    indices = tensors.get(prefix + "support")
    if indices is None or "layout" not in metadata:
        return None
    layout = tuple(
        (str(name), tuple(int(n) for n in shape)) for name, shape in json.loads(metadata["layout"])
    )
    offset = 0
    for name, shape in layout:
        size = int(np.prod(shape, dtype=np.int64))
        weight = tensors.get(prefix + name)
        if len(shape) >= 2 and weight is not None:
            inside = indices[(indices >= offset) & (indices < offset + size)] - offset
            active = np.zeros(size, dtype=np.bool_)
            active[inside] = True
            values = np.asarray(weight, dtype=np.float64)
            return Support(*place, layout, np.asarray(indices, np.int64), name, values, active.reshape(shape))
        offset += size
    return None


def by_seed(records: Iterable[Record], name: str) -> dict[str, float]:
    """Seed -> value, in the order of the seeds' numbers; seeds without a number are left out."""
    found: dict[str, float] = {}
    for record in records:
        value = record.values.get(name)
        if value is not None and not isinstance(value, str) and "seed" in record.levels:
            found[record.levels["seed"]] = float(value)
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


def interval(records: Iterable[Record], name: str) -> MeanInterval | None:
    """Mean over seeds with its 95 % Student t interval; None without a value."""
    values = list(by_seed(records, name).values())
    return mean_and_interval(values) if values else None


def paired(first: Mapping[str, float], second: Mapping[str, float]) -> MeanInterval | None:
    """Mean of first - second over the seeds that both have, with its 95 % interval; None without any.

    >>> paired({"0": 3.0, "1": 5.0}, {"0": 1.0, "2": 9.0})
    MeanInterval(mean=2.0, half_width=None, count=1)
    """
    seeds = [seed for seed in first if seed in second]
    return mean_and_interval([first[seed] - second[seed] for seed in seeds]) if seeds else None


def levels_of(records: Iterable[Record], name: str) -> list[str]:
    """The distinct texts of a level, in the report's order."""
    orders: dict[str, Callable[[str], Any]] = {
        "dataset": dataset_order,
        "method": method_order,
        "epsilon": epsilon_order,
        "seed": lambda text: (len(text), text),
    }
    return sorted({r.levels[name] for r in records if name in r.levels}, key=orders.get(name, str))


def number_of(record: Record, name: str) -> float | None:
    """A value as a float, None where it is missing, null, a flag or a text."""
    value = record.values.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def bases(runs: Sequence[Run]) -> list[Run]:
    """The runs in which nothing was varied."""
    return [run for run in runs if run.variant == BASE]
