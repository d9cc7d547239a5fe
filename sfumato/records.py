"""Metrics documents: what a step measured, by its levels, in one nested form that DVC and the report read.

>>> record = Record({"dataset": "mnist", "seed": "0"}, {"test_accuracy": 0.93})
>>> document = to_document("topk", "train", ["dataset", "seed"], [record], {"test_accuracy": 0.02})
>>> document["values"]
{'mnist': {'0': {'test_accuracy': 0.93}}}
>>> from_document(document) == [record]
True
>>> interval = mean_and_interval([2.0, 4.0])
>>> interval.mean, round(interval.half_width, 3), interval.count
(3.0, 12.706, 2)

Pure functions on plain dictionaries; `sfumato.artifacts.write_json` puts a document on disk.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from sfumato.errors import SfumatoError

Value: TypeAlias = float | int | bool | str | None
Document: TypeAlias = dict[str, Any]

_NAME = re.compile(r"[a-z0-9_/]+")
_LEVEL_VALUE = re.compile(r"[A-Za-z0-9_.+-]+")
_DOCUMENT_KEYS = {"system", "step", "levels", "values", "tolerances"}
_REASON = "_reason"


@dataclass(frozen=True)
class Record:
    """What was measured at one place.

    Attributes:
        levels: level name -> its text there, such as ``{"dataset": "mnist", "epsilon": "1", "seed": "0"}``.
        values: leaf name -> finite number, boolean, or None beside ``<name>_reason``, a text that says why.
    """

    levels: dict[str, str]
    values: dict[str, Value]


@dataclass(frozen=True)
class MeanInterval:
    """A mean over seeds and its Student t interval.

    Attributes:
        mean: the arithmetic mean.
        half_width: half of the interval's width; None for a single value, of which no spread is known.
        count: how many values there were.
    """

    mean: float
    half_width: float | None
    count: int


def epsilon_text(epsilon: float | None) -> str:
    """The level text of an epsilon: the shortest one of the number, ``inf`` for None or infinity.

    >>> [epsilon_text(value) for value in (1.0, 0.5, 3, None)]
    ['1', '0.5', '3', 'inf']

    Raises:
        SfumatoError: if epsilon is NaN or negative.
    """
    if epsilon is None or epsilon == math.inf:
        return "inf"
    if not epsilon >= 0:
        raise SfumatoError(f"epsilon is {epsilon}; allowed are numbers of at least 0, or inf.")
    number = float(epsilon)
    return str(int(number)) if number.is_integer() and number < 1e15 else repr(number)


# ------------------------------------------------------------------------------------------------- documents
def to_document(
    system: str,
    step: str,
    level_names: Sequence[str],
    records: Iterable[Record],
    tolerances: Mapping[str, float] | None = None,
) -> Document:
    """The nested document of a step's records, checked.

    Args:
        system: the system's name, such as ``topk``.
        step: the step's name, such as ``train``.
        level_names: the levels from outside in; every record has exactly these.
        records: the measurements, each at its own place.
        tolerances: leaf name -> absolute tolerance when compared across CPU classes; 0, the value of
            names that are left out, means equal.

    Returns:
        ``{"system", "step", "levels", "values", "tolerances"}`` as plain JSON types.

    Raises:
        SfumatoError: if a name or a value breaks the rules or two records share a place; the sentence
            names it.
    """
    names = list(level_names)
    _check_header(system, step, names)
    values: dict[str, Any] = {}
    for record in records:
        if set(record.levels) != set(names):
            raise SfumatoError(f"a record has the levels {sorted(record.levels)}; the document has {names}.")
        keys = [record.levels[name] for name in names]
        for name, key in zip(names, keys, strict=True):
            _check_level(name, key)
        node = values
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        if keys[-1] in node:
            raise SfumatoError(f"two records are at {'/'.join(keys)}; each place holds one.")
        node[keys[-1]] = _leaves(record.values, "/".join(keys))
    return {
        "system": system,
        "step": step,
        "levels": names,
        "values": values,
        "tolerances": _tolerances(tolerances or {}),
    }


def from_document(document: Mapping[str, Any]) -> list[Record]:
    """The records of a document, sorted by place.

    Raises:
        SfumatoError: if the document is not of the form that `to_document` gives.
    """
    if set(document) != _DOCUMENT_KEYS:
        raise SfumatoError(
            f"the metrics document has the keys {sorted(document)}; needed are {sorted(_DOCUMENT_KEYS)}."
        )
    names = cast("list[str]", document["levels"])
    if not isinstance(cast(object, names), list):
        raise SfumatoError(f"levels of the metrics document is {names!r}; it is a list of names.")
    _check_header(document["system"], document["step"], names)
    _tolerances(document["tolerances"])
    records: list[Record] = []
    _collect(document["values"], names, {}, records)
    return records


def _collect(node: object, names: Sequence[str], levels: dict[str, str], records: list[Record]) -> None:
    """Walk down to the depth of the levels and append what is there."""
    where = "/".join(levels.values()) or "values"
    if not isinstance(node, dict):
        raise SfumatoError(f"{where} of the metrics document is {node!r}; a mapping belongs there.")
    mapping = cast("dict[str, Any]", node)
    if len(levels) == len(names):
        records.append(Record(dict(levels), _leaves(mapping, where)))
        return
    name = names[len(levels)]
    for key in sorted(mapping):
        _check_level(name, key)
        _collect(mapping[key], names, {**levels, name: key}, records)


def _check_header(system: object, step: object, names: Sequence[object]) -> None:
    for what, name in (("system", system), ("step", step), *(("a level", name) for name in names)):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SfumatoError(
                f"{what} is named {name!r}; allowed are lower-case letters, digits, '_' and '/'."
            )
    if not names or len(set(names)) != len(names):
        raise SfumatoError(f"the levels are {list(names)}; a document needs at least one, each name once.")


def _check_level(name: str, key: object) -> None:
    if not isinstance(key, str) or not _LEVEL_VALUE.fullmatch(key):
        raise SfumatoError(f"the level {name} is {key!r}; allowed are texts of letters, digits and '_.+-'.")


def _leaves(values: Mapping[str, object], where: str) -> dict[str, Value]:
    """The leaf values as plain Python types, or an error that names the first bad one."""
    leaves: dict[str, Value] = {}
    for name, value in values.items():
        place = f"{where}/{name}"
        if not isinstance(cast(object, name), str) or not _NAME.fullmatch(name):
            raise SfumatoError(f"{place} is a bad name; allowed are lower-case letters, digits, '_' and '/'.")
        leaves[name] = _leaf(name, value, place)
    for name, value in leaves.items():
        if value is None and not leaves.get(name + _REASON):
            raise SfumatoError(f"{where}/{name} is null; it needs {name}{_REASON} beside it, which says why.")
    return leaves


def _leaf(name: str, value: object, place: str) -> Value:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        value = item()
    if name.endswith(_REASON):
        if not isinstance(value, str) or not value.strip():
            raise SfumatoError(f"{place} is {value!r}; a reason is a text.")
        return value
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise SfumatoError(
        f"{place} is {value!r}; allowed are finite numbers, true, false, "
        f"or null with {name}{_REASON} beside it."
    )


def _tolerances(tolerances: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(cast(object, tolerances), Mapping):
        raise SfumatoError(f"the tolerances are {tolerances!r}; they map leaf names to numbers.")
    for name, value in tolerances.items():
        plain = not isinstance(cast(object, value), bool) and isinstance(cast(object, value), (int, float))
        if not _NAME.fullmatch(name) or not plain or not 0 <= value < math.inf:
            raise SfumatoError(
                f"the tolerance of {name!r} is {value!r}; allowed are finite numbers of at least 0."
            )
    return {name: float(value) for name, value in sorted(tolerances.items())}


# ------------------------------------------------------------------------------------------------- selection
def select(records: Iterable[Record], **levels: str) -> list[Record]:
    """The records whose levels have the given texts.

    >>> select([Record({"seed": "0"}, {"a": 1}), Record({"seed": "1"}, {"a": 2})], seed="1")
    [Record(levels={'seed': '1'}, values={'a': 2})]
    """
    return [r for r in records if all(r.levels.get(name) == text for name, text in levels.items())]


def values_by_seed(records: Iterable[Record], name: str) -> dict[str, float]:
    """Seed -> the value of one leaf, in the order of the seeds' numbers.

    Raises:
        SfumatoError: if a record has no seed or no number of that name, or a seed occurs twice.
    """
    found: dict[str, float] = {}
    for record in records:
        place = "/".join(record.levels.values())
        seed = record.levels.get("seed")
        value = record.values.get(name)
        if seed is None:
            raise SfumatoError(
                f"the record at {place} has no level 'seed'; values are compared seed by seed."
            )
        if seed in found:
            raise SfumatoError(f"the seed {seed} occurs twice for {name}; select one record per seed first.")
        if value is None or isinstance(value, str):
            raise SfumatoError(f"{place}/{name} is {value!r}; a number is needed there.")
        found[seed] = float(value)
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


# ------------------------------------------------------------------------------------------------ statistics
def mean_and_interval(values: Sequence[float], confidence: float = 0.95) -> MeanInterval:
    """The mean over seeds with its two-sided Student t interval.

    The interval is mean ± t(1 - (1 - confidence)/2; n - 1) · s/√n with the sample standard deviation s,
    exact for normal values; it covers the randomness of the seeds, not of the data set.

    Args:
        values: one finite number per seed.
        confidence: the coverage, strictly between 0 and 1.

    Raises:
        SfumatoError: if there is no value, one is not finite, or the confidence is out of range.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise SfumatoError(
            f"the values are {list(values)}; a mean needs at least one finite number and no other."
        )
    if not 0 < confidence < 1:
        raise SfumatoError(f"the confidence is {confidence}; allowed are numbers between 0 and 1.")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return MeanInterval(mean, None, 1)
    special = importlib.import_module("scipy.special")
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    quantile = float(special.stdtrit(count - 1, 0.5 + confidence / 2))
    return MeanInterval(mean, quantile * deviation / math.sqrt(count), count)


def paired_difference(
    records_a: Iterable[Record], records_b: Iterable[Record], name: str, confidence: float = 0.95
) -> MeanInterval:
    """The mean of a - b over the same seeds, with the Student t interval of the paired differences.

    Args:
        records_a: one record per seed, of the first method.
        records_b: one record per seed, of the second method, on the same seeds.
        name: the leaf to compare.
        confidence: the coverage, strictly between 0 and 1.

    Raises:
        SfumatoError: if the seeds differ, one occurs twice, or a value is missing.
    """
    first, second = values_by_seed(records_a, name), values_by_seed(records_b, name)
    if first.keys() != second.keys():
        raise SfumatoError(
            f"{name} has the seeds {list(first)} and {list(second)}; a paired difference needs the same."
        )
    return mean_and_interval([first[seed] - second[seed] for seed in first], confidence)
