"""The compiled kernels, if they can be had: a slow path is said once, never taken silently.

>>> kernels_or_none("torch") is None
True
"""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from types import ModuleType

from sfumato.errors import SfumatoError

CHOICES = ("numba", "torch")


def checked_kernels(name: str) -> str:
    """The name of the kernels, if there are such.

    Raises:
        SfumatoError: if it is neither ``numba`` nor ``torch``.
    """
    if name not in CHOICES:
        raise SfumatoError(f"kernels is {name!r}; allowed are 'numba' and 'torch'.")
    return name


def kernels_or_none(name: str) -> ModuleType | None:
    """The module of compiled kernels, or None for the path of plain torch operations.

    The first call of a process compiles the kernels, once for all shapes, or reads them from Numba's cache: next
    to the package, else in the user's cache folder or the one that ``NUMBA_CACHE_DIR`` names.

    Warns:
        UserWarning: once, if Numba cannot be imported or cannot compile them.
    """
    return _numba() if name == "numba" else None


@cache
def _numba() -> ModuleType | None:
    try:
        return importlib.import_module("sfumato.dpsgd.kernels")
    except Exception as error:  # whatever keeps Numba from working, training goes on
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        warnings.warn(
            f"the Numba kernels cannot be used ({type(error).__name__}: {reason}); "
            "the planned engine takes its slower path of plain torch operations instead.",
            stacklevel=2,
        )
        return None
