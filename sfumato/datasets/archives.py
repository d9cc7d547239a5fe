"""Reading chosen members of tar and zip archives, without unpacking the rest or following their paths.

>>> is_safe_name("./usr/share/rows.csv"), is_safe_name("../rows.csv"), is_safe_name("/etc/rows.csv")
(True, False, False)

A member is written to a path that the caller chooses, never to the path that the archive names. An archive
with an absolute name or one that climbs out with ``..`` is refused as a whole.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from sfumato.datasets.fetching import SourceError

_WINDOWS_PATH = re.compile(r"^[A-Za-z]:|\\")


def is_safe_name(name: str) -> bool:
    """Whether a member's name is relative, stays inside and has no drive or backslash."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and not _WINDOWS_PATH.search(name)


def extract_tar(archive: Path, members: Mapping[str, Path], maximum_bytes: int) -> None:
    """Write chosen members of a tar archive (plain, gz, bz2 or xz) to chosen paths.

    Args:
        archive: the archive.
        members: member name, without a leading ``./`` -> path to write.
        maximum_bytes: the largest size that a member may have.

    Raises:
        SourceError: if the archive is damaged, holds an unsafe name, or a member is missing, too large
            or not a regular file.
    """
    found: set[str] = set()
    try:
        with tarfile.open(archive, "r:*") as tar:
            for info in tar:
                name = _checked(info.name, archive)
                if name not in members:
                    continue
                stream = tar.extractfile(info) if info.isreg() else None
                if stream is None or info.size > maximum_bytes:
                    raise SourceError(
                        f"{name} in {archive.name} is not a file of at most {maximum_bytes} bytes"
                    )
                with stream, open(members[name], "wb") as target:
                    shutil.copyfileobj(stream, target)
                found.add(name)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise SourceError(f"{archive.name} is damaged ({type(error).__name__})") from None
    _check_complete(archive, members, found)


def extract_zip(archive: Path, members: Mapping[str, Path], maximum_bytes: int) -> None:
    """Write chosen members of a zip archive to chosen paths; as `extract_tar` does.

    Raises:
        SourceError: if the archive is damaged, holds an unsafe name, or a member is missing or too large.
    """
    found: set[str] = set()
    try:
        with zipfile.ZipFile(archive) as package:
            for info in package.infolist():
                name = _checked(info.filename, archive)
                if name not in members:
                    continue
                if info.file_size > maximum_bytes:
                    raise SourceError(
                        f"{name} in {archive.name} is not a file of at most {maximum_bytes} bytes"
                    )
                with package.open(info) as stream, open(members[name], "wb") as target:
                    shutil.copyfileobj(stream, target)
                found.add(name)
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError) as error:
        raise SourceError(f"{archive.name} is damaged ({type(error).__name__})") from None
    _check_complete(archive, members, found)


def _checked(name: str, archive: Path) -> str:
    if not is_safe_name(name):
        raise SourceError(f"{archive.name} holds the unsafe name {name!r}")
    return str(PurePosixPath(name))


def _check_complete(archive: Path, members: Mapping[str, Path], found: set[str]) -> None:
    lacking = sorted(set(members) - found)
    if lacking:
        raise SourceError(f"{archive.name} lacks {', '.join(lacking)}")
