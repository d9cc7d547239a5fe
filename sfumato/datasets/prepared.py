"""One prepared data set as one byte-stable npz file: a name, options, and arrays, such as those of three splits.

>>> SPLITS
('train', 'validation', 'test')

What the arrays have to be is the business of each kind of data set (`dataset.py`, `regression.py`, `population.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.artifacts import PathLike, read_npz, write_npz
from sfumato.errors import SfumatoError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class PreparedFile:
    """What such a file holds.

    Attributes:
        name: of the data set.
        options: what it was prepared with.
        splits: split -> (inputs, labels).
    """

    name: str
    options: Mapping[str, str]
    splits: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class NamedArrays:
    """A data set's name and options, and its arrays by name."""

    name: str
    options: Mapping[str, str]
    arrays: Mapping[str, NDArray[Any]]


def write_prepared(path: PathLike, content: PreparedFile) -> None:
    """Write the file; equal contents give equal bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    for split in SPLITS:
        arrays[f"{split}_x"], arrays[f"{split}_y"] = content.splits[split]
    write_named(path, content.name, content.options, arrays)


def read_prepared(path: PathLike) -> PreparedFile:
    """Read the file.

    Raises:
        SfumatoError: if it is missing, damaged, or no prepared data set.
    """
    content = read_named(path, {f"{split}_{part}" for split in SPLITS for part in "xy"})
    arrays = content.arrays
    splits = {split: (arrays[f"{split}_x"], arrays[f"{split}_y"]) for split in SPLITS}
    return PreparedFile(content.name, content.options, splits)


def write_named(
    path: PathLike, name: str, options: Mapping[str, str], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write arrays with the data set's name and options; equal contents give equal bytes."""
    header = {"name": np.array(name), "options": np.array(json.dumps(dict(options), sort_keys=True))}
    write_npz(path, {**header, **arrays})


def read_named(path: PathLike, needed: Set[str]) -> NamedArrays:
    """Read what `write_named` wrote.

    Args:
        path: the file.
        needed: the names of the arrays that it has to hold, and no others.

    Raises:
        SfumatoError: if it is missing, damaged, or no prepared data set of these arrays.
    """
    arrays = read_npz(path)
    if set(arrays) != {"name", "options", *needed}:
        raise SfumatoError(
            f"{Path(path)} holds {', '.join(sorted(arrays)) or 'nothing'}; it is no prepared data set, so "
            "delete it and rerun the step that makes it."
        )
    options = _options(str(arrays["options"]), path)
    return NamedArrays(str(arrays["name"]), options, {part: arrays[part] for part in sorted(needed)})


def _options(text: str, path: PathLike) -> dict[str, str]:
    try:
        options = cast("object", json.loads(text))
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise SfumatoError(f"{Path(path)} has unreadable options; rerun the step that makes it.")
    return {str(name): str(value) for name, value in sorted(cast("dict[str, object]", options).items())}
