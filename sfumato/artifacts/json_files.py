"""JSON without NaN and infinity: sorted keys, finite numbers, one text for one value.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "metrics.json"
>>> write_json(path, {"b": 0.5, "a": [1, None]})
>>> read_json(path)
{'a': [1, None], 'b': 0.5}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from sfumato.artifacts.files import PathLike, read_checked, write_text
from sfumato.errors import SfumatoError


def write_json(path: PathLike, obj: object) -> None:
    """Write an object as JSON: sorted keys, indent 1, UTF-8, a newline at the end.

    Args:
        path: the file to write.
        obj: nested mappings with text keys, sequences, texts, numbers (numpy scalars too), booleans, None.

    Raises:
        SfumatoError: if a number is NaN or infinite, a key is not a string, or a value has no JSON form;
            the sentence names the key path.
    """
    plain = plain_value(obj, "")
    text = json.dumps(plain, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def plain_value(value: object, where: str) -> object:
    """The value in plain Python types, checked; ``where`` is its key path."""
    if isinstance(value, np.generic):
        value = cast("object", value.item())
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SfumatoError(
                f"{where or 'the value'} is {value}; JSON files hold finite numbers, or null beside a reason."
            )
        return float(value)
    if isinstance(value, Mapping):
        return _plain_mapping(cast("Mapping[object, object]", value), where)
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)
        return [plain_value(item, f"{where}[{index}]") for index, item in enumerate(items)]
    raise SfumatoError(
        f"{where or 'the value'} is a {type(value).__name__}; JSON files hold mappings, lists, "
        "texts, numbers, booleans and null."
    )


def _plain_mapping(value: Mapping[object, object], where: str) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise SfumatoError(
                f"{where or 'the top level'} has the key {key!r}; keys of JSON files are texts."
            )
        result[str(key)] = plain_value(item, f"{where}.{key}" if where else key)
    return result


def read_json(path: PathLike) -> Any:
    """The content of a JSON file.

    Raises:
        SfumatoError: if the file is missing, cut short, holds NaN or infinity, or repeats a key.
    """
    return read_checked(path, "JSON", _parse_json)


def _parse_json(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"it holds {text}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        repeated = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"it repeats the key {repeated!r}")
    return result
