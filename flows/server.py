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
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from flows.environment import PROJECT_ROOT, RUNTIME, child_environment
from flows.errors import FlowError
from flows.orphans import close_orphans
from flows.processes import end_group, tied_module

LOOPBACK = "127.0.0.1"
_START_SECONDS = 120.0
_API = [
    "uvicorn",
    "--factory",
    "prefect.server.api.server:create_app",
    "--log-level",
    "error",
    "--lifespan",
    "on",
]


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
def local_api(root: Path = PROJECT_ROOT, meanwhile: Callable[[], object] | None = None) -> Generator[str]:
    """A Prefect API for the block: the configured one, else a private server that ends with it.

    Flow runs that a kill left running are closed first.

    Args:
        root: its ``.runtime/logs`` takes the server's log.
        meanwhile: done while the server starts, such as slow imports.

    Yields:
        the address of the API.

    Raises:
        FlowError: if the server does not come up, or the configured one does not answer.
    """
    from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

    configured = get_current_settings().api.url
    if configured:
        _check_answers(str(configured))
        close_orphans()
        yield str(configured)
        return
    from filelock import FileLock

    home = Path(os.environ["PREFECT_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / "server-start.lock"):
        process, url = _start(root, home, meanwhile)
    try:
        with temporary_settings({PREFECT_API_URL: url}):
            try:
                close_orphans()
                yield url
            finally:
                _send_what_waits()
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)
        end_group(process)


def _check_answers(url: str) -> None:
    """Refuse an API that the user set and that does not answer.

    Raises:
        FlowError: naming its address.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
    if error is not None:
        raise FlowError(
            f"PREFECT_API_URL is {url!r}, and no Prefect API answers there ({type(error).__name__}); allowed is one that "
            "runs, or none: then every flow brings its own."
        )


def _send_what_waits() -> None:
    """Let Prefect send the log lines and events that it still holds, while the server is there."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    APILogHandler().flush()
    EventsWorker.drain_all(timeout=5)


def _start(
    root: Path, home: Path, meanwhile: Callable[[], object] | None
) -> tuple[subprocess.Popen[str], str]:
    """Start a server without pages of its own and wait until it answers.

    The check of the database's schema takes seconds; a marker of this Prefect version beside the database
    says that it was done. When the server does not come up with it, it is done anew.
    """
    import prefect

    marker = home / f"schema-{prefect.__version__}"
    known = marker.exists() and (home / "prefect.db").exists()
    port = free_port(0)
    variables = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    if known:
        variables["PREFECT_SERVER_DATABASE_MIGRATE_ON_START"] = "false"
    command = [*_API, "--host", LOOPBACK, "--port", str(port)]
    process = start_server(root, "prefect-server", command, variables)
    url = f"http://{LOOPBACK}:{port}/api"
    try:
        if meanwhile is not None:
            meanwhile()
        wait_for(process, f"{url}/health", "the Prefect server")
    except BaseException as error:
        end_group(process)
        if isinstance(error, FlowError) and known:
            marker.unlink(missing_ok=True)
            return _start(root, home, None)
        raise
    marker.touch()
    return process, url


def start_server(
    root: Path, name: str, command: list[str], variables: Mapping[str, str]
) -> subprocess.Popen[str]:
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
