"""How a step begins: with one thread of arithmetic, and with an end when its parent dies.

>>> import os
>>> single_thread()
>>> os.environ["OMP_NUM_THREADS"]
'1'

A step that DVC started must not outlive DVC: after ``kill -9`` of dvc alone an orphan would go on and
overwrite the files of the next run. Call `begin` before numpy or torch is imported, since both read
the thread counts when they load.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

RUNNER_VARIABLE = "SFUMATO_DVC_PID"
"""Environment variable in which the runner names the dvc process that a step belongs to."""

_PR_SET_PDEATHSIG = 1
_SHELLS = frozenset({"sh", "dash", "bash", "zsh", "fish", "ksh", "busybox"})
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def begin() -> None:
    """Prepare this process as a step: one thread; when DVC started it, an end with its parent.

    A step that a person starts by hand is left alone, so that it may outlive its terminal. The name of the dvc process is
    taken out of the environment: processes that the step starts beside itself belong to the step, and end with it.
    """
    single_thread()
    ancestor = _number(os.environ.pop(RUNNER_VARIABLE, None))
    if "DVC_STAGE" in os.environ:
        die_with_parent(ancestor)


def single_thread() -> None:
    """Set one thread for the arithmetic libraries; bits and speed both depend on it."""
    for name in _THREAD_VARIABLES:
        os.environ[name] = "1"


def die_with_parent(ancestor: int | None = None, interval: float = 0.5) -> None:
    """End this process, by SIGKILL where the system can, as soon as its parent is gone.

    Linux's parent-death signal acts at once; a thread that looks every ``interval`` seconds stands in
    elsewhere, and watches the grandparent when a shell lies between. Under a debugger or in a terminal
    nothing else changes.

    Args:
        ancestor: process id that must be the parent, or the parent's parent; when it is not, it died
            before this call and the process exits with status 1. None skips this check.
        interval: seconds between two looks.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = os.getppid()
    chain = [(os.getpid(), parent)]
    if _name_of(parent) in _SHELLS:
        chain.append((parent, _parent_of(parent) or parent))
    if ancestor is not None and ancestor not in [above for _, above in chain]:
        os._exit(1)
    threading.Thread(target=_watch, args=(chain, interval), name="parent-watch", daemon=True).start()


def _watch(chain: list[tuple[int, int]], interval: float) -> None:
    """Exit at once when a process of the chain has another parent than it had."""
    while True:
        time.sleep(interval)
        for process, parent in chain:
            now = os.getppid() if process == os.getpid() else _parent_of(process)
            if now != parent and not (now is None and os.getppid() == process):
                os._exit(1)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _stat_of(process: int) -> str | None:
    """Line of /proc/<process>/stat, or None where it cannot be read."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _name_of(process: int) -> str:
    """Short name of a process, empty where it is not known.

    >>> _name_of(os.getpid()) == "" or len(_name_of(os.getpid())) > 0
    True
    """
    line = _stat_of(process)
    return "" if line is None else line[line.index("(") + 1 : line.rindex(")")]


def _parent_of(process: int) -> int | None:
    line = _stat_of(process)
    return None if line is None else int(line[line.rindex(")") + 2 :].split()[1])
