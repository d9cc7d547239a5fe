"""Checkpoints of long fits, kept outside of the outputs, which are deleted before a stage starts.

A checkpoint belongs to one key: the hash of the command, the parameters and the input files. A fit with
another key never sees it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import sfumato
from sfumato import artifacts
from sfumato.errors import SfumatoError
from tasks.command import Call

Restore = Callable[[Mapping[str, Any], Mapping[str, str]], Any]
"""(tensors, texts) -> the state that was saved as them, or SfumatoError."""


class Saveable(Protocol):
    """A state of a fit that can be put on disk."""

    def to_tensors(self) -> tuple[Any, Any]:
        """Its tensors and its texts."""
        ...


def run_key(call: Call, step: str, inputs: Sequence[Path]) -> str:
    """The hash of everything that a step's result depends on: call, parameters, input files and code.

    Args:
        call: the call.
        step: the step's name.
        inputs: files that it reads.
    """
    digest = hashlib.sha256(code_hash().encode())
    plain = call.params.model_dump(mode="json")
    for key in ("budget_epsilon", "ledger"):  # they change no result: a run goes on under a larger budget
        del plain["privacy"][key]
    del plain["data"]["search_dirs"]
    digest.update(json.dumps([step, call.system, dict(call.options), plain], sort_keys=True).encode())
    for path in inputs:
        digest.update(file_hash(path).encode())
    return digest.hexdigest()


def code_hash() -> str:
    """SHA-256 over the source of the library and the steps."""
    digest = hashlib.sha256()
    for package in (Path(sfumato.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass
class Checkpoints:
    """The checkpoints of one stage.

    Attributes:
        folder: where they lie.
        interval: seconds between two saves.
        clock: seconds that only go up.
        restore: makes a state of what was saved; None where the stage saves none.
    """

    folder: Path
    interval: float = 15.0
    clock: Callable[[], float] = time.monotonic
    restore: Restore | None = None
    _last: float = field(default=0.0, init=False)

    @classmethod
    def of(cls, root: Path, key: str, restore: Restore | None = None) -> Checkpoints:
        """The checkpoints of a run key below ``.runtime``."""
        checkpoints = cls(root / ".runtime" / "checkpoints" / key[:32], restore=restore)
        checkpoints._last = checkpoints.clock()
        return checkpoints

    def save(self, name: str, state: Saveable, force: bool = False) -> None:
        """Save a state if the interval has passed, or at once."""
        if not force and self.clock() - self._last < self.interval:
            return
        tensors, text = state.to_tensors()
        artifacts.write_tensors(self.folder / f"{name}.safetensors", tensors, text)
        self._last = self.clock()

    def load(self, name: str) -> Any:
        """The last saved state, or None; a damaged one counts as none."""
        path = self.folder / f"{name}.safetensors"
        if self.restore is None or not path.exists():
            return None
        try:
            return self.restore(artifacts.read_tensors(path), artifacts.read_metadata(path))
        except SfumatoError:
            return None

    def seal(self) -> None:
        """Note that outputs are about to be written: from here on these states must not be drawn anew."""
        artifacts.write_json(self.folder / "sealed.json", {"sealed": True})

    def must_start_anew(self, names: Sequence[str]) -> bool:
        """Whether outputs may have been written from states that are lost or damaged now."""
        return (self.folder / "sealed.json").exists() and any(self.load(name) is None for name in names)

    def clear(self) -> None:
        """Remove them all at one stroke, once the outputs are written."""
        away = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.tmp")
        with suppress(FileNotFoundError):
            self.folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)
