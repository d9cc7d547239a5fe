"""What a run shows in the terminal: a line for each stage, and one moving line of progress.

>>> parse_progress("progress 40/120 dense seed 1")
Progress(done=40, total=120, text='dense seed 1')
>>> parse_progress("loss 0.4") is None
True
"""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass
from typing import TextIO

_PROGRESS = re.compile(r"progress (\d+)/(\d+)(?: (.*))?")
_WIDTH = 100


@dataclass(frozen=True)
class Progress:
    """How far a step has come, as it printed it: ``progress <done>/<total> <text>``."""

    done: int
    total: int
    text: str

    @property
    def percent(self) -> float:
        """Part that is done, from 0 to 100."""
        return 100.0 * min(self.done, self.total) / self.total if self.total else 0.0


def parse_progress(line: str) -> Progress | None:
    """The progress that a line of a step's output tells, or None for any other line."""
    match = _PROGRESS.fullmatch(line.strip())
    return Progress(int(match[1]), int(match[2]), match[3] or "") if match else None


class Console:
    """Writes lines and, on a terminal, one status line below them that moves."""

    def __init__(self, stream: TextIO | None = None, total: int = 0) -> None:
        """Write to ``stream``, standard output when None; ``total`` is the number of stages."""
        self._stream = sys.stdout if stream is None else stream
        self._moves = self._stream.isatty()
        self._total = total
        self._ended = 0
        self._status: dict[str, Progress] = {}
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Print a line above the status line."""
        with self._lock:
            self._print(text)

    def ended(self, name: str, state: str, seconds: float) -> None:
        """Print the line of a stage that has come to its end."""
        with self._lock:
            self._ended += 1
            self._status.pop(name, None)
            width = len(str(self._total))
            self._print(f"[{self._ended:>{width}}/{self._total}] {name:<52} {state:<9} {seconds:8.1f} s")

    def progress(self, name: str, progress: Progress) -> None:
        """Show how far a running stage has come; on anything but a terminal this prints nothing."""
        with self._lock:
            self._status[name] = progress
            if self._moves:
                self._draw()

    def _print(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}\n" if self._moves else f"{text}\n")
        if self._moves:
            self._draw()
        self._stream.flush()

    def _draw(self) -> None:
        parts = [
            f"{name} {_bar(progress)} {progress.done}/{progress.total}"
            for name, progress in self._status.items()
        ]
        self._stream.write("\r\x1b[K" + " | ".join(parts)[:_WIDTH])
        self._stream.flush()


def _bar(progress: Progress, width: int = 12) -> str:
    """A bar of the given width.

    >>> _bar(Progress(1, 2, ""), 4)
    '[##..]'
    """
    full = round(width * progress.percent / 100.0)
    return "[" + "#" * full + "." * (width - full) + "]"
