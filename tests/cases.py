"""Which cases of a long list run in the quick set."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest


def quick_ones(cases: Sequence[Any], quick: Collection[Any]) -> list[Any]:
    """All cases; those that are not named carry the marker ``slow`` and run by ``make test-all``."""
    assert quick
    assert set(quick) <= set(cases)
    return [
        case
        if case in quick
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
