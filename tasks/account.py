"""Price what was recorded: ``python -m tasks.account topk --dataset mnist --epsilon 3``.

Each system's own step is in ``tasks/<system>/account.py``.
"""

from __future__ import annotations

import sys

from tasks import command

if __name__ == "__main__":
    sys.exit(command.main("account"))
