"""One prepared data set as one byte-stable npz file: a name, options, and three splits of inputs and labels.

>>> SPLITS
('train', 'validation', 'test')

What the arrays have to be is the business of each kind of data set (`dataset.py`, `regression.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def write_prepared(path: PathLike, content: PreparedFile) -> None:
    """Write the file; equal contents give equal bytes."""
    arrays: dict[str, NDArray[Any]] = {
        "name": np.array(content.name),
        "options": np.array(json.dumps(dict(content.options), sort_keys=True)),
    }
    for split in SPLITS:
        arrays[f"{split}_x"], arrays[f"{split}_y"] = content.splits[split]
    write_npz(path, arrays)


def read_prepared(path: PathLike) -> PreparedFile:
    """Read the file.

    Raises:
        SfumatoError: if it is missing, damaged, or no prepared data set.
    """
    arrays = read_npz(path)
    needed = {"name", "options", *(f"{split}_{part}" for split in SPLITS for part in "xy")}
    if set(arrays) != needed:
        raise SfumatoError(
            f"{Path(path)} holds {', '.join(sorted(arrays)) or 'nothing'}; it is no prepared data set, so "
            "delete it and rerun the step that makes it."
        )
    splits = {split: (arrays[f"{split}_x"], arrays[f"{split}_y"]) for split in SPLITS}
    return PreparedFile(str(arrays["name"]), _options(str(arrays["options"]), path), splits)


def _options(text: str, path: PathLike) -> dict[str, str]:
    try:
        options = cast("object", json.loads(text))
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise SfumatoError(f"{Path(path)} has unreadable options; rerun the step that makes it.")
    return {str(name): str(value) for name, value in sorted(cast("dict[str, object]", options).items())}
