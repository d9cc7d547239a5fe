"""Private training or estimation: ``python -m tasks.train topk --dataset mnist --method tp_topk --epsilon 3``.

Each system's own step is in ``tasks/<system>/train.py``.
"""

from __future__ import annotations

import sys

from tasks import command

if __name__ == "__main__":
    sys.exit(command.main("train"))
