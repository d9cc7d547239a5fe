"""A Python module run as a child of a flow: it dies with the flow, and names itself to what it starts.

Run as a script: ``python -P flows/child.py <process id of the flow> <module> <arguments>``.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and run a module in it, as ``python -m`` would.

    Args:
        arguments: the parent's process id, the module, and the module's own arguments.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tasks.lifecycle import RUNNER_VARIABLE, die_with_parent

    sys.path.pop(0)
    parent, module, *rest = arguments
    die_with_parent(int(parent))
    os.environ[RUNNER_VARIABLE] = str(os.getpid())
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
