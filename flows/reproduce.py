"""The main job: everything, or the named targets, then the mirror and the comparison with the committed run.

``python -m flows.reproduce [--targets STAGE ...] [--workers N]``

>>> reproduce.name
'reproduce'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow

from flows.jobs import command_line, run_job


@flow(name="reproduce", persist_result=False)
def reproduce(
    targets: list[str] | None = None,
    workers: int = 2,
    profile: str | None = None,
    overrides: dict[str, Any] | None = None,
    root: str | None = None,
) -> None:
    """Bring everything, or the targets, up to date; see `flows.jobs.run_job`."""
    run_job("reproduce", None, targets, workers, profile, overrides, Path(root) if root else None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job from the command line."""
    return command_line(reproduce, "reproduce", arguments, with_targets=True)


if __name__ == "__main__":
    sys.exit(main())
