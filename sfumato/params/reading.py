"""From a YAML file to checked parameters, with one sentence per mistake.

>>> merged({"a": 1}, {"a": 2})
{'a': 2}
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from sfumato.errors import SfumatoError
from sfumato.mistakes import first_mistake
from sfumato.params.schema import Params


def _frozen(value: object) -> object:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in cast("dict[object, object]", value).items()}
    return value


def parse(values: object, source: str = "params") -> Params:
    """Check the plain values of a parameter file.

    Args:
        values: what a YAML 1.2 loader returned.
        source: the file's name, for messages.

    Raises:
        SfumatoError: at the first wrong, missing, unknown or mistyped key, in one sentence.
    """
    try:
        return Params.model_validate(_frozen(values))
    except ValidationError as error:
        raise SfumatoError(f"{source}: {first_mistake(error, Params)}") from None
    except RecursionError:
        raise SfumatoError(f"{source} is nested too deeply; allowed are the keys of params.yaml.") from None


def read_yaml(path: Path) -> object:
    """Read a YAML 1.2 file into plain values.

    Raises:
        SfumatoError: if the file is missing, is not text, or is not YAML.
    """
    try:
        return _yaml_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SfumatoError(
            f"{path.name} cannot be read ({error.strerror}); allowed is a YAML file."
        ) from None
    except UnicodeDecodeError:
        raise SfumatoError(f"{path.name} is not UTF-8 text; allowed is a YAML file.") from None
    except (YAMLError, ValueError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise SfumatoError(
            f"{path.name} is not YAML{where} ({problem}); allowed is a YAML 1.2 mapping."
        ) from None


_yaml_load: Callable[[str], object] = cast("Any", YAML(typ="safe", pure=True)).load


def load(path: Path) -> Params:
    """Read and check a parameter file.

    Raises:
        SfumatoError: in one sentence that names the key, the value and what is allowed.
    """
    return parse(read_yaml(path), path.name)


def merged(base: object, overlay: object) -> object:
    """Overlay a mapping on another, key by key; lists and scalars are replaced whole.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    if not isinstance(base, dict) or not isinstance(overlay, dict):
        return overlay
    result = dict(cast("dict[str, object]", base))
    for key, value in cast("dict[str, object]", overlay).items():
        result[key] = merged(result[key], value) if key in result else value
    return result
