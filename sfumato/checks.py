"""Small questions about values that a user gave, asked before they are used.

>>> is_integer(3), is_integer(True), is_integer(3.0), is_number(3.0), is_number("3")
(True, False, False, True, False)
"""

from __future__ import annotations

import numpy as np


def is_integer(value: object) -> bool:
    """Whether the value is an integer of Python or numpy; a bool is not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether the value is an integer or float of Python or numpy, NaN and infinities included; a bool is not."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
