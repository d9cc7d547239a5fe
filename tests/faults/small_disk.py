"""A run on a disk that fills up, and one after it was cleared; started by test_full_disk in a namespace of its own.

``python -m tests.faults.small_disk FOLDER FREE_KILOBYTES``: FOLDER is a mounted file system of a few megabytes.
"""

from __future__ import annotations

import base64
import errno
import json
import sys
from pathlib import Path

from tests.flows import toy

TARGETS = ["topk-account"]


def fill(path: Path, free_kilobytes: int) -> None:
    """Write a file until the disk is full, then make that much room again."""
    size, block = 0, b"\0" * 1024
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                size += file.write(block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
        file.truncate(max(0, size - 1024 * free_kilobytes))


def main(folder: Path, free_kilobytes: int) -> None:
    """Print the status of a run on the full disk, that of the next one, and what it made."""
    root = toy.make_repository(folder / "toy")
    toy.set_params(root, datasets="[a]")
    ballast = folder / "ballast"
    fill(ballast, free_kilobytes)
    first, said = toy.finish(toy.start("graph", root, *TARGETS))
    ballast.unlink()
    second, _ = toy.finish(toy.start("graph", root, *TARGETS))
    made = {name: base64.b64encode(content).decode() for name, content in toy.contents(root).items()}
    sys.stdout.write("\n" + json.dumps({"first": first, "said": said, "second": second, "made": made}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
