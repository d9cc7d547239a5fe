"""A validation error of pydantic as one sentence: the key, the value, what is allowed.

>>> class Section(BaseModel, extra="forbid"):
...     steps: int
>>> try:
...     Section.model_validate({"steps": "many"})
... except ValidationError as error:
...     print(first_mistake(error, Section))
steps is 'many'; allowed is a valid integer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError


def _listed(names: object) -> str:
    return ", ".join(str(name) for name in cast("Any", names))


def _fields_at(root: type[BaseModel], location: tuple[object, ...]) -> list[str]:
    """Field names of the section at a location of a validation error."""
    section: type[BaseModel] = root
    for part in location:
        field = section.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        section = annotation
    return list(section.model_fields)


def _allowed(kind: str, message: str, context: Mapping[str, object]) -> str:
    if kind == "value_error":
        return f"allowed is {context['error']}"
    if kind == "literal_error":
        return f"allowed is {context['expected']}"
    text = re.sub(r", got .*$|, unable to parse.*$", "", message.removeprefix("Input should be "))
    return f"allowed is {text if text.startswith(('a ', 'an ')) else 'a value ' + text}"


def first_mistake(error: ValidationError, root: type[BaseModel]) -> str:
    """The first mistake as one sentence: the key, the value, what is allowed."""
    first = error.errors()[0]
    location, kind = first["loc"], first["type"]
    key = ".".join(_in_one_line(str(part)) for part in location)
    if kind == "value_error" and not (location and not _is_section(first["input"])):
        return f"{first['ctx']['error']}." if "ctx" in first else f"{first['msg']}."
    if kind == "extra_forbidden":
        return f"{key} is {_short(first['input'])}, an unknown key; allowed here are {_listed(_fields_at(root, location[:-1]))}."
    if kind == "missing":
        return f"{key} is missing; allowed are files that give all of {_listed(_fields_at(root, location[:-1]))}."
    if key.endswith("[key]"):
        key = key.removesuffix(".[key]")
        return f"{key} is an unknown key; {_allowed(kind, first['msg'], first.get('ctx', {}))}."
    if kind in ("model_type", "mapping_type", "dict_type"):
        names = _fields_at(root, location)
        keys = f" with the keys {_listed(names)}" if kind == "model_type" else ""
        return f"{key or 'the file'} is {_short(first['input'])}; allowed is a mapping{keys}."
    if kind == "tuple_type":
        return f"{key} is {_short(first['input'])}; allowed is a list."
    return f"{key} is {_short(first['input'])}; {_allowed(kind, first['msg'], first.get('ctx', {}))}."


def _in_one_line(text: str) -> str:
    r"""The text itself, or with escapes where it would break or hide the sentence.

    >>> _in_one_line("a\nb"), _in_one_line("größe")
    ('a\\nb', 'größe')
    """
    return text if text.isprintable() else repr(text)[1:-1]


def _is_section(value: object) -> bool:
    return isinstance(value, BaseModel | dict)


def _short(value: object) -> str:
    text = repr(list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else text[:77] + "..."
