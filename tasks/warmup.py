"""Private warm-up: ``python -m tasks.warmup topk --dataset mnist --epsilon 3``.

Each system's own step is in ``tasks/<system>/warmup.py``.
"""

from __future__ import annotations

import sys

from tasks import command

if __name__ == "__main__":
    sys.exit(command.main("warmup"))
