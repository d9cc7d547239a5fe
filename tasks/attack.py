"""Attacks on what a cell released: ``python -m tasks.attack topk --attack loss --dataset mnist --epsilon 3``.

Each system's own step is in ``tasks/<system>/attack.py``.
"""

from __future__ import annotations

import sys

from tasks import command

if __name__ == "__main__":
    sys.exit(command.main("attack"))
