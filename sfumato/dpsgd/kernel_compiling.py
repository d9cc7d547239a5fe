"""How kernels are compiled: by Numba, at once, for one signature each, cached on disk between processes.

>>> half = compiled(lanes_digest())("float64(float64)")(lambda number: number / 2)
>>> half(3.0)
1.5
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit

from sfumato.dpsgd import lanes

_OPTIONS: dict[str, Any] = {
    "fastmath": {"reassoc", "contract", "nsz"},
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
}


@cache
def lanes_digest() -> str:
    """Of the text of lanes.py, which is compiled into the kernels and which Numba's cache does not watch."""
    return hashlib.sha256(inspect.getsource(lanes).encode()).hexdigest()[:16]


def compiled(digest: str) -> Callable[[str], Callable[[Any], Any]]:
    """A decorator that takes one signature, so that one compilation serves every shape and layout.

    Args:
        digest: of the lanes.py that the kernels were written for; they are not cached with another one.
    """

    def for_signature(signature: str) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            try:
                return njit(signature, cache=digest == lanes_digest(), **_OPTIONS)(function)
            except (RuntimeError, OSError):  # no folder for the cache can be written to
                return njit(signature, **_OPTIONS)(function)

        return decorate

    return for_signature
