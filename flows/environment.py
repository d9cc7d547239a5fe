"""Environment of the tools that the flows start: quiet, on loopback, writing inside the repository.

>>> child_environment({"PATH": "/usr/bin"})["PATH"].endswith("/usr/bin")
True
>>> child_environment({})["DVC_NO_ANALYTICS"]
'1'
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from flows.errors import FlowError

PROJECT_ROOT = Path(__file__).resolve().parents[1]
"""Folder that holds the flows package."""

RUNTIME = ".runtime"
"""Folder, below a root, for logs, databases and workspaces; never in git."""


def defaults(root: Path = PROJECT_ROOT) -> dict[str, str]:
    """Variables that are set unless the user set them: no telemetry, and every file below ``root``."""
    runtime = root / RUNTIME
    return {
        "DO_NOT_TRACK": "1",
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(runtime / "dvc"),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": str(runtime / "matplotlib"),
        "PREFECT_HOME": str(runtime / "prefect"),
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    }


def set_defaults() -> None:
    """Set the defaults in this process, keeping what the user chose, and make Prefect's home."""
    for name, value in defaults().items():
        os.environ.setdefault(name, value)
    with contextlib.suppress(OSError):  # Prefect makes the last folder only, and says so later if it cannot
        Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)


def check_root(root: Path) -> Path:
    """The resolved folder, if it is one that flows can run in.

    Raises:
        FlowError: if it holds no dvc.yaml.
    """
    folder = root.resolve()
    try:
        found = (folder / "dvc.yaml").is_file()
    except OSError:
        found = False
    if not found:
        raise FlowError(f"--root is {str(root)!r}; allowed is a folder that holds a dvc.yaml.")
    return folder


def child_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a child process.

    Args:
        base: variables to start from; the environment of this process when None.

    Returns:
        a copy in which this interpreter's folder comes first on ``PATH``, so that ``python`` in a stage
        is the interpreter that runs the flow.
    """
    result = dict(os.environ if base is None else base)
    for name, value in defaults().items():
        result.setdefault(name, value)
    folder = str(Path(sys.executable).parent)
    rest = [part for part in result.get("PATH", os.defpath).split(os.pathsep) if part and part != folder]
    result["PATH"] = os.pathsep.join([folder, *rest])
    result["PYTHONUNBUFFERED"] = "1"
    return result
