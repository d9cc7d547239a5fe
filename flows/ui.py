"""The pages of MLflow and Prefect on 127.0.0.1, with this tree's results in them, until Ctrl-C.

``python -m flows.ui``

>>> mlflow_command("sqlite:////data/mlflow.db", Path("/data"), 5000)[:6]
['mlflow', 'server', '--workers', '1', '--host', '127.0.0.1']
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

from flows.environment import PROJECT_ROOT, RUNTIME, check_root
from flows.errors import FlowError
from flows.graph import exit_status
from flows.mirror import mirror, tracking_uri
from flows.processes import end_group
from flows.server import LOOPBACK, free_port, start_server, wait_for
from sfumato.errors import SfumatoError

MLFLOW_PORT = 5000
PREFECT_PORT = 4200
_QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def show(root: Path, mlflow_port: int = MLFLOW_PORT, prefect_port: int = PREFECT_PORT) -> None:
    """Mirror the results, start both servers, print their addresses, and wait for Ctrl-C or SIGTERM.

    Args:
        root: the tree.
        mlflow_port: port for MLflow; another one when it is taken.
        prefect_port: port for Prefect; another one when it is taken.

    Raises:
        FlowError: if a server does not come up, or ends by itself.
    """
    try:
        mirror(root)
    except SfumatoError as error:
        sys.stderr.write(f"not mirrored to MLflow: {error}\n")
    with ExitStack() as stack:
        servers = [_start_mlflow(stack, root, mlflow_port), _start_prefect(stack, root, prefect_port)]
        stack.callback(_ask_to_end, servers)
        for name, process, url, health in servers:
            wait_for(process, health, name)
            sys.stdout.write(f"{name:<8} {url}\n")
        sys.stdout.write("Press Ctrl-C to end both.\n")
        sys.stdout.flush()
        while True:
            for name, process, _, _ in servers:
                if process.poll() is not None:
                    raise FlowError(
                        f"{name} ended with status {process.returncode}; its log is in {RUNTIME}/logs."
                    )
            time.sleep(0.2)


Started = tuple[str, "subprocess.Popen[str]", str, str]


def _start_mlflow(stack: ExitStack, root: Path, preferred: int) -> Started:
    home = root / RUNTIME / "mlflow"
    home.mkdir(parents=True, exist_ok=True)
    port = free_port(preferred)
    process = start_server(root, "mlflow-ui", mlflow_command(tracking_uri(home), home, port), _QUIET)
    stack.callback(end_group, process)
    url = f"http://{LOOPBACK}:{port}"
    return "MLflow", process, url, f"{url}/health"


def mlflow_command(uri: str, home: Path, port: int) -> list[str]:
    """Command of the MLflow server; a remote store is shown through a local page too."""
    artifacts = (home.resolve() / "artifacts").as_uri()
    options = ["--backend-store-uri", uri, "--default-artifact-root", artifacts]
    return ["mlflow", "server", "--workers", "1", "--host", LOOPBACK, "--port", str(port), *options]


def _start_prefect(stack: ExitStack, root: Path, preferred: int) -> Started:
    port = free_port(preferred)
    api = f"http://{LOOPBACK}:{port}/api"
    variables = {
        "PREFECT_UI_API_URL": api,
        "PREFECT_API_URL": api,
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "0",
    }
    command = ["prefect", "server", "start", "--host", LOOPBACK, "--port", str(port)]
    process = start_server(root, "prefect-ui", command, variables)
    stack.callback(end_group, process)
    return "Prefect", process, f"http://{LOOPBACK}:{port}", f"{api}/health"


def _ask_to_end(servers: Sequence[Started], seconds: float = 3.0) -> None:
    """Ask all servers to end, and give them a little time; what is left is killed with its group."""
    for _, process, _, _ in servers:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(process.poll() is None for _, process, _, _ in servers):
        time.sleep(0.05)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # A second signal must not break off the ending of what was started.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: ``python -m flows.ui [--mlflow-port N] [--prefect-port N]``."""
    parser = argparse.ArgumentParser(prog="python -m flows.ui", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, default=PROJECT_ROOT, help="folder of the DVC repository")
    parser.add_argument("--mlflow-port", type=int, default=MLFLOW_PORT)
    parser.add_argument("--prefect-port", type=int, default=PREFECT_PORT)
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)

    def action() -> None:
        with suppress(KeyboardInterrupt):
            show(check_root(options.root), options.mlflow_port, options.prefect_port)

    return exit_status(action)


if __name__ == "__main__":
    sys.exit(main())
