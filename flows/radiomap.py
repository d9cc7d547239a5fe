"""The job of the system radiomap: its stages, what they need, and the report.

``python -m flows.radiomap [--workers N] [--profile NAME]``; the report shows every system, so it brings the others up
to date too.

>>> radiomap.name
'radiomap'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow

from flows.jobs import command_line, run_job


@flow(name="radiomap", persist_result=False)
def radiomap(
    workers: int = 2,
    profile: str | None = None,
    overrides: dict[str, Any] | None = None,
    root: str | None = None,
) -> None:
    """Bring the stages of radiomap and the report up to date; see `flows.jobs.run_job`."""
    run_job("radiomap", "radiomap", None, workers, profile, overrides, Path(root) if root else None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line."""
    return command_line(radiomap, "radiomap", arguments)


if __name__ == "__main__":
    sys.exit(main())
