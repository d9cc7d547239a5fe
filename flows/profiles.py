"""Profiles and overrides: what is laid over params.yaml for one run.

>>> assignment("data.names=[mnist, digits]")
('data.names', ['mnist', 'digits'])
>>> Profile("medium", (Variant("base"), Variant("wide"))).chosen("wide")
(Variant(name='wide', params={}, targets=()),)

A profile is a YAML mapping with the optional keys ``params`` (laid over params.yaml), ``variants`` (a list
of ``name``, ``params``, ``targets``) and ``publish`` (whether its figures go to ``results/``).
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError

from flows.errors import FlowError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_PROFILE_KEYS = {"params", "variants", "publish"}
_VARIANT_KEYS = {"name", "params", "targets"}


@dataclass(frozen=True)
class Variant:
    """One set of parameters of a profile.

    Attributes:
        name: its name, a folder's name too.
        params: mapping that is laid over params.yaml.
        targets: stages to run; empty for everything.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """A named list of variants.

    Attributes:
        name: its name.
        variants: what is run, one after the other.
        publish: whether finished figures are copied to ``results/``.
    """

    name: str
    variants: tuple[Variant, ...]
    publish: bool = True

    def chosen(self, name: str | None) -> tuple[Variant, ...]:
        """The variant of that name, or all of them.

        Raises:
            FlowError: if there is no such variant.
        """
        if name is None:
            return self.variants
        found = tuple(variant for variant in self.variants if variant.name == name)
        if not found:
            names = ", ".join(variant.name for variant in self.variants)
            raise FlowError(f"variant {name!r} is not in profile {self.name}; allowed are {names}.")
        return found


def read_profile(root: Path, name: str | None) -> Profile:
    """Read ``profiles/<name>.yaml``; None gives one variant that changes nothing.

    Raises:
        FlowError: if the profile is missing or not of the described form.
    """
    if name is None:
        return Profile("custom", (Variant("base"),), publish=False)
    path = root / "profiles" / f"{name}.yaml"
    if not _NAME.fullmatch(name) or not path.is_file():
        names = sorted(file.stem for file in (root / "profiles").glob("*.yaml"))
        raise FlowError(f"profile {name!r} is not in profiles/; allowed are {', '.join(names) or 'none'}.")
    document = _load(path.read_text(encoding="utf-8"), path.name) or {}
    _check_keys(document, _PROFILE_KEYS, path.name)
    publish = document.get("publish", True)
    if not isinstance(publish, bool):
        raise FlowError(f"publish of {path.name} is {publish!r}; allowed are true and false.")
    shared = _mapping(document.get("params"), f"params of {path.name}")
    rows = document.get("variants") or [{"name": "base"}]
    if not isinstance(rows, list):
        raise FlowError(f"variants of {path.name} is {rows!r}; allowed is a list of mappings.")
    variants = tuple(_variant(row, shared, path.name) for row in rows)
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise FlowError(f"variants of {path.name} share a name; each of {', '.join(names)} is allowed once.")
    return Profile(name, variants, publish)


def _variant(row: Any, shared: Mapping[str, Any], source: str) -> Variant:
    row = _mapping(row, f"a variant of {source}")
    _check_keys(row, _VARIANT_KEYS, f"a variant of {source}")
    name, targets = row.get("name"), row.get("targets") or []
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise FlowError(
            f"a variant of {source} has the name {name!r}; allowed are letters, digits, '_', '.' and '-'."
        )
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise FlowError(f"targets of variant {name} is {targets!r}; allowed is a list of stages.")
    own = _mapping(row.get("params"), f"params of variant {name}")
    return Variant(name, _laid_over(shared, own), tuple(targets))


def assignment(text: str, example: str = "topk.train.steps=20") -> tuple[str, Any]:
    """Read ``key=value``; the value is YAML 1.2.

    Args:
        text: the assignment.
        example: one that a message may give.

    Raises:
        FlowError: if there is no key, or the value is not YAML.
    """
    key, sign, value = text.partition("=")
    if not sign or not all(key.split(".")):
        raise FlowError(f"{text!r} is not an assignment; allowed is key=value, such as {example}.")
    return key, _load(value, f"the value of {key}")


def merged_text(root: Path, overlay: Mapping[str, Any], overrides: Mapping[str, Any]) -> str:
    """Text of params.yaml with the overlay and the overrides laid over it; comments are kept.

    Raises:
        FlowError: if params.yaml is not a mapping, or a dotted key goes through a value.
    """
    path = root / "params.yaml"
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FlowError(f"params.yaml cannot be read ({error}).") from error
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    try:
        document = yaml.load(content) if content.strip() else {}
    except YAMLError as error:
        raise FlowError(f"params.yaml is not YAML ({str(error).splitlines()[0]}).") from error
    if not isinstance(document, dict):
        raise FlowError("params.yaml holds no mapping; allowed are sections of parameters.")
    _lay(document, overlay)
    for key, value in overrides.items():
        set_key(document, key, value)
    buffer = io.StringIO()
    yaml.dump(document, buffer)
    return buffer.getvalue()


def check_parameters(root: Path, text: str | None = None, source: str = "params.yaml") -> None:
    """Let the schema of `sfumato.params` judge a params.yaml, where the tree is one of sfumato.

    Args:
        root: the tree; one without a ``sfumato`` folder has no schema, and everything passes.
        text: content to judge; that of ``params.yaml`` when None.
        source: what to call it in a message.

    Raises:
        SfumatoError: naming the key, its value and what is allowed.
    """
    if not (root / "sfumato" / "params").is_dir():
        return
    from sfumato import params

    if text is None:
        params.load(root / "params.yaml")
    else:
        params.parse(_load(text, source), source)


def set_key(document: Any, key: str, value: Any) -> None:
    """Set a dotted key in place.

    Raises:
        FlowError: if the key goes through a value.
    """
    *path, last = key.split(".")
    node = document
    for part in path:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise FlowError(f"{key} goes through {part}, which is a value and no section.")
    node[last] = value


def _lay(node: Any, overlay: Mapping[str, Any]) -> None:
    """Lay a mapping over another in place; lists and scalars are replaced whole."""
    for key, value in overlay.items():
        if isinstance(value, Mapping) and isinstance(node.get(key), dict):
            _lay(node[key], value)
        else:
            node[key] = value


def _laid_over(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    from sfumato.params import merged

    result = merged(dict(base), dict(overlay))
    return dict(result) if isinstance(result, dict) else {}


def _load(text: str, source: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError) as error:
        raise FlowError(f"{source} is not YAML ({str(error).splitlines()[0]}).") from error


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise FlowError(f"{what} is {value!r}; allowed is a mapping.")
    return value


def _check_keys(document: Any, allowed: set[str], source: str) -> None:
    unknown = sorted(set(_mapping(document, source)) - allowed)
    if unknown:
        raise FlowError(f"{source} has the key {unknown[0]!r}; allowed are {', '.join(sorted(allowed))}.")
