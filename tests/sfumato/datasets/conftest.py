"""Makers of small archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Maker = Callable[..., Path]


@pytest.fixture(scope="session")
def make_tar() -> Maker:
    """Write a gzip-compressed tar archive of the given members and symbolic links."""

    def make(path: Path, members: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> Path:
        with tarfile.open(path, "w:gz") as tar:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            for name, target in (links or {}).items():
                info = tarfile.TarInfo(name)
                info.type, info.linkname = tarfile.SYMTYPE, target
                tar.addfile(info)
        return path

    return make


@pytest.fixture(scope="session")
def make_zip() -> Maker:
    """Write a zip archive of the given members."""

    def make(path: Path, members: Mapping[str, bytes]) -> Path:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
            for name, content in members.items():
                package.writestr(name, content)
        return path

    return make
