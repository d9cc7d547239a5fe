"""The Prefect API of one run: the server that is set, else one of our own that ends with the run.

>>> port = free_port(65000)
>>> 1024 < port < 65536
True

A server that Prefect starts by itself outlives a ``kill -9`` of its flow; ours is tied to the process.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flows.environment import PROJECT_ROOT, RUNTIME, child_environment
from flows.errors import FlowError
from flows.processes import end_group, tied_module

LOOPBACK = "127.0.0.1"
_START_SECONDS = 120.0


def free_port(preferred: int) -> int:
    """A port on loopback that nothing listens on: the preferred one, else any."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise FlowError("no port is free on 127.0.0.1.")


@contextmanager
def local_api(root: Path = PROJECT_ROOT) -> Generator[str]:
    """A Prefect API for the block: the configured one, else a private server that ends with it.

    Args:
        root: its ``.runtime/logs`` takes the server's log.

    Yields:
        the address of the API.

    Raises:
        FlowError: if the server does not come up.
    """
    from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

    configured = get_current_settings().api.url
    if configured:
        yield str(configured)
        return
    from filelock import FileLock

    home = Path(os.environ["PREFECT_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / "server-start.lock"):
        process, url = _start(root)
    try:
        with temporary_settings({PREFECT_API_URL: url}):
            try:
                yield url
            finally:
                _send_what_waits()
    finally:
        process.terminate()
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            pass
        end_group(process)


def _send_what_waits() -> None:
    """Let Prefect send the log lines and events that it still holds, while the server is there."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()
    EventsWorker.drain_all(timeout=5)


def _start(root: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a server without services or pages of its own and wait until it answers."""
    port = free_port(0)
    process = start_server(
        root,
        "prefect-server",
        ["uvicorn", "--factory", "prefect.server.api.server:create_app", "--host", LOOPBACK, "--port", str(port)]
        + ["--log-level", "error", "--lifespan", "on"],
        {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"},
    )
    url = f"http://{LOOPBACK}:{port}/api"
    try:
        wait_for(process, f"{url}/health", "the Prefect server")
    except BaseException:
        end_group(process)
        raise
    return process, url


def start_server(root: Path, name: str, command: list[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a Python module as a server in its own process group, tied to this process.

    Args:
        root: its ``.runtime/logs/<name>.log`` takes what the server prints.
        name: name of the log.
        command: the module and its arguments.
        variables: variables beyond those of this process.
    """
    folder = root / RUNTIME / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("a", encoding="utf-8") as log:
        return subprocess.Popen(
            tied_module(*command),
            cwd=root,
            env={**child_environment(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def wait_for(process: subprocess.Popen[str], url: str, what: str, seconds: float = _START_SECONDS) -> None:
    """Wait until an address on loopback answers.

    Raises:
        FlowError: if the process ends first, or the time is over.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise FlowError(f"{what} ended with status {process.returncode}; its log is in .runtime/logs.")
        try:
            with opener.open(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise FlowError(f"{what} did not answer within {seconds:.0f} s; its log is in .runtime/logs.")
