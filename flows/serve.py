"""Serves every flow with its nightly schedule from this process, without a work pool, until Ctrl-C.

``python -m flows.serve``; set ``PREFECT_API_URL`` to the server whose page shows the runs.

>>> [flow.name for flow, _ in NIGHTLY]
['reproduce', 'topk', 'modulated', 'divergence', 'radiomap']
"""

from __future__ import annotations

import sys
from typing import Any

from prefect import serve

from flows.divergence import divergence
from flows.graph import exit_status
from flows.modulated import modulated
from flows.radiomap import radiomap
from flows.reproduce import reproduce
from flows.server import local_api
from flows.topk import topk

NIGHTLY: tuple[tuple[Any, str], ...] = (
    (reproduce, "0 2 * * *"),
    (topk, "0 3 * * *"),
    (modulated, "30 3 * * *"),
    (divergence, "0 4 * * *"),
    (radiomap, "30 4 * * *"),
)
"""Each flow and its schedule, as in prefect.yaml."""


def main() -> int:
    """Serve until interrupted."""

    def action() -> None:
        with local_api():
            serve(*(flow.to_deployment(name="served", cron=cron) for flow, cron in NIGHTLY))

    return exit_status(action)


if __name__ == "__main__":
    sys.exit(main())
