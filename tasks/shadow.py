"""Shadow models for LiRA: ``python -m tasks.shadow topk --dataset mnist --method tp_topk --epsilon 3 --block 0``.

Each system's own step is in ``tasks/<system>/shadow.py``.
"""

from __future__ import annotations

import sys

from tasks import command

if __name__ == "__main__":
    sys.exit(command.main("shadow"))
